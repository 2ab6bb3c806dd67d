//! What is remembered of a lock: its beats, who held it when, who waited. Bounded.

use std::collections::VecDeque;

use polylatch::ClientId;
use polylatch::inspect::Event;

/// How much is remembered. What is older or rarer is forgotten first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Beats of each lock.
    pub pulses: usize,
    /// Holds of each lock.
    pub holds: usize,
    /// Waits of each lock.
    pub waits: usize,
    /// Events of each connection.
    pub events: usize,
    /// Locks without holder and waiter whose history is kept, of each connection.
    pub quiet_locks: usize,
    /// Times without data, of each connection.
    pub gaps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pulses: 48, holds: 24, waits: 24, events: 5_000, quiet_locks: 2_000, gaps: 64 }
    }
}

/// One place on the renewal strip. Times are the store's, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// When.
    pub at_ms: u64,
    /// What.
    pub kind: PulseKind,
}

/// What a place on the renewal strip is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PulseKind {
    /// The lease began.
    Granted,
    /// It was renewed, this long after the beat before.
    Renewed {
        /// Since the beat before.
        after_ms: u64,
    },
    /// It was due and did not come; a later `Renewed` tells that it came after all.
    Missed,
    /// The lease was over.
    Ended,
}

/// One hold on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who held it; `None` for another program.
    pub client: Option<ClientId>,
    /// What it said it was doing.
    pub label: String,
    /// `mutex`, `read`, `write` or `permits`.
    pub mode: String,
    /// The fencing token.
    pub fencing_token: Option<u64>,
    /// Tells two acquisitions apart.
    pub owner_digest: String,
    /// From when, on the store's clock.
    pub from_ms: u64,
    /// It was held already when the picture began, so `from_ms` may be too late.
    pub began_unseen: bool,
    /// Until when; `None` if it goes on.
    pub to_ms: Option<u64>,
    /// How it ended.
    pub end: Option<HoldEnd>,
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    /// Given back.
    Released,
    /// Its time was up.
    Expired,
    /// Ended by an operator.
    Broken,
    /// It was over after a time without data; how is not known.
    Unseen,
}

/// One wait on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// Who waited.
    pub client: ClientId,
    /// What it said it wanted to do.
    pub label: String,
    /// Tells two acquisitions apart.
    pub owner_digest: String,
    /// Since when, on the store's clock.
    pub from_ms: u64,
    /// Until when; `None` if it goes on.
    pub to_ms: Option<u64>,
    /// It got the lock; otherwise it gave up.
    pub got_it: bool,
}

/// A time in which the store was not read, on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The last good reading before.
    pub from_ms: u64,
    /// The first good reading after.
    pub to_ms: u64,
}

/// What is remembered of one lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHistory {
    /// The renewal strip, oldest first.
    pub pulses: VecDeque<Pulse>,
    /// Who held it, oldest first; those that still hold are among them.
    pub holds: VecDeque<Hold>,
    /// Who waited, oldest first; those that still wait are among them.
    pub waits: VecDeque<Waited>,
}

/// Something that happened, with its number: a consumer remembers the last one it has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Grows by one with every event of a connection.
    pub number: u64,
    /// What happened.
    pub event: Event,
}
