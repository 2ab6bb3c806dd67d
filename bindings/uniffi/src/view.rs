//! Who holds, who waits: the core's view in records. What a store cannot say is missing, not invented.

#![deny(missing_docs)]

use polylatch::ClientId;
use polylatch::inspect::{self, BreakOutcome, Query};
use polylatch_bridge::Failure;

use crate::options::count;

/// What is looked for; see [`Query`].
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct Look {
    /// Only this lock, also if it is free.
    pub name: Option<String>,
    /// Only locks whose name starts with this.
    pub prefix: Option<String>,
    /// At most this many locks; 10 000 by default.
    pub limit: Option<i64>,
}

impl Look {
    pub(crate) fn checked(self) -> Result<Query, Failure> {
        let limit = self.limit.map(|limit| count("limit", limit)).transpose()?;
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Query { name: self.name, prefix: self.prefix, limit, ..Query::default() })
    }
}

/// Everything that was seen at one moment. Times are the store's own clock, in milliseconds since the
/// Unix epoch; ages come ready-made, in milliseconds.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Snapshot {
    /// Kind of store, such as `redis`.
    pub backend: String,
    /// When this was read.
    pub taken_at_ms: i64,
    /// Locks that are held or waited for, sorted by name.
    pub locks: Vec<LockView>,
    /// The client processes that hold or wait, sorted by id.
    pub clients: Vec<ClientView>,
    /// There were more than the limit.
    pub truncated: bool,
}

/// One lock.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct LockView {
    /// The name of the lock.
    pub name: String,
    /// `mutex`, `rw` or `semaphore`.
    pub mode: String,
    /// Permits of a semaphore.
    pub capacity: Option<i64>,
    /// The holders; empty if it is free.
    pub holders: Vec<HolderView>,
    /// In the order of the queue.
    pub waiters: Vec<WaiterView>,
}

/// Who holds.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct HolderView {
    /// The id of one of the clients.
    pub client: Option<String>,
    /// What the client says it is doing.
    pub label: String,
    /// `mutex`, `read`, `write` or `permits`.
    pub mode: String,
    /// How many permits; 1 for everything that is no semaphore.
    pub permits: i64,
    /// The fencing token of this grant; what a break expects.
    pub fencing_token: Option<i64>,
    /// When it was granted.
    pub acquired_at_ms: Option<i64>,
    /// How long it has been held.
    pub held_for_ms: Option<i64>,
    /// Length of a renewed lease.
    pub lease_ms: Option<i64>,
    /// What is left of the lease.
    pub remaining_ms: Option<i64>,
    /// How often it was renewed.
    pub renewals: Option<i64>,
    /// How long ago it was last renewed.
    pub renewed_ago_ms: Option<i64>,
    /// How long ago it was free for its client's next caller, which keeps it between them (`keep_idle`); a caller may be in
    /// by now. None if it was not so during the last lease, or if the store cannot say.
    pub idle_ago_ms: Option<i64>,
}

/// Who waits.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct WaiterView {
    /// The id of one of the clients.
    pub client: String,
    /// What the client says it is doing.
    pub label: String,
    /// `mutex`, `read`, `write` or `permits`.
    pub mode: String,
    /// How many permits; 1 for everything that is no semaphore.
    pub permits: i64,
    /// Position in the queue, 0 for the next.
    pub position: i64,
    /// When it was queued.
    pub since_ms: i64,
    /// How long it has waited.
    pub waited_ms: i64,
    /// It has not been heard of for too long.
    pub silent: bool,
    /// When it gives up, on the store's clock; none if it waits without a limit, or if that is not known.
    pub gives_up_at_ms: Option<i64>,
}

/// A process that holds or waits.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct ClientView {
    /// The client's id.
    pub id: String,
    /// The name of its host.
    pub host: String,
    /// Its process id there.
    pub pid: i64,
    /// The name of its program.
    pub program: String,
    /// The language of its package.
    pub language: String,
    /// The version of its package.
    pub version: String,
    /// How long ago the store last heard of it.
    pub seen_ago_ms: i64,
}

