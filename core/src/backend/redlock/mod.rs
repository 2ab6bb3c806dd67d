//! Several independent Redis servers that decide by majority.
//!
//! Every question goes to all nodes at once and is decided the moment its answer can no longer change
//! ([`crate::policy::quorum`]); late answers are followed up in the background, and what they took is
//! given back. A node that restarted, was promoted or was emptied does not vote until every lease that it
//! may have forgotten has ended ([`crate::policy::admission`]). What stands on a node is in
//! `core/docs/wire-format.md`; the protocol is in `core/docs/backends/redlock.md`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backend::redis::config::Guarantee;
use crate::backend::redis::port::Call;
use crate::backend::redis::records::Keys;
use crate::backend::redis::{RedisConfig, announcement};
use crate::backend::{
    Answer, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released, RenewItem,
    Renewal, Reply,
};
use crate::client_info::ClientInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{BreakOutcome, BreakRequest, Examination, Look, Query, Snapshot};
use crate::mode::Mode;
use crate::name::LockName;
use crate::policy::admission::Standing;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::quorum::{Proposals, Quorum};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::Wakeups;

mod acquire;
mod care;
mod config;
mod examine;
mod fanout;
mod gate;
mod inbox;
mod lease;
mod live;
mod looking;
mod node;
#[cfg(test)]
mod patterns;
mod scripts;

pub(crate) use config::RedlockConfig;
use fanout::{Fanout, Limits};
use gate::Shape;
use inbox::Inbox;
use live::Live;
use node::Node;

/// One client's view of several nodes.
pub(crate) struct RedlockBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

struct Inner {
    nodes: Vec<Arc<Node>>,
    quorum: Quorum,
    shape: Arc<Shape>,
    keys: Keys,
    limits: Arc<Limits>,
    max_lease: Duration,
    timeout: Duration,
    runtime: tokio::runtime::Handle,
    wakeups: Arc<Wakeups>,
    client: ClientId,
    proposals: Mutex<Proposals>,
    /// The acquisitions that wait, or have waited for what they hold.
    waiting: Mutex<HashMap<OwnerToken, Waited>>,
    /// The leases that were won and not released.
    live: Mutex<HashMap<OwnerToken, Live>>,
    inbox: Inbox,
    listens: AtomicBool,
    /// Done once this client takes locks.
    joining: tokio::sync::OnceCell<()>,
    cares: AtomicBool,
    /// Wakes the care that sleeps because all is well.
    calls_for_care: Arc<tokio::sync::Notify>,
    /// Releases that did not reach a node, until when they matter.
    owed: Mutex<Vec<(usize, Instant, Call)>>,
    closed: AtomicBool,
    /// How long a majority lately took to answer, in µs.
    round_trip_us: AtomicU64,
    /// For examination only: what was said about TLS.
    all_tls: bool,
}

/// What is remembered of a waiting acquisition between its polls.
#[derive(Debug, Clone)]
struct Waited {
    since_us: u64,
    splits: u32,
    seen: Instant,
    /// Its release or cancellation has been sent: nothing that is sent after it may let it wait anywhere.
    leaves: bool,
}

impl Waited {
    fn since(since_us: u64) -> Self {
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
        min_lease: crate::options::MIN_LEASE,
        max_lease: inner.max_lease,
    };
    Ok(Arc::new(RedlockBackend { inner, capability }))
}

impl Inner {
    fn new(config: &RedlockConfig, context: &OpenContext) -> Result<Self> {
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
            proposals: Mutex::default(),
            waiting: Mutex::default(),
            live: Mutex::default(),
            inbox: Inbox::default(),
            listens: AtomicBool::new(false),
            joining: tokio::sync::OnceCell::new(),
            calls_for_care: Arc::default(),
            owed: Mutex::default(),
            cares: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            round_trip_us: AtomicU64::new(0),
        })
    }

    /// What is wrong with the URL is an error; what is wrong with a minority of the nodes is not.
    fn refuse_what_cannot_work(&self) -> Result<()> {
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
    fn patience(&self) -> Duration {
        (self.timeout * 9 / 10).saturating_sub(self.limits.limit()).max(self.limits.limit())
    }

    fn ask<T>(&self, requests: Vec<(usize, Reply<T>)>) -> Fanout<T> {
        Fanout::new(&self.limits, requests)
    }

    /// Waits for what is left of a question in the background, and notes who stays silent.
    fn follow<T: Send + 'static>(
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
    fn suspects_are_needed(&self) -> bool {
        self.nodes.iter().filter(|node| node.is_usable(false)).count() < self.quorum.needed()
    }

    fn note_round_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let before = self.round_trip_us.load(Ordering::Relaxed);
        let now = if before == 0 { took } else { (before * 7 + took) / 8 };
        self.round_trip_us.store(now, Ordering::Relaxed);
    }

    fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.load(Ordering::Relaxed))
    }

    /// A number to tell this moment and client from others; not for secrets.
    fn seed(&self) -> u64 {
        acquire::wall_us() ^ u64::from(self.client.pid().unwrap_or(0)).rotate_left(32)
    }

    /// The keys of a vote, in the order of the script.
    fn acquire_keys(&self, name: &LockName) -> Vec<String> {
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
    fn release_keys(&self, name: &LockName) -> Vec<String> {
        let mut keys = self.keys.granting(name);
        keys.truncate(3);
        keys.extend([self.keys.index(), self.keys.of_lock(name, "turn")]);
        keys
    }

    async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let call = announcement(&self.keys, &client);
        let answers = self.ask_all(|_| call.clone());
        // Only people miss it, so nobody waits for it.
        self.follow(answers, |_, _, _| {});
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
        let look = Arc::clone(&self.inner).look(query.clone(), None);
        Box::pin(async move { Ok(Arc::unwrap_or_clone(look.await?.snapshot)) })
    }

    fn look(&self, query: &Query, before: Option<Look>) -> Reply<Look> {
        Box::pin(Arc::clone(&self.inner).look(query.clone(), before))
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
        self.inner.nodes.iter().for_each(|node| node.port().close());
        Box::pin(std::future::ready(Ok(())))
    }
}
