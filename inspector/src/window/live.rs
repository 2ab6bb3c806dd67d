//! What is live: the poller, the fleet that its news go into, alerts, the recording that is written.
//!
//! One thread takes news as they come, so that drawing never does; it wakes the window after each.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::files::{self, Recorder};
use crate::model::history::Limits;
use crate::model::order::AuditLine;
use crate::model::{
    Alarms, Alert, BreakOrder, BreakResult, Connection, ConnectionId, Fleet, Report, Summary, Update,
};
use crate::poll::{Poller, Target, Told, ViewerClock};

/// How often alert rules are looked at when nothing comes.
const LOOK: Duration = Duration::from_secs(1);

/// How often the window hears of readings in which nothing happened, so that it says as of when it is.
const QUIET: Duration = Duration::from_secs(5);

/// What the thread writes and the window reads.
#[derive(Debug, Default)]
pub struct State {
    pub fleet: Fleet,
    pub alarms: Alarms,
    /// New alerts, to be told once.
    pub alerts: Vec<Alert>,
    /// What came of orders, to be told once.
    pub results: Vec<BreakResult>,
    pub recording: Option<Recording>,
    /// What went wrong with it, to be told once.
    pub trouble: Vec<String>,
    /// What the user said of each connection, which the poller does not know.
    known: Vec<Connection>,
}

/// A recording that is written.
#[derive(Debug)]
pub struct Recording {
    pub path: PathBuf,
    pub since_ms: u64,
    recorder: Recorder,
}

impl Recording {
    /// Returns its size so far.
    pub fn bytes(&self) -> u64 {
        self.recorder.bytes()
    }
}

/// Everything that goes on behind the window.
#[derive(Debug)]
pub struct Live {
    state: Arc<Mutex<State>>,
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
        let state = Arc::new(Mutex::new(State { fleet: Fleet::new(Limits::default()), ..State::default() }));
        let clock = ViewerClock::start();
        let (poller, told) = Poller::start(clock, Arc::new(|| {}))?;
        let keeper = {
            let (state, by, audit) = (Arc::clone(&state), by.clone(), audit.clone());
            let keep = move || keep(&state, &told, &clock, &*wake, &by, audit.as_deref());
            std::thread::Builder::new().name("keeper".into()).spawn(keep)?
        };
        Ok(Self { state, poller: Some(poller), keeper: Some(keeper), clock, by })
    }

    /// Returns what is known now. Keep it no longer than a frame: news wait meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Connects, and reads from now on.
    pub fn watch(&self, connection: Connection, target: Target) {
        {
            let mut state = self.state();
            state.known.retain(|known| known.id != connection.id);
            state.known.push(connection.clone());
            state.note_connection(&connection, self.clock.now_ms());
            state.fleet.connect(connection);
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
        let mut state = self.state();
        state.known.retain(|known| known.id != *id);
        state.fleet.disconnect(id);
    }

    /// Reads everything now.
    pub fn refresh(&self) {
        if let Some(poller) = &self.poller {
            poller.refresh(None);
        }
    }

    /// Ends a lease; the result comes later.
    pub fn break_lease(&self, order: BreakOrder) {
        if let Some(poller) = &self.poller {
            poller.break_lease(order, &self.by);
        }
    }

    /// Begins to write a recording.
    pub fn record(&self, path: &Path) -> Result<(), String> {
        let now_ms = self.clock.now_ms();
        let mut state = self.state();
        let connections: Vec<Connection> =
            state.fleet.stores().iter().map(|store| store.connection().clone()).collect();
        let recorder = Recorder::create(path, &connections, now_ms)?;
        state.recording = Some(Recording { path: path.to_owned(), since_ms: now_ms, recorder });
        Ok(())
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

impl State {
    fn note_connection(&mut self, connection: &Connection, now_ms: u64) {
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.recorder.connection(connection, now_ms)
        {
            self.stop_recording(&error.to_string());
        }
    }

    fn stop_recording(&mut self, why: &str) {
        if let Some(recording) = self.recording.take() {
            self.trouble.push(format!("recording to {} stopped: {why}", recording.path.display()));
        }
    }

    /// Says whether the window would look otherwise than after some time in which nothing happened.
    fn is_worth_a_frame(&self, told: &Told) -> bool {
        let Told::Update(Update { connection, report: Report::Seen(sample), .. }) = told else { return true };
        let known = self.fleet.store(connection).and_then(|store| store.snapshot());
        !sample.events.is_empty()
            || known.is_none_or(|known| known.locks.len() != sample.snapshot.locks.len())
    }

    fn take(&mut self, told: Told, now_ms: u64) -> Option<BreakResult> {
        match told {
            Told::Connected(mut connection) => {
                if let Some(known) = self.known.iter().find(|known| known.id == connection.id) {
                    connection.environment = known.environment;
                    connection.read_only = known.read_only;
                }
                self.note_connection(&connection, now_ms);
                self.fleet.connect(connection);
                None
            }
            Told::Update(update) => {
                if let Some(recording) = &mut self.recording
                    && let Err(error) = recording.recorder.update(&update)
                {
                    self.stop_recording(&error.to_string());
                }
                self.fleet.ingest(update);
                None
            }
            Told::Broken(result) => {
                self.results.push(result.clone());
                Some(result)
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic while drawing is told by the toolkit; the data are still good.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a reading changes in the picture even if nothing happened: the counts, and rows on their way out.
fn outline(fleet: &Fleet, now_ms: u64) -> (Summary, usize) {
    let gone = fleet.stores().iter().map(|store| store.gone().len()).sum();
    (fleet.summary(now_ms), gone)
}

fn keep(
    state: &Mutex<State>,
    told: &Receiver<Told>,
    clock: &ViewerClock,
    wake: &(dyn Fn() + Send + Sync),
    by: &str,
    audit: Option<&Path>,
) {
    let mut woken = Instant::now();
    loop {
        let first = match told.recv_timeout(LOOK) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let (mut broken, mut happened) = (Vec::new(), false);
        let is_new = {
            let mut state = lock(state);
            let (before, looks) = (state.fleet.version(), outline(&state.fleet, clock.now_ms()));
            for told in first.into_iter().chain(told.try_iter()) {
                happened |= state.is_worth_a_frame(&told);
                broken.extend(state.take(told, clock.now_ms()));
            }
            let now_ms = clock.now_ms();
            state.fleet.tick(now_ms);
            // A finding may come, and a row go, with time alone.
            happened |= outline(&state.fleet, now_ms) != looks;
            let State { fleet, alarms, alerts, .. } = &mut *state;
            let fresh = alarms.check(fleet, now_ms);
            alerts.extend(fresh.iter().cloned());
            for alert in &fresh {
                super::notify::tell(alert);
            }
            happened
                || (state.fleet.version() != before && woken.elapsed() >= QUIET)
                || !fresh.is_empty()
                || !broken.is_empty()
                || !state.trouble.is_empty()
        };
        for result in &broken {
            let line = AuditLine { at_ms: clock.now_ms(), by, result };
            if let Some(Err(error)) = audit.map(|path| files::audit(path, &line)) {
                lock(state).trouble.push(format!("the break could not be noted: {error}"));
            }
        }
        if is_new {
            woken = Instant::now();
            wake();
        }
    }
}
