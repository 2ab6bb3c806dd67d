//! One client of one store.

use std::sync::Arc;

use crate::backend::Purpose;
use crate::capability::Capability;
use crate::client_info::ClientInfo;
use crate::clock::{Clock, SystemClock};
use crate::driver::{Core, Handle};
use crate::error::Result;
use crate::host::{Hosted, HttpClient, RedisConnection};
#[cfg(not(target_family = "wasm"))]
use crate::idempotency::{Idempotency, RecordInspector};
use crate::inspect::{Examination, Inspector};
use crate::lock::{Lock, RwLock, Semaphore};
use crate::lock_all::LockAll;
use crate::mode::Mode;
use crate::registry::{self, Opened};
use crate::service::Service;
use crate::stats::Stats;
use crate::token::ClientId;
use crate::wakeups::Wakeups;

/// One client of one store of locks. Cheap to clone; one per process is enough.
///
/// It owns one native thread that renews leases and tells losses, whatever the host program does
/// with its own threads. The thread ends after the last clone and the last guard are gone; see
/// [`crate::Guard`] for what the last drop waits for.
#[derive(Clone)]
pub struct Polylatch {
    core: Handle,
    url: Arc<str>,
}

impl std::fmt::Debug for Polylatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polylatch").field("url", &self.url).field("id", &self.core.client.id).finish()
    }
}

impl Polylatch {
    /// Connects to the store at `url`, such as `sqlite:locks.db`, `redis://localhost` or `memory:`.
    ///
    /// The store is asked once, so a wrong password or an unreachable host is an error here.
    /// Options are query parameters; unknown ones are errors.
    ///
    /// A new SQLite file is readable and writable by its user only (mode 0600). Users of one host who are to
    /// share it create it first, empty, with the rights that they want; Polylatch keeps them.
    ///
    /// Errors: `invalid_config`, `backend_unavailable` within the time limit, `backend_rejected`,
    /// `name_conflict`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).connect().await
    }

    /// Starts a client whose URL comes from `POLYLATCH_URL`, or else is the embedded SQLite file in
    /// the user's state directory.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Names a lock. Nothing is sent before it is acquired.
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock::new(self.core.clone(), name.into(), Mode::Mutex)
    }

    /// Names a lock that many may read or one may write.
    pub fn rw_lock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.core.clone(), name.into())
    }

    /// Names a lock with this many permits, 1 to 1 000.
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Semaphore {
        Semaphore::new(self.core.clone(), name.into(), permits)
    }

    /// Names several locks that are had all together or not at all.
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl Into<String>>) -> LockAll {
        LockAll::of(names.into_iter().map(|name| self.lock(name)))
    }

    /// Names a scope of idempotent work: keys whose work is done once and answered every time, and one-time tokens. Nothing
    /// is sent. On memory, SQLite, Redis (also Sentinel and Cluster) and PostgreSQL; `unsupported` on RedLock and Consul.
    #[cfg(not(target_family = "wasm"))]
    pub fn idempotency(&self, scope: impl Into<String>) -> Idempotency {
        Idempotency::new(self.core.clone(), scope.into())
    }

    /// Returns the view on the records of idempotent work.
    #[cfg(not(target_family = "wasm"))]
    pub fn idempotency_records(&self) -> RecordInspector {
        RecordInspector::new(self.core.clone())
    }

    /// Returns the view on who holds and who waits.
    pub fn inspect(&self) -> Inspector {
        Inspector::new(Arc::clone(&self.core))
    }

    /// Returns what this store, as configured, can do.
    pub fn capability(&self) -> &Capability {
        self.core.backend.capability()
    }

    /// Returns the id under which the store has this client.
    pub fn id(&self) -> &ClientId {
        &self.core.client.id
    }

    /// Returns what this client has done since it was made: waits, holds, renewals, losses and errors, in numbers.
    /// Costs no request and about a microsecond.
    pub fn stats(&self) -> Stats {
        self.core.observer.stats()
    }

    /// Returns the store's URL without its secrets.
    pub fn url_for_display(&self) -> &str {
        &self.url
    }

    /// Ends waiting, releases what is held, and waits (at most 5 s) until the store knows.
    ///
    /// Guards that are still around become released. Later acquisitions fail with `canceled`.
    pub async fn close(&self) {
        self.core.close().await;
    }
}

type OnId = Arc<dyn Fn(&ClientId) + Send + Sync>;

