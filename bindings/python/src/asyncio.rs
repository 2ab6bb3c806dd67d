//! Calls that an asyncio event loop carries out itself.
//!
//! Each loop has one [`LoopSide`]: a file descriptor that the loop watches, and the calls under way.
//! Threads of the core write to the descriptor; none of them ever waits for the interpreter. On loops
//! that cannot watch a descriptor (Windows' default), a thread of its own calls `call_soon_threadsafe`.

use std::future::Future;
use std::sync::Arc;

use polylatch_bridge::border::caught_call;
use polylatch_bridge::{Failure, Homed, HostLoop, Started, UnderWay};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;

use crate::errors::OrRaise;

/// Makes Python's object out of what a call brought.
type Deliver = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What is done: whose future it is, if the call was not done at once, and its result.
struct Done {
    future: Option<Py<PyAny>>,
    deliver: Deliver,
}

/// A call as Python gets it: `(result, None)` if it is done, else `(future, call under way)`.
pub type StartedCall = (Py<PyAny>, Option<Py<UnderWayCall>>);

/// Starts a call on the running loop; `deliver` makes its result when it is done.
pub fn start<T: Send + 'static>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, Failure>> + Send + 'static,
    deliver: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<StartedCall> {
    let event_loop = running_loop(py)?;
    let side = side_of(&event_loop)?;
    let side = side.get();
    let inner = side.0.get().expect("it is of this process");
    // Where the future stands until the call is known not to be done at once.
    let place = Arc::new(std::sync::Mutex::new(None::<Py<PyAny>>));
    let future_of = Arc::clone(&place);
    let carried_out = async move {
        let output = caught_call(call).await;
        let future = future_of.lock().ok().and_then(|mut future| future.take());
        let deliver: Deliver = Box::new(move |py| match output {
            Ok(output) => deliver(py, output.or_raise(py)?),
            Err(panic) => Err(panic).or_raise(py),
        });
        Done { future, deliver }
    };
    match py.detach(|| inner.host.start(carried_out)) {
        Started::Done(done) => Ok(((done.deliver)(py)?, None)),
        Started::UnderWay(under_way) => {
            let future = event_loop.call_method0(pyo3::intern!(py, "create_future"))?.unbind();
            if let Ok(mut place) = place.lock() {
                *place = Some(future.clone_ref(py));
            }
            let under_way = Py::new(py, UnderWayCall(Homed::new(under_way)))?;
            Ok((future, Some(under_way)))
        }
    }
}

/// A call of the core that an event loop waits for.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct UnderWayCall(Homed<UnderWay<Done>>);

#[pymethods]
impl UnderWayCall {
    /// Ends the call and undoes what it may have done. Does nothing if it is done.
    fn cancel(&self, py: Python<'_>) {
        if let Some(under_way) = self.0.get() {
            py.detach(|| under_way.cancel());
        }
    }
}

/// One event loop's side; called by the loop when there is something to do.
#[pyclass(frozen, module = "polylatch._polylatch")]
struct LoopSide(Homed<Inner>);

struct Inner {
    host: HostLoop<Done>,
    #[cfg(unix)]
    bell: Option<Arc<bell::Bell>>,
}

#[pymethods]
impl LoopSide {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Some(inner) = self.0.get() else { return Ok(()) };
        let mut done = Vec::new();
        py.detach(|| {
            #[cfg(unix)]
            if let Some(bell) = &inner.bell {
                bell.silence();
            }
            inner.host.turn(|one| done.push(one));
        });
        for Done { future, deliver } in done {
            let Some(future) = future else { continue };
            let future = future.bind(py);
            // Whoever waited may have been cancelled meanwhile: then a guard is dropped, not delivered.
            if future.call_method0(pyo3::intern!(py, "done"))?.is_truthy()? {
                continue;
            }
            match deliver(py) {
                Ok(value) => future.call_method1(pyo3::intern!(py, "set_result"), (value,))?,
                Err(error) => future.call_method1(pyo3::intern!(py, "set_exception"), (error,))?,
            };
        }
        Ok(())
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET.import(py, "asyncio", "get_running_loop")?.call0()
}

