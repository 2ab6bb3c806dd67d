//! Leases and waiters as rows: finding, writing and deleting them.

use rusqlite::{OptionalExtension, Row, params};

use super::store::{Sql, Store};
use super::units::{ceil_ms, millis, mode, unsigned};
use crate::backend::{Contender, HolderHint};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::token::ClientId;

/// Who gets a lock: a contender that asks, or a waiter as it was written down.
pub(crate) struct Candidate {
    pub owner: String,
    pub client: String,
    label: String,
    lease_ms: i64,
    pub first_ms: i64,
    pub mode: Mode,
}

/// One live lease.
pub(crate) struct Holder {
    pub owner: String,
    pub fence: i64,
    pub client: String,
    label: String,
    acquired_ms: i64,
    pub ends_ms: i64,
    pub mode: Mode,
    /// Its mode is one of this version. Another one excludes everything.
    pub is_known: bool,
}

/// Admits no other lease beside it, of any mode.
const EXCLUSIVE: Mode = Mode::Permits { count: u32::MAX, capacity: u32::MAX };

impl Store<'_> {
    /// Reads the live leases of a name, oldest first, and deletes those whose time has passed.
    pub(crate) fn holders(&mut self, name: &str) -> Sql<Vec<Holder>> {
        let mut holders = self
            .conn
            .prepare_cached(
                "SELECT owner, fence, client, label, acquired_ms, ends_ms, mode, permits, capacity FROM lease \
                 WHERE name = ?1 ORDER BY fence",
            )?
            .query_map(params![name], Holder::from_row)?
            .collect::<Sql<Vec<_>>>()?;
        let rows = holders.len();
        holders.retain(|holder| holder.ends_ms > self.now.boot_ms);
        if holders.len() < rows {
            self.run("DELETE FROM lease WHERE name = ?1 AND ends_ms <= ?2", params![name, self.now.boot_ms])?;
        }
        Ok(holders)
    }

    /// Makes a candidate one of the holders.
    pub(crate) fn grant(&mut self, name: &str, holders: &mut Vec<Holder>, to: Candidate) -> Sql<i64> {
        let fence = self.next_number();
        let held = Holder {
            owner: to.owner,
            fence,
            client: to.client,
            label: to.label,
            acquired_ms: self.now.boot_ms,
            ends_ms: self.now.begun_ms + to.first_ms,
            mode: to.mode,
            is_known: true,
        };
        self.run(
            "INSERT INTO lease (name, owner, fence, client, label, lease_ms, acquired_wall_ms, acquired_ms, \
             ends_ms, mode, permits, capacity, first_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                name,
                held.owner,
                fence,
                held.client,
                held.label,
                to.lease_ms,
                self.now.wall_us / 1000,
                held.acquired_ms,
                held.ends_ms,
                held.mode.code(),
                held.mode.permits(),
                held.mode.kind().capacity(),
                to.first_ms
            ],
        )?;
        holders.push(held);
        Ok(fence)
    }

    /// Ends the lease of this holder.
    pub(crate) fn end(&mut self, name: &str, holder: &Holder) -> Sql<usize> {
        self.run("DELETE FROM lease WHERE name = ?1 AND owner = ?2", params![name, holder.owner])
    }

    /// Returns the first waiter, and until when it counts as alive. Those whose mode is of another version
    /// are passed over, and swept when they have expired.
    pub(crate) fn front(&self, name: &str) -> Sql<Option<(Candidate, i64)>> {
        self.conn
            .prepare_cached(
                "SELECT owner, client, label, lease_ms, first_ms, mode, permits, capacity, silent_ms FROM waiter \
                 WHERE name = ?1 AND mode IN ('mutex', 'read', 'write', 'permits') ORDER BY ticket LIMIT 1",
            )?
            .query_row(params![name], |row| Ok((Candidate::from_row(row)?, row.get(8)?)))
            .optional()
    }

    /// Says whether a waiter counts as alive: its heartbeat has not lapsed, and its process has not ended.
    pub(crate) fn lives(&self, client: &str, silent_ms: i64) -> Sql<bool> {
        Ok(self.now.boot_ms < silent_ms && !self.has_ended(client)?)
    }

    /// Deletes the silent waiters before the first live one, so many at most.
    pub(crate) fn drop_silent(&mut self, name: &str, most: usize) -> Sql<()> {
        let mut last = None;
        let mut select = self.conn.prepare_cached(
            "SELECT ticket, client, silent_ms FROM waiter WHERE name = ?1 ORDER BY ticket LIMIT ?2",
        )?;
        let mut rows = select.query(params![name, most as i64])?;
        // Many waiters of one client follow each other.
        let mut ended = None;
        while let Some(row) = rows.next()? {
            let (client, silent_ms): (String, i64) = (row.get(1)?, row.get(2)?);
            if self.now.boot_ms < silent_ms && ended.as_ref() != Some(&client) {
                if !self.has_ended(&client)? {
                    break;
                }
                ended = Some(client);
            }
            last = Some(row.get::<_, i64>(0)?);
        }
        drop(rows);
        drop(select);
        if let Some(last) = last {
            self.run("DELETE FROM waiter WHERE name = ?1 AND ticket <= ?2", params![name, last])?;
        }
        Ok(())
    }

    /// Stands in line as the last.
    pub(crate) fn queue(&mut self, name: &str, me: &Candidate, ticket: i64, silent_ms: i64) -> Sql<usize> {
        self.run(
            "INSERT INTO waiter (owner, name, ticket, client, label, lease_ms, first_ms, since_wall_ms, \
             since_ms, silent_ms, mode, permits, capacity) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                me.owner,
                name,
                ticket,
                me.client,
                me.label,
                me.lease_ms,
                me.first_ms,
                self.now.wall_us / 1000,
                self.now.boot_ms,
                silent_ms,
                me.mode.code(),
                me.mode.permits(),
                me.mode.kind().capacity()
            ],
        )
    }

    pub(crate) fn ticket(&self, name: &str, owner: &str) -> Sql<Option<i64>> {
        self.conn
            .prepare_cached("SELECT ticket FROM waiter WHERE owner = ?1 AND name = ?2")?
            .query_row(params![owner, name], |row| row.get(0))
            .optional()
    }

    pub(crate) fn standing_before(&self, name: &str, ticket: i64) -> Sql<u32> {
        self.conn
            .prepare_cached("SELECT count(*) FROM waiter WHERE name = ?1 AND ticket < ?2")?
            .query_row(params![name, ticket], |row| row.get(0))
    }

    pub(crate) fn leave_line(&mut self, name: &str, owner: &str) -> Sql<usize> {
        self.run("DELETE FROM waiter WHERE owner = ?1 AND name = ?2", params![owner, name])
    }

    pub(crate) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Sql<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }
}

