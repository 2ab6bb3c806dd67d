//! Locks to acquire.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use polylatch_bridge::{Client as Store, Failure, Handle, LockSpec, Wanted, Way};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::guard::Guard;

/// A lock to acquire: a name and options. Nothing is sent, and little is checked, before.
///
/// It is a context manager (``with lock as guard:``) and a decorator (``@lock``), each of which
/// acquires at the beginning and releases at the end. One object may be used by many threads.
#[pyclass(frozen, module = "polylatch")]
pub struct Lock {
    store: Arc<Store>,
    spec: LockSpec,
    wanted: Arc<Wanted>,
    entered: Entered<Guard>,
}

impl Lock {
    pub fn new(store: Arc<Store>, spec: LockSpec) -> Self {
        let wanted = Arc::new(Wanted::One(spec.clone()));
        Self { store, spec, wanted, entered: Entered::default() }
    }

    /// The same lock, wanted in another way.
    pub fn in_way(&self, way: Way) -> Self {
        Self::new(Arc::clone(&self.store), LockSpec { way, ..self.spec.clone() })
    }

    pub fn acquiring(&self) -> impl Future<Output = Result<Guard, Failure>> + Send + 'static {
        let (store, wanted) = (Arc::clone(&self.store), Arc::clone(&self.wanted));
        async move { Ok(Guard::new(acquired(&store, &wanted).await?, store)) }
    }

    pub fn trying(&self) -> impl Future<Output = Result<Option<Guard>, Failure>> + Send + 'static {
        let (store, wanted) = (Arc::clone(&self.store), Arc::clone(&self.wanted));
        async move { Ok(store.acquire(&wanted, false).await?.map(|held| Guard::new(held, store))) }
    }

    pub fn acquired(&self, py: Python<'_>) -> PyResult<Guard> {
        block(py, self.acquiring())
    }

    fn start_acquiring(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.acquiring(), |py, guard| Ok(Py::new(py, guard)?.into_any()))
    }

    fn start_trying(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.trying(), |py, guard| match guard {
            Some(guard) => Ok(Py::new(py, guard)?.into_any()),
            None => Ok(py.None()),
        })
    }
}

#[pymethods]
impl Lock {
    /// The lock's name, as it was given.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// Acquires the lock, waiting as long as the options say, and returns its guard.
    ///
    /// Blocks the calling thread; other threads run meanwhile. A signal handler that raises, such as
    /// Ctrl-C's, ends the wait at once and leaves no lock behind.
    ///
    /// Raises: :class:`WaitTimeout` with who holds it; :class:`InvalidArgument` before anything is
    /// sent; :class:`NameConflict`; :class:`BackendUnavailable`; :class:`BackendRejected`.
    #[pyo3(signature = (*args, **kwargs), text_signature = "($self)")]
    fn acquire(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Guard> {
        if !args.is_empty() || kwargs.is_some() {
            return Err(PyTypeError::new_err(
                "Lock.acquire() takes no arguments; lock.try_acquire() does not wait, and \
                 client.lock(name, wait=SECONDS) waits for so long at most",
            ));
        }
        self.acquired(py)
    }

    /// Acquires the lock if it is free and no client is queued; ``None`` if not. Does not wait.
    ///
    /// Raises: as :meth:`acquire`, but never :class:`WaitTimeout`.
    fn try_acquire(&self, py: Python<'_>) -> PyResult<Option<Guard>> {
        block(py, self.trying())
    }

    fn _start_acquire(&self, py: Python<'_>) -> PyResult<StartedCall> {
        self.start_acquiring(py)
    }

    fn _start_try_acquire(&self, py: Python<'_>) -> PyResult<StartedCall> {
        self.start_trying(py)
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Guard>> {
        let guard = Py::new(py, self.acquired(py)?)?;
        self.entered.push(guard.clone_ref(py));
        Ok(guard)
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

    /// Decorates a function: each call holds the lock.
    fn __call__<'py>(this: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        decorated(this.as_any(), function)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.Lock {:?}>", self.spec.name)
    }

    /// For what locks of other libraries have: says what to use here.
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        static SAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let say = SAY.import(py, "polylatch._decorate", "no_such_member")?;
        Err(PyAttributeError::new_err(say.call1(("Lock", name))?.unbind()))
    }
}

/// A lock that many may read or one may write.
///
/// Readers and writers share one queue: a reader that comes after a waiting writer enters after it,
/// and readers that stand together enter together. Every reader has a lease of its own.
#[pyclass(frozen, module = "polylatch")]
pub struct RwLock(pub Lock);

#[pymethods]
impl RwLock {
    /// The lock's name, as it was given.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The lock beside other readers.
    fn read(&self) -> Lock {
        self.0.in_way(Way::Read)
    }

