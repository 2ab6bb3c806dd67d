//! Idempotent work inside the caller's own transactions. What users see of it is in `js/transactions.cjs`.

use napi::bindgen_prelude::{BigInt, Buffer, Either, Either3};
use napi_derive::napi;
use polylatch::resource::{SqlRow, SqlValue};
use polylatch_bridge::Failure;
use polylatch_bridge::sql_runs::{End, Next, SqlClaim, SqlRun, SqlRunOptions, SqlRuns, Talk};

use crate::claims::RunWith;
use crate::failure::Fault;
use crate::options::NUMBERS;

/// A value of a statement.
type Bound = Option<Either3<BigInt, String, Buffer>>;

/// A column of a row. A number is whole and exact as a double; `js/` hands others over as decimal text.
type Column = Option<Either3<f64, String, Buffer>>;

/// Idempotent work in one database.
#[napi]
pub struct NativeSqlRuns(SqlRuns);

/// The work of one key.
#[napi]
pub struct NativeSqlRun(SqlRun);

/// Statements to be executed one after the other.
#[napi]
pub struct NativeSqlTalk(Talk);

/// The claim under which the work of a key runs.
#[napi]
pub struct NativeSqlClaim(SqlClaim);

/// The next statement, or what came of all.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct SqlTurn {
    /// Nothing at the end.
    pub sql: Option<String>,
    pub values: Vec<Bound>,
    pub claim: Option<NativeSqlClaim>,
    /// What an earlier run has answered.
    pub answer: Option<Buffer>,
    /// The error of an earlier run that failed.
    pub failure: Option<Fault>,
    pub purged: f64,
}

/// A step that another client finished before.
#[napi(object, object_from_js = false)]
pub struct FinishedStep {
    pub name: String,
    pub value: Buffer,
}

fn answer<T, R>(made: Result<T, Failure>, wrap: impl FnOnce(T) -> R) -> Either<R, Fault> {
    match made {
        Ok(made) => Either::A(wrap(made)),
        Err(failure) => Either::B(failure.into()),
    }
}

/// Names a database and where the records are in it.
#[napi(catch_unwind)]
pub fn sql_runs(dialect: String, schema: Option<String>) -> Either<NativeSqlRuns, Fault> {
    answer(SqlRuns::new(&dialect, schema.as_deref()), NativeSqlRuns)
}

#[napi]
impl NativeSqlRuns {
    #[napi(catch_unwind)]
    pub fn schema(&self) -> String {
        self.0.schema()
    }

    /// `options`: a wait of 0 does not wait; another one is nothing here.
    #[napi(catch_unwind)]
    pub fn run(
        &self,
        in_steps: bool,
        scope: String,
        key: String,
        options: RunWith,
    ) -> Either<NativeSqlRun, Fault> {
        let made = options.checked().and_then(|given| {
            let options = SqlRunOptions {
                payload: given.payload,
                fingerprint: given.fingerprint,
                retention: given.retention,
                lease: given.lease,
                no_wait: given.wait.is_some_and(|wait| wait.is_zero()),
            };
            if in_steps { self.0.steps(&scope, &key, &options) } else { self.0.run(&scope, &key, &options) }
        });
        answer(made, NativeSqlRun)
    }

    #[napi(catch_unwind)]
    pub fn purge(&self, most: f64) -> Either<NativeSqlTalk, Fault> {
        answer(NUMBERS.count("most", most).and_then(|most| self.0.purge(most)), NativeSqlTalk)
    }

    #[napi(catch_unwind)]
    pub fn says_in_progress(&self, code: String) -> bool {
        self.0.says_in_progress(&code)
    }
}

#[napi]
impl NativeSqlRun {
    #[napi(catch_unwind)]
    pub fn claim(&self) -> NativeSqlTalk {
        NativeSqlTalk(self.0.claim())
    }

    /// The error that says that another transaction is at work.
    #[napi(catch_unwind)]
    pub fn in_progress(&self) -> Fault {
        self.0.in_progress().into()
    }
}

#[napi]
impl NativeSqlTalk {
    #[napi(catch_unwind)]
    pub fn next(&mut self, rows: Vec<Vec<Column>>) -> Either<SqlTurn, Fault> {
        let rows: Vec<SqlRow> = rows.into_iter().map(|row| row.into_iter().map(column).collect()).collect();
        answer(self.0.next(&rows), turn)
    }
}

fn column(column: Column) -> SqlValue {
    match column {
        None => SqlValue::Null,
        Some(Either3::A(number)) => SqlValue::Int(number as i64),
        Some(Either3::B(text)) => SqlValue::Text(text),
        Some(Either3::C(bytes)) => SqlValue::Bytes(bytes.into()),
    }
}

fn bound(value: &SqlValue) -> Bound {
    match value {
        SqlValue::Null => None,
        SqlValue::Int(number) => Some(Either3::A((*number).into())),
        SqlValue::Text(text) => Some(Either3::B(text.clone())),
        SqlValue::Bytes(bytes) => Some(Either3::C(bytes.clone().into())),
    }
}

fn turn(next: Next) -> SqlTurn {
    let mut turn = SqlTurn::default();
    match next {
        Next::Run(statement) => {
            turn.values = statement.values().iter().map(bound).collect();
            turn.sql = Some(statement.sql().to_owned());
        }
        Next::Done(End::Mine(claim)) => turn.claim = Some(NativeSqlClaim(*claim)),
        Next::Done(End::Replayed(answer)) => turn.answer = Some(answer.into()),
        Next::Done(End::Failed { failure, answer }) => {
            turn.failure = Some(failure.into());
            turn.answer = Some(answer.into());
        }
        Next::Done(End::Purged(deleted)) => turn.purged = deleted as f64,
        Next::Done(End::Written) => {}
    }
    turn
}

#[napi]
impl NativeSqlClaim {
    /// Tokens are below 2^53.
    #[napi(catch_unwind)]
    pub fn token(&self) -> f64 {
        self.0.fencing_token() as f64
    }

    #[napi(catch_unwind)]
    pub fn runs(&self) -> u32 {
        self.0.runs()
    }

    #[napi(catch_unwind)]
    pub fn finished(&self) -> Vec<FinishedStep> {
        let finished = self.0.finished().into_iter();
        finished.map(|(name, value)| FinishedStep { name, value: value.into() }).collect()
    }

    #[napi(catch_unwind)]
    pub fn step(&self, name: String, value: Buffer) -> Either<NativeSqlTalk, Fault> {
        answer(self.0.step(&name, &value), NativeSqlTalk)
    }

    #[napi(catch_unwind)]
    pub fn renew(&self) -> Either<NativeSqlTalk, Fault> {
        answer(self.0.renew(), NativeSqlTalk)
    }

    #[napi(catch_unwind)]
    pub fn release(&self) -> Either<NativeSqlTalk, Fault> {
        answer(self.0.release(), NativeSqlTalk)
    }

    #[napi(catch_unwind)]
    pub fn complete(&self, result: Buffer) -> Either<NativeSqlTalk, Fault> {
        answer(self.0.complete(&result), NativeSqlTalk)
    }

    #[napi(catch_unwind)]
    pub fn fail(&self, answer_of: Buffer) -> Either<NativeSqlTalk, Fault> {
        answer(self.0.fail(&answer_of), NativeSqlTalk)
    }
}
