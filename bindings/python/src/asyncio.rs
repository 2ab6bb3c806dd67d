//! Calls that an asyncio event loop carries out itself.
//!
//! Each loop has one [`LoopSide`]: descriptors that the loop watches, and the calls under way. On Linux
//! one of them is readable when an answer has come in, so no other thread stands between a socket and
//! the loop. The other one is written to by threads of the core; none of them ever waits for the
//! interpreter. On loops that cannot watch a descriptor (Windows' default), a thread of its own calls
//! `call_soon_threadsafe`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use polylatch_bridge::{Failure, Homed, HostLoop, Started, UnderWay};
#[cfg(unix)]
use pyo3::exceptions::PyNotImplementedError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyWeakrefReference;

use crate::errors::OrRaise;

/// Makes Python's object out of what a call brought.
type Deliver = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What is done: the number of its future, if the call was not done at once, and its result.
struct Done {
    number: u64,
    deliver: Deliver,
}

/// The futures of a loop's calls under way, by number. The loop owns them, by way of its side: they end
/// with it, and with no other.
type Futures = Mutex<HashMap<u64, Py<PyAny>>>;

/// A call as Python gets it: `(result, None)` if it is done, else `(future, call under way)`.
pub type StartedCall = (Py<PyAny>, Option<Py<UnderWayCall>>);

/// Starts a call on the running loop; `deliver` makes its result when it is done.
pub fn start<T: Send + 'static>(
    py: Python<'_>,
    call: impl Future<Output = Result<T, Failure>> + Send + 'static,
    deliver: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<StartedCall> {
    let event_loop = running_loop(py)?;
    let callable = side_of(&event_loop)?;
    let side = callable.get();
    let inner = side.inner.get().expect("it is of this process");
    let number = side.next.fetch_add(1, Ordering::Relaxed);
    let finish = move |output: Result<Result<T, Failure>, Failure>| {
        let deliver: Deliver = Box::new(move |py| match output {
            Ok(output) => deliver(py, output.or_raise(py)?),
            Err(panic) => Err(panic).or_raise(py),
        });
        Done { number, deliver }
    };
    match py.detach(|| inner.host.start(call, finish)) {
        Started::Done(done) => Ok(((done.deliver)(py)?, None)),
        Started::UnderWay(call) => {
            if inner.host.is_due() {
                // After everything that tasks start in this round of the loop.
                event_loop.call_method1(pyo3::intern!(py, "call_soon"), (&callable,))?;
            }
            let future = event_loop.call_method0(pyo3::intern!(py, "create_future"))?.unbind();
            unpoisoned(&side.futures).insert(number, future.clone_ref(py));
            let call =
                UnderWayCall { call: Homed::new(call), number, futures: Arc::downgrade(&side.futures) };
            Ok((future, Some(Py::new(py, call)?)))
        }
    }
}

/// A call of the core that an event loop waits for.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct UnderWayCall {
    call: Homed<UnderWay<Done>>,
    number: u64,
    futures: Weak<Futures>,
}

#[pymethods]
impl UnderWayCall {
    /// Ends the call and undoes what it may have done. Does nothing if it is done.
    fn cancel(&self, py: Python<'_>) {
        if let Some(call) = self.call.get() {
            py.detach(|| call.cancel());
        }
        let future = self.futures.upgrade().and_then(|futures| unpoisoned(&futures).remove(&self.number));
        drop(future);
    }
}

/// One event loop's side; called by the loop when there is something to do.
#[pyclass(frozen, weakref, module = "polylatch._polylatch")]
struct LoopSide {
    inner: Homed<Inner>,
    futures: Arc<Futures>,
    next: AtomicU64,
}

struct Inner {
    host: HostLoop<Done>,
    #[cfg(unix)]
    bell: Option<Arc<bell::Bell>>,
}

impl LoopSide {
    fn new(inner: Inner) -> Self {
        Self { inner: Homed::new(inner), futures: Arc::default(), next: AtomicU64::new(0) }
    }
}

#[pymethods]
impl LoopSide {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let Some(inner) = self.inner.get() else { return Ok(()) };
        let mut done = Vec::new();
        py.detach(|| {
            #[cfg(unix)]
            if let Some(bell) = &inner.bell {
                bell.silence();
            }
            inner.host.turn(|one| done.push(one));
        });
        for Done { number, deliver } in done {
            // Whoever waited may have been cancelled meanwhile: then a guard is dropped, not delivered.
            let Some(future) = unpoisoned(&self.futures).remove(&number) else { continue };
            let future = future.bind(py);
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

    // A future leads to its loop, and that to this.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Locked by the run during which the collector began; a later run sees them.
        let Ok(futures) = self.futures.try_lock() else { return Ok(()) };
        futures.values().try_for_each(|future| visit.call(future))
    }

