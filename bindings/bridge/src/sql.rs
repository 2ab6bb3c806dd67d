//! Statements for the caller's own tables and transactions, as plain data: a text, and which value each parameter is.
//!
//! The dialect is a word, such as `postgres %s`; see [`Placeholders`]. Names, quoting, the form of an upsert and every rule
//! come from the core.

use polylatch::FencingToken;
use polylatch::resource::{
    Change, Compare, ConditionalUpdate, Conflict, FencedUpdate, Placeholders, TransactionLock, Unchanged,
    VersionedUpdate,
};

use crate::failure::Failure;

/// A statement, or a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub sql: String,
    /// Which value each parameter is, in order: by the column, or by column and operator, such as `stock >=`.
    pub parameters: Vec<String>,
}

/// A write that happens only where it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub write: Statement,
    /// Asks why no row was changed.
    pub probe: Statement,
    /// Whether the number of changed rows says that the write was refused; if not, the probe is asked each time.
    pub rows_tell: bool,
}

/// A statement with the values of its parameters, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundStatement {
    pub sql: String,
    pub values: Vec<String>,
}

/// A lock inside the caller's own transaction; see [`TransactionLock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStatements {
    /// Runs before the transaction.
    pub prepare: Option<BoundStatement>,
    /// Runs first in the transaction; one row is a lock that was taken.
    pub take: BoundStatement,
    /// Reads the fencing token where `take` does not return it.
    pub fence: Option<BoundStatement>,
}

/// Whether a fenced write inserts a row that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    Nothing,
    Insert,
}

/// A write that is refused to every holder before the latest; see [`FencedUpdate`].
///
/// Errors: `invalid_argument`.
pub fn fenced(
    if_missing: IfMissing,
    dialect: &str,
    table: &str,
    fence_column: &str,
    set_columns: &[impl AsRef<str>],
    key_columns: &[impl AsRef<str>],
) -> Result<Write, Failure> {
    let make = match if_missing {
        IfMissing::Nothing => FencedUpdate::update,
        IfMissing::Insert => FencedUpdate::upsert,
    };
    let made = make(dialect.parse()?, table, fence_column, &words(set_columns), &words(key_columns))?;
    Ok(Write {
        write: statement(made.sql(), made.parameters()),
        probe: statement(made.probe_sql(), made.probe_parameters()),
        rows_tell: made.rows_tell(),
    })
}

/// A write that is refused if the row was written since it was read; see [`VersionedUpdate`].
///
/// Errors: `invalid_argument`.
pub fn versioned(
    dialect: &str,
    table: &str,
    version_column: &str,
    set_columns: &[impl AsRef<str>],
    key_columns: &[impl AsRef<str>],
) -> Result<Write, Failure> {
    let (sets, keys) = (words(set_columns), words(key_columns));
    let made = VersionedUpdate::update(dialect.parse()?, table, version_column, &sets, &keys)?;
    Ok(Write {
        write: statement(made.sql(), made.parameters()),
        probe: statement(made.probe_sql(), made.probe_parameters()),
        rows_tell: true,
    })
}

/// A write that happens only while the row fulfils conditions; see [`ConditionalUpdate`]. A change is a column and `=`, `+` or
/// `-`, a condition a column and `=`, `<>`, `<`, `<=`, `>` or `>=`.
///
/// Errors: `invalid_argument`.
pub fn conditional(
    dialect: &str,
    table: &str,
    changes: &[(impl AsRef<str>, impl AsRef<str>)],
    conditions: &[(impl AsRef<str>, impl AsRef<str>)],
    key_columns: &[impl AsRef<str>],
) -> Result<Write, Failure> {
    let changes: Vec<(&str, Change)> = operators(changes)?;
    let conditions: Vec<(&str, Compare)> = operators(conditions)?;
    let made =
        ConditionalUpdate::update(dialect.parse()?, table, &changes, &conditions, &words(key_columns))?;
    Ok(Write {
        write: statement(made.sql(), made.parameters()),
        probe: statement(made.probe_sql(), made.probe_parameters()),
        rows_tell: true,
    })
}

