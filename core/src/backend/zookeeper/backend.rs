//! Verbs become calls.

use std::future::Future;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::{
    Answer, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released, RenewItem,
    Renewal, Reply,
};
use crate::caller_driven::CallerSteps;
use crate::client_info::ClientInfo;
use crate::clock::Instant;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::snapshot::{BreakOutcome, BreakRequest, Examination, Query, Snapshot};

use super::acquisitions::Acquisitions;
use super::config::ZooKeeperConfig;
use super::doctor;
use super::inspect::Announced;
use super::leases::Leases;
use super::protocol::answers::code;
use super::protocol::requests;
use super::transport::errors::refused;
use super::transport::pool::Pool;

/// One client's view of one ZooKeeper.
pub(crate) struct ZooKeeperBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

pub(crate) struct Inner {
    pub config: Arc<ZooKeeperConfig>,
    pub pool: Pool,
    pub acquisitions: Acquisitions,
    pub leases: Arc<Leases>,
    pub announced: Mutex<Option<Announced>>,
    pub steps: Arc<CallerSteps>,
    pub runtime: tokio::runtime::Handle,
    pub closed: AtomicBool,
}

/// Connects, and looks whether the chroot is there.
pub(crate) async fn open(
    config: ZooKeeperConfig,
    context: OpenContext,
    purpose: Purpose,
) -> Result<Arc<dyn Backend>> {
    let config = Arc::new(config);
    let inner = Inner {
        pool: Pool::new(Arc::clone(&config), context.wakeups, context.runtime.clone())?,
        config,
        acquisitions: Acquisitions::default(),
        leases: Arc::default(),
        announced: Mutex::default(),
        steps: Arc::default(),
        runtime: context.runtime,
        closed: AtomicBool::new(false),
    };
    let capability = Capability {
        backend: "zookeeper",
        fifo: true,
        push: true,
        expiry: true,
        sharing: true,
        atomic_sets: false,
        fencing: FenceQuality::Strict,
        min_lease: MIN_LEASE,
        max_lease: MAX_LEASE,
    };
    let inner = Arc::new(inner);
    inner.runtime.spawn(Arc::clone(&inner.leases).watch(Arc::downgrade(&inner)));
    let backend = ZooKeeperBackend { inner, capability };
    match backend.verb(|inner| async move { inner.find_chroot().await }).await {
        // An examination reports everything that is wrong, not only the first refusal.
        Err(error) if purpose == Purpose::Examine && error.kind() != ErrorKind::BackendUnavailable => {
            tracing::debug!(%error, "opened for examination only");
            Ok(Arc::new(backend))
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Arc::new(backend)),
    }
}

impl ZooKeeperBackend {
    /// One verb, carried out to its end whether or not its caller waits for it: one of several requests must not stop
    /// between two of them.
    fn verb<T, F>(&self, verb: impl FnOnce(Arc<Inner>) -> F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let work: Reply<T> = Box::pin(verb(Arc::clone(&inner)));
        Box::pin(async move { inner.steps.run(&inner.runtime, work).await })
    }
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Errors: the chroot is not there, or may not be seen.
    async fn find_chroot(self: Arc<Self>) -> Result<()> {
        let chroot = self.config.nodes.chroot();
        let answers = self.pool.main()?.ask(vec![requests::exists(chroot)]).await?;
        match answers[0].code {
            code::OK => Ok(()),
            code::NO_NODE => Err(self.no_chroot()),
            code => Err(refused(code, chroot)),
        }
    }

    pub(crate) fn no_chroot(&self) -> Error {
        let chroot = self.config.nodes.chroot();
        Error::new(
            ErrorKind::BackendRejected,
            format!(
                "ZooKeeper has no node {chroot:?}, which the path of the URL (the chroot) names; nothing was created; \
                 check the path, or create the node with create {chroot}"
            ),
        )
    }

    /// Ends every session of this client, and with them its nodes.
    async fn close(self: Arc<Self>) -> Result<()> {
        self.closed.store(true, Ordering::SeqCst);
        self.leases.wake();
        let mut ending = tokio::task::JoinSet::new();
        for session in self.pool.take_all() {
            ending.spawn(async move { session.end().await });
        }
        while ending.join_next().await.is_some() {}
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leases.wake();
    }
}

impl Backend for ZooKeeperBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        self.verb(|inner| inner.poll(Arc::clone(contender), ask))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.verb(|inner| inner.renew(items))
    }

    /// A lease is that of a session, whose timeout is fixed when it is made.
    fn can_change_lease(&self) -> bool {
        false
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        self.verb(|inner| inner.convert(Arc::clone(contender), fence, to))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        self.verb(|inner| inner.release(Arc::clone(contender), fence))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        self.verb(|inner| inner.cancel(Arc::clone(contender)))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        self.verb(|inner| inner.announce(Arc::clone(client)))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let query = query.clone();
        self.verb(|inner| async move {
            let started = Instant::now();
            let mut snapshot = inner.snapshot(&query).await?;
            snapshot.round_trip = started.elapsed();
            Ok(snapshot)
        })
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        self.verb(|inner| inner.break_lease(request.clone()))
    }

    fn examine(&self) -> Reply<Examination> {
        self.verb(|inner| async move { doctor::examine(&inner).await })
    }

    fn close(&self) -> Reply<()> {
        self.verb(Inner::close)
    }
}
