//! Verbs become calls.

use std::sync::Arc;
#[cfg(not(target_family = "wasm"))]
use std::task::{Context, Poll, Waker};

#[cfg(not(target_family = "wasm"))]
use crate::backend::records::Records;
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released,
    RenewItem, Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::clock::Instant;
use crate::error::{Error, ErrorKind, Result};
use crate::host::RedisConnection;
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::snapshot::{BreakOutcome, BreakRequest, Query, Snapshot};
#[cfg(not(target_family = "wasm"))]
use crate::snapshot::{Examination, Followed};
use crate::token::ClientId;
use crate::wakeups::Wakeups;

use super::config::{Acknowledge, Place, RedisConfig};
#[cfg(not(target_family = "wasm"))]
use super::doctor;
#[cfg(not(target_family = "wasm"))]
use super::inspect::follow;
use super::inspect::snapshot;
use super::protocol::call::{Call, Data};
use super::protocol::{Guarantee, Protocol, lists_at_once};
use super::push::Inboxes;
use super::transport::batch::Together;
use super::transport::hosted;
#[cfg(not(target_family = "wasm"))]
use super::transport::native::NativePort;
use super::unlisted::Unlisted;
use crate::backend::redis::transport::port::{Port, ServerFacts};

/// One client's view of one Redis server.
pub(crate) struct RedisBackend {
    pub(super) inner: Arc<Inner>,
    capability: Capability,
}

/// What the verbs of one client share.
pub(crate) struct Inner {
    pub port: Arc<dyn Port>,
    pub protocol: Protocol,
    pub acknowledge: Option<Acknowledge>,
    pub runtime: tokio::runtime::Handle,
    pub wakeups: Arc<Wakeups>,
    pub client: ClientId,
    pub inboxes: Inboxes,
    pub unlisted: Unlisted,
    pub(super) together: Together,
    #[cfg(not(target_family = "wasm"))]
    pub own: doctor::Own,
}

/// Connects, looks at the server, and refuses what cannot keep the declared guarantee.
pub(crate) async fn open(
    config: RedisConfig,
    context: OpenContext,
    purpose: Purpose,
    hosted: Option<Arc<dyn RedisConnection>>,
) -> Result<Arc<dyn Backend>> {
    let port = port_to(&config, &context, hosted)?;
    let facts = port.facts().await?;
    if purpose == Purpose::Examine {
        return Ok(Arc::new(RedisBackend::new(config, context, port)));
    }
    if facts.is_sentinel {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            "this server is a Sentinel, which keeps no locks but says who does; write \
             redis+sentinel://HOST,HOST,HOST/SERVICE",
        ));
    }
    if facts.is_cluster_node {
        return Err(Error::new(
            ErrorKind::BackendRejected,
            "this Redis belongs to a cluster, and the URL names a single server, which has a part of the locks at most; \
             write redis+cluster://",
        ));
    }
    if facts.is_replica {
        return Err(Error::new(
            ErrorKind::BackendRejected,
            "this Redis is a replica, and locks need the primary; connect to the primary",
        ));
    }
    let promotes = matches!(config.place, Place::MasterOf(_));
    check_guarantee(&config, &facts, promotes, "this Redis", &context.client)?;
    Ok(Arc::new(RedisBackend::new(config, context, port)))
}

/// A connection of our own, or what the program brings along.
fn port_to(
    config: &RedisConfig,
    context: &OpenContext,
    hosted: Option<Arc<dyn RedisConnection>>,
) -> Result<Box<dyn Port>> {
    let invalid = |message| Err(Error::new(ErrorKind::InvalidConfig, message));
    match hosted {
        Some(_) if config.acknowledge.is_some() => invalid(
            "ack= holds up its connection until replicas have confirmed, so it needs one that Polylatch opens; leave \
             it out where the program brings the connection along",
        ),
        Some(_) if matches!(config.place, Place::MasterOf(_)) => {
            invalid("where the program opens the connection, it asks the Sentinels, too; write redis://")
        }
        Some(_) if config.user.is_some() || config.password.is_some() || config.database != 0 => invalid(
            "user, password and database belong to the connection, which the host provides; leave them out \
             here",
        ),
        Some(connection) => {
            Ok(Box::new(hosted::HostedPort::new(connection, context.runtime.clone(), config.timeout)))
        }
        #[cfg(not(target_family = "wasm"))]
        None => Ok(Box::new(NativePort::new(config, context.runtime.clone())?)),
        #[cfg(target_family = "wasm")]
        None => invalid(
            "here the program opens the connection to Redis; give its client as `redis`, with a function \
             command(args)",
        ),
    }
}

