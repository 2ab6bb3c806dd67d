//! Verbs become calls.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::acquisition::Acquisitions;
use super::config::ConsulConfig;
use super::delays::Delays;
#[cfg(not(target_family = "wasm"))]
use super::doctor;
use super::inspect::Announced;
use super::lookout::{Lookouts, OldLetters};
use super::protocol::keys::Keys;
use super::push::Inbox;
use super::sessions::Sessions;
use super::transport::api::{self, Api};
use super::transport::errors;
use crate::backend::http::{Server, port_to};
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Capability, Contender, Conversion, OpenContext, Purpose, Released,
    RenewItem, Renewal, Reply,
};
use crate::caller_driven::CallerSteps;
use crate::client_info::ClientInfo;
use crate::clock::Instant;
use crate::error::{ErrorKind, Result};
use crate::host::HttpClient;
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::snapshot::{BreakOutcome, BreakRequest, Query, Snapshot};
#[cfg(not(target_family = "wasm"))]
use crate::snapshot::{Examination, Followed};
use crate::token::ClientId;
use crate::wakeups::Wakeups;

/// What messages of the connections call an agent.
static CONSUL: Server = Server {
    name: "Consul",
    process: "an agent",
    plain_scheme: "consul",
    tls_scheme: "consul+https",
    lets_pages_ask: "http_config.response_headers with Access-Control-Allow-Origin",
};

/// One client's view of one Consul datacenter.
pub(crate) struct ConsulBackend {
    inner: Arc<Inner>,
    capability: Capability,
}

pub(crate) struct Inner {
    pub api: Arc<Api>,
    pub keys: Keys,
    pub sessions: Arc<Sessions>,
    pub acquisitions: Acquisitions,
    pub delays: Delays,
    pub inbox: Inbox,
    pub old_letters: OldLetters,
    pub lookouts: Lookouts,
    pub steps: Arc<CallerSteps>,
    pub wakeups: Arc<Wakeups>,
    pub client: ClientId,
    pub runtime: tokio::runtime::Handle,
    pub closed: AtomicBool,
    pub announced: Announced,
    pub config: ConsulConfig,
}

/// Reads what the configuration names, and asks the agent once.
pub(crate) async fn open(
    config: ConsulConfig,
    context: OpenContext,
    purpose: Purpose,
    hosted: Option<Arc<dyn HttpClient>>,
) -> Result<Arc<dyn Backend>> {
    let port = port_to(&CONSUL, &config.address, hosted.as_ref())?;
    let api = Arc::new(Api::new(port, config.token.clone(), config.scope.clone(), config.timeout));
    let backend = ConsulBackend::new(config, context, api);
    let first = backend.verb(|inner| async move { inner.first_question().await }).await;
    match first {
        // An examination reports everything that is wrong, not only the first refusal.
        Err(error) if purpose == Purpose::Examine && error.kind() == ErrorKind::BackendRejected => {
            tracing::debug!(%error, "opened for examination only");
            Ok(Arc::new(backend))
        }
        Err(error) => Err(error),
        Ok(()) => Ok(Arc::new(backend)),
    }
}

impl ConsulBackend {
    fn new(config: ConsulConfig, context: OpenContext, api: Arc<Api>) -> Self {
        let capability = Capability {
            backend: "consul",
            fifo: true,
            push: true,
            expiry: true,
            sharing: true,
            atomic_sets: true,
            fencing: FenceQuality::Strict,
            min_lease: config.min_lease,
            max_lease: config.max_lease(),
        };
        let sessions = Arc::new(Sessions::new(
            Arc::clone(&api),
            config.keys.clone(),
            context.client.clone(),
            config.sessions.clone(),
        ));
        let inner = Inner {
            api,
            keys: config.keys.clone(),
            sessions,
            acquisitions: Acquisitions::default(),
            delays: Delays::default(),
            inbox: Inbox::default(),
            old_letters: OldLetters::default(),
            lookouts: Lookouts::default(),
            steps: Arc::default(),
            wakeups: context.wakeups,
            client: context.client,
            runtime: context.runtime,
            closed: AtomicBool::new(false),
            announced: Announced::default(),
            config,
        };
        Self { inner: Arc::new(inner), capability }
    }

    /// One verb, carried out to its end whether or not its caller waits for it: one of several requests
    /// must not stop between two of them.
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

    /// Whether an agent with a leader answers, knows the token, and lets it read below the prefix.
    pub(crate) async fn first_question(&self) -> Result<()> {
        let path = format!("/v1/kv/{}", self.keys.audit());
        let response = self.api.ask("GET", &path, "consistent", Vec::new(), self.api.timeout).await?;
        match response.status {
            200 | 404 if response.index.is_some() => Ok(()),
            200 => Err(errors::unreadable(&response, &self.api.place())),
            // Transactions take such keys; only what waits for changes does not.
            _ if errors::refuses_key(&response, &self.keys.audit()) => {
                self.api.warn_of_key(&self.keys.audit());
                self.api.look(&[api::Op::Tree(self.keys.audit())]).await.map(drop)
            }
            _ => Err(errors::refusal(&response, &self.keys.audit(), &self.api.place())),
        }
    }

    pub(crate) async fn close(self: Arc<Self>) -> Result<()> {
        self.closed.store(true, Ordering::SeqCst);
        let mut ending = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            let inner = Arc::clone(&self);
            ending.spawn(async move { inner.sessions.destroy(&session).await });
        }
        while ending.join_next().await.is_some() {}
        for acquisition in self.acquisitions.all() {
            acquisition.stop_asking();
        }
        self.inbox.close();
        self.api.close();
        Ok(())
    }
}

impl Backend for ConsulBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        self.verb(|inner| inner.poll(Arc::clone(contender), ask))
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        let contenders = contenders.to_vec();
        self.verb(|inner| inner.take_all(contenders))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.verb(|inner| inner.renew(items))
    }

    /// A lease is the TTL of a session, which is fixed when the session is created.
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

    #[cfg(not(target_family = "wasm"))]
    fn follow(&self, query: &Query, before: Option<Followed>) -> Reply<Followed> {
        let query = query.clone();
        self.verb(|inner| inner.follow(query, before))
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

/// The transaction that writes a key unless another one has changed since `index`.
pub(crate) fn write_if_unchanged(guard: &str, index: u64, key: &str, value: &[u8]) -> String {
    let check = api::Op::CheckIndex(guard.to_owned(), index);
    let write = api::Op::Set { key: key.to_owned(), value: value.to_vec(), flags: 0 };
    serde_json::to_string(&[check, write]).unwrap_or_default()
}
