//! All connections together.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use polylatch::inspect::{ClientView, LockView, Snapshot};
use polylatch::{ClientId, FencingToken};

use super::connection::{Connection, ConnectionId};
use super::evidence::Evidence;
use super::explain::explain;
use super::finding::{Finding, Next};
use super::graph::{Cycle, Source, cycles, lasting};
use super::history::{Limits, LockHistory, Logged};
use super::report::{Report, Update};
use super::rows::{LockState, Row, RowKey, Summary};
use super::store::{Facts, Phase, Store};
use super::text::{clock_time, sanitized, span};
use super::verdict::{Rule, Severity};
use super::wait_for::Graph;
use super::{Process, health};

/// Clocks that differ by less are not worth a word.
const CLOCK_OFF_MS: u64 = 2_000;

/// Place of a row: good until the next change of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowRef {
    pub(super) store: u32,
    /// Counts on over the rows of locks that are gone.
    pub(super) row: u32,
}

/// A lock that needs attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// Which; the lock's name is empty if it is about the connection itself.
    pub key: RowKey,
    /// Since when the finding stands, on the viewer's clock.
    pub since_ms: u64,
    /// What is the case.
    pub finding: Finding,
}

/// A client process, with what it holds and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRow {
    /// The connection through which it is seen.
    pub connection: ConnectionId,
    /// Its id.
    pub id: ClientId,
    /// Host, sanitized.
    pub host: String,
    /// Process number, as text; `?` if it is not known.
    pub pid: String,
    /// Program, sanitized; empty if it is not known.
    pub program: String,
    /// Language of the binding, sanitized.
    pub language: String,
    /// Version of the binding, sanitized.
    pub version: String,
    /// How long ago it last said so, as of the snapshot; `None` if it never did.
    pub seen_ago_ms: Option<u64>,
    /// What the viewer's host knows of the process.
    pub process: Process,
    /// It runs on the viewer's host in another PID namespace, so its number means another process there.
    pub apart: bool,
    /// Locks that it holds, with the time for which it has held them.
    pub holds: Vec<(RowKey, Option<u64>)>,
    /// Locks that it waits for, with the time for which it has waited.
    pub waits: Vec<(RowKey, u64)>,
}

/// All connections.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    stores: Vec<Store>,
    limits: Limits,
    version: u64,
    /// Rings of waits through the latest snapshots.
    rings: Vec<Cycle>,
}

impl Fleet {
    /// Makes a fleet without connections.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds a connection, or changes what is known of it.
    pub fn connect(&mut self, connection: Connection) {
        self.version += 1;
        match self.stores.iter_mut().find(|store| store.facts.connection.id == connection.id) {
            Some(store) => store.facts.connection = connection,
            None => self.stores.push(Store::new(connection)),
        }
    }

    /// Forgets a connection.
    pub fn disconnect(&mut self, id: &ConnectionId) {
        self.version += 1;
        self.stores.retain(|store| store.facts.connection.id != *id);
        self.rings = self.find_rings();
    }

    /// Takes news. Those of a connection that is not known are dropped.
    pub fn ingest(&mut self, update: Update) {
        let Some(at) = self.stores.iter().position(|store| store.facts.connection.id == update.connection)
        else {
            return;
        };
        self.version += 1;
        let now_ms = update.at_ms;
        match update.report {
            Report::Failed { message, retry_in_ms } => self.stores[at].fail(now_ms, &message, retry_in_ms),
            Report::Polled(polled) => {
                let before = self.stores[at].facts.snapshot.clone();
                self.stores[at].take(now_ms, polled, &self.limits);
                let rings = self.find_rings();
                // Locks elsewhere are judged anew only if a ring through them came or went.
                let changed = |id: &ConnectionId| {
                    let of = |rings: &[Cycle]| -> Vec<Vec<String>> {
                        let here = |ring: &&Cycle| {
                            ring.stands() && ring.waits.iter().any(|wait| wait.connection == *id)
                        };
                        let locks = |ring: &Cycle| ring.waits.iter().map(|wait| wait.lock.clone()).collect();
                        rings.iter().filter(here).map(locks).collect()
                    };
                    of(&self.rings) != of(&rings)
                };
                let others: Vec<usize> = (0..self.stores.len())
                    .filter(|other| *other != at && changed(&self.stores[*other].facts.connection.id))
                    .collect();
                self.rings = rings;
                self.judge(at, before.as_deref());
                for other in others {
                    let same = self.stores[other].facts.snapshot.clone();
                    self.judge(other, same.as_deref());
                }
            }
        }
        self.tick(now_ms);
    }

