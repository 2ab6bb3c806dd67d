//! Idempotent work inside the caller's own transactions.

mod claiming;
mod place;
mod purge;
mod run;
mod sqlite;
mod statement;
mod steps;

use std::time::Duration;

pub use claiming::Claimed;
pub use run::{RunClaim, TransactionRun};
pub use statement::{Ask, Exchange, SqlRow, SqlStatement, SqlValue};
pub use steps::{StepsClaim, TransactionSteps};

use crate::client_info::{host_name, process_id};
use crate::error::Result;
use crate::limits::{DEFAULT_LEASE, MAX_LEASE, MIN_LEASE, in_range};
use crate::policy::idempotency::{
    DEFAULT_RETENTION, Kind, RecordId, Retention, check_fingerprint, fingerprint_of,
};
use crate::token::{ClientId, OwnerToken};

use claiming::Plan;
use place::Place;

/// Idempotent work whose record is written by the caller's own transaction, on the caller's own connection: work and
/// record are committed together, or neither is. Nothing here sends anything; each step is an [`Exchange`] of statements and
/// rows with any driver.
///
/// On PostgreSQL, MySQL and MariaDB the record is the one that [`crate::Polylatch::idempotency`] keeps in the same database:
/// both forms answer each other's repetitions, and the same commands inspect it. On SQLite it is in a table of its own,
/// `polylatch_idempotency`, in the caller's file: a commit over two files is not always one step.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// use polylatch::resource::{Claimed, SqlRow, SqlStatement, TransactionRuns, TransactionRunOptions};
/// # use polylatch::Error;
/// # fn query(_: &SqlStatement) -> Result<Vec<SqlRow>, Error> { unreachable!() }
/// let orders = TransactionRuns::sqlite()?; // executescript(orders.schema()) makes its table
/// let run = orders.run("orders/customer-7", "9f1c", &TransactionRunOptions::new().payload(b"3 apples"))?;
/// # let story = || -> Result<(), Error> {
/// // BEGIN IMMEDIATE
/// match run.claim().run(query)? {
///     Claimed::Mine(claim) => {
///         // … the statements of the work …
///         claim.complete(b"order 42")?.run(query)?;
///         // COMMIT
///     }
///     Claimed::Replayed(answer) => { /* ROLLBACK, and answer it again */ }
///     _ => { /* ROLLBACK */ }
/// }
/// # Ok(()) };
/// # }
/// # Ok::<(), polylatch::Error>(())
/// ```
///
/// # What is promised
///
/// - Work whose effects are all in the transaction happens once for each scope and key until the retention is over, also if
///   the process or the server dies at any moment.
/// - Of several transactions with one key, the first one works. The others wait for it at the database, and then get its
///   answer; if it was rolled back, one of them does the work.
///
/// # What is not
///
/// - An effect outside of the transaction, such as a mail, may happen twice: [`TransactionRuns::steps`] bounds it to one
///   step.
/// - Without a transaction (autocommit) nothing of this holds.
#[derive(Debug, Clone)]
pub struct TransactionRuns {
    place: Place,
    client: ClientId,
}

impl TransactionRuns {
    /// For SQLite 3.24 or newer. [`TransactionRuns::schema`] makes its table in the caller's file.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE`. Another transaction waits as long as `PRAGMA busy_timeout` says.
    ///
    /// Errors: `internal` if the operating system gives no random bytes.
    pub fn sqlite() -> Result<Self> {
        Self::new(Place::Sqlite)
    }

    /// For the database of the store `postgres://…?schema=SCHEMA`; the usual schema is `polylatch`.
    ///
    /// In READ COMMITTED, PostgreSQL's default, a transaction that waited gets the stored answer. In a stricter mode it may
    /// fail with a serialization error (40001): roll back and begin again, as always there.
    ///
    /// Errors: `invalid_config` for an impossible schema, `internal` if the operating system gives no random bytes.
    #[cfg(feature = "postgres")]
    pub fn postgres(schema: &str) -> Result<Self> {
        Self::new(Place::Postgres(crate::backend::postgres::checked(schema)?))
    }

    /// For the database of the store `mysql://…/DATABASE` or `mariadb://…`, on a connection that uses that database.
    ///
    /// If the first transaction is rolled back while two others wait for it, one of those may fail with a deadlock (1213):
    /// roll back and begin again, as always there. Read `LAST_INSERT_ID()` of the work before the next exchange.
    ///
    /// Errors: `internal` if the operating system gives no random bytes.
    #[cfg(feature = "mysql")]
    pub fn mysql() -> Result<Self> {
        Self::new(Place::Mysql)
    }

