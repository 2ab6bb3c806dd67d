//! Who waits for whom, across all locks of all readings: rings of waits.

use std::collections::{HashMap, HashSet, VecDeque};

use polylatch::ClientId;
use polylatch::inspect::{HolderView, LockView, Snapshot};

use super::connection::ConnectionId;

/// One store, to be looked at together with others.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Which connection.
    pub connection: &'a ConnectionId,
    /// What it showed.
    pub snapshot: &'a Snapshot,
    /// Which of its holding clients are known to have started a waiting one.
    pub ancestors: &'a Ancestors,
}

/// One client waits for a lock that another client holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The connection that the lock belongs to.
    pub connection: ConnectionId,
    /// Who waits.
    pub waiter: ClientId,
    /// The client that stands in line, if the waiter only waits for the end of that process.
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

    /// Where a break loses least: the lock that was taken last.
    pub fn cheapest(&self) -> Option<&Wait> {
        self.waits.iter().min_by_key(|wait| wait.held_for_ms.unwrap_or(u64::MAX))
    }
}

/// For a waiting client, the holding clients that started it, directly or not.
pub type Ancestors = HashMap<ClientId, Vec<ClientId>>;

/// Most rings that are told; a store in which everything waits for everything has too many to read.
const MOST_CYCLES: usize = 100;

