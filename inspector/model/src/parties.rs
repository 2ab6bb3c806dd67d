//! Which clients are one party, and which of them started which.

use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::ClientView;

use super::graph::Source;

/// How far back ancestors of a process are followed.
const MOST_GENERATIONS: usize = 32;

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
    /// Names the parties of all clients that hold or wait in these snapshots.
    pub(super) fn of(sources: &[Source<'a>]) -> Self {
        let mut parties = Self::default();
        for (at, source) in sources.iter().enumerate() {
            let said: HashMap<&ClientId, _> = if sources.len() > 1 {
                source.snapshot.clients.iter().map(|client| (&client.id, client)).collect()
            } else {
                HashMap::new()
            };
            for lock in &source.snapshot.locks {
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

    /// Returns the party of a client of snapshot number `at`.
    pub(super) fn get(&self, at: usize, id: &'a ClientId) -> Option<usize> {
        self.of.get(&(at, id)).copied()
    }
}

/// For a waiting client, by its snapshot: the holding clients of all snapshots that started its process, directly or
/// not, as nested `run`s do.
pub(super) type Ancestors<'a> = HashMap<(usize, &'a ClientId), Vec<(usize, &'a ClientId)>>;

/// Looks up which waiting clients were started by holding ones. A holder in one store may have started a waiter of
/// another store, so every waiter is compared with the holders of all snapshots.
pub(super) fn ancestors<'a>(sources: &[Source<'a>]) -> Ancestors<'a> {
    let mut found = Ancestors::new();
    for (at, source) in sources.iter().enumerate() {
        let facts = source.facts;
        if facts.host_name().is_empty() {
            continue;
        }
        let said: HashMap<&ClientId, &ClientView> =
            source.snapshot.clients.iter().map(|client| (&client.id, client)).collect();
        let mut lines: HashMap<&ClientId, Vec<u32>> = HashMap::new();
        for waiter in source.snapshot.locks.iter().flat_map(|lock| &lock.waiters) {
            if lines.contains_key(&waiter.client) {
                continue;
            }
            let Some(client) = said.get(&waiter.client).filter(|client| facts.is_here(client)) else {
                continue;
            };
            let line = std::iter::successors(facts.parent(client.pid), |&pid| facts.parent(pid));
            lines.insert(&waiter.client, line.take(MOST_GENERATIONS).collect());
        }
        if lines.values().all(Vec::is_empty) {
            continue;
        }
        let holders = holders_here(sources, at);
        for (id, line) in lines {
            let started = line.iter().filter_map(|pid| holders.get(pid)).flatten().copied().collect();
            found.insert((at, id), started);
        }
    }
    found
}

/// The holding clients of all snapshots whose processes run on the host of one of them, by process.
fn holders_here<'a>(sources: &[Source<'a>], at: usize) -> HashMap<u32, Vec<(usize, &'a ClientId)>> {
    let mut holders: HashMap<u32, Vec<(usize, &ClientId)>> = HashMap::new();
    for (other, source) in sources.iter().enumerate() {
        let here: HashMap<&ClientId, u32> = source
            .snapshot
            .clients
            .iter()
            .filter(|client| sources[at].facts.is_here(client))
            .map(|client| (&client.id, client.pid))
            .collect();
        let holding = source.snapshot.locks.iter().flat_map(|lock| &lock.holders);
        for id in holding.filter_map(|holder| holder.client.as_ref()) {
            let Some(&pid) = here.get(id) else { continue };
            let of_process = holders.entry(pid).or_default();
            if !of_process.contains(&(other, id)) {
                of_process.push((other, id));
            }
        }
    }
    holders
}
