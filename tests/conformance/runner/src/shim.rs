//! One process of a binding's shim, spoken to in JSON lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylatch_test_services::proc;
use serde_json::{Value, json};

/// How long a shim may take to start, and to end after its input has.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to start a language's shim.
#[derive(Debug, Clone)]
pub struct Target {
    pub name: String,
    pub command: Vec<String>,
}

/// A running shim; killed with its value.
#[derive(Debug)]
pub struct Shim {
    pub target: String,
    /// What it says it can do beside the verbs that every shim has.
    pub can: Vec<String>,
    /// How many runs it has played.
    pub runs: usize,
    child: Child,
    orders: Option<ChildStdin>,
    last_id: u64,
    awaited: Arc<Mutex<HashMap<u64, Sender<Value>>>>,
    reader: Option<JoinHandle<()>>,
    errors: std::path::PathBuf,
}

/// A request that is under way.
#[derive(Debug)]
pub struct Pending {
    pub id: u64,
    pub begun: Instant,
    answer: Receiver<Value>,
    early: Option<Value>,
}

impl Shim {
    /// Starts a shim and waits until it says hello. What it prints to its errors goes to a file.
    pub fn start(target: &Target, errors: &Path) -> Result<Self, String> {
        let (program, arguments) = target.command.split_first().ok_or("a target has no command")?;
        let log = File::create(errors).map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(arguments)
            // A run of the tests must not meet the locks of whoever runs them.
            .env_remove("POLYLATCH_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("the shim {program} does not start: {error}"))?;
        let orders = child.stdin.take();
        let out = BufReader::new(child.stdout.take().ok_or("no output of the shim")?);
        let awaited = Arc::new(Mutex::new(HashMap::<u64, Sender<Value>>::new()));
        let (tell_hello, hello) = mpsc::channel();
        let reader = {
            let awaited = Arc::clone(&awaited);
            thread::spawn(move || read(out, &awaited, &tell_hello))
        };
        let mut shim = Self {
            target: target.name.clone(),
            can: Vec::new(),
            runs: 0,
            child,
            orders,
            last_id: 0,
            awaited,
            reader: Some(reader),
            errors: errors.to_owned(),
        };
        let hello = hello.recv_timeout(PATIENCE).map_err(|_| shim.says("it did not say hello"))?;
        if hello["protocol"] != 1 {
            return Err(shim.says(&format!("it does not speak this protocol: {hello}")));
        }
        if hello["language"] != target.name.as_str() {
            return Err(shim.says(&format!("it is another language's: {hello}")));
        }
        let can = hello["can"].as_array().cloned().unwrap_or_default();
        shim.can = can.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(shim)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request; the answer is waited for with [`Shim::finish`].
    pub fn begin(&mut self, mut request: Value) -> Result<Pending, String> {
        self.last_id += 1;
        request["id"] = json!(self.last_id);
        let (tell, answer) = mpsc::channel();
        lock(&self.awaited).insert(self.last_id, tell);
        let orders = self.orders.as_mut().ok_or("the shim was told to end")?;
        let sent = writeln!(orders, "{request}").and_then(|()| orders.flush());
        sent.map_err(|error| self.says(&format!("it does not listen: {error}")))?;
        Ok(Pending { id: self.last_id, begun: Instant::now(), answer, early: None })
    }

    /// Waits for an answer.
    pub fn finish(&self, pending: &mut Pending, within: Duration) -> Result<Value, String> {
        if let Some(early) = pending.early.take() {
            return Ok(early);
        }
        pending.answer.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => self.says(&format!("no answer within {within:?}")),
            RecvTimeoutError::Disconnected => self.says("it ended without an answer"),
        })
    }

    pub fn pause(&self) {
        proc::pause_between_writes(self.pid());
    }

    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    pub fn kill(&mut self) {
        proc::kill(self.pid());
        let _ = self.child.wait();
    }

    /// Ends its input; it has to end by itself, in good order.
    pub fn end(mut self) -> Result<(), String> {
        self.orders = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.says(&format!("it ended badly: {status}"))),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                _ => return Err(self.says("its input has ended, but it has not")),
            }
        }
    }

    /// A complaint, with the last that the shim printed to its errors.
    fn says(&self, what: &str) -> String {
        let log = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(6)..].join("\n    ");
        let tail = if tail.is_empty() { String::new() } else { format!("\n    {tail}") };
        format!("the {} shim: {what}{tail}", self.target)
    }
}

impl Pending {
    /// Whether an answer is there.
    pub fn answered(&mut self) -> Option<&Value> {
        if self.early.is_none() {
            self.early = self.answer.try_recv().ok();
        }
        self.early.as_ref()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn read(mut out: impl BufRead, awaited: &Mutex<HashMap<u64, Sender<Value>>>, hello: &Sender<Value>) {
    let mut line = String::new();
    // A line without its end was cut off by the death of the shim.
    while out.read_line(&mut line).is_ok() && line.ends_with('\n') {
        match serde_json::from_str::<Value>(&line) {
            Ok(value) if value["hello"] == "polylatch" => {
                let _ = hello.send(value);
            }
            Ok(value) => {
                let id = value["id"].as_u64().unwrap_or_default();
                // Nobody waits any more if the scenario has failed meanwhile.
                if let Some(tell) = lock(awaited).remove(&id) {
                    let _ = tell.send(value);
                }
            }
            Err(error) => eprintln!("a shim printed what is no JSON line ({error}): {line}"),
        }
        line.clear();
    }
    // Whoever still waits learns that there will be no answer.
    lock(awaited).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
