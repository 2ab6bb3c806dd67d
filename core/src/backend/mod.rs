//! What every store must be able to do, and the words in which it answers.
//!
//! A backend is thin: one atomic step of the store per verb, and every failure mapped to kind,
//! retry and effect. It decides nothing about waiting, renewing or losing a lease. `memory` is the
//! readable specification.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::capability::Capability;
use crate::client_info::ClientInfo;
use crate::clock::{Clock, seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::waiting::WaitAnswer;
use crate::snapshot::{BreakOutcome, BreakRequest, Examination, Followed, Query, Snapshot};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

#[cfg(feature = "consul")]
pub(crate) mod consul;
#[cfg(any(feature = "etcd", all(feature = "zookeeper", not(target_family = "wasm"))))]
pub(crate) mod contenders;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(any(not(target_family = "wasm"), feature = "memory"))]
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod records;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
pub(crate) mod redlock;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) mod rows;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(all(feature = "zookeeper", not(target_family = "wasm")))]
pub(crate) mod zookeeper;

/// The answer to a verb, on its way.
///
/// It borrows nothing, so an acquisition whose caller went away can hand the request in flight to
/// the background and learn there what came of it. It may be polled on any thread and any executor.
pub(crate) type Reply<T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>;

/// Whether a lease's client renews it, as far as a store can tell: a first lease that is shorter than
/// the lease is provisional. One of full length is either fixed or as short as a provisional one.
pub(crate) fn is_renewed(renewals: u32, first: Duration, lease: Duration) -> Option<bool> {
    (renewals > 0 || first < lease).then_some(true)
}

/// One acquisition that wants a lock: fixed from its first request to its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    pub name: LockName,
    /// Fresh and random for every acquisition (rule R1 of [`crate::policy::waiting`]).
    pub owner: OwnerToken,
    pub client: ClientId,
    pub label: String,
    /// Length of a renewed lease; the store keeps it so that people can see it.
    pub lease: Duration,
    /// Length of the lease that a grant starts with. Shorter than `lease` where it is provisional.
    pub first_lease: Duration,
    /// May take a free lock although others stand in line before it.
    pub barge: bool,
    /// In which way it wants the lock.
    pub mode: Mode,
}

/// Whether a contender that does not get the lock stands in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Answer at once and remember nothing.
    Try,
    /// Queue, or send a heartbeat from there. The heartbeats say how long the store keeps a stale waiter
    /// in the queue, near the head and further back.
    Wait {
        near_heartbeat: Duration,
        far_heartbeat: Duration,
        /// How long it waits from now on at most; for display only, so a store may leave it out.
        left: Option<Duration>,
    },
}

/// Who holds a lock, as far as an answer to a waiter can tell; for error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HolderHint {
    pub client: Option<ClientId>,
    pub label: String,
    pub held_for: Option<Duration>,
    pub left: Option<Duration>,
}

impl fmt::Display for HolderHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.client {
            Some(client) => {
                write!(f, "held by host {} pid {}", client.host(), client.pid().unwrap_or_default())?;
            }
            None => f.write_str("held by a program that is not Polylatch")?,
        }
        if !self.label.is_empty() {
            write!(f, " ({})", self.label)?;
        }
        if let Some(held) = self.held_for {
            write!(f, " for {}", seconds(held))?;
        }
        if let Some(left) = self.left {
            write!(f, ", lease ends in {} unless renewed", seconds(left))?;
        }
        Ok(())
    }
}

/// What a store says to a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is the contender's, for at least `first_lease` from when this was carried out.
    Held { fence: FencingToken },
    /// Somebody else holds it, or stands before this contender.
    Wait { answer: WaitAnswer, holder: Option<HolderHint> },
    /// Somebody holds or waits for this name as another kind of lock; nothing was changed.
    OtherKind { present: Kind },
    /// The store restarted or was promoted; no new grants before this time has passed.
    Withheld { left: Duration },
    /// Nobody holds it, but the store lets nobody in for a while after its last holder's session has
    /// ended; at most this long, if that is known.
    LockDelay { left: Option<Duration> },
}

/// What a store says to contenders that want several locks at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerAll {
    /// All are theirs, each for at least its `first_lease` from when this was carried out; the fences in
    /// the order of the contenders.
    Held { fences: Vec<FencingToken> },
    /// Not all can be had now, and none was taken.
    Refused,
    /// Somebody holds or waits for the name of this contender as another kind of lock.
    OtherKind { at: usize, present: Kind },
    /// The store restarted or was promoted; no new grants before this time has passed.
    Withheld { left: Duration },
    /// Nobody holds one of them, but the store lets nobody in for a while; see [`Answer::LockDelay`].
    LockDelay { left: Option<Duration> },
}

