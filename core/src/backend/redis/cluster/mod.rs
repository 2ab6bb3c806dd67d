//! A Redis Cluster: the locks of a prefix are spread over shards, and each shard lives in one slot.
//!
//! A shard is a store of its own under a prefix of its own ([`slots`]): its keys share a slot, so every
//! script of a single server works as it is. This file finds the shard of a lock, and puts together what
//! concerns all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;

use super::backend::{RedisBackend, check_guarantee};
use super::config::RedisConfig;
use crate::backend::records::Records;
use crate::backend::redis::protocol::spelling::key_name;
use crate::backend::{
    Answer, Ask, Backend, Capability, Contender, Conversion, Kept, OpenContext, Purpose, Released, RenewItem,
    Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{BreakOutcome, BreakRequest, ClientView, Examination, Query, Snapshot, Trouble};

mod config;
mod doctor;
mod ear;
mod ears;
mod idempotency;
mod in_slots;
mod nodes;
mod port;
mod slots;
mod spoken;

pub(crate) use config::ClusterConfig;
use nodes::Nodes;
use port::ShardPort;
use slots::SHARDS;

/// How many shards are read at once by a listing.
const READ_AT_ONCE: usize = 64;

/// One client's view of a cluster.
pub(crate) struct ClusterBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

struct Inner {
    nodes: Arc<Nodes>,
    config: RedisConfig,
    context: OpenContext,
    shards: Vec<OnceLock<Arc<RedisBackend>>>,
    /// The shard whose index the next announcement tidies up.
    tidied: AtomicUsize,
}

/// Connects, finds the masters, and refuses what cannot keep the declared guarantee.
pub(crate) async fn open(
    config: ClusterConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let nodes = Nodes::new(&config, context.runtime.clone());
    nodes.refresh().await?;
    let masters = nodes.facts().await?;
    if masters.is_empty() {
        return Err(Error::new(
            ErrorKind::BackendUnavailable,
            "no node of the cluster has slots; make the cluster first: redis-cli --cluster create HOST:PORT …",
        ));
    }
    if purpose == Purpose::Lock {
        nodes.check_coverage()?;
        for (address, facts) in &masters {
            check_guarantee(&config.node, facts, facts.replicas > 0, &address.to_string(), &context.client)?;
        }
    }
    nodes.learn_to_publish().await?;
    let capability = Capability { atomic_sets: false, ..RedisBackend::capability_of(&config.node) };
    let seed = context.client.pid().unwrap_or(0) as usize % SHARDS;
    let inner = Inner {
        nodes,
        config: config.node,
        context,
        shards: (0..SHARDS).map(|_| OnceLock::new()).collect(),
        tidied: AtomicUsize::new(seed),
    };
    Ok(Arc::new(ClusterBackend { inner: Arc::new(inner), capability }))
}

impl Inner {
    fn shard(&self, at: usize) -> &Arc<RedisBackend> {
        self.shards[at].get_or_init(|| {
            let keys = self.config.keys.clone().of_a_shard(slots::tag(at));
            let config = RedisConfig { keys, ..self.config.clone() };
            let port = ShardPort::new(Arc::clone(&self.nodes), slots::slot(at));
            Arc::new(RedisBackend::new(config, self.context.clone(), Box::new(port)))
        })
    }

    fn of(&self, name: &LockName) -> &Arc<RedisBackend> {
        self.shard(slots::shard_of(&key_name(name)))
    }

    /// One batch per shard, at the same time; a shard that cannot be reached keeps no other from being renewed.
    async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let mut of_each: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, item) in items.iter().enumerate() {
            of_each.entry(slots::shard_of(&key_name(&item.contender.name))).or_default().push(at);
        }
        let renewing = of_each.iter().map(|(shard, which)| {
            self.shard(*shard).renew(which.iter().map(|at| items[*at].clone()).collect())
        });
        let mut renewed = vec![Renewal::Unknown; items.len()];
        let mut failed = None;
        for (which, answer) in of_each.values().zip(join_all(renewing).await) {
            match answer {
                Ok(answers) => which.iter().zip(answers).for_each(|(at, answer)| renewed[*at] = answer),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if renewed.iter().all(|renewal| *renewal == Renewal::Unknown) => Err(error),
            _ => Ok(renewed),
        }
    }

    /// Who the client is stands in the first shard; a second one is tidied up at the same time.
    async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let tidied = self.tidied.fetch_add(1, Ordering::Relaxed) % SHARDS;
        if tidied != 0 {
            let _ = self.shard(tidied).announce(&client).await;
        }
        self.shard(0).announce(&client).await
    }

    async fn snapshot(self: Arc<Self>, query: Query) -> Result<Snapshot> {
        let started = Instant::now();
        if query.foreign.is_some() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "other libraries' locks are not listed in a cluster; look at their keys with redis-cli -c",
            ));
        }
        let mut which: Vec<usize> = match &query.name {
            Some(name) => vec![slots::shard_of(&key_name(&LockName::new(name)?))],
            None => (0..SHARDS).collect(),
        };
        if query.name.is_some() && which[0] != 0 {
            which.push(0);
        }
        let of_name = query.name.is_some().then(|| which[0]);
        let reading = iter(which).map(|at| {
            let reply = self.shard(at).snapshot(&query);
            async move { (at, reply.await) }
        });
        let mut reading = reading.buffer_unordered(READ_AT_ONCE);
        let mut all = Snapshot::new("redis", 0);
        let mut clients: BTreeMap<String, ClientView> = BTreeMap::new();
        while let Some((at, reading)) = reading.next().await {
            let shard = reading?;
            all.taken_at_ms = all.taken_at_ms.max(shard.taken_at_ms);
            all.requests += shard.requests;
            all.truncated |= shard.truncated;
            // One primary of several: its locks only.
            all.troubles.extend(
                shard
                    .troubles
                    .into_iter()
                    .map(|trouble| Trouble { node: Some("a primary of the cluster".to_owned()), ..trouble }),
            );
            if of_name.is_none_or(|only| only == at) {
                all.locks.extend(shard.locks);
                all.audit.extend(shard.audit);
            }
            for client in shard.clients {
                let known = clients.entry(client.id.to_string()).or_insert_with(|| client.clone());
                known.seen_ago_ms = known.seen_ago_ms.min(client.seen_ago_ms);
            }
        }
        all.troubles.sort_by(|one, other| one.detail.cmp(&other.detail));
        all.troubles.dedup();
        all.locks.sort_by(|one, other| one.name.cmp(&other.name));
        if all.locks.len() > query.limit() {
            all.locks.truncate(query.limit());
            all.truncated = true;
        }
        all.audit.sort_by_key(|entry| std::cmp::Reverse(entry.at_ms));
        all.clients = clients.into_values().collect();
        all.round_trip = started.elapsed();
        Ok(all)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.nodes.close();
    }
}