    /// Lets time pass: rows of locks that went are forgotten. Call it before drawing.
    pub fn tick(&mut self, now_ms: u64) {
        for store in &mut self.stores {
            self.version += u64::from(store.tick(now_ms));
        }
    }

    /// Says whether there are rings of waits, of which some may pass.
    pub fn has_rings(&self) -> bool {
        !self.rings.is_empty()
    }

    fn find_rings(&self) -> Vec<Cycle> {
        lasting(cycles(&self.sources()), &self.rings)
    }

    fn sources(&self) -> Vec<Source<'_>> {
        let read = self.stores.iter().filter_map(|store| {
            let snapshot = store.facts.snapshot.as_deref()?;
            Some(Source { connection: &store.facts.connection.id, snapshot, facts: &*store.facts.local })
        });
        read.collect()
    }

    /// Judges one connection by what is known of all.
    fn judge(&mut self, at: usize, before: Option<&Snapshot>) {
        let mut known = Vec::with_capacity(self.stores.len());
        let mut judged = None;
        for (place, store) in self.stores.iter_mut().enumerate() {
            let Store { facts, verdicts } = store;
            known.push(&*facts);
            if place == at {
                judged = Some(verdicts);
            }
        }
        if let Some(verdicts) = judged {
            verdicts.judge(known[at], before, &evidence(&known, at, &self.rings));
        }
    }

    fn evidence(&self, at: usize) -> Evidence<'_> {
        let known: Vec<&Facts> = self.stores.iter().map(|store| &store.facts).collect();
        evidence(&known, at, &self.rings)
    }

    /// Changes whenever something else than the passing of time has changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the connections, in the order in which they were added.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Returns a connection.
    pub fn store(&self, id: &ConnectionId) -> Option<&Store> {
        self.stores.iter().find(|store| store.facts.connection.id == *id)
    }

    /// Returns the places of all rows, by connection and name, those of locks that just went last.
    pub fn row_refs(&self) -> impl Iterator<Item = RowRef> + '_ {
        (0..self.stores.len()).flat_map(|store| self.row_refs_of(store))
    }

    pub(super) fn row_refs_of(&self, store: usize) -> impl Iterator<Item = RowRef> + use<> {
        let rows = self.stores[store].verdicts.rows.len() + self.stores[store].verdicts.gone.len();
        (0..rows).map(move |row| RowRef { store: store as u32, row: row as u32 })
    }

    /// Returns a row. Panics if the place is of an older version of the fleet and does not exist now.
    pub fn at(&self, place: RowRef) -> &Row {
        let store = &self.stores[place.store as usize];
        let row = place.row as usize;
        store.verdicts.rows.get(row).unwrap_or_else(|| &store.verdicts.gone[row - store.verdicts.rows.len()])
    }

    /// Finds a lock's row.
    pub fn find(&self, key: &RowKey) -> Option<RowRef> {
        let at = self.stores.iter().position(|store| store.facts.connection.id == key.connection)?;
        let store = &self.stores[at];
        let gone = || {
            let place = store.verdicts.gone.iter().position(|row| row.key.lock == key.lock)?;
            Some(store.verdicts.rows.len() + place)
        };
        let row = store.place(&key.lock).or_else(gone)?;
        Some(RowRef { store: at as u32, row: row as u32 })
    }

    /// Returns a lock as the store had it at the latest snapshot; `None` if it is gone.
    pub fn lock(&self, key: &RowKey) -> Option<&LockView> {
        let store = self.store(&key.connection)?;
        store.snapshot()?.locks.get(store.place(&key.lock)?)
    }

    /// Returns what is remembered of a lock.
    pub fn history(&self, key: &RowKey) -> Option<&LockHistory> {
        self.store(&key.connection)?.history(&key.lock)
    }

    /// Returns what a row is at `now_ms`: `Unknown` if its connection is not fresh.
    pub fn state(&self, row: &Row, now_ms: u64) -> LockState {
        match self.store(&row.key.connection) {
            Some(store) if store.is_fresh(now_ms) => row.state,
            _ => LockState::Unknown,
        }
    }

    /// Explains a lock as of the latest snapshot: findings that have stood long enough, the most severe
    /// first. Never empty for a lock that is there.
    pub fn explain(&self, key: &RowKey) -> Vec<Finding> {
        let Some(place) = self.find(key) else { return Vec::new() };
        let evidence = self.evidence_of(place);
        self.explain_with(place, &evidence)
    }

    /// As [`Fleet::explain`], as it is known at `now_ms`: nothing of the latest snapshot is reported as the present if the
    /// store is not read any more.
    pub fn explain_now(&self, key: &RowKey, now_ms: u64) -> Vec<Finding> {
        let Some(store) = self.store(&key.connection).filter(|store| !store.is_fresh(now_ms)) else {
            return self.explain(key);
        };
        let Some(row) = self.find(key).map(|place| self.at(place)) else { return Vec::new() };
        let since = store
            .sampled_at_ms()
            .map_or_else(String::new, |at| format!(" since {} UTC", clock_time(at, now_ms)));
        let why = match store.phase(now_ms) {
            Phase::Lost { why, .. } => format!(" ({why})"),
            _ => " (a snapshot is overdue)".into(),
        };
        let before = match row.place.as_str() {
            "" => "no client held it".to_owned(),
            place => format!("held by {place} {}", row.program).trim_end().to_owned(),
        };
        let sentence = format!("Not known{since}{why}. When it was last read: {before}.");
        vec![Finding { rule: Rule::Backend, severity: Severity::Warning, sentence, next: Vec::new() }]
    }

    /// Says whether every node of a store answered the latest snapshot: where one did not, “nothing found” is not known.
    pub fn all_nodes_answered(&self, id: &ConnectionId) -> bool {
        let snapshot = self.store(id).and_then(Store::snapshot);
        snapshot.is_some_and(|snapshot| snapshot.silent_nodes().next().is_none())
    }

    /// Returns the fencing token of the lease that a break is to aim at: of the holder that the worst finding is about,
    /// or that the row shows.
    pub fn lease_to_break(&self, key: &RowKey) -> Option<FencingToken> {
        let row = self.find(key).map(|place| self.at(place))?;
        let lock = self.lock(key)?;
        let accused =
            row.verdicts.iter().find_map(|verdict| lock.holders.get(verdict.holder?)?.fencing_token);
        let shown = || row.fencing_token.map(FencingToken::new);
        accused.or_else(shown).or_else(|| lock.holders.iter().find_map(|holder| holder.fencing_token))
    }

    /// Returns what the locks of a connection are judged by.
    pub fn evidence_about(&self, id: &ConnectionId) -> Option<Evidence<'_>> {
        let at = self.stores.iter().position(|store| store.facts.connection.id == *id)?;
        Some(self.evidence(at))
    }

    fn evidence_of(&self, place: RowRef) -> Evidence<'_> {
        let at = place.store as usize;
        self.evidence(at)
    }

    fn explain_with(&self, place: RowRef, evidence: &Evidence<'_>) -> Vec<Finding> {
        let store = &self.stores[place.store as usize];
        let row = self.at(place);
        let lock = store.facts.snapshot.as_ref().and_then(|snapshot| snapshot.locks.get(place.row as usize));
        let Some(lock) = lock.filter(|lock| *lock.name == *row.key.lock) else { return Vec::new() };
        let past = store.history(&row.key.lock);
        row.verdicts.iter().map(|verdict| explain(lock, *verdict, evidence, past)).collect()
    }

    /// Returns everything that needs attention, the most severe first, then the oldest. Locks that one
    /// finding is about, as a deadlock is about all locks of its ring, are reported by the first of them.
    pub fn attention(&self, now_ms: u64) -> Vec<Attention> {
        let mut found: Vec<Attention> = Vec::new();
        for (at, store) in self.stores.iter().enumerate() {
            found.extend(about_connection(store, now_ms));
            // What was found in a store that is not read any more is not known to be so.
            if !store.is_fresh(now_ms) {
                continue;
            }
            // The connection tells what all of its locks have in common.
            let of_store = |row: &Row| matches!(row.rule(), Rule::WritesRefused | Rule::NoQuorum);
            let attention = |row: &Row| row.severity() >= Severity::Warning && !of_store(row);
            let mut rows = store.verdicts.rows.iter().enumerate().filter(|(_, row)| attention(row));
            let Some(first) = rows.next() else { continue };
            let evidence = self.evidence(at);
            for (row, shown) in std::iter::once(first).chain(rows) {
                let place = RowRef { store: at as u32, row: row as u32 };
                let Some(finding) = self.explain_with(place, &evidence).into_iter().next() else { continue };
                let since_ms = store.since_ms(&shown.key.lock, finding.rule).unwrap_or(shown.sampled_at_ms);
                found.push(Attention { key: shown.key.clone(), since_ms, finding });
            }
        }
        let mut told = HashSet::new();
        found.retain(|attention| {
            !matches!(attention.finding.rule, Rule::Deadlock | Rule::MayDeadlock)
                || told.insert(attention.finding.sentence.clone())
        });
        found.sort_by(|a, b| {
            (b.finding.severity, a.since_ms, &a.key).cmp(&(a.finding.severity, b.since_ms, &b.key))
        });
        found
    }

    /// Returns the events of one lock that are remembered, oldest first.
    pub fn events_of(&self, key: &RowKey) -> impl Iterator<Item = &Logged> {
        static NONE: VecDeque<Logged> = VecDeque::new();
        let events = self.store(&key.connection).map_or(&NONE, Store::events);
        events.iter().filter(|logged| *logged.event.lock == *key.lock)
    }

    /// Returns the client processes, by host, process and connection.
    pub fn clients(&self) -> Vec<ClientRow> {
        let mut found = Vec::new();
        for (at, store) in self.stores.iter().enumerate() {
            let Some(snapshot) = &store.facts.snapshot else { continue };
            let evidence = self.evidence(at);
            let mut places: HashMap<&ClientId, usize> = HashMap::new();
            let mut of = |found: &mut Vec<ClientRow>, id| {
                *places.entry(id).or_insert_with(|| {
                    found.push(client_row(store, id, &evidence));
                    found.len() - 1
                })
            };
            for client in &snapshot.clients {
                of(&mut found, &client.id);
            }
            for (lock, row) in snapshot.locks.iter().zip(&store.verdicts.rows) {
                for holder in &lock.holders {
                    let Some(id) = &holder.client else { continue };
                    let place = of(&mut found, id);
                    found[place].holds.push((row.key.clone(), holder.held_for_ms));
                }
                for waiter in &lock.waiters {
                    let place = of(&mut found, &waiter.client);
                    found[place].waits.push((row.key.clone(), waiter.waited_ms));
                }
            }
        }
        found.sort_by(|a, b| {
            (&a.host, &a.pid, &a.connection, &a.id).cmp(&(&b.host, &b.pid, &b.connection, &b.id))
        });
        found
    }

    /// Returns who waits for whom, across all connections.
    pub fn graph(&self) -> Graph {
        if self.stores.is_empty() {
            return Graph::default();
        }
        Graph::of(&self.sources(), &self.rings, &self.evidence(0))
    }

    /// Counts the rows as they are shown at `now_ms`.
    pub fn summary(&self, now_ms: u64) -> Summary {
        let mut summary = Summary::default();
        for store in &self.stores {
            let fresh = store.is_fresh(now_ms);
            for row in &store.verdicts.rows {
                summary.count(row, if fresh { row.state } else { LockState::Unknown });
            }
        }
        summary
    }
}

