//! Single workers, told step by step what to do.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use polylatch_test_services::proc;

use crate::boot_nanos;
use crate::evidence::Evidence;
use crate::history::History;
use crate::record::Record;
use crate::resource::Resource;

/// How long a worker may take for what it should do at once.
pub const SOON: Duration = Duration::from_secs(20);

/// A worker process under a script; killed with its value.
#[derive(Debug)]
pub struct Worker {
    who: String,
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    told: Vec<Record>,
    /// Places of the records that nobody waited for yet.
    unheard: Vec<usize>,
    killed: Option<u64>,
}

impl Worker {
    /// Starts a worker and waits until it is connected.
    #[track_caller]
    pub fn start(program: &str, who: &str, url: &str, resource: &Resource, evidence: &Evidence) -> Self {
        let errors = File::create(evidence.file(&format!("{who}.stderr"))).expect("the folder is ours");
        let mut child = Command::new(program)
            .args(["script", url])
            .arg(resource.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the worker was built");
        let orders = child.stdin.take().expect("it is piped");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // A line without its end was cut off by the death of the worker.
            while out.read_line(&mut line).is_ok() && line.ends_with('\n') && tell.send(line.clone()).is_ok()
            {
                line.clear();
            }
        });
        let worker = Self {
            who: who.to_owned(),
            child,
            orders,
            lines,
            told: Vec::new(),
            unheard: Vec::new(),
            killed: None,
        };
        match worker.lines.recv_timeout(SOON) {
            Ok(line) if line.trim() == "ready" => worker,
            other => panic!("{who} is not ready: {other:?}"),
        }
    }

    pub fn who(&self) -> &str {
        &self.who
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order; what comes of it is told later.
    #[track_caller]
    pub fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}")
            .unwrap_or_else(|error| panic!("{} does not listen: {error}", self.who));
    }

    /// Waits for a record that was not waited for before; others stay to be waited for.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, within: Duration, find: impl Fn(&Record) -> Option<T>) -> T {
        let deadline = Instant::now() + within;
        loop {
            let told = &self.told;
            let found =
                self.unheard.iter().enumerate().find_map(|(at, place)| Some((at, find(&told[*place])?)));
            if let Some((at, found)) = found {
                self.unheard.remove(at);
                return found;
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.unheard.push(self.told.len());
                    self.told.push(line.parse().unwrap_or_else(|error| panic!("{}: {error}", self.who)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} did not tell within {within:?}: {what}; it told {:?}", self.who, self.told)
                }
                Err(RecvTimeoutError::Disconnected) => panic!("{} has ended instead of: {what}", self.who),
            }
        }
    }

    /// Waits until it has entered a lock; returns the token and when.
    #[track_caller]
    pub fn entered(&mut self, lock: u32, within: Duration) -> (u64, u64) {
        self.wait_for("entered", within, |record| match record {
            Record::Entered { lock: of, token, at, .. } if *of == lock => Some((*token, *at)),
            _ => None,
        })
    }

    /// Waits for the answer to a write: whether it was accepted.
    #[track_caller]
    pub fn wrote(&mut self) -> bool {
        self.wait_for("wrote", SOON, |record| match record {
            Record::Wrote { accepted, .. } => Some(*accepted),
            _ => None,
        })
    }

    /// Waits until a thread of it has entered a lock; returns the token and the thread's label.
    #[track_caller]
    pub fn named(&mut self) -> (u64, String) {
        self.wait_for("named", SOON, |record| match record {
            Record::Named { token, label, .. } => Some((*token, label.clone())),
            _ => None,
        })
    }

    /// Waits until it has released a lock; returns what came of that.
    #[track_caller]
    pub fn released(&mut self) -> String {
        self.wait_for("released", SOON, |record| match record {
            Record::Released { result, .. } => Some(result.clone()),
            _ => None,
        })
    }

    /// Pauses it between two writes.
    #[track_caller]
    pub fn pause(&self) {
        proc::pause_between_writes(self.pid());
    }

    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    /// Kills it and returns the moment before.
    pub fn kill(&mut self) -> u64 {
        let at = boot_nanos();
        self.killed = Some(at);
        proc::kill(self.pid());
        self.child.wait().expect("it is our child");
        at
    }

    /// Ends it and adds what it told to a history.
    #[track_caller]
    pub fn testify(mut self, history: &mut History) {
        if self.killed.is_none() {
            self.killed = Some(boot_nanos());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        while let Ok(line) = self.lines.recv() {
            self.told.push(line.parse().unwrap_or_else(|error| panic!("{}: {error}", self.who)));
        }
        let text: String = self.told.iter().map(|record| format!("{record}\n")).collect();
        if let Err(error) = history.add(&self.who, &text, self.killed) {
            panic!("{error}");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            // What the test did not wait for often says why it failed.
            let rest: Vec<_> = self.lines.iter().collect();
            eprintln!("{} told {:?}, and at last {rest:?}", self.who, self.told);
        }
    }
}
