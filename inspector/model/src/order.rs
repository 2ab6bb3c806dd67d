//! Actions on a store, as values: the window, the terminal and the command line send the same ones.

use polylatch::FencingToken;
use polylatch::inspect::BreakOutcome;
use serde::Serialize;

use super::connection::ConnectionId;

/// An order to end a lease that an operator looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakOrder {
    /// Where.
    pub connection: ConnectionId,
    /// The lock.
    pub lock: String,
    /// The fencing token that was looked at: a lock that changed hands since is left alone.
    pub expected: FencingToken,
    /// Why; 1 to 256 bytes without control characters.
    pub reason: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakResult {
    /// The order.
    pub order: BreakOrder,
    /// The outcome, or why there is none; the text is sanitized.
    pub outcome: Result<BreakOutcome, String>,
}

/// One line of this program's own audit file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditLine<'a> {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// User and host.
    pub by: &'a str,
    /// What was ordered and what came of it.
    #[serde(flatten)]
    pub result: &'a BreakResult,
}
