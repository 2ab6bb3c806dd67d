//! The wait-for graph as it is shown: parties, locks, arrows, rings, and trees of blockers.

use std::collections::{HashMap, HashSet};

use polylatch::ClientId;

use super::connection::ConnectionId;
use super::findings::Evidence;
use super::graph::{Cycle, Reading};
use super::parties::Parties;
use super::rows::RowKey;
use super::text::{count, harmless, span};

/// Most parties in a graph; who has more problems than fit on a screen begins with these.
const MOST_PARTIES: usize = 2_000;

/// Deepest tree of blockers.
const MOST_LEVELS: usize = 32;

/// Who waits for whom: locks that somebody waits for, with everybody concerned.
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
    /// Rings that are to be shown, each once.
    pub rings: Vec<Cycle>,
    /// Trees of the waits that are in no ring; the largest first. The root is a party that waits for no other, or
    /// one whose own wait is told elsewhere: in a ring, or in another tree.
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
    /// What the task says that it does, harmless.
    pub label: String,
    /// For how long, as of the reading.
    pub for_ms: Option<u64>,
}

/// A party that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Place among the parties.
    pub party: usize,
    /// The lock that it waits for, by its place; `None` at the root.
    pub waits_for: Option<usize>,
    /// How many parties wait for it, directly or not.
    pub blocked: usize,
    /// Who waits for it directly.
    pub behind: Vec<Blocker>,
}

