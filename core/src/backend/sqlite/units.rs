//! SQLite's integers are signed 64-bit numbers; ours are durations, fences and counts. A mode is three
//! columns.

use std::time::Duration;

use rusqlite::Row;

use crate::mode::Mode;
use crate::policy::fencing::FencingToken;

/// Rounds up, so that a lease in the file never ends before the holder's own reckoning.
pub(crate) fn ceil_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 4)
}

pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(unsigned(ms))
}

pub(crate) fn token(fence: i64) -> FencingToken {
    FencingToken::new(unsigned(fence))
}

pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

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
