//! Until when a waiter waits, for display.
//!
//! In a table of its own, which the first waiter with a limit makes: the schema stays the one that earlier programs know,
//! and they neither read nor write it. A trigger keeps it as small as the queue, whichever program takes a waiter out.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::store::{Sql, Store};
use crate::backend::rows::{ceil_ms, unsigned};
use crate::token::OwnerToken;

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS wait_limit (
    owner         TEXT    NOT NULL PRIMARY KEY,
    until_wall_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS wait_limit_ends AFTER DELETE ON waiter BEGIN
    DELETE FROM wait_limit WHERE owner = OLD.owner;
END;";

impl Store<'_> {
    /// Records, once, how long a queued waiter waits from now on.
    pub(crate) fn limit_wait(&mut self, owner: OwnerToken, left: Duration) -> Sql<()> {
        if !is_kept(self.conn)? {
            self.conn.execute_batch(TABLE)?;
        }
        self.run(
            "INSERT OR IGNORE INTO wait_limit (owner, until_wall_ms) VALUES (?1, ?2)",
            params![owner.to_hex(), (self.now.wall_us / 1000).saturating_add(ceil_ms(left))],
        )?;
        Ok(())
    }
}

/// Whether any waiter of this file has waited with a limit.
pub(crate) fn is_kept(conn: &Connection) -> Sql<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'wait_limit'")?
        .exists([])
}

/// Returns when a waiter gives up, by the wall clock; `None` if it waits without a limit, or an earlier program queued it.
/// The table exists.
pub(crate) fn gives_up_at_ms(conn: &Connection, owner: &str) -> Sql<Option<u64>> {
    let mut select = conn.prepare_cached("SELECT until_wall_ms FROM wait_limit WHERE owner = ?1")?;
    Ok(select.query_row(params![owner], |row| row.get(0)).optional()?.map(unsigned))
}
