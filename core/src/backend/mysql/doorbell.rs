//! Wakes waiters of other clients, because these servers push nothing.
//!
//! - Each client has a session lock (`GET_LOCK`) on the connection for its verbs, which says that it rings. While it waits,
//!   one more connection of it waits at the server for that lock, and has a session lock of its own as its name. One
//!   connection is enough for all waiters of a client.
//! - A step that grants a lock to another client rings after its commit, in the same request: it finds the connection by
//!   that name, and ends its wait by `KILL QUERY`. The next request there answers with what was granted.
//! - A server lets a client wake connections of its own user only. So waiters look once for the first lock of each holder,
//!   and poll where there is none.
//!
//! A ring is a hint. Leases decide, and waiters poll all the same, only at the usual interval. Rings that a proxy, a cluster or
//! a lost connection breaks cost time and nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::backend::Contender;
use crate::backend::rows::server::Session as _;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::store::Store;
use crate::backend::rows::server::value::Cells;
use crate::backend::rows::{Push, unsigned};
use crate::error::{Error, ErrorKind};
use crate::policy::backoff::Backoff;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::unpoisoned;

use super::protocol::bells::{
    LISTEN_FOR, Name, crowd, granted, hear, introduce, is_alone, listen, rings, was_rung, withdraw,
};
use super::server::Mysql;
use super::transport::session::Session;

/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long the connection that listens stays open without waiters: a client that waits again soon needs no new one.
const IDLE: Duration = Duration::from_secs(10);

/// For how many waiters a client listens. More of them poll.
const MOST: usize = 128;

/// More clients than these are forgotten all at once.
const MOST_KNOWN: usize = 10_000;

/// After a holder that does not ring, other locks may come to one too; so long all waiters poll.
const POLL_AFTER: Duration = Duration::from_secs(60);

/// No connection for listening is opened where more than these of ten connections of the server are in use.
const CROWDED: i64 = 6;

#[derive(Debug)]
pub(crate) struct Doorbell {
    pub me: Name,
    ear: Mutex<Ear>,
    /// There are waiters.
    waits: Notify,
    /// There is a client of which is not known whether it rings.
    unknown: Notify,
}

#[derive(Debug, Default)]
struct Ear {
    /// The connection is open.
    is_open: bool,
    waiters: HashMap<OwnerToken, String>,
    /// Clients that ring.
    ringing: HashSet<ClientId>,
    unknown: Option<ClientId>,
    /// When a holder was found last that does not ring.
    silent: Option<Instant>,
}

impl Doorbell {
    pub(crate) fn new(me: Name) -> Self {
        Self { me, ear: Mutex::default(), waits: Notify::new(), unknown: Notify::new() }
    }

    /// Listens for this waiter. Returns whether it will be woken, as far as this client knows.
    pub(crate) fn listen_for(&self, contender: &Contender, holder: Option<&ClientId>) -> bool {
        let mut ear = unpoisoned(&self.ear);
        if ear.waiters.len() >= MOST && !ear.waiters.contains_key(&contender.owner) {
            return false;
        }
        ear.waiters.insert(contender.owner, contender.name.as_str().to_owned());
        self.waits.notify_one();
        let rings = match holder {
            None => false,
            Some(holder) if *holder == self.me.client => true,
            Some(holder) if ear.ringing.contains(holder) => true,
            Some(holder) => {
                ear.unknown = Some(holder.clone());
                self.unknown.notify_one();
                false
            }
        };
        rings && ear.is_open && ear.silent.is_none_or(|at| at.elapsed() >= POLL_AFTER)
    }

    fn learn(&self, client: ClientId, rings: bool) {
        let mut ear = unpoisoned(&self.ear);
        if !rings {
            ear.silent = Some(Instant::now());
            return;
        }
        if ear.ringing.len() >= MOST_KNOWN {
            ear.ringing.clear();
        }
        ear.ringing.insert(client);
    }

    /// The waiters to listen for.
    fn waiters(&self, waits: impl Fn(OwnerToken) -> bool) -> (Vec<String>, Vec<OwnerToken>) {
        let mut ear = unpoisoned(&self.ear);
        ear.waiters.retain(|owner, _| waits(*owner));
        let mut names: Vec<_> = ear.waiters.values().cloned().collect();
        names.sort_unstable();
        names.dedup();
        (names, ear.waiters.keys().copied().collect())
    }

    fn opened(&self, is_open: bool) {
        unpoisoned(&self.ear).is_open = is_open;
    }
}

/// Listens, until the task is ended.
pub(crate) async fn run(store: Arc<Store<Mysql>>) {
    if let Some(doorbell) = &store.server().doorbell {
        tokio::join!(hears(&store, doorbell), learns(&store, doorbell));
    }
}

