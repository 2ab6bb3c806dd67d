//! A lock that lives as long as the transaction of the caller.

use super::statements::clock_us;

/// Makes the row of a lock where there is none. In the caller's transaction it would lock the row of the schema too.
pub(crate) const MAKE: &str = "INSERT INTO polylatch_locks (name, counter) SELECT ?, p.floor FROM polylatch_schema p \
     WHERE p.id = 1 ON DUPLICATE KEY UPDATE counter = polylatch_locks.counter";

/// Takes the row of a lock that no client holds and no client waits for; changes no row otherwise. Time is read before the
/// row is waited for, so a lease that ended meanwhile still counts.
pub(crate) const TAKE: &str = concat!(
    "UPDATE polylatch_locks SET counter = LAST_INSERT_ID(GREATEST(counter + 1, ",
    clock_us!(),
    ")) WHERE name = ? AND is_shared = 0 AND (owner IS NULL OR ends_ms <= ",
    clock_us!(),
    " DIV 1000)"
);

/// The fence, after [`TAKE`] has changed a row.
pub(crate) const FENCE: &str = "SELECT LAST_INSERT_ID()";
