//! PostgreSQL as a server of rows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::idempotency::RecordStatements;
use crate::backend::rows::server::link::Link;
use crate::backend::rows::server::renew::owner_and_fence;
use crate::backend::rows::server::sessions::SessionStatements;
use crate::backend::rows::server::store::{Concerned, Store};
use crate::backend::rows::server::value::Statement;
use crate::backend::rows::server::window::Write;
use crate::backend::rows::server::{Asked, Server, Session as _, StepRows, backend, commit};
use crate::backend::rows::{Push, unsigned};
use crate::backend::{Backend, Contender, OpenContext, Purpose, RenewItem};
use crate::client_info::ClientInfo;
use crate::error::Result;
use crate::policy::fencing::FencingToken;
use crate::snapshot::Examination;
use crate::token::ClientId;

use super::config::PostgresConfig;
use super::open::prepare;
use super::protocol::schema::Schema;
use super::protocol::statements::{begin, limits, relaxed};
use super::protocol::{messages, reading};
use super::transport::session::{Opener, Session};
use super::{doctor, push};

/// Opens the tables, or makes them.
///
/// Errors: as of [`prepare`]; `backend_unavailable` if the server cannot be reached.
pub(crate) async fn open(
    config: PostgresConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let runtime = context.runtime.clone();
    let listens = config.listens.then_some(move |store| runtime.spawn(push::run(store)).abort_handle());
    backend::open(Postgres::new(config)?, context, purpose, listens).await
}

/// How often the first waiter asks in session mode.
const NEXT_POLLS: Duration = Duration::from_millis(100);

pub(crate) struct Postgres {
    pub opener: Opener,
    pub schema: Schema,
}

impl Postgres {
    /// Errors: `invalid_config` that names a file of certificates or keys.
    pub(crate) fn new(config: PostgresConfig) -> Result<Self> {
        let schema = config.schema.clone();
        Ok(Self { opener: Opener::new(config)?, schema })
    }
}

impl Server for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const STORE: &'static str = "postgres";

    type Session = Session;

    fn place(&self) -> String {
        self.opener.place()
    }

    async fn open(&self) -> std::result::Result<Session, Failure> {
        self.opener.open(None).await
    }

    async fn prepare(link: &Link<Self>, purpose: Purpose) -> Result<bool> {
        prepare(link, &link.server.schema, purpose).await
    }

    fn is_missing_table(code: &str) -> bool {
        ["42P01", "3F000"].contains(&code)
    }

    async fn examine(store: &Store<Self>) -> Result<Examination> {
        doctor::examine(store).await
    }

    fn session_mode(&self) -> Option<&dyn SessionStatements> {
        self.opener.config.in_session.then_some(&self.schema as &dyn SessionStatements)
    }

    fn records(&self) -> &dyn RecordStatements {
        &self.schema
    }

    async fn purge_records(store: &Store<Self>, most: usize) -> Result<u64> {
        let answers = store.ask(&[store.server().schema.purge_records(most)], true).await?;
        Ok(answers.first().and_then(|rows| rows.first()).map_or(0, |row| unsigned(row.int(0))))
    }

    fn clock(&self) -> Statement {
        reading::clock()
    }

    fn begin_reading(&self) -> Vec<Statement> {
        vec![reading::begin_reading()]
    }

    fn read(&self, exact: Option<&str>, prefix: Option<&str>, limit: i64) -> [Statement; 5] {
        self.schema.read(exact, prefix, limit)
    }

    fn acquire_free(&self, contender: &Contender) -> Statement {
        self.schema.acquire_free(contender)
    }

    fn release_alone(&self, contender: &Contender, fence: FencingToken) -> Statement {
        self.schema.release_alone(contender, fence)
    }

    fn hand_over(&self, contender: &Contender, fence: FencingToken) -> Option<Asked> {
        // The message in a transaction of its own: one that notifies keeps all others of the server that notify waiting,
        // and this one does not wait for the disk.
        let statements = vec![self.schema.hand_over(contender, fence), self.schema.notify_holder(contender)];
        Some(Asked { statements, at: 0 })
    }

    fn queue_behind(
        &self,
        contender: &Contender,
        near_ms: i64,
        far_ms: i64,
        timeout_ms: i64,
    ) -> Option<Asked> {
        let queue = self.schema.queue_behind(contender, near_ms, far_ms, timeout_ms);
        Some(Asked { statements: vec![queue], at: 0 })
    }

    fn heartbeat(&self, contender: &Contender, near_ms: i64, far_ms: i64) -> Option<Asked> {
        Some(Asked { statements: vec![self.schema.heartbeat(contender, near_ms, far_ms)], at: 0 })
    }

    /// Nothing is pushed where a session ends, so the next waiter asks.
    fn poll_within(&self, _: &Contender, position: u32, _: Option<&ClientId>) -> Option<Duration> {
        (self.opener.config.in_session && position == 0).then_some(NEXT_POLLS)
    }

    /// The step makes them itself.
    fn make(&self, _: &[String]) -> Vec<Statement> {
        Vec::new()
    }

    async fn begin_step(
        &self,
        session: &Session,
        concerned: &Concerned,
        most: i64,
        timeout_ms: i64,
    ) -> std::result::Result<StepRows, Failure> {
        let Concerned { names, owners, make, .. } = concerned;
        let mut statements = vec![begin(), limits(timeout_ms)];
        if *make {
            statements.push(self.schema.ensure(names));
        }
        let at = statements.len();
        statements.extend([
            self.schema.lock(names),
            self.schema.leases(names),
            self.schema.front(names, most),
            self.schema.places(names, owners),
        ]);
        let mut answers = session.ask(&statements, false).await?.into_iter().skip(at);
        let mut next = || answers.next().unwrap_or_default();
        Ok(StepRows { locks: next(), leases: next(), front: next(), places: next() })
    }

    async fn read_more(
        &self,
        session: &Session,
        concerned: &Concerned,
        rows: &mut StepRows,
        most: i64,
    ) -> std::result::Result<(), Failure> {
        let Concerned { names, owners, .. } = concerned;
        let more = [self.schema.front(names, most), self.schema.places(names, owners)];
        let mut answers = session.ask(&more, false).await?.into_iter();
        rows.front = answers.next().unwrap_or_default();
        rows.places = answers.next().unwrap_or_default();
        Ok(())
    }

    fn write(&self, write: &Write, now_ms: i64) -> Vec<Statement> {
        self.schema.write(write, now_ms)
    }

    fn relaxed(&self) -> Option<Statement> {
        Some(relaxed())
    }

    fn notify(&self, client: &str, push: Push) -> Option<Statement> {
        Some(messages::notify(client, push))
    }

    async fn renew(store: &Store<Self>, items: &[RenewItem]) -> Result<HashSet<(String, i64)>> {
        let [lock, own, beside] = store.server().schema.renew(items);
        let statements = [begin(), limits(store.timeout_ms()), lock, own, beside, commit()];
        let answers = store.ask(&statements, true).await?;
        Ok(answers[3..5].iter().flatten().map(owner_and_fence).collect())
    }

    fn broken(&self, owners: Vec<String>) -> Statement {
        self.schema.broken(owners)
    }

    fn announce(&self, client: &ClientInfo, ttl_ms: i64) -> Vec<Statement> {
        self.schema.announce(client, ttl_ms).to_vec()
    }

    async fn sweep(store: &Store<Self>, forgotten_ms: i64, unused_ms: i64) -> Result<()> {
        store.ask(&store.server().schema.sweep(forgotten_ms, unused_ms), true).await.map(drop)
    }
}
