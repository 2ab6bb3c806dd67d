//! Held locks.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polylatch::resource::Sequencer;
use polylatch::{Converted, Polylatch};
use polylatch_bridge::{Client as Store, Failure, Homed, runtime};
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::errors::OrRaise;
use crate::lost::Lost;

/// A held lock: proof of a lease, and the way to give it back.
///
/// The lease is renewed in the background until it is released or lost, whatever the interpreter does
/// meanwhile. A loss is told by this process's own clock, with or without an answer from the store.
/// A guard is a context manager that releases at the end; one that is dropped releases too.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct Guard {
    held: Homed<Arc<Held>>,
    /// Kept as long as something of it is held, so that the end of the program finds it.
    _store: Arc<Store>,
    name: String,
    holder: String,
    fencing_token: AtomicU64,
    watches: Mutex<Vec<Watch>>,
}

/// A callback for the loss. It belongs to the guard alone, where the collector finds it: a callback
/// that leads back to its guard must not keep it held for ever.
struct Watch {
    callback: Arc<Py<PyAny>>,
    _task: Homed<runtime::Task>,
}

/// The core's guard. It is replaced when a read lock becomes a write lock or the reverse.
pub struct Held(Mutex<Option<Arc<polylatch::Guard>>>);

impl Held {
    /// Returns the core's guard; `None` while or after it was given away for a conversion.
    pub fn now(&self) -> Option<Arc<polylatch::Guard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the core's guard out if nobody else uses it at the moment.
    fn take(&self) -> Option<polylatch::Guard> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match Arc::try_unwrap(place.take()?) {
            Ok(guard) => Some(guard),
            Err(shared) => {
                *place = Some(shared);
                None
            }
        }
    }

    fn put(&self, guard: polylatch::Guard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(guard));
    }
}

impl Guard {
    pub fn new(guard: polylatch::Guard, client: &Polylatch, store: &Arc<Store>) -> Self {
        Self {
            _store: Arc::clone(store),
            name: guard.name().to_owned(),
            holder: client.id().as_str().to_owned(),
            fencing_token: AtomicU64::new(guard.fencing_token().get()),
            held: Homed::new(Arc::new(Held(Mutex::new(Some(Arc::new(guard)))))),
            watches: Mutex::default(),
        }
    }

    fn now(&self) -> Result<Arc<polylatch::Guard>, Failure> {
        let held = self.held.get().ok_or_else(|| Failure::inherited(&self.name))?;
        held.now().ok_or_else(|| self.gone())
    }

    fn gone(&self) -> Failure {
        Failure::invalid_argument(format!("the lease of {:?} was given back; acquire a new one", self.name))
    }

    fn releasing(&self) -> Result<impl Future<Output = Result<(), Failure>> + Send + 'static, Failure> {
        let held = self.held.get().ok_or_else(|| Failure::inherited(&self.name))?;
        let guard = held.now();
        Ok(async move {
            match guard {
                Some(guard) => Ok(guard.release().await?),
                // Lost by a conversion that failed: the background gives back what is left.
                None => Ok(()),
            }
        })
    }

    /// Steps up to writing, or down to reading. `false` if it was refused.
    fn converting(
        &self,
        up: bool,
    ) -> Result<impl Future<Output = Result<Option<u64>, Failure>> + Send + 'static, Failure> {
        let held = Arc::clone(self.held.get().ok_or_else(|| Failure::inherited(&self.name))?);
        let guard = held.take().ok_or_else(|| match held.now() {
            Some(_) => Failure::invalid_argument(format!(
                "another call of the guard of {:?} is under way; let it end first",
                self.name
            )),
            None => self.gone(),
        })?;
        Ok(async move {
            let (guard, done) = if up {
                match guard.try_upgrade().await? {
                    Converted::Done(guard) => (guard, true),
                    Converted::Refused(guard) => (guard, false),
                }
            } else {
                (guard.downgrade().await?, true)
            };
            let token = done.then(|| guard.fencing_token().get());
            held.put(guard);
            Ok(token)
        })
    }

    fn refuse_conversion(&self, from: &str, py: Python<'_>) -> PyResult<()> {
        // Asked before the core's guard is given away: the core drops one that has the wrong way.
        let mode = self.now().or_raise(py)?.mode().code();
        if mode == from {
            return Ok(());
        }
        let message = format!("{:?} is held by {mode}, not by {from}", self.name);
        Err(Failure::invalid_argument(message)).or_raise(py)
    }

    /// Releases at the end of a block. What the block raised is not replaced by a failed release.
    pub fn leave(&self, py: Python<'_>, raised: bool) -> PyResult<()> {
        match self.release(py) {
            Err(error) if raised && error.is_instance_of::<pyo3::exceptions::PyException>(py) => Ok(()),
            result => result,
        }
    }
}

