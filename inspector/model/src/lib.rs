//! The view of a store's locks that the command line and the window share.
//!
//! A [`Fleet`] takes the snapshots of several stores and remembers; an [`Overview`] shows a single one.
//! Everything is computed from [`Snapshot`](polylatch::inspect::Snapshot)s and from what the host says
//! about its own processes; time is an argument, and there is no I/O. All text in a [`Row`], [`Finding`],
//! [`Line`](view::Line) or [`Alert`] came through [`text::sanitized`] and may be shown as it is; snapshots,
//! histories and names in keys may not.
//!
//! Two clocks: the viewer's (`now_ms`, `sampled_at_ms`; milliseconds since the Unix epoch that never go
//! back) and each store's own (`taken_at_ms`, histories, events).

#![deny(missing_docs)]

pub mod alert;
pub mod beat;
pub mod connection;
pub mod copy;
pub mod deadline;
mod delta;
pub mod event;
pub mod evidence;
mod explain;
pub mod export;
pub mod filter;
pub mod finding;
#[doc(hidden)]
pub mod fixture;
pub mod fleet;
pub mod graph;
pub mod health;
pub mod history;
mod judge;
pub mod link;
pub mod local;
pub mod order;
mod parties;
pub mod recording;
pub mod records;
pub mod replay;
pub mod report;
pub mod rows;
pub mod saved;
pub mod sharing;
mod signs;
pub mod store;
pub mod text;
pub mod verdict;
pub mod view;
pub mod votes;
pub mod wait_for;

use polylatch::inspect::ClientView;
use serde::{Deserialize, Serialize};

pub use alert::{Alarms, Alert, AlertRule};
pub use beat::Beat;
pub use connection::{Connection, ConnectionId, Environment};
pub use evidence::Evidence;
pub use explain::findings;
pub use filter::{Filter, FilterError};
pub use finding::{Finding, Next};
pub use fleet::{Fleet, RowRef};
pub use graph::{Cycle, Wait};
pub use local::LocalFacts;
pub use order::{BreakOrder, BreakResult};
pub use records::Records;
pub use report::{Polled, Report, Update};
pub use rows::{LockState, Mark, Overview, Row, RowKey, Summary, overview, overview_by};
pub use store::{Cost, Phase, Store};
pub use verdict::{Rule, Severity, Verdict};
pub use view::View;
pub use wait_for::Graph;

/// What this host knows about its own processes.
pub trait HostFacts {
    /// The host's name, as clients on it write it into the store.
    fn host_name(&self) -> &str;

    /// Names the boot that the host is in, if it is known.
    fn boot(&self) -> Option<&str> {
        None
    }

    /// Names the pid namespace in which process numbers are looked up, if it is known.
    fn pid_namespace(&self) -> Option<&str> {
        None
    }

    /// Says whether a client's process can be looked up: it runs on this host, and its number counts in
    /// the namespace that is looked at.
    fn is_here(&self, client: &ClientView) -> bool {
        local::is_here(self, client)
    }

    /// Looks a process up. Asked only for clients that say they run on this host.
    fn process(&self, pid: u32) -> Process;

    /// Returns the process that started this one, if it is known and still there.
    fn parent(&self, pid: u32) -> Option<u32>;
}

/// A process of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// There is one of this number.
    Present {
        /// It is stopped, as by SIGSTOP or a debugger, and runs no code.
        stopped: bool,
        /// When it started, by the wall clock.
        started_at_ms: Option<u64>,
    },
    /// There is none, or only its remains.
    Gone,
    /// This platform or this user cannot say.
    Unknown,
}

/// A host that knows nothing, for snapshots from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHostFacts;

impl HostFacts for NoHostFacts {
    fn host_name(&self) -> &str {
        ""
    }

    fn process(&self, _: u32) -> Process {
        Process::Unknown
    }

    fn parent(&self, _: u32) -> Option<u32> {
        None
    }
}