impl From<&Contender> for Candidate {
    fn from(contender: &Contender) -> Self {
        Self {
            owner: contender.owner.to_hex(),
            client: contender.client.as_str().to_owned(),
            label: contender.label.clone(),
            lease_ms: ceil_ms(contender.lease),
            first_ms: ceil_ms(contender.first_lease),
            mode: contender.mode,
        }
    }
}

impl Candidate {
    fn from_row(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            owner: row.get(0)?,
            client: row.get(1)?,
            label: row.get(2)?,
            lease_ms: row.get(3)?,
            first_ms: row.get(4)?,
            // It was selected by its mode.
            mode: mode(row, 5)?.unwrap_or(EXCLUSIVE),
        })
    }
}

impl Holder {
    fn from_row(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            owner: row.get(0)?,
            fence: row.get(1)?,
            client: row.get(2)?,
            label: row.get(3)?,
            acquired_ms: row.get(4)?,
            ends_ms: row.get(5)?,
            mode: mode(row, 6)?.unwrap_or(EXCLUSIVE),
            is_known: mode(row, 6)?.is_some(),
        })
    }

    pub(crate) fn is(&self, owner: &str, fence: FencingToken) -> bool {
        self.owner == owner && unsigned(self.fence) == fence.get()
    }

    pub(crate) fn hint(&self, boot_ms: i64) -> HolderHint {
        HolderHint {
            client: Some(ClientId::from_stored(&self.client)),
            label: self.label.clone(),
            held_for: Some(millis(boot_ms - self.acquired_ms)),
            left: Some(millis(self.ends_ms - boot_ms)),
        }
    }
}
