//! Who waits for whom: the wait-for graph across all locks of a reading, and its cycles.

use std::collections::{HashMap, HashSet, VecDeque};

use polylatch::ClientId;
use polylatch::inspect::{HolderView, LockView, Snapshot};

use super::connection::ConnectionId;
use super::rows::RowKey;

/// One client waits for a lock that another client holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
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

/// Clients that wait for each other in a ring: every wait's holder is the next wait's waiter.
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

/// Who waits for whom, without those that nobody waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// The client processes in it.
    pub parties: Vec<Party>,
    /// The locks in it.
    pub locks: Vec<RowKey>,
    /// Who holds what: arrows from a lock to a party.
    pub holds: Vec<Edge>,
    /// Who waits for what: arrows from a party to a lock.
    pub waits: Vec<Edge>,
    /// Rings, each once.
    pub rings: Vec<Cycle>,
    /// Trees of the waits that are in no ring, each from the party that everybody in it waits for in the
    /// end; the largest first.
    pub trees: Vec<Blocker>,
}

/// A client process in the graph. A process that is connected to several stores is one party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// `host pid 42 (program)`, harmless.
    pub who: String,
    /// Its ids, each with its connection.
    pub clients: Vec<(ConnectionId, ClientId)>,
}

/// An arrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Place among the parties.
    pub party: usize,
    /// Place among the locks.
    pub lock: usize,
    /// In which way it is held or wanted.
    pub mode: String,
    /// For how long, as of the reading.
    pub for_ms: Option<u64>,
}

/// A party that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Place among the parties.
    pub party: usize,
    /// The lock it is waited for with, by its place; `None` at the root.
    pub through: Option<usize>,
    /// How many parties wait for it, directly or not.
    pub blocked: usize,
    /// Who waits for it directly.
    pub behind: Vec<Blocker>,
}

impl Graph {
    /// Returns the graph in words, for screen readers and for tickets: rings first, then trees.
    pub fn text(&self) -> String {
        String::new()
    }
}

/// For a waiting client, the holding clients that started it, directly or not.
pub type Ancestors = HashMap<ClientId, Vec<ClientId>>;

/// Most rings that are told; a store in which everything waits for everything has too many to read.
const MOST_CYCLES: usize = 100;

/// Finds rings of waiting clients, the shortest through each lock, each once, ordered by first lock.
///
/// A waiter waits for every holder it cannot be beside. For permits that is a holder without whose own
/// there are too few, whatever the others give back, for the waiter or for one before it in line; so a
/// ring that needs several holders of one semaphore is not found.
///
/// `ancestors` tells which holding clients are known to have started a waiting one: they wait with it.
///
/// A client that waits for a lock it holds itself is not a ring: its tasks take turns. Whether one
/// task of a client both holds and waits is not in the store, so a ring is strong evidence of a
/// deadlock, not proof; [`Cycle::age_ms`] tells a passing coincidence from a standing one.
pub fn cycles(snapshot: &Snapshot, ancestors: &Ancestors) -> Vec<Cycle> {
    let waits = waits(snapshot, ancestors);
    let mut out: HashMap<&ClientId, Vec<usize>> = HashMap::new();
    for (index, wait) in waits.iter().enumerate() {
        out.entry(&wait.waiter).or_default().push(index);
    }
    // A ring needs clients that both hold and wait; most stores have none, and this stays cheap.
    let holders: HashSet<&ClientId> = waits.iter().map(|wait| &wait.holder).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (index, wait) in waits.iter().enumerate() {
        if found.len() == MOST_CYCLES {
            break;
        }
        if !holders.contains(&wait.waiter) || !out.contains_key(&wait.holder) {
            continue;
        }
        if let Some(ring) = shortest_ring(&waits, &out, index) {
            let mut key = ring.clone();
            key.sort_unstable();
            if seen.insert(key) {
                found.push(Cycle { waits: rotated(&waits, &ring) });
            }
        }
    }
    found
}

fn waits(snapshot: &Snapshot, ancestors: &Ancestors) -> Vec<Wait> {
    let mut waits = Vec::new();
    // Only who both waits and holds can be in a ring; without this, many readers are far too many waits.
    let (waiting, holding) = (waiting(snapshot, ancestors), holding(snapshot));
    for lock in &snapshot.locks {
        for (client, holder, permits) in by_client(lock).filter(|(client, ..)| waiting.contains(client)) {
            let others = lock.capacity.map_or(0, |capacity| capacity.saturating_sub(permits));
            let mut wanted = 0;
            for waiter in lock.waiters.iter().filter(|waiter| !waiter.silent) {
                wanted = waiter.permits.max(wanted);
                let needs = lock.capacity.is_none() || wanted > others;
                if waiter.client == *client || !needs {
                    continue;
                }
                let wait = Wait {
                    waiter: waiter.client.clone(),
                    through: None,
                    lock: lock.name.clone(),
                    holder: client.clone(),
                    waited_ms: waiter.waited_ms,
                    held_for_ms: holder.held_for_ms,
                    fencing_token: holder.fencing_token.map(|token| token.get()),
                };
                for ancestor in ancestors.get(&waiter.client).into_iter().flatten() {
                    // They hold: that is how they were found.
                    let through = Some(waiter.client.clone());
                    waits.push(Wait { waiter: ancestor.clone(), through, ..wait.clone() });
                }
                if holding.contains(&waiter.client) {
                    waits.push(wait);
                }
            }
        }
    }
    waits
}

