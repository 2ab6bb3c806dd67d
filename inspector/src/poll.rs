//! Reads stores in the background and tells what it finds.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::model::{BreakOrder, BreakResult, Connection, ConnectionId, Update};

/// How a connection is read.
#[derive(Clone)]
pub struct Target {
    /// Its name.
    pub id: ConnectionId,
    /// Its URL, with its secret; never shown.
    pub url: String,
    /// How often it is read, 100 ms to 1 min. A store that answers slowly is read less often.
    pub every: Duration,
    /// Only locks whose name starts with this.
    pub prefix: Option<String>,
    /// Other libraries' locks whose keys match this pattern, too.
    pub foreign: Option<String>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("id", &self.id).field("every", &self.every).finish_non_exhaustive()
    }
}

/// What a poller tells.
#[derive(Debug, Clone)]
pub enum Told {
    /// It is connected: this is what the model needs to know, but for the environment and whether it is
    /// read-only.
    Connected(Connection),
    /// News of a connection.
    Update(Update),
    /// What came of an order.
    Broken(BreakResult),
}

/// Reads stores in the background. Dropping it ends everything that it started.
#[derive(Debug)]
pub struct Poller {}

impl Poller {
    /// Starts. `wake` is called after something was put into the channel, from another thread; it must
    /// return at once.
    pub fn start(_wake: Arc<dyn Fn() + Send + Sync>) -> (Self, Receiver<Told>) {
        let (_, told) = std::sync::mpsc::channel();
        (Self {}, told)
    }

    /// Connects and reads from now on; what was connected under this name before is let go of.
    pub fn watch(&self, _target: Target) {}

    /// Lets go of a connection.
    pub fn forget(&self, _id: &ConnectionId) {}

    /// Reads a connection now, or all.
    pub fn refresh(&self, _id: Option<&ConnectionId>) {}

    /// Ends a lease. `by` is user and host. The result comes through the channel.
    pub fn break_lease(&self, _order: BreakOrder, _by: &str) {}
}

/// The viewer's clock: the wall clock as it was at the start, going on evenly.
#[derive(Debug, Clone, Copy)]
pub struct ViewerClock {
    started: std::time::Instant,
    started_ms: u64,
}

impl ViewerClock {
    /// Starts the clock.
    pub fn start() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let started_ms = u64::try_from(now.as_millis()).unwrap_or(0);
        Self { started: std::time::Instant::now(), started_ms }
    }

    /// Returns milliseconds since the Unix epoch; never goes back.
    pub fn now_ms(&self) -> u64 {
        self.started_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }
}
