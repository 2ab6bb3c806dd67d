//! What is live: the poller, the fleets that its news go into, alerts, the recording that is written.
//!
//! One thread takes news as they come, so that drawing never does; it wakes the window after each. It works
//! on a fleet of its own, which then changes places with the one that is shown: so drawing waits for that
//! moment only, and not for thousands of locks to be judged. The other fleet then takes the same news.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::files::{self, Recorder};
use host::poll::{Poller, Target, Told, ViewerClock};
use model::history::Limits;
use model::order::AuditLine;
use model::records::RecordsRead;
use model::{
    Alarms, Alert, BreakOrder, BreakResult, Connection, ConnectionId, Fleet, Report, Summary, Update,
};

/// How often alert rules are looked at when nothing comes.
const LOOK: Duration = Duration::from_secs(1);

/// How often the window hears of snapshots in which nothing happened, so that it says as of when it is.
const QUIET: Duration = Duration::from_secs(5);

/// What the window reads; changed in a moment.
#[derive(Debug, Default)]
pub struct State {
    pub fleet: Fleet,
    /// Alerts whose case is not over.
    pub standing: Vec<Alert>,
    /// New alerts, to be told once.
    pub alerts: Vec<Alert>,
    /// What came of orders, to be told once.
    pub results: Vec<BreakResult>,
    /// Records of idempotent work that were read, to be taken once.
    pub records: Vec<RecordsRead>,
    pub recording: Option<Recording>,
    /// What went wrong, to be told once.
    pub trouble: Vec<String>,
}

/// A recording that is written.
#[derive(Debug, Clone)]
pub struct Recording {
    pub path: PathBuf,
    pub since_ms: u64,
    /// Its size so far.
    pub bytes: u64,
}

/// The state that is built behind the window. Its lock is held while a whole snapshot is taken, so drawing never
/// waits for it. It is locked before the state, never after.
#[derive(Debug, Default)]
struct Kept {
    /// As the one that is shown, but for the news that are being taken.
    fleet: Fleet,
    alarms: Alarms,
    recorder: Option<(Recording, Recorder)>,
    /// as of the latest snapshot: what time alone changes since is seen at the next.
    outline: (Summary, usize),
    /// What the user said of each connection, which the poller does not know.
    known: Vec<Connection>,
}

/// Something that both fleets take.
#[derive(Debug, Clone)]
enum Change {
    Connect(Connection),
    Disconnect(ConnectionId),
    News(Update),
}

impl Change {
    fn into_fleet(self, fleet: &mut Fleet) {
        match self {
            Self::Connect(connection) => fleet.connect(connection),
            Self::Disconnect(id) => fleet.disconnect(&id),
            Self::News(update) => fleet.ingest(update),
        }
    }
}

/// Everything that goes on behind the window.
#[derive(Debug)]
pub struct Live {
    state: Arc<Mutex<State>>,
    kept: Arc<Mutex<Kept>>,
    poller: Option<Poller>,
    keeper: Option<JoinHandle<()>>,
    pub clock: ViewerClock,
    by: String,
}

impl Live {
    /// Starts. `wake` is called when there is something new; `audit` is where breaks are noted.
    ///
    /// Errors: if the system has no thread or no event loop to give.
    pub fn start(
        wake: Arc<dyn Fn() + Send + Sync>,
        by: String,
        audit: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let fleet = || Fleet::new(Limits::default());
        let state = Arc::new(Mutex::new(State { fleet: fleet(), ..State::default() }));
        let kept = Arc::new(Mutex::new(Kept { fleet: fleet(), ..Kept::default() }));
        let clock = ViewerClock::start();
        let (poller, told) = Poller::start(clock, Arc::new(|| {}))?;
        let keeper =
            Keeper { state: Arc::clone(&state), kept: Arc::clone(&kept), clock, by: by.clone(), audit };
        let keep = move || keeper.keep(&told, &*wake);
        let keeper = std::thread::Builder::new().name("keeper".into()).spawn(keep)?;
        Ok(Self { state, kept, poller: Some(poller), keeper: Some(keeper), clock, by })
    }

