//! Several held locks.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use polylatch_bridge::{Client as Store, Failure, Homed};
use pyo3::prelude::*;

use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::errors::OrRaise;
use crate::lost::Lost;

/// Several held locks. A context manager that releases them at the end; dropping it releases too.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct GuardSet {
    set: Homed<Arc<polylatch::GuardSet>>,
    /// Kept as long as something of it is held, so that the end of the program finds it.
    _store: Arc<Store>,
    fencing_tokens: BTreeMap<String, u64>,
}

impl GuardSet {
    pub fn new(set: polylatch::GuardSet, store: &Arc<Store>) -> Self {
        let token = |guard: &polylatch::Guard| (guard.name().to_owned(), guard.fencing_token().get());
        Self {
            fencing_tokens: set.guards().iter().map(token).collect(),
            set: Homed::new(Arc::new(set)),
            _store: Arc::clone(store),
        }
    }

    fn here(&self) -> Result<&Arc<polylatch::GuardSet>, Failure> {
        let first = || self.fencing_tokens.keys().next().map_or("", String::as_str);
        self.set.get().ok_or_else(|| Failure::inherited(first()))
    }

    fn releasing(&self) -> Result<impl Future<Output = Result<(), Failure>> + Send + 'static, Failure> {
        let set = Arc::clone(self.here()?);
        Ok(async move { Ok(set.release().await?) })
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
impl GuardSet {
    /// The fencing token of each lock, by name.
    #[getter]
    fn fencing_tokens(&self) -> BTreeMap<String, u64> {
        self.fencing_tokens.clone()
    }

    /// Whether all of them are still held, by the clock, now.
    #[getter]
    fn is_held(&self) -> bool {
        self.here().is_ok_and(|set| set.check().is_ok())
    }

    /// For how many seconds all of them may be relied on from now; 0.0 once one is over.
    #[getter]
    fn remaining(&self) -> f64 {
        let least = |set: &Arc<polylatch::GuardSet>| {
            set.guards().iter().map(polylatch::Guard::remaining).min().unwrap_or_default().as_secs_f64()
        };
        self.here().map_or(0.0, least)
    }

    /// Raises :class:`LeaseLost` unless all of them are still held.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.here().or_raise(py)?.check().or_raise(py)
    }

    /// Tells that one of the leases is lost, like a :class:`threading.Event`.
    #[getter]
    fn lost(&self) -> Lost {
        match self.set.get() {
            Some(set) => Lost::of_all(Arc::clone(set)),
            None => Lost::inherited(),
        }
    }

    /// Says that the protected work moves on; matters only with ``beat_every``.
    fn beat(&self, py: Python<'_>) -> PyResult<()> {
        self.here().or_raise(py)?.guards().iter().for_each(polylatch::Guard::beat);
        Ok(())
    }

    /// Gives them all back and waits until the store knows; see :meth:`Guard.release`.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.releasing().or_raise(py)?)
    }

    fn _start_release(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.releasing().or_raise(py)?, |py, ()| Ok(py.None()))
    }

    fn __len__(&self) -> usize {
        self.fencing_tokens.len()
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

    fn __repr__(&self) -> String {
        let state = if self.is_held() { "held" } else { "not held" };
        format!("<polylatch.GuardSet {:?}, {state}>", self.fencing_tokens)
    }
}
