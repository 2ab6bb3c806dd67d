//! What comes in: snapshots of stores, or why there is none.

use std::sync::Arc;

use polylatch::inspect::{Event, Snapshot};

use super::connection::ConnectionId;
use super::local::LocalFacts;

/// News of one connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// Which connection.
    pub connection: ConnectionId,
    /// When it came, on the viewer's clock: milliseconds since the Unix epoch, never going back.
    pub at_ms: u64,
    /// What came.
    pub report: Report,
}

/// What one poll of the store returned.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The store was read.
    Polled(Polled),
    /// It could not be read.
    Failed {
        /// Why, in words; not sanitized.
        message: String,
        /// When it will be tried again.
        retry_in_ms: Option<u64>,
    },
}

/// One good poll: the snapshot, and what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Polled {
    /// The store.
    pub snapshot: Arc<Snapshot>,
    /// What happened since the snapshot before.
    pub events: Vec<Event>,
    /// What this host knew of its processes.
    pub local: LocalFacts,
    /// After which time the next snapshot is due.
    pub every_ms: u64,
}
