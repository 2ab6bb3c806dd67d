//! Statements for the caller's own tables and transactions.

use std::ffi::{CString, c_char};
use std::ptr;

use polylatch::FencingToken;
use polylatch_bridge::Failure;
use polylatch_bridge::sql::{self, BoundStatement, IfMissing, LockStatements, Statement, Write};

use crate::border::{self, free, optional_text, owned_text, place, text};
use crate::client::read_pairs;
use crate::error::{PlError, PlStatus};

/// Part of a PlSql: the write.
pub const PL_SQL_WRITE: u32 = 0;
/// Part of a PlSql: a query for why the write changed no row.
pub const PL_SQL_PROBE: u32 = 1;
/// Part of a PlSql: what runs before the transaction; there is none on PostgreSQL.
pub const PL_SQL_PREPARE: u32 = 2;
/// Part of a PlSql: what takes the lock, first in the transaction.
pub const PL_SQL_TAKE: u32 = 3;
/// Part of a PlSql: a query for the fencing token; there is none on PostgreSQL, where PL_SQL_TAKE returns it.
pub const PL_SQL_FENCE: u32 = 4;

/// Statements for tables and transactions of your own. Nothing is sent: you execute a text with its parameters.
///
/// A dialect is the database and the sign of its driver for a value: "sqlite ?1", "sqlite ?", "postgres $1", "postgres ?",
/// "postgres %s", "mysql ?" or "mysql %s" (MariaDB too). Names are checked and quoted: 1 to 63 ASCII letters, digits and _, no
/// digit first. A list of columns ends with NULL.
#[derive(Debug)]
pub struct PlSql {
    /// By the number of the part.
    parts: [Option<Text>; 5],
    rows_tell: bool,
}

#[derive(Debug)]
struct Text {
    sql: CString,
    parameters: Vec<CString>,
}

impl Text {
    fn new(sql: &str, parameters: &[String]) -> Self {
        Self { sql: owned_text(sql), parameters: parameters.iter().map(|text| owned_text(text)).collect() }
    }
}

impl From<Write> for PlSql {
    fn from(made: Write) -> Self {
        let text = |statement: &Statement| Some(Text::new(&statement.sql, &statement.parameters));
        Self { parts: [text(&made.write), text(&made.probe), None, None, None], rows_tell: made.rows_tell }
    }
}

impl From<LockStatements> for PlSql {
    fn from(made: LockStatements) -> Self {
        let text = |statement: &BoundStatement| Text::new(&statement.sql, &statement.values);
        let (prepare, fence) = (made.prepare.as_ref().map(text), made.fence.as_ref().map(text));
        Self { parts: [None, None, prepare, Some(text(&made.take)), fence], rows_tell: true }
    }
}

/// Makes a write to a row that exists, which changes it only if no newer fencing token wrote. The table keeps the largest token
/// in a column such as fence BIGINT NOT NULL DEFAULT 0. Without columns to set, NULL, only the token is raised. One changed
/// row: done. None: ask with the probe, and pl_fenced_unchanged. Free the statements with pl_sql_free.
///
/// Errors: "invalid_argument".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_fenced_update(
    dialect: *const c_char,
    table: *const c_char,
    fence_column: *const c_char,
    set_columns: *const *const c_char,
    key_columns: *const *const c_char,
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        fenced(IfMissing::Nothing, [dialect, table, fence_column], [set_columns, key_columns], sql, error)
    }
}

/// Makes the same write, which inserts the row if it is missing; the key columns need a unique index. Where
/// pl_sql_rows_tell is false, ask with the probe after each write, and pl_fenced_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_fenced_upsert(
    dialect: *const c_char,
    table: *const c_char,
    fence_column: *const c_char,
    set_columns: *const *const c_char,
    key_columns: *const *const c_char,
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        fenced(IfMissing::Insert, [dialect, table, fence_column], [set_columns, key_columns], sql, error)
    }
}

/// Makes a write to a row that changes it only if it still has the version that was read, and raises the version by one. It
/// needs no lock. One changed row: done. None: the row has another version or is missing, which the probe tells.
///
/// Errors: "invalid_argument".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_versioned_update(
    dialect: *const c_char,
    table: *const c_char,
    version_column: *const c_char,
    set_columns: *const *const c_char,
    key_columns: *const *const c_char,
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made(sql, error, || {
            let (sets, keys) = (texts("set_columns", set_columns)?, texts("key_columns", key_columns)?);
            let [dialect, table, version] = names(dialect, table, "version_column", version_column)?;
            sql::versioned(dialect, table, version, &sets, &keys)
        })
    }
}

/// Makes a write to a row that changes it only while the row fulfils conditions, such as stock >= 3. It needs no lock.
/// `changes` are columns and "=", "+" or "-" in turn, `conditions` columns and "=", "<>", "<", "<=", ">" or ">=" in turn;
/// both end with NULL.
///
/// Errors: "invalid_argument".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_conditional_update(
    dialect: *const c_char,
    table: *const c_char,
    changes: *const *const c_char,
    conditions: *const *const c_char,
    key_columns: *const *const c_char,
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made(sql, error, || {
            let (dialect, table) = (text("dialect", dialect)?, text("table", table)?);
            let (changes, conditions) = (pairs("change", changes)?, pairs("condition", conditions)?);
            sql::conditional(dialect, table, &changes, &conditions, &texts("key_columns", key_columns)?)
        })
    }
}

