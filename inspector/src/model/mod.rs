//! The picture of a store's locks that the command line and the window share.
//!
//! Everything is computed from one [`Snapshot`](polylatch::inspect::Snapshot) and from what the host
//! says about its own processes. All text in a [`Row`], [`Finding`] or [`Cycle`] came through
//! [`text::harmless`] and may be shown as it is; the readings themselves may not.

pub mod findings;
#[cfg(test)]
mod fixture;
pub mod graph;
pub mod rows;
pub mod sharing;
pub mod text;

pub use findings::{Finding, Rule, Severity, findings};
pub use graph::{Cycle, Wait, cycles};
pub use rows::{LockState, Picture, Row, Summary, picture};

/// What this host knows about its own processes.
pub trait HostFacts {
    /// The host's name, as clients on it write it into the store.
    fn host_name(&self) -> &str;

    /// Looks a process up. Asked only for clients that say they run on this host.
    fn process(&self, pid: u32) -> Process;

    /// Returns the process that started this one, if it is known and still there.
    fn parent(&self, pid: u32) -> Option<u32>;
}

/// A process of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A host that knows nothing, for readings from elsewhere.
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
