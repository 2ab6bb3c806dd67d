//! Connecting, and what hangs on a client.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use polylatch::inspect::{BreakRequest, Query};
use polylatch::{FencingToken, Polylatch};
use polylatch_bridge::{Client as Store, ConnectOptions, Failure, LockSpec, Way, ops};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::block;
use crate::errors::OrRaise;
use crate::exit;
use crate::idempotency::Scope;
use crate::lock::{Lock, RwLock, Semaphore};
use crate::lock_all::LockAll;

/// One client of one store of locks, for threads. One per process is enough.
///
/// Made by :func:`polylatch.connect`. A client is a context manager that closes itself at the end.
/// A forked child may go on to use it: the first use there connects again.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct Client {
    store: Arc<Store>,
}

/// Connects to a store of locks and returns a :class:`Client`.
///
/// ``url`` names the store, such as ``"sqlite:locks.db"``, ``"redis://localhost"`` or ``"memory:"``;
/// without it the environment variable ``POLYLATCH_URL`` does, and without that the embedded file in
/// the user's state directory. ``program`` is the name that people see beside held locks. Everything
/// else is an option of the client or the store, as in the URL's query: ``lease=30``,
/// ``prefix="shop"``. Lengths of time are seconds or a ``timedelta``.
///
/// Events go to the logger ``polylatch``: a lost lease as an error; a lease at risk, an unreachable store and a
/// store that is set up so that it may break a promise as warnings; waits at level INFO; every acquisition and release
/// at level DEBUG. The logger is asked for its level when a client connects: what it does not take costs nothing.
/// ``on_event`` is called with the events of this client from ``level`` on (``"error"``, ``"warn"``, ``"info"``, the
/// default, or ``"debug"``), a dict with ``event`` (such as ``"lost"``), ``level``, ``message``, ``client`` and, as far
/// as they apply, ``lock``, ``fencing_token``, ``reason``, ``error`` and others. It runs on a thread of its own, one
/// event after the other, and is kept until the client is closed.
///
/// The store is asked once, so a wrong password or an unreachable host is an error here.
///
/// Raises: :class:`InvalidConfig`, :class:`BackendUnavailable`, :class:`BackendRejected`,
/// :class:`NameConflict`.
#[pyfunction]
#[pyo3(
    signature = (url=None, *, program=None, on_event=None, **options),
    text_signature = "(url=None, *, program=None, on_event=None, **options)"
)]
pub fn connect(
    py: Python<'_>,
    url: Option<String>,
    program: Option<String>,
    on_event: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Client> {
    let options = args::connect_options(py, url, program, on_event, options)?;
    block(py, open(options)).map(|store| Client { store })
}

#[pyfunction(name = "_start_connect")]
#[pyo3(signature = (url, program, on_event, options))]
pub fn start_connect(
    py: Python<'_>,
    url: Option<String>,
    program: Option<String>,
    on_event: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<StartedCall> {
    let options = args::connect_options(py, url, program, on_event, options)?;
    asyncio::start(py, open(options), |py, store| Ok(Py::new(py, Client { store })?.into_any()))
}

async fn open(options: ConnectOptions) -> Result<Arc<Store>, Failure> {
    let store = Arc::new(Store::connect(options).await?);
    exit::remember(&store);
    Ok(store)
}

impl Client {
    /// Asks something that costs no request; in a forked child, connects first.
    fn ask<T: Send>(&self, py: Python<'_>, of: impl FnOnce(&Polylatch) -> T + Send) -> PyResult<T> {
        match self.store.connected() {
            Some(client) => Ok(of(client)),
            None => block(py, self.store.ask(of)),
        }
    }

    fn named(
        &self,
        name: String,
        way: Way,
        function: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Lock> {
        let options = args::lock_options(function, options)?;
        Ok(Lock::new(Arc::clone(&self.store), LockSpec { name, way, options }))
    }

    fn closing(&self) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let store = Arc::clone(&self.store);
        async move {
            store.close().await;
            Ok(())
        }
    }

    fn listing(&self, query: Query) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let store = Arc::clone(&self.store);
        async move { store.list_json(&query).await }
    }

    fn breaking(
        &self,
        request: BreakRequest,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let store = Arc::clone(&self.store);
        async move { store.break_lease_json(&request).await }
    }
}

#[pymethods]
impl Client {
    /// Names a lock, with how it is to be acquired. Nothing is sent before it is.
    ///
    /// ``lease``: how long the lease lasts unless renewed, 0.1 s to a day; the store's or the client's
    /// default otherwise. Shorter: a dead holder is noticed sooner. Longer: a slow network or a pause
    /// does not lose the lock. ``wait``: how long to wait for a lock that another client holds; without
    /// it, as long as it takes. ``label``: a description shown to operators; no secrets. ``owner``:
    /// an acquisition with the same id in this client while it is held enters at once. ``max_hold``:
    /// never hold it for longer. ``beat_every``: renew only while :meth:`Guard.beat` is called at least
    /// this often. ``fifo=False``: may take a free lock although other clients are queued. ``renew=False``:
    /// the lease ends after its full length. ``keep_idle``: after a release the client keeps the lease for the next
    /// caller, for at most this long, and acquiring it again costs no request; another client that asks for the lock
    /// has it released. A process that stops while it keeps a lease blocks the lock until the lease ends. For plain
    /// locks, on memory and Redis stores. Lengths of time are seconds or a ``timedelta``.
    #[pyo3(signature = (name, **options), text_signature = "($self, name, *, lease=None, wait=None, label=None, owner=None, max_hold=None, beat_every=None, fifo=None, renew=None, keep_idle=None)")]
    fn lock(&self, name: String, options: Option<&Bound<'_, PyDict>>) -> PyResult<Lock> {
        self.named(name, Way::Mutex, "lock", options)
    }

    /// Names a lock that many may read or one may write; the options are those of :meth:`lock`.
    #[pyo3(signature = (name, **options), text_signature = "($self, name, *, lease=None, wait=None, label=None, owner=None, max_hold=None, beat_every=None, fifo=None, renew=None)")]
    fn rw_lock(&self, name: String, options: Option<&Bound<'_, PyDict>>) -> PyResult<RwLock> {
        Ok(RwLock(self.named(name, Way::Read, "rw_lock", options)?))
    }

    /// Names a lock with this many permits, 1 to 1000; the options are those of :meth:`lock`.
    #[pyo3(signature = (name, permits, **options), text_signature = "($self, name, permits, *, lease=None, wait=None, label=None, owner=None, max_hold=None, beat_every=None, fifo=None, renew=None)")]
    fn semaphore(
        &self,
        name: String,
        permits: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Semaphore> {
        let capacity = args::count("permits", permits)?;
        let way = Way::Permits { count: 1, capacity };
        Ok(Semaphore::new(self.named(name, way, "semaphore", options)?, capacity))
    }

    /// Names several locks that are had all together or not at all. ``wait`` is for all of them
    /// together; the other options are those of :meth:`lock`, for each.
    #[pyo3(signature = (names, **options), text_signature = "($self, names, *, lease=None, wait=None, label=None, owner=None, max_hold=None, beat_every=None, fifo=None, renew=None)")]
    fn lock_all(&self, names: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<LockAll> {
        if names.is_instance_of::<PyString>() {
            // A text is a sequence of characters to Python; nobody means that.
            return Err(pyo3::exceptions::PyTypeError::new_err("names must be several names, not one str"));
        }
        let names = names.try_iter()?.map(|name| name?.extract::<String>());
        let names = names.collect::<PyResult<Vec<_>>>()?;
        Ok(LockAll::new(Arc::clone(&self.store), names, args::lock_options("lock_all", options)?))
    }

    /// Names a scope of idempotent work: each of its keys is worked for once, and every repetition gets the
    /// stored answer. Nothing is sent before the first call. Returns an :class:`Idempotency`.
    ///
    /// ``scope`` names the operation and the caller it is done for, such as ``orders/customer-7``: 1 to 256 bytes
    /// without control characters. Take the caller's identity from its credentials, never from its request: two
    /// callers that share a scope get each other's answers for the same key. ``encoding``: results are stored as
    /// ``"json"``, or as ``"bytes"`` as they are.
    #[pyo3(signature = (scope, *, encoding="json"))]
    fn idempotency<'py>(
        &self,
        py: Python<'py>,
        scope: String,
        encoding: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        static KIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let kind = KIND.import(py, "polylatch._idempotency", "Idempotency")?;
        kind.call1((self._scope(scope), encoding))
    }

    fn _scope(&self, scope: String) -> Scope {
        Scope::new(Arc::clone(&self.store), scope)
    }

    /// Reads who holds and who waits, as plain dicts and lists. Changes nothing in the store.
    ///
    /// ``name``: only this lock, also if it is free. ``prefix``: only locks whose name starts so.
    /// ``limit``: at most so many locks, 10 000 by default. Ages come ready-made in milliseconds;
    /// what a store cannot say is ``None``.
    #[pyo3(signature = (name=None, *, prefix=None, limit=None))]
    fn inspect(
        &self,
        py: Python<'_>,
        name: Option<String>,
        prefix: Option<String>,
        limit: Option<usize>,
    ) -> PyResult<Py<PyAny>> {
        let text = block(py, self.listing(Query { name, prefix, limit, ..Query::default() }))?;
        from_json(py, &text)
    }

    /// Breaks a lease, if it still has the expected fencing token; returns the outcome.
    ///
    /// The next waiter gets the lock at once, an audit entry with ``by`` and ``reason`` is left, and the
    /// old holder is notified. ``outcome`` is ``"broken"``, ``"free"`` or ``"changed_hands"``.
    #[pyo3(signature = (name, *, fencing_token, by, reason))]
    fn break_lease(
        &self,
        py: Python<'_>,
        name: String,
        fencing_token: &Bound<'_, PyAny>,
        by: String,
        reason: String,
    ) -> PyResult<Py<PyAny>> {
        let expected = args::token(fencing_token)?;
        let text = block(py, self.breaking(BreakRequest { name, expected, by, reason }))?;
        from_json(py, &text)
    }

    /// Ends waiting, releases what is held, and waits (at most 5 s) until the store knows. Repeatable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        block(py, self.closing())
    }

    /// The id of this client in the store, as `polylatch ls` shows it.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, ops::id)
    }

    /// The store's URL without its secrets.
    #[getter]
    fn url(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, ops::url)
    }

    /// What this store, as configured, can do.
    #[getter]
    fn capability(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        from_json(py, &self.ask(py, ops::capability_json)?.or_raise(py)?)
    }

    /// Returns what this client has done since it was made, in numbers, as a dict. Costs no request.
    ///
    /// ``acquired``, ``refused``, ``timed_out``, ``failed`` and ``cancelled`` count how acquisitions ended;
    /// ``waiting`` and ``held`` are of now; ``losses`` and ``errors`` are counts by code. ``wait``, ``hold`` and
    /// ``renewal_lag`` are histograms: dicts with ``bounds`` (the largest duration of each range, in seconds),
    /// ``counts`` (how many fell into each range; one more, for all above), ``sum`` (seconds) and ``count``.
    /// :mod:`polylatch.metrics` hands them to Prometheus and OpenTelemetry.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        from_json(py, &self.ask(py, ops::stats_json)?)
    }

    /// Returns the same as text that Prometheus reads, with these labels on every line; the label ``backend`` is
    /// there already.
    ///
    /// Raises: :class:`InvalidArgument` for a label that Prometheus does not accept.
    #[pyo3(signature = (labels=None))]
    fn prometheus(&self, py: Python<'_>, labels: Option<HashMap<String, String>>) -> PyResult<String> {
        let mut labels: Vec<_> = labels.unwrap_or_default().into_iter().collect();
        labels.sort();
        self.ask(py, |client| ops::prometheus(client, &labels))?.or_raise(py)
    }

    /// Whether :meth:`close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.store.is_closed()
    }

    fn _start_close(&self, py: Python<'_>) -> PyResult<StartedCall> {
        asyncio::start(py, self.closing(), |py, ()| Ok(py.None()))
    }

    fn _start_inspect(
        &self,
        py: Python<'_>,
        name: Option<String>,
        prefix: Option<String>,
        limit: Option<usize>,
    ) -> PyResult<StartedCall> {
        asyncio::start(py, self.listing(Query { name, prefix, limit, ..Query::default() }), |py, text| {
            from_json(py, &text)
        })
    }

    fn _start_break_lease(
        &self,
        py: Python<'_>,
        name: String,
        fencing_token: &Bound<'_, PyAny>,
        by: String,
        reason: String,
    ) -> PyResult<StartedCall> {
        let expected: FencingToken = args::token(fencing_token)?;
        let request = BreakRequest { name, expected, by, reason };
        asyncio::start(py, self.breaking(request), |py, text| from_json(py, &text))
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let place = self.store.connected().map_or("inherited by a fork", |client| client.url_for_display());
        let closed = if self.store.is_closed() { ", closed" } else { "" };
        format!("<polylatch.Client {place}{closed}>")
    }
}

pub fn from_json(py: Python<'_>, text: &str) -> PyResult<Py<PyAny>> {
    Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
}