/// Who waits, and who waits for the end of a process that waits.
fn waiting<'s>(snapshot: &'s Snapshot, ancestors: &'s Ancestors) -> HashSet<&'s ClientId> {
    let live = snapshot.locks.iter().flat_map(|lock| &lock.waiters).filter(|waiter| !waiter.silent);
    live.flat_map(|waiter| {
        std::iter::once(&waiter.client).chain(ancestors.get(&waiter.client).into_iter().flatten())
    })
    .collect()
}

fn holding(snapshot: &Snapshot) -> HashSet<&ClientId> {
    let holders = snapshot.locks.iter().flat_map(|lock| &lock.holders);
    holders.filter_map(|holder| holder.client.as_ref()).collect()
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

/// The shortest way from the end of wait `start` back to its beginning, as indices of waits.
fn shortest_ring(waits: &[Wait], out: &HashMap<&ClientId, Vec<usize>>, start: usize) -> Option<Vec<usize>> {
    let goal = &waits[start].waiter;
    if *goal == waits[start].holder {
        return Some(vec![start]);
    }
    let mut came_by: HashMap<&ClientId, usize> = HashMap::from([(&waits[start].holder, start)]);
    let mut queue = VecDeque::from([&waits[start].holder]);
    while let Some(client) = queue.pop_front() {
        for &next in out.get(client).into_iter().flatten() {
            let holder = &waits[next].holder;
            if holder == goal {
                let mut ring = vec![next];
                let mut at = client;
                loop {
                    let by = came_by[at];
                    ring.push(by);
                    if by == start {
                        ring.reverse();
                        return Some(ring);
                    }
                    at = &waits[by].waiter;
                }
            }
            if !came_by.contains_key(holder) {
                came_by.insert(holder, next);
                queue.push_back(holder);
            }
        }
    }
    None
}

fn rotated(waits: &[Wait], ring: &[usize]) -> Vec<Wait> {
    let first = (0..ring.len()).min_by_key(|&at| &waits[ring[at]].lock).unwrap_or(0);
    ring[first..].iter().chain(&ring[..first]).map(|&index| waits[index].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{clients, held, lock, read_write, semaphore, snapshot, waiting};
    use super::*;

    fn locks_of(cycle: &Cycle) -> Vec<&str> {
        cycle.waits.iter().map(|wait| wait.lock.as_str()).collect()
    }

    #[test]
    fn two_clients_that_wait_for_each_other_are_one_ring() {
        let [a, b, c] = clients();
        let found = cycles(
            &snapshot(vec![
                lock("orders", vec![held(a, 5_000)], vec![waiting(b, 4_000), waiting(c, 9_000)]),
                lock("stock", vec![held(b, 4_500)], vec![waiting(a, 3_000)]),
            ]),
            &Ancestors::new(),
        );
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
        let found = cycles(
            &snapshot(vec![
                lock("x", vec![held(a, 1)], vec![waiting(c, 1)]),
                lock("y", vec![held(b, 1)], vec![waiting(a, 1)]),
                lock("z", vec![held(c, 1)], vec![waiting(b, 1)]),
            ]),
            &Ancestors::new(),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(locks_of(&found[0]), ["x", "y", "z"]);
    }

    #[test]
    fn queues_chains_and_a_client_that_waits_for_itself_are_no_rings() {
        let [a, b, c] = clients();
        let chain = snapshot(vec![
            lock("x", vec![held(a, 1)], vec![waiting(a, 1), waiting(b, 1)]),
            lock("y", vec![held(b, 1)], vec![waiting(c, 1)]),
        ]);
        assert_eq!(cycles(&chain, &Ancestors::new()), []);
    }

    #[test]
    fn a_writer_waits_for_every_reader() {
        let [a, b, c] = clients();
        let shared = lock("x", vec![held(c, 1), held(a, 1), held(a, 2)], vec![waiting(b, 1)]);
        let locks =
            vec![read_write(shared, "read", "write"), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
        let found = cycles(&snapshot(locks), &Ancestors::new());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].waits.iter().map(|wait| &wait.holder).collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn for_permits_that_others_can_give_back_nobody_waits_in_a_ring() {
        let [a, b, c] = clients();
        let rings = |wanted: &[u32]| {
            let line = [b, c].map(|client| waiting(client, 1)).into_iter().take(wanted.len()).collect();
            let permits = lock("x", vec![held(a, 1), held(c, 1), held(a, 1)], line);
            let locks = vec![
                semaphore(permits, 5, &[1, 2, 1], wanted),
                lock("y", vec![held(b, 1)], vec![waiting(a, 1)]),
            ];
            cycles(&snapshot(locks), &Ancestors::new()).len()
        };
        assert_eq!(rings(&[3]), 0, "c can give them back");
        assert_eq!(rings(&[4]), 1, "without a there are only 3");
        assert_eq!(rings(&[2, 4]), 0, "who stands behind is not waited for");
    }

    #[test]
    fn a_silent_waiter_no_longer_waits() {
        let [a, b, _] = clients();
        let mut gone = waiting(b, 1);
        gone.silent = true;
        let locks =
            vec![lock("x", vec![held(a, 1)], vec![gone]), lock("y", vec![held(b, 1)], vec![waiting(a, 1)])];
        assert_eq!(cycles(&snapshot(locks), &Ancestors::new()), []);
    }
}
