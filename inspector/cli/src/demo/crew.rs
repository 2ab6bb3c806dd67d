//! The worker processes: starting, pausing, killing and ending them.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use host::child::die_with_us;
use host::demo_place::{Place, helper};
use polylatch::FencingToken;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::UnboundedSender;

use super::story::{Order, Report};
use super::{NAMES, WORKER};

/// What is said to a worker that shall stand still in the ledger, and its answer once it does.
pub(super) const STAND: &str = "stand";
pub(super) const READY: &str = "ready";

/// How long workers may take to release and to leave their lines.
const GRACE: Duration = Duration::from_millis(1500);

/// The workers that run.
#[derive(Debug)]
pub(super) struct Crew {
    workers: HashMap<&'static str, Child>,
    told: UnboundedSender<Report>,
    pace: u32,
}

impl Crew {
    pub(super) fn new(told: UnboundedSender<Report>, pace: u32) -> Self {
        Self { workers: HashMap::new(), told, pace }
    }

    /// Starts every worker that does not run. Call it on the main thread: on Linux workers die with
    /// the thread that started them.
    pub(super) fn start(&mut self, place: &mut Place) -> io::Result<()> {
        for name in NAMES.into_iter().filter(|name| !self.workers.contains_key(name)).collect::<Vec<_>>() {
            let mut command = helper(WORKER, &place.url);
            command.arg("--folder").arg(place.folder()).args(["--prefix", &place.prefix]);
            command.args(["--name", name, "--pace", &self.pace.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            die_with_us(&mut command);
            let mut child = command.spawn()?;
            place.expect_the_end_of(child.id());
            let output = child.stdout.take();
            self.workers.insert(name, child);
            let told = self.told.clone();
            // A line is a report; the end of the output is the end of the worker.
            std::thread::spawn(move || {
                for line in
                    output.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok)
                {
                    let report = match line.split_once(' ') {
                        Some(("lost", reason)) => Report::Lost { who: name, reason: reason.to_owned() },
                        Some((READY, token)) => match token.parse() {
                            Ok(token) => Report::Ready { who: name, token: FencingToken::new(token) },
                            Err(_) => continue,
                        },
                        _ => continue,
                    };
                    let _ = told.send(report);
                }
                let _ = told.send(Report::Ended(name));
            });
        }
        Ok(())
    }

    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        self.workers.get(name).map(Child::id)
    }

    /// Says whether a worker ended although it was not killed.
    pub(super) fn misses(&self, name: &str) -> bool {
        self.workers.contains_key(name)
    }

    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Stand(name) => {
                if let Some(input) = self.workers.get_mut(name).and_then(|child| child.stdin.as_mut()) {
                    let _ = writeln!(input, "{STAND}");
                }
            }
            Order::Pause(name) => self.signal(name, Signal::STOP),
            Order::Resume(name) => self.signal(name, Signal::CONT),
            Order::Kill(name) => {
                if let Some(mut child) = self.workers.remove(name) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
    }

    fn signal(&self, name: &str, signal: Signal) {
        if let Some(child) = self.workers.get(name) {
            // It was not waited for, so this number is still its own.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Lets every worker release what it holds and end; kills those that do not.
    pub(super) async fn dismiss(mut self) {
        for child in self.workers.values_mut() {
            drop(child.stdin.take());
            let _ = kill_process(Pid::from_child(child), Signal::CONT);
        }
        let end = Instant::now() + GRACE;
        for child in self.workers.values_mut() {
            while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in self.workers.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
