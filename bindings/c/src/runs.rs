//! Idempotent work inside the caller's own transactions.

use std::ffi::{CString, c_char};
use std::{ptr, slice};

use polylatch::idempotency::Retention;
use polylatch::resource::{SqlRow, SqlStatement, SqlValue};
use polylatch_bridge::Failure;
use polylatch_bridge::sql_runs::{End, Next, SqlClaim, SqlRun, SqlRunOptions, SqlRuns, Talk};

use crate::border::{self, free, handle, infallible, made, optional_text, owned_text, place, text};
use crate::error::{PlError, PlStatus};
use crate::lock::{PL_DEFAULT, choice, millis, sized};

/// Kind of a PlSqlValue: NULL.
pub const PL_VALUE_NULL: u32 = 0;
/// Kind of a PlSqlValue: a whole number.
pub const PL_VALUE_INT: u32 = 1;
/// Kind of a PlSqlValue: UTF-8 text.
pub const PL_VALUE_TEXT: u32 = 2;
/// Kind of a PlSqlValue: bytes.
pub const PL_VALUE_BYTES: u32 = 3;

/// A retention without an end.
pub const PL_FOREVER: i32 = -2;

/// A value of a statement, or a column of a row.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PlSqlValue {
    /// PL_VALUE_NULL, PL_VALUE_INT, PL_VALUE_TEXT or PL_VALUE_BYTES.
    pub kind: u32,
    /// Of PL_VALUE_INT.
    pub number: i64,
    /// Of PL_VALUE_TEXT and PL_VALUE_BYTES. A text of this library has a NUL byte behind it.
    pub data: *const u8,
    /// How many bytes `data` has; a NUL byte behind a text is not counted.
    pub length: usize,
}

/// How to do idempotent work. Fill it with pl_run_options_init first, then change what you need.
#[repr(C)]
#[derive(Debug)]
pub struct PlRunOptions {
    /// sizeof(PlRunOptions), as it was given to pl_run_options_init: lets later versions add fields.
    pub size: usize,
    /// What the request consists of; the same key with another one is refused. NULL: not compared.
    pub payload: *const u8,
    /// How many bytes `payload` has.
    pub payload_length: usize,
    /// What the payload is recognized by instead, such as its SHA-256: 1 to 128 bytes. NULL: nothing.
    pub fingerprint: *const c_char,
    /// How long the answer is kept, milliseconds, or PL_FOREVER. Default: 24 h.
    pub retention_ms: i64,
    /// Lease of work in steps, milliseconds: 100 to a day. Default: 15 s. Only with pl_runs_steps.
    pub lease_ms: i64,
    /// 1: do not wait for another transaction with the same key (PostgreSQL, MariaDB). Default: 0. Only with
    /// pl_runs_run.
    pub no_wait: i32,
}

/// Idempotent work in one database, whose record is committed by a transaction of yours: both, or neither.
///
/// Nothing is sent: you execute statements on your connection and hand their rows back, until a PlTalk is over. You
/// begin the transaction (SQLite: BEGIN IMMEDIATE), commit and roll back. Roll back after every error. Without a
/// transaction (autocommit) nothing of this holds.
#[derive(Debug)]
pub struct PlRuns(SqlRuns);

/// The work of one key: in one transaction, or in steps.
#[derive(Debug)]
pub struct PlRun(SqlRun);

/// Statements for your connection, one after the other. One thread at a time uses it.
#[derive(Debug)]
pub struct PlTalk {
    talk: Talk,
    sql: CString,
    values: Vec<Value>,
    end: Option<End>,
}

/// The claim on a key under which the work of a transaction runs, or of several.
#[derive(Debug)]
pub struct PlClaim {
    claim: SqlClaim,
    /// Names and values of the finished steps.
    finished: Vec<(CString, Vec<u8>)>,
}

/// A value to bind. Text has a NUL byte behind it.
enum Value {
    Null,
    Int(i64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
}

impl std::fmt::Debug for Value {
    /// Prints no value: answers are among them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Value")
    }
}

impl From<&SqlValue> for Value {
    fn from(value: &SqlValue) -> Self {
        match value {
            SqlValue::Null => Self::Null,
            SqlValue::Int(number) => Self::Int(*number),
            SqlValue::Text(text) => Self::Text([text.as_bytes(), &[0]].concat()),
            SqlValue::Bytes(bytes) => Self::Bytes(bytes.clone()),
        }
    }
}