#[pymethods]
impl Guard {
    /// The lock's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The number to hand to the protected resource: larger than any given out before.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.fencing_token.load(Ordering::SeqCst)
    }

    /// How far the order of fencing tokens can be relied on: ``"strict"``, ``"time-floored"`` or
    /// ``"none"``.
    #[getter]
    fn fence_quality(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.now().or_raise(py)?.fence_quality().code())
    }

    /// The lock's name, its holder and its fencing token as one printable value; see
    /// :class:`Sequencer`.
    #[getter]
    fn sequencer(&self, py: Python<'_>) -> PyResult<String> {
        let token = polylatch::FencingToken::new(self.fencing_token());
        let sequencer = Sequencer::new(&self.name, token).and_then(|made| made.with_holder(&self.holder));
        Ok(sequencer.or_raise(py)?.to_string())
    }

    /// Until when the lease may be relied on, in seconds of the clock that goes on while the machine
    /// sleeps (on Linux ``time.clock_gettime(time.CLOCK_BOOTTIME)``).
    #[getter]
    fn valid_until(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.now().or_raise(py)?.valid_until().as_nanos() as f64 / 1e9)
    }

    /// For how many seconds the lease may be relied on from now; 0.0 once it is over.
    #[getter]
    fn remaining(&self) -> f64 {
        self.now().map_or(0.0, |guard| guard.remaining().as_secs_f64())
    }

    /// Whether the lock is still held, by the clock, now. Costs no request.
    #[getter]
    fn is_held(&self) -> bool {
        self.now().is_ok_and(|guard| guard.is_held())
    }

    /// How often the lease was renewed.
    #[getter]
    fn renewals(&self) -> u32 {
        self.now().map_or(0, |guard| guard.renewals())
    }

    /// In which way the lock is held: ``"mutex"``, ``"read"``, ``"write"`` or ``"permits"``.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.now().or_raise(py)?.mode().code())
    }

    /// Raises :class:`LeaseLost` unless the lock is still held, by the clock, now. Costs no request.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.now().or_raise(py)?.check().or_raise(py)
    }

    /// Tells that the lease is lost, like a :class:`threading.Event`.
    #[getter]
    fn lost(&self) -> Lost {
        match self.held.get() {
            Some(held) => Lost::of(Arc::clone(held)),
            None => Lost::inherited(),
        }
    }

    /// Calls ``callback(reason)`` when the lease is lost, on a thread of its own; never after a release.
    fn on_lost(&self, py: Python<'_>, callback: Bound<'_, PyAny>) -> PyResult<()> {
        if !callback.is_callable() {
            return Err(PyTypeError::new_err("callback must be callable with the reason"));
        }
        let callback = Arc::new(callback.unbind());
        let weak = Arc::downgrade(&callback);
        let tell = move |reason: polylatch::LostReason| {
            Python::try_attach(|py| {
                let Some(callback) = weak.upgrade() else { return };
                if let Err(error) = callback.call1(py, (reason.code(),)) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        };
        let guard = self.now().or_raise(py)?;
        let task = Homed::new(runtime::on_lost(&guard, tell).or_raise(py)?);
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.push(Watch { callback, _task: task });
        Ok(())
    }

    /// Says that the protected work moves on; matters only with ``beat_every``.
    fn beat(&self, py: Python<'_>) -> PyResult<()> {
        self.now().or_raise(py)?.beat();
        Ok(())
    }

    /// Gives the lock back and waits until the store knows. Repeatable.
    ///
    /// Raises: :class:`LeaseLost` if the lease was over before; :class:`BackendUnavailable` if the store
    /// did not answer in time, and then the background goes on trying until the lease has ended.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.releasing().or_raise(py)?)
    }

    /// Steps down from writing to reading without letting a writer in between.
    fn downgrade(&self, py: Python<'_>) -> PyResult<()> {
        self.refuse_conversion("write", py)?;
        block(py, self.converting(false).or_raise(py)?).map(drop)
    }

    /// Steps up from reading to writing if nobody else reads, under a newer fencing token. Returns
    /// whether it did; if not, the guard still reads.
    ///
    /// There is no form that waits: two readers that both did would wait for each other for ever.
    fn try_upgrade(&self, py: Python<'_>) -> PyResult<bool> {
        self.refuse_conversion("read", py)?;
        let token = block(py, self.converting(true).or_raise(py)?)?;
        if let Some(token) = token {
            self.fencing_token.store(token, Ordering::SeqCst);
        }
        Ok(token.is_some())
    }

    fn _start_release(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.releasing().or_raise(py)?, |py, ()| Ok(py.None()))
    }

    fn _start_downgrade(&self, py: Python<'_>) -> PyResult<StartedCall> {
        self.refuse_conversion("write", py)?;
        asyncio::start(py, self.converting(false).or_raise(py)?, |py, _| Ok(py.None()))
    }

    fn _start_try_upgrade(this: Bound<'_, Self>) -> PyResult<StartedCall> {
        let py = this.py();
        this.get().refuse_conversion("read", py)?;
        let converting = this.get().converting(true).or_raise(py)?;
        let guard = this.unbind();
        asyncio::start(py, converting, move |py, token| {
            if let Some(token) = token {
                guard.get().fencing_token.store(token, Ordering::SeqCst);
            }
            Ok(token.is_some().into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.leave(py, !kind.is_none())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Locked by whoever runs when the collector begins: then another run will see them.
        let Ok(watches) = self.watches.try_lock() else { return Ok(()) };
        watches.iter().try_for_each(|watch| visit.call(&*watch.callback))
    }

    fn __clear__(&self) {
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        drop(watches);
    }

    fn __repr__(&self) -> String {
        let state = if self.is_held() { "held" } else { "not held" };
        format!("<polylatch.Guard {:?}, token {}, {state}>", self.name, self.fencing_token())
    }
}
