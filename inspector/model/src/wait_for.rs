//! The wait-for graph as it is shown: parties, locks, arrows, rings, and trees of blockers.

use std::collections::{HashMap, HashSet};

use polylatch::ClientId;

use super::connection::ConnectionId;
use super::evidence::Evidence;
use super::graph::{Cycle, Source};
use super::parties::Parties;
use super::rows::RowKey;
use super::text::{count, sanitized, span};

/// Most parties in a graph; who has more problems than fit on a screen begins with these.
const MOST_PARTIES: usize = 2_000;

/// Deepest tree of blockers.
const MOST_LEVELS: usize = 32;

/// Who waits for whom: locks that a client waits for, with all clients concerned.
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
    /// one whose own wait is reported elsewhere: in a ring, or in another tree.
    pub trees: Vec<Blocker>,
}

/// A client process in the graph. A process that is connected to several stores is one party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// `host pid 42 (program)`, sanitized.
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
    /// What the task says that it does, sanitized.
    pub label: String,
    /// For how long, as of the snapshot.
    pub for_ms: Option<u64>,
}

/// A party that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Place among the parties.
    pub party: usize,
    /// The lock that it waits for, by its place; `None` at the root.
    pub waits_for: Option<usize>,
    /// Its waits for that lock, by their places among the waits, in the order of the queue: one for each task.
    pub waits: Vec<usize>,
    /// How many parties wait for it, directly or not.
    pub blocked: usize,
    /// Who waits for it directly.
    pub behind: Vec<Blocker>,
}

