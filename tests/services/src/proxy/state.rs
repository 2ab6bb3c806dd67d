//! What the proxy is told to do, and what it has seen; shared by all its threads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::link::Link;
use super::pattern::{Pattern, Scripts};

/// Silence of different kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    /// None: everything passes.
    #[default]
    Off,
    /// A black hole: what is sent is accepted and lost. Connections that lost something are reset
    /// when the hold ends, because a byte stream with a gap does not exist in TCP.
    Swallow,
    /// A cut cable that is plugged in again: what is sent waits and arrives when the hold ends.
    Stall,
    /// Requests reach the server; replies wait until the hold ends.
    StallReplies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    DropRequest,
    DropReply,
    Duplicate,
}

#[derive(Debug)]
struct Rule {
    pattern: Pattern,
    /// How many more matches it takes.
    remaining: usize,
    action: Action,
    fired: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct State {
    pub target: SocketAddr,
    pub latency_to_server: Duration,
    pub latency_to_client: Duration,
    pub hold: Hold,
    pub slice: Option<usize>,
    pub push_loss: f64,
    pub random: u64,
    pub scripts: Scripts,
    pub counts: BTreeMap<String, u64>,
    pub pushes_dropped: u64,
    pub accepted: u64,
    pub malformed: Vec<String>,
    pub links: Vec<Weak<Link>>,
    rules: Vec<Rule>,
}

impl State {
    pub fn add_rule(&mut self, pattern: Pattern, nth: usize, action: Action) -> Arc<AtomicBool> {
        assert!(nth > 0, "requests are counted from 1");
        let fired = Arc::new(AtomicBool::new(false));
        self.rules.push(Rule { pattern, remaining: nth, action, fired: fired.clone() });
        fired
    }

    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Counts the request and finds what is to happen to it.
    pub fn judge(&mut self, words: &[Vec<u8>]) -> Option<(Action, Arc<AtomicBool>)> {
        let command = words.first().map(|word| String::from_utf8_lossy(word));
        let command = command.unwrap_or_default().to_ascii_uppercase();
        *self.counts.entry(command).or_default() += 1;
        self.scripts.learn(words);
        let mut due = None;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if !rule.pattern.matches(words, &self.scripts) {
                continue;
            }
            // One request suffers once: a second rule that is due waits for the next match.
            if rule.remaining > 1 {
                rule.remaining -= 1;
            } else if due.is_none() {
                due = Some(index);
            }
        }
        due.map(|index| {
            let rule = self.rules.remove(index);
            (rule.action, rule.fired)
        })
    }

    /// Whether this push is among the lost ones.
    pub fn loses_push(&mut self) -> bool {
        // xorshift64*: the same losses in every run.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        let lost = (drawn as f64) < self.push_loss * (1u64 << 53) as f64;
        self.pushes_dropped += u64::from(lost);
        lost
    }

    pub fn live_links(&mut self) -> Vec<Arc<Link>> {
        self.links.retain(|link| link.strong_count() > 0);
        self.links.iter().filter_map(Weak::upgrade).collect()
    }
}

/// What a writer may do with the parcel in its hand.
pub(super) enum Passage {
    Deliver { slice: Option<usize> },
    Lose,
    Dead,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn new(target: SocketAddr) -> Shared {
        Shared {
            changed: Condvar::new(),
            state: Mutex::new(State {
                target,
                latency_to_server: Duration::ZERO,
                latency_to_client: Duration::ZERO,
                hold: Hold::Off,
                slice: None,
                push_loss: 0.0,
                random: 0x9e37_79b9_7f4a_7c15,
                scripts: Scripts::default(),
                counts: BTreeMap::new(),
                pushes_dropped: 0,
                accepted: 0,
                malformed: Vec::new(),
                links: Vec::new(),
                rules: Vec::new(),
            }),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everyone who waits for a hold to end or a connection to die.
    pub fn announce(&self) {
        // Under the lock: a waiter between its check and its wait would miss the call.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Waits until a parcel may go: its time has come and nothing holds its direction.
    pub fn pass(&self, link: &Link, direction: Direction, due: Instant) -> Passage {
        let mut state = self.lock();
        loop {
            if link.is_dead() {
                return Passage::Dead;
            }
            if link.is_severed() {
                return Passage::Lose;
            }
            let now = Instant::now();
            let stalled = match state.hold {
                Hold::Swallow => {
                    // Under the lock, so that the end of the hold sees the mark.
                    link.taint();
                    return Passage::Lose;
                }
                Hold::Stall => true,
                Hold::StallReplies => direction == Direction::ToClient,
                Hold::Off => link.is_delayed(),
            };
            state = if stalled {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if due > now {
                self.changed.wait_timeout(state, due - now).unwrap_or_else(PoisonError::into_inner).0
            } else {
                return Passage::Deliver { slice: state.slice };
            };
        }
    }
}

/// A fault that waits for its request.
#[derive(Debug, Clone)]
pub struct Fault {
    pub(super) fired: Arc<AtomicBool>,
}

impl Fault {
    /// Whether it has happened: the request or the reply is lost, or the copy is on its way.
    pub fn has_fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }
}
