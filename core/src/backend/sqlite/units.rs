//! SQLite's integers are signed 64-bit numbers; ours are durations, fences and counts.

use std::time::Duration;

use crate::policy::fencing::FencingToken;

/// Rounds up, so that a lease in the file never ends before the holder's own reckoning.
pub(super) fn ceil_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 4)
}

pub(super) fn millis(ms: i64) -> Duration {
    Duration::from_millis(unsigned(ms))
}

pub(super) fn token(fence: i64) -> FencingToken {
    FencingToken::new(unsigned(fence))
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
