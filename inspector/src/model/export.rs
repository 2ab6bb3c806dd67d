//! The table as JSON, as CSV, and a row as Markdown.

use super::fleet::{Fleet, RowRef};

/// Writes rows as one JSON array, each with its connection, lock view, state and findings.
pub fn json(_fleet: &Fleet, _rows: &[RowRef], _now_ms: u64) -> String {
    String::new()
}

/// Writes rows as CSV (RFC 4180) with a head line. Cells that a spreadsheet would take for a formula
/// begin with an apostrophe.
pub fn csv(_fleet: &Fleet, _rows: &[RowRef], _now_ms: u64) -> String {
    String::new()
}

/// Writes one row as Markdown for a ticket: a table of facts, the findings, the commands.
pub fn markdown(_fleet: &Fleet, _row: RowRef, _now_ms: u64) -> String {
    String::new()
}