/// Makes the statements that take a lock for as long as a transaction of yours lasts, on your connection to the database that
/// keeps the locks. Run PL_SQL_PREPARE before the transaction, if there is one, and PL_SQL_TAKE first in it: one row
/// (PostgreSQL: returned, MySQL and MariaDB: changed) means taken. No row: a client holds a lease or waits for one; roll back
/// at once. The parameters are values here, not names. `schema` is that of the store on PostgreSQL, or NULL.
///
/// Errors: "invalid_argument", "invalid_config" for an impossible schema.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_transaction_lock(
    dialect: *const c_char,
    name: *const c_char,
    schema: *const c_char,
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made(sql, error, || {
            sql::transaction_lock(
                text("dialect", dialect)?,
                text("name", name)?,
                optional_text("schema", schema)?,
            )
        })
    }
}

/// Returns a text; NULL if there is none. It lives as long as the statements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_sql_text(sql: *const PlSql, part: u32) -> *const c_char {
    // SAFETY: the caller's promise.
    let found = unsafe { of(sql, part) };
    found.map_or(ptr::null(), |found| found.sql.as_ptr())
}

/// Returns what a parameter of a text is, from 0; NULL behind the last one. Of a write it is the column, or column and operator
/// such as "stock >="; of a lock in a transaction it is the value. It lives as long as the statements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_sql_parameter(sql: *const PlSql, part: u32, index: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let found = unsafe { of(sql, part) }.and_then(|found| found.parameters.get(index));
    found.map_or(ptr::null(), |parameter| parameter.as_ptr())
}

/// Says whether the number of changed rows tells that the write was refused. It does not for an upsert on MySQL and MariaDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_sql_rows_tell(sql: *const PlSql) -> bool {
    // SAFETY: the caller's promise for a pointer that is not null.
    unsafe { sql.as_ref() }.is_some_and(|sql| sql.rows_tell)
}

/// Frees statements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_sql_free(sql: *mut PlSql) {
    // SAFETY: the caller's promise.
    unsafe { free(sql) };
}

/// Explains a fenced write that changed no row, by what the probe found: whether there is a row, and its token, NULL for one
/// that is NULL in the table. Stores in `missing` whether there is no such row; otherwise it is worth writing again.
///
/// Errors: "stale_token" if a newer holder wrote before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_fenced_unchanged(
    fencing_token: u64,
    has_row: bool,
    kept: *const i64,
    missing: *mut bool,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let missing = place("missing", missing)?;
            let found = has_row.then_some(kept.as_ref().copied());
            *missing = sql::fenced_unchanged(FencingToken::new(fencing_token), found)? == "missing";
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Reads what the probe found after a fenced write whose number of rows says nothing. `kept` is NULL for no row, and for a row
/// without a token.
///
/// Errors: "stale_token" if the row keeps a newer token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_fenced_check(
    fencing_token: u64,
    kept: *const i64,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let found = Some(kept.as_ref().copied());
            sql::fenced_accepted(FencingToken::new(fencing_token), found)?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Makes a fenced write: by dialect, table and column of the token, and the lists of columns to set and of keys.
///
/// # Safety
/// As for the functions that are called from C: each pointer is null or to what it says.
unsafe fn fenced(
    if_missing: IfMissing,
    [dialect, table, fence]: [*const c_char; 3],
    [sets, keys]: [*const *const c_char; 2],
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made(sql, error, || {
            let (sets, keys) = (texts("set_columns", sets)?, texts("key_columns", keys)?);
            let [dialect, table, fence] = names(dialect, table, "fence_column", fence)?;
            sql::fenced(if_missing, dialect, table, fence, &sets, &keys)
        })
    }
}

/// Stores what `make` makes.
///
/// # Safety
/// As for the functions that are called from C: each pointer is null or to what it says.
unsafe fn made<T: Into<PlSql>>(
    sql: *mut *mut PlSql,
    error: *mut *mut PlError,
    make: impl FnOnce() -> Result<T, Failure>,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { border::made("sql", sql, error, || Ok(make()?.into())) }
}

/// # Safety
/// The pointer is null or points to live statements.
unsafe fn of<'a>(sql: *const PlSql, part: u32) -> Option<&'a Text> {
    // SAFETY: the caller's promise for a pointer that is not null.
    let sql = unsafe { sql.as_ref() }?;
    sql.parts.get(part as usize)?.as_ref()
}

/// # Safety
/// The texts are null or end with a NUL byte.
unsafe fn names<'a>(
    dialect: *const c_char,
    table: *const c_char,
    what: &str,
    column: *const c_char,
) -> Result<[&'a str; 3], Failure> {
    // SAFETY: the caller's promise.
    unsafe { Ok([text("dialect", dialect)?, text("table", table)?, text(what, column)?]) }
}

/// Reads a list that ends with NULL; NULL is an empty one.
///
/// # Safety
/// `list` is null or a list of texts that ends with null.
unsafe fn texts<'a>(what: &str, list: *const *const c_char) -> Result<Vec<&'a str>, Failure> {
    let mut read = Vec::new();
    if list.is_null() {
        return Ok(read);
    }
    // SAFETY: the caller's promise; no entry behind the null at the end is read.
    unsafe {
        while !(*list.add(read.len())).is_null() {
            read.push(text(what, *list.add(read.len()))?);
        }
    }
    Ok(read)
}

/// # Safety
/// As for [`texts`].
unsafe fn pairs(what: &str, list: *const *const c_char) -> Result<Vec<(String, String)>, Failure> {
    let mut read = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        read_pairs(what, list, |column, sign| {
            read.push((column.to_owned(), sign.to_owned()));
            Ok(())
        })?;
    }
    Ok(read)
}
