//! Idempotent work inside the caller's own transactions: statements and values as plain data, rows as plain data back.
//!
//! A binding executes what a [`Talk`] asks for on its caller's connection and hands the rows back, until it is over.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polylatch::idempotency::{Retention, RunError};
use polylatch::resource::{
    Ask, Claimed, Exchange, Placeholders, RunClaim, SqlRow, SqlStatement, StepsClaim, TransactionLock,
    TransactionRun, TransactionRunOptions, TransactionRuns, TransactionSteps,
};

use crate::failure::Failure;
use crate::idempotency::fingerprint;

/// Idempotent work in one database; see [`TransactionRuns`].
#[derive(Debug, Clone)]
pub struct SqlRuns {
    runs: TransactionRuns,
    sign: Placeholders,
}

/// What a caller says of its work. A value that was not given stays with the core, which alone has defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SqlRunOptions {
    pub payload: Option<Vec<u8>>,
    pub fingerprint: Option<String>,
    pub retention: Option<Retention>,
    /// Of work in steps.
    pub lease: Option<Duration>,
    pub no_wait: bool,
}

impl SqlRunOptions {
    fn of_core(&self) -> Result<TransactionRunOptions, Failure> {
        let mut options = TransactionRunOptions::new();
        if let Some(fingerprint) = fingerprint(self.payload.as_deref(), self.fingerprint.as_deref())? {
            options = options.fingerprint(fingerprint);
        }
        if let Some(retention) = self.retention {
            options = options.retention(retention);
        }
        if let Some(lease) = self.lease {
            options = options.lease(lease);
        }
        Ok(if self.no_wait { options.no_wait() } else { options })
    }
}

impl SqlRuns {
    /// `dialect`: a word such as `postgres %s`, see [`Placeholders`]. `schema`: that of the store on PostgreSQL.
    ///
    /// Errors: `invalid_argument` for another dialect, and for a schema elsewhere; `invalid_config` for an impossible schema.
    pub fn new(dialect: &str, schema: Option<&str>) -> Result<Self, Failure> {
        let sign: Placeholders = dialect.parse()?;
        let elsewhere = |schema: &str| {
            Failure::invalid_argument(format!(
                "the schema {schema:?} is for PostgreSQL; use a connection to the database that has the table"
            ))
        };
        let runs = match (sign, schema) {
            (Placeholders::Question | Placeholders::SqlitePlain, None) => TransactionRuns::sqlite()?,
            (Placeholders::Mysql | Placeholders::MysqlFormat, None) => TransactionRuns::mysql()?,
            (Placeholders::Dollar | Placeholders::PostgresPlain | Placeholders::PostgresFormat, schema) => {
                TransactionRuns::postgres(schema.unwrap_or(TransactionLock::SCHEMA))?
            }
            (_, schema) => return Err(elsewhere(schema.unwrap_or_default())),
        };
        Ok(Self { runs, sign })
    }

    /// See [`TransactionRuns::schema`].
    pub fn schema(&self) -> String {
        self.runs.schema()
    }

    /// See [`TransactionRuns::run`].
    pub fn run(&self, scope: &str, key: &str, options: &SqlRunOptions) -> Result<SqlRun, Failure> {
        let work = Work::Whole(self.runs.run(scope, key, &options.of_core()?)?);
        Ok(SqlRun { work, what: Arc::new(format!("{key:?} in {scope:?}")), sign: self.sign })
    }

    /// See [`TransactionRuns::steps`].
    pub fn steps(&self, scope: &str, key: &str, options: &SqlRunOptions) -> Result<SqlRun, Failure> {
        let work = Work::Steps(self.runs.steps(scope, key, &options.of_core()?)?);
        Ok(SqlRun { work, what: Arc::new(format!("{key:?} in {scope:?}")), sign: self.sign })
    }

    /// See [`TransactionRuns::purge`]; ends with [`End::Purged`].
    pub fn purge(&self, most: u32) -> Result<Talk, Failure> {
        Ok(Talk::new(self.runs.purge(most)?, self.sign, |deleted| Ok(End::Purged(deleted))))
    }

    /// See [`TransactionRuns::says_in_progress`].
    pub fn says_in_progress(&self, code: &str) -> bool {
        self.runs.says_in_progress(code)
    }
}

#[derive(Debug, Clone)]
enum Work {
    Whole(TransactionRun),
    Steps(TransactionSteps),
}

