//! Reads stores in the background and tells what it finds.
//!
//! One thread for all connections, whatever their number. A store that answers quickly is read several times
//! in its interval, one that answers slowly less often, and after a failure with growing pauses until it
//! answers again. Where a store can tell, only what was written since the last snapshot is read.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polylatch::inspect::{BreakRequest, Event, EventKind, Query, Snapshot, changes};
use polylatch::{Polylatch, Retry};
use tokio::sync::{Notify, mpsc, watch};

use crate::ThisHost;
use crate::pace::Pace;
use model::records::RecordsRead;
use model::text::{sanitized, shell_word};
use model::{
    BreakOrder, BreakResult, Connection, ConnectionId, Environment, LocalFacts, Polled, Records, Report,
    Update,
};

/// Updates that wait for the consumer. A snapshot that does not fit is left out; the next one says what
/// happened since the last one that was reported.
const MOST_WAITING: usize = 32;

/// First and longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How a connection is read.
#[derive(Clone)]
pub struct Target {
    /// Its name.
    pub id: ConnectionId,
    /// Its URL, with its secret; never shown. Empty for the default store.
    pub url: String,
    /// How often it is read if that costs next to nothing; at most `every`.
    pub quick: Duration,
    /// How often it is read if a snapshot is expensive, 100 ms to 1 min; four times as rarely while nothing
    /// happens, unless it is read evenly. No store is read for more than a quarter
    /// of the time, nor with more than 2 500 requests a second on the average.
    pub every: Duration,
    /// Only locks whose name starts with this.
    pub prefix: Option<String>,
    /// Other libraries' locks whose keys match this pattern, too.
    pub foreign: Option<String>,
    /// Orders to break a lease are refused.
    pub read_only: bool,
}

impl Target {
    /// A connection that is read once a second, or five times if it answers quickly, and may be changed.
    pub fn new(id: ConnectionId, url: impl Into<String>) -> Self {
        let (quick, every) = (Duration::from_millis(200), Duration::from_secs(1));
        Self { id, url: url.into(), quick, every, prefix: None, foreign: None, read_only: false }
    }

    /// The same, read evenly.
    pub fn evenly(mut self, every: Duration) -> Self {
        (self.quick, self.every) = (every, every);
        self
    }

    fn query(&self) -> Query {
        Query { prefix: self.prefix.clone(), foreign: self.foreign.clone(), ..Query::default() }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("id", &self.id).field("every", &self.every).finish_non_exhaustive()
    }
}

/// What a poller tells.
#[derive(Debug, Clone)]
pub enum Told {
    /// It is connected: this is what the model needs to know. The environment is `Development`, and the
    /// command is made from the URL; who knows better replaces them.
    Connected(Connection),
    /// News of a connection.
    Update(Update),
    /// What came of an order.
    Broken(BreakResult),
    /// Records of idempotent work that were asked for.
    Records(Box<RecordsRead>),
}

enum Asked {
    Watch(Box<Target>),
    Forget(ConnectionId),
    Refresh(Option<ConnectionId>),
    Break(Box<(BreakOrder, String)>),
    Records(ConnectionId),
}

/// Stable codes of the errors for which connections cannot be read now.
type Codes = Arc<Mutex<HashMap<ConnectionId, &'static str>>>;

/// Reads stores in the background. Dropping it ends everything that it started.
#[derive(Debug)]
pub struct Poller {
    ask: mpsc::UnboundedSender<Asked>,
    codes: Codes,
}

impl Poller {
    /// Starts. `wake` is called after something was put into the channel, from another thread; it must
    /// return at once.
    ///
    /// Errors: if the system has no thread or no event loop to give.
    pub fn start(
        clock: ViewerClock,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<(Self, Receiver<Told>)> {
        let (send, told) = sync_channel(MOST_WAITING);
        let (ask, asked) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let codes = Codes::default();
        let teller = Teller { send, wake, clock, codes: Arc::clone(&codes) };
        std::thread::Builder::new().name("polylatch-poll".into()).spawn(move || {
            runtime.block_on(serve(asked, teller));
            // What is still on its way has nobody left to tell.
            runtime.shutdown_background();
        })?;
        Ok((Self { ask, codes }, told))
    }

    /// Connects and reads from now on; what was connected under this name before is let go of.
    pub fn watch(&self, target: Target) {
        self.send(Asked::Watch(Box::new(target)));
    }

    /// Lets go of a connection.
    pub fn forget(&self, id: &ConnectionId) {
        self.send(Asked::Forget(id.clone()));
    }

    /// Reads a connection now, or all; one that waits after a failure is tried at once.
    pub fn refresh(&self, id: Option<&ConnectionId>) {
        self.send(Asked::Refresh(id.cloned()));
    }

    /// Ends a lease. `by` is user and host. The result comes through the channel.
    pub fn break_lease(&self, order: BreakOrder, by: &str) {
        self.send(Asked::Break(Box::new((order, by.to_owned()))));
    }

    /// Reads the records of idempotent work of a connection, once. They come through the channel.
    pub fn read_records(&self, id: &ConnectionId) {
        self.send(Asked::Records(id.clone()));
    }

    /// Returns the stable code of the error for which a connection cannot be read; `None` if its latest snapshot was
    /// good, or there was none yet.
    pub fn error_code(&self, id: &ConnectionId) -> Option<&'static str> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).get(id).copied()
    }

