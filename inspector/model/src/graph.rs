//! Who waits for whom, across all locks of all snapshots: rings of waits, and how certain each is.
//!
//! A store knows acquisitions, not the tasks of a program. That the one who waits is the one who holds is certain
//! only for nested `polylatch run`s; for everything else it is a presumption, which has to last.

use std::collections::{HashMap, HashSet, VecDeque};

use polylatch::ClientId;
use polylatch::inspect::{HolderView, LockView, Snapshot};

use super::HostFacts;
use super::connection::ConnectionId;
use super::parties::{Ancestors, Parties, ancestors};

/// What `polylatch run` appends to the command's name. Such a client holds one lock, and does nothing but wait for
/// the end of its command.
pub const RUN_PROGRAM: &str = " via polylatch";

/// One store, to be looked at together with others.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "borrows a trait object and is never kept")]
pub struct Source<'a> {
    /// Which connection.
    pub connection: &'a ConnectionId,
    /// What it showed.
    pub snapshot: &'a Snapshot,
    /// What is known of the processes on the viewer's host.
    pub facts: &'a dyn HostFacts,
}

/// One client waits for a lock that another client holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The connection that the lock belongs to.
    pub connection: ConnectionId,
    /// Who waits.
    pub waiter: ClientId,
    /// The queued client, if the waiter only waits for the end of that process.
    pub through: Option<ClientId>,
    /// For what; the name as the store has it.
    pub lock: String,
    /// Who holds it.
    pub holder: ClientId,
    /// How long it waits.
    pub waited_ms: u64,
    /// How long the holder has held it.
    pub held_for_ms: Option<u64>,
    /// The holder's fencing token.
    pub fencing_token: Option<u64>,
    /// What the waiter says that it wants to do.
    pub label: String,
    /// What the holder says that it is doing.
    pub holder_label: String,
    /// The two acquisitions, as digests of their owner tokens: the waiting one and the holding one.
    acquisitions: [String; 2],
    /// The waiting process waits for nothing else.
    only: bool,
    /// The waiter is the `run` whose command started the process in the queue.
    nested: bool,
    /// When the store was read, and when this wait was first seen in the ring; on the store's clock.
    read_at_ms: u64,
    seen_since_ms: u64,
}

/// How sure it is that a ring is a deadlock, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// A client in it waits for several locks, so it has several tasks. The one that holds may be another than the
    /// one that waits.
    Faint,
    /// Each client in it waits for one lock only, or under the label under which it holds.
    Likely,
    /// Each link is known: nested `polylatch run`s.
    Proved,
}

impl Certainty {
    /// How long a ring must last before it is shown. Tasks that work for a while under one lock each form rings by
    /// chance, which end with the work.
    fn stands_after_ms(self) -> u64 {
        match self {
            Self::Proved => 1_000,
            Self::Likely => 4_000,
            Self::Faint => 30_000,
        }
    }
}

/// Clients that wait for each other in a ring: every wait's holder is the next wait's waiter, or the same
/// process in another store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The waits, starting with the first lock by name.
    pub waits: Vec<Wait>,
}

impl Cycle {
    /// How long the ring has been closed: since its youngest wait or hold.
    pub fn age_ms(&self) -> u64 {
        self.waits
            .iter()
            .map(|wait| wait.waited_ms.min(wait.held_for_ms.unwrap_or(u64::MAX)))
            .min()
            .unwrap_or(0)
    }

    /// How sure it is: as sure as its weakest link.
    pub fn certainty(&self) -> Certainty {
        let link = |(first, then): (&Wait, &Wait)| match () {
            () if then.nested => Certainty::Proved,
            () if then.only => Certainty::Likely,
            () if !then.label.is_empty() && first.holder_label == then.label => Certainty::Likely,
            () => Certainty::Faint,
        };
        let next = self.waits.iter().cycle().skip(1);
        self.waits.iter().zip(next).map(link).min().unwrap_or(Certainty::Faint)
    }

    /// Says whether every link of it is known.
    pub fn is_proved(&self) -> bool {
        self.certainty() == Certainty::Proved
    }

    /// Says whether it is to be shown: the same acquisitions were in it in two snapshots of each store, and it has
    /// lasted long enough.
    pub fn stands(&self) -> bool {
        let seen_twice = self.waits.iter().all(|wait| wait.read_at_ms > wait.seen_since_ms);
        seen_twice && self.age_ms() >= self.certainty().stands_after_ms()
    }

    /// Says whether both are of the same acquisitions: no lock in it changed hands.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same = |(one, other): (&Wait, &Wait)| {
            one.lock == other.lock
                && one.connection == other.connection
                && one.acquisitions == other.acquisitions
                && one.fencing_token == other.fencing_token
        };
        self.waits.len() == other.waits.len() && self.waits.iter().zip(&other.waits).all(same)
    }

    /// Where a break loses least: the lock that was taken last.
    pub fn cheapest(&self) -> Option<&Wait> {
        self.waits.iter().min_by_key(|wait| wait.held_for_ms.unwrap_or(u64::MAX))
    }
}