    /// Returns what is known now. Keep it no longer than a frame: news wait meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Connects, and reads from now on.
    pub fn watch(&self, connection: Connection, target: Target) {
        {
            let mut kept = lock(&self.kept);
            kept.known.retain(|known| known.id != connection.id);
            kept.known.push(connection.clone());
            kept.note_connection(&connection, self.clock.now_ms(), &self.state);
            kept.change(Change::Connect(connection), self.clock.now_ms(), &self.state);
        }
        if let Some(poller) = &self.poller {
            poller.watch(target);
        }
    }

    /// Lets go of a connection.
    pub fn forget(&self, id: &ConnectionId) {
        if let Some(poller) = &self.poller {
            poller.forget(id);
        }
        let mut kept = lock(&self.kept);
        kept.known.retain(|known| known.id != *id);
        kept.change(Change::Disconnect(id.clone()), self.clock.now_ms(), &self.state);
    }

    /// Reads everything now.
    pub fn refresh(&self) {
        if let Some(poller) = &self.poller {
            poller.refresh(None);
        }
    }

    /// Reads the records of idempotent work of these connections; they come later.
    pub fn read_records(&self, ids: &[ConnectionId]) {
        if let Some(poller) = &self.poller {
            ids.iter().for_each(|id| poller.read_records(id));
        }
    }

    /// Ends a lease; the result comes later.
    pub fn break_lease(&self, order: BreakOrder) {
        if let Some(poller) = &self.poller {
            poller.break_lease(order, &self.by);
        }
    }

    /// Puts alert rules in force.
    pub fn set_alarms(&self, alarms: Alarms) {
        let mut kept = lock(&self.kept);
        kept.alarms = alarms;
        self.state().standing.clear();
    }

    /// Begins to write a recording.
    pub fn record(&self, path: &Path) -> Result<(), String> {
        let now_ms = self.clock.now_ms();
        let mut kept = lock(&self.kept);
        let connections: Vec<Connection> =
            kept.fleet.stores().iter().map(|store| store.connection().clone()).collect();
        let recorder = Recorder::create(path, &connections, now_ms)?;
        let recording = Recording { path: path.to_owned(), since_ms: now_ms, bytes: recorder.bytes() };
        self.state().recording = Some(recording.clone());
        kept.recorder = Some((recording, recorder));
        Ok(())
    }

