//! A node's gate: whether it votes, and what it keeps over restarts for all clients.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::redis::protocol::call::{Data, no_answer};
use crate::clock::{BootInstant, Clock, SystemClock, millis};
use crate::error::Result;
use crate::policy::admission::{ClockReading, Terms, quarantine_of};
use crate::wakeups::unpoisoned;

/// What all nodes of a store have in common, as far as this client knows.
#[derive(Debug)]
pub(super) struct Shape {
    pub nodes: usize,
    pub gate: String,
    pub counter: String,
    /// The longest lease of this client.
    pub max_lease: Duration,
    /// This client relies on the store: a node that may drop locks is not used.
    pub strict: bool,
    /// This client takes locks. Before that it only looks, and writes nothing.
    pub joined: AtomicBool,
    /// A counter or a lease was seen.
    pub used: AtomicBool,
    /// Some client relies on the store.
    strict_anywhere: AtomicBool,
    /// The longest lease of any client, in ms.
    longest_ms: AtomicU64,
    /// The server behind each address, by its run id.
    servers: Mutex<HashMap<String, String>>,
}

impl Shape {
    pub(super) fn new(
        nodes: usize,
        gate: String,
        counter: String,
        max_lease: Duration,
        strict: bool,
    ) -> Self {
        Self {
            nodes,
            gate,
            counter,
            max_lease,
            strict,
            joined: AtomicBool::new(false),
            used: AtomicBool::new(false),
            strict_anywhere: AtomicBool::new(strict),
            longest_ms: AtomicU64::new(millis(max_lease)),
            servers: Mutex::default(),
        }
    }

    /// Notes which server is behind an address, before anything that it says counts. Errors: with the other
    /// address behind which this server is, too.
    pub(super) fn is_behind(&self, place: &str, run_id: &str) -> std::result::Result<(), String> {
        let mut servers = unpoisoned(&self.servers);
        // Whichever was there is there no more.
        servers.remove(place);
        if let Some((other, _)) = servers.iter().find(|(_, server)| *server == run_id) {
            return Err(other.clone());
        }
        servers.insert(place.to_owned(), run_id.to_owned());
        Ok(())
    }

    pub(super) fn has_joined(&self) -> bool {
        self.joined.load(Ordering::SeqCst)
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { strict: self.strict_anywhere.load(Ordering::SeqCst), used: self.used.load(Ordering::SeqCst) }
    }

    /// Notes that a node told of a lease. Looks tell of its counter only when they come to it.
    pub(super) fn is_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::SeqCst);
        }
    }

    /// How long a node that changed is quarantined.
    pub(super) fn quarantine(&self) -> Duration {
        quarantine_of(Duration::from_millis(self.longest_ms.load(Ordering::SeqCst)))
    }

    /// Notes what a node says about the store.
    pub(super) fn learn(&self, look: &Look) {
        self.used.fetch_or(look.counter > 0, Ordering::SeqCst);
        self.strict_anywhere.fetch_or(look.strict, Ordering::SeqCst);
        self.longest_ms.fetch_max(look.longest_ms, Ordering::SeqCst);
    }

    /// The arguments of a look; with a gate that is to be closed.
    pub(super) fn arguments(&self, close: &str) -> Vec<String> {
        let flag = |is: bool| u8::from(is).to_string();
        vec![
            self.nodes.to_string(),
            flag(self.has_joined()),
            flag(self.strict),
            millis(self.max_lease).to_string(),
            flag(self.used.load(Ordering::SeqCst)),
            (crate::clock::wall_us() / 1000).to_string(),
            close.to_owned(),
        ]
    }

    /// Whether the gate says what this client's locks need it to say.
    pub(super) fn agrees(&self, look: &Look) -> bool {
        !self.has_joined() || (look.longest_ms >= millis(self.max_lease) && (look.strict || !self.strict))
    }
}

/// What a look at a node said.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub epoch: String,
    /// The gate as it is stored.
    pub gate: String,
    pub state: State,
    /// The number of nodes of the store that it belongs to; `None` without a gate.
    pub nodes: Option<usize>,
    pub fresh: bool,
    pub strict: bool,
    pub longest_ms: u64,
    /// The wall clock of the client that closed it.
    pub wall_ms: u64,
    pub counter: u64,
    /// The node's wall clock, and when it was read.
    pub clock: ClockReading,
    /// The connections it rests on; see [`crate::backend::redis::transport::port::Port::latest_connection`].
    pub opened: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open {
        /// Its counter was not known to be the largest when it was opened.
        floored: bool,
    },
    /// Since when, by the node's clock.
    Closed { since_ms: u64 },
    /// The gate is of another epoch, and no client has closed the node yet.
    Changed,
}

impl Look {
    /// The process behind the address.
    pub(super) fn run_id(&self) -> &str {
        self.epoch.split(':').next().unwrap_or_default()
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// The gate that lets the node vote.
    pub(super) fn opened_gate(&self, floored: bool) -> String {
        let state = if floored { "floored" } else { "open" };
        format!(
            "{}|{state}|{}|0|{}|{}|{}",
            self.epoch,
            self.nodes.unwrap_or_default(),
            u8::from(self.strict),
            self.longest_ms,
            self.wall_ms
        )
    }
}

pub(super) fn now() -> BootInstant {
    SystemClock.now()
}

pub(super) fn read_look(answer: Data, sent: BootInstant, opened: Option<u64>) -> Result<Look> {
    let received = now();
    let answer = answer.list()?;
    let field = |at: usize| answer.get(at).ok_or_else(no_answer);
    let state = match field(2)?.text()?.as_str() {
        "open" => State::Open { floored: false },
        "floored" => State::Open { floored: true },
        "changed" => State::Changed,
        since => State::Closed { since_ms: since.parse().map_err(|_| no_answer())? },
    };
    Ok(Look {
        epoch: field(0)?.text()?,
        gate: field(1)?.text()?,
        state,
        nodes: field(3)?.text()?.parse().ok(),
        fresh: field(4)?.int()? == 1,
        strict: field(5)?.int()? == 1,
        longest_ms: field(6)?.uint()?,
        wall_ms: field(7)?.uint()?,
        counter: field(8)?.uint()?,
        clock: ClockReading { sent, received, node_ms: field(9)?.uint()? },
        opened,
    })
}
