//! One connection: its latest reading, its rows, and what is remembered of it.

use std::collections::VecDeque;
use std::sync::Arc;

use polylatch::inspect::Snapshot;

use super::connection::Connection;
use super::history::{Gap, LockHistory, Logged};
use super::rows::Row;

/// How fresh the picture of a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It was never read.
    Connecting,
    /// It is read as often as it should be.
    Live,
    /// A reading is overdue.
    Late {
        /// The latest good reading, on the viewer's clock.
        since_ms: u64,
    },
    /// It cannot be read.
    Lost {
        /// The latest good reading, on the viewer's clock; `None` if there was none.
        since_ms: Option<u64>,
        /// Why, harmless.
        why: String,
        /// When it will be tried again, on the viewer's clock.
        retry_at_ms: Option<u64>,
    },
}

/// What watching costs the store.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Requests a second, over the last readings.
    pub requests_per_sec: f64,
    /// How long a reading takes: the mean of the last ones, in milliseconds.
    pub reading_ms: f64,
    /// After which time the next reading comes, in milliseconds.
    pub every_ms: u64,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) connection: Connection,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) rows: Vec<Row>,
    pub(super) gone: Vec<Row>,
    pub(super) events: VecDeque<Logged>,
    pub(super) gaps: VecDeque<Gap>,
}

impl Store {
    /// Makes a connection that was never read.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            snapshot: None,
            rows: Vec::new(),
            gone: Vec::new(),
            events: VecDeque::new(),
            gaps: VecDeque::new(),
        }
    }

    /// Returns what it is.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns how fresh it is.
    pub fn phase(&self, _now_ms: u64) -> Phase {
        Phase::Connecting
    }

    /// Says whether its rows may be shown as the present.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.phase(now_ms) == Phase::Live
    }

    /// Returns the latest reading.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// Returns one row per lock of the latest reading, in the order of their names.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns rows of locks that were there a moment ago.
    pub fn gone(&self) -> &[Row] {
        &self.gone
    }

    /// Returns what is remembered of a lock.
    pub fn history(&self, _lock: &str) -> Option<&LockHistory> {
        None
    }

    /// Returns what happened, oldest first.
    pub fn events(&self) -> &VecDeque<Logged> {
        &self.events
    }

    /// Returns the times without data, oldest first.
    pub fn gaps(&self) -> &VecDeque<Gap> {
        &self.gaps
    }

    /// Returns the store's time as of `now_ms`, the viewer's; for the right end of timelines.
    pub fn store_now_ms(&self, now_ms: u64) -> u64 {
        now_ms
    }

    /// Returns how far the store's clock is ahead of the viewer's, in milliseconds, as far as the round
    /// trip lets it be known.
    pub fn clock_ahead_ms(&self) -> Option<i64> {
        None
    }

    /// Returns what watching costs.
    pub fn cost(&self) -> Cost {
        Cost::default()
    }
}
