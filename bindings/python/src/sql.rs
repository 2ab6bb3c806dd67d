//! Statements for the caller's own tables and transactions.

use polylatch_bridge::sql::{self, BoundStatement, IfMissing, LockStatements, Write};
use pyo3::prelude::*;

use crate::args;
use crate::errors::OrRaise;

/// A conditional write to one row of an SQL table that keeps the largest fencing token seen.
///
/// Comparison and write are one statement, so a pause cannot come between them. The table needs one
/// more column, such as ``fence BIGINT NOT NULL DEFAULT 0``; do not delete rows that late writers may
/// still want to write. This sends nothing: you execute :attr:`sql` with the values that
/// :attr:`parameters` names, in that order. One changed row: done. No changed row: see
/// :meth:`why_unchanged`. If :attr:`rows_tell` is false, see :meth:`check` instead.
///
/// `dialect` is the database and the sign of its driver for a value: ``"sqlite ?"`` (sqlite3),
/// ``"postgres %s"`` (psycopg), ``"postgres $1"`` (asyncpg), ``"mysql %s"`` (PyMySQL, mysqlclient;
/// MariaDB too), and ``"sqlite ?1"``, ``"postgres ?"``, ``"mysql ?"``.
///
/// Raises: :class:`InvalidArgument` for another dialect, for names that are not
/// ``[A-Za-z_][A-Za-z0-9_]{0,62}``, columns that are named twice, and without key columns.
#[pyclass(frozen, module = "polylatch")]
pub struct FencedUpdate(Write);

#[pymethods]
impl FencedUpdate {
    /// Writes to a row that exists. Without `set_columns` it only raises the token.
    #[staticmethod]
    fn update(
        py: Python<'_>,
        dialect: &str,
        table: &str,
        fence_column: &str,
        set_columns: Vec<String>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        sql::fenced(IfMissing::Nothing, dialect, table, fence_column, &set_columns, &key_columns)
            .or_raise(py)
            .map(Self)
    }

    /// Writes to a row, or inserts it if it is missing; the key columns need a unique index.
    #[staticmethod]
    fn upsert(
        py: Python<'_>,
        dialect: &str,
        table: &str,
        fence_column: &str,
        set_columns: Vec<String>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        sql::fenced(IfMissing::Insert, dialect, table, fence_column, &set_columns, &key_columns)
            .or_raise(py)
            .map(Self)
    }

    /// The statement.
    #[getter]
    fn sql(&self) -> &str {
        &self.0.write.sql
    }

    /// Which column's value each parameter is: the columns to set, the fencing token, the keys; where
    /// places have no numbers, what the statement needs again once more.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.0.write.parameters.clone()
    }

    /// A query for the row's token; its parameters are :attr:`probe_parameters`.
    #[getter]
    fn probe_sql(&self) -> &str {
        &self.0.probe.sql
    }

    /// Which column's value each parameter of the probe is.
    #[getter]
    fn probe_parameters(&self) -> Vec<String> {
        self.0.probe.parameters.clone()
    }

    /// Whether the number of changed rows tells that the write was refused. It does not for an upsert on
    /// MySQL and MariaDB: ask with the probe each time, and :meth:`check` its row.
    #[getter]
    fn rows_tell(&self) -> bool {
        self.0.rows_tell
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
        sql::fenced_unchanged(args::token(fencing_token)?, found(row)?).or_raise(py)
    }

    /// Reads what the probe found after a write whose number of rows says nothing.
    ///
    /// Raises: :class:`StaleToken` if the row keeps a newer token: a newer holder wrote before, or since.
    #[staticmethod]
    fn check(
        py: Python<'_>,
        fencing_token: &Bound<'_, PyAny>,
        row: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        sql::fenced_accepted(args::token(fencing_token)?, found(row)?).or_raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.FencedUpdate {}>", self.sql())
    }
}

/// A write to one row of an SQL table that is refused if the row was written since it was read.
///
/// It raises the version by one where it compares it (optimistic locking), and needs no lock. The table
/// needs one more column, such as ``version BIGINT NOT NULL DEFAULT 0``. This sends nothing: you execute
/// :attr:`sql` with the values that :attr:`parameters` names; the value of the version is the one that
/// was read. One changed row: done. No changed row: see :meth:`why_unchanged`.
///
/// `dialect`: see :class:`FencedUpdate`.
///
/// Raises: :class:`InvalidArgument` as :class:`FencedUpdate` does.
#[pyclass(frozen, module = "polylatch")]
pub struct VersionedUpdate(Write);

#[pymethods]
impl VersionedUpdate {
    /// Writes to a row that exists. Without `set_columns` it only raises the version.
    #[staticmethod]
    fn update(
        py: Python<'_>,
        dialect: &str,
        table: &str,
        version_column: &str,
        set_columns: Vec<String>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        sql::versioned(dialect, table, version_column, &set_columns, &key_columns).or_raise(py).map(Self)
    }

    /// The statement.
    #[getter]
    fn sql(&self) -> &str {
        &self.0.write.sql
    }

    /// Which column's value each parameter is: the columns to set, the keys, the version that was read.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.0.write.parameters.clone()
    }

    /// A query for the row's version; its parameters are :attr:`probe_parameters`.
    #[getter]
    fn probe_sql(&self) -> &str {
        &self.0.probe.sql
    }

    /// Which column's value each parameter of the probe is.
    #[getter]
    fn probe_parameters(&self) -> Vec<String> {
        self.0.probe.parameters.clone()
    }

    /// Explains a write that changed no row by what the probe found: its row, or ``None`` for no row.
    ///
    /// Returns ``"changed"`` if it has another version, which the row says: read the row again and decide
    /// what to write now; ``"missing"`` if there is no such row.
    #[staticmethod]
    fn why_unchanged(row: Option<&Bound<'_, PyAny>>) -> PyResult<&'static str> {
        Ok(sql::versioned_unchanged(found(row)?))
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.VersionedUpdate {}>", self.sql())
    }
}

