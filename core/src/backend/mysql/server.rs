//! MySQL and MariaDB as a server of rows.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::records::Put;
use crate::backend::rows::Push;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::idempotency::RecordStatements;
use crate::backend::rows::server::link::Link;
use crate::backend::rows::server::sessions::SessionStatements;
use crate::backend::rows::server::store::{Concerned, Store};
use crate::backend::rows::server::value::{Cell, Cells, Param, Statement};
use crate::backend::rows::server::window::Write;
use crate::backend::rows::server::{Asked, Server, Session as _, StepRows, backend, commit};
use crate::backend::{ANNOUNCE_TTL, Backend, Contender, OpenContext, Purpose, RenewItem};
use crate::client_info::ClientInfo;
use crate::clock::millis;
use crate::error::Result;
use crate::policy::fencing::FencingToken;
use crate::policy::idempotency::RecordId;
use crate::snapshot::Examination;
use crate::token::ClientId;

use super::config::MysqlConfig;
use super::doorbell::{self, Doorbell};
use super::open::prepare;
use super::protocol::bells::{self, Name};
use super::protocol::idempotency::{Dialect, delete_over, insert_or_read, over};
use super::protocol::sessions::BySessionLock;
use super::protocol::{reading, statements};
use super::transport::session::{Opener, Session};
use super::{doctor, renew};

/// Opens the tables, or makes them.
///
/// Errors: as of [`prepare`]; `backend_unavailable` if the server cannot be reached.
pub(crate) async fn open(
    config: MysqlConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let runtime = context.runtime.clone();
    let listens = config.listens.then_some(move |store| runtime.spawn(doorbell::run(store)).abort_handle());
    // Only a client that acquires locks wakes others, and listens.
    let rings = config.listens && purpose == Purpose::Lock;
    let me = Name { user: config.user().to_owned(), client: context.client.clone() };
    let doorbell = rings.then(|| Doorbell::new(me));
    let server =
        Mysql { opener: Opener::new(config, context.timeout)?, doorbell, records_each_heartbeat: false };
    backend::open(server, context, purpose, listens).await
}

pub(crate) struct Mysql {
    pub opener: Opener,
    pub doorbell: Option<Doorbell>,
    /// As the specification does; otherwise one that was recorded not long ago is good enough.
    pub records_each_heartbeat: bool,
}

/// How often the first two waiters poll that no ring wakes; the second is the next one after a hand-off.
const NEXT_POLLS: Duration = Duration::from_millis(50);

/// How many records a transaction purges at most.
const PURGED: usize = 256;

/// The column of `lock` that says whether leases or waiters may have more.
const IS_SHARED: usize = 2;

impl Server for Mysql {
    const NAME: &'static str = "MySQL";
    const STORE: &'static str = "mysql";

    type Session = Session;

    fn place(&self) -> String {
        self.opener.place()
    }

    async fn open(&self) -> std::result::Result<Session, Failure> {
        self.opener.open().await
    }

    async fn prepare(link: &Link<Self>, purpose: Purpose) -> Result<bool> {
        prepare(link, purpose).await
    }

    fn is_missing_table(code: &str) -> bool {
        code == "1146"
    }

    async fn examine(store: &Store<Self>) -> Result<Examination> {
        doctor::examine(store).await
    }

    fn session_mode(&self) -> Option<&dyn SessionStatements> {
        self.opener.config.in_session.then_some(&BySessionLock as &dyn SessionStatements)
    }

    fn records(&self) -> &dyn RecordStatements {
        &Dialect
    }

    fn insert_or_read(&self, id: &RecordId, put: &Put) -> Option<Statement> {
        self.opener.returns.load(Ordering::Relaxed).then(|| insert_or_read(id, put)).flatten()
    }

