//! Idempotent work inside the caller's own transactions. What users see of it is in `python/polylatch/_transactions.py`.

use std::sync::{Mutex, PoisonError};

use polylatch::idempotency::Retention;
use polylatch::resource::{SqlRow, SqlValue};
use polylatch_bridge::sql_runs::{self as bridge, End, Next, SqlRunOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyMemoryView, PyString, PyTuple};

use crate::args;
use crate::errors::{OrRaise, exception};

/// Idempotent work in one database, as the classes of `_transactions.py` ask it.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct SqlRuns(bridge::SqlRuns);

#[pymethods]
impl SqlRuns {
    #[new]
    fn new(py: Python<'_>, dialect: &str, schema: Option<&str>) -> PyResult<Self> {
        bridge::SqlRuns::new(dialect, schema).or_raise(py).map(Self)
    }

    fn schema_sql(&self) -> String {
        self.0.schema()
    }

    fn run(&self, py: Python<'_>, scope: &str, key: &str, options: &Bound<'_, PyDict>) -> PyResult<SqlRun> {
        self.0.run(scope, key, &given(options)?).or_raise(py).map(SqlRun)
    }

    fn steps(&self, py: Python<'_>, scope: &str, key: &str, options: &Bound<'_, PyDict>) -> PyResult<SqlRun> {
        self.0.steps(scope, key, &given(options)?).or_raise(py).map(SqlRun)
    }

    fn purge(&self, py: Python<'_>, most: u32) -> PyResult<SqlTalk> {
        self.0.purge(most).or_raise(py).map(SqlTalk::new)
    }

    fn says_in_progress(&self, code: &str) -> bool {
        self.0.says_in_progress(code)
    }
}

fn given(given: &Bound<'_, PyDict>) -> PyResult<SqlRunOptions> {
    let mut options = SqlRunOptions::default();
    for (key, value) in given {
        if value.is_none() {
            continue;
        }
        match &*key.extract::<String>()? {
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
            "no_wait" => options.no_wait = value.extract()?,
            name => return Err(PyTypeError::new_err(format!("unexpected option '{name}'"))),
        }
    }
    Ok(options)
}

/// The work of one key.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct SqlRun(bridge::SqlRun);

#[pymethods]
impl SqlRun {
    fn claim(&self) -> SqlTalk {
        SqlTalk::new(self.0.claim())
    }

    /// The exception that says that another transaction is at work.
    fn in_progress(&self, py: Python<'_>) -> Py<PyAny> {
        exception(py, &self.0.in_progress()).into_value(py).into_any()
    }
}

/// Statements to be executed one after the other.
#[pyclass(frozen, module = "polylatch._polylatch")]
pub struct SqlTalk(Mutex<(bridge::Talk, Option<End>)>);

impl SqlTalk {
    fn new(talk: bridge::Talk) -> Self {
        Self(Mutex::new((talk, None)))
    }
}

#[pymethods]
impl SqlTalk {
    /// The next statement with its values, or ``None`` at the end.
    fn next<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<(String, Bound<'py, PyTuple>)>> {
        let rows: Vec<SqlRow> = rows.iter().map(row).collect::<PyResult<_>>()?;
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match parts.0.next(&rows).or_raise(py)? {
            Next::Run(statement) => {
                let values = statement
                    .values()
                    .iter()
                    .map(|value| value_of(py, value))
                    .collect::<PyResult<Vec<_>>>()?;
                Ok(Some((statement.sql().to_owned(), PyTuple::new(py, values)?)))
            }
            Next::Done(end) => {
                parts.1 = Some(end);
                Ok(None)
            }
        }
    }

    /// What came of it: a claim, stored bytes, the failure that they are of, a number.
    fn end(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || py.None();
        let bytes = |value: &[u8]| PyBytes::new(py, value).into_any().unbind();
        let entry = match &parts.1 {
            Some(End::Mine(claim)) => {
                (Py::new(py, TransactionClaim((**claim).clone()))?.into_any(), none(), none(), 0)
            }
            Some(End::Replayed(value)) => (none(), bytes(value), none(), 0),
            Some(End::Failed { failure, answer }) => {
                (none(), bytes(answer), exception(py, failure).into_value(py).into_any(), 0)
            }
            Some(End::Purged(deleted)) => (none(), none(), none(), *deleted),
            Some(End::Written) | None => (none(), none(), none(), 0),
        };
        Ok(entry.into_pyobject(py)?.into_any().unbind())
    }
}

/// The claim on a key under which the work of a transaction runs, or of several.
#[pyclass(frozen, module = "polylatch")]
pub struct TransactionClaim(bridge::SqlClaim);

#[pymethods]
impl TransactionClaim {
    /// The number of this claim, larger than that of every claim on the same key before.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.0.fencing_token()
    }

    /// How many runs of this key began, this one counted; of work in steps, how many clients worked on it.
    #[getter]
    fn runs(&self) -> u32 {
        self.0.runs()
    }

    fn _finished<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.0.finished().into_iter().map(|(name, value)| (name, PyBytes::new(py, &value))).collect()
    }

    fn _step(&self, py: Python<'_>, name: &str, value: &[u8]) -> PyResult<SqlTalk> {
        self.0.step(name, value).or_raise(py).map(SqlTalk::new)
    }

    fn _renew(&self, py: Python<'_>) -> PyResult<SqlTalk> {
        self.0.renew().or_raise(py).map(SqlTalk::new)
    }

    fn _release(&self, py: Python<'_>) -> PyResult<SqlTalk> {
        self.0.release().or_raise(py).map(SqlTalk::new)
    }

    fn _complete(&self, py: Python<'_>, result: &[u8]) -> PyResult<SqlTalk> {
        self.0.complete(result).or_raise(py).map(SqlTalk::new)
    }

    fn _fail(&self, py: Python<'_>, answer: &[u8]) -> PyResult<SqlTalk> {
        self.0.fail(answer).or_raise(py).map(SqlTalk::new)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.TransactionClaim, token {}>", self.fencing_token())
    }
}

fn value_of<'py>(py: Python<'py>, value: &SqlValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        SqlValue::Null => py.None().into_bound(py),
        SqlValue::Int(number) => number.into_pyobject(py)?.into_any(),
        SqlValue::Text(text) => text.into_pyobject(py)?.into_any(),
        SqlValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
    })
}

fn row(given: &Bound<'_, PyAny>) -> PyResult<SqlRow> {
    given.try_iter()?.map(|column| column_of(&column?)).collect()
}

fn column_of(column: &Bound<'_, PyAny>) -> PyResult<SqlValue> {
    if column.is_none() {
        return Ok(SqlValue::Null);
    }
    if column.is_instance_of::<PyInt>() {
        return Ok(SqlValue::Int(column.extract()?));
    }
    if column.is_instance_of::<PyString>() {
        return Ok(SqlValue::Text(column.extract()?));
    }
    if column.is_instance_of::<PyBytes>() || column.is_instance_of::<PyByteArray>() {
        return Ok(SqlValue::Bytes(column.extract()?));
    }
    if column.is_instance_of::<PyMemoryView>() {
        return Ok(SqlValue::Bytes(column.call_method0("tobytes")?.extract()?));
    }
    let kind = column.get_type().name()?.to_string();
    Err(PyTypeError::new_err(format!(
        "the driver returned a column of type {kind}; hand rows over as tuples of int, str, bytes and None"
    )))
}
