//! Locks that are held for the whole run, and the nodes that have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polylatch::blocking::{Guard, Polylatch};
use polylatch_test_services::redis::RedisServer;

use crate::nodes::{Nodes, RENEWED_TWICE};

const NAMES: [&str; 3] = ["steady-0", "steady-1", "steady-2"];

const PAUSE: Duration = Duration::from_millis(200);

/// What was read of nodes that had been well for two renewals.
#[derive(Debug, Default)]
pub struct Presence {
    pub readings: u64,
    /// Lost and acquired again, with a majority of the nodes.
    pub losses: u64,
    pub missing: Vec<String>,
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
}

impl Held {
    fn by(nodes: &Nodes) -> Self {
        let client = Polylatch::connect(&nodes.url(true)).unwrap_or_else(|error| panic!("{error:?}"));
        let guards = NAMES.iter().map(|_| None).collect();
        Self { client, guards, presence: Presence::default(), started: Instant::now() }
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
        let long_ago = |(since, _): &(Instant, Guard)| since.elapsed() >= RENEWED_TWICE;
        let held = NAMES.iter().zip(&self.guards);
        let old: Vec<_> =
            held.filter(|(_, held)| held.as_ref().is_some_and(long_ago)).map(|(name, _)| *name).collect();
        for (at, server) in nodes.servers.iter().enumerate() {
            for name in &old {
                if !nodes.has_healed(at) {
                    break;
                }
                let has = has_lock(server, name);
                // What happened to the node meanwhile, or to the holder, explains it.
                let place = NAMES.iter().position(|other| other == name).expect("it is one of them");
                let is_held = self.guards[place].as_ref().is_some_and(|(_, guard)| guard.is_held());
                if !nodes.has_healed(at) || !is_held {
                    continue;
                }
                self.presence.readings += 1;
                if !has {
                    self.presence.missing.push(format!("{name} on {at} after {:?}", self.started.elapsed()));
                }
            }
        }
    }
}

fn has_lock(server: &RedisServer, name: &str) -> bool {
    let key = format!("polylatch:{{{name}}}:lock");
    server.try_command(&["EXISTS", &key]).is_ok_and(|reply| reply.int() == Some(1))
}