/// The work of one key; see [`TransactionRun`] and [`TransactionSteps`].
#[derive(Debug, Clone)]
pub struct SqlRun {
    work: Work,
    what: Arc<String>,
    sign: Placeholders,
}

impl SqlRun {
    /// Claims the key, or finds its answer: ends with [`End::Mine`], [`End::Replayed`] or [`End::Failed`].
    pub fn claim(&self) -> Talk {
        let (what, sign) = (Arc::clone(&self.what), self.sign);
        match &self.work {
            Work::Whole(run) => Talk::new(run.claim(), sign, move |claimed| {
                claimed_as(claimed, &what, |claim| SqlClaim { claim: Mine::Whole(claim), sign })
            }),
            Work::Steps(steps) => Talk::new(steps.claim(), sign, move |claimed| {
                claimed_as(claimed, &what, |claim| SqlClaim { claim: Mine::Steps(claim), sign })
            }),
        }
    }

    /// The failure of another transaction at work, where the database reports it as an error.
    pub fn in_progress(&self) -> Failure {
        RunError::InTransaction { what: self.what.to_string() }.into()
    }
}

fn claimed_as<C>(claimed: Claimed<C>, what: &str, mine: impl Fn(C) -> SqlClaim) -> Result<End, Failure> {
    let what = what.to_owned();
    let refused = match claimed {
        Claimed::Mine(claim) => return Ok(End::Mine(Box::new(mine(claim)))),
        Claimed::Replayed(value) => return Ok(End::Replayed(value)),
        Claimed::Failed(answer) => {
            let failure = RunError::Failed { answer: answer.clone(), replayed: true }.into();
            return Ok(End::Failed { failure, answer });
        }
        Claimed::ResultTooLarge => RunError::ResultTooLarge { what, value: None },
        Claimed::InProgress { lease: Some((client, left)) } => RunError::InProgress { what, client, left },
        Claimed::InProgress { lease: None } => RunError::InTransaction { what },
        Claimed::PayloadMismatch => RunError::PayloadMismatch { what },
        _ => return Err(Failure::internal("a claim found what this binding does not know")),
    };
    Err(refused.into())
}

#[derive(Debug, Clone)]
enum Mine {
    Whole(RunClaim),
    Steps(StepsClaim),
}

/// Claimed work; see [`RunClaim`] and [`StepsClaim`].
#[derive(Debug, Clone)]
pub struct SqlClaim {
    claim: Mine,
    sign: Placeholders,
}

impl SqlClaim {
    pub fn fencing_token(&self) -> u64 {
        match &self.claim {
            Mine::Whole(claim) => claim.fencing_token().get(),
            Mine::Steps(claim) => claim.fencing_token().get(),
        }
    }

    pub fn runs(&self) -> u32 {
        match &self.claim {
            Mine::Whole(claim) => claim.runs(),
            Mine::Steps(claim) => claim.runs(),
        }
    }

    /// Names and values of the finished steps, in order.
    pub fn finished(&self) -> Vec<(String, Vec<u8>)> {
        match &self.claim {
            Mine::Whole(_) => Vec::new(),
            Mine::Steps(claim) => {
                claim.finished().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
            }
        }
    }

    /// See [`StepsClaim::step`]; ends with the next claim.
    pub fn step(&self, name: &str, value: &[u8]) -> Result<Talk, Failure> {
        Ok(self.next(self.steps()?.step(name, value)?))
    }

    /// See [`StepsClaim::renew`]; ends with the next claim.
    pub fn renew(&self) -> Result<Talk, Failure> {
        Ok(self.next(self.steps()?.renew()))
    }

    /// See [`StepsClaim::release`].
    pub fn release(&self) -> Result<Talk, Failure> {
        Ok(self.last(self.steps()?.release()))
    }

    /// Records the result; see [`RunClaim::complete`].
    pub fn complete(&self, result: &[u8]) -> Result<Talk, Failure> {
        Ok(self.last(match &self.claim {
            Mine::Whole(claim) => claim.complete(result)?,
            Mine::Steps(claim) => claim.complete(result)?,
        }))
    }

    /// Records a failure; see [`RunClaim::fail`].
    pub fn fail(&self, answer: &[u8]) -> Result<Talk, Failure> {
        Ok(self.last(match &self.claim {
            Mine::Whole(claim) => claim.fail(answer)?,
            Mine::Steps(claim) => claim.fail(answer)?,
        }))
    }

