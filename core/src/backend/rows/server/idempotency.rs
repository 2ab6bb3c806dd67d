//! Records of idempotent work in a table. Every step is one statement, so no session is held for it.

use std::time::Duration;

use super::Server;
use super::backend::DatabaseBackend;
use super::store::Store;
use super::value::{Cells, Param, Statement};
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::backend::rows::{ceil_ms, millis, signed, unsigned};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{Kind, Record, RecordId, Seen, State};
use crate::token::{ClientId, OwnerToken};

/// The statements for records in the dialect of a server. The rows that are read begin with `version, state, fence,
/// fingerprint, client, runs, lease_ms, renewals`, what is left of lease and retention in milliseconds, `written_ms` and
/// the size of the result.
pub(crate) trait RecordStatements: Sync {
    /// Reads a record, unless `but` wrote it: behind the first columns, `owner` and `result`.
    fn record(&self, id: &RecordId, but: Option<OwnerToken>) -> Statement;

    /// Writes over a record of this version (`None`: over none); returns a row with the new version if it did.
    fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Statement;

    /// Lists records, without their results: behind the first columns, `scope`, `key` and `kind`.
    fn list_records(&self, listing: &Listing) -> Statement;
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Key => "key",
        Kind::Token => "token",
    }
}

/// The values of the columns `scope`, `key` and `kind`.
pub(crate) fn id_params(id: &RecordId) -> Vec<Param> {
    vec![id.scope.as_str().into(), id.key.as_str().into(), kind(id.kind).into()]
}

/// What to write: `state, owner, fence, fingerprint, client, runs, lease_ms, renewals`, how long the claim and the record
/// live from now on in milliseconds, and `result`.
pub(crate) fn write_params(record: &Record, lease: Option<Duration>, keep: Option<Duration>) -> Vec<Param> {
    vec![
        record.state.code().into(),
        record.owner.to_hex().into(),
        record.fence.map(signed).into(),
        record.fingerprint.as_str().into(),
        record.client.as_str().into(),
        i64::from(record.runs).into(),
        ceil_ms(record.lease).into(),
        i64::from(record.renewals).into(),
        // Its end is rounded up to a whole millisecond; a claim that ends now is over at once, not after that.
        lease.filter(|lease| !lease.is_zero()).map_or(-1, ceil_ms).into(),
        keep.map(ceil_ms).into(),
        Param::Bytes(record.result.clone()),
    ]
}

/// Reads a row of [`RecordStatements::record`].
fn seen(id: &RecordId, row: &Cells) -> Result<Seen> {
    let mut seen = common(id, row)?;
    seen.record.owner = OwnerToken::from_hex(&row.text(12)).ok_or_else(|| unreadable(id))?;
    seen.record.result = row.bytes(13);
    Ok(seen)
}

/// Reads a row of [`RecordStatements::list_records`].
fn listed(row: &Cells) -> Result<(RecordId, Seen)> {
    let kind = if row.text(14) == "token" { Kind::Token } else { Kind::Key };
    let id = RecordId { kind, scope: row.text(12), key: row.text(13) };
    let seen = common(&id, row)?;
    Ok((id, seen))
}

/// Reads the common columns of a row.
fn common(id: &RecordId, row: &Cells) -> Result<Seen> {
    let count = |at: usize| u32::try_from(row.int(at)).unwrap_or(u32::MAX);
    Ok(Seen {
        version: unsigned(row.int(0)),
        lease_left: millis(row.int(8)),
        keep_left: row.optional_int(9).map(millis),
        written_ms: unsigned(row.int(10)),
        result_bytes: unsigned(row.int(11)),
        record: Record {
            state: State::parse(&row.text(1)).ok_or_else(|| unreadable(id))?,
            owner: OwnerToken::UNREAD,
            fence: Some(unsigned(row.int(2))),
            fingerprint: row.text(3),
            client: ClientId::from_stored(&row.text(4)),
            runs: count(5),
            lease: millis(row.int(6)),
            renewals: count(7),
            result: Vec::new(),
        },
    })
}

fn unreadable(id: &RecordId) -> Error {
    Error::new(
        ErrorKind::BackendRejected,
        format!(
            "the record {:?} in {:?} was written by another version of Polylatch in a form unknown here; use that version \
             or a newer one",
            id.key, id.scope
        ),
    )
}

impl<S: Server> Store<S> {
    async fn record(&self, id: &RecordId) -> Result<Option<Seen>> {
        // Who looks at a database without tables sees an empty one.
        let answers = self.read(&[self.server().records().record(id, None)]).await?.unwrap_or_default();
        answers.first().and_then(|rows| rows.first()).map(|row| seen(id, row)).transpose()
    }

    /// A request that was carried out and lost its answer is refused when it is sent again, and the caller finds its own
    /// record.
    async fn swap_record(&self, id: &RecordId, expected: Option<u64>, put: &Put) -> Result<Swapped> {
        let records = self.server().records();
        let mut statements = vec![records.swap_record(id, expected, put)];
        // A repetition is answered by the same request.
        if let (None, Put::Write { record, .. }) = (expected, put) {
            if let Some(insert) = self.server().insert_or_read(id, put) {
                return self.insert_or_read(id, record.owner, insert).await;
            }
            statements.push(records.record(id, Some(record.owner)));
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

    /// A record of this owner is the one that was to be written: each claim has an owner of its own, so it was written now or
    /// by the same request, whose answer was lost.
    async fn insert_or_read(&self, id: &RecordId, owner: OwnerToken, insert: Statement) -> Result<Swapped> {
        let answers = self.ask(&[insert], true).await?;
        let row = answers.first().and_then(|rows| rows.first());
        let seen = row.map(|row| seen(id, row)).transpose()?;
        Ok(match seen {
            Some(seen) if seen.record.owner == owner => Swapped::Done { version: seen.version },
            seen => Swapped::Refused(seen),
        })
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
            let list = store.server().records().list_records(&listing);
            store.read(&[list]).await?.unwrap_or_default().iter().flatten().map(listed).collect()
        })
    }

    fn purge(&self, most: usize) -> Reply<u64> {
        self.ask("idempotency", move |store| async move { S::purge_records(&store, most).await })
    }
}