/// How to connect; see [`Polylatch::builder`].
#[derive(Clone, Default)]
pub struct ClientBuilder {
    url: Option<String>,
    options: Vec<(String, String)>,
    program: Option<String>,
    binding: Option<(String, String)>,
    hosted: Hosted,
    on_id: Option<OnId>,
    clock: Option<Arc<dyn Clock>>,
    #[cfg(target_family = "wasm")]
    machine: Option<(String, u32)>,
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("ClientBuilder").field("program", &self.program).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Sets the store's URL with its options.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets an option of the client or of the store, as if it were in the URL's query;
    /// `core/docs/stores.md` lists those that every store has. The value needs no escaping.
    ///
    /// Connecting fails with `invalid_config` if the option is unknown, out of range or in the
    /// URL too.
    #[must_use]
    pub fn option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.push((key.into(), value.into()));
        self
    }

    /// Sets the program name that people see beside held locks; the executable's name by default.
    #[must_use]
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Says which language's binding this is, and its version; `rust` and this crate's by default.
    #[must_use]
    pub fn language(mut self, language: impl Into<String>, version: impl Into<String>) -> Self {
        self.binding = Some((language.into(), version.into()));
        self
    }

    /// Calls `known` with the client's id before the store is asked, so that also the events of connecting
    /// ([`crate::observe`]) can be distinguished from those of other clients.
    #[must_use]
    pub fn on_id(mut self, known: impl Fn(&ClientId) + Send + Sync + 'static) -> Self {
        self.on_id = Some(Arc::new(known));
        self
    }

    /// Counts time by this clock instead of [`SystemClock`]: leases, waits, renewals and time limits. For tests of code
    /// that holds locks: with a [`ManualClock`](crate::ManualClock) a lease of a day ends at once.
    ///
    /// Connecting fails with `unsupported` for a clock that is moved by hand and a store other than `memory:`, because
    /// servers have clocks of their own. Clients that share `memory:NAME` should share the clock.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Goes to Redis over a host-provided connection, instead of opening one. The URL is
    /// `redis://`, with options and without a password; the host in it is for display.
    #[must_use]
    pub fn redis(mut self, connection: Arc<dyn RedisConnection>) -> Self {
        self.hosted.redis = Some(connection);
        self
    }

    /// Sends the HTTP requests of a `consul://` or `etcd://` URL in the program's own way, such as `fetch`.
    #[must_use]
    pub fn http(mut self, client: Arc<dyn HttpClient>) -> Self {
        self.hosted.http = Some(client);
        self
    }

    /// Says for display where this program runs, which this platform does not tell: a host name, and a
    /// process id or 0.
    #[cfg(target_family = "wasm")]
    #[must_use]
    pub fn runs_at(mut self, host: impl Into<String>, pid: u32) -> Self {
        self.machine = Some((host.into(), pid));
        self
    }

    /// Connects. Errors: as [`Polylatch::connect`].
    pub async fn connect(self) -> Result<Polylatch> {
        self.open(Purpose::Lock).await
    }

    /// Connects only to look, also to a store of several nodes of which too few answer for a lock: what can be
    /// read is shown.
    ///
    /// Errors: as [`Polylatch::connect`], if the store cannot be read at all.
    pub async fn connect_to_look(self) -> Result<Polylatch> {
        self.open(Purpose::Look).await
    }

    /// Connects only to examine the store, also one that [`ClientBuilder::connect`] refuses because
    /// it is a replica or cannot keep the declared guarantee. Returns the store's URL without its
    /// secrets, and what was found.
    ///
    /// Errors: as [`Polylatch::connect`], if the store cannot be examined at all.
    pub async fn examine(self) -> Result<(String, Examination)> {
        let client = self.open(Purpose::Examine).await?;
        let examination = client.inspect().examine().await;
        client.close().await;
        Ok((client.url_for_display().to_owned(), examination?))
    }

    async fn open(self, purpose: Purpose) -> Result<Polylatch> {
        let mut url = match self.url {
            Some(url) => url,
            None => registry::default_url()?,
        };
        if !self.options.is_empty() {
            let joint = if url.contains('?') { '&' } else { '?' };
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&self.options);
            url = format!("{url}{joint}{}", query.finish());
        }
        let (language, version) =
            self.binding.unwrap_or_else(|| ("rust".into(), env!("CARGO_PKG_VERSION").into()));
        let client = ClientInfo::of_this_process(self.program, &language, &version)?;
        #[cfg(target_family = "wasm")]
        let client = match &self.machine {
            Some((host, pid)) => client.at(host, *pid)?,
            None => client,
        };
        if let Some(known) = &self.on_id {
            known(&client.id);
        }
        // What is host-provided may be carried out by the very thread that would wait.
        let lingers = !self.hosted.is_any();
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let service = Service::start(Arc::clone(&clock))?;
        let wakeups = Arc::<Wakeups>::default();
        let Opened { backend, settings, display } =
            registry::open(&url, &service, &wakeups, &client.id, purpose, self.hosted, &clock).await?;
        let core = Core::start(backend, clock, service, wakeups, client, settings, purpose);
        Ok(Polylatch { core: Handle::new(core, lingers), url: display.into() })
    }
}