impl Value {
    /// As a C caller reads it. It points into the value.
    fn shown(&self) -> PlSqlValue {
        let (kind, number, data) = match self {
            Self::Null => (PL_VALUE_NULL, 0, None),
            Self::Int(number) => (PL_VALUE_INT, *number, None),
            Self::Text(text) => (PL_VALUE_TEXT, 0, text.split_last().map(|(_, text)| text)),
            Self::Bytes(bytes) => (PL_VALUE_BYTES, 0, Some(bytes.as_slice())),
        };
        let (data, length) = data.map_or((ptr::null(), 0), |data| (data.as_ptr(), data.len()));
        PlSqlValue { kind, number, data, length }
    }
}

impl PlTalk {
    fn new(talk: Talk) -> Self {
        Self { talk, sql: CString::default(), values: Vec::new(), end: None }
    }

    fn asks(&mut self, statement: &SqlStatement) {
        self.sql = owned_text(statement.sql());
        self.values = statement.values().iter().map(Value::from).collect();
    }

    fn ended(&mut self, end: End) -> Result<(), Failure> {
        let failed = match &end {
            End::Failed { failure, .. } => Err(failure.clone()),
            _ => Ok(()),
        };
        self.end = Some(end);
        failed
    }
}

impl PlClaim {
    fn new(claim: &SqlClaim) -> Self {
        let finished = claim.finished().into_iter().map(|(name, value)| (owned_text(&name), value)).collect();
        Self { claim: claim.clone(), finished }
    }
}

/// Names a database: "sqlite ?1", "sqlite ?", "postgres $1", "postgres ?", "postgres %s", "mysql ?" or "mysql %s"
/// (MariaDB too), which is the database and the sign of its driver for a value. `schema` is that of the store on
/// PostgreSQL, or NULL.
///
/// On PostgreSQL, MySQL and MariaDB the record is the one that the store in that database keeps for idempotent work
/// in other languages. On SQLite it is in a table of its own. pl_runs_schema makes the tables. Free it with
/// pl_runs_free.
///
/// Errors: "invalid_argument", "invalid_config" for an impossible schema.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_new(
    dialect: *const c_char,
    schema: *const c_char,
    runs: *mut *mut PlRuns,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made("runs", runs, error, || {
            Ok(PlRuns(SqlRuns::new(text("dialect", dialect)?, optional_text("schema", schema)?)?))
        })
    }
}

/// Returns the script that makes the tables; run again, it changes nothing. Free it with pl_text_free. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_schema(runs: *const PlRuns) -> *mut c_char {
    // SAFETY: the caller's promise for a pointer that is not null.
    let runs = unsafe { runs.as_ref() };
    infallible(ptr::null_mut(), || {
        runs.map_or(ptr::null_mut(), |runs| owned_text(&runs.0.schema()).into_raw())
    })
}

/// Whether an error of the database, by its code, says of a claim with `no_wait` that another transaction has the
/// key: "1205" of MySQL and MariaDB. Roll back, and answer as for "in_progress".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_says_in_progress(runs: *const PlRuns, code: *const c_char) -> bool {
    // SAFETY: the caller's promise for a pointer that is not null.
    let (runs, code) = unsafe { (runs.as_ref(), text("code", code)) };
    runs.zip(code.ok()).is_some_and(|(runs, code)| runs.0.says_in_progress(code))
}

/// Frees what names a database; its work can be used on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_free(runs: *mut PlRuns) {
    // SAFETY: the caller's promise.
    unsafe { free(runs) };
}

/// Fills options with the defaults. `size` is sizeof(PlRunOptions). Does nothing for NULL, and for a size that this
/// library does not know: the options are refused by the call that gets them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_run_options_init(options: *mut PlRunOptions, size: usize) {
    if options.is_null() || size != size_of::<PlRunOptions>() {
        return;
    }
    let defaults = PlRunOptions {
        size,
        payload: ptr::null(),
        payload_length: 0,
        fingerprint: ptr::null(),
        retention_ms: i64::from(PL_DEFAULT),
        lease_ms: i64::from(PL_DEFAULT),
        no_wait: PL_DEFAULT,
    };
    // SAFETY: not null, of the right size, and the caller's promise.
    infallible((), || unsafe { options.write(defaults) });
}

