//! Verbs become calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::care::Care;
use super::config::RedlockConfig;
use super::gate::Shape;
use super::live::Live;
use super::push::Inbox;
use super::transport::fanout::{Fanout, Limits};
use super::transport::node::Node;
use crate::backend::redis::RedisConfig;
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::announcement;
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::{
    Answer, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released, RenewItem,
    Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::admission::Standing;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::quorum::{Proposals, Quorum};
use crate::service::Jobs;
use crate::snapshot::{BreakOutcome, BreakRequest, Examination, Followed, Query, Snapshot};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

/// How long closing waits for nodes that have not answered a release yet. A busy node answers within that; one that
/// hangs would not, and what it was sent ends with its lease or its heartbeat.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// One client's view of several nodes.
pub(crate) struct RedlockBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

pub(crate) struct Inner {
    pub nodes: Vec<Arc<Node>>,
    pub quorum: Quorum,
    pub shape: Arc<Shape>,
    pub keys: Keys,
    pub limits: Arc<Limits>,
    pub max_lease: Duration,
    pub timeout: Duration,
    pub runtime: tokio::runtime::Handle,
    pub wakeups: Arc<Wakeups>,
    pub client: ClientId,
    pub acquisitions: Acquisitions,
    pub inbox: Inbox,
    pub care: Care,
    /// Releases that a majority has carried out and some node has not answered yet.
    pub leaving: Arc<Jobs>,
    pub closed: AtomicBool,
    pub round_trip: RoundTrip,
    /// For examination only: what was said about TLS.
    pub all_tls: bool,
}

/// What this client asks the nodes for, and has.
#[derive(Default)]
pub(crate) struct Acquisitions {
    pub proposals: Mutex<Proposals>,
    /// Those that wait, or have waited for what they hold.
    pub waiting: Mutex<HashMap<OwnerToken, Waited>>,
    /// The leases that were won and not released.
    pub live: Mutex<HashMap<OwnerToken, Live>>,
}

/// How long a majority lately took to answer, in µs.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip(AtomicU64);

/// What is remembered of a waiting acquisition between its polls.
#[derive(Debug, Clone)]
pub(crate) struct Waited {
    pub since_us: u64,
    pub splits: u32,
    pub seen: Instant,
    /// Its release or cancellation has been sent: nothing that is sent after it may let it wait anywhere.
    pub leaves: bool,
}

impl Waited {
    pub(crate) fn since(since_us: u64) -> Self {
        Self { since_us, splits: 0, seen: Instant::now(), leaves: false }
    }
}

/// Connects to a majority, and refuses what cannot be a store of independent nodes.
pub(crate) async fn open(
    config: RedlockConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let strict = config.guarantee == Guarantee::Strict;
    let inner = Arc::new(Inner::new(&config, &context)?);
    inner.look_at_all().await;
    if purpose == Purpose::Lock {
        inner.refuse_what_cannot_work()?;
    }
    inner.care();
    if inner.nodes.len().is_multiple_of(2) {
        tracing::warn!(
            target: "polylatch", event = "setup_warning", client = inner.client.as_str(),
            which = "this RedLock store", findings = "an even number of nodes",
            "an even number of nodes survives no more failures than one node less; use an odd number"
        );
    }
    debug_assert!(!strict || !inner.nodes.iter().any(|node| node.may_forget()), "such a node is unfit");
    let capability = Capability {
        backend: "redlock",
        fifo: false,
        push: true,
        expiry: true,
        sharing: false,
        atomic_sets: false,
        fencing: inner.fencing(0..inner.nodes.len()),
        min_lease: crate::limits::MIN_LEASE,
        max_lease: inner.max_lease,
    };
    Ok(Arc::new(RedlockBackend { inner, capability }))
}

impl RoundTrip {
    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let now = if before == 0 { took } else { (before * 7 + took) / 8 };
        self.0.store(now, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl Inner {
    pub(crate) fn new(config: &RedlockConfig, context: &OpenContext) -> Result<Self> {
        let nodes =
            config.nodes.iter().map(|node| Node::new(node.clone(), context.runtime.clone()).map(Arc::new));
        let nodes: Vec<_> = nodes.collect::<Result<_>>()?;
        let shape = Shape::new(
            nodes.len(),
            config.keys.named("redlock:gate"),
            config.keys.named("redlock:fence"),
            config.max_lease,
            config.guarantee == Guarantee::Strict,
        );
        Ok(Self {
            quorum: Quorum::of(nodes.len()),
            all_tls: config.nodes.iter().all(RedisConfig::is_tls),
            nodes,
            shape: Arc::new(shape),
            keys: config.keys.clone(),
            limits: Limits::new(config.node_timeout, context.runtime.clone()),
            max_lease: config.max_lease,
            timeout: config.timeout,
            runtime: context.runtime.clone(),
            wakeups: Arc::clone(&context.wakeups),
            client: context.client.clone(),
            acquisitions: Acquisitions::default(),
            inbox: Inbox::default(),
            care: Care::default(),
            leaving: Arc::default(),
            closed: AtomicBool::new(false),
            round_trip: RoundTrip::default(),
        })
    }

    /// What is wrong with the URL is an error; what is wrong with a minority of the nodes is not.
    pub(crate) fn refuse_what_cannot_work(&self) -> Result<()> {
        let unfit: Vec<_> = self.nodes.iter().filter_map(|node| node.unfit()).collect();
        let of_others = unfit.iter().filter(|unfit| unfit.2).count();
        // What a minority says about the number of nodes is that minority's problem.
        if let Some(first) = unfit.iter().find(|unfit| !unfit.2 || of_others >= self.quorum.covering()) {
            let all: Vec<_> = unfit.iter().map(|unfit| unfit.1.as_str()).collect();
            return Err(Error::new(first.0, all.join("; ")));
        }
        let known = self.standings().iter().filter(|standing| **standing != Standing::Unknown).count();
        if known < self.quorum.needed() {
            let rejected: Vec<_> = self.nodes.iter().filter_map(|node| node.rejected()).collect();
            if let Some(first) = rejected.first()
                && rejected.len() >= self.quorum.covering()
            {
                let all: Vec<_> = rejected.iter().map(|rejected| rejected.1.as_str()).collect();
                return Err(Error::new(first.0, all.join("; ")));
            }
            return Err(self.unreachable(&[]));
        }
        for node in self.nodes.iter().filter(|node| node.standing(&self.shape) == Standing::Unknown) {
            let why = node.failure().unwrap_or_default();
            tracing::warn!(
                target: "polylatch", event = "setup_warning", client = self.client.as_str(), which = node.place,
                findings = why, "a node cannot be reached; a majority goes on without it"
            );
        }
        Ok(())
    }

    /// For how long nodes that are needed are waited for beyond the limit of one: most of what the caller
    /// waits, so that it learns which of them were silent.
    pub(crate) fn patience(&self) -> Duration {
        (self.timeout * 9 / 10).saturating_sub(self.limits.limit()).max(self.limits.limit())
    }

    pub(crate) fn ask<T>(&self, requests: Vec<(usize, Reply<T>)>) -> Fanout<T> {
        Fanout::new(&self.limits, requests)
    }

    /// Awaits the answers that are still missing in the background, and notes which nodes stay silent.
    pub(crate) fn settle_late<T: Send + 'static>(
        self: &Arc<Self>,
        mut answers: Fanout<T>,
        each: impl Fn(&Arc<Self>, usize, Result<T>) + Send + 'static,
    ) {
        if answers.is_finished() {
            return;
        }
        let inner = Arc::clone(self);
        // On the runtime whose connections these are.
        let runtime = tokio::runtime::Handle::try_current().unwrap_or_else(|_| self.runtime.clone());
        runtime.spawn(async move {
            let mut told = false;
            loop {
                while let Some((at, answer)) = answers.next().await {
                    let failed = answer.is_err();
                    each(&inner, at, answer);
                    if failed {
                        inner.care();
                    }
                }
                let silent: Vec<_> = answers.unanswered().collect();
                if silent.is_empty() {
                    return;
                }
                if std::mem::replace(&mut told, true) {
                    let no_answer = || Error::new(ErrorKind::BackendUnavailable, "no answer");
                    silent.into_iter().for_each(|at| each(&inner, at, Err(no_answer())));
                    return;
                }
                silent.iter().for_each(|at| inner.nodes[*at].was_silent(inner.limits.limit()));
                inner.care();
                // A connection that is just being made takes longer than an answer on one that is there.
                answers.prolong(inner.timeout);
            }
        });
    }

    /// Says whether the nodes that answer are too few, so that the others have to be tried too.
    pub(crate) fn suspects_are_needed(&self) -> bool {
        self.nodes.iter().filter(|node| node.is_usable(false)).count() < self.quorum.needed()
    }

    /// A number to tell this moment and client from others; not for secrets.
    pub(crate) fn seed(&self) -> u64 {
        crate::clock::wall_us() ^ u64::from(self.client.pid().unwrap_or(0)).rotate_left(32)
    }

    /// The keys of a vote, in the order of the script.
    pub(crate) fn acquire_keys(&self, name: &LockName) -> Vec<String> {
        let mut keys = self.keys.granting(name);
        keys.truncate(3);
        keys.extend([
            self.shape.counter.clone(),
            self.keys.index(),
            self.shape.gate.clone(),
            self.keys.of_lock(name, "turn"),
        ]);
        keys
    }

    /// The keys of a release, in the order of the script.
    pub(crate) fn release_keys(&self, name: &LockName) -> Vec<String> {
        let mut keys = self.keys.granting(name);
        keys.truncate(3);
        keys.extend([self.keys.index(), self.keys.of_lock(name, "turn")]);
        keys
    }

    pub(crate) async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let call = announcement(&self.keys, &client);
        let answers = self.ask_all(|_| call.clone());
        // Only people miss it, so nobody waits for it.
        self.settle_late(answers, |_, _, _| {});
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.nodes.iter().for_each(|node| node.port().close());
    }
}

impl Backend for RedlockBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        Box::pin(Arc::clone(&self.inner).poll(Arc::clone(contender), ask))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        Box::pin(Arc::clone(&self.inner).renew(items))
    }

    fn convert(&self, _: &Arc<Contender>, _: FencingToken, _: Mode) -> Reply<Conversion> {
        let error = Error::new(ErrorKind::Unsupported, "redlock keeps no locks that are shared");
        Box::pin(std::future::ready(Err(error)))
    }

    fn release(&self, contender: &Arc<Contender>, _: FencingToken) -> Reply<Released> {
        Box::pin(Arc::clone(&self.inner).release(Arc::clone(contender)))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).cancel(Arc::clone(contender)))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        Box::pin(Arc::clone(&self.inner).announce(Arc::clone(client)))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let followed = Arc::clone(&self.inner).follow(query.clone(), None);
        Box::pin(async move { Ok(Arc::unwrap_or_clone(followed.await?.snapshot)) })
    }

    fn follow(&self, query: &Query, before: Option<Followed>) -> Reply<Followed> {
        Box::pin(Arc::clone(&self.inner).follow(query.clone(), before))
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        Box::pin(Arc::clone(&self.inner).break_lease(request.clone()))
    }

    fn fence_quality(&self, owner: OwnerToken) -> FenceQuality {
        self.inner.fencing_of(owner)
    }

    fn examine(&self) -> Reply<Examination> {
        Box::pin(Arc::clone(&self.inner).examine())
    }

    fn close(&self) -> Reply<()> {
        self.inner.closed.store(true, Ordering::SeqCst);
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            // Closing a connection drops what was not written to it, and a waiter would stay queued on that node.
            let left = {
                let _context = inner.runtime.enter();
                tokio::time::timeout(LEAVE_WITHIN, inner.leaving.idle())
            };
            let _ = left.await;
            inner.nodes.iter().for_each(|node| node.port().close());
            Ok(())
        })
    }
}
