//! Held locks.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use polylatch::BootInstant;
use polylatch::resource::Sequencer;
use polylatch_bridge::{Client as Store, Failure, Handle, Homed, ops, runtime};
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::errors::OrRaise;
use crate::lost::Lost;

/// A held lock: proof of a lease, and the means to release it.
///
/// The lease is renewed in the background until it is released or lost, whatever the interpreter does
/// meanwhile. The holder detects a loss by its local clock, even if the store is unreachable.
/// A guard is a context manager that releases at the end; one that is dropped releases too.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct Guard {
    held: Arc<Handle>,
    /// Kept as long as something of it is held, so that the end of the program finds it.
    _store: Arc<Store>,
    holder: String,
    watches: Mutex<Vec<Watch>>,
}

/// An instant in seconds of its clock.
fn deadline(instant: BootInstant) -> f64 {
    instant.as_nanos() as f64 / 1e9
}

/// A callback for the loss. It belongs to the guard alone, where the collector finds it: a callback
/// that leads back to its guard must not keep it held for ever.
struct Watch {
    callback: Arc<Py<PyAny>>,
    _task: Homed<runtime::Task>,
}

impl Guard {
    pub fn new(held: Handle, store: Arc<Store>) -> Self {
        // It has just acquired, so it is connected.
        let holder = store.read(ops::id).unwrap_or_default();
        Self { _store: store, holder, held: Arc::new(held), watches: Mutex::default() }
    }

