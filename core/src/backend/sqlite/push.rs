//! Notices what other processes did to the file: grants to waiters of this client, broken leases.
//!
//! SQLite has no messages. `PRAGMA data_version` says cheaply (a few microseconds, no write) whether
//! another connection has committed since the last look; only then are rows read. A grant found here
//! may be entered without asking: its row names the owner and the fence, and rules R1–R5 of
//! [`crate::policy::waiting`] hold for it as for any push.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::backend::rows::{Push, unsigned};
use crate::backend::sqlite::store::Sql;
use crate::backend::sqlite::transport::host::Host;
use crate::token::OwnerToken;
use crate::wakeups::Wakeups;

/// How often to look while an acquisition waits: often while the file changes or requests come, so
/// that short sections are handed on fast, and ever less often while nothing happens. A look costs a
/// few microseconds; the rarest interval bounds the hand-off from another process.
const WHILE_WAITING: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(8);

/// The interval is this part of the time for which nothing has happened.
const CALM_PART: u32 = 32;

/// How often to look while this client only holds: bounds how late a break by another process is told.
const WHILE_HOLDING: Duration = Duration::from_millis(100);

pub(crate) struct Watch {
    wakeups: Arc<Wakeups>,
    client: String,
    version: i64,
    /// Largest fence seen among this client's leases; later grants have larger ones.
    seen_fence: i64,
    /// Newest audit entry seen.
    seen_audit: i64,
    /// Something was asked since this client was last seen to hold nothing.
    may_hold: bool,
    looked: Instant,
    /// When something last happened: a request, or a change by another process.
    stirred: Instant,
}

impl Watch {
    pub(crate) fn start(conn: &Connection, client: String, wakeups: Arc<Wakeups>) -> Sql<Self> {
        Ok(Self {
            wakeups,
            client,
            version: version(conn)?,
            seen_fence: 0,
            seen_audit: conn.query_row("SELECT coalesce(max(id), 0) FROM audit", [], |row| row.get(0))?,
            may_hold: false,
            looked: Instant::now(),
            stirred: Instant::now(),
        })
    }

    /// Delivers what steps of this client's own have pushed.
    pub(crate) fn deliver(&self, pushes: &[Push]) {
        for push in pushes {
            match *push {
                Push::Granted { owner, fence } => self.wakeups.grant(owner, fence),
                Push::Revoked { owner, fence } => self.wakeups.revoked(owner, fence),
            }
        }
    }

    /// A request was served; it may have made this client a holder.
    pub(crate) fn asked(&mut self) {
        self.may_hold = true;
        self.stirred = Instant::now();
    }

    /// How long until the next look is due; `None` while there is nothing to look for.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let every = match (self.wakeups.waiting(), self.may_hold) {
            (1.., _) => {
                (self.stirred.elapsed() / CALM_PART).clamp(*WHILE_WAITING.start(), *WHILE_WAITING.end())
            }
            (0, true) => WHILE_HOLDING,
            (0, false) => return None,
        };
        Some(every.saturating_sub(self.looked.elapsed()))
    }

    /// Looks, if it is due.
    pub(crate) fn look_if_due(&mut self, conn: &Connection, host: &Host) {
        if self.pause() != Some(Duration::ZERO) {
            return;
        }
        if let Err(error) = self.look(conn, host) {
            // Waiters find their grants by polling and holders by renewing; those also tell the error.
            tracing::debug!(%error, "could not look for changes of the lock file");
        }
        self.looked = Instant::now();
    }

    fn look(&mut self, conn: &Connection, host: &Host) -> Sql<()> {
        // First: a break that is committed between this and the version is in the file when the version is
        // read. The other way round nothing would be looked for any more, and the break never told.
        if self.wakeups.waiting() == 0 {
            self.may_hold = conn
                .prepare_cached("SELECT 1 FROM lease WHERE client = ?1 AND ends_ms > ?2")?
                .exists(params![self.client, host.now().clock_ms])?;
        }
        let version = version(conn)?;
        if version != self.version {
            self.look_for_breaks(conn)?;
            self.look_for_grants(conn)?;
            // Last, so that a look that failed is repeated.
            self.version = version;
            self.stirred = Instant::now();
        }
        Ok(())
    }

    fn look_for_grants(&mut self, conn: &Connection) -> Sql<()> {
        let mut statement = conn.prepare_cached(
            "SELECT owner, fence FROM lease WHERE client = ?1 AND fence > ?2 ORDER BY fence",
        )?;
        let mut rows = statement.query(params![self.client, self.seen_fence])?;
        while let Some(row) = rows.next()? {
            let (owner, fence): (String, i64) = (row.get(0)?, row.get(1)?);
            if let Some(owner) = OwnerToken::from_hex(&owner) {
                self.wakeups.grant(owner, unsigned(fence));
            }
            self.seen_fence = fence;
        }
        Ok(())
    }

    fn look_for_breaks(&mut self, conn: &Connection) -> Sql<()> {
        let mut statement =
            conn.prepare_cached("SELECT id, client, owner, fence FROM audit WHERE id > ?1 ORDER BY id")?;
        let mut rows = statement.query(params![self.seen_audit])?;
        while let Some(row) = rows.next()? {
            let (id, client, owner, fence): (i64, String, String, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            if client == self.client
                && let Some(owner) = OwnerToken::from_hex(&owner)
            {
                self.wakeups.revoked(owner, unsigned(fence));
            }
            self.seen_audit = id;
        }
        Ok(())
    }
}

fn version(conn: &Connection) -> Sql<i64> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
