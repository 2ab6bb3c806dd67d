//! A mode is three columns.

use rusqlite::Row;

use crate::mode::Mode;

/// Reads a mode from the columns `mode, permits, capacity`, of which the first is number `at`; `None` for one
/// of another version of Polylatch.
pub(crate) fn mode(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Mode>> {
    Ok(Some(match row.get_ref(at)?.as_str()? {
        "mutex" => Mode::Mutex,
        "read" => Mode::Read,
        "write" => Mode::Write,
        "permits" => Mode::Permits { count: row.get(at + 1)?, capacity: row.get(at + 2)? },
        _ => return Ok(None),
    }))
}
