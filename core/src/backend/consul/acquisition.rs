//! What this client knows of its own acquisitions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::task::AbortHandle;

use crate::backend::Contender;
use crate::backend::consul::protocol::records::Follower;
use crate::backend::consul::sessions::{Permit, Session};
use crate::clock::{BootInstant, Clock, SystemClock};
use crate::mode::Mode;
use crate::name::LockName;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// How long a lock counts as contended after somebody was seen to wait for it.
const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// From how many waiters on a line is long: whoever joins it has no use for reading it.
const LONG_LINE: usize = 4;

/// What is known of a lock that somebody was seen to wait for.
struct Contended {
    until: BootInstant,
    /// How many were seen to wait.
    waiters: usize,
}

/// Where an acquisition stands, as far as this client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    InLine {
        /// When the store was last asked.
        asked_at: BootInstant,
        position: u32,
        /// Up to which index the store was seen then.
        seen: u64,
    },
    Held(Lease),
}

/// A lease that the store has granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub fence: u64,
    /// The key that stands for it, and its index.
    pub key: String,
    pub index: u64,
    /// Nobody relies on it after this.
    pub ends_at: BootInstant,
}

/// One acquisition, from its first poll until it is released or given up.
pub(super) struct Acquisition {
    pub contender: Arc<Contender>,
    /// Held by the verb under way: what one left unfinished, the next has to see.
    pub turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub session: Option<Arc<Session>>,
    /// The sessions of a semaphore's permits, the first of which is `session`.
    pub permits: Vec<Permit>,
    pub place: Place,
    /// A request has left whose answer nobody has seen.
    pub uncertain: bool,
    /// It may have stood in line, so a letter may have come.
    pub stood_in_line: bool,
    /// When a lease that is over is tried to be given back again.
    pub given_back_again: Option<BootInstant>,
    /// Those who were seen to stand behind it when it got a mutex.
    pub next: Vec<Follower>,
    /// Nobody stood behind it then.
    pub alone: bool,
    /// Learns who comes next.
    pub lookout: Option<AbortHandle>,
    /// Watches for the end of a lease of another program.
    pub watch: Option<(u64, AbortHandle)>,
    /// The lock-delay of the last holder that was seen.
    pub delay: Option<Duration>,
}

impl Acquisition {
    fn new(contender: Arc<Contender>) -> Self {
        let state = State {
            session: None,
            permits: Vec::new(),
            place: Place::Nowhere,
            uncertain: false,
            stood_in_line: false,
            given_back_again: None,
            next: Vec::new(),
            alone: false,
            lookout: None,
            watch: None,
            delay: None,
        };
        Self { contender, turn: tokio::sync::Mutex::default(), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        match &self.state().place {
            Place::Held(lease) => Some(lease.clone()),
            _ => None,
        }
    }

    /// Notes a grant. It is relied on for the first lease from when its request or letter was on its
    /// way, so it ends no later than that from now.
    pub(super) fn granted(&self, fence: u64, key: String, index: u64) {
        let ends_at = SystemClock.now() + self.contender.first_lease;
        let mut state = self.state();
        let ends_at = match &state.place {
            Place::Held(known) if known.fence == fence => known.ends_at.max(ends_at),
            _ => ends_at,
        };
        state.place = Place::Held(Lease { fence, key, index, ends_at });
        stop_watching(&mut state);
    }

    /// Notes a place in line, unless a letter has come since.
    pub(super) fn waits(&self, position: u32, seen: u64) {
        let asked_at = SystemClock.now();
        let mut state = self.state();
        if !matches!(&state.place, Place::Held(lease) if lease.fence > seen) {
            state.place = Place::InLine { asked_at, position, seen };
        }
    }

    /// Takes out those who come next, as far as they are known.
    pub(super) fn take_next(&self) -> Vec<Follower> {
        let mut state = self.state();
        stop_looking_out(&mut state);
        std::mem::take(&mut state.next)
    }

    /// Ends the requests that wait for news of its lock.
    pub(super) fn stop_asking(&self) {
        let mut state = self.state();
        stop_watching(&mut state);
        stop_looking_out(&mut state);
    }

    pub(super) fn extended(&self, until: BootInstant) {
        if let Place::Held(lease) = &mut self.state().place {
            lease.ends_at = lease.ends_at.max(until);
        }
    }

    /// All sessions that it hangs on.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        let state = self.state();
        let first = state.session.iter().cloned();
        first.chain(state.permits.iter().skip(1).map(|permit| Arc::clone(&permit.session))).collect()
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.stop_asking();
    }
}