    fn new(place: Place) -> Result<Self> {
        Ok(Self { place, client: ClientId::new(&host_name(), process_id())? })
    }

    /// Returns the SQL script that makes the table, or all tables of the store. Run again, it changes nothing. Programs that
    /// connect to the store of PostgreSQL, MySQL and MariaDB make them too.
    pub fn schema(&self) -> String {
        self.place.schema()
    }

    /// Names work that is one transaction. Make a new one for each request; claim again with the same one after a rollback.
    ///
    /// `scope`: the operation and the caller it is done for, such as `orders/customer-7`, 1 to 256 bytes; take the caller's
    /// identity from its credentials. `key`: what is unique to one request, 1 to 255 bytes, made by its client.
    ///
    /// Errors: `invalid_argument` for scope, key, fingerprint or retention, `internal` without random bytes.
    pub fn run(&self, scope: &str, key: &str, options: &TransactionRunOptions) -> Result<TransactionRun> {
        Ok(TransactionRun(self.plan(scope, key, options, None)?))
    }

    /// Names work in several transactions, each with a name: a repetition goes on after the last one that was committed.
    ///
    /// Errors: as of [`TransactionRuns::run`], and `invalid_argument` for a lease out of range.
    pub fn steps(&self, scope: &str, key: &str, options: &TransactionRunOptions) -> Result<TransactionSteps> {
        in_range("lease", options.lease, MIN_LEASE, MAX_LEASE)?;
        Ok(TransactionSteps(self.plan(scope, key, options, Some(options.lease))?))
    }

    fn plan(
        &self,
        scope: &str,
        key: &str,
        options: &TransactionRunOptions,
        lease: Option<Duration>,
    ) -> Result<Plan> {
        let id = RecordId::new(Kind::Key, scope, key)?;
        if let Some(fingerprint) = &options.fingerprint {
            check_fingerprint(fingerprint)?;
        }
        options.retention.check()?;
        Ok(Plan {
            place: self.place.clone(),
            id,
            owner: OwnerToken::random()?,
            fingerprint: options.fingerprint.clone().unwrap_or_default(),
            keep: options.retention.length(),
            lease,
            no_wait: options.no_wait,
            client: self.client.clone(),
        })
    }

    /// Deletes records whose retention is over, at most so many (1 to 100 000), and returns how many. Run it now and then, in
    /// a transaction of its own or in autocommit, until it returns less. Clients that run work of
    /// [`crate::Polylatch::idempotency`] do it on PostgreSQL, MySQL and MariaDB too.
    ///
    /// Errors: `invalid_argument` for another number.
    pub fn purge(&self, most: u32) -> Result<Exchange<u64>> {
        purge::purging(&self.place, most)
    }

    /// Whether an error of the database says that another transaction has the key: 1205 of MariaDB and MySQL for a claim with
    /// [`TransactionRunOptions::no_wait`]. Roll back and answer as for [`Claimed::InProgress`].
    pub fn says_in_progress(&self, code: &str) -> bool {
        self.place.says_in_progress(code)
    }
}

/// How to do idempotent work in transactions.
#[derive(Debug, Clone)]
pub struct TransactionRunOptions {
    fingerprint: Option<String>,
    retention: Retention,
    lease: Duration,
    no_wait: bool,
}

impl Default for TransactionRunOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl TransactionRunOptions {
    /// Answers are kept for 24 h, repetitions wait for the first transaction, and payloads are not compared.
    pub fn new() -> Self {
        Self {
            fingerprint: None,
            retention: Retention::For(DEFAULT_RETENTION),
            lease: DEFAULT_LEASE,
            no_wait: false,
        }
    }

    /// Sets what the payload is recognized by, such as its SHA-256: 1 to 128 bytes without control characters.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Sets the fingerprint to [`fingerprint_of`] the payload.
    #[must_use]
    pub fn payload(self, payload: &[u8]) -> Self {
        self.fingerprint(fingerprint_of(payload))
    }

    /// Sets how long the answer is kept, 1 s to 10 years or for ever, by the database's clock. Keep it for longer than
    /// clients repeat a request. Unfinished steps are kept as long, and for a day at least.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the lease of work in steps: 100 ms to 24 h, 15 s unless it is set. Each step that is committed renews it. If its
    /// client dies, another one goes on when it ends.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Does not wait while another transaction works on the key: PostgreSQL answers [`Claimed::InProgress`], MariaDB fails
    /// with 1205 at once, MySQL after `innodb_lock_wait_timeout`. On SQLite only `PRAGMA busy_timeout` decides.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.no_wait = true;
        self
    }
}
