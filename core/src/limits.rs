//! How short and how long a lease, a wait and a hold limit may be.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Shortest lease: a hundred milliseconds leave time for a renewal over a local network.
pub const MIN_LEASE: Duration = Duration::from_millis(100);

/// Longest lease: a day.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of a lock that does not say. Cheap batched renewal lets it be shorter than the usual 30 s.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

/// Longest wait and longest hold limit: a year.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Checks a duration that a caller gave.
///
/// Errors: `invalid_argument`, which names the option, its value and the range.
pub(crate) fn in_range(option: &str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if value < least || value > most {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{option} is {value:?}; it must be between {least:?} and {most:?}"),
        ));
    }
    Ok(())
}
