//! Who the clients are, and what they leave behind.

use std::time::Duration;

use rusqlite::params;

use super::store::{Sql, Store};
use crate::backend::ANNOUNCE_TTL;
use crate::backend::rows::{ceil_ms, signed};
use crate::client_info::ClientInfo;

/// How many rows of each table one sweep looks at, and those of the last name to its end.
const SWEPT_PER_STEP: i64 = 512;

/// How long a silent waiter may still come back to its old place if nobody frees the lock meanwhile.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Where the next sweep goes on; kept between transactions.
#[derive(Debug, Default)]
pub(crate) struct SweepMark {
    lease: String,
    waiter: String,
}

impl Store<'_> {
    /// Records who a client is, and tidies up a little.
    pub(crate) fn announce(&mut self, client: &ClientInfo) -> Sql<()> {
        self.run(
            "DELETE FROM client WHERE seen_ms <= ?1",
            params![self.now.clock_ms - ceil_ms(ANNOUNCE_TTL)],
        )?;
        self.run(
            "INSERT OR REPLACE INTO client \
             (id, host, pid, process_started_wall_ms, program, language, version, seen_ms, pid_namespace) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                client.id.as_str(),
                client.host,
                client.pid,
                client.process_started_at_ms.map(signed),
                client.program,
                client.language,
                client.version,
                self.now.clock_ms,
                client.pid_namespace
            ],
        )?;
        self.sweep()
    }

    /// Deletes what nobody asks for any more: rows of crashed processes under names never used again
    /// would make the file grow for ever. A bounded part of each table per call, in turn.
    fn sweep(&mut self) -> Sql<()> {
        let next = |sql: &str, from: &str| -> Sql<String> {
            let mut statement = self.conn.prepare_cached(sql)?;
            let last: Option<String> =
                statement.query_row(params![from, SWEPT_PER_STEP], |row| row.get(0))?;
            // Past the end: begin anew.
            Ok(last.unwrap_or_default())
        };
        let to = next(
            "SELECT max(name) FROM (SELECT name FROM lease WHERE name > ?1 ORDER BY name LIMIT ?2)",
            &self.sweep_mark.lease,
        )?;
        self.run(
            "DELETE FROM lease WHERE name > ?1 AND name <= ?2 AND ends_ms <= ?3",
            params![self.sweep_mark.lease, to, self.now.clock_ms],
        )?;
        self.sweep_mark.lease = to;
        let to = next(
            "SELECT max(owner) FROM (SELECT owner FROM waiter WHERE owner > ?1 ORDER BY owner LIMIT ?2)",
            &self.sweep_mark.waiter,
        )?;
        self.run(
            "DELETE FROM waiter WHERE owner > ?1 AND owner <= ?2 AND silent_ms <= ?3",
            params![self.sweep_mark.waiter, to, self.now.clock_ms - ceil_ms(FORGOTTEN_AFTER)],
        )?;
        self.sweep_mark.waiter = to;
        Ok(())
    }
}
