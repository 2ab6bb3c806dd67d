//! A lock that lives as long as the transaction of the caller.

use super::schema::Schema;
use super::statements::clock_us;

impl Schema {
    /// Takes the row of a lock that no client holds and no client waits for, and returns the next fence; otherwise no row.
    /// It looks first, because a row that is looked at by the write itself stays locked also if it is refused.
    pub(crate) fn take_in_transaction(&self) -> String {
        self.sql(concat!(
            "INSERT INTO {s}.locks AS l (name, counter) SELECT $1, greatest(p.floor + 1, c.us) FROM (SELECT ",
            clock_us!(),
            " AS us OFFSET 0) c, {s}.polylatch_schema p WHERE NOT EXISTS (SELECT FROM {s}.locks h WHERE h.name = $1 \
             AND (h.is_shared OR h.owner IS NOT NULL AND h.ends_ms > c.us / 1000)) \
             ON CONFLICT (name) DO UPDATE SET counter = greatest(l.counter + 1, ",
            clock_us!(),
            ") WHERE NOT l.is_shared AND (l.owner IS NULL OR l.ends_ms <= ",
            clock_us!(),
            " / 1000) RETURNING counter"
        ))
    }
}