    /// In batches, each by primary keys in their order, so that it meets no other client; a part of them if the time
    /// limit of a request comes near.
    async fn purge_records(store: &Store<Self>, most: usize) -> Result<u64> {
        let began = Instant::now();
        let mut purged = 0;
        while purged < most && (purged == 0 || began.elapsed() < store.link.timeout / 2) {
            let batch = PURGED.min(most - purged);
            let mut found = store.ask(&[over(batch)], true).await?.swap_remove(0);
            found.sort_by_key(|row| (row.text(0), row.text(1), row.text(2)));
            let deletes = found.iter().map(delete_over);
            let step: Vec<_> = [statements::begin()].into_iter().chain(deletes).chain([commit()]).collect();
            let answers = store.ask(&step, true).await?;
            purged += answers.iter().filter(|rows| !rows.is_empty()).count();
            if found.len() < batch {
                break;
            }
        }
        Ok(purged as u64)
    }

    fn clock(&self) -> Statement {
        statements::clock()
    }

    fn begin_reading(&self) -> Vec<Statement> {
        statements::begin_reading()
    }

    fn read(&self, exact: Option<&str>, prefix: Option<&str>, limit: i64) -> [Statement; 5] {
        reading::read(exact, prefix, limit)
    }

    fn acquire_free(&self, contender: &Contender) -> Statement {
        statements::acquire_free(contender)
    }

    fn release_alone(&self, contender: &Contender, fence: FencingToken) -> Statement {
        statements::release_alone(contender, fence)
    }

    /// One request that grants the lock, commits and wakes the next holder.
    fn hand_over(&self, contender: &Contender, fence: FencingToken) -> Option<Asked> {
        let next = self.doorbell.as_ref().map(|doorbell| bells::next(&doorbell.me));
        let ring = next.is_some().then(bells::ring_next);
        let mut statements = statements::hand_over(contender, fence, next).to_vec();
        let at = statements.len() - 1;
        statements.push(commit());
        statements.extend(ring);
        Some(Asked { statements, at })
    }

    /// The session limits for how long a request waits for rows.
    fn queue_behind(&self, contender: &Contender, near_ms: i64, far_ms: i64, _: i64) -> Option<Asked> {
        let statements = statements::queue_behind(contender, near_ms, far_ms).to_vec();
        let at = statements.len() - 2;
        Some(Asked { statements, at })
    }

    /// One that was recorded not long ago is not recorded again: a commit waits for the disk.
    fn heartbeat(&self, contender: &Contender, near_ms: i64, far_ms: i64) -> Option<Asked> {
        if self.records_each_heartbeat {
            return None;
        }
        let still_waits = statements::still_waits(contender, near_ms, far_ms);
        let statements =
            vec![statements::begin(), statements::share(contender.name.as_str()), still_waits, commit()];
        Some(Asked { statements, at: 2 })
    }

    /// Where a ring wakes it, a waiter asks at the usual interval; elsewhere in time for its turn.
    fn poll_within(
        &self,
        contender: &Contender,
        position: u32,
        holder: Option<&ClientId>,
    ) -> Option<Duration> {
        let is_woken = self.doorbell.as_ref().is_some_and(|doorbell| doorbell.listen_for(contender, holder));
        (!is_woken).then(|| NEXT_POLLS.saturating_mul(position.max(1)))
    }

    fn introduction(&self) -> Option<Statement> {
        self.doorbell.as_ref().map(|doorbell| bells::introduce(&doorbell.me))
    }

    fn ring(&self, client: &str) -> Option<Statement> {
        let user = self.doorbell.as_ref()?.me.user.clone();
        Some(bells::ring(&Name { user, client: ClientId::from_stored(client) }))
    }

    fn make(&self, names: &[String]) -> Vec<Statement> {
        statements::make(names)
    }