/// Says what this server cannot promise: an error under `strict`, a warning otherwise.
/// `promotes`: somebody makes a replica its successor without being asked.
pub(crate) fn check_guarantee(
    config: &RedisConfig,
    facts: &ServerFacts,
    promotes: bool,
    which: &str,
    client: &ClientId,
) -> Result<()> {
    let mut findings = Vec::new();
    if facts.epoch.is_none() && config.guarantee == Guarantee::Strict {
        findings.push(
            "this user may not call INFO, so a restart of the server cannot be noticed; allow it with +info"
                .to_owned(),
        );
    }
    if let (Some(limit @ 1..), Some(policy)) = (facts.max_memory, &facts.eviction_policy)
        && policy != "noeviction"
    {
        findings.push(format!(
            "with maxmemory={limit} and maxmemory-policy={policy} it may evict held locks; set maxmemory-policy \
             noeviction, or give locks a server of their own"
        ));
    }
    if facts.replicas > 0 && config.acknowledge.is_none() {
        findings.push(format!(
            "it has {} replicas and grants do not wait for them, so a promotion may lose a held lock; add ack=majority, \
             and min-replicas-to-write on the server",
            facts.replicas
        ));
    }
    if promotes {
        if facts.replicas == 0 && config.acknowledge.is_none() {
            findings.push(
                "a replica may be promoted that has not confirmed the lock; add ack=majority".to_owned(),
            );
        }
        if facts.epoch.is_some() && facts.min_replicas_to_write.is_none() {
            findings.push(
                "a primary that was cut off goes on beside the one that was promoted; set min-replicas-to-write 1 on \
                 every server"
                    .to_owned(),
            );
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    let findings = findings.join("; ");
    if config.guarantee == Guarantee::Strict {
        return Err(Error::new(
            ErrorKind::BackendRejected,
            format!("guarantee=strict cannot be kept by {which}: {findings}"),
        ));
    }
    tracing::warn!(
        target: "polylatch", event = "setup_warning", client = client.as_str(), which, %findings,
        "this Redis may hand one lock to two holders"
    );
    Ok(())
}

impl RedisBackend {
    pub(crate) fn new(config: RedisConfig, context: OpenContext, port: Box<dyn Port>) -> Self {
        let capability = Self::capability_of(&config);
        let inner = Inner {
            #[cfg(not(target_family = "wasm"))]
            own: doctor::Own::of(&config),
            port: Arc::from(port),
            protocol: Protocol::new(config.keys, config.guarantee, config.max_lease),
            acknowledge: config.acknowledge,
            runtime: context.runtime,
            wakeups: context.wakeups,
            client: context.client,
            inboxes: Inboxes::default(),
            unlisted: Unlisted::default(),
            together: Together::default(),
        };
        Self { inner: Arc::new(inner), capability }
    }

    pub(crate) fn capability_of(config: &RedisConfig) -> Capability {
        Capability {
            backend: "redis",
            fifo: true,
            push: true,
            expiry: true,
            sharing: true,
            atomic_sets: true,
            fencing: FenceQuality::TimeFloored,
            min_lease: crate::limits::MIN_LEASE,
            max_lease: config.max_lease,
        }
    }
}

impl Inner {
    pub(crate) async fn one(&self, call: Call, acknowledge: Option<Acknowledge>) -> Result<Data> {
        self.port.one(call, acknowledge).await
    }

    /// A poll or a release of a mutex, which many tasks may make at the same time.
    pub(crate) async fn usual(
        &self,
        contender: &Contender,
        call: Call,
        acknowledge: Option<Acknowledge>,
    ) -> Result<Data> {
        // Who waits for replicas or looks at the epoch of the server has a script of their own.
        let is_plain = self.acknowledge.is_none() && self.protocol.guarantee != Guarantee::Strict;
        if is_plain && self.port.joins_locks() && !lists_at_once(contender) {
            return self.together.run(&self.port, call).await;
        }
        self.one(call, acknowledge).await
    }

    async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        self.one(self.protocol.announce(&client), None).await.map(drop)
    }
}

impl Backend for RedisBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        Box::pin(Arc::clone(&self.inner).poll(Arc::clone(contender), ask))
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        Box::pin(Arc::clone(&self.inner).take_all(contenders.to_vec()))
    }

    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        Box::pin(Arc::clone(&self.inner).steal(Arc::clone(contender), reason.to_owned()))
    }

    fn lists_late(&self) -> bool {
        true
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        Box::pin(Arc::clone(&self.inner).renew(items))
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        Box::pin(Arc::clone(&self.inner).convert(Arc::clone(contender), fence, to))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        Box::pin(Arc::clone(&self.inner).release(Arc::clone(contender), fence))
    }

    #[cfg(not(target_family = "wasm"))]
    fn release_in_turn(&self, contender: &Arc<Contender>, fence: FencingToken) -> Option<Reply<Released>> {
        // With company, one call for all of them saves more than the wait for its answer costs. And a caller that drops
        // many guards at once does not write out all of their releases.
        let is_alone = !self.inner.together.has_company();
        if contender.mode != Mode::Mutex || !is_alone || !self.inner.port.releases_at_once() {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        let mut release: Reply<Released> = Box::pin(inner.release_alone(Arc::clone(contender), fence));
        // Its first poll hands it to the connection. The background polls it again, with a waker.
        Some(match release.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
            Poll::Pending => release,
        })
    }

    /// Other libraries that use the key would wait for it in vain.
    #[cfg(not(target_family = "wasm"))]
    fn can_keep(&self) -> bool {
        !self.inner.protocol.keys.are_shared()
    }

    #[cfg(not(target_family = "wasm"))]
    fn keep(&self, item: RenewItem, tokens: u64) -> Reply<crate::backend::Kept> {
        Box::pin(Arc::clone(&self.inner).keep(item, tokens))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).cancel(Arc::clone(contender)))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).announce(Arc::clone(client)))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let inner = Arc::clone(&self.inner);
        let query = query.clone();
        Box::pin(async move {
            let started = Instant::now();
            let unlisted = inner.unlisted.names();
            let mut snapshot = snapshot::read(&*inner.port, &inner.protocol.keys, &query, unlisted).await?;
            snapshot.round_trip = started.elapsed();
            Ok(snapshot)
        })
    }

    #[cfg(not(target_family = "wasm"))]
    fn follow(&self, query: &Query, before: Option<Followed>) -> Reply<Followed> {
        let inner = Arc::clone(&self.inner);
        let query = query.clone();
        Box::pin(async move {
            let unlisted = inner.unlisted.names();
            follow::follow(&*inner.port, &inner.protocol.keys, &query, unlisted, before).await
        })
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        Box::pin(Arc::clone(&self.inner).break_lease(request.clone()))
    }

    #[cfg(not(target_family = "wasm"))]
    fn examine(&self) -> Reply<Examination> {
        Box::pin(doctor::examine(Arc::clone(&self.inner)))
    }

    #[cfg(not(target_family = "wasm"))]
    fn records(&self) -> Result<&dyn Records> {
        Ok(self)
    }

    fn close(&self) -> Reply<()> {
        self.inner.port.close();
        Box::pin(std::future::ready(Ok(())))
    }
}
