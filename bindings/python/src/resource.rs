//! What a protected resource checks.

use std::sync::{Mutex, PoisonError};

use polylatch::resource::{self, Placeholders, Unchanged};
use polylatch_bridge::Failure;
use pyo3::prelude::*;

use crate::args;
use crate::errors::OrRaise;

/// Remembers the largest fencing token that a resource has seen, and refuses smaller ones.
///
/// One gate guards one resource inside this process; threads may share it. Equal tokens pass: they
/// come from the same holder. For a database, compare and write in one statement instead.
#[pyclass(frozen, module = "polylatch")]
pub struct TokenGate(Mutex<polylatch::TokenGate>);

#[pymethods]
impl TokenGate {
    #[new]
    #[pyo3(signature = (largest=None))]
    fn new(largest: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let gate = match largest {
            Some(largest) => polylatch::TokenGate::resumed_at(args::token(largest)?),
            None => polylatch::TokenGate::new(),
        };
        Ok(Self(Mutex::new(gate)))
    }

    /// Lets a write with this token pass, or raises :class:`StaleToken` because a newer holder was here
    /// before.
    fn admit(&self, py: Python<'_>, fencing_token: &Bound<'_, PyAny>) -> PyResult<()> {
        let token = args::token(fencing_token)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(token).or_raise(py)
    }

    /// The largest token seen, or ``None``.
    #[getter]
    fn largest(&self) -> Option<u64> {
        let gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.largest().map(polylatch::FencingToken::get)
    }

    fn __repr__(&self) -> String {
        self.largest()
            .map_or("<polylatch.TokenGate>".into(), |largest| format!("<polylatch.TokenGate {largest}>"))
    }
}

/// A lock's name, its holder and its fencing token, read from one printable value.
///
/// ``Sequencer("name=orders/42; holder=web-1:4711:9f3a01bc; token=34")``. It tells late writers from
/// present ones, not friends from foes: a client that can send one can invent a token.
///
/// Raises: :class:`InvalidArgument` with the rule that was broken.
#[pyclass(frozen, eq, hash, module = "polylatch")]
#[derive(PartialEq, Hash)]
pub struct Sequencer(resource::Sequencer);

#[pymethods]
impl Sequencer {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        text.parse::<resource::Sequencer>().or_raise(py).map(Self)
    }

    /// The lock's name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The holder, for display; ``None`` if that was not said.
    #[getter]
    fn holder(&self) -> Option<&str> {
        self.0.holder()
    }

    /// The fencing token of the grant.
    #[getter]
    fn fencing_token(&self) -> u64 {
        self.0.token().get()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Sequencer({:?})", self.0.to_string())
    }
}

/// A conditional write to one row of an SQL table that keeps the largest fencing token seen.
///
/// Comparison and write are one statement, so a pause cannot come between them. The table needs one
/// more column, such as ``fence BIGINT NOT NULL DEFAULT 0``; do not delete rows that late writers may
/// still want to write. This sends nothing: you execute :attr:`sql` with the values of
/// :attr:`parameters`, in that order. One changed row: done. No changed row: see :meth:`why_unchanged`.
///
/// `placeholders` is ``"?"`` (``?1``, as in SQLite) or ``"$"`` (``$1``, as in PostgreSQL).
///
/// Raises: :class:`InvalidArgument` for names that are not ``[A-Za-z_][A-Za-z0-9_]{0,62}``, columns that
/// are named twice, and without key columns.
#[pyclass(frozen, module = "polylatch")]
pub struct FencedUpdate(resource::FencedUpdate);

#[pymethods]
impl FencedUpdate {
    /// Writes to a row that exists. Without `set_columns` it only raises the token.
    #[staticmethod]
    fn update(
        py: Python<'_>,
        placeholders: &str,
        table: &str,
        fence_column: &str,
        set_columns: Vec<String>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        let (sets, keys) = (words(&set_columns), words(&key_columns));
        let dialect = dialect(placeholders).or_raise(py)?;
        resource::FencedUpdate::update(dialect, table, fence_column, &sets, &keys).or_raise(py).map(Self)
    }

    /// Writes to a row, or inserts it if it is missing; the key columns need a unique index.
    #[staticmethod]
    fn upsert(
        py: Python<'_>,
        placeholders: &str,
        table: &str,
        fence_column: &str,
        set_columns: Vec<String>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        let (sets, keys) = (words(&set_columns), words(&key_columns));
        let dialect = dialect(placeholders).or_raise(py)?;
        resource::FencedUpdate::upsert(dialect, table, fence_column, &sets, &keys).or_raise(py).map(Self)
    }

    /// The statement.
    #[getter]
    fn sql(&self) -> &str {
        self.0.sql()
    }

    /// Which column's value each parameter is: the columns to set, the fencing token, the keys.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.0.parameters().to_vec()
    }

    /// A query for the row's token; its parameters are :attr:`probe_parameters`.
    #[getter]
    fn probe_sql(&self) -> &str {
        self.0.probe_sql()
    }

    /// Which column's value each parameter of the probe is.
    #[getter]
    fn probe_parameters(&self) -> Vec<String> {
        self.0.probe_parameters().to_vec()
    }

    /// Explains a write that changed no row by what the probe found: its row, or ``None`` for no row.
    ///
    /// Raises: :class:`StaleToken` if a newer holder wrote before. Returns ``"missing"`` if there is no
    /// such row (an upsert never says so), ``"changed_meanwhile"`` if it is worth writing again.
    #[staticmethod]
    fn why_unchanged(
        py: Python<'_>,
        fencing_token: &Bound<'_, PyAny>,
        row: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<&'static str> {
        let token = args::token(fencing_token)?;
        let found = row.map(|row| row.get_item(0)?.extract::<Option<i64>>()).transpose()?;
        match resource::FencedUpdate::why_unchanged(token, found) {
            Unchanged::Missing => Ok("missing"),
            Unchanged::ChangedMeanwhile => Ok("changed_meanwhile"),
            Unchanged::Refused(refused) => Err(polylatch::Error::from(refused)).or_raise(py),
        }
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.FencedUpdate {}>", self.0.sql())
    }
}

fn words(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn dialect(placeholders: &str) -> Result<Placeholders, Failure> {
    match placeholders {
        "?" => Ok(Placeholders::Question),
        "$" => Ok(Placeholders::Dollar),
        other => Err(Failure::invalid_argument(format!(
            "placeholders is {other:?}; it must be \"?\" (SQLite) or \"$\" (PostgreSQL)"
        ))),
    }
}