    fn steps(&self) -> Result<&StepsClaim, Failure> {
        match &self.claim {
            Mine::Steps(claim) => Ok(claim),
            Mine::Whole(_) => Err(Failure::invalid_argument(
                "work that is one transaction has no steps; claim it as work in steps",
            )),
        }
    }

    fn next(&self, exchange: Exchange<StepsClaim>) -> Talk {
        let sign = self.sign;
        Talk::new(exchange, sign, move |claim| {
            Ok(End::Mine(Box::new(Self { claim: Mine::Steps(claim), sign })))
        })
    }

    fn last(&self, exchange: Exchange<()>) -> Talk {
        Talk::new(exchange, self.sign, |()| Ok(End::Written))
    }
}

/// What a [`Talk`] does next.
#[derive(Debug)]
pub enum Next {
    /// Execute this on the caller's connection, and hand its rows to [`Talk::next`].
    Run(SqlStatement),
    Done(End),
}

/// What came of a [`Talk`].
#[derive(Debug, Clone)]
pub enum End {
    Mine(Box<SqlClaim>),
    Replayed(Vec<u8>),
    /// An earlier run failed, and this is its stored answer.
    Failed {
        /// Of code `failed`.
        failure: Failure,
        answer: Vec<u8>,
    },
    Written,
    Purged(u64),
}

type Answers = dyn FnMut(&[SqlRow]) -> Result<Next, Failure> + Send;

/// See [`Exchange`].
pub struct Talk(Box<Answers>);

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk").finish_non_exhaustive()
    }
}

impl Talk {
    fn new<T: 'static>(
        mut exchange: Exchange<T>,
        sign: Placeholders,
        end: impl Fn(T) -> Result<End, Failure> + Send + 'static,
    ) -> Self {
        Self(Box::new(move |rows| {
            Ok(match exchange.next(rows)? {
                Ask::Run(statement) => Next::Run(statement.for_driver(sign)),
                Ask::Done(found) => Next::Done(end(found)?),
            })
        }))
    }

    /// Returns the next statement, or the end. Errors: `in_progress`, `payload_mismatch`, `result_too_large`, and those of
    /// [`Exchange::next`].
    pub fn next(&mut self, rows: &[SqlRow]) -> Result<Next, Failure> {
        (self.0)(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_a_database_and_the_sign_of_its_driver() {
        for (dialect, part) in [
            ("sqlite ?1", "?12"),
            ("sqlite ?", "SELECT ?, ?"),
            ("postgres $1", "$1"),
            ("postgres %s", "%s"),
            ("mysql %s", "%s"),
        ] {
            let runs = SqlRuns::new(dialect, None).unwrap();
            let mut talk = runs.steps("s", "k", &SqlRunOptions::default()).unwrap().claim();
            let Next::Run(statement) = talk.next(&[]).unwrap() else { panic!() };
            assert!(statement.sql().contains(part), "{}", statement.sql());
            let places = statement.sql().matches(['?', '$', '%']).count();
            let is_numbered = dialect.ends_with('1');
            assert!(is_numbered || places == statement.values().len(), "{}", statement.sql());
        }
        for bad in ["sqlite", "sqlite $1", "oracle :1", ""] {
            assert_eq!(SqlRuns::new(bad, None).unwrap_err().code, "invalid_argument", "{bad:?}");
        }
        assert_eq!(SqlRuns::new("mysql ?", Some("x")).unwrap_err().code, "invalid_argument");
        assert_eq!(SqlRuns::new("postgres ?", Some("a;b")).unwrap_err().code, "invalid_config");
    }

    #[test]
    fn work_in_one_transaction_has_no_steps_and_rows_in_no_known_form_are_refused() {
        let runs = SqlRuns::new("sqlite ?", None).unwrap();
        let options =
            SqlRunOptions { payload: Some(vec![1]), fingerprint: Some("f".into()), ..Default::default() };
        assert_eq!(runs.run("s", "k", &options).unwrap_err().code, "invalid_argument");
        let mut talk = runs.run("s", "k", &SqlRunOptions::default()).unwrap().claim();
        for _ in 0..2 {
            assert!(matches!(talk.next(&[]), Ok(Next::Run(_))));
        }
        let row = vec![polylatch::resource::SqlValue::Null];
        assert_eq!(talk.next(&[row]).unwrap_err().code, "backend_rejected");
    }
}