/// What the locks of one connection are judged by: the clients of all.
fn evidence<'a>(known: &[&'a Facts], at: usize, rings: &'a [Cycle]) -> Evidence<'a> {
    let snapshots = known.iter().filter_map(|facts| facts.snapshot.as_ref());
    let clients =
        snapshots.flat_map(|snapshot| &snapshot.clients).map(|client| (&client.id, client)).collect();
    let commands = known
        .iter()
        .map(|facts| (Cow::Borrowed(&facts.connection.id), facts.connection.command.as_str()))
        .collect();
    let own = known[at];
    Evidence::among(Cow::Borrowed(&own.connection.id), commands, clients, &*own.local, Cow::Borrowed(rings))
        .with_signs(&own.signs)
        .of_store(own.snapshot.as_deref())
}

fn client_row(store: &Store, id: &ClientId, evidence: &Evidence<'_>) -> ClientRow {
    let (host, pid) = evidence.place(id);
    let said = evidence.client(id);
    let text = |of: fn(&ClientView) -> &String| said.map(|client| sanitized(of(client))).unwrap_or_default();
    ClientRow {
        connection: store.facts.connection.id.clone(),
        id: id.clone(),
        host,
        pid,
        program: text(|client| &client.program),
        language: text(|client| &client.language),
        version: text(|client| &client.version),
        seen_ago_ms: said.map(|client| client.seen_ago_ms),
        process: evidence.process_of(id),
        apart: evidence.is_apart(id),
        holds: Vec::new(),
        waits: Vec::new(),
    }
}