fn stop_looking_out(state: &mut State) {
    if let Some(lookout) = state.lookout.take() {
        lookout.abort();
    }
}

fn stop_watching(state: &mut State) {
    if let Some((_, watch)) = state.watch.take() {
        watch.abort();
    }
}

/// The acquisitions of one client by owner, and which locks are contended.
#[derive(Default)]
pub(super) struct Acquisitions {
    by_owner: Mutex<HashMap<OwnerToken, Arc<Acquisition>>>,
    contended: Mutex<HashMap<LockName, Contended>>,
    /// The waiter that looks for all of this client whether a lock has become free, and when it last did.
    scouts: Mutex<HashMap<LockName, (OwnerToken, BootInstant)>>,
    /// One for every shared lock that a verb is about right now.
    turns: Mutex<HashMap<LockName, Weak<tokio::sync::Mutex<()>>>>,
}

impl Acquisitions {
    pub(super) fn get(&self, owner: OwnerToken) -> Option<Arc<Acquisition>> {
        unpoisoned(&self.by_owner).get(&owner).cloned()
    }

    pub(super) fn of(&self, contender: &Arc<Contender>) -> Arc<Acquisition> {
        let mut by_owner = unpoisoned(&self.by_owner);
        let acquisition = by_owner
            .entry(contender.owner)
            .or_insert_with(|| Arc::new(Acquisition::new(Arc::clone(contender))));
        Arc::clone(acquisition)
    }

    pub(super) fn forget(&self, owner: OwnerToken) {
        unpoisoned(&self.by_owner).remove(&owner);
    }

    pub(super) fn all(&self) -> Vec<Arc<Acquisition>> {
        unpoisoned(&self.by_owner).values().cloned().collect()
    }

    /// The ids of the sessions that something hangs on.
    pub(super) fn needed(&self) -> HashSet<String> {
        self.all().iter().flat_map(|one| one.sessions()).map(|session| session.id.clone()).collect()
    }

    /// Whether this waiter is the one that looks whether its lock has become free, `every` so long. It
    /// becomes that if no other has looked lately.
    pub(super) fn scouts(&self, name: &LockName, owner: OwnerToken, every: Duration) -> bool {
        if every.is_zero() {
            return false;
        }
        let now = SystemClock.now();
        let mut scouts = unpoisoned(&self.scouts);
        scouts.retain(|_, (_, looked)| now.since(*looked) < every * 2);
        let scout = scouts.entry(name.clone()).or_insert((owner, now));
        if scout.0 == owner {
            scout.1 = now;
        }
        scout.0 == owner
    }

    /// Notes that somebody waits, and how many if that was seen.
    pub(super) fn note_contended(&self, name: &LockName, waiters: Option<usize>) {
        let now = SystemClock.now();
        let mut contended = unpoisoned(&self.contended);
        contended.retain(|_, known| now < known.until);
        let until = now + CONTENDED_FOR;
        let known = contended.entry(name.clone()).or_insert(Contended { until, waiters: 0 });
        *known = Contended { until, waiters: waiters.unwrap_or(known.waiters) };
    }

    pub(super) fn line_is_long(&self, name: &LockName) -> bool {
        unpoisoned(&self.contended).get(name).is_some_and(|known| known.waiters >= LONG_LINE)
    }

    /// Waits until the others of this client are done with a shared lock, at most this long: many that
    /// look at one lock and change it at once only refuse each other. Nothing is wrong without it, so
    /// that one request without an answer does not hold up all others.
    pub(super) async fn turn_at(
        &self,
        contender: &Contender,
        limit: Duration,
    ) -> Option<OwnedMutexGuard<()>> {
        if contender.mode == Mode::Mutex {
            return None;
        }
        let turn = {
            let mut turns = unpoisoned(&self.turns);
            match turns.get(&contender.name).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    turns.retain(|_, turn| turn.strong_count() > 0);
                    let turn = Arc::default();
                    turns.insert(contender.name.clone(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        tokio::time::timeout(limit, turn.lock_owned()).await.ok()
    }

    pub(super) fn is_contended(&self, name: &LockName) -> bool {
        unpoisoned(&self.contended).get(name).is_some_and(|known| SystemClock.now() < known.until)
    }
}