    /// Ends the recording, if one is written.
    pub fn stop_recording(&self) -> Option<Recording> {
        let stopped = lock(&self.kept).recorder.take();
        self.state().recording = None;
        stopped.map(|(recording, _)| recording)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The channel ends with the poller, and the thread with the channel.
        drop(self.poller.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Kept {
    /// Takes changes, so far behind the window.
    fn begin(&mut self, changes: &[Change], now_ms: u64) {
        for change in changes.iter().cloned() {
            change.into_fleet(&mut self.fleet);
        }
        self.fleet.tick(now_ms);
    }

    /// Shows what was begun; what `with` puts into the state is seen together with it.
    fn show(
        &mut self,
        changes: Vec<Change>,
        now_ms: u64,
        state: &Mutex<State>,
        with: impl FnOnce(&mut State),
    ) {
        {
            let mut state = lock(state);
            with(&mut state);
            std::mem::swap(&mut state.fleet, &mut self.fleet);
        }
        for change in changes {
            change.into_fleet(&mut self.fleet);
        }
        self.fleet.tick(now_ms);
    }

    /// Takes a change and shows it.
    fn change(&mut self, change: Change, now_ms: u64, state: &Mutex<State>) {
        let changes = vec![change];
        self.begin(&changes, now_ms);
        self.show(changes, now_ms, state, |_| {});
    }

    fn note_connection(&mut self, connection: &Connection, now_ms: u64, state: &Mutex<State>) {
        let noted = self.recorder.as_mut().map(|(_, recorder)| recorder.connection(connection, now_ms));
        if let Some(Err(error)) = noted {
            self.give_up_recording(&error.to_string(), state);
        }
    }

    fn note_update(&mut self, update: &Update, state: &Mutex<State>) {
        let Some((recording, recorder)) = &mut self.recorder else { return };
        let noted = recorder.update(update);
        recording.bytes = recorder.bytes();
        if let Err(error) = noted {
            self.give_up_recording(&error.to_string(), state);
        }
    }

    fn give_up_recording(&mut self, why: &str, state: &Mutex<State>) {
        if let Some((recording, _)) = self.recorder.take() {
            let text = format!("recording to {} stopped: {why}", recording.path.display());
            lock(state).trouble.push(text);
        }
    }

    /// Says whether the window would look otherwise than after some time in which nothing happened.
    fn is_worth_a_frame(&self, told: &Told) -> bool {
        let Told::Update(Update { connection, report: Report::Polled(polled), .. }) = told else {
            return true;
        };
        let known = self.fleet.store(connection).and_then(|store| store.snapshot());
        !polled.events.is_empty()
            || known.is_none_or(|known| known.locks.len() != polled.snapshot.locks.len())
    }

    /// Completes what the poller says of a connection.
    fn completed(&self, mut connection: Connection) -> Connection {
        if let Some(known) = self.known.iter().find(|known| known.id == connection.id) {
            connection.environment = known.environment;
            connection.read_only = known.read_only;
        }
        connection
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while drawing is told by the toolkit; the data are still good.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a snapshot changes in the picture even if nothing happened: the counts, and rows on their way out.
fn outline(fleet: &Fleet, now_ms: u64) -> (Summary, usize) {
    let gone = fleet.stores().iter().map(|store| store.gone().len()).sum();
    (fleet.summary(now_ms), gone)
}

/// The thread that takes news.
struct Keeper {
    state: Arc<Mutex<State>>,
    kept: Arc<Mutex<Kept>>,
    clock: ViewerClock,
    by: String,
    audit: Option<PathBuf>,
}

impl Keeper {
    fn keep(&self, told: &Receiver<Told>, wake: &(dyn Fn() + Send + Sync)) {
        let mut woken = Instant::now();
        loop {
            let first = match told.recv_timeout(LOOK) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.take(first.into_iter().chain(told.try_iter()), woken.elapsed() >= QUIET) {
                woken = Instant::now();
                wake();
            }
        }
    }

    /// Takes news, or only notes that time has passed. Says whether the window has to be drawn; if nothing
    /// but ages changed, only if it `is_due`.
    fn take(&self, news: impl Iterator<Item = Told>, is_due: bool) -> bool {
        let mut kept = lock(&self.kept);
        let now_ms = self.clock.now_ms();
        let before = kept.fleet.version();
        let (mut changes, mut broken, mut happened) = (Vec::new(), Vec::new(), false);
        let mut records = Vec::new();
        for told in news {
            happened |= kept.is_worth_a_frame(&told);
            match told {
                Told::Connected(connection) => {
                    let connection = kept.completed(connection);
                    kept.note_connection(&connection, now_ms, &self.state);
                    changes.push(Change::Connect(connection));
                }
                Told::Update(update) => {
                    kept.note_update(&update, &self.state);
                    changes.push(Change::News(update));
                }
                Told::Broken(result) => broken.push(result),
                Told::Records(read) => records.push(*read),
            }
        }
        let trouble = self.note_breaks(&broken, now_ms);
        let now_ms = self.clock.now_ms();
        kept.begin(&changes, now_ms);
        // A finding may come, and a row go or become stale, with time alone.
        let outline = outline(&kept.fleet, now_ms);
        happened |= std::mem::replace(&mut kept.outline, outline) != outline;
        let later = kept.fleet.version() != before && is_due;
        let Kept { fleet, alarms, .. } = &mut *kept;
        let alerts = alarms.check(fleet, now_ms);
        alerts.iter().for_each(super::notify::tell);
        let mut is_new = happened || later || !alerts.is_empty() || !broken.is_empty();
        let standing = kept.alarms.standing().to_vec();
        let recording = kept.recorder.as_ref().map(|(recording, _)| recording.clone());
        kept.show(changes, now_ms, &self.state, |state| {
            (state.standing, state.recording) = (standing, recording);
            state.alerts.extend(alerts);
            state.results.append(&mut broken);
            state.records.append(&mut records);
            state.trouble.extend(trouble);
            is_new |= !state.trouble.is_empty();
        });
        is_new
    }

    /// Writes breaks into the audit. Returns what went wrong with that.
    fn note_breaks(&self, broken: &[BreakResult], at_ms: u64) -> Vec<String> {
        let Some(path) = self.audit.as_deref() else { return Vec::new() };
        let noted =
            broken.iter().map(|result| files::audit(path, &AuditLine { at_ms, by: &self.by, result }));
        noted.filter_map(Result::err).map(|error| format!("the break could not be noted: {error}")).collect()
    }
}