/// What is found about a connection itself.
fn about_connection(store: &Store, now_ms: u64) -> Vec<Attention> {
    let key = || RowKey { connection: store.facts.connection.id.clone(), lock: "".into() };
    let mut found = Vec::new();
    if let Phase::Lost { since_ms, failing_since_ms, why, retry_at_ms } = store.phase(now_ms)
        && now_ms.saturating_sub(failing_since_ms) >= Rule::Backend.stands_for_ms()
    {
        let known = match since_ms {
            Some(since) => format!("Not known since {} UTC", clock_time(since, now_ms)),
            None => "Never read".into(),
        };
        let retry = match retry_at_ms.map(|at| at.saturating_sub(now_ms)) {
            Some(1..) => "It is tried again by itself.",
            _ => "It is being tried again.",
        };
        let finding = Finding {
            rule: Rule::Backend,
            severity: Severity::Problem,
            sentence: format!("{known}: {why}. {retry}"),
            next: vec![Next::Run(format!("{} doctor", store.facts.connection.command))],
        };
        found.push(Attention { key: key(), since_ms: failing_since_ms, finding });
    }
    if let Phase::Unfit { .. } = store.phase(now_ms)
        && let Some(snapshot) = &store.facts.snapshot
        && let Some(trouble) = snapshot.trouble()
    {
        let silent: Vec<&str> = snapshot.silent_nodes().collect();
        let (sentence, next) = health::explain(trouble, &silent, &store.facts.connection.command);
        let finding = Finding { rule: health::rule(trouble), severity: Severity::Problem, sentence, next };
        found.push(Attention { key: key(), since_ms: store.unfit_since_ms(), finding });
    } else if let Some(down) = store.facts.snapshot.as_deref().and_then(health::nodes_down)
        && store.is_fresh(now_ms)
        && let Some(since_ms) = store.down_since_ms()
        && now_ms.saturating_sub(since_ms) >= Rule::NodeDown.stands_for_ms()
    {
        let finding = Finding {
            rule: Rule::NodeDown,
            severity: health::NODE_DOWN,
            sentence: format!("{down}. A majority works."),
            next: vec![Next::Run(format!("{} doctor", store.facts.connection.command))],
        };
        found.push(Attention { key: key(), since_ms, finding });
    }
    if let Some((since_ms, ahead_ms)) = store.clock_is_off(CLOCK_OFF_MS)
        && now_ms.saturating_sub(since_ms) >= Rule::Clock.stands_for_ms()
    {
        let (off, way) = (span(ahead_ms.unsigned_abs()), if ahead_ms > 0 { "ahead of" } else { "behind" });
        let finding = Finding {
            rule: Rule::Clock,
            severity: Severity::Notice,
            sentence: format!(
                "The store's clock is {off} {way} this machine's: times of day differ by that, ages and leases do not."
            ),
            next: vec![Next::Do("set one of the two clocks right".into())],
        };
        found.push(Attention { key: key(), since_ms, finding });
    }
    found
}

#[cfg(test)]
#[path = "fleet_tests/mod.rs"]
mod tests;