/// Why a fenced write changed no row, by what the probe found: `None` is no row, `Some(None)` a token that is `NULL`. Returns
/// `missing`, or `changed_meanwhile` if it is worth writing again.
///
/// Errors: `stale_token` if a newer holder wrote before.
pub fn fenced_unchanged(token: FencingToken, found: Option<Option<i64>>) -> Result<&'static str, Failure> {
    match FencedUpdate::why_unchanged(token, found) {
        Unchanged::Refused(refused) => Err(polylatch::Error::from(refused).into()),
        Unchanged::Missing => Ok("missing"),
        Unchanged::ChangedMeanwhile => Ok("changed_meanwhile"),
    }
}

/// Reads the probe after a fenced write whose number of rows says nothing.
///
/// Errors: `stale_token` if the row keeps a newer token.
pub fn fenced_accepted(token: FencingToken, found: Option<Option<i64>>) -> Result<(), Failure> {
    FencedUpdate::refused(token, found).map_or(Ok(()), |refused| Err(polylatch::Error::from(refused).into()))
}

/// Why a versioned write changed no row: `missing` or `changed`.
pub fn versioned_unchanged(found: Option<Option<i64>>) -> &'static str {
    match VersionedUpdate::why_unchanged(found) {
        Conflict::Missing => "missing",
        Conflict::Changed { .. } => "changed",
    }
}

/// A number that a row has, from the decimal text of a language whose numbers may be larger than the core's.
///
/// Errors: `invalid_argument` that names the column's role.
pub fn row_number(what: &str, text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(24).collect();
        Failure::invalid_argument(format!("{what} of the row is {shown:?}; it must fit a BIGINT"))
    })
}

/// A lock inside the caller's own transaction, on the database that keeps the locks. `schema` is that of the store on
/// PostgreSQL.
///
/// Errors: `invalid_argument` for a dialect that has none, an impossible name, and a schema on MySQL; `invalid_config` for an
/// impossible schema.
pub fn transaction_lock(dialect: &str, name: &str, schema: Option<&str>) -> Result<LockStatements, Failure> {
    let dialect: Placeholders = dialect.parse()?;
    let lock = match dialect {
        Placeholders::Mysql | Placeholders::MysqlFormat => match schema {
            None => TransactionLock::mysql(name)?,
            Some(_) => {
                let rule =
                    "a lock on MySQL or MariaDB has no schema; use a connection to the database of the store";
                return Err(Failure::invalid_argument(rule));
            }
        },
        Placeholders::Question | Placeholders::SqlitePlain => {
            let rule = "SQLite has no lock for a part of a transaction; BEGIN IMMEDIATE locks the whole file";
            return Err(Failure::invalid_argument(rule));
        }
        _ => TransactionLock::postgres(schema.unwrap_or(TransactionLock::SCHEMA), name)?,
    };
    let lock = lock.for_driver(dialect)?;
    let named = |sql: &str, count| BoundStatement {
        sql: sql.to_owned(),
        values: vec![lock.name().to_owned(); count],
    };
    Ok(LockStatements {
        prepare: lock.prepare_sql().map(|sql| named(sql, 1)),
        take: named(lock.take_sql(), lock.take_parameters()),
        fence: lock.fence_sql().map(|sql| named(sql, 0)),
    })
}

fn statement(sql: &str, parameters: &[String]) -> Statement {
    Statement { sql: sql.to_owned(), parameters: parameters.to_vec() }
}

fn words(names: &[impl AsRef<str>]) -> Vec<&str> {
    names.iter().map(AsRef::as_ref).collect()
}

fn operators<T: std::str::FromStr<Err = polylatch::Error>>(
    pairs: &[(impl AsRef<str>, impl AsRef<str>)],
) -> Result<Vec<(&str, T)>, Failure> {
    pairs.iter().map(|(column, operator)| Ok((column.as_ref(), operator.as_ref().parse()?))).collect()
}

#[cfg(test)]
#[path = "sql_tests.rs"]
mod tests;
