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
use crate::host::HttpClient;
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
#[cfg(not(target_family = "wasm"))]
use crate::snapshot::Examination;
use crate::snapshot::{BreakOutcome, BreakRequest, Query, Snapshot};
use crate::wakeups::Wakeups;

use super::config::EtcdConfig;
#[cfg(not(target_family = "wasm"))]
use super::doctor;
use super::inspect::Announced;
use super::protocol::keys::Keys;
use super::protocol::requests;
use super::sessions::Sessions;
use super::transport::api::Api;

/// One client's view of one etcd.
pub(crate) struct EtcdBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

pub(crate) struct Inner {
    pub api: Arc<Api>,
    pub keys: Keys,
    pub sessions: Sessions,
    pub announced: Mutex<Option<Announced>>,
    pub steps: Arc<CallerSteps>,
    pub wakeups: Arc<Wakeups>,
    pub runtime: tokio::runtime::Handle,
    pub closed: AtomicBool,
    pub config: EtcdConfig,
}

/// Reads what the configuration names, and asks for the folder of the locks once.
pub(crate) async fn open(
    config: EtcdConfig,
    context: OpenContext,
    purpose: Purpose,
    hosted: Option<Arc<dyn HttpClient>>,
) -> Result<Arc<dyn Backend>> {
    let inner = Inner {
        api: Arc::new(Api::new(&config, hosted.as_ref())?),
        keys: config.keys.clone(),
        sessions: Sessions::default(),
        announced: Mutex::default(),
        steps: Arc::default(),
        wakeups: context.wakeups,
        runtime: context.runtime,
        closed: AtomicBool::new(false),
        config,
    };
    let capability = Capability {
        backend: "etcd",
        fifo: true,
        push: true,
        expiry: true,
        sharing: false,
        atomic_sets: false,
        fencing: FenceQuality::Strict,
        min_lease: MIN_LEASE,
        max_lease: MAX_LEASE,
    };
    let backend = EtcdBackend { inner: Arc::new(inner), capability };
    let first = backend.verb(|inner| async move {
        let folder = inner.keys.all();
        inner.api.range(&requests::front(&folder)).await
    });
    match first.await {
        // An examination reports everything that is wrong, not only the first refusal.
        Err(error) if purpose == Purpose::Examine && error.kind() == ErrorKind::BackendRejected => {
            tracing::debug!(%error, "opened for examination only");
            Ok(Arc::new(backend))
        }
        Err(error) => Err(error),
        Ok(_) => Ok(Arc::new(backend)),
    }
}

impl EtcdBackend {
    /// One verb, carried out to its end whether or not its caller waits for it: one of several requests must not stop
    /// between two of them.
    fn verb<T, F>(&self, verb: impl FnOnce(Arc<Inner>) -> F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let work = Box::pin(verb(Arc::clone(&inner)));
        carried_out(inner, work)
    }
}

/// Generic by what comes of the work and not by the work, of which there are many more kinds.
fn carried_out<T: Send + 'static>(inner: Arc<Inner>, work: Reply<T>) -> Reply<T> {
    Box::pin(async move { inner.steps.run(&inner.runtime, work).await })
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends every lease of this client, and with them its keys.
    async fn close(self: Arc<Self>) -> Result<()> {
        self.closed.store(true, Ordering::SeqCst);
        let mut leases = self.sessions.take_all();
        leases.extend(crate::wakeups::unpoisoned(&self.announced).take().map(|said| said.lease));
        let mut ending = tokio::task::JoinSet::new();
        for lease in leases {
            let api = Arc::clone(&self.api);
            ending.spawn(async move { api.revoke(lease).await });
        }
        while ending.join_next().await.is_some() {}
        self.api.close();
        Ok(())
    }
}

impl Backend for EtcdBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        self.verb(|inner| inner.poll(Arc::clone(contender), ask))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.verb(|inner| inner.renew(items))
    }

    /// A lease is the TTL of a lease of etcd, which is fixed when that is granted.
    fn can_change_lease(&self) -> bool {
        false
    }

    fn convert(&self, _: &Arc<Contender>, _: FencingToken, _: Mode) -> Reply<Conversion> {
        let error = Error::new(ErrorKind::Unsupported, "etcd keeps no locks that are shared");
        Box::pin(std::future::ready(Err(error)))
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

    #[cfg(not(target_family = "wasm"))]
    fn examine(&self) -> Reply<Examination> {
        self.verb(|inner| async move { doctor::examine(&inner).await })
    }

    fn close(&self) -> Reply<()> {
        self.verb(Inner::close)
    }
}
