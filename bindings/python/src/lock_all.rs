//! Several locks to acquire together.

use std::future::Future;
use std::sync::Arc;

use polylatch_bridge::{Client as Store, Failure, LockOptions, Wanted};
use pyo3::prelude::*;

use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::guard_set::GuardSet;
use crate::lock::{Entered, acquired, decorated};

/// Several locks that are had all together or not at all.
///
/// They are acquired in the order of their names, so two that want the same locks never wait for each
/// other in a circle. A context manager and a decorator, as :class:`Lock`.
#[pyclass(frozen, module = "polylatch")]
pub struct LockAll {
    store: Arc<Store>,
    names: Vec<String>,
    wanted: Arc<Wanted>,
    entered: Entered<GuardSet>,
}

impl LockAll {
    pub fn new(store: Arc<Store>, names: Vec<String>, options: LockOptions) -> Self {
        let wanted = Arc::new(Wanted::All { names: names.clone(), options });
        Self { store, names, wanted, entered: Entered::default() }
    }

    fn acquiring(&self) -> impl Future<Output = Result<GuardSet, Failure>> + Send + 'static {
        let (store, wanted) = (Arc::clone(&self.store), Arc::clone(&self.wanted));
        async move { Ok(GuardSet::new(acquired(&store, &wanted).await?, store)) }
    }

    fn trying(&self) -> impl Future<Output = Result<Option<GuardSet>, Failure>> + Send + 'static {
        let (store, wanted) = (Arc::clone(&self.store), Arc::clone(&self.wanted));
        async move { Ok(store.acquire(&wanted, false).await?.map(|held| GuardSet::new(held, store))) }
    }
}

#[pymethods]
impl LockAll {
    /// The locks' names, as they were given.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Acquires all or none: if one cannot be acquired, those before it are released.
    ///
    /// Raises: as :meth:`Lock.acquire`, for the first that cannot be acquired.
    fn acquire(&self, py: Python<'_>) -> PyResult<GuardSet> {
        block(py, self.acquiring())
    }

    /// Acquires them all without waiting; ``None`` if another client holds one.
    fn try_acquire(&self, py: Python<'_>) -> PyResult<Option<GuardSet>> {
        block(py, self.trying())
    }

    fn _start_acquire(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.acquiring(), |py, set| Ok(Py::new(py, set)?.into_any()))
    }

    fn _start_try_acquire(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.trying(), |py, set| match set {
            Some(set) => Ok(Py::new(py, set)?.into_any()),
            None => Ok(py.None()),
        })
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<GuardSet>> {
        let guards = Py::new(py, self.acquire(py)?)?;
        self.entered.push(guards.clone_ref(py));
        Ok(guards)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.entered.pop()?.get().leave(py, !kind.is_none())
    }

    /// Decorates a function: each call holds all the locks.
    fn __call__<'py>(this: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        decorated(this.as_any(), function)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.LockAll {:?}>", self.names)
    }
}