    fn __clear__(&self) {
        let futures = std::mem::take(&mut *unpoisoned(&self.futures));
        drop(futures);
    }
}

/// Every critical section here is one operation of a map.
fn unpoisoned(futures: &Futures) -> MutexGuard<'_, HashMap<u64, Py<PyAny>>> {
    futures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET.import(py, "asyncio", "get_running_loop")?.call0()
}

/// Returns the loop's side, and makes it at the first call.
fn side_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, LoopSide>> {
    static SIDES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = event_loop.py();
    // All weak: the loop alone owns its side, as what reads the descriptor. When it is closed or gone,
    // so is the side, and that ends its calls.
    let sides = SIDES
        .get_or_try_init(py, || {
            py.import("weakref")?.getattr("WeakKeyDictionary")?.call0().map(Bound::unbind)
        })?
        .bind(py);
    let known = sides.call_method1(pyo3::intern!(py, "get"), (event_loop,))?;
    if !known.is_none()
        && let Ok(side) = known.call0()?.cast_into::<LoopSide>()
        && side.get().inner.get().is_some()
    {
        return Ok(side);
    }
    let side = make_side(event_loop)?;
    sides.set_item(event_loop, PyWeakrefReference::new(side.as_any())?)?;
    Ok(side)
}

fn make_side<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, LoopSide>> {
    let py = event_loop.py();
    #[cfg(unix)]
    {
        let bell = Arc::new(bell::Bell::new()?);
        let ring = Arc::clone(&bell);
        let fd = bell.fd();
        let host = HostLoop::watched(move || ring.ring());
        let answers = host.descriptor();
        let side = Bound::new(py, LoopSide::new(Inner { host, bell: Some(bell) }))?;
        match event_loop.call_method1("add_reader", (fd, &side)) {
            Ok(_) => {
                if let Some(answers) = answers {
                    event_loop.call_method1("add_reader", (answers, &side))?;
                }
                return Ok(side);
            }
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
    let side = Bound::new(py, LoopSide::new(inner))?;
    let _ = weak_side.set(PyWeakrefReference::new(side.as_any())?.unbind());
    // There is no reader to own it.
    event_loop.setattr("_polylatch_side", &side)?;
    Ok(side)
}

#[cfg(unix)]
mod bell {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A descriptor that becomes readable when it is rung.
    pub struct Bell {
        /// There is something to silence.
        rung: AtomicBool,
        reads: OwnedFd,
        #[cfg(not(target_os = "linux"))]
        writes: OwnedFd,
    }

    impl Bell {
        #[cfg(target_os = "linux")]
        pub fn new() -> io::Result<Self> {
            use rustix::event::{EventfdFlags, eventfd};
            let reads = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            Ok(Self { rung: AtomicBool::new(false), reads })
        }

        #[cfg(not(target_os = "linux"))]
        pub fn new() -> io::Result<Self> {
            use std::os::unix::net::UnixStream;
            let (reads, writes) = UnixStream::pair()?;
            reads.set_nonblocking(true)?;
            writes.set_nonblocking(true)?;
            Ok(Self { rung: AtomicBool::new(false), reads: reads.into(), writes: writes.into() })
        }

        pub fn fd(&self) -> i32 {
            self.reads.as_raw_fd()
        }

        /// A full descriptor is readable already, so a refused write changes nothing.
        pub fn ring(&self) {
            // Before the write: what is written is seen only with this.
            self.rung.store(true, Ordering::SeqCst);
            #[cfg(target_os = "linux")]
            let _ = rustix::io::write(&self.reads, &1u64.to_ne_bytes());
            #[cfg(not(target_os = "linux"))]
            let _ = rustix::io::write(&self.writes, &[1]);
        }

        pub fn silence(&self) {
            if !self.rung.swap(false, Ordering::SeqCst) {
                return;
            }
            // As many rings as there were: one turn serves them all.
            let mut rings = [0; 64];
            let _ = rustix::io::read(&self.reads, &mut rings);
        }
    }
}
