//! Wakes the next waiter of another client by a session lock, because these servers push nothing.
//!
//! - Each client keeps a connection that holds a session lock (`GET_LOCK`) of its own, its bell.
//! - A waiter near the head of the queue blocks on the bell of the client that holds the lock: one connection for all waiters
//!   of a client, so it blocks on one bell at a time, and its other waiters poll.
//! - A release that grants the lock to another client rings: it lets go of the bell and takes it again. Those who block on it
//!   get it one after the other, let go of it, and poll.
//!
//! A bell is a hint. Leases decide, and waiters poll all the same, only at the usual interval. Session locks that a proxy, a cluster or
//! a lost connection breaks cost time and nothing else.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::backend::rows::server::Session as _;
use crate::backend::rows::server::failure::Failure;
use crate::backend::rows::server::store::Store;
use crate::backend::rows::server::value::Statement;
use crate::error::{Error, ErrorKind};
use crate::policy::backoff::Backoff;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::unpoisoned;

use super::protocol::bells::{LISTEN_FOR, block_on, hang, let_go, still_here};
use super::server::Mysql;
use super::transport::session::Session;

/// Pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How often the connection of a bell that is not rung is checked.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// A ring before the waiter has blocked is missed; so long a waiter polls as if there were no bell.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Doorbell {
    own: ClientId,
    rings: Notify,
    /// Wakes the task that listens.
    asked: Notify,
    listens: Mutex<Option<Listening>>,
}

#[derive(Debug)]
struct Listening {
    holder: ClientId,
    owners: Vec<OwnerToken>,
    /// When it blocked on the bell; `None` as long as it does not.
    since: Option<Instant>,
}

impl Doorbell {
    pub(crate) fn new(own: ClientId) -> Self {
        Self { own, rings: Notify::new(), asked: Notify::new(), listens: Mutex::default() }
    }

    /// Wakes the clients that block on this client's bell.
    pub(crate) fn ring(&self) {
        self.rings.notify_one();
    }

    /// Listens for the bell of a holder, for this waiter. Returns whether it has been heard for long enough that no ring was
    /// missed.
    pub(crate) fn listen_at(&self, holder: &ClientId, owner: OwnerToken) -> bool {
        if *holder == self.own {
            // A release by this client notifies its own waiters at once.
            return true;
        }
        let mut listens = unpoisoned(&self.listens);
        match &mut *listens {
            Some(listening) if listening.holder == *holder => {
                if !listening.owners.contains(&owner) {
                    listening.owners.push(owner);
                }
                listening.since.is_some_and(|since| since.elapsed() >= SETTLED_AFTER)
            }
            Some(_) => false,
            None => {
                *listens = Some(Listening { holder: holder.clone(), owners: vec![owner], since: None });
                self.asked.notify_one();
                false
            }
        }
    }

    fn blocks(&self) {
        if let Some(listening) = &mut *unpoisoned(&self.listens) {
            listening.since = Some(Instant::now());
        }
    }

    fn holder(&self) -> Option<ClientId> {
        unpoisoned(&self.listens).as_ref().map(|listening| listening.holder.clone())
    }
}

/// Keeps the bell and listens, until the task is ended.
pub(crate) async fn run(store: Arc<Store<Mysql>>) {
    if let Some(doorbell) = &store.server().doorbell {
        tokio::join!(keep(&store, doorbell), listen(&store, doorbell));
    }
}

fn pauses() -> Backoff {
    Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, u64::from(std::process::id()))
}

async fn open(store: &Store<Mysql>) -> Result<Session, Failure> {
    let opened = tokio::time::timeout(store.link.timeout, store.server().opener.open());
    opened.await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::BackendUnavailable, "the server did not answer in time").into())
    })
}

/// Holds the bell, and rings it.
async fn keep(store: &Store<Mysql>, doorbell: &Doorbell) {
    let mut backoff = pauses();
    loop {
        let kept = async {
            let session = open(store).await?;
            if number(&session, &hang(&doorbell.own, Duration::ZERO)).await? != Some(1) {
                return Ok(());
            }
            backoff = pauses();
            loop {
                let rung = tokio::time::timeout(CHECK_EVERY, doorbell.rings.notified()).await.is_ok();
                if !rung {
                    number(&session, &still_here()).await?;
                    continue;
                }
                number(&session, &let_go(&doorbell.own)).await?;
                // Behind all that blocked on it.
                if number(&session, &hang(&doorbell.own, store.link.timeout)).await? != Some(1) {
                    return Ok(());
                }
            }
        };
        let _: Result<(), Failure> = kept.await;
        tokio::time::sleep(backoff.delay()).await;
    }
}

/// Blocks on the bells of holders, one at a time.
async fn listen(store: &Store<Mysql>, doorbell: &Doorbell) {
    let mut backoff = pauses();
    let mut session = None;
    loop {
        doorbell.asked.notified().await;
        let Some(holder) = doorbell.holder() else { continue };
        let heard = async {
            let open_one = match session.take() {
                Some(session) => session,
                None => open(store).await?,
            };
            doorbell.blocks();
            let limit = LISTEN_FOR + store.link.timeout;
            let rung = tokio::time::timeout(limit, number(&open_one, &block_on(&holder))).await;
            let rung = rung.unwrap_or(Ok(None))? == Some(1);
            if rung {
                number(&open_one, &let_go(&holder)).await?;
            }
            // Without waiters it costs the server no connection.
            session = Some(open_one).filter(|_| store.wakeups.waiting() > 0);
            Ok::<bool, Failure>(rung)
        };
        let heard = heard.await;
        let is_broken = heard.is_err();
        let listening = unpoisoned(&doorbell.listens).take();
        if let (Ok(true), Some(listening)) = (&heard, listening) {
            listening.owners.into_iter().for_each(|owner| store.wakeups.hint(owner));
        }
        if is_broken {
            tokio::time::sleep(backoff.delay()).await;
        } else {
            backoff = pauses();
        }
    }
}

async fn number(session: &Session, statement: &Statement) -> Result<Option<i64>, Failure> {
    let answers = session.ask(std::slice::from_ref(statement), false).await?;
    Ok(answers[0].first().and_then(|row| row.optional_int(0)))
}
