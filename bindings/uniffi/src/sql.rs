//! Statements for the caller's own tables and transactions.

use polylatch_bridge::sql::{self, BoundStatement, IfMissing, LockStatements, Write};

use crate::fault::NativeError;
use crate::handed::at_once;
use crate::options::token;

/// The texts of a write; see [`Write`].
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct WriteTexts {
    pub sql: String,
    pub parameters: Vec<String>,
    pub probe_sql: String,
    pub probe_parameters: Vec<String>,
    pub rows_tell: bool,
}

impl From<Write> for WriteTexts {
    fn from(made: Write) -> Self {
        Self {
            sql: made.write.sql,
            parameters: made.write.parameters,
            probe_sql: made.probe.sql,
            probe_parameters: made.probe.parameters,
            rows_tell: made.rows_tell,
        }
    }
}

/// The texts of a lock inside a transaction; see [`LockStatements`].
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct LockTexts {
    pub prepare: Option<BoundText>,
    pub take: BoundText,
    pub fence: Option<BoundText>,
}

impl From<LockStatements> for LockTexts {
    fn from(made: LockStatements) -> Self {
        Self {
            prepare: made.prepare.map(BoundText::from),
            take: made.take.into(),
            fence: made.fence.map(BoundText::from),
        }
    }
}

/// A statement with the values of its parameters.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct BoundText {
    pub sql: String,
    pub values: Vec<String>,
}

impl From<BoundStatement> for BoundText {
    fn from(made: BoundStatement) -> Self {
        Self { sql: made.sql, values: made.values }
    }
}

/// A column and an operator.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct ColumnSign {
    pub column: String,
    pub sign: String,
}

/// The number in the row of a probe.
#[derive(Debug, Clone, Copy, PartialEq, uniffi::Record)]
pub struct ProbedRow {
    /// None for `NULL`.
    pub number: Option<i64>,
}

/// See [`sql::fenced`].
#[uniffi::export]
pub fn fenced_write(
    inserts: bool,
    dialect: String,
    table: String,
    fence_column: String,
    set_columns: Vec<String>,
    key_columns: Vec<String>,
) -> Result<WriteTexts, NativeError> {
    let if_missing = if inserts { IfMissing::Insert } else { IfMissing::Nothing };
    at_once(|| {
        Ok(sql::fenced(if_missing, &dialect, &table, &fence_column, &set_columns, &key_columns)?.into())
    })
}

/// See [`sql::versioned`].
#[uniffi::export]
pub fn versioned_write(
    dialect: String,
    table: String,
    version_column: String,
    set_columns: Vec<String>,
    key_columns: Vec<String>,
) -> Result<WriteTexts, NativeError> {
    at_once(|| Ok(sql::versioned(&dialect, &table, &version_column, &set_columns, &key_columns)?.into()))
}

/// See [`sql::conditional`].
#[uniffi::export]
pub fn conditional_write(
    dialect: String,
    table: String,
    changes: Vec<ColumnSign>,
    conditions: Vec<ColumnSign>,
    key_columns: Vec<String>,
) -> Result<WriteTexts, NativeError> {
    at_once(|| {
        let (changes, conditions) = (pairs(&changes), pairs(&conditions));
        Ok(sql::conditional(&dialect, &table, &changes, &conditions, &key_columns)?.into())
    })
}

/// See [`sql::transaction_lock`].
#[uniffi::export]
pub fn transaction_lock_texts(
    dialect: String,
    name: String,
    schema: Option<String>,
) -> Result<LockTexts, NativeError> {
    at_once(|| Ok(sql::transaction_lock(&dialect, &name, schema.as_deref())?.into()))
}

/// See [`sql::fenced_unchanged`].
#[uniffi::export]
pub fn fenced_unchanged(number: i64, row: Option<ProbedRow>) -> Result<String, NativeError> {
    at_once(|| Ok(sql::fenced_unchanged(token(number)?, found(row))?.to_owned()))
}

/// See [`sql::fenced_accepted`].
#[uniffi::export]
pub fn fenced_accepted(number: i64, row: Option<ProbedRow>) -> Result<(), NativeError> {
    at_once(|| sql::fenced_accepted(token(number)?, found(row)))
}

/// See [`sql::versioned_unchanged`].
#[uniffi::export]
pub fn versioned_unchanged(row: Option<ProbedRow>) -> String {
    sql::versioned_unchanged(found(row)).to_owned()
}

fn pairs(given: &[ColumnSign]) -> Vec<(&str, &str)> {
    given.iter().map(|pair| (pair.column.as_str(), pair.sign.as_str())).collect()
}

fn found(row: Option<ProbedRow>) -> Option<Option<i64>> {
    row.map(|row| row.number)
}
