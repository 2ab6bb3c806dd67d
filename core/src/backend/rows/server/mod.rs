//! What stores on a database server share: one connection, statements as values, and each verb as one statement or as
//! one transaction that locks the rows of its locks, reads them, decides ([`super::Steps`]) and writes.
//!
//! A store implements [`Server`] in its own dialect.

pub(crate) mod acquire;
pub(crate) mod backend;
#[cfg(all(test, unix))]
pub(crate) mod differential;
pub(crate) mod doctor;
pub(crate) mod failure;
pub(crate) mod idempotency;
pub(crate) mod link;
pub(crate) mod login;
pub(crate) mod read;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod sessions;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod value;
pub(crate) mod window;

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use crate::backend::records::Put;
use crate::backend::{Contender, Purpose, RenewItem};
use crate::client_info::ClientInfo;
use crate::error;
use crate::policy::fencing::FencingToken;
use crate::policy::idempotency::RecordId;
use crate::snapshot::Examination;
use crate::token::ClientId;

use super::Push;
use failure::Failure;
use idempotency::RecordStatements;
use link::Link;
use sessions::SessionStatements;
use store::{Concerned, Store};
use value::{Cells, Statement};
use window::Write;

/// One open connection.
pub(crate) trait Session: Send + Sync + 'static {
    fn is_open(&self) -> bool;

    /// Ends the connection; requests on it fail.
    fn end(&self);

    /// Completes when the connection has ended, as far as this side was told.
    fn ended(&self) -> impl Future<Output = ()> + Send;

    /// Sends these statements in this order and returns their rows. After a failure the later ones are not carried
    /// out. `changes`: they may change rows outside of a transaction, or end one.
    fn ask(
        &self,
        statements: &[Statement],
        changes: bool,
    ) -> impl Future<Output = Result<Vec<Vec<Cells>>, Failure>> + Send;
}

/// Rows of a step, as [`read::window`] takes them: of the locks, the leases beside them, the first waiters, and the
/// places.
#[derive(Debug, Default)]
pub(crate) struct StepRows {
    pub locks: Vec<Cells>,
    pub leases: Vec<Cells>,
    pub front: Vec<Cells>,
    pub places: Vec<Cells>,
}

/// Statements of which one answers.
#[derive(Debug)]
pub(crate) struct Asked {
    pub statements: Vec<Statement>,
    pub at: usize,
}

