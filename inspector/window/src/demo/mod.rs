//! `polylatch-inspector --demo`: a living scene on the embedded store, with everything to be seen.
//!
//! Real processes contend on a throw-away SQLite file. Some stop or kill themselves, so that there is a stalled
//! holder, a first waiter that is silent and a holder that is gone. One thread starts all processes, resumes those
//! that are stopped, and ends them all. Nothing is left behind, also when this process is killed.

mod part;
mod script;

use std::collections::HashMap;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use host::child::die_with_us;
use host::demo_place::Place;

pub use part::play;
use script::{CUES, Cue, PARTS, ROUND};

/// The first argument of a process that plays a part.
const PART: &str = "window-demo-part";

/// A scene that goes on until it is dropped.
#[derive(Debug)]
pub struct Demo {
    url: String,
    end: Option<Sender<()>>,
    stage: Option<JoinHandle<()>>,
}

impl Demo {
    /// Makes the store and starts the processes.
    pub fn start() -> io::Result<Self> {
        let (end, until) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        // Processes die with the thread that started them, so one thread does it and stays.
        let stage = std::thread::Builder::new().name("demo".into()).spawn(move || run(&until, &tell))?;
        let url = told.recv().map_err(|_| io::Error::other("the demo's thread ended"))??;
        Ok(Self { url, end: Some(end), stage: Some(stage) })
    }

    /// Returns the URL of the scene's store.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(stage) = self.stage.take() {
            let _ = stage.join();
        }
    }
}

fn run(until: &Receiver<()>, tell: &Sender<io::Result<String>>) {
    let mut stage = match Stage::set() {
        Ok(stage) => stage,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let _ = tell.send(Ok(stage.place.url.clone()));
    let begun = Instant::now();
    'rounds: for round in 0.. {
        for (at, cue) in CUES {
            let when = begun + ROUND * round + Duration::from_millis(*at);
            let wait = when.saturating_duration_since(Instant::now());
            if until.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break 'rounds;
            }
            stage.follow(cue);
        }
    }
    stage.clear();
}

/// The processes that play, and where.
struct Stage {
    place: Place,
    players: HashMap<&'static str, Child>,
}

impl Stage {
    fn set() -> io::Result<Self> {
        let place = Place::make(None, &[])?;
        let mut stage = Self { place, players: HashMap::new() };
        for part in PARTS {
            if let Err(error) = stage.enter(part.name) {
                stage.clear();
                return Err(error);
            }
        }
        Ok(stage)
    }

    fn enter(&mut self, name: &'static str) -> io::Result<()> {
        if let Some(child) = self.players.get_mut(name) {
            if child.try_wait()?.is_none() {
                return Ok(());
            }
            self.players.remove(name);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args([PART, name]).env("POLYLATCH_URL", &self.place.url);
        // The end of the input is the end of the play.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        die_with_us(&mut command);
        let child = command.spawn()?;
        self.place.expect_the_end_of(child.id());
        self.players.insert(name, child);
        Ok(())
    }

    fn follow(&mut self, cue: &Cue) {
        match *cue {
            Cue::Continue(name) => self.resume(name),
            // A part that cannot enter now can at its next cue.
            Cue::Enter(name) => drop(self.enter(name)),
        }
    }

    fn resume(&self, name: &str) {
        if let Some(child) = self.players.get(name) {
            // It was not waited for, so this number is still its own.
            let _ = kill_process(Pid::from_child(child), Signal::CONT);
        }
    }

    fn clear(mut self) {
        for child in self.players.values_mut() {
            let _ = child.kill();
        }
        for child in self.players.values_mut() {
            let _ = child.wait();
        }
        self.place.clean();
    }
}

/// Returns the name of the part that this process was started for, if it was.
pub fn part_name() -> Option<String> {
    let mut words = std::env::args().skip(1);
    (words.next()? == PART).then(|| words.next().unwrap_or_default())
}