impl Backend for ClusterBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        self.inner.of(&contender.name).poll(contender, ask)
    }

    fn lists_late(&self) -> bool {
        true
    }

    /// The master of a lock's slot, as far as known.
    fn part_of(&self, name: &LockName) -> u64 {
        self.inner.nodes.part_of(slots::slot(slots::shard_of(&key_name(name))))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        Box::pin(Arc::clone(&self.inner).renew(items))
    }

    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        self.inner.of(&contender.name).steal(contender, reason)
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        self.inner.of(&contender.name).convert(contender, fence, to)
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        self.inner.of(&contender.name).release(contender, fence)
    }

    fn can_keep(&self) -> bool {
        true
    }

    fn keep(&self, item: RenewItem, tokens: u64) -> Reply<Kept> {
        self.inner.of(&item.contender.name).keep(item, tokens)
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        self.inner.of(&contender.name).cancel(contender)
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).announce(Arc::clone(client)))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        Box::pin(Arc::clone(&self.inner).snapshot(query.clone()))
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        match LockName::new(&request.name) {
            Ok(name) => self.inner.of(&name).break_lease(request),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn examine(&self) -> Reply<Examination> {
        Box::pin(doctor::examine(Arc::clone(&self.inner)))
    }

    fn records(&self) -> Result<&dyn Records> {
        Ok(self)
    }

    fn close(&self) -> Reply<()> {
        self.inner.nodes.close();
        Box::pin(std::future::ready(Ok(())))
    }
}
