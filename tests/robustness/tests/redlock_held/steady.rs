//! Locks that are held for the whole run, and the nodes that have them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylatch::blocking::{Guard, Polylatch};
use polylatch_test_services::redis::RedisServer;

use crate::nodes::{LEASE, Nodes, RENEWED_AGAIN, RENEWED_TWICE};

const NAMES: [&str; 3] = ["steady-0", "steady-1", "steady-2"];

const PAUSE: Duration = Duration::from_millis(200);

/// What was read of nodes that had been well for two renewals.
#[derive(Debug, Default)]
pub struct Presence {
    pub readings: u64,
    /// Lost and acquired again, with a majority of the nodes.
    pub losses: u64,
    pub missing: Vec<Missing>,
}

/// A reading of a healed node that had no lease of a held lock.
#[derive(Debug)]
pub struct Missing {
    /// How long the node has been found without it, reading after reading.
    pub so_far: Duration,
    /// The node had another lease before, which was in the way until it ended.
    pub had_another: bool,
    /// Which lock and node, and what the node had before.
    pub what: String,
}

/// A client that holds locks until it is stopped.
#[derive(Debug)]
pub struct Steady {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Presence>>,
}

impl Steady {
    pub fn start(nodes: &Arc<Nodes>) -> Self {
        let (stopping, nodes) = (Arc::<AtomicBool>::default(), Arc::clone(nodes));
        let stopped = Arc::clone(&stopping);
        let thread = thread::spawn(move || {
            let mut held = Held::by(&nodes);
            while !stopped.load(Ordering::SeqCst) {
                held.read(&nodes);
                thread::sleep(PAUSE);
            }
            held.presence
        });
        Self { stopping, thread: Some(thread) }
    }

    pub fn stop(mut self) -> Presence {
        self.stopping.store(true, Ordering::SeqCst);
        self.thread.take().expect("it is taken here only").join().expect("holding does not panic")
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}

struct Held {
    client: Polylatch,
    guards: Vec<Option<(Instant, Guard)>>,
    presence: Presence,
    started: Instant,
    /// By lock and node, what was read there.
    read: BTreeMap<(usize, usize), Read>,
}

#[derive(Default)]
struct Read {
    /// Whose lease it had last, and when that was read.
    had: Option<(String, Instant)>,
    missing_since: Option<Instant>,
}

impl Held {
    fn by(nodes: &Nodes) -> Self {
        let client = Polylatch::connect(&nodes.url(true)).unwrap_or_else(|error| panic!("{error:?}"));
        let guards = NAMES.iter().map(|_| None).collect();
        Self { client, guards, presence: Presence::default(), started: Instant::now(), read: BTreeMap::new() }
    }

    fn read(&mut self, nodes: &Nodes) {
        for (name, held) in NAMES.iter().zip(&mut self.guards) {
            if held.take_if(|(_, guard)| !guard.is_held()).is_some() {
                self.presence.losses += 1;
            }
            if held.is_none() {
                *held =
                    self.client.lock(*name).try_acquire().ok().flatten().map(|guard| (Instant::now(), guard));
            }
        }
        for (place, name) in NAMES.iter().enumerate() {
            // One that is paused would not answer.
            let servers = nodes.servers.iter().enumerate();
            let owners: Vec<_> = servers
                .map(|(at, server)| nodes.has_healed(at).then(|| owner_on(server, name)).flatten())
                .collect();
            for (at, owner) in owners.iter().enumerate() {
                let read = self.read.entry((place, at)).or_default();
                if let Some(Some(owner)) = owner {
                    *read = Read { had: Some((owner.clone(), Instant::now())), missing_since: None };
                }
                // What happened to the node meanwhile, or to the holder, explains it.
                let guard = self.guards[place].as_ref().filter(|(_, guard)| guard.is_held());
                let held = guard.filter(|(since, guard)| {
                    since.elapsed() >= RENEWED_TWICE && guard.remaining() >= LEASE - RENEWED_AGAIN
                });
                let held = held.filter(|_| nodes.has_healed(at));
                let (Some((since, _)), Some(owner)) = (held, owner) else {
                    read.missing_since = None;
                    continue;
                };
                self.presence.readings += 1;
                if owner.is_none() {
                    let from = *read.missing_since.get_or_insert_with(Instant::now);
                    let had = read.had.as_ref().map(|(owner, read)| (owner, read.elapsed()));
                    let what = format!(
                        "{name} on {at} after {:?}, held for {:?}; the nodes have {owners:?}, and it had {had:?} ago",
                        self.started.elapsed(),
                        since.elapsed(),
                    );
                    // As far as any node says whose lease it is now.
                    let mut now = owners.iter().flatten().flatten().peekable();
                    let had_another =
                        now.peek().is_some() && had.is_some_and(|(had, _)| now.all(|owner| owner != had));
                    self.presence.missing.push(Missing { so_far: from.elapsed(), had_another, what });
                }
            }
        }
    }
}

/// The owner of a lock on a node, or that there is none; `None` if the node does not say.
fn owner_on(server: &RedisServer, name: &str) -> Option<Option<String>> {
    let key = format!("polylatch:{{{name}}}:lock");
    let value = server.try_command(&["GET", &key]).ok()?;
    if value.is_nil() {
        return Some(None);
    }
    Some(value.text()?.split('|').next().map(ToOwned::to_owned))
}
