//! Records of idempotent work in this process.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backend::{MemoryBackend, ready};
use super::store::Now;
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::clock::BootInstant;
use crate::policy::idempotency::{Record, RecordId, Seen};

#[derive(Debug)]
struct Row {
    record: Record,
    version: u64,
    lease_ends: BootInstant,
    kept_until: Option<BootInstant>,
    written_ms: u64,
}

/// All records of one store, and the largest number given out.
#[derive(Debug, Default)]
pub(super) struct Kept {
    rows: BTreeMap<RecordId, Row>,
    counter: u64,
}

impl Row {
    fn seen(&self, now: Now) -> Seen {
        Seen {
            record: self.record.clone(),
            version: self.version,
            lease_left: self.lease_ends.since(now.boot),
            keep_left: self.kept_until.map(|until| until.since(now.boot)),
            written_ms: self.written_ms,
            result_bytes: self.record.result.len() as u64,
        }
    }
}

impl Kept {
    fn read(&self, now: Now, id: &RecordId) -> Option<Seen> {
        self.rows.get(id).map(|row| row.seen(now))
    }

    fn swap(&mut self, now: Now, id: &RecordId, expected: Option<u64>, put: Put) -> Swapped {
        if self.rows.get(id).map(|row| row.version) != expected {
            return Swapped::Refused(self.read(now, id));
        }
        let version = (self.counter + 1).max(now.wall_us);
        self.counter = version;
        match put {
            Put::Delete => {
                self.rows.remove(id);
            }
            Put::Write { mut record, lease, keep } => {
                record.fence.get_or_insert(version);
                let row = Row {
                    record,
                    version,
                    lease_ends: now.boot + lease.unwrap_or(Duration::ZERO),
                    kept_until: keep.map(|keep| now.boot + keep),
                    written_ms: now.wall_us / 1000,
                };
                self.rows.insert(id.clone(), row);
            }
        }
        Swapped::Done { version }
    }

    fn list(&self, now: Now, listing: &Listing) -> Vec<(RecordId, Seen)> {
        let rows = self.rows.iter().filter(|(id, _)| id.scope.starts_with(&listing.scope_prefix));
        let mut seen: Vec<_> = rows
            .map(|(id, row)| {
                let mut seen = row.seen(now);
                seen.record.result.clear();
                (id.clone(), seen)
            })
            .filter(|(_, seen)| !seen.is_expired())
            .collect();
        seen.sort_by(|(one, _), (other, _)| (&one.scope, &one.key).cmp(&(&other.scope, &other.key)));
        seen.truncate(listing.most);
        seen
    }

    fn purge(&mut self, now: Now, most: usize) -> u64 {
        let is_over = |row: &Row| row.kept_until.is_some_and(|until| until <= now.boot);
        let over: Vec<_> =
            self.rows.iter().filter(|(_, row)| is_over(row)).map(|(id, _)| id.clone()).take(most).collect();
        for id in &over {
            self.rows.remove(id);
        }
        over.len() as u64
    }
}

impl Records for MemoryBackend {
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>> {
        ready(Ok(self.with_records(|kept, now| kept.read(now, id))))
    }

    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped> {
        ready(Ok(self.with_records(|kept, now| kept.swap(now, id, expected, put))))
    }

    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>> {
        ready(Ok(self.with_records(|kept, now| kept.list(now, listing))))
    }

    fn purge(&self, most: usize) -> Reply<u64> {
        ready(Ok(self.with_records(|kept, now| kept.purge(now, most))))
    }
}