/// Returns the rings of a snapshot, each with the time since when it has been seen without a hand-off in it. Rings of
/// the snapshot before are known by their acquisitions.
pub(super) fn lasting(mut rings: Vec<Cycle>, before: &[Cycle]) -> Vec<Cycle> {
    for ring in &mut rings {
        if let Some(known) = before.iter().find(|known| known.is(ring)) {
            for (wait, known) in ring.waits.iter_mut().zip(&known.waits) {
                wait.seen_since_ms = known.seen_since_ms;
            }
        }
    }
    rings
}

/// Most rings that are reported; a store in which everything waits for everything has too many to read.
const MOST_CYCLES: usize = 100;

/// A wait between two parties.
struct Arrow {
    from: usize,
    to: usize,
    wait: Wait,
}

/// Finds rings of waiting clients, the shortest through each lock, each once, ordered by first lock.
///
/// A waiter waits for every holder it cannot be beside. For permits that is a holder without whose own
/// there are too few, whatever the other clients release, for the waiter or for one before it in the queue; so a
/// ring that needs several holders of one semaphore is not found.
///
/// A holding client that started a waiting one waits with it, in whatever stores they are.
///
/// A client that waits for a lock it holds itself is not a ring: its tasks take turns. Whether one
/// task of a client both holds and waits is not in the store, so most rings are a suspicion, see
/// [`Cycle::certainty`]; what a client took after it began to wait is no part of one. Only
/// [`Cycle::stands`] tells a passing coincidence from a lasting ring.
pub fn cycles(sources: &[Source<'_>]) -> Vec<Cycle> {
    // Most stores have nobody that both holds and waits, and this stays cheap.
    if sources.iter().all(|source| source.snapshot.locks.iter().all(|lock| lock.waiters.is_empty())) {
        return Vec::new();
    }
    let parties = Parties::of(sources);
    let arrows = arrows(sources, &parties);
    let mut out: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, arrow) in arrows.iter().enumerate() {
        out.entry(arrow.from).or_default().push(index);
    }
    let holders: HashSet<usize> = arrows.iter().map(|arrow| arrow.to).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (index, arrow) in arrows.iter().enumerate() {
        if found.len() == MOST_CYCLES {
            break;
        }
        if !holders.contains(&arrow.from) || !out.contains_key(&arrow.to) {
            continue;
        }
        if let Some(ring) = shortest_ring(&arrows, &out, index) {
            let mut key = ring.clone();
            key.sort_unstable();
            if seen.insert(key) {
                found.push(Cycle { waits: rotated(&arrows, &ring) });
            }
        }
    }
    found
}

/// Says whether a snapshot has rings of waits, of which some may pass.
pub fn has_rings(snapshot: &Snapshot, facts: &dyn HostFacts) -> bool {
    !cycles(&[Source { connection: &ConnectionId::new(""), snapshot, facts }]).is_empty()
}

fn arrows(sources: &[Source<'_>], parties: &Parties<'_>) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let ancestors = ancestors(sources);
    // Only who both waits and holds can be in a ring; without this, many readers are far too many waits.
    let (waiting, holding) = (waiting(sources, parties, &ancestors), holding(sources, parties));
    for (at, source) in sources.iter().enumerate() {
        for lock in source.snapshot.locks.iter().filter(|lock| !lock.waiters.is_empty()) {
            for (client, holder, permits) in by_client(lock) {
                let Some(to) = parties.get(at, client).filter(|party| waiting.contains_key(party)) else {
                    continue;
                };
                let others = lock.capacity.map_or(0, |capacity| capacity.saturating_sub(permits));
                let mut wanted = 0;
                for waiter in lock.waiters.iter().filter(|waiter| !waiter.silent) {
                    wanted = waiter.permits.max(wanted);
                    let needs = lock.capacity.is_none() || wanted > others;
                    let Some(from) = parties.get(at, &waiter.client).filter(|from| *from != to && needs)
                    else {
                        continue;
                    };
                    let wait = || Wait {
                        connection: source.connection.clone(),
                        waiter: waiter.client.clone(),
                        through: None,
                        lock: lock.name.clone(),
                        holder: client.clone(),
                        waited_ms: waiter.waited_ms,
                        held_for_ms: holder.held_for_ms,
                        fencing_token: holder.fencing_token.map(|token| token.get()),
                        label: waiter.label.clone(),
                        holder_label: holder.label.clone(),
                        acquisitions: [waiter.owner_digest.clone(), holder.owner_digest.clone()],
                        only: waiting.get(&from) == Some(&1),
                        nested: false,
                        read_at_ms: source.snapshot.taken_at_ms,
                        seen_since_ms: source.snapshot.taken_at_ms,
                    };
                    for &(place, ancestor) in ancestors.get(&(at, &waiter.client)).into_iter().flatten() {
                        // They hold: that is how they were found.
                        let through = Some(waiter.client.clone());
                        let Some(from) = parties.get(place, ancestor) else { continue };
                        let nested = is_run(sources, place, ancestor);
                        arrows.push(Arrow {
                            from,
                            to,
                            wait: Wait { waiter: ancestor.clone(), through, nested, ..wait() },
                        });
                    }
                    if holding.contains(&from) {
                        arrows.push(Arrow { from, to, wait: wait() });
                    }
                }
            }
        }
    }
    arrows
}

