//! Records of idempotent work in the file.
//!
//! In a table of its own, which the first record makes: the schema stays the one that earlier programs know. A record
//! outlives a restart of the host, so its retention goes by the wall clock. A claim does not: its lease goes by the boot
//! clock of the boot that the row names.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use super::backend::SqliteBackend;
use super::store::{Sql, Store};
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::backend::rows::{Rows, ceil_ms, millis, signed, unsigned};
use crate::policy::idempotency::{Kind, Record, RecordId, Seen, State};
use crate::token::{ClientId, OwnerToken};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS idempotency (
    scope           TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    fence           INTEGER NOT NULL,
    fingerprint     TEXT    NOT NULL,
    client          TEXT    NOT NULL,
    runs            INTEGER NOT NULL,
    lease_ms        INTEGER NOT NULL,
    renewals        INTEGER NOT NULL,
    boot            TEXT    NOT NULL,
    ends_ms         INTEGER NOT NULL,
    keep_until_wall_ms INTEGER,
    written_wall_ms INTEGER NOT NULL,
    result          BLOB    NOT NULL,
    PRIMARY KEY (scope, key, kind)
) STRICT;
CREATE INDEX IF NOT EXISTS idempotency_over ON idempotency (keep_until_wall_ms)
    WHERE keep_until_wall_ms IS NOT NULL;";

/// What is left of the lease in another boot is nothing: its process is gone.
const SELECT: &str = "SELECT version, state, owner, fence, fingerprint, client, runs, lease_ms, renewals, \
     iif(boot = (SELECT boot FROM store), ends_ms, 0), keep_until_wall_ms, written_wall_ms, length(result)";

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Key => "key",
        Kind::Token => "token",
    }
}