/// The outcome of a break.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct BreakResult {
    /// `broken`, `free` or `changed_hands`.
    pub outcome: String,
    /// Whose lease was ended.
    pub holder: Option<String>,
    /// Who got the lock.
    pub next_holder: Option<String>,
    /// The token that the present lease has, if it is another.
    pub present: Option<i64>,
}

/// Numbers of the core are far below 2^63.
pub(crate) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn text(id: &ClientId) -> String {
    id.as_str().to_owned()
}

impl From<inspect::Snapshot> for Snapshot {
    fn from(seen: inspect::Snapshot) -> Self {
        Self {
            backend: seen.backend.into_owned(),
            taken_at_ms: whole(seen.taken_at_ms),
            locks: seen.locks.into_iter().map(LockView::from).collect(),
            clients: seen.clients.into_iter().map(ClientView::from).collect(),
            truncated: seen.truncated,
        }
    }
}

impl From<inspect::LockView> for LockView {
    fn from(lock: inspect::LockView) -> Self {
        Self {
            name: lock.name,
            mode: lock.mode.into_owned(),
            capacity: lock.capacity.map(i64::from),
            holders: lock.holders.into_iter().map(HolderView::from).collect(),
            waiters: lock.waiters.into_iter().map(WaiterView::from).collect(),
        }
    }
}

impl From<inspect::HolderView> for HolderView {
    fn from(holder: inspect::HolderView) -> Self {
        Self {
            client: holder.client.as_ref().map(text),
            label: holder.label,
            mode: holder.mode.into_owned(),
            permits: holder.permits.into(),
            fencing_token: holder.fencing_token.map(|token| whole(token.get())),
            acquired_at_ms: holder.acquired_at_ms.map(whole),
            held_for_ms: holder.held_for_ms.map(whole),
            lease_ms: holder.lease_ms.map(whole),
            remaining_ms: holder.remaining_ms.map(whole),
            renewals: holder.renewals.map(i64::from),
            renewed_ago_ms: holder.renewed_ago_ms.map(whole),
            idle_ago_ms: holder.idle_ago_ms.map(whole),
        }
    }
}

impl From<inspect::WaiterView> for WaiterView {
    fn from(waiter: inspect::WaiterView) -> Self {
        Self {
            client: text(&waiter.client),
            label: waiter.label,
            mode: waiter.mode.into_owned(),
            permits: waiter.permits.into(),
            position: waiter.position.into(),
            since_ms: whole(waiter.since_ms),
            waited_ms: whole(waiter.waited_ms),
            silent: waiter.silent,
            gives_up_at_ms: waiter.gives_up_at_ms.map(whole),
        }
    }
}

impl From<inspect::ClientView> for ClientView {
    fn from(client: inspect::ClientView) -> Self {
        Self {
            id: text(&client.id),
            host: client.host,
            pid: client.pid.into(),
            program: client.program,
            language: client.language,
            version: client.version,
            seen_ago_ms: whole(client.seen_ago_ms),
        }
    }
}

impl From<BreakOutcome> for BreakResult {
    fn from(outcome: BreakOutcome) -> Self {
        let none = Self { outcome: String::new(), holder: None, next_holder: None, present: None };
        match outcome {
            BreakOutcome::Broken { holder, next } => Self {
                outcome: "broken".into(),
                holder: Some(text(&holder)),
                next_holder: next.as_ref().map(text),
                ..none
            },
            BreakOutcome::Free => Self { outcome: "free".into(), ..none },
            BreakOutcome::ChangedHands { present } => {
                Self { outcome: "changed_hands".into(), present: Some(whole(present.get())), ..none }
            }
            // One that is added to the crate has to get its word here.
            _ => Self { outcome: "unknown".into(), ..none },
        }
    }
}