    async fn begin_step(
        &self,
        session: &Session,
        concerned: &Concerned,
        most: i64,
        _: i64,
    ) -> std::result::Result<StepRows, Failure> {
        let mut begin = vec![statements::begin(), statements::lock(&concerned.names), statements::clock()];
        if let ([name], [owner]) = (concerned.names.as_slice(), concerned.owners.as_slice()) {
            // All in one request: of one name there is little more.
            begin.extend([statements::leases(&concerned.names), statements::front(name, most)]);
            begin.push(statements::place(name, owner));
            let mut answers = session.ask(&begin, false).await?.into_iter().skip(1);
            let mut next = || answers.next().unwrap_or_default();
            let (locks, _) = (next(), next());
            return Ok(StepRows { locks, leases: next(), front: next(), places: next() });
        }
        let mut answers = session.ask(&begin, false).await?.into_iter().skip(1);
        let mut rows = StepRows { locks: answers.next().unwrap_or_default(), ..StepRows::default() };
        let us = answers.next().and_then(|rows| rows.first().map(|row| row.int(0))).unwrap_or(0);
        // Of a lock without leases beside the one in its row, and without waiters, there is nothing more.
        rows.places =
            concerned.names.iter().map(|name| Cells(vec![Cell::Int(us), Cell::Text(name.clone())])).collect();
        let shared: Vec<_> =
            rows.locks.iter().filter(|row| row.int(IS_SHARED) != 0).map(|row| row.text(0)).collect();
        if !shared.is_empty() {
            rows.leases = session.ask(&[statements::leases(&shared)], false).await?.swap_remove(0);
            self.read_more(session, concerned, &mut rows, most).await?;
        }
        Ok(rows)
    }

    async fn read_more(
        &self,
        session: &Session,
        concerned: &Concerned,
        rows: &mut StepRows,
        most: i64,
    ) -> std::result::Result<(), Failure> {
        let is_shared =
            |name: &str| rows.locks.iter().any(|row| row.int(IS_SHARED) != 0 && row.text(0) == name);
        let mut asked = Vec::new();
        for (name, owner) in concerned.names.iter().zip(&concerned.owners) {
            if is_shared(name) {
                asked.extend([statements::front(name, most), statements::place(name, owner)]);
            }
        }
        let mut answers = session.ask(&asked, false).await?.into_iter();
        rows.front.clear();
        while let (Some(front), Some(places)) = (answers.next(), answers.next()) {
            rows.front.extend(front);
            for place in places {
                rows.places.retain(|other| other.text(1) != place.text(1));
                rows.places.push(place);
            }
        }
        Ok(())
    }

    fn write(&self, write: &Write, now_ms: i64) -> Vec<Statement> {
        statements::write(write, now_ms)
    }

    fn relaxed(&self) -> Option<Statement> {
        None
    }

    fn notify(&self, _: &str, _: Push) -> Option<Statement> {
        None
    }

    async fn renew(store: &Store<Self>, items: &[RenewItem]) -> Result<HashSet<(String, i64)>> {
        renew::renew(store, items).await
    }

    fn broken(&self, owners: Vec<String>) -> Statement {
        statements::broken(&owners)
    }

    fn announce(&self, client: &ClientInfo, _: i64) -> Vec<Statement> {
        vec![statements::announce(client)]
    }

    async fn sweep(store: &Store<Self>, forgotten_ms: i64, unused_ms: i64) -> Result<()> {
        let client_ms = i64::try_from(millis(ANNOUNCE_TTL)).unwrap_or(i64::MAX);
        for sweep in statements::sweeps(client_ms, forgotten_ms, unused_ms) {
            let found = store.ask(&[sweep.find], true).await?.swap_remove(0);
            for row in found {
                let column = |cell: Cell| match cell {
                    Cell::Text(text) => Param::Text(text),
                    Cell::Int(number) => Param::Int(number),
                    Cell::Bytes(bytes) => Param::Bytes(bytes),
                    Cell::Null => Param::OptionalInt(None),
                };
                let mut params: Vec<_> = row.0.into_iter().map(column).collect();
                params.push(sweep.limit_ms.into());
                store.ask(&[Statement::new(sweep.delete, params)], true).await?;
            }
        }
        // The next sweep deletes up to here.
        let old = store.ask(&[statements::old_counter(unused_ms)], true).await?;
        if let Some(counter) = old[0].first().and_then(|row| row.optional_int(0)) {
            store.ask(&[statements::raise_floor(counter)], true).await?;
        }
        Ok(())
    }
}