/// A database server, and the dialect of its statements.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    /// As messages name it.
    const NAME: &'static str;
    /// As errors and snapshots name the store.
    const STORE: &'static str;

    type Session: Session;

    /// Host and port, for messages.
    fn place(&self) -> String;

    /// Connects and logs in.
    fn open(&self) -> impl Future<Output = Result<Self::Session, Failure>> + Send;

    /// Checks the tables, and makes them if there are none and the purpose is to take locks. Says whether there are
    /// tables.
    fn prepare(link: &Link<Self>, purpose: Purpose) -> impl Future<Output = error::Result<bool>> + Send;

    /// Whether a refusal with this code says that there is no such table.
    fn is_missing_table(code: &str) -> bool;

    /// Says what the server, as it is set up, can and cannot promise.
    fn examine(store: &Store<Self>) -> impl Future<Output = error::Result<Examination>> + Send;

    /// The statements of session mode, if the URL asks for it.
    fn session_mode(&self) -> Option<&dyn SessionStatements>;

    /// The statements for records of idempotent work.
    fn records(&self) -> &dyn RecordStatements;

    /// Writes a record over none; answers as [`RecordStatements::record`] with the one that is there then, this one or another.
    /// `None` where the server cannot do both in one statement.
    fn insert_or_read(&self, id: &RecordId, put: &Put) -> Option<Statement> {
        let _ = (id, put);
        None
    }

    /// Deletes records whose retention is over, so many at most; returns how many.
    fn purge_records(store: &Store<Self>, most: usize) -> impl Future<Output = error::Result<u64>> + Send;

    /// The server's clock in microseconds since 1970, as one row.
    fn clock(&self) -> Statement;

    /// Begins a transaction that reads everything at one moment.
    fn begin_reading(&self) -> Vec<Statement>;

    /// What inspection reads: leases in the rows of locks, leases beside them, waiters, clients, breaks.
    fn read(&self, exact: Option<&str>, prefix: Option<&str>, limit: i64) -> [Statement; 5];

    /// Acquires a lock that no client holds and no client waits for; answers with the fence, or no row.
    fn acquire_free(&self, contender: &Contender) -> Statement;

    /// Releases a lock that no other client holds or waits for; answers with a row if it did.
    fn release_alone(&self, contender: &Contender, fence: FencingToken) -> Statement;

    /// Releases a mutex and grants it to the first waiter, where a step would do this and no more, and wakes it; in one request,
    /// which answers with client, owner and fence of the new holder, or no row.
    fn hand_over(&self, contender: &Contender, fence: FencingToken) -> Option<Asked>;

    /// Queues a contender for a mutex behind its holder where a step would do no more, in one request, if that is cheaper than a
    /// step; answers as a heartbeat does, or with no row. Queues nobody once `timeout_ms` have passed.
    fn queue_behind(
        &self,
        contender: &Contender,
        near_ms: i64,
        far_ms: i64,
        timeout_ms: i64,
    ) -> Option<Asked>;

    /// Records the heartbeat of a waiter where a step would do no more, if that is cheaper than a step.
    fn heartbeat(&self, contender: &Contender, near_ms: i64, far_ms: i64) -> Option<Asked>;

    /// How soon a waiter at this position asks again, where the server notifies no client. `holder` has the lock.
    fn poll_within(
        &self,
        contender: &Contender,
        position: u32,
        holder: Option<&ClientId>,
    ) -> Option<Duration>;

    /// What the connection for the verbs says first, if the server takes it.
    fn introduction(&self) -> Option<Statement> {
        None
    }

    /// Wakes a client once the transaction that granted it a lock is committed, where the server has no notifications.
    fn ring(&self, client: &str) -> Option<Statement> {
        let _ = client;
        None
    }

    /// Makes the rows of these names where a transaction of its own must do that.
    fn make(&self, names: &[String]) -> Vec<Statement>;

    /// Begins a transaction, locks the rows of these names in their order, and reads them with at most this many
    /// waiters each. The time is read after the rows are locked.
    fn begin_step(
        &self,
        session: &Self::Session,
        concerned: &Concerned,
        most: i64,
        timeout_ms: i64,
    ) -> impl Future<Output = Result<StepRows, Failure>> + Send;

    /// Reads more waiters, and the places again.
    fn read_more(
        &self,
        session: &Self::Session,
        concerned: &Concerned,
        rows: &mut StepRows,
        most: i64,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Carries out what a step has decided.
    fn write(&self, write: &Write, now_ms: i64) -> Vec<Statement>;

    /// Lets this transaction be committed without waiting for the disk, if the server can do that for one.
    fn relaxed(&self) -> Option<Statement>;

    /// Notifies a client when the transaction commits, if the server can.
    fn notify(&self, client: &str, push: Push) -> Option<Statement>;

    /// Extends leases; returns owner and fence of the extended ones.
    fn renew(
        store: &Store<Self>,
        items: &[RenewItem],
    ) -> impl Future<Output = error::Result<HashSet<(String, i64)>>> + Send;

    /// Owner and fence of the leases of these owners that were broken.
    fn broken(&self, owners: Vec<String>) -> Statement;

    /// Records who a client is, and forgets those that announced nothing for this long.
    fn announce(&self, client: &ClientInfo, ttl_ms: i64) -> Vec<Statement>;

    /// Deletes what no client asks for any more, a bounded number of rows.
    fn sweep(
        store: &Store<Self>,
        forgotten_ms: i64,
        unused_ms: i64,
    ) -> impl Future<Output = error::Result<()>> + Send;
}

pub(crate) fn commit() -> Statement {
    Statement::new("COMMIT", vec![])
}

pub(crate) fn rollback() -> Statement {
    Statement::new("ROLLBACK", vec![])
}
