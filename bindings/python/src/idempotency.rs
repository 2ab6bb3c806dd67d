//! Claims on the keys of idempotent work. What users see of it is in `python/polylatch/_idempotency.py`.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use polylatch::LostReason;
use polylatch::idempotency::{OnFailure, Retention};
use polylatch_bridge::{
    Begun, ClaimHandle, Client as Store, Failure, Homed, RunOptions, idempotency, runtime,
};
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::args;
use crate::asyncio::{self, StartedCall};
use crate::blocking::{block, block_at_most};
use crate::client::from_json;
use crate::errors::{OrRaise, exception};

const RUN_OPTIONS: &str = "payload, fingerprint, retention, lease, wait, on_failure";

/// The claim on a key under which idempotent work runs.
///
/// It is renewed in the background until the work has ended, whatever the interpreter does meanwhile. Hand
/// :attr:`fencing_token` to what the work changes, and stop when it is lost: another client may begin the work.
#[pyclass(frozen, module = "polylatch", weakref)]
pub struct Claim {
    handle: Arc<ClaimHandle>,
    /// Kept as long as the work runs, so that the end of the program finds it.
    _store: Arc<Store>,
    watches: Mutex<Vec<Watch>>,
}

/// As that of a guard: it belongs to the claim alone, where the collector finds it.
struct Watch {
    callback: Arc<Py<PyAny>>,
    _task: Homed<runtime::Task>,
}

/// How a run begins, for Python: the claim, the stored result, or the stored failure with its answer.
fn begun(py: Python<'_>, begun: Begun, store: Arc<Store>) -> PyResult<Py<PyAny>> {
    let none = || py.None();
    let entry = match begun {
        Begun::Mine(handle) => {
            let claim = Py::new(py, Claim { handle, _store: store, watches: Mutex::default() })?;
            (claim.into_any(), none(), none())
        }
        Begun::Replayed(value) => (none(), PyBytes::new(py, &value).into_any().unbind(), none()),
        Begun::Failed { failure, answer } => {
            let error = exception(py, &failure).into_value(py).into_any();
            (none(), PyBytes::new(py, &answer).into_any().unbind(), error)
        }
    };
    Ok(entry.into_pyobject(py)?.into_any().unbind())
}

fn run_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<RunOptions> {
    let mut options = RunOptions::default();
    for (key, value) in given.into_iter().flatten() {
        let name = key.extract::<String>()?;
        if value.is_none() && RUN_OPTIONS.split(", ").any(|known| known == name) {
            continue;
        }
        match &*name {
            "payload" => options.payload = Some(value.extract()?),
            "fingerprint" => options.fingerprint = Some(args::text("fingerprint", &value)?),
            "retention" => {
                let forever = value.extract::<f64>().is_ok_and(|number| number == f64::INFINITY);
                options.retention = Some(match forever {
                    true => Retention::Forever,
                    false => Retention::For(args::seconds("retention", &value)?),
                });
            }
            "lease" => options.lease = Some(args::seconds("lease", &value)?),
            "wait" => options.wait = args::wait(&value)?,
            "on_failure" => {
                let word = args::text("on_failure", &value)?;
                options.on_failure = Some(idempotency::on_failure(&word).or_raise(value.py())?);
            }
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "a run of idempotent work got an unexpected keyword argument '{name}'; it takes {RUN_OPTIONS}"
                )));
            }
        }
    }
    Ok(options)
}

/// A scope of keys and tokens, as the classes of `_idempotency.py` ask it.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct Scope {
    store: Arc<Store>,
    scope: String,
}

impl Scope {
    pub fn new(store: Arc<Store>, scope: String) -> Self {
        Self { store, scope }
    }

    fn named(&self) -> (Arc<Store>, String) {
        (Arc::clone(&self.store), self.scope.clone())
    }

    fn beginning(
        &self,
        key: String,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<impl Future<Output = Result<(Begun, Arc<Store>), Failure>> + Send + use<>> {
        let (options, (store, scope)) = (run_options(options)?, self.named());
        Ok(async move { Ok((store.begin(&scope, &key, &options).await?, store)) })
    }

    fn forgetting(&self, key: String) -> impl Future<Output = Result<&'static str, Failure>> + Send + use<> {
        let (store, scope) = self.named();
        async move { store.forget_key(&scope, &key).await }
    }

    fn showing(&self, key: String) -> impl Future<Output = Result<Option<String>, Failure>> + Send + use<> {
        let (store, scope) = self.named();
        async move { store.record_json(&scope, &key).await }
    }

    fn issuing(
        &self,
        ttl: &Bound<'_, PyAny>,
    ) -> PyResult<impl Future<Output = Result<String, Failure>> + Send + use<>> {
        let (ttl, (store, scope)) = (args::seconds("ttl", ttl)?, self.named());
        Ok(async move { store.issue_token(&scope, ttl).await })
    }

    fn consuming(&self, token: String) -> impl Future<Output = Result<&'static str, Failure>> + Send + use<> {
        let (store, scope) = self.named();
        async move { store.consume_token(&scope, &token).await }
    }
}

#[pymethods]
impl Scope {
    #[getter]
    fn name(&self) -> &str {
        &self.scope
    }

    fn begin(&self, py: Python<'_>, key: String, options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let (run, store) = block(py, self.beginning(key, options)?)?;
        begun(py, run, store)
    }

