//! Several held locks.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use polylatch_bridge::{Client as Store, Failure, Handle};
use pyo3::prelude::*;

use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::errors::OrRaise;
use crate::lost::Lost;

/// Several held locks. A context manager that releases them at the end; dropping it releases too.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct GuardSet {
    held: Arc<Handle>,
    /// Kept as long as something of it is held, so that the end of the program finds it.
    _store: Arc<Store>,
    fencing_tokens: BTreeMap<String, u64>,
}

impl GuardSet {
    pub fn new(held: Handle, store: Arc<Store>) -> Self {
        let fencing_tokens = held.held().into_iter().map(|(name, token)| (name.to_owned(), token)).collect();
        Self { held: Arc::new(held), _store: store, fencing_tokens }
    }

    fn releasing(&self) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let held = Arc::clone(&self.held);
        async move { held.release().await }
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
        self.held.is_held()
    }

    /// For how many seconds all of them may be relied on from now; 0.0 once one is over.
    #[getter]
    fn remaining(&self) -> f64 {
        self.held.remaining().as_secs_f64()
    }

    /// Raises :class:`LeaseLost` unless all of them are still held.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.held.check().or_raise(py)
    }

    /// Tells that one of the leases is lost, like a :class:`threading.Event`.
    #[getter]
    fn lost(&self) -> Lost {
        Lost(Arc::clone(&self.held))
    }

    /// Says that the protected work moves on; matters only with ``beat_every``.
    fn beat(&self, py: Python<'_>) -> PyResult<()> {
        self.held.beat().or_raise(py)
    }

    /// Gives them all back and waits until the store knows; see :meth:`Guard.release`.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.releasing())
    }

    fn _start_release(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.releasing(), |py, ()| Ok(py.None()))
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