/// Returns the loop's side, and makes it at the first call.
fn side_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, LoopSide>> {
    static SIDES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = event_loop.py();
    // Weak keys: a loop that is gone takes its side along, and that ends its calls.
    let sides = SIDES
        .get_or_try_init(py, || {
            py.import("weakref")?.getattr("WeakKeyDictionary")?.call0().map(Bound::unbind)
        })?
        .bind(py);
    let known = sides.call_method1(pyo3::intern!(py, "get"), (event_loop,))?;
    if let Ok(side) = known.cast_into::<LoopSide>()
        && side.get().0.get().is_some()
    {
        return Ok(side);
    }
    let side = make_side(event_loop)?;
    sides.set_item(event_loop, &side)?;
    Ok(side)
}

fn make_side<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, LoopSide>> {
    let py = event_loop.py();
    #[cfg(unix)]
    {
        let bell = Arc::new(bell::Bell::new()?);
        let ring = Arc::clone(&bell);
        let fd = bell.fd();
        let host = HostLoop::new(move || ring.ring());
        let side = Bound::new(py, LoopSide(Homed::new(Inner { host, bell: Some(bell) })))?;
        match event_loop.call_method1("add_reader", (fd, &side)) {
            Ok(_) => return Ok(side),
            Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    threadsafe_side(event_loop)
}

/// For loops that watch no descriptors: the thread for callbacks asks the loop to call its side.
fn threadsafe_side<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, LoopSide>> {
    let py = event_loop.py();
    let weak_loop = PyWeakrefReference::new(event_loop)?.unbind();
    let weak_side = Arc::new(std::sync::OnceLock::<Py<PyWeakrefReference>>::new());
    let side_of_loop = Arc::clone(&weak_side);
    let weak_loop = Arc::new(weak_loop);
    let notify = move || {
        let (weak_loop, weak_side) = (Arc::clone(&weak_loop), Arc::clone(&side_of_loop));
        let call = async move {
            Python::try_attach(|py| {
                let event_loop = weak_loop.call0(py).ok()?;
                let side = weak_side.get()?.call0(py).ok()?;
                // A closed loop refuses; its calls have nobody to tell.
                event_loop.call_method1(py, "call_soon_threadsafe", (side,)).ok()
            });
        };
        polylatch_bridge::runtime::spawn_detached(call);
    };
    #[cfg(unix)]
    let inner = Inner { host: HostLoop::new(notify), bell: None };
    #[cfg(not(unix))]
    let inner = Inner { host: HostLoop::new(notify) };
    let side = Bound::new(py, LoopSide(Homed::new(inner)))?;
    let _ = weak_side.set(PyWeakrefReference::new(side.as_any())?.unbind());
    Ok(side)
}

#[cfg(unix)]
mod bell {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// A descriptor that becomes readable when it is rung.
    pub struct Bell {
        reads: OwnedFd,
        #[cfg(not(target_os = "linux"))]
        writes: OwnedFd,
    }

    impl Bell {
        #[cfg(target_os = "linux")]
        pub fn new() -> io::Result<Self> {
            use rustix::event::{EventfdFlags, eventfd};
            let reads = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            Ok(Self { reads })
        }

        #[cfg(not(target_os = "linux"))]
        pub fn new() -> io::Result<Self> {
            use std::os::unix::net::UnixStream;
            let (reads, writes) = UnixStream::pair()?;
            reads.set_nonblocking(true)?;
            writes.set_nonblocking(true)?;
            Ok(Self { reads: reads.into(), writes: writes.into() })
        }

        pub fn fd(&self) -> i32 {
            self.reads.as_raw_fd()
        }

        /// A full descriptor is readable already, so a refused write changes nothing.
        pub fn ring(&self) {
            #[cfg(target_os = "linux")]
            let _ = rustix::io::write(&self.reads, &1u64.to_ne_bytes());
            #[cfg(not(target_os = "linux"))]
            let _ = rustix::io::write(&self.writes, &[1]);
        }

        pub fn silence(&self) {
            // As many rings as there were: one turn serves them all.
            let mut rings = [0; 64];
            let _ = rustix::io::read(&self.reads, &mut rings);
        }
    }
}