impl Store<'_> {
    fn has_records(&self) -> Sql<bool> {
        self.conn
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'idempotency'")?
            .exists([])
    }

    fn record_of(&self, id: &RecordId) -> Sql<Option<Seen>> {
        let sql = format!("{SELECT}, result FROM idempotency WHERE scope = ?1 AND key = ?2 AND kind = ?3");
        let mut select = self.conn.prepare_cached(&sql)?;
        let found = select
            .query_row(params![id.scope, id.key, kind(id.kind)], |row| {
                let mut seen = self.seen_in(row)?;
                seen.record.result = row.get(13)?;
                Ok(seen)
            })
            .optional()?;
        Ok(found)
    }

    /// A record without its result.
    fn seen_in(&self, row: &Row<'_>) -> Sql<Seen> {
        let wall_ms = self.now.wall_us / 1000;
        let (state, owner, client): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(5)?);
        let wrong = |at: usize, text: &str| {
            let text = format!("{text:?} is not known to this version of Polylatch");
            rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, text.into())
        };
        let keep: Option<i64> = row.get(10)?;
        Ok(Seen {
            version: unsigned(row.get(0)?),
            lease_left: millis(row.get::<_, i64>(9)?.saturating_sub(self.now.clock_ms)),
            keep_left: keep.map(|until| millis(until.saturating_sub(wall_ms))),
            written_ms: unsigned(row.get(11)?),
            result_bytes: unsigned(row.get(12)?),
            record: Record {
                state: State::parse(&state).ok_or_else(|| wrong(1, &state))?,
                owner: OwnerToken::from_hex(&owner).ok_or_else(|| wrong(2, "an owner"))?,
                fence: Some(unsigned(row.get(3)?)),
                fingerprint: row.get(4)?,
                client: ClientId::from_stored(&client),
                runs: row.get(6)?,
                lease: millis(row.get(7)?),
                renewals: row.get(8)?,
                result: Vec::new(),
            },
        })
    }

    fn swap(&mut self, id: &RecordId, expected: Option<u64>, put: &Put) -> Sql<Swapped> {
        if !self.has_records()? {
            self.conn.execute_batch(TABLE)?;
        }
        let seen = self.record_of(id)?;
        if seen.as_ref().map(|seen| seen.version) != expected {
            return Ok(Swapped::Refused(seen));
        }
        let version = self.next_number("");
        match put {
            Put::Delete => {
                self.run(
                    "DELETE FROM idempotency WHERE scope = ?1 AND key = ?2 AND kind = ?3",
                    params![id.scope, id.key, kind(id.kind)],
                )?;
            }
            Put::Write { record, lease, keep } => {
                let wall_ms = self.now.wall_us / 1000;
                self.run(
                    "INSERT OR REPLACE INTO idempotency (scope, key, kind, version, state, owner, fence, fingerprint, \
                     client, runs, lease_ms, renewals, boot, ends_ms, keep_until_wall_ms, written_wall_ms, result) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, (SELECT boot FROM store), ?13, ?14, \
                     ?15, ?16)",
                    params![
                        id.scope,
                        id.key,
                        kind(id.kind),
                        version,
                        record.state.code(),
                        record.owner.to_hex(),
                        record.fence.map_or(version, signed),
                        record.fingerprint,
                        record.client.as_str(),
                        record.runs,
                        ceil_ms(record.lease),
                        record.renewals,
                        self.now.begun_ms + ceil_ms(lease.unwrap_or(Duration::ZERO)),
                        keep.map(|keep| wall_ms.saturating_add(ceil_ms(keep))),
                        wall_ms,
                        record.result,
                    ],
                )?;
            }
        }
        Ok(Swapped::Done { version: unsigned(version) })
    }

    fn list_records(&self, listing: &Listing) -> Sql<Vec<(RecordId, Seen)>> {
        if !self.has_records()? {
            return Ok(Vec::new());
        }
        let sql = format!(
            "{SELECT}, scope, key, kind FROM idempotency \
             WHERE substr(scope, 1, length(?1)) = ?1 AND (keep_until_wall_ms IS NULL OR keep_until_wall_ms > ?2) \
             ORDER BY scope, key, kind LIMIT ?3"
        );
        let mut select = self.conn.prepare_cached(&sql)?;
        let most = i64::try_from(listing.most).unwrap_or(i64::MAX);
        let mut rows = select.query(params![listing.scope_prefix, self.now.wall_us / 1000, most])?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            let seen = self.seen_in(row)?;
            let kind = if row.get::<_, String>(15)? == "token" { Kind::Token } else { Kind::Key };
            records.push((RecordId { kind, scope: row.get(13)?, key: row.get(14)? }, seen));
        }
        Ok(records)
    }

    fn purge_records(&mut self, most: usize) -> Sql<u64> {
        if !self.has_records()? {
            return Ok(0);
        }
        let deleted = self.run(
            "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency \
             WHERE keep_until_wall_ms <= ?1 ORDER BY keep_until_wall_ms LIMIT ?2)",
            params![self.now.wall_us / 1000, i64::try_from(most).unwrap_or(i64::MAX)],
        )?;
        Ok(deleted as u64)
    }
}

impl Records for SqliteBackend {
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>> {
        let id = id.clone();
        self.ask_for("idempotency", false, false, move |store| {
            if store.has_records()? { store.record_of(&id) } else { Ok(None) }
        })
    }

    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped> {
        let id = id.clone();
        // A renewal may be lost with its host; an answer, and that there was a claim, may not.
        let is_renewal = matches!(&put, Put::Write { record, .. } if record.renewals > 0
            && record.state == State::Claimed);
        self.ask_for("idempotency", true, !is_renewal, move |store| store.swap(&id, expected, &put))
    }

    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>> {
        let listing = listing.clone();
        self.ask_for("idempotency", false, false, move |store| store.list_records(&listing))
    }

    fn purge(&self, most: usize) -> Reply<u64> {
        self.ask_for("idempotency", true, false, move |store| store.purge_records(most))
    }
}