    fn send(&self, asked: Asked) {
        // The thread is there as long as this is.
        let _ = self.ask.send(asked);
    }
}

/// Puts news into the channel.
#[derive(Clone)]
struct Teller {
    send: SyncSender<Told>,
    wake: Arc<dyn Fn() + Send + Sync>,
    clock: ViewerClock,
    codes: Codes,
}

impl Teller {
    fn note(&self, id: &ConnectionId, code: Option<&'static str>) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        match code {
            Some(code) => codes.insert(id.clone(), code),
            None => codes.remove(id),
        };
    }

    /// Says whether it fitted; a snapshot may be left out.
    fn offer(&self, told: Told) -> bool {
        let sent = self.send.try_send(told).is_ok();
        if sent {
            (self.wake)();
        }
        sent
    }

    /// Waits for room: for what must not be left out.
    async fn tell(&self, mut told: Told) {
        loop {
            match self.send.try_send(told) {
                Ok(()) => return (self.wake)(),
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => told = back,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A connection that is being read.
struct Watched {
    target: Arc<Target>,
    refresh: Arc<Notify>,
    client: watch::Receiver<Option<Polylatch>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut asked: mpsc::UnboundedReceiver<Asked>, teller: Teller) {
    let mut watched: HashMap<ConnectionId, Watched> = HashMap::new();
    while let Some(asked) = asked.recv().await {
        match asked {
            Asked::Watch(target) => {
                let target: Arc<Target> = Arc::from(target);
                // The one before is let go of first.
                watched.remove(&target.id);
                let refresh = Arc::<Notify>::default();
                let (send, client) = watch::channel(None);
                let follower = Follower {
                    target: Arc::clone(&target),
                    refresh: Arc::clone(&refresh),
                    client: send,
                    teller: teller.clone(),
                    host: ThisHost::new(),
                };
                let task = tokio::spawn(follower.follow());
                watched.insert(target.id.clone(), Watched { target, refresh, client, task });
            }
            Asked::Forget(id) => {
                watched.remove(&id);
            }
            Asked::Refresh(id) => {
                let meant = |known: &&ConnectionId| id.as_ref().is_none_or(|id| id == *known);
                watched
                    .iter()
                    .filter(|(known, _)| meant(known))
                    .for_each(|(_, watched)| watched.refresh.notify_one());
            }
            Asked::Records(id) => {
                let client = watched.get(&id).and_then(|watched| watched.client.borrow().clone());
                let teller = teller.clone();
                tokio::spawn(async move {
                    let outcome = read_records(client).await;
                    let at_ms = teller.clock.now_ms();
                    teller
                        .tell(Told::Records(Box::new(RecordsRead { connection: id, at_ms, outcome })))
                        .await;
                });
            }
            Asked::Break(order) => {
                let (order, by) = *order;
                let found = watched.get(&order.connection);
                let client = found.and_then(|watched| watched.client.borrow().clone());
                let read_only = found.is_some_and(|watched| watched.target.read_only);
                let refresh = found.map(|watched| Arc::clone(&watched.refresh));
                let teller = teller.clone();
                tokio::spawn(async move {
                    let outcome = break_lease(client, read_only, &order, by).await;
                    teller.tell(Told::Broken(BreakResult { order, outcome })).await;
                    if let Some(refresh) = refresh {
                        refresh.notify_one();
                    }
                });
            }
        }
    }
}

async fn break_lease(
    client: Option<Polylatch>,
    read_only: bool,
    order: &BreakOrder,
    by: String,
) -> Result<polylatch::inspect::BreakOutcome, String> {
    if read_only {
        return Err("this connection is read-only; change that in its settings first".into());
    }
    let client = client.ok_or_else(|| "not connected; nothing was sent".to_owned())?;
    let (name, reason) = (order.lock.clone(), order.reason.clone());
    let request = BreakRequest { name, expected: order.expected, by, reason };
    client.inspect().break_lease(&request).await.map_err(|error| sanitized(&error.to_string()))
}

async fn read_records(client: Option<Polylatch>) -> Result<Records, String> {
    let client = client.ok_or_else(|| "not connected".to_owned())?;
    match client.idempotency_records().list("", RecordsRead::MOST).await {
        Ok(records) => Ok(Records::new(records, &ThisHost::new())),
        Err(error) => Err(sanitized(&error.to_string())),
    }
}

/// Follows one connection.
struct Follower {
    target: Arc<Target>,
    refresh: Arc<Notify>,
    client: watch::Sender<Option<Polylatch>>,
    teller: Teller,
    host: ThisHost,
}

impl Follower {
    async fn follow(self) {
        let mut pause = Pause::default();
        let client = loop {
            let mut builder = Polylatch::builder().program("polylatch-inspector");
            if !self.target.url.is_empty() {
                builder = builder.url(self.target.url.clone());
            }
            match builder.connect_to_look().await {
                Ok(client) => break client,
                Err(error) => self.failed(&error, pause.next()).await,
            }
        };
        let url = client.url_for_display().to_owned();
        let command = command_for(&self.target.url, &url);
        self.teller
            .tell(Told::Connected(Connection {
                id: self.target.id.clone(),
                shown_url: url,
                command,
                environment: Environment::Development,
                read_only: self.target.read_only,
            }))
            .await;
        let _ = self.client.send(Some(client.clone()));
        let mut follower = client.inspect().follow(self.target.query());
        let mut pace = Pace::new(self.target.quick, self.target.every, Instant::now());
        let mut before: Option<Arc<Snapshot>> = None;
        loop {
            let asked = Instant::now();
            match follower.read().await {
                Ok(snapshot) => {
                    pause = Pause::default();
                    let events = before.as_ref().map_or_else(Vec::new, |before| changes(before, &snapshot));
                    // Renewals go on while nothing happens.
                    let changed = events.iter().any(|event| !matches!(event.kind, EventKind::Renewed { .. }));
                    let changed = changed || before.is_none();
                    let every = pace.next(asked, asked.elapsed(), snapshot.requests, changed);
                    if self.seen(events, &snapshot, every) {
                        before = Some(snapshot);
                    }
                    self.wait(every.saturating_sub(asked.elapsed())).await;
                }
                Err(error) => self.failed(&error, pause.next()).await,
            }
        }
    }

    /// Tells a snapshot. Says whether the consumer will get it.
    fn seen(&self, events: Vec<Event>, snapshot: &Arc<Snapshot>, every: Duration) -> bool {
        let polled = Polled {
            events,
            local: LocalFacts::of(snapshot, &self.host),
            snapshot: Arc::clone(snapshot),
            every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
        };
        self.teller.note(&self.target.id, None);
        self.teller.offer(Told::Update(self.update(Report::Polled(polled))))
    }

    async fn failed(&self, error: &polylatch::Error, pause: Duration) {
        // What is wrong with the URL or the rights stays wrong until somebody mends it and asks again.
        let again = error.retry() != Retry::Never;
        let retry_in_ms = again.then(|| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        self.teller.note(&self.target.id, Some(error.code()));
        let report = Report::Failed { message: error.to_string(), retry_in_ms };
        self.teller.tell(Told::Update(self.update(report))).await;
        if again {
            self.wait(pause).await;
        } else {
            // Rights may be given at the store; look again now and then, without saying when.
            self.wait(LONGEST_PAUSE * 4).await;
        }
    }

    fn update(&self, report: Report) -> Update {
        Update { connection: self.target.id.clone(), at_ms: self.teller.clock.now_ms(), report }
    }

    async fn wait(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.refresh.notified() => {}
        }
    }
}

/// Pauses after failures: doubling, bounded.
#[derive(Default)]
struct Pause(u32);

impl Pause {
    fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.0.min(8)).min(LONGEST_PAUSE);
        self.0 += 1;
        pause
    }
}

/// How the command line is called for a URL; never with a secret.
fn command_for(url: &str, shown: &str) -> String {
    if url.is_empty() {
        "polylatch".into()
    } else if url == shown || url.starts_with("sqlite:") {
        format!("polylatch --url {}", shell_word(url))
    } else {
        "polylatch --url \"$POLYLATCH_URL\"".into()
    }
}

/// Returns the URL of the store that is used if none is named.
pub fn default_store() -> Result<String, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Polylatch::builder().connect_to_look())?;
    Ok(client.url_for_display().to_owned())
}

/// The viewer's clock: the wall clock as it was at the start, going on evenly, also while the machine
/// sleeps where the system has such a clock.
#[derive(Debug, Clone, Copy)]
pub struct ViewerClock {
    started: Duration,
    started_ms: u64,
}

impl ViewerClock {
    /// Starts the clock.
    pub fn start() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: steady(), started_ms: u64::try_from(now.as_millis()).unwrap_or(0) }
    }

    /// Returns milliseconds since the Unix epoch; never goes back.
    pub fn now_ms(&self) -> u64 {
        let since = steady().saturating_sub(self.started);
        self.started_ms + u64::try_from(since.as_millis()).unwrap_or(0)
    }
}

#[cfg(target_os = "linux")]
fn steady() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn steady() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = Pause::default();
        let pauses: Vec<u64> = (0..7).map(|_| pause.next().as_millis() as u64).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    }

    #[test]
    fn a_target_does_not_show_its_url() {
        let target = Target::new(ConnectionId::new("cache"), "redis://:s3cret@cache");
        assert!(!format!("{target:?}").contains("s3cret"));
        assert!(!command_for("redis://:s3cret@cache", "redis://cache").contains("s3cret"));
    }
}
