//! Records of idempotent work in a table. Every step is one statement, so no session is held for it.

use super::Server;
use super::backend::DatabaseBackend;
use super::store::Store;
use super::value::{Cells, Statement};
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped, none_kept};
use crate::backend::rows::unsigned;
use crate::error::Result;
use crate::policy::idempotency::{RecordId, Seen};
use crate::token::OwnerToken;

/// The statements for records in the dialect of a server, and what their rows say.
pub(crate) trait RecordStatements: Sync {
    /// Reads a record, unless `but` wrote it.
    fn record(&self, id: &RecordId, but: Option<OwnerToken>) -> Statement;

    /// Writes over a record of this version (`None`: over none); returns a row with the new version if it did.
    fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Statement;

    /// Lists records, without their results.
    fn list_records(&self, listing: &Listing) -> Statement;

    /// Deletes records whose retention is over; returns how many.
    fn purge_records(&self, most: usize) -> Statement;

    /// Reads a row of [`RecordStatements::record`].
    fn seen(&self, id: &RecordId, row: &Cells) -> Result<Seen>;

    /// Reads a row of [`RecordStatements::list_records`].
    fn listed(&self, row: &Cells) -> Result<(RecordId, Seen)>;
}

impl<S: Server> Store<S> {
    fn statements(&self) -> Result<&dyn RecordStatements> {
        self.server().records().ok_or_else(|| none_kept(S::STORE))
    }

    async fn record(&self, id: &RecordId) -> Result<Option<Seen>> {
        // Who looks at a database without tables sees an empty one.
        let answers = self.read(&[self.statements()?.record(id, None)]).await?.unwrap_or_default();
        answers.first().and_then(|rows| rows.first()).map(|row| self.statements()?.seen(id, row)).transpose()
    }

    /// A request that was carried out and lost its answer is refused when it is sent again, and the caller finds its own
    /// record.
    async fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Result<Swapped> {
        let mut statements = vec![self.statements()?.swap_record(id, expected, put)];
        // A repetition is answered by the same request.
        if let (None, Put::Write { record, .. }) = (expected, put) {
            statements.push(self.statements()?.record(id, Some(record.owner)));
        }
        let answers = self.ask(&statements, true).await?;
        if let Some(row) = answers.first().and_then(|rows| rows.first()) {
            return Ok(Swapped::Done { version: unsigned(row.int(0)) });
        }
        match answers.get(1).and_then(|rows| rows.first()) {
            Some(row) => Ok(Swapped::Refused(Some(self.statements()?.seen(id, row)?))),
            None => Ok(Swapped::Refused(self.record(id).await?)),
        }
    }
}

impl<S: Server> Records for DatabaseBackend<S> {
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
            let answers =
                store.read(&[store.statements()?.list_records(&listing)]).await?.unwrap_or_default();
            let statements = store.statements()?;
            answers.iter().flatten().map(|row| statements.listed(row)).collect()
        })
    }

    fn purge(&self, most: usize) -> Reply<u64> {
        self.ask("idempotency", move |store| async move {
            let answers = store.ask(&[store.statements()?.purge_records(most)], true).await?;
            Ok(answers.first().and_then(|rows| rows.first()).map_or(0, |row| unsigned(row.int(0))))
        })
    }
}