    fn releasing(&self) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let held = Arc::clone(&self.held);
        async move { held.release().await }
    }

    fn extending(
        &self,
        lease: &Bound<'_, PyAny>,
    ) -> PyResult<impl Future<Output = Result<BootInstant, Failure>> + Send + 'static> {
        let (held, lease) = (Arc::clone(&self.held), args::seconds("lease", lease)?);
        Ok(async move { held.extend(lease).await })
    }

    fn converting(&self, up: bool) -> impl Future<Output = Result<bool, Failure>> + Send + 'static {
        let held = Arc::clone(&self.held);
        async move { held.convert(up).await }
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
        self.held.name()
    }

    /// The number to hand to the protected resource: larger than any given out before.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.held.fencing_token()
    }

    /// How far the order of fencing tokens can be relied on: ``"strict"``, ``"time-floored"`` or
    /// ``"none"``.
    #[getter]
    fn fence_quality(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.held.with(polylatch::Guard::fence_quality).or_raise(py)?.code())
    }

    /// The lock's name, its holder and its fencing token as one printable value; see
    /// :class:`Sequencer`.
    #[getter]
    fn sequencer(&self, py: Python<'_>) -> PyResult<String> {
        let token = polylatch::FencingToken::new(self.fencing_token());
        let sequencer = Sequencer::new(self.name(), token).and_then(|made| made.with_holder(&self.holder));
        Ok(sequencer.or_raise(py)?.to_string())
    }

    /// Until when the lease may be relied on, in seconds of the clock that goes on while the machine
    /// sleeps (on Linux ``time.clock_gettime(time.CLOCK_BOOTTIME)``).
    #[getter]
    fn valid_until(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(deadline(self.held.with(polylatch::Guard::valid_until).or_raise(py)?))
    }

    /// For how many seconds the lease may be relied on from now; 0.0 once it is over.
    #[getter]
    fn remaining(&self) -> f64 {
        self.held.remaining().as_secs_f64()
    }

    /// Whether the lock is still held, by the clock, now. Costs no request.
    #[getter]
    fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// How often the lease was renewed.
    #[getter]
    fn renewals(&self) -> u32 {
        self.held.with(polylatch::Guard::renewals).unwrap_or(0)
    }

    /// The mode in which the lock is held: ``"mutex"``, ``"read"``, ``"write"`` or ``"permits"``.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.held.with(polylatch::Guard::mode).or_raise(py)?.code())
    }

    /// Raises :class:`LeaseLost` unless the lock is still held, by the clock, now. Costs no request.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.held.check().or_raise(py)
    }

    /// Tells that the lease is lost, like a :class:`threading.Event`.
    #[getter]
    fn lost(&self) -> Lost {
        Lost(Arc::clone(&self.held))
    }

    /// Calls ``callback(reason)`` when the lease is lost, on a thread of its own; never after a release.
    fn on_lost(&self, py: Python<'_>, callback: Bound<'_, PyAny>) -> PyResult<()> {
        if !callback.is_callable() {
            return Err(PyTypeError::new_err("callback must be callable with the reason"));
        }
        let callback = Arc::new(callback.unbind());
        let weak = Arc::downgrade(&callback);
        let tell = move |reason: &'static str| {
            Python::try_attach(|py| {
                let Some(callback) = weak.upgrade() else { return };
                if let Err(error) = callback.call1(py, (reason,)) {
                    error.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        };
        let task = self.held.on_lost(tell).or_raise(py)?;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.push(Watch { callback, _task: task });
        Ok(())
    }

    /// Says that the protected work moves on; matters only with ``beat_every``.
    fn beat(&self, py: Python<'_>) -> PyResult<()> {
        self.held.beat().or_raise(py)
    }

    /// Gives the lock back and waits until the store knows. Repeatable.
    ///
    /// Raises: :class:`LeaseLost` if the lease was over before; :class:`BackendUnavailable` if the store
    /// did not answer in time, and then the background goes on trying until the lease has ended.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.releasing())
    }

    /// Gives the lease another length, in seconds or as a ``timedelta``; later renewals use it too. The store
    /// is asked at once. Returns until when the lease may be relied on, as :attr:`valid_until`.
    ///
    /// A shorter length takes nothing back: an earlier deadline that lies further away stays. ``max_hold`` and
    /// ``beat_every`` limit the lease as before. With ``renew=False``, extend again before it ends.
    ///
    /// Raises: :class:`LeaseLost`; :class:`InvalidArgument` for a length out of range and after a release;
    /// :class:`Unsupported` where a lease keeps its length (Consul); :class:`BackendUnavailable` if the store
    /// did not confirm it in time, and then the guard keeps its deadline and its length.
    fn extend(&self, py: Python<'_>, lease: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(deadline(block(py, self.extending(lease)?)?))
    }

    /// Atomically downgrades a write lock to a read lock.
    fn downgrade(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.converting(false)).map(drop)
    }

    /// Upgrades a read lock to a write lock if there is no other reader, under a newer fencing token. Returns
    /// whether it did; if not, the guard still reads.
    ///
    /// There is no form that waits: two readers that both did would wait for each other for ever.
    fn try_upgrade(&self, py: Python<'_>) -> PyResult<bool> {
        block(py, self.converting(true))
    }

    fn _start_release(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.releasing(), |py, ()| Ok(py.None()))
    }

    fn _start_extend(&self, py: Python<'_>, lease: &Bound<'_, PyAny>) -> PyResult<StartedCall> {
        asyncio::start(py, self.extending(lease)?, |py, until| {
            Ok(deadline(until).into_pyobject(py)?.into_any().unbind())
        })
    }

    fn _start_downgrade(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.converting(false), |py, _| Ok(py.None()))
    }

    fn _start_try_upgrade(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.converting(true), |py, done| {
            Ok(done.into_pyobject(py)?.to_owned().into_any().unbind())
        })
    }

    /// Checks first: what is released or lost must not run a block without its lock.
    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        this.get().check(this.py())?;
        Ok(this)
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
        // Locked by the run during which the collector began; a later run sees them.
        let Ok(watches) = self.watches.try_lock() else { return Ok(()) };
        watches.iter().try_for_each(|watch| visit.call(&*watch.callback))
    }

    fn __clear__(&self) {
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        drop(watches);
    }

    fn __repr__(&self) -> String {
        let state = if self.is_held() { "held" } else { "not held" };
        format!("<polylatch.Guard {:?}, token {}, {state}>", self.name(), self.fencing_token())
    }
}