/// One lease to extend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenewItem {
    pub contender: Arc<Contender>,
    pub fence: FencingToken,
    /// The new length, counted from when the store carries this out.
    pub lease: Duration,
    /// Length of the leases that the holder asks for, unless its limits cut one. The store records it, but
    /// never less than what is left of the lease.
    pub length: Duration,
    /// Number of this renewal, from 1, kept by the store for people to see; 0 if the holder extended a lease
    /// that is not renewed automatically, whose first lease is then recorded as long as this one.
    pub renewals: u32,
}

/// What came of one renewal. It never creates a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    Extended,
    NotYours,
    /// Too few nodes answered to say.
    #[cfg_attr(
        any(not(feature = "redis"), target_family = "wasm"),
        allow(dead_code, reason = "only a store of several nodes says so")
    )]
    Unknown,
}

/// What came of changing the way in which a lease is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Held in the new way, from now for at least the first lease, under this fence: the old one
    /// after a step down to reading, a new one after a step up to writing.
    Done {
        fence: FencingToken,
    },
    /// Others hold the lock too, so it cannot be held alone; nothing was changed.
    Refused,
    NotHeld,
}

/// What came of asking the store to keep a lease that is not in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Extended. The tokens that were set aside, the first and the last one; `None` if there is none to have, or
    /// none was asked for.
    Extended {
        tokens: Option<(u64, u64)>,
    },
    /// A client is queued, so it was released and granted to the next.
    Released,
    NotHeld,
}

/// What came of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    Released,
    /// The store does not name this owner and fence: released before, expired, broken or taken.
    NotHeld,
}