    fn start_begin(
        &self,
        py: Python<'_>,
        key: String,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<StartedCall> {
        asyncio::start(py, self.beginning(key, options)?, |py, (run, store)| begun(py, run, store))
    }

    fn forget(&self, py: Python<'_>, key: String) -> PyResult<&'static str> {
        block(py, self.forgetting(key))
    }

    fn start_forget(&self, py: Python<'_>, key: String) -> PyResult<StartedCall> {
        asyncio::start(py, self.forgetting(key), word)
    }

    fn show(&self, py: Python<'_>, key: String) -> PyResult<Py<PyAny>> {
        record(py, block(py, self.showing(key))?)
    }

    fn start_show(&self, py: Python<'_>, key: String) -> PyResult<StartedCall> {
        asyncio::start(py, self.showing(key), record)
    }

    fn issue(&self, py: Python<'_>, ttl: &Bound<'_, PyAny>) -> PyResult<String> {
        block(py, self.issuing(ttl)?)
    }

    fn start_issue(&self, py: Python<'_>, ttl: &Bound<'_, PyAny>) -> PyResult<StartedCall> {
        asyncio::start(py, self.issuing(ttl)?, |py, token| Ok(token.into_pyobject(py)?.into_any().unbind()))
    }

    fn consume(&self, py: Python<'_>, token: String) -> PyResult<&'static str> {
        block(py, self.consuming(token))
    }

    fn start_consume(&self, py: Python<'_>, token: String) -> PyResult<StartedCall> {
        asyncio::start(py, self.consuming(token), word)
    }
}

fn word(py: Python<'_>, word: &'static str) -> PyResult<Py<PyAny>> {
    Ok(word.into_pyobject(py)?.into_any().unbind())
}

fn record(py: Python<'_>, json: Option<String>) -> PyResult<Py<PyAny>> {
    json.map_or_else(|| Ok(py.None()), |json| from_json(py, &json))
}

impl Claim {
    fn completing(&self, result: Vec<u8>) -> impl Future<Output = Result<(), Failure>> + Send + 'static {
        let handle = Arc::clone(&self.handle);
        async move { handle.complete(result).await }
    }

    fn failing(
        &self,
        py: Python<'_>,
        answer: Vec<u8>,
        fate: Option<&str>,
    ) -> PyResult<impl Future<Output = Result<(), Failure>> + Send + 'static> {
        let fate: Option<OnFailure> = fate.map(idempotency::on_failure).transpose().or_raise(py)?;
        let handle = Arc::clone(&self.handle);
        Ok(async move { handle.fail(answer, fate).await })
    }
}

#[pymethods]
impl Claim {
    /// The number of this claim, larger than that of every claim on the same key before.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.handle.fencing_token()
    }

    /// How many runs of this key began since it was free, this one counted: more than 1 if a run before died or
    /// lost its claim, so that its work may have been done in part.
    #[getter]
    fn runs(&self) -> u32 {
        self.handle.runs()
    }

    /// For how many seconds the claim may be relied on from now; 0.0 once it is over.
    #[getter]
    fn remaining(&self) -> f64 {
        self.handle.remaining().as_secs_f64()
    }

    /// Whether the key is still claimed, by the clock, now. Costs no request.
    #[getter]
    fn is_held(&self) -> bool {
        self.handle.check().is_ok()
    }

    /// Whether the work has not ended yet, also if the claim was lost.
    #[getter]
    fn _under_way(&self) -> bool {
        self.handle.is_under_way()
    }

    /// Raises :class:`LeaseLost` if the claim was lost. Costs no request.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.check().or_raise(py)
    }

    /// Calls ``callback(reason)`` when the claim is lost, on a thread of its own; never after the work has ended.
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
        let task = self.handle.on_lost(tell).or_raise(py)?;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.push(Watch { callback, _task: task });
        Ok(())
    }

    /// Blocks until the claim is lost, at most ``timeout`` seconds. Returns the reason, such as ``"expired"``;
    /// ``None`` if it is not lost, and at once when the work has ended.
    #[pyo3(signature = (timeout=None))]
    fn wait_lost(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<&'static str>> {
        let limit = args::time_limit(timeout)?;
        let ended = self.handle.ended();
        let lost = block_at_most(py, limit, async { Ok(ended.await) })?.flatten();
        Ok(lost.map(LostReason::code))
    }

    fn _start_wait_lost(&self, py: Python<'_>) -> PyResult<StartedCall> {
        let ended = self.handle.ended();
        let ended = async move { Ok(ended.await.map(LostReason::code)) };
        asyncio::start(py, ended, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    fn _complete(&self, py: Python<'_>, result: Vec<u8>) -> PyResult<()> {
        block(py, self.completing(result))
    }

    fn _fail(&self, py: Python<'_>, answer: Vec<u8>, fate: Option<&str>) -> PyResult<()> {
        block(py, self.failing(py, answer, fate)?)
    }

    fn _start_complete(&self, py: Python<'_>, result: Vec<u8>) -> PyResult<StartedCall> {
        asyncio::start(py, self.completing(result), |py, ()| Ok(py.None()))
    }

    fn _start_fail(&self, py: Python<'_>, answer: Vec<u8>, fate: Option<&str>) -> PyResult<StartedCall> {
        asyncio::start(py, self.failing(py, answer, fate)?, |py, ()| Ok(py.None()))
    }

    fn _abandon(&self) {
        self.handle.abandon();
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
        let state = if self.is_held() { "held" } else { "over" };
        format!("<polylatch.Claim, token {}, {state}>", self.fencing_token())
    }
}