/// A write to one row of an SQL table that happens only while the row fulfils conditions, such as
/// ``stock >= 3``.
///
/// The database makes check and write one step, so what is left cannot be sold twice. It needs no lock.
/// This sends nothing: you execute :attr:`sql` with the values that :attr:`parameters` names. One changed
/// row: done. No changed row: a condition is not fulfilled, or there is no such row, which the probe tells.
/// MySQL and MariaDB do not count a row that keeps its values, unless the client asks for found rows.
///
/// `dialect`: see :class:`FencedUpdate`.
///
/// Raises: :class:`InvalidArgument` as :class:`FencedUpdate` does, for another operator, for a condition
/// that is named twice, and without changes or conditions.
#[pyclass(frozen, module = "polylatch")]
pub struct ConditionalUpdate(Write);

#[pymethods]
impl ConditionalUpdate {
    /// Writes to a row that exists.
    ///
    /// `changes` are columns, each with ``"="`` (it becomes the value), ``"+"`` or ``"-"``; `conditions` are
    /// columns, each with ``"="``, ``"<>"``, ``"<"``, ``"<="``, ``">"`` or ``">="``. ``NULL`` fulfils none.
    #[staticmethod]
    fn update(
        py: Python<'_>,
        dialect: &str,
        table: &str,
        changes: Vec<(String, String)>,
        conditions: Vec<(String, String)>,
        key_columns: Vec<String>,
    ) -> PyResult<Self> {
        sql::conditional(dialect, table, &changes, &conditions, &key_columns).or_raise(py).map(Self)
    }

    /// The statement.
    #[getter]
    fn sql(&self) -> &str {
        &self.0.write.sql
    }

    /// What each parameter is: the changes, the keys, the conditions. A value to set and a key are named by
    /// their column, the others by column and operator, such as ``"stock >="``.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.0.write.parameters.clone()
    }

    /// A query for the columns of the conditions, in their order; its parameters are
    /// :attr:`probe_parameters`.
    #[getter]
    fn probe_sql(&self) -> &str {
        &self.0.probe.sql
    }

    /// Which column's value each parameter of the probe is.
    #[getter]
    fn probe_parameters(&self) -> Vec<String> {
        self.0.probe.parameters.clone()
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.ConditionalUpdate {}>", self.sql())
    }
}

/// A lock inside a transaction of your own, on your own connection to the database that keeps the locks.
///
/// It excludes every holder of a lease on that name and other such transactions. The server frees it at
/// the commit, at the rollback, and when the connection ends. This sends nothing; you execute:
///
/// 1. MySQL and MariaDB: :attr:`prepare_sql` with :attr:`prepare_values`, before the transaction.
/// 2. First in the transaction :attr:`take_sql` with :attr:`take_values`. One row (PostgreSQL: returned,
///    MySQL and MariaDB: changed) means taken. No row: a client holds a lease or waits for one; roll back
///    at once.
/// 3. The fencing token is in the row; on MySQL and MariaDB :attr:`fence_sql` reads it.
///
/// Keep the transaction short, well below the `timeout` of the clients. Take several locks in the order of
/// their names.
///
/// `dialect`: see :class:`FencedUpdate`; SQLite has none. `schema` is that of the store on PostgreSQL.
///
/// Raises: :class:`InvalidArgument`, and :class:`InvalidConfig` for an impossible schema.
#[pyclass(frozen, module = "polylatch")]
pub struct TransactionLock {
    name: String,
    statements: LockStatements,
}

#[pymethods]
impl TransactionLock {
    #[new]
    #[pyo3(signature = (dialect, name, schema=None))]
    fn new(py: Python<'_>, dialect: &str, name: String, schema: Option<&str>) -> PyResult<Self> {
        let statements = sql::transaction_lock(dialect, &name, schema).or_raise(py)?;
        Ok(Self { name, statements })
    }

    /// The name of the lock.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What to execute before the transaction; ``None`` where nothing is needed.
    #[getter]
    fn prepare_sql(&self) -> Option<&str> {
        text(self.statements.prepare.as_ref())
    }

    /// The values of :attr:`prepare_sql`.
    #[getter]
    fn prepare_values(&self) -> Vec<String> {
        values(self.statements.prepare.as_ref())
    }

    /// The statement that takes the lock.
    #[getter]
    fn take_sql(&self) -> &str {
        &self.statements.take.sql
    }

    /// The values of :attr:`take_sql`.
    #[getter]
    fn take_values(&self) -> Vec<String> {
        values(Some(&self.statements.take))
    }

    /// The query for the fencing token, without values; ``None`` where :attr:`take_sql` returns it.
    #[getter]
    fn fence_sql(&self) -> Option<&str> {
        text(self.statements.fence.as_ref())
    }

    fn __repr__(&self) -> String {
        format!("<polylatch.TransactionLock {:?}>", self.name)
    }
}

fn text(statement: Option<&BoundStatement>) -> Option<&str> {
    statement.map(|statement| statement.sql.as_str())
}

fn values(statement: Option<&BoundStatement>) -> Vec<String> {
    statement.map(|statement| statement.values.clone()).unwrap_or_default()
}

/// The number in the only column of the row of a probe.
fn found(row: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Option<i64>>> {
    row.map(|row| row.get_item(0)?.extract::<Option<i64>>()).transpose()
}