/// Names work that is one transaction. `scope` is the operation and the caller it is done for, 1 to 256 bytes; `key`
/// what is unique to one request, 1 to 255 bytes, made by its client. `options` may be NULL. Nothing is sent. Free it
/// with pl_run_free.
///
/// Errors: "invalid_argument".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_run(
    runs: *const PlRuns,
    scope: *const c_char,
    key: *const c_char,
    options: *const PlRunOptions,
    run: *mut *mut PlRun,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made("run", run, error, || {
            let options = read_options(options.as_ref())?;
            if options.lease.is_some() {
                return Err(Failure::invalid_argument(
                    "options.lease_ms is for work in steps; leave it PL_DEFAULT, or name the work with pl_runs_steps",
                ));
            }
            let (scope, key) = (text("scope", scope)?, text("key", key)?);
            Ok(PlRun(handle("runs", runs)?.0.run(scope, key, &options)?))
        })
    }
}

/// Names work in several transactions: a repetition goes on after the last step that was committed. Otherwise as
/// pl_runs_run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_steps(
    runs: *const PlRuns,
    scope: *const c_char,
    key: *const c_char,
    options: *const PlRunOptions,
    run: *mut *mut PlRun,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        made("run", run, error, || {
            let options = read_options(options.as_ref())?;
            if options.no_wait {
                return Err(Failure::invalid_argument(
                    "options.no_wait is for work that is one transaction; work in steps never waits, so leave it PL_DEFAULT",
                ));
            }
            let (scope, key) = (text("scope", scope)?, text("key", key)?);
            Ok(PlRun(handle("runs", runs)?.0.steps(scope, key, &options)?))
        })
    }
}

/// Deletes records whose retention is over, at most so many: 1 to 100 000. Commit it; pl_talk_deleted says how many
/// it were.
///
/// Errors: "invalid_argument".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_runs_purge(
    runs: *const PlRuns,
    most: u32,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { talking(talk, error, || handle("runs", runs)?.0.purge(most)) }
}

/// Claims the key, or finds its answer: the first statements of the transaction. Commit a claim of work in steps at
/// once. When the talk is over, pl_talk_claimed has the claim, or pl_talk_answer the answer of an earlier run. After
/// a rollback claim again with the same PlRun. Free the talk with pl_talk_free.
///
/// A claim of one transaction waits at the database for another transaction with the key.
///
/// Errors: "invalid_argument". Those of its pl_talk_next: "in_progress", "payload_mismatch", "result_too_large", and
/// "failed" if an earlier run failed; pl_talk_answer has what it stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_run_claim(
    run: *const PlRun,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { talking(talk, error, || Ok(handle("run", run)?.0.claim())) }
}

/// Frees work that was named; its claims can be used on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_run_free(run: *mut PlRun) {
    // SAFETY: the caller's promise.
    unsafe { free(run) };
}

/// Stores the next statement in `sql`, or NULL if the talk is over. Execute it with the values of pl_talk_value, and
/// hand its rows to the next call: `columns` has `rows` times `width` values, row after row; `rows` is 0 for the
/// first call and for a statement that returns none. What was stored lives until the next call with this talk.
///
/// Errors: those of the call that made the talk; "stale_token" if another client has taken the work over;
/// "backend_rejected" for rows in an unknown form; "invalid_argument" after the end. Roll back after each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_next(
    talk: *mut PlTalk,
    columns: *const PlSqlValue,
    rows: usize,
    width: usize,
    sql: *mut *const c_char,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let sql = place("sql", sql)?;
            *sql = ptr::null();
            let talk = place("talk", talk)?;
            match talk.talk.next(&read_rows(columns, rows, width)?)? {
                Next::Run(statement) => {
                    talk.asks(&statement);
                    *sql = talk.sql.as_ptr();
                }
                Next::Done(end) => talk.ended(end)?,
            }
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Stores a value of the present statement, from 0; false behind the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_value(talk: *const PlTalk, index: usize, value: *mut PlSqlValue) -> bool {
    // SAFETY: the caller's promise for pointers that are not null.
    let (talk, value) = unsafe { (talk.as_ref(), value.as_mut()) };
    let found = talk.and_then(|talk| talk.values.get(index)).zip(value);
    found.is_some_and(|(found, value)| {
        *value = found.shown();
        true
    })
}