impl Graph {
    /// Draws the graph of these readings. `evidence` knows the clients of all of them.
    pub(super) fn of(readings: &[Reading<'_>], rings: &[Cycle], evidence: &Evidence<'_>) -> Self {
        let all = Parties::of(readings);
        let mut graph =
            Self { rings: rings.iter().filter(|ring| ring.stands()).cloned().collect(), ..Self::default() };
        let mut places: HashMap<usize, usize> = HashMap::new();
        for (at, reading) in readings.iter().enumerate() {
            let contended =
                |lock: &&polylatch::inspect::LockView| lock.waiters.iter().any(|waiter| !waiter.silent);
            for lock in reading.snapshot.locks.iter().filter(contended) {
                if graph.parties.len() >= MOST_PARTIES {
                    break;
                }
                let place = graph.locks.len();
                let key = RowKey { connection: reading.connection.clone(), lock: lock.name.as_str().into() };
                graph.locks.push(key);
                let mut party = |graph: &mut Self, id| {
                    let number = all.get(at, id)?;
                    let place = *places.entry(number).or_insert_with(|| {
                        graph.parties.push(Party { who: evidence.who(id), clients: Vec::new() });
                        graph.parties.len() - 1
                    });
                    let known = (reading.connection.clone(), id.clone());
                    if !graph.parties[place].clients.contains(&known) {
                        graph.parties[place].clients.push(known);
                    }
                    Some(place)
                };
                for holder in &lock.holders {
                    let Some(party) = holder.client.as_ref().and_then(|id| party(&mut graph, id)) else {
                        continue;
                    };
                    let mode = holder.mode.clone().into_owned();
                    let label = harmless(&holder.label);
                    graph.holds.push(Edge { party, lock: place, mode, label, for_ms: holder.held_for_ms });
                }
                for waiter in lock.waiters.iter().filter(|waiter| !waiter.silent) {
                    let Some(party) = party(&mut graph, &waiter.client) else { continue };
                    let mode = waiter.mode.clone().into_owned();
                    let (label, for_ms) = (harmless(&waiter.label), Some(waiter.waited_ms));
                    graph.waits.push(Edge { party, lock: place, mode, label, for_ms });
                }
            }
        }
        graph.trees = graph.grow();
        graph
    }

    fn grow(&self) -> Vec<Blocker> {
        let mut held_by: HashMap<usize, Vec<usize>> = HashMap::new();
        for edge in &self.holds {
            held_by.entry(edge.party).or_default().push(edge.lock);
        }
        let mut waiters: HashMap<usize, Vec<usize>> = HashMap::new();
        for edge in &self.waits {
            waiters.entry(edge.lock).or_default().push(edge.party);
        }
        let waiting: HashSet<usize> = self.waits.iter().map(|edge| edge.party).collect();
        let mut roots: Vec<usize> =
            held_by.keys().copied().filter(|party| !waiting.contains(party)).collect();
        roots.sort_unstable();
        let mut trees: Vec<Blocker> = roots
            .into_iter()
            .map(|root| {
                let mut seen = HashSet::from([root]);
                let behind = branches(root, &held_by, &waiters, &mut seen, MOST_LEVELS);
                Blocker { party: root, waits_for: None, blocked: seen.len() - 1, behind }
            })
            .collect();
        // What is left is behind a ring, or in one that is not to be shown.
        let mut told = HashSet::new();
        trees.iter().for_each(|tree| parties_of(tree, &mut told));
        told.extend(self.parties_in_rings());
        let mut left: Vec<usize> = held_by.keys().copied().collect();
        left.sort_unstable();
        for root in left {
            let mut seen = told.clone();
            seen.insert(root);
            let before = seen.len();
            let behind = branches(root, &held_by, &waiters, &mut seen, MOST_LEVELS);
            if !behind.is_empty() {
                trees.push(Blocker { party: root, waits_for: None, blocked: seen.len() - before, behind });
                told = seen;
            }
        }
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.blocked));
        trees
    }

    /// The parties that are in a ring that is shown.
    fn parties_in_rings(&self) -> impl Iterator<Item = usize> + '_ {
        let is_in = |party: &Party| {
            let mut waits = self.rings.iter().flat_map(|ring| &ring.waits);
            waits.any(|wait| party.clients.iter().any(|(_, id)| *id == wait.waiter))
        };
        self.parties.iter().enumerate().filter(move |(_, party)| is_in(party)).map(|(at, _)| at)
    }

    /// Returns the graph in words, for screen readers and for tickets: rings first, then trees.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |level: usize, words: String| {
            text.push_str(&"  ".repeat(level));
            text.push_str(&words);
            text.push('\n');
        };
        for (at, ring) in self.rings.iter().enumerate() {
            let age = span(ring.age_ms());
            line(
                0,
                match ring.is_proved() {
                    true => format!("Deadlock {}, standing for {age}:", at + 1),
                    false => format!("Possible deadlock {}, unchanged for {age}:", at + 1),
                },
            );
            for wait in &ring.waits {
                let (waiter, holder) =
                    (self.who(&wait.connection, &wait.waiter), self.who(&wait.connection, &wait.holder));
                let lock = harmless(&wait.lock);
                let waited = span(wait.waited_ms);
                let (wants, does) = (quoted(&wait.label), quoted(&wait.holder_label));
                line(1, format!("{waiter}{wants} waits for {lock}, held by {holder}{does}, for {waited}"));
            }
            if !ring.is_proved() {
                line(1, "it is one if in each client the task that waits also holds".into());
            } else if let Some(wait) = ring.cheapest() {
                let held = wait.held_for_ms.map(|ms| format!(", held for {}", span(ms))).unwrap_or_default();
                line(1, format!("break here: {}, taken last{held}", harmless(&wait.lock)));
            }
        }
        for tree in &self.trees {
            let blocked = count(tree.blocked, "client", "clients");
            line(0, format!("{} holds up {blocked}:", self.parties[tree.party].who));
            let mut open: Vec<(usize, &Blocker)> = tree.behind.iter().rev().map(|next| (1, next)).collect();
            while let Some((level, blocker)) = open.pop() {
                let lock = blocker.waits_for.map(|at| harmless(&self.locks[at].lock)).unwrap_or_default();
                let more = match blocker.blocked {
                    0 => String::new(),
                    blocked => format!(", and holds up {}", count(blocked, "client", "clients")),
                };
                line(level, format!("{} waits for {lock}{more}", self.parties[blocker.party].who));
                open.extend(blocker.behind.iter().rev().map(|next| (level + 1, next)));
            }
        }
        let mut told: HashSet<usize> = self.parties_in_rings().collect();
        self.trees.iter().for_each(|tree| parties_of(tree, &mut told));
        for wait in self.waits.iter().filter(|wait| !told.contains(&wait.party)) {
            let (who, lock) = (&self.parties[wait.party].who, harmless(&self.locks[wait.lock].lock));
            text.push_str(&format!("{who}{} waits for {lock}\n", quoted(&wait.label)));
        }
        if text.is_empty() {
            text.push_str("No client waits.\n");
        }
        text
    }

    fn who(&self, connection: &ConnectionId, id: &ClientId) -> String {
        // An ancestor holds in one store while its child waits in another.
        let exact =
            |party: &&Party| party.clients.iter().any(|(at, client)| at == connection && client == id);
        let known = |party: &&Party| party.clients.iter().any(|(_, client)| client == id);
        let party = self.parties.iter().find(exact).or_else(|| self.parties.iter().find(known));
        party.map_or_else(|| harmless(id.as_str()), |party| party.who.clone())
    }
}

/// A label behind a client's name: empty if there is none.
fn quoted(label: &str) -> String {
    match harmless(label) {
        label if label.is_empty() => label,
        label => format!(" \"{label}\""),
    }
}

fn parties_of(tree: &Blocker, found: &mut HashSet<usize>) {
    found.insert(tree.party);
    tree.behind.iter().for_each(|next| parties_of(next, found));
}

fn branches(
    party: usize,
    held_by: &HashMap<usize, Vec<usize>>,
    waiters: &HashMap<usize, Vec<usize>>,
    seen: &mut HashSet<usize>,
    levels: usize,
) -> Vec<Blocker> {
    let mut found = Vec::new();
    if levels == 0 {
        return found;
    }
    for &lock in held_by.get(&party).into_iter().flatten() {
        for &next in waiters.get(&lock).into_iter().flatten() {
            if seen.insert(next) {
                let before = seen.len();
                let behind = branches(next, held_by, waiters, seen, levels - 1);
                let blocked = seen.len() - before;
                found.push(Blocker { party: next, waits_for: Some(lock), blocked, behind });
            }
        }
    }
    found
}
