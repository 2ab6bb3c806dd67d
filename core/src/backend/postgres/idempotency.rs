//! Records of idempotent work in a table. Every step is one statement, so no session is held for it.

use super::backend::PostgresBackend;
use super::protocol::idempotency::{listed_row, seen};
use super::store::Store;
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::backend::rows::unsigned;
use crate::error::Result;
use crate::policy::idempotency::{RecordId, Seen};

impl Store {
    async fn record(&self, id: &RecordId) -> Result<Option<Seen>> {
        // Who looks at a database without tables sees an empty one.
        let answers = self.read(&[self.schema.record(id, None)]).await?.unwrap_or_default();
        answers.first().and_then(|rows| rows.first()).map(|row| seen(id, row)).transpose()
    }

    /// A request that was carried out and lost its answer is refused when it is sent again, and the caller finds its own
    /// record.
    async fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Result<Swapped> {
        let mut statements = vec![self.schema.swap_record(id, expected, put)];
        // A repetition is answered by the same request.
        if let (None, Put::Write { record, .. }) = (expected, put) {
            statements.push(self.schema.record(id, Some(record.owner)));
        }
        let answers = self.ask(&statements, true).await?;
        if let Some(row) = answers.first().and_then(|rows| rows.first()) {
            return Ok(Swapped::Done { version: unsigned(row.int(0)) });
        }
        match answers.get(1).and_then(|rows| rows.first()) {
            Some(row) => Ok(Swapped::Refused(Some(seen(id, row)?))),
            None => Ok(Swapped::Refused(self.record(id).await?)),
        }
    }
}

impl Records for PostgresBackend {
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>> {
        let id = id.clone();
        self.ask("idempotency", |store| async move { store.record(&id).await })
    }

    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped> {
        let id = id.clone();
        self.ask("idempotency", move |store| async move { store.swap_record(&id, expected, &put).await })
    }

    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>> {
        let listing = listing.clone();
        self.ask("idempotency", |store| async move {
            let answers = store.read(&[store.schema.list_records(&listing)]).await?.unwrap_or_default();
            answers.iter().flatten().map(listed_row).collect()
        })
    }

    fn purge(&self, most: usize) -> Reply<u64> {
        self.ask("idempotency", move |store| async move {
            let answers = store.ask(&[store.schema.purge_records(most)], true).await?;
            Ok(answers.first().and_then(|rows| rows.first()).map_or(0, |row| unsigned(row.int(0))))
        })
    }
}
