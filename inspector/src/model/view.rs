//! Which rows are shown, in which order, under which headings.

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::fleet::{Fleet, RowRef};

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// Severity, then waiters, then how long it is held.
    #[default]
    Attention,
    /// State.
    State,
    /// Name of the lock.
    Lock,
    /// Connection.
    Connection,
    /// Kind of store.
    Backend,
    /// In which way it is held.
    Mode,
    /// Host and process.
    Holder,
    /// Program.
    Program,
    /// Language of the binding.
    Language,
    /// What the holder says it is doing.
    Label,
    /// Fencing token.
    Fence,
    /// What is left of the lease.
    Left,
    /// Since the latest renewal.
    Renewed,
    /// Missed beats.
    Missed,
    /// How many wait.
    Waiters,
    /// How long it is held.
    Held,
    /// Hand-offs a minute.
    HandOffs,
}

/// An order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Sort {
    /// By what.
    pub column: Column,
    /// The other way round. The natural way is problems, most and longest first, and texts from A to Z.
    pub reversed: bool,
}

/// What rows are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Nothing.
    #[default]
    None,
    /// The name up to and with its first `/` or `:`.
    Prefix,
    /// The process that holds.
    Holder,
    /// The host of the holder.
    Host,
    /// The holder's program.
    Program,
    /// The connection.
    Connection,
    /// The state.
    State,
}

/// A way to look at the locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// What passes.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// Under which headings.
    pub group: Group,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A heading.
    Heading {
        /// Harmless.
        title: String,
        /// How many rows stand below it.
        rows: usize,
        /// How many of them need attention.
        attention: usize,
    },
    /// A lock.
    Row(RowRef),
}

/// What is to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines {
    /// Headings and rows, in order.
    pub lines: Vec<Line>,
    /// How many rows pass the filter.
    pub matching: usize,
    /// How many rows there are.
    pub all: usize,
}

impl View {
    /// Selects, orders and groups the rows, with ages as of `now_ms`, the viewer's time.
    pub fn lines(&self, fleet: &Fleet, now_ms: u64) -> Lines {
        let rows: Vec<RowRef> =
            fleet.row_refs().filter(|at| self.filter.matches(fleet.at(*at), now_ms)).collect();
        let matching = rows.len();
        Lines { lines: rows.into_iter().map(Line::Row).collect(), matching, all: fleet.row_refs().count() }
    }
}