/// Returns the claim that came of a talk that is over; NULL if none did. Each call returns another one, to be freed
/// with pl_claim_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_claimed(talk: *const PlTalk) -> *mut PlClaim {
    // SAFETY: the caller's promise for a pointer that is not null.
    let talk = unsafe { talk.as_ref() };
    infallible(ptr::null_mut(), || match talk.and_then(|talk| talk.end.as_ref()) {
        Some(End::Mine(claim)) => Box::into_raw(Box::new(PlClaim::new(claim))),
        _ => ptr::null_mut(),
    })
}

/// Returns the answer of an earlier run, with its length in bytes, or what an earlier run that failed has stored;
/// NULL if no earlier run has ended. It lives as long as the talk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_answer(talk: *const PlTalk, length: *mut usize) -> *const u8 {
    // SAFETY: the caller's promise for pointers that are not null.
    let (talk, length) = unsafe { (talk.as_ref(), length.as_mut()) };
    let found = match talk.and_then(|talk| talk.end.as_ref()) {
        Some(End::Replayed(answer) | End::Failed { answer, .. }) => Some(answer.as_slice()),
        _ => None,
    };
    shown(found, length)
}

/// Returns how many records a purge that is over has deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_deleted(talk: *const PlTalk) -> u64 {
    // SAFETY: the caller's promise for a pointer that is not null.
    match unsafe { talk.as_ref() }.and_then(|talk| talk.end.as_ref()) {
        Some(End::Purged(deleted)) => *deleted,
        _ => 0,
    }
}

/// Frees a talk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_talk_free(talk: *mut PlTalk) {
    // SAFETY: the caller's promise.
    unsafe { free(talk) };
}

/// Returns the number of a claim, larger than that of every claim on the same key before; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_fencing_token(claim: *const PlClaim) -> u64 {
    // SAFETY: the caller's promise for a pointer that is not null.
    unsafe { claim.as_ref() }.map_or(0, |claim| claim.claim.fencing_token())
}

/// Returns how many runs of this key began, this one counted; of work in steps, how many clients worked on it. 0 for
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_runs(claim: *const PlClaim) -> u32 {
    // SAFETY: the caller's promise for a pointer that is not null.
    unsafe { claim.as_ref() }.map_or(0, |claim| claim.claim.runs())
}

/// Returns the name of a finished step, from 0 in their order, with its value; NULL behind the last one. They live as
/// long as the claim.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_finished(
    claim: *const PlClaim,
    index: usize,
    value: *mut *const u8,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's promise for pointers that are not null.
    let (claim, value, length) = unsafe { (claim.as_ref(), value.as_mut(), length.as_mut()) };
    let Some((name, stored)) = claim.and_then(|claim| claim.finished.get(index)) else { return ptr::null() };
    let data = shown(Some(stored), length);
    if let Some(value) = value {
        *value = data;
    }
    name.as_ptr()
}

/// Records that a step is finished, with a value, and renews the lease: the last statements before the step's commit.
/// `name` has 1 to 100 bytes. The talk ends with the next claim, which records the step after this one.
///
/// Errors: "invalid_argument" for a step that is finished already, and for values of more than 1 MiB in all. Of its
/// pl_talk_next: "stale_token" if another client has taken the work over; roll back: the step was not done by this
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_step(
    claim: *const PlClaim,
    name: *const c_char,
    value: *const u8,
    length: usize,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        talking(talk, error, || {
            handle("claim", claim)?.claim.step(text("name", name)?, bytes("value", value, length)?)
        })
    }
}

/// Renews the lease of work in steps; commit it. The talk ends with the next claim.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_renew(
    claim: *const PlClaim,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { talking(talk, error, || handle("claim", claim)?.claim.renew()) }
}

/// Ends a claim of work in steps without an answer, so that another client goes on at once; commit it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_release(
    claim: *const PlClaim,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { talking(talk, error, || handle("claim", claim)?.claim.release()) }
}

/// Records the result: the last statements before the (last) commit.
///
/// Errors: "invalid_argument" for a result of more than 1 MiB. Of its pl_talk_next: "stale_token". Roll back after
/// each: nothing is done then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_complete(
    claim: *const PlClaim,
    result: *const u8,
    length: usize,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        talking(talk, error, || handle("claim", claim)?.claim.complete(bytes("result", result, length)?))
    }
}

/// Records a failure: every repetition gets "failed" with this answer. What the transaction changed is committed with
/// it.
///
/// Errors: as pl_claim_complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_fail(
    claim: *const PlClaim,
    answer: *const u8,
    length: usize,
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { talking(talk, error, || handle("claim", claim)?.claim.fail(bytes("answer", answer, length)?)) }
}