    /// The lock alone.
    fn write(&self) -> Lock {
        self.0.in_way(Way::Write)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.RwLock {:?}>", self.0.name())
    }
}

/// A lock with a number of permits, each of which is a lease.
#[pyclass(frozen, module = "polylatch")]
pub struct Semaphore {
    lock: Lock,
    capacity: u32,
}

impl Semaphore {
    pub fn new(lock: Lock, capacity: u32) -> Self {
        Self { lock, capacity }
    }

    fn some(&self, count: Option<&Bound<'_, PyAny>>) -> PyResult<Lock> {
        let count = count.map_or(Ok(1), |count| args::count("count", count))?;
        Ok(self.lock.in_way(Way::Permits { count, capacity: self.capacity }))
    }
}

#[pymethods]
impl Semaphore {
    /// The semaphore's name, as it was given.
    #[getter]
    fn name(&self) -> &str {
        self.lock.name()
    }

    /// Some of the permits as a lock: all or none, under one lease.
    #[pyo3(signature = (count=None), text_signature = "($self, count=1)")]
    fn permits(&self, count: Option<&Bound<'_, PyAny>>) -> PyResult<Lock> {
        self.some(count)
    }

    /// Acquires some of the permits; see :meth:`Lock.acquire`.
    #[pyo3(signature = (count=None), text_signature = "($self, count=1)")]
    fn acquire(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<Guard> {
        self.some(count)?.acquired(py)
    }

    /// Acquires some of the permits if they are available at once; see :meth:`Lock.try_acquire`.
    #[pyo3(signature = (count=None), text_signature = "($self, count=1)")]
    fn try_acquire(&self, py: Python<'_>, count: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Guard>> {
        self.some(count)?.try_acquire(py)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.Semaphore {:?}, {} permits>", self.lock.name(), self.capacity)
    }
}

/// Acquires what is wanted.
pub async fn acquired(store: &Store, wanted: &Wanted) -> Result<Handle, Failure> {
    let held = store.acquire(wanted, true).await?;
    held.ok_or_else(|| Failure::internal("a wait for a lock ended without it"))
}

/// Wraps a function so that each call holds `lock`; see `_decorate.py`.
pub fn decorated<'py>(lock: &Bound<'py, PyAny>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static DECORATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    DECORATE.import(lock.py(), "polylatch._decorate", "decorate")?.call1((lock, function))
}

/// What a context manager that threads share has entered, and which thread did.
pub struct Entered<G>(Mutex<Vec<(ThreadId, Py<G>)>>);

impl<G> Default for Entered<G> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<G> Entered<G> {
    pub fn push(&self, guard: Py<G>) {
        let mut entered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entered.push((thread::current().id(), guard));
    }

    /// Takes out what this thread entered last.
    pub fn pop(&self) -> PyResult<Py<G>> {
        let me = thread::current().id();
        let mut entered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entered.iter().rposition(|(thread, _)| *thread == me) {
            Some(at) => Ok(entered.remove(at).1),
            None => Err(PyRuntimeError::new_err("this thread has not entered this lock")),
        }
    }
}
