//! Trying a connection, step by step, before it is saved.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use polylatch::Polylatch;
use polylatch::inspect::{CheckSeverity, Query};

use model::text::{count, sanitized};

/// One step and what came of it; sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub good: bool,
    pub text: String,
}

/// A test that runs.
#[derive(Debug)]
pub struct ConnectionTest {
    steps: Receiver<Step>,
    pub done: Vec<Step>,
    pub over: bool,
}

impl ConnectionTest {
    /// Starts it on a thread of its own, which wakes the window with every step.
    pub fn start(url: String, prefix: String, wake: impl Fn() + Send + 'static) -> Self {
        let (tell, steps) = channel();
        let started = std::thread::Builder::new().name("connection test".into()).spawn(move || {
            let tell = Teller { tell, wake };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => drop(runtime.block_on(test(&url, &prefix, &tell))),
                Err(error) => tell.failed(format!("no event loop: {error}")),
            }
        });
        let over = started.is_err();
        Self { steps, done: Vec::new(), over }
    }

    /// Takes the steps that were made meanwhile.
    pub fn poll(&mut self) {
        loop {
            match self.steps.try_recv() {
                Ok(step) => self.done.push(step),
                Err(std::sync::mpsc::TryRecvError::Empty) => return,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    self.over = true;
                    return;
                }
            }
        }
    }
}

struct Teller<W> {
    tell: Sender<Step>,
    wake: W,
}

impl<W: Fn()> Teller<W> {
    fn told(&self, good: bool, text: String) {
        let _ = self.tell.send(Step { good, text });
        (self.wake)();
    }

    fn good(&self, text: String) {
        self.told(true, text);
    }

    fn failed(&self, text: String) {
        self.told(false, text);
    }
}

async fn test<W: Fn()>(url: &str, prefix: &str, tell: &Teller<W>) -> Option<()> {
    let begun = Instant::now();
    let client = match Polylatch::builder().url(url).program("polylatch-inspector").connect().await {
        Ok(client) => client,
        Err(error) => {
            tell.failed(sanitized(&error.to_string()));
            return None;
        }
    };
    let name = sanitized(client.url_for_display());
    tell.good(format!("reached and logged in to {name} in {} ms", begun.elapsed().as_millis()));
    let query =
        Query { prefix: Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty()), ..Query::default() };
    let listed = client.inspect().list(&query).await;
    match &listed {
        Ok(snapshot) => {
            let locks = count(snapshot.locks.len(), "lock", "locks");
            let waiting: usize = snapshot.locks.iter().map(|lock| lock.waiters.len()).sum();
            let text =
                format!("may list: {locks}, {waiting} waiting, in {} ms", snapshot.round_trip.as_millis());
            tell.good(text);
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let here = i64::try_from(now.as_millis()).unwrap_or(0);
            let ahead = i64::try_from(snapshot.taken_at_ms).unwrap_or(0) - here;
            tell.told(ahead.abs() < 2_000, format!("its clock differs from ours by about {ahead} ms"));
        }
        Err(error) => tell.failed(format!("may not list: {}", sanitized(&error.to_string()))),
    }
    match client.inspect().examine().await {
        Ok(found) => {
            for check in found.findings.iter().filter(|check| check.severity != CheckSeverity::Ok).take(6) {
                tell.told(
                    !check.severity.needs_action(),
                    sanitized(&format!("{}: {}", check.title, check.detail)),
                );
            }
        }
        Err(error) => tell.failed(sanitized(&error.to_string())),
    }
    client.close().await;
    listed.is_ok().then_some(())
}
