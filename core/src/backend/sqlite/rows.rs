//! Leases and waiters as rows: finding, writing and deleting them.

use rusqlite::{OptionalExtension, Row, params};

use super::store::{Sql, Store};
use super::units::mode;
use crate::backend::AUDIT_LENGTH;
use crate::backend::rows::{Candidate, EXCLUSIVE, Holder, Now, Push, Rows};
use crate::mode::Mode;

impl Rows for Store<'_> {
    type Error = rusqlite::Error;

    fn now(&self) -> Now {
        self.now
    }

    /// One counter for all names.
    fn counter(&self, _: &str) -> i64 {
        self.counter
    }

    fn next_number(&mut self, _: &str) -> i64 {
        self.counter = (self.counter + 1).max(self.now.wall_us);
        self.counter
    }

    fn holders(&mut self, name: &str) -> Sql<Vec<Holder>> {
        let mut holders = self
            .conn
            .prepare_cached(
                "SELECT owner, fence, client, label, acquired_ms, ends_ms, mode, permits, capacity FROM lease \
                 WHERE name = ?1 ORDER BY fence",
            )?
            .query_map(params![name], holder)?
            .collect::<Sql<Vec<_>>>()?;
        let rows = holders.len();
        holders.retain(|holder| holder.ends_ms > self.now.clock_ms);
        if holders.len() < rows {
            self.run(
                "DELETE FROM lease WHERE name = ?1 AND ends_ms <= ?2",
                params![name, self.now.clock_ms],
            )?;
        }
        Ok(holders)
    }

    fn add(&mut self, name: &str, held: &Holder, lease_ms: i64, first_ms: i64) -> Sql<()> {
        self.run(
            "INSERT INTO lease (name, owner, fence, client, label, lease_ms, acquired_wall_ms, acquired_ms, \
             ends_ms, mode, permits, capacity, first_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                name,
                held.owner,
                held.fence,
                held.client,
                held.label,
                lease_ms,
                self.now.wall_us / 1000,
                held.acquired_ms,
                held.ends_ms,
                held.mode.code(),
                held.mode.permits(),
                held.mode.kind().capacity(),
                first_ms
            ],
        )?;
        Ok(())
    }

    fn extend(&mut self, name: &str, owner: &str, ends_ms: i64) -> Sql<()> {
        self.run(
            "UPDATE lease SET ends_ms = max(ends_ms, ?3) WHERE name = ?1 AND owner = ?2",
            params![name, owner, ends_ms],
        )?;
        Ok(())
    }

    fn change(&mut self, name: &str, owner: &str, fence: i64, mode: Mode, ends_ms: i64) -> Sql<()> {
        self.run(
            "UPDATE lease SET fence = ?3, ends_ms = max(ends_ms, ?4), mode = ?5, permits = ?6, capacity = ?7 \
             WHERE name = ?1 AND owner = ?2",
            params![name, owner, fence, ends_ms, mode.code(), mode.permits(), mode.kind().capacity()],
        )?;
        Ok(())
    }

    fn end(&mut self, name: &str, owner: &str) -> Sql<()> {
        self.run("DELETE FROM lease WHERE name = ?1 AND owner = ?2", params![name, owner])?;
        Ok(())
    }

    fn front(&mut self, name: &str) -> Sql<Option<(Candidate, i64)>> {
        self.conn
            .prepare_cached(
                "SELECT owner, client, label, lease_ms, first_ms, mode, permits, capacity, silent_ms FROM waiter \
                 WHERE name = ?1 AND mode IN ('mutex', 'read', 'write', 'permits') ORDER BY ticket LIMIT 1",
            )?
            .query_row(params![name], |row| Ok((candidate(row)?, row.get(8)?)))
            .optional()
    }

    /// Its heartbeat has not lapsed, and its process has not ended.
    fn lives(&mut self, client: &str, silent_ms: i64) -> Sql<bool> {
        Ok(self.now.clock_ms < silent_ms && !self.has_ended(client)?)
    }

    fn drop_silent(&mut self, name: &str, most: usize) -> Sql<()> {
        let mut last = None;
        let mut select = self.conn.prepare_cached(
            "SELECT ticket, client, silent_ms FROM waiter WHERE name = ?1 ORDER BY ticket LIMIT ?2",
        )?;
        let mut rows = select.query(params![name, most as i64])?;
        // Many waiters of one client follow each other.
        let mut ended = None;
        while let Some(row) = rows.next()? {
            let (client, silent_ms): (String, i64) = (row.get(1)?, row.get(2)?);
            if self.now.clock_ms < silent_ms && ended.as_ref() != Some(&client) {
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

    fn queue(&mut self, name: &str, who: &Candidate, ticket: i64, silent_ms: i64) -> Sql<()> {
        self.run(
            "INSERT INTO waiter (owner, name, ticket, client, label, lease_ms, first_ms, since_wall_ms, \
             since_ms, silent_ms, mode, permits, capacity) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                who.owner,
                name,
                ticket,
                who.client,
                who.label,
                who.lease_ms,
                who.first_ms,
                self.now.wall_us / 1000,
                self.now.clock_ms,
                silent_ms,
                who.mode.code(),
                who.mode.permits(),
                who.mode.kind().capacity()
            ],
        )?;
        Ok(())
    }

    fn heartbeat(&mut self, _: &str, owner: &str, silent_ms: i64) -> Sql<()> {
        self.run("UPDATE waiter SET silent_ms = ?2 WHERE owner = ?1", params![owner, silent_ms])?;
        Ok(())
    }

    fn ticket(&mut self, name: &str, owner: &str) -> Sql<Option<i64>> {
        self.conn
            .prepare_cached("SELECT ticket FROM waiter WHERE owner = ?1 AND name = ?2")?
            .query_row(params![owner, name], |row| row.get(0))
            .optional()
    }

    fn before(&mut self, name: &str, ticket: i64) -> Sql<u32> {
        self.conn
            .prepare_cached("SELECT count(*) FROM waiter WHERE name = ?1 AND ticket < ?2")?
            .query_row(params![name, ticket], |row| row.get(0))
    }

    fn leave(&mut self, name: &str, owner: &str) -> Sql<bool> {
        Ok(self.run("DELETE FROM waiter WHERE owner = ?1 AND name = ?2", params![owner, name])? > 0)
    }

    fn record(&mut self, name: &str, victim: &Holder, by: &str, reason: &str) -> Sql<()> {
        self.run(
            "INSERT INTO audit (wall_ms, name, owner, fence, client, by, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![self.now.wall_us / 1000, name, victim.owner, victim.fence, victim.client, by, reason],
        )?;
        self.run(
            "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1",
            params![AUDIT_LENGTH as i64],
        )?;
        Ok(())
    }

    /// Those for other clients are ignored by this one; they look at the file.
    fn push(&mut self, _: &str, push: Push) {
        self.pushes.push(push);
    }

    fn unswept(&mut self) -> &mut bool {
        &mut self.unswept
    }
}

fn candidate(row: &Row<'_>) -> Sql<Candidate> {
    Ok(Candidate {
        owner: row.get(0)?,
        client: row.get(1)?,
        label: row.get(2)?,
        lease_ms: row.get(3)?,
        first_ms: row.get(4)?,
        // It was selected by its mode.
        mode: mode(row, 5)?.unwrap_or(EXCLUSIVE),
    })
}

fn holder(row: &Row<'_>) -> Sql<Holder> {
    Ok(Holder {
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
