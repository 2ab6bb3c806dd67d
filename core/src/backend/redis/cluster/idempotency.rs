//! Records of idempotent work in a cluster: each in the shard of its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ClusterBackend, Inner, slots};
use crate::backend::Reply;
use crate::backend::records::{Listing, Put, Records, Swapped};
use crate::backend::redis::backend::RedisBackend;
use crate::backend::redis::idempotency::{first_of, scan};
use crate::backend::redis::protocol::spelling::record_name;
use crate::error::Result;
use crate::policy::idempotency::{RecordId, Seen};

impl Inner {
    fn shard_of_record(&self, id: &RecordId) -> &Arc<RedisBackend> {
        self.shard(slots::shard_of(&record_name(id)))
    }

    /// Scans every primary once, and then asks each shard for its own.
    async fn list_records(self: Arc<Self>, listing: Listing) -> Result<Vec<(RecordId, Seen)>> {
        let mut found = Vec::new();
        for (address, ..) in self.nodes.masters() {
            let port = self.nodes.port(&address)?;
            found.extend(scan(&*port, &self.config.keys).await?);
        }
        let mut of_each: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (id, key) in first_of(found, &listing) {
            of_each.entry(slots::shard_of(&record_name(&id))).or_default().push((id, key));
        }
        let mut records = Vec::new();
        for (shard, found) in of_each {
            records.extend(self.shard(shard).inner.look(found).await?);
        }
        records.sort_by(|(one, _), (other, _)| (&one.scope, &one.key).cmp(&(&other.scope, &other.key)));
        Ok(records)
    }
}

impl Records for ClusterBackend {
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>> {
        self.inner.shard_of_record(id).read(id)
    }

    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped> {
        self.inner.shard_of_record(id).swap(id, expected, put)
    }

    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>> {
        Box::pin(Arc::clone(&self.inner).list_records(listing.clone()))
    }

    /// The servers delete them.
    fn purge(&self, _: usize) -> Reply<u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}
