//! What a store says of its locks at one moment: plain values, without I/O. Stores fill them in,
//! [`crate::inspect`] hands them out.

mod changes;
pub(crate) mod examination;
mod following;
mod made;
mod trouble;

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::clock::as_millis;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::token::ClientId;

pub use changes::changes;
pub use examination::{Check, CheckSeverity, Examination, Holds, Promise};
pub(crate) use following::Followed;
#[cfg(all(any(feature = "redis", feature = "consul"), not(target_family = "wasm")))]
pub(crate) use following::WHOLE_EVERY;
pub use trouble::{Trouble, TroubleKind};

/// Longest pattern for other libraries' keys, in bytes.
const MAX_PATTERN_BYTES: usize = 256;

/// Longest reason for a break, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// Checks what a break leaves on record.
///
/// Errors: `invalid_argument` for a text that is empty, longer than 256 bytes or has control characters.
pub(crate) fn check_words(what: &str, text: &str) -> Result<()> {
    if text.trim().is_empty() || text.len() > MAX_REASON_BYTES || text.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the {what} of a break must be 1 to {MAX_REASON_BYTES} bytes without control characters"),
        ));
    }
    Ok(())
}

/// Which locks to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only this lock, also if it is free.
    pub name: Option<String>,
    /// Only locks whose name starts with this.
    pub prefix: Option<String>,
    /// At most this many locks; `None` means 10 000.
    pub limit: Option<usize>,
    /// Also other libraries' locks whose keys match this pattern, such as `lock:*`, shown as `foreign`.
    /// Only Redis has such keys; all keys of the server are gone through in small steps, so name it only
    /// where that is worth it. 1 to 256 bytes; `*`, `?` and `[…]` as in the command KEYS.
    pub foreign: Option<String>,
}

impl Query {
    /// How many locks a query reads if it does not say.
    pub const DEFAULT_LIMIT: usize = 10_000;

    /// Returns the limit in force.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(Self::DEFAULT_LIMIT)
    }

    /// Checks the name and the pattern.
    ///
    /// Errors: `invalid_argument`; `unsupported` for a pattern in a JavaScript host.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(name) = &self.name {
            LockName::new(name)?;
        }
        let Some(pattern) = &self.foreign else { return Ok(()) };
        if cfg!(target_family = "wasm") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "other libraries' locks are not listed from a JavaScript host; use polylatch ls, or leave foreign out",
            ));
        }
        if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES || pattern.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the pattern {pattern:?} for other libraries' keys must have 1 to {MAX_PATTERN_BYTES} bytes \
                     without control characters, for example lock:*"
                ),
            ));
        }
        Ok(())
    }

    /// Says whether a lock of this name is asked for.
    pub fn wants(&self, name: &str) -> bool {
        match (&self.name, &self.prefix) {
            (Some(exact), _) => exact == name,
            (None, Some(prefix)) => name.starts_with(prefix.as_str()),
            (None, None) => true,
        }
    }
}

/// A store's locks at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Kind of store, such as `redis`.
    pub backend: Cow<'static, str>,
    /// When this was read, on the store's clock.
    pub taken_at_ms: u64,
    /// How long it took to read.
    #[serde(rename = "round_trip_ms", serialize_with = "as_millis", deserialize_with = "from_millis")]
    pub round_trip: Duration,
    /// How many requests this took: script calls, statements, HTTP requests. 0 if nothing was sent.
    #[serde(default)]
    pub requests: u32,
    /// Held or waited-for locks, sorted by name.
    pub locks: Vec<LockView>,
    /// The client processes that hold or wait, sorted by id.
    pub clients: Vec<ClientView>,
    /// Recent breaks, newest first.
    pub audit: Vec<AuditEntry>,
    /// More locks existed than the query's limit.
    pub truncated: bool,
    /// What keeps the store, or nodes of it, from working; see [`Snapshot::trouble`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<Trouble>,
}

fn from_millis<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