/// Frees a claim. What it has written remains.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim_free(claim: *mut PlClaim) {
    // SAFETY: the caller's promise.
    unsafe { free(claim) };
}

/// Stores the talk that `make` makes.
///
/// # Safety
/// Each pointer is null or may be written to.
unsafe fn talking(
    talk: *mut *mut PlTalk,
    error: *mut *mut PlError,
    make: impl FnOnce() -> Result<Talk, Failure>,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { made("talk", talk, error, || Ok(PlTalk::new(make()?))) }
}

/// # Safety
/// The pointers are null or to what they say.
unsafe fn read_options(options: Option<&PlRunOptions>) -> Result<SqlRunOptions, Failure> {
    let Some(given) = options else { return Ok(SqlRunOptions::default()) };
    sized::<PlRunOptions>("pl_run_options_init", "PlRunOptions", given.size)?;
    // SAFETY: the caller's promise.
    let (payload, fingerprint) = unsafe {
        let payload = bytes("options.payload", given.payload, given.payload_length)?;
        (payload, optional_text("options.fingerprint", given.fingerprint)?)
    };
    let retention = match given.retention_ms {
        forever if forever == i64::from(PL_FOREVER) => Some(Retention::Forever),
        length => millis("retention_ms", length)?.map(Retention::For),
    };
    Ok(SqlRunOptions {
        payload: (!given.payload.is_null()).then(|| payload.to_vec()),
        fingerprint: fingerprint.map(str::to_owned),
        retention,
        lease: millis("lease_ms", given.lease_ms)?,
        no_wait: choice("no_wait", given.no_wait)? == Some(true),
    })
}

/// Reads bytes; NULL with a length of 0 is none. Errors: `invalid_argument`.
///
/// # Safety
/// `data` is null or has so many bytes.
unsafe fn bytes<'a>(parameter: &str, data: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid_argument(format!(
            "{parameter} is NULL and its length is {length}; it must point to so many bytes"
        )));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { slice::from_raw_parts(data, length) })
}

/// Reads what a statement returned. Errors: `invalid_argument`.
///
/// # Safety
/// `columns` is null or has so many values, each as its kind says.
unsafe fn read_rows(columns: *const PlSqlValue, rows: usize, width: usize) -> Result<Vec<SqlRow>, Failure> {
    let count = rows.checked_mul(width).filter(|count| *count == 0 || !columns.is_null());
    let Some(count) = count else {
        return Err(Failure::invalid_argument(format!(
            "columns is NULL or too small for {rows} rows of {width} columns; it must point to all of them"
        )));
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: not null, and the caller's promise.
    let columns = unsafe { slice::from_raw_parts(columns, count) };
    columns
        .chunks(width)
        // SAFETY: the caller's promise for each value.
        .map(|row| row.iter().map(|column| unsafe { read_column(column) }).collect())
        .collect()
}

/// # Safety
/// The value is as its kind says.
unsafe fn read_column(column: &PlSqlValue) -> Result<SqlValue, Failure> {
    // SAFETY: the caller's promise.
    let data = || unsafe { bytes("the data of a column", column.data, column.length) };
    Ok(match column.kind {
        PL_VALUE_NULL => SqlValue::Null,
        PL_VALUE_INT => SqlValue::Int(column.number),
        PL_VALUE_TEXT => SqlValue::Text(
            std::str::from_utf8(data()?)
                .map_err(|error| {
                    Failure::invalid_argument(format!(
                        "a text column is not UTF-8: it breaks off after {} bytes",
                        error.valid_up_to()
                    ))
                })?
                .to_owned(),
        ),
        PL_VALUE_BYTES => SqlValue::Bytes(data()?.to_vec()),
        kind => {
            return Err(Failure::invalid_argument(format!(
                "the kind of a column is {kind}; it must be PL_VALUE_NULL, PL_VALUE_INT, PL_VALUE_TEXT or PL_VALUE_BYTES"
            )));
        }
    })
}

/// Bytes as a C caller reads them. Not NULL for an empty answer.
fn shown(bytes: Option<&[u8]>, length: Option<&mut usize>) -> *const u8 {
    if let Some(length) = length {
        *length = bytes.map_or(0, <[u8]>::len);
    }
    bytes.map_or(ptr::null(), <[u8]>::as_ptr)
}