/// Which clients are one party: a process that is connected to several stores waits in one of them and
/// holds in another. Two clients of a process in one store stay apart, as its tasks do.
#[derive(Debug, Default)]
pub(super) struct Parties<'a> {
    of: HashMap<(usize, &'a ClientId), usize>,
    processes: HashMap<(&'a str, u32, Option<u64>), (usize, usize)>,
    /// How many there are.
    pub count: usize,
}

impl<'a> Parties<'a> {
    /// Names the parties of all clients that hold or wait in these readings.
    pub(super) fn of(readings: &[Reading<'a>]) -> Self {
        let mut parties = Self::default();
        for (at, reading) in readings.iter().enumerate() {
            let said: HashMap<&ClientId, _> = if readings.len() > 1 {
                reading.snapshot.clients.iter().map(|client| (&client.id, client)).collect()
            } else {
                HashMap::new()
            };
            for lock in &reading.snapshot.locks {
                let holders = lock.holders.iter().filter_map(|holder| holder.client.as_ref());
                for id in holders.chain(lock.waiters.iter().map(|waiter| &waiter.client)) {
                    if parties.of.contains_key(&(at, id)) {
                        continue;
                    }
                    let process = said
                        .get(id)
                        .filter(|client| !client.host.is_empty())
                        .map(|client| (client.host.as_str(), client.pid, client.process_started_at_ms));
                    let known = process.and_then(|process| parties.processes.get(&process));
                    let party = match known {
                        Some(&(party, elsewhere)) if elsewhere != at => party,
                        _ => {
                            let party = parties.count;
                            parties.count += 1;
                            if let Some(process) = process {
                                parties.processes.entry(process).or_insert((party, at));
                            }
                            party
                        }
                    };
                    parties.of.insert((at, id), party);
                }
            }
        }
        parties
    }

    /// Returns the party of a client of reading number `at`.
    pub(super) fn get(&self, at: usize, id: &'a ClientId) -> Option<usize> {
        self.of.get(&(at, id)).copied()
    }
}

/// A wait between two parties.
struct Arrow {
    from: usize,
    to: usize,
    wait: Wait,
}

/// Finds rings of waiting clients, the shortest through each lock, each once, ordered by first lock.
///
/// A waiter waits for every holder it cannot be beside. For permits that is a holder without whose own
/// there are too few, whatever the others give back, for the waiter or for one before it in line; so a
/// ring that needs several holders of one semaphore is not found.
///
/// Ancestors tell which holding clients are known to have started a waiting one: they wait with it.
///
/// A client that waits for a lock it holds itself is not a ring: its tasks take turns. Whether one
/// task of a client both holds and waits is not in the store, so a ring is strong evidence of a
/// deadlock, not proof; what a client took after it began to wait is no part of one, and
/// [`Cycle::age_ms`] tells a passing coincidence from a standing one.
pub fn cycles(readings: &[Reading<'_>]) -> Vec<Cycle> {
    // Most stores have nobody that both holds and waits, and this stays cheap.
    if readings.iter().all(|reading| reading.snapshot.locks.iter().all(|lock| lock.waiters.is_empty())) {
        return Vec::new();
    }
    let parties = Parties::of(readings);
    let arrows = arrows(readings, &parties);
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

fn arrows(readings: &[Reading<'_>], parties: &Parties<'_>) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    // Only who both waits and holds can be in a ring; without this, many readers are far too many waits.
    let (waiting, holding) = (waiting(readings, parties), holding(readings, parties));
    for (at, reading) in readings.iter().enumerate() {
        for lock in reading.snapshot.locks.iter().filter(|lock| !lock.waiters.is_empty()) {
            for (client, holder, permits) in by_client(lock) {
                let Some(to) = parties.get(at, client).filter(|party| waiting.contains(party)) else {
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
                        connection: reading.connection.clone(),
                        waiter: waiter.client.clone(),
                        through: None,
                        lock: lock.name.clone(),
                        holder: client.clone(),
                        waited_ms: waiter.waited_ms,
                        held_for_ms: holder.held_for_ms,
                        fencing_token: holder.fencing_token.map(|token| token.get()),
                    };
                    for ancestor in reading.ancestors.get(&waiter.client).into_iter().flatten() {
                        // They hold: that is how they were found.
                        let through = Some(waiter.client.clone());
                        let Some(from) = parties.get(at, ancestor) else { continue };
                        arrows.push(Arrow {
                            from,
                            to,
                            wait: Wait { waiter: ancestor.clone(), through, ..wait() },
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

/// Who waits, and who waits for the end of a process that waits.
fn waiting(readings: &[Reading<'_>], parties: &Parties<'_>) -> HashSet<usize> {
    let mut found = HashSet::new();
    for (at, reading) in readings.iter().enumerate() {
        let line = reading.snapshot.locks.iter().flat_map(|lock| &lock.waiters);
        for waiter in line.filter(|waiter| !waiter.silent) {
            found.extend(parties.get(at, &waiter.client));
            let ancestors = reading.ancestors.get(&waiter.client).into_iter().flatten();
            found.extend(ancestors.filter_map(|id| parties.get(at, id)));
        }
    }
    found
}

fn holding(readings: &[Reading<'_>], parties: &Parties<'_>) -> HashSet<usize> {
    let mut found = HashSet::new();
    for (at, reading) in readings.iter().enumerate() {
        let holders = reading.snapshot.locks.iter().flat_map(|lock| &lock.holders);
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

/// Says whether who holds what `first` waits for may be held up by waiting as in `then`. Somebody who waits
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
mod tests {
    use super::super::fixture::{clients, held, lock, read_write, semaphore, snapshot, waiting};
    use super::*;

    fn rings(snapshot: &Snapshot) -> Vec<Cycle> {
        let connection = ConnectionId::new("here");
        cycles(&[Reading { connection: &connection, snapshot, ancestors: &Ancestors::new() }])
    }

    fn locks_of(cycle: &Cycle) -> Vec<&str> {
        cycle.waits.iter().map(|wait| wait.lock.as_str()).collect()
    }

    #[test]
    fn two_clients_that_wait_for_each_other_are_one_ring() {
        let [a, b, c] = clients();
        let found = rings(&snapshot(vec![
            lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000), waiting(c, 9_000)]),
            lock("stock", vec![held(b, 4_500)], vec![waiting(a, 3_000)]),
        ]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(locks_of(&found[0]), ["orders", "stock"]);
        assert_eq!(found[0].age_ms(), 3_000);
        assert_eq!(found[0].cheapest().unwrap().lock, "stock");
        for (wait, next) in found[0].waits.iter().zip(found[0].waits.iter().cycle().skip(1)) {
            assert_eq!(wait.holder, next.waiter);
        }
    }

    #[test]
    fn a_ring_of_three_is_found_once() {
        let [a, b, c] = clients();
        let found = rings(&snapshot(vec![
            lock("x", vec![held(a, 1)], vec![waiting(c, 1)]),
            lock("y", vec![held(b, 1)], vec![waiting(a, 1)]),
            lock("z", vec![held(c, 1)], vec![waiting(b, 1)]),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(locks_of(&found[0]), ["x", "y", "z"]);
    }

    #[test]
    fn a_lock_that_was_taken_while_its_client_waited_is_held_by_another_task_of_it() {
        let [a, b, _] = clients();
        let found = |taken_ms_ago: u64| {
            rings(&snapshot(vec![
                lock("carrier", vec![held(a, taken_ms_ago)], vec![waiting(b, 2_000)]),
                lock("stock", vec![held(b, 50_000)], vec![waiting(a, 40_000)]),
            ]))
        };
        assert_eq!(found(3_000), [], "a waits for stock in one task and goes on in another");
        assert_eq!(found(45_000).len(), 1);
        // The other ring of the same clients is one all the same.
        let both = rings(&snapshot(vec![
            lock("carrier", vec![held(a, 3_000)], vec![waiting(b, 2_000)]),
            lock("orders", vec![held(a, 50_000)], vec![waiting(b, 41_000)]),
            lock("stock", vec![held(b, 50_000)], vec![waiting(a, 40_000)]),
        ]));
        assert_eq!(both.len(), 1, "{both:?}");
        assert_eq!(locks_of(&both[0]), ["orders", "stock"]);
    }

    #[test]
    fn queues_chains_and_a_client_that_waits_for_itself_are_no_rings() {
        let [a, b, c] = clients();
        let chain = snapshot(vec![
            lock("x", vec![held(a, 1)], vec![waiting(a, 1), waiting(b, 1)]),
            lock("y", vec![held(b, 1)], vec![waiting(c, 1)]),
        ]);
        assert_eq!(rings(&chain), []);
    }

    #[test]
    fn a_writer_waits_for_every_reader() {
        let [a, b, c] = clients();
        let shared = lock("x", vec![held(c, 1), held(a, 1), held(a, 2)], vec![waiting(b, 1)]);
        let locks =
            vec![read_write(shared, "read", "write"), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
        let found = rings(&snapshot(locks));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].waits.iter().map(|wait| &wait.holder).collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn for_permits_that_others_can_give_back_nobody_waits_in_a_ring() {
        let [a, b, c] = clients();
        let number = |wanted: &[u32]| {
            let line = [b, c].map(|client| waiting(client, 1)).into_iter().take(wanted.len()).collect();
            let permits = lock("x", vec![held(a, 1), held(c, 1), held(a, 1)], line);
            let locks = vec![
                semaphore(permits, 5, &[1, 2, 1], wanted),
                lock("y", vec![held(b, 1)], vec![waiting(a, 1)]),
            ];
            rings(&snapshot(locks)).len()
        };
        assert_eq!(number(&[3]), 0, "c can give them back");
        assert_eq!(number(&[4]), 1, "without a there are only 3");
        assert_eq!(number(&[2, 4]), 0, "who stands behind is not waited for");
    }

    #[test]
    fn a_silent_waiter_no_longer_waits() {
        let [a, b, _] = clients();
        let mut gone = waiting(b, 1);
        gone.silent = true;
        let locks =
            vec![lock("x", vec![held(a, 1)], vec![gone]), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
        assert_eq!(rings(&snapshot(locks)), []);
    }

    #[test]
    fn a_ring_through_two_stores_is_found_by_the_processes_in_it() {
        let [a, b, c, d] = clients();
        // a and c are one process, b and d another; each pair is connected to both stores.
        let same = |mut reading: Snapshot| {
            for client in &mut reading.clients {
                client.pid = if client.id == *a || client.id == *c { 100 } else { 200 };
            }
            reading
        };
        let one = same(snapshot(vec![lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000)])]));
        let two = same(snapshot(vec![lock("stock", vec![held(d, 5_000)], vec![waiting(c, 3_000)])]));
        let (first, second) = (ConnectionId::new("first"), ConnectionId::new("second"));
        let none = Ancestors::new();
        let reading = |connection, snapshot| Reading { connection, snapshot, ancestors: &none };
        let found = cycles(&[reading(&first, &one), reading(&second, &two)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(locks_of(&found[0]), ["orders", "stock"]);
        assert_eq!([&found[0].waits[0].connection, &found[0].waits[1].connection], [&first, &second]);
        assert_eq!(rings(&one), [], "one store alone shows no ring");
        // Two clients of one process in one store are tasks of their own.
        let both = same(snapshot(vec![
            lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000)]),
            lock("stock", vec![held(b, 5_000)], vec![waiting(c, 3_000)]),
        ]));
        assert_eq!(rings(&both), []);
    }
}
