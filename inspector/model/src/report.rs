//! What comes in: readings of stores, or why there is none.

use std::sync::Arc;

use polylatch::inspect::{Event, Snapshot};

use super::connection::ConnectionId;
use super::sight::Sight;

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

/// What came of one look.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The store was read.
    Seen(Sample),
    /// It could not be read.
    Failed {
        /// Why, in words; not harmless.
        message: String,
        /// When it will be tried again.
        retry_in_ms: Option<u64>,
    },
}

/// One reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The store.
    pub snapshot: Arc<Snapshot>,
    /// What happened since the reading before.
    pub events: Vec<Event>,
    /// What this host knew of its processes.
    pub sight: Sight,
    /// After which time the next reading is due.
    pub every_ms: u64,
}