/// One lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LockView {
    /// The lock's name.
    pub name: String,
    /// What kind of lock: `mutex`, `rw`, `semaphore`, or `foreign` for data that another program
    /// keeps there.
    pub mode: Cow<'static, str>,
    /// How many permits there are, if it is a semaphore.
    pub capacity: Option<u32>,
    /// Who holds it; empty if it is free.
    pub holders: Vec<HolderView>,
    /// The waiters, in the order of the queue.
    pub waiters: Vec<WaiterView>,
    /// What each of several independent nodes says of it; empty where one server decides. More than half
    /// of them have to name the same holder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<VoteView>,
    /// What only this kind of store can say of the lock, for display.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// Name of a detail about a record that another version of Polylatch wrote in a form unknown here.
pub(crate) const UNREADABLE: &str = "unreadable record";

impl LockView {
    /// Returns what stands there in a form that this version cannot read, because another version wrote it.
    /// A lease of that kind counts as held until it expires; a waiter is passed over.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        let details = self.details.iter().chain(self.holders.iter().flat_map(|holder| &holder.details));
        details.filter(|detail| detail.name == UNREADABLE).map(|detail| detail.value.as_str())
    }

    /// Says whether it is held or waited for, by a client of any version.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.holders.is_empty() || !self.waiters.is_empty() || self.unreadable().next().is_some()
    }
}

/// What one of several independent nodes says of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VoteView {
    /// Its address.
    pub node: String,
    /// Whether it answered; if not, nothing is known of it.
    pub reached: bool,
    /// Whom it has the lock for: as in [`HolderView::owner_digest`], empty for another program. `None` if
    /// the lock is free there.
    pub owner_digest: Option<String>,
    /// The client, if it is known.
    pub client: Option<ClientId>,
    /// What is left of the lease there. `None` if it never ends there, or is free.
    pub remaining_ms: Option<u64>,
}

/// One fact that belongs to a kind of store, such as a key, a session or a node's vote.
///
/// The text comes from the store and may be hostile; secrets are taken out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// What it is, in a few words: `key`, `value`, `session`, `lock-delay`, `node 2`.
    pub name: Cow<'static, str>,
    /// The fact.
    pub value: String,
}

/// One held lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HolderView {
    /// The client that holds it; `None` for another program's lock.
    pub client: Option<ClientId>,
    /// What the holder says it is doing.
    pub label: String,
    /// The mode in which it holds the lock: `mutex`, `read`, `write` or `permits`.
    pub mode: Cow<'static, str>,
    /// How many permits it holds; 1 for everything that is no semaphore.
    pub permits: u32,
    /// Digest of the owner token: tells two acquisitions apart, reveals nothing.
    pub owner_digest: String,
    /// The fencing token of this grant; what `break_lease` expects.
    pub fencing_token: Option<FencingToken>,
    /// When it was granted, on the store's clock.
    pub acquired_at_ms: Option<u64>,
    /// How long it has been held.
    pub held_for_ms: Option<u64>,
    /// Length of a renewed lease.
    pub lease_ms: Option<u64>,
    /// What is left of the lease. `None` if it never ends, or if the store cannot say.
    pub remaining_ms: Option<u64>,
    /// How often it was renewed.
    pub renewals: Option<u32>,
    /// How long ago it was last renewed.
    pub renewed_ago_ms: Option<u64>,
    /// Whether its client means to renew it. `None` if the store does not say; a lease that was renewed
    /// before is `Some(true)`.
    #[serde(default)]
    pub renewed: Option<bool>,
    /// How long ago it was free for its client's next caller, which keeps it between them (`keep_idle`); a caller may
    /// be in by now. `None` if it was not so during the last lease, or if the store cannot say.
    #[serde(default)]
    pub idle_ago_ms: Option<u64>,
    /// What only this kind of store can say of the lease, for display.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// One waiter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaiterView {
    /// The client that waits.
    pub client: ClientId,
    /// What the waiter says it wants to do.
    pub label: String,
    /// The mode that it waits for: `mutex`, `read`, `write` or `permits`.
    pub mode: Cow<'static, str>,
    /// How many permits it wants; 1 for everything that is no semaphore.
    pub permits: u32,
    /// Digest of the owner token it will hold with.
    pub owner_digest: String,
    /// Position in the queue, 0 for the next.
    pub position: u32,
    /// When it came, on the store's clock.
    pub since_ms: u64,
    /// How long it has waited.
    pub waited_ms: u64,
    /// Its last heartbeat is too old: it is skipped at the next hand-off.
    pub silent: bool,
    /// When it gives up if it is not granted the lock before, on the store's clock. `None` if it waits without a limit,
    /// or if that is not known: Consul, RedLock, PostgreSQL and MySQL do not record it, nor did earlier clients.
    #[serde(default)]
    pub gives_up_at_ms: Option<u64>,
}

