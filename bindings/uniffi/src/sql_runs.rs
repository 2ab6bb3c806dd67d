//! Idempotent work inside the caller's own transactions. A host executes what a [`NativeTalk`] asks for and hands the rows
//! back, until it is over. Nothing here waits or sends, so every call is carried out at once.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylatch::resource::{SqlRow, SqlValue};
use polylatch_bridge::Failure;
use polylatch_bridge::sql_runs::{End, Next, SqlClaim, SqlRun, SqlRunOptions, SqlRuns, Talk};

use crate::fault::{Fault, NativeError};
use crate::handed::at_once;
use crate::options::count;
use crate::run::{length, retention};
use crate::view::whole;

/// A value of a parameter or of a column: one of these, or none for `NULL`.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct SqlCell {
    pub number: Option<i64>,
    pub text: Option<String>,
    pub bytes: Option<Vec<u8>>,
}

impl From<&SqlValue> for SqlCell {
    fn from(value: &SqlValue) -> Self {
        let mut cell = Self { number: None, text: None, bytes: None };
        match value {
            SqlValue::Null => {}
            SqlValue::Int(number) => cell.number = Some(*number),
            SqlValue::Text(text) => cell.text = Some(text.clone()),
            SqlValue::Bytes(bytes) => cell.bytes = Some(bytes.clone()),
        }
        cell
    }
}

impl From<SqlCell> for SqlValue {
    fn from(cell: SqlCell) -> Self {
        match cell {
            SqlCell { number: Some(number), .. } => Self::Int(number),
            SqlCell { text: Some(text), .. } => Self::Text(text),
            SqlCell { bytes: Some(bytes), .. } => Self::Bytes(bytes),
            SqlCell { .. } => Self::Null,
        }
    }
}

/// A statement with the values of its parameters.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct SqlText {
    pub sql: String,
    pub values: Vec<SqlCell>,
}

/// What a caller says of its work; lengths of time are seconds. What is missing is the core's to say.
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct SqlRunWith {
    pub payload: Option<Vec<u8>>,
    pub fingerprint: Option<String>,
    /// Infinity is for ever.
    pub retention: Option<f64>,
    /// Of work in steps.
    pub lease: Option<f64>,
    pub no_wait: bool,
}

impl SqlRunWith {
    fn checked(self) -> Result<SqlRunOptions, Failure> {
        Ok(SqlRunOptions {
            payload: self.payload,
            fingerprint: self.fingerprint,
            retention: retention(self.retention)?,
            lease: length("lease", self.lease)?,
            no_wait: self.no_wait,
        })
    }
}

/// Idempotent work in one database; see [`SqlRuns`].
#[derive(Debug, uniffi::Object)]
pub struct NativeRuns(SqlRuns);

#[uniffi::export]
impl NativeRuns {
    /// Errors: `invalid_argument` for another dialect, `invalid_config` for an impossible schema.
    #[uniffi::constructor]
    pub fn new(dialect: String, schema: Option<String>) -> Result<Self, NativeError> {
        at_once(|| Ok(Self(SqlRuns::new(&dialect, schema.as_deref())?)))
    }

    /// The script that makes the tables.
    pub fn schema_sql(&self) -> String {
        self.0.schema()
    }

    /// Names work that is one transaction.
    pub fn whole(&self, scope: String, key: String, with: SqlRunWith) -> Result<Arc<NativeRun>, NativeError> {
        at_once(|| Ok(Arc::new(NativeRun(self.0.run(&scope, &key, &with.checked()?)?))))
    }

    /// Names work in several transactions.
    pub fn steps(&self, scope: String, key: String, with: SqlRunWith) -> Result<Arc<NativeRun>, NativeError> {
        at_once(|| Ok(Arc::new(NativeRun(self.0.steps(&scope, &key, &with.checked()?)?))))
    }

    /// Deletes records whose retention is over.
    pub fn purge(&self, most: i64) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.purge(count("most", most)?)?)))
    }

    /// Whether an error of the database, by its code, says that another transaction has the key.
    pub fn says_in_progress(&self, code: String) -> bool {
        self.0.says_in_progress(&code)
    }
}

/// The work of one key.
#[derive(Debug, uniffi::Object)]
pub struct NativeRun(SqlRun);

#[uniffi::export]
impl NativeRun {
    pub fn claim(&self) -> Arc<NativeTalk> {
        NativeTalk::new(self.0.claim())
    }