impl Graph {
    /// Draws the graph of these snapshots. `evidence` knows the clients of all of them.
    pub(super) fn of(sources: &[Source<'_>], rings: &[Cycle], evidence: &Evidence<'_>) -> Self {
        let all = Parties::of(sources);
        let mut graph =
            Self { rings: rings.iter().filter(|ring| ring.stands()).cloned().collect(), ..Self::default() };
        let mut places: HashMap<usize, usize> = HashMap::new();
        for (at, source) in sources.iter().enumerate() {
            let contended =
                |lock: &&polylatch::inspect::LockView| lock.waiters.iter().any(|waiter| !waiter.silent);
            for lock in source.snapshot.locks.iter().filter(contended) {
                if graph.parties.len() >= MOST_PARTIES {
                    break;
                }
                let place = graph.locks.len();
                let key = RowKey { connection: source.connection.clone(), lock: lock.name.as_str().into() };
                graph.locks.push(key);
                let mut party = |graph: &mut Self, id| {
                    let number = all.get(at, id)?;
                    let place = *places.entry(number).or_insert_with(|| {
                        graph.parties.push(Party { who: evidence.who(id), clients: Vec::new() });
                        graph.parties.len() - 1
                    });
                    let known = (source.connection.clone(), id.clone());
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
                    let label = sanitized(&holder.label);
                    graph.holds.push(Edge { party, lock: place, mode, label, for_ms: holder.held_for_ms });
                }
                for waiter in lock.waiters.iter().filter(|waiter| !waiter.silent) {
                    let Some(party) = party(&mut graph, &waiter.client) else { continue };
                    let mode = waiter.mode.clone().into_owned();
                    let (label, for_ms) = (sanitized(&waiter.label), Some(waiter.waited_ms));
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
            let held = held_by.entry(edge.party).or_default();
            if !held.contains(&edge.lock) {
                held.push(edge.lock);
            }
        }
        let mut waiters: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, edge) in self.waits.iter().enumerate() {
            waiters.entry(edge.lock).or_default().push(at);
        }
        // Who only waits for what another task of it holds waits for no other.
        let holds =
            |edge: &Edge| held_by.get(&edge.party).is_some_and(|held: &Vec<usize>| held.contains(&edge.lock));
        let waiting: HashSet<usize> =
            self.waits.iter().filter(|edge| !holds(edge)).map(|edge| edge.party).collect();
        let mut roots: Vec<usize> =
            held_by.keys().copied().filter(|party| !waiting.contains(party)).collect();
        roots.sort_unstable();
        let root = |party: usize, seen: &mut HashSet<usize>| {
            seen.insert(party);
            let before = seen.len();
            let behind = self.branches(party, &held_by, &waiters, seen, MOST_LEVELS);
            Blocker { party, waits_for: None, waits: Vec::new(), blocked: seen.len() - before, behind }
        };
        let mut trees: Vec<Blocker> =
            roots.into_iter().map(|party| root(party, &mut HashSet::new())).collect();
        // What is left is behind a ring, or in one that is not to be shown.
        let mut told = HashSet::new();
        trees.iter().for_each(|tree| parties_of(tree, &mut told));
        told.extend(self.parties_in_rings());
        let mut left: Vec<usize> = held_by.keys().copied().collect();
        left.sort_unstable();
        for party in left {
            let mut seen = told.clone();
            let tree = root(party, &mut seen);
            if tree.blocked > 0 {
                trees.push(tree);
                told = seen;
            }
        }
        trees.sort_by_key(|tree| std::cmp::Reverse(tree.blocked));
        trees
    }

    /// Who waits for what a party holds, each party once; its own tasks at every lock, without more behind them.
    fn branches(
        &self,
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
            let mut tasks: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut places: HashMap<usize, usize> = HashMap::new();
            for &wait in waiters.get(&lock).into_iter().flatten() {
                let next = self.waits[wait].party;
                let place = *places.entry(next).or_insert_with(|| {
                    tasks.push((next, Vec::new()));
                    tasks.len() - 1
                });
                tasks[place].1.push(wait);
            }
            for (next, waits) in tasks {
                let new = seen.insert(next);
                if !new && next != party {
                    continue;
                }
                let before = seen.len();
                let behind = match new {
                    true => self.branches(next, held_by, waiters, seen, levels - 1),
                    false => Vec::new(),
                };
                let blocked = seen.len() - before;
                found.push(Blocker { party: next, waits_for: Some(lock), waits, blocked, behind });
            }
        }
        found
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
                let lock = sanitized(&wait.lock);
                let waited = span(wait.waited_ms);
                let (wants, does) = (quoted(&wait.label), quoted(&wait.holder_label));
                line(1, format!("{waiter}{wants} waits for {lock}, held by {holder}{does}, for {waited}"));
            }
            if !ring.is_proved() {
                line(1, "it is one if in each client the task that waits also holds".into());
            } else if let Some(wait) = ring.cheapest() {
                let held = wait.held_for_ms.map(|ms| format!(", held for {}", span(ms))).unwrap_or_default();
                line(1, format!("break here: {}, taken last{held}", sanitized(&wait.lock)));
            }
        }
        for tree in &self.trees {
            let own: usize =
                tree.behind.iter().filter(|next| next.party == tree.party).map(|next| next.waits.len()).sum();
            let mut blocked = vec![];
            if tree.blocked > 0 || own == 0 {
                blocked.push(count(tree.blocked, "client", "clients"));
            }
            if own > 0 {
                blocked.push(format!("{own} of its own tasks"));
            }
            line(0, format!("{} holds up {}:", self.parties[tree.party].who, blocked.join(" and ")));
            let mut open: Vec<(usize, &Blocker)> = tree.behind.iter().rev().map(|next| (1, next)).collect();
            while let Some((level, blocker)) = open.pop() {
                let lock = blocker.waits_for.map(|at| sanitized(&self.locks[at].lock)).unwrap_or_default();
                let more = match blocker.blocked {
                    0 => String::new(),
                    blocked => format!(", and holds up {}", count(blocked, "client", "clients")),
                };
                let who = &self.parties[blocker.party].who;
                line(level, format!("{who}{} waits for {lock}{more}", self.tasks(&blocker.waits)));
                open.extend(blocker.behind.iter().rev().map(|next| (level + 1, next)));
            }
        }
        let mut told: HashSet<usize> = self.parties_in_rings().collect();
        self.trees.iter().for_each(|tree| parties_of(tree, &mut told));
        for wait in self.waits.iter().filter(|wait| !told.contains(&wait.party)) {
            let (who, lock) = (&self.parties[wait.party].who, sanitized(&self.locks[wait.lock].lock));
            text.push_str(&format!("{who}{} waits for {lock}\n", quoted(&wait.label)));
        }
        if text.is_empty() {
            text.push_str("No client waits.\n");
        }
        text
    }

    /// The tasks of a party that wait, behind its name: their number if there are several, and their labels.
    fn tasks(&self, waits: &[usize]) -> String {
        const MOST_LABELS: usize = 5;
        let [first, ..] = waits else { return String::new() };
        if waits.len() == 1 {
            return quoted(&self.waits[*first].label);
        }
        let mut labels: Vec<String> = Vec::new();
        for label in waits.iter().map(|at| &self.waits[*at].label).filter(|label| !label.is_empty()) {
            let label = format!("\"{label}\"");
            if !labels.contains(&label) {
                labels.push(label);
            }
        }
        if labels.len() > MOST_LABELS {
            labels.truncate(MOST_LABELS);
            labels.push("…".into());
        }
        let labels = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(", ")) };
        format!(" ({} tasks{labels})", waits.len())
    }

    fn who(&self, connection: &ConnectionId, id: &ClientId) -> String {
        // An ancestor holds in one store while its child waits in another.
        let exact =
            |party: &&Party| party.clients.iter().any(|(at, client)| at == connection && client == id);
        let known = |party: &&Party| party.clients.iter().any(|(_, client)| client == id);
        let party = self.parties.iter().find(exact).or_else(|| self.parties.iter().find(known));
        party.map_or_else(|| sanitized(id.as_str()), |party| party.who.clone())
    }
}

/// A label behind a client's name: empty if there is none.
fn quoted(label: &str) -> String {
    match sanitized(label) {
        label if label.is_empty() => label,
        label => format!(" \"{label}\""),
    }
}

fn parties_of(tree: &Blocker, found: &mut HashSet<usize>) {
    found.insert(tree.party);
    tree.behind.iter().for_each(|next| parties_of(next, found));
}