/// One client process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientView {
    /// Its id, as in holders and waiters.
    pub id: ClientId,
    /// Host name.
    pub host: String,
    /// Process id on that host.
    pub pid: u32,
    /// When that process started, by its own wall clock; tells a reused pid from the same process.
    pub process_started_at_ms: Option<u64>,
    /// Names the boot of that host, if it was recorded: another one means that all its processes of then
    /// are gone.
    #[serde(default)]
    pub boot: Option<String>,
    /// Names the pid namespace in which `pid` counts, if it was recorded: in another one (a container)
    /// the number means another process.
    #[serde(default)]
    pub pid_namespace: Option<String>,
    /// Program name.
    pub program: String,
    /// Language of the binding.
    pub language: String,
    /// Version of the binding.
    pub version: String,
    /// How long ago it last said so.
    pub seen_ago_ms: u64,
}

/// One broken lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// When, on the store's clock.
    pub at_ms: u64,
    /// The lock.
    pub name: String,
    /// The fencing token of the broken lease.
    pub fencing_token: FencingToken,
    /// Whose lease it was.
    pub holder: ClientId,
    /// Who broke it: user and host.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// An order to break a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakRequest {
    /// The lock.
    pub name: String,
    /// The fencing token of the lease that was looked at. A lock that changed hands since is left alone.
    pub expected: FencingToken,
    /// Who breaks it: user and host.
    pub by: String,
    /// Why; at most 256 bytes.
    pub reason: String,
}

/// What came of an order to break a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakOutcome {
    /// The lease is over.
    Broken {
        /// Whose it was.
        holder: ClientId,
        /// Who has the lock now, if a client waited.
        next: Option<ClientId>,
    },
    /// The lock was free.
    Free,
    /// Another client holds it now, under this fencing token; nothing was changed.
    ChangedHands {
        /// The token of the present lease.
        present: FencingToken,
    },
}

/// A change between two readings of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A contender is queued.
    Waiting {
        /// Position in the queue.
        position: u32,
    },
    /// A waiter left the queue without the lock.
    StoppedWaiting,
    /// A lease began.
    Granted {
        /// Its fencing token.
        fencing_token: Option<FencingToken>,
    },
    /// A lease is held in another mode: a writer reads now, or a reader writes.
    Converted {
        /// The mode in which it is held now: `read` or `write`.
        mode: Cow<'static, str>,
        /// Its fencing token: a new one after an upgrade to writing.
        fencing_token: Option<FencingToken>,
    },
    /// A lease was extended.
    Renewed {
        /// How often so far.
        renewals: u32,
    },
    /// No renewal for more than half of the lease.
    Endangered {
        /// What is left.
        remaining_ms: u64,
    },
    /// A lease ended while time was left: released.
    Released,
    /// A lease ended because its time was up.
    Expired,
    /// An operator ended the lease.
    Broken {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
}

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When it was seen, on the store's clock.
    pub at_ms: u64,
    /// The lock.
    pub lock: String,
    /// The client concerned, if known.
    pub client: Option<ClientId>,
    /// What the client says it is doing.
    pub label: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}
