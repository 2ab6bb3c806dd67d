//! Statements for the caller's own tables and transactions.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::FencingToken;
use polylatch_bridge::Failure;
use polylatch_bridge::sql::{self, BoundStatement, IfMissing, LockStatements, Write};

use crate::failure::Fault;

/// The texts of a write.
#[napi(object, object_from_js = false)]
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

/// The texts of a lock inside a transaction, with their values.
#[napi(object, object_from_js = false)]
pub struct LockTexts {
    pub prepare_sql: Option<String>,
    pub prepare_values: Vec<String>,
    pub take_sql: String,
    pub take_values: Vec<String>,
    pub fence_sql: Option<String>,
}

impl From<LockStatements> for LockTexts {
    fn from(made: LockStatements) -> Self {
        let BoundStatement { sql: take_sql, values: take_values } = made.take;
        let (prepare_sql, prepare_values) =
            made.prepare.map_or((None, Vec::new()), |prepare| (Some(prepare.sql), prepare.values));
        let fence_sql = made.fence.map(|fence| fence.sql);
        Self { prepare_sql, prepare_values, take_sql, take_values, fence_sql }
    }
}

fn answer<T, R: From<T>>(made: Result<T, Failure>) -> Either<R, Fault> {
    match made {
        Ok(made) => Either::A(made.into()),
        Err(failure) => Either::B(failure.into()),
    }
}

/// A write that is refused to every holder before the latest.
#[napi(catch_unwind)]
pub fn fenced_update(
    inserts: bool,
    dialect: String,
    table: String,
    fence: String,
    set: Vec<String>,
    keys: Vec<String>,
) -> Either<WriteTexts, Fault> {
    let if_missing = if inserts { IfMissing::Insert } else { IfMissing::Nothing };
    answer(sql::fenced(if_missing, &dialect, &table, &fence, &set, &keys))
}

/// A write that is refused if the row was written since it was read.
#[napi(catch_unwind)]
pub fn versioned_update(
    dialect: String,
    table: String,
    version: String,
    set: Vec<String>,
    keys: Vec<String>,
) -> Either<WriteTexts, Fault> {
    answer(sql::versioned(&dialect, &table, &version, &set, &keys))
}

/// A write that happens only while the row fulfils conditions.
#[napi(catch_unwind)]
pub fn conditional_update(
    dialect: String,
    table: String,
    changes: Vec<Vec<String>>,
    conditions: Vec<Vec<String>>,
    keys: Vec<String>,
) -> Either<WriteTexts, Fault> {
    answer(sql::conditional(&dialect, &table, &pairs(changes), &pairs(conditions), &keys))
}

/// A lock inside the caller's own transaction.
#[napi(catch_unwind)]
pub fn transaction_lock(dialect: String, name: String, schema: Option<String>) -> Either<LockTexts, Fault> {
    answer(sql::transaction_lock(&dialect, &name, schema.as_deref()))
}

/// Why a fenced write changed nothing. `kept` is the row's token, as decimal text; with `there` unset there is no row.
#[napi(catch_unwind)]
pub fn fenced_unchanged(token: String, there: bool, kept: Option<String>) -> Either<String, Fault> {
    let found = found("the fencing token", there, kept);
    answer(found.and_then(|found| sql::fenced_unchanged(number(&token), found)))
}

/// Nothing, or that the row keeps a newer token.
#[napi(catch_unwind)]
pub fn fenced_accepted(token: String, there: bool, kept: Option<String>) -> Either<(), Fault> {
    let found = found("the fencing token", there, kept);
    answer(found.and_then(|found| sql::fenced_accepted(number(&token), found)))
}

/// Why a versioned write changed nothing.
#[napi(catch_unwind)]
pub fn versioned_unchanged(there: bool, kept: Option<String>) -> Either<String, Fault> {
    answer(found("the version", there, kept).map(sql::versioned_unchanged))
}

/// `js/` passes only what fits 64 bits.
fn number(token: &str) -> FencingToken {
    FencingToken::new(token.parse().unwrap_or(u64::MAX))
}

fn found(what: &str, there: bool, kept: Option<String>) -> Result<Option<Option<i64>>, Failure> {
    let kept = kept.map(|kept| sql::row_number(what, &kept)).transpose()?;
    Ok(there.then_some(kept))
}

/// `js/` passes only pairs.
fn pairs(given: Vec<Vec<String>>) -> Vec<(String, String)> {
    let pairs = given.into_iter().filter_map(|pair| <[String; 2]>::try_from(pair).ok());
    pairs.map(|[column, operator]| (column, operator)).collect()
}