/// Says whether a client is a `polylatch run`.
fn is_run(sources: &[Source<'_>], at: usize, id: &ClientId) -> bool {
    let client = sources[at].snapshot.clients.iter().find(|client| client.id == *id);
    client.is_some_and(|client| client.program.ends_with(RUN_PROGRAM))
}

/// Who waits, and who waits for the end of a process that waits; each with the number of its waits.
fn waiting<'a>(
    sources: &[Source<'a>],
    parties: &Parties<'a>,
    ancestors: &Ancestors<'a>,
) -> HashMap<usize, usize> {
    let mut found = HashMap::new();
    for (at, source) in sources.iter().enumerate() {
        let line = source.snapshot.locks.iter().flat_map(|lock| &lock.waiters);
        for waiter in line.filter(|waiter| !waiter.silent) {
            let started = ancestors.get(&(at, &waiter.client)).into_iter().flatten();
            let with_it = started.filter_map(|&(place, id)| parties.get(place, id));
            for party in parties.get(at, &waiter.client).into_iter().chain(with_it) {
                *found.entry(party).or_default() += 1;
            }
        }
    }
    found
}

fn holding(sources: &[Source<'_>], parties: &Parties<'_>) -> HashSet<usize> {
    let mut found = HashSet::new();
    for (at, source) in sources.iter().enumerate() {
        let holders = source.snapshot.locks.iter().flat_map(|lock| &lock.holders);
        found
            .extend(holders.filter_map(|holder| holder.client.as_ref()).filter_map(|id| parties.get(at, id)));
    }
    found
}

/// The clients that hold a lock, each with its first lease and all its permits.
fn by_client(lock: &LockView) -> impl Iterator<Item = (&ClientId, &HolderView, u32)> {
    let mut found: Vec<(&ClientId, &HolderView, u32)> = Vec::new();
    let mut places = HashMap::new();
    for holder in &lock.holders {
        let Some(client) = &holder.client else { continue };
        let place = *places.entry(client).or_insert(found.len());
        match found.get_mut(place) {
            Some((.., permits)) => *permits = permits.saturating_add(holder.permits),
            None => found.push((client, holder, holder.permits)),
        }
    }
    found.into_iter()
}

/// A wait and the hold before it may seem to lie in the wrong order by this: they are counted when each was
/// written, in whole milliseconds, and in two stores also when each was read.
const AGES_APART_MS: u64 = 250;
const AGES_APART_BETWEEN_STORES_MS: u64 = 10_000;

/// Says whether who holds what `first` waits for may be held up by waiting as in `then`. A task that waits
/// takes nothing meanwhile: a lock that its client took later is another task's, which goes on.
fn leads_on(first: &Wait, then: &Wait) -> bool {
    let same = first.connection == then.connection;
    let apart = if same { AGES_APART_MS } else { AGES_APART_BETWEEN_STORES_MS };
    first.held_for_ms.is_none_or(|held| held.saturating_add(apart) >= then.waited_ms)
}

/// The shortest way from the end of an arrow back to its beginning, as indices of arrows.
fn shortest_ring(arrows: &[Arrow], out: &HashMap<usize, Vec<usize>>, start: usize) -> Option<Vec<usize>> {
    let goal = arrows[start].from;
    if goal == arrows[start].to {
        return Some(vec![start]);
    }
    let held = |arrow: usize| arrows[arrow].wait.held_for_ms.unwrap_or(u64::MAX);
    let mut came_by: HashMap<usize, usize> = HashMap::new();
    // What was held the longest leads on to all that the others lead on to.
    let mut longest: HashMap<usize, u64> = HashMap::from([(arrows[start].to, held(start))]);
    let mut queue = VecDeque::from([start]);
    while let Some(by) = queue.pop_front() {
        for &next in out.get(&arrows[by].to).into_iter().flatten() {
            if next == start || came_by.contains_key(&next) || !leads_on(&arrows[by].wait, &arrows[next].wait)
            {
                continue;
            }
            let holder = arrows[next].to;
            if holder == goal && leads_on(&arrows[next].wait, &arrows[start].wait) {
                let back = |at: &usize| came_by.get(at).copied();
                let mut ring: Vec<usize> =
                    std::iter::once(next).chain(std::iter::successors(Some(by), back)).collect();
                ring.reverse();
                return Some(ring);
            }
            let longer = longest.get(&holder).is_none_or(|known| held(next) > *known);
            if holder != goal && longer {
                longest.insert(holder, held(next));
                came_by.insert(next, by);
                queue.push_back(next);
            }
        }
    }
    None
}

fn rotated(arrows: &[Arrow], ring: &[usize]) -> Vec<Wait> {
    let name = |at: usize| (&arrows[ring[at]].wait.lock, &arrows[ring[at]].wait.connection);
    let first = (0..ring.len()).min_by_key(|at| name(*at)).unwrap_or(0);
    ring[first..].iter().chain(&ring[..first]).map(|&index| arrows[index].wait.clone()).collect()
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