/// Keeps the connection that listens, as long as there are waiters.
async fn hears(store: &Store<Mysql>, doorbell: &Doorbell) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, u64::from(std::process::id()));
    let mut connection = None;
    let mut is_rung = false;
    loop {
        let (names, owners) = doorbell.waiters(|owner| store.wakeups.waits(owner));
        if owners.is_empty() {
            let idle = tokio::time::timeout(IDLE, doorbell.waits.notified()).await;
            if idle.is_err() {
                doorbell.opened(false);
                connection = None;
            }
            continue;
        }
        let heard = async {
            let session = match &connection {
                Some(session) => session,
                None => connection.insert(open(store, doorbell).await?),
            };
            doorbell.opened(true);
            let limit = LISTEN_FOR + store.link.timeout;
            // A ring says that there is something: what, is asked by the shorter statement.
            let request = match is_rung {
                true => [granted(&names, &owners)],
                false => [listen(&doorbell.me, &names, &owners)],
            };
            match tokio::time::timeout(limit, session.ask(&request, false)).await {
                Ok(Ok(answers)) if answers.first().is_some_and(|answer| is_alone(answer)) => {
                    introduce_again(store, doorbell, session).await?;
                    Err(alone())
                }
                Ok(Ok(answers)) => {
                    let answer = answers.into_iter().next().unwrap_or_default();
                    Ok((was_rung(&answer), answer))
                }
                Ok(Err(Failure::Collision(_))) => Ok((true, Vec::new())),
                Ok(Err(failure)) => Err(failure),
                Err(_) => Err(silent()),
            }
        };
        match heard.await {
            Ok((rung, granted)) => {
                is_rung = rung;
                backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, u64::from(std::process::id()));
                deliver(store, doorbell, &granted);
            }
            Err(_) => {
                connection = None;
                is_rung = false;
                doorbell.opened(false);
                // They ask, and learn that they have to poll.
                owners.into_iter().for_each(|owner| store.wakeups.hint(owner));
                tokio::time::sleep(backoff.delay()).await;
            }
        }
    }
}

/// Gives the lock that says who rings to the connection for the verbs, which is opened if it has ended.
async fn introduce_again(
    store: &Store<Mysql>,
    doorbell: &Doorbell,
    session: &Session,
) -> Result<(), Failure> {
    let again = async {
        session.ask(&[withdraw(&doorbell.me)], false).await?;
        got(&store.link.ask(&[introduce(&doorbell.me)], false).await?)
    };
    tokio::time::timeout(store.link.timeout, again).await.unwrap_or_else(|_| Err(silent()))
}

async fn open(store: &Store<Mysql>, doorbell: &Doorbell) -> Result<Session, Failure> {
    let opened = async {
        let answers = store.link.ask(&crowd(), false).await?;
        let count = |at: usize, column: usize| {
            let row = answers[at].first();
            row.and_then(|row| row.optional_int(column).or_else(|| row.text(column).parse().ok()))
                .unwrap_or(0)
        };
        if count(0, 1) * 10 > count(1, 0) * CROWDED {
            return Err(
                Error::new(ErrorKind::BackendUnavailable, "the server has too few connections left").into()
            );
        }
        let session = store.server().opener.open().await?;
        got(&session.ask(&[hear(&doorbell.me)], false).await?)?;
        Ok(session)
    };
    tokio::time::timeout(store.link.timeout, opened).await.unwrap_or_else(|_| Err(silent()))
}

/// Whether the server gave the session lock that it was asked for.
fn got(answers: &[Vec<Cells>]) -> Result<(), Failure> {
    match answers.first().and_then(|rows| rows.first()).map(|row| row.int(0)) {
        Some(1) => Ok(()),
        _ => Err(Error::new(ErrorKind::BackendUnavailable, "the server gave no session lock").into()),
    }
}

/// It listens again after a pause: where a proxy lets connections share their locks, this would go on and on.
fn alone() -> Failure {
    Error::new(ErrorKind::BackendUnavailable, "the other connection of this client has ended").into()
}

fn silent() -> Failure {
    Error::new(ErrorKind::BackendUnavailable, "the server did not answer in time").into()
}

fn deliver(store: &Store<Mysql>, doorbell: &Doorbell, granted: &[Cells]) {
    for row in granted {
        let Some(owner) = OwnerToken::from_hex(&row.text(0)) else { continue };
        unpoisoned(&doorbell.ear).waiters.remove(&owner);
        let push = Push::Granted { owner, fence: unsigned(row.int(1)) };
        store.deliver(&[(doorbell.me.client.as_str().to_owned(), push)]);
    }
}

/// Asks of each holder once whether it rings.
async fn learns(store: &Store<Mysql>, doorbell: &Doorbell) {
    loop {
        doorbell.unknown.notified().await;
        let Some(client) = unpoisoned(&doorbell.ear).unknown.take() else { continue };
        let other = Name { user: doorbell.me.user.clone(), client: client.clone() };
        let answer = tokio::time::timeout(store.link.timeout, store.link.ask(&[rings(&other)], false)).await;
        // A server that does not answer is asked again at the next poll.
        if let Ok(Ok(answers)) = answer {
            doorbell.learn(client, answers[0].first().is_some_and(|row| row.int(0) == 1));
        }
    }
}
