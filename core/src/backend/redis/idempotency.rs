//! Records of idempotent work on one server.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::backend::{Inner, RedisBackend};
use super::protocol::call::{Call, Data, no_answer};
use super::protocol::idempotency::{look, read, seen_in, swap, swapped};
use super::protocol::keys::Keys;
use super::protocol::spelling::record_of;
use super::transport::port::Port;
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::policy::idempotency::{RecordId, Seen};

/// How many keys one step of a scan looks at, and how many records are read by one request.
const AT_ONCE: usize = 500;

impl Inner {
    pub(super) async fn read_record(self: Arc<Self>, id: RecordId) -> Result<Option<Seen>> {
        seen_in(&id, self.one(read(&self.protocol.keys, &id), None).await?)
    }

    async fn swap_record(self: Arc<Self>, id: RecordId, expected: Option<u64>, put: Put) -> Result<Swapped> {
        let call = swap(&self.protocol.keys, &id, expected, &put);
        swapped(&id, self.one(call, self.acknowledge).await?)
    }

    async fn list_records(self: Arc<Self>, listing: Listing) -> Result<Vec<(RecordId, Seen)>> {
        let found = scan(&*self.port, &self.protocol.keys).await?;
        self.look(first_of(found, &listing)).await
    }

    /// Reads records without their results. What has gone meanwhile is left out.
    pub(super) async fn look(&self, found: Vec<(RecordId, String)>) -> Result<Vec<(RecordId, Seen)>> {
        let mut records = Vec::with_capacity(found.len());
        for some in found.chunks(AT_ONCE) {
            let calls: Vec<Call> = some.iter().map(|(_, key)| look(key.clone())).collect();
            for ((id, _), answer) in some.iter().zip(self.port.run(calls, None).await?) {
                if let Some(seen) = seen_in(id, answer?)? {
                    records.push((id.clone(), seen));
                }
            }
        }
        Ok(records)
    }
}

/// Finds the keys of all records on one server, a part of its keys at a time.
pub(super) async fn scan(port: &dyn Port, keys: &Keys) -> Result<Vec<(RecordId, String)>> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let words = ["SCAN", &cursor, "MATCH", &keys.records(), "COUNT", &AT_ONCE.to_string()];
        let answer = port.ask(words.map(str::to_owned).to_vec()).await?.map_err(|refusal| {
            Error::new(
                ErrorKind::BackendRejected,
                format!(
                    "this Redis does not let this user list records: {} {}; allow SCAN",
                    refusal.code, refusal.detail
                ),
            )
            .with_effect(Effect::None)
        })?;
        let mut answer = answer.list()?.into_iter();
        cursor = answer.next().ok_or_else(no_answer)?.text()?;
        let keys = answer.next().ok_or_else(no_answer)?.list()?;
        for key in keys.iter().map(Data::text) {
            let key = key?;
            if let Some(id) = Keys::record_in(&key).and_then(record_of) {
                found.push((id, key));
            }
        }
        if cursor == "0" {
            return Ok(found);
        }
    }
}

/// Those that are asked for, each once: a scan may find a key twice.
pub(super) fn first_of(found: Vec<(RecordId, String)>, listing: &Listing) -> Vec<(RecordId, String)> {
    let ours = found.into_iter().filter(|(id, _)| id.scope.starts_with(&listing.scope_prefix));
    let sorted: BTreeSet<_> =
        ours.map(|(id, key)| (id.scope.clone(), id.key.clone(), id.kind, key, id)).collect();
    sorted.into_iter().map(|(.., key, id)| (id, key)).take(listing.most).collect()
}

impl Records for RedisBackend {
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>> {
        Box::pin(Arc::clone(&self.inner).read_record(id.clone()))
    }

    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped> {
        Box::pin(Arc::clone(&self.inner).swap_record(id.clone(), expected, put))
    }

    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>> {
        Box::pin(Arc::clone(&self.inner).list_records(listing.clone()))
    }

    /// The server deletes them.
    fn purge(&self, _: usize) -> Reply<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}