/// One store of locks.
///
/// Every verb is idempotent for the same owner token, so that a lost reply is asked again. Errors
/// carry their effect: `none` only if the request was certainly not carried out.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Says what this store, as configured, can do.
    fn capability(&self) -> &Capability;

    /// Acquires, confirms, gives a sign of life and polls, in one atomic step:
    ///
    /// - owned by this contender: extend to at least `first_lease` (never shorten), answer `Held`;
    /// - in use as another kind of lock: say so, change nothing;
    /// - to be had beside its holders ([`crate::policy::sharing`]): take it if no live waiter stands
    ///   before the contender, or if it barges; otherwise grant it to those at the head of the line
    ///   who can have it together;
    /// - then, if not the owner and asked to wait: stand in line (once, keeping the place);
    /// - if there are more silent waiters in front than one step drops, ask for the next poll at once.
    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer>;

    /// Takes several locks of different names in one atomic step, or none: nobody ever sees a part of
    /// them taken by a step that takes not all.
    ///
    /// Each is taken as by `poll` with [`Ask::Try`], so none if a live waiter stands before one of the
    /// contenders. One that is owned already by its contender counts as taken, and is extended: a lost
    /// answer is asked again.
    ///
    /// Only where the capability says `atomic_sets`.
    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        let _ = contenders;
        let error = Error::new(ErrorKind::Unsupported, "this store cannot take several locks in one step");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Ends every lease of the contender's lock and grants it to the contender, in one atomic step: before all
    /// waiters, and no client sees the lock free in between. The contender's mode is an exclusive one.
    ///
    /// Leaves an audit entry for each lease that it ended, and notifies its holder, as `break_lease` does. A lock that is
    /// free is granted all the same. One that the contender owns already is confirmed: a lost answer is asked again.
    /// Answers `Held`, `OtherKind` or `Withheld`; the latter two change nothing.
    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        let _ = (contender, reason);
        let message = format!(
            "{} cannot end the leases of a lock and grant it in one step, so a lock cannot be stolen there; break the \
             lease and acquire the lock, or use a memory, SQLite, Redis, PostgreSQL or MySQL store",
            self.capability().backend
        );
        Box::pin(std::future::ready(Err(Error::new(ErrorKind::Unsupported, message))))
    }

    /// Whether a granted lock is found by a snapshot of all locks only after its first renewal, which
    /// then comes soon ([`LIST_WITHIN`]): so a lock held for less than that costs nothing for it.
    fn lists_late(&self) -> bool {
        false
    }

    /// Whether a held lease can get another length; see [`RenewItem::length`].
    fn can_change_lease(&self) -> bool {
        true
    }

    /// How far the order of the token can be relied on that this owner was just granted. Asked once, at once.
    fn fence_quality(&self, owner: OwnerToken) -> FenceQuality {
        let _ = owner;
        self.capability().fencing
    }

    /// A number of the part of the store in which a lock lives. Renewals are sent to each part apart, since one part may
    /// answer while another does not.
    fn part_of(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// Extends leases that are still exactly (owner, fence) to at least the length asked for; never
    /// shortens one, because a request may arrive after a later one. Answers in the order of the items.
    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>>;

    /// Changes the way in which a lease of exactly (owner, fence) is held, between reading and
    /// writing. `contender` is as it was granted; a step down lets waiting readers in.
    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion>;

    /// Frees the lock if it is still exactly (owner, fence), and grants it to those at the head of
    /// the line who can have it now.
    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released>;

    /// The same, sent before this returns, and carried out before what is asked of this store later in the same
    /// runtime. `None` if that cannot be had, or not now: then nothing was sent.
    fn release_in_turn(&self, contender: &Arc<Contender>, fence: FencingToken) -> Option<Reply<Released>> {
        let _ = (contender, fence);
        None
    }

    /// Whether a client can keep a lease after a release; see `keep`.
    fn can_keep(&self) -> bool {
        false
    }

    /// Renews a lease that is not in use, unless a client is queued: then this is `release`.
    ///
    /// If it is renewed, so many fencing tokens are set aside for the holder, as
    /// [`set_aside`](crate::policy::keeping::set_aside) says. As long as the lease that was asked for lasts, every client
    /// that asks for the lock and does not get it makes the store push "wanted" to the holder. For plain locks whose
    /// length was not changed. Only where `can_keep` says so.
    fn keep(&self, item: RenewItem, tokens: u64) -> Reply<Kept> {
        let _ = (item, tokens);
        let error = Error::new(ErrorKind::Unsupported, "this store cannot keep a lease after its release");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Leaves the line, and releases the lock if this contender owns it after all.
    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()>;

    /// Records who this client is, with a short lease of its own ([`ANNOUNCE_TTL`]).
    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()>;

    /// Reads locks, waiters, clients and recent breaks. Changes nothing, and pages through large stores.
    fn snapshot(&self, query: &Query) -> Reply<Snapshot>;

    /// As `snapshot`, for a reader that asks again and again: what has not changed since the snapshot before
    /// need not be read again, only its ages go on. The one before was of the same query.
    fn follow(&self, query: &Query, before: Option<Followed>) -> Reply<Followed> {
        let _ = before;
        let snapshot = self.snapshot(query);
        Box::pin(async move { Ok(Followed::new(snapshot.await?)) })
    }

    /// Ends somebody's lease if it still has the expected fence, grants the next waiter, and leaves
    /// an audit entry.
    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome>;

    /// Says what this set-up can and cannot promise. Touches no lock.
    ///
    /// Not in a JavaScript host, where nobody operates a store and every kilobyte is loaded.
    fn examine(&self) -> Reply<Examination> {
        let error = Error::new(ErrorKind::Unsupported, "this store cannot be examined from here");
        Box::pin(std::future::ready(Err(error)))
    }

    /// The records of idempotent work.
    ///
    /// Errors: `unsupported` for a store that keeps none.
    #[cfg(not(target_family = "wasm"))]
    fn records(&self) -> Result<&dyn records::Records> {
        Err(records::none_kept(self.capability().backend))
    }

    /// Lets go of connections and threads. Nothing is called afterwards.
    fn close(&self) -> Reply<()>;
}

/// When a lock is renewed first where that is what lists it.
pub(crate) const LIST_WITHIN: Duration = Duration::from_millis(50);

/// How often a client that holds or waits says who it is.
pub(crate) const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);

/// How long a store keeps the record of a client that says nothing.
pub(crate) const ANNOUNCE_TTL: Duration = Duration::from_secs(20);

/// How many breaks a store remembers for inspection.
pub(crate) const AUDIT_LENGTH: usize = 200;

/// How many silent waiters one step drops from the front at most, so that no step is long. Few in the crate's
/// own tests, so that short sequences of steps reach it.
#[cfg(any(not(target_family = "wasm"), feature = "memory"))]
pub(crate) const REAPED_PER_STEP: usize = if cfg!(test) { 3 } else { 1_000 };

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Taking locks: a store that cannot keep the declared guarantee is refused.
    Lock,
    /// Only to be looked at: what can be read is shown, also where too few nodes answer for a lock.
    Look,
    /// Only to be examined: also a store that would be refused, to say why.
    Examine,
}

/// What a backend gets from its client when it is opened.
#[derive(Debug, Clone)]
pub(crate) struct OpenContext {
    /// Where to drop what the store pushes.
    pub wakeups: Arc<Wakeups>,
    /// The client's own runtime: one native thread with timers and I/O. Blocking calls do not belong on it.
    pub runtime: tokio::runtime::Handle,
    pub client: ClientId,
    /// The clock by which holders count.
    pub clock: Arc<dyn Clock>,
    /// Time limit of one request to the store.
    pub timeout: Duration,
}