    /// The failure of another transaction at work, where the database reports it as an error.
    pub fn in_progress(&self) -> Fault {
        let NativeError::Failed { fault } = self.0.in_progress().into();
        fault
    }
}

/// Statements to be executed one after the other.
#[derive(uniffi::Object)]
pub struct NativeTalk(Mutex<Spoken>);

struct Spoken {
    talk: Talk,
    end: Option<End>,
}

impl fmt::Debug for NativeTalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeTalk").finish_non_exhaustive()
    }
}

impl NativeTalk {
    fn new(talk: Talk) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Spoken { talk, end: None })))
    }

    fn spoken(&self) -> MutexGuard<'_, Spoken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of a talk. A claim is fetched by [`NativeTalk::claimed`].
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct TalkEnd {
    pub mine: bool,
    /// Of an earlier run.
    pub answer: Option<Vec<u8>>,
    /// The earlier run failed.
    pub failure: Option<Fault>,
    /// How many records a purge has deleted.
    pub deleted: i64,
}

#[uniffi::export]
impl NativeTalk {
    /// The next statement, or nothing at the end. `rows`: what the one before returned.
    pub fn next_statement(&self, rows: Vec<Vec<SqlCell>>) -> Result<Option<SqlText>, NativeError> {
        at_once(|| {
            let rows: Vec<SqlRow> =
                rows.into_iter().map(|row| row.into_iter().map(SqlValue::from).collect()).collect();
            let mut spoken = self.spoken();
            match spoken.talk.next(&rows)? {
                Next::Run(statement) => {
                    let values = statement.values().iter().map(SqlCell::from).collect();
                    Ok(Some(SqlText { sql: statement.sql().to_owned(), values }))
                }
                Next::Done(end) => {
                    spoken.end = Some(end);
                    Ok(None)
                }
            }
        })
    }

    /// What came of it, once there is no next statement.
    pub fn ending(&self) -> TalkEnd {
        let mut found = TalkEnd { mine: false, answer: None, failure: None, deleted: 0 };
        match &self.spoken().end {
            Some(End::Mine(_)) => found.mine = true,
            Some(End::Replayed(value)) => found.answer = Some(value.clone()),
            Some(End::Failed { failure, answer }) => {
                let NativeError::Failed { fault } = failure.clone().into();
                (found.failure, found.answer) = (Some(fault), Some(answer.clone()));
            }
            Some(End::Purged(deleted)) => found.deleted = whole(*deleted),
            Some(End::Written) | None => {}
        }
        found
    }

    /// The claim that came of it. Errors: `invalid_argument` if there is none.
    pub fn claimed(&self) -> Result<Arc<NativeRunClaim>, NativeError> {
        at_once(|| match &self.spoken().end {
            Some(End::Mine(claim)) => Ok(Arc::new(NativeRunClaim((**claim).clone()))),
            _ => Err(Failure::invalid_argument("nothing was claimed here")),
        })
    }
}

/// A finished step.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct FinishedStep {
    pub name: String,
    pub value: Vec<u8>,
}

/// The claim on a key under which the work of a transaction runs, or of several.
#[derive(Debug, uniffi::Object)]
pub struct NativeRunClaim(SqlClaim);

#[uniffi::export]
impl NativeRunClaim {
    /// Larger than that of every claim on the same key before.
    pub fn fencing_token(&self) -> i64 {
        whole(self.0.fencing_token())
    }

    /// How many runs of the key began; of work in steps, how many clients worked on it.
    pub fn runs(&self) -> i64 {
        self.0.runs().into()
    }

    /// The finished steps, in order.
    pub fn finished(&self) -> Vec<FinishedStep> {
        self.0.finished().into_iter().map(|(name, value)| FinishedStep { name, value }).collect()
    }

    /// Records that a step is finished; ends with the next claim.
    pub fn step(&self, name: String, value: Vec<u8>) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.step(&name, &value)?)))
    }

    /// Renews the lease; ends with the next claim.
    pub fn renew(&self) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.renew()?)))
    }

    /// Ends the claim without an answer.
    pub fn release(&self) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.release()?)))
    }

    /// Records the result. Errors: `invalid_argument` for one of more than 1 MiB.
    pub fn complete(&self, result: Vec<u8>) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.complete(&result)?)))
    }

    /// Records a failure. Errors: as [`NativeRunClaim::complete`].
    pub fn fail(&self, answer: Vec<u8>) -> Result<Arc<NativeTalk>, NativeError> {
        at_once(|| Ok(NativeTalk::new(self.0.fail(&answer)?)))
    }
}
