//! One connection: its latest snapshot, its rows, and what is remembered of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use polylatch::inspect::{Event, HolderView, LockView, Snapshot, WaiterView};

use super::beat::Beat;
use super::connection::Connection;
use super::evidence::Evidence;
use super::health;
use super::history::{Gap, Limits, LockHistory, Logged, Step, push};
use super::judge::judge;
use super::local::LocalFacts;
use super::report::Polled;
use super::rows::{Row, RowKey, row};
use super::signs::Signs;
use super::text::sanitized;
use super::verdict::{Rule, Severity, Verdict};

/// How long the row of a lock that went is still shown.
const GONE_FOR_MS: u64 = 3_000;

/// A snapshot is overdue if it comes this much later than it was wanted.
const PATIENCE_MS: u64 = 2_000;

/// Over which time, and how many snapshots at least, cost and clock are judged.
const JUDGED_MS: u64 = 20_000;
const SNAPSHOTS: usize = 16;

/// How fresh the snapshot of a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It was never read.
    Connecting,
    /// It is read as often as it should be.
    Live,
    /// It is read, but it grants, renews and releases nothing.
    Unfit {
        /// A few words, in capitals.
        word: &'static str,
        /// Why, sanitized.
        why: String,
    },
    /// A snapshot is overdue.
    Late {
        /// The latest good snapshot, on the viewer's clock.
        since_ms: u64,
    },
    /// It cannot be read.
    Lost {
        /// The latest good snapshot, on the viewer's clock; `None` if there was none.
        since_ms: Option<u64>,
        /// The first failure after it, on the viewer's clock.
        failing_since_ms: u64,
        /// Why, sanitized.
        why: String,
        /// When it will be tried again, on the viewer's clock.
        retry_at_ms: Option<u64>,
    },
}

/// What watching costs the store.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Requests a second, over the last snapshots.
    pub requests_per_sec: f64,
    /// How long a snapshot takes: the mean of the last ones, in milliseconds.
    pub reading_ms: f64,
    /// After which time the next snapshot comes, in milliseconds.
    pub every_ms: u64,
}

#[derive(Debug, Clone)]
struct Failure {
    since_ms: u64,
    why: String,
    retry_at_ms: Option<u64>,
}

/// What is known of one of the last snapshots.
#[derive(Debug, Clone, Copy)]
struct Taken {
    at_ms: u64,
    requests: u32,
    reading_us: u64,
    /// How far the store's clock was ahead, give or take half the time the read took.
    ahead_ms: i64,
}

/// A condition that was seen, since when, and in which snapshot last.
#[derive(Debug, Clone, Copy)]
struct Standing {
    since_ms: u64,
    number: u64,
}

/// One connection: what is known, and what follows from it. Apart, so that one connection can be judged by what is
/// known of all.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) facts: Facts,
    pub(super) verdicts: Verdicts,
}

/// What came in, and what is remembered of it.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) connection: Connection,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) local: Arc<LocalFacts>,
    pub(super) signs: Arc<Signs>,
    histories: HashMap<Arc<str>, LockHistory>,
    /// Locks that no client holds or waits for, in the order in which they became so.
    quiet: VecDeque<Arc<str>>,
    events: VecDeque<Logged>,
    numbered: u64,
    gaps: VecDeque<Gap>,
    /// Counts the snapshots.
    number: u64,
    sampled_at_ms: u64,
    every_ms: u64,
    failure: Option<Failure>,
    /// Since when all of it has not worked.
    unfit_since_ms: Option<u64>,
    /// Nodes that are of no use, and since when, on the viewer's clock. Of several that are late in turn none is down.
    down: Vec<(String, u64)>,
    snapshots: VecDeque<Taken>,
}

/// What the locks of the latest snapshot are, and since when.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdicts {
    pub(super) rows: Vec<Row>,
    pub(super) gone: Vec<Row>,
    /// Place of each lock among the rows.
    places: HashMap<Arc<str>, u32>,
    standing: HashMap<(Arc<str>, Rule), Standing>,
}

impl Store {
    /// Makes a connection that was never read.
    pub fn new(connection: Connection) -> Self {
        let facts = Facts {
            connection,
            snapshot: None,
            local: Arc::default(),
            signs: Arc::default(),
            histories: HashMap::new(),
            quiet: VecDeque::new(),
            events: VecDeque::new(),
            numbered: 0,
            gaps: VecDeque::new(),
            number: 0,
            sampled_at_ms: 0,
            every_ms: 0,
            failure: None,
            unfit_since_ms: None,
            down: Vec::new(),
            snapshots: VecDeque::new(),
        };
        Self { facts, verdicts: Verdicts::default() }
    }

    /// Returns what it is.
    pub fn connection(&self) -> &Connection {
        &self.facts.connection
    }

    /// Returns how fresh it is.
    pub fn phase(&self, now_ms: u64) -> Phase {
        let since_ms = self.facts.snapshot.is_some().then_some(self.facts.sampled_at_ms);
        if let Some(failure) = &self.facts.failure {
            return Phase::Lost {
                since_ms,
                failing_since_ms: failure.since_ms,
                why: failure.why.clone(),
                retry_at_ms: failure.retry_at_ms,
            };
        }
        match since_ms {
            None => Phase::Connecting,
            Some(since_ms) if self.facts.is_late(now_ms) => Phase::Late { since_ms },
            Some(_) => match self.facts.snapshot.as_ref().and_then(|snapshot| snapshot.trouble()) {
                Some(trouble) => {
                    Phase::Unfit { word: health::word(trouble), why: sanitized(&trouble.detail) }
                }
                None => Phase::Live,
            },
        }
    }

    /// Says whether its rows may be shown as the present.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.facts.failure.is_none() && self.facts.snapshot.is_some() && !self.facts.is_late(now_ms)
    }

    /// Returns the latest snapshot.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.facts.snapshot.as_ref()
    }

    /// Returns when the latest good snapshot came, on the viewer's clock.
    pub fn sampled_at_ms(&self) -> Option<u64> {
        self.facts.snapshot.as_ref().map(|_| self.facts.sampled_at_ms)
    }

    /// Returns one row per lock of the latest snapshot, in its order.
    pub fn rows(&self) -> &[Row] {
        &self.verdicts.rows
    }

    /// Returns rows of locks that were there a moment ago.
    pub fn gone(&self) -> &[Row] {
        &self.verdicts.gone
    }

    /// Returns the place of a lock among the rows.
    pub(super) fn place(&self, lock: &str) -> Option<usize> {
        self.verdicts.place(lock)
    }

    /// Returns what is remembered of a lock.
    pub fn history(&self, lock: &str) -> Option<&LockHistory> {
        self.facts.histories.get(lock)
    }

    /// Returns what happened, oldest first.
    pub fn events(&self) -> &VecDeque<Logged> {
        &self.facts.events
    }

    /// Returns the times without data, oldest first.
    pub fn gaps(&self) -> &VecDeque<Gap> {
        &self.facts.gaps
    }

    /// Returns the store's time as of `now_ms`, the viewer's; for the right end of timelines.
    pub fn store_now_ms(&self, now_ms: u64) -> u64 {
        let since = now_ms.saturating_sub(self.facts.sampled_at_ms);
        self.facts.snapshot.as_ref().map_or(now_ms, |snapshot| snapshot.taken_at_ms.saturating_add(since))
    }

    /// Returns how far the store's clock is ahead of the viewer's, in milliseconds, judged by the quickest
    /// of the last snapshots; `None` if it is less than one snapshot can tell.
    pub fn clock_ahead_ms(&self) -> Option<i64> {
        let best = self.facts.snapshots.iter().min_by_key(|taken| taken.reading_us)?;
        let unsure_ms = i64::try_from(best.reading_us / 1_000).unwrap_or(i64::MAX) + 50;
        (best.ahead_ms.abs() > unsure_ms).then_some(best.ahead_ms)
    }

    /// Returns since when, as far as is remembered, every snapshot has found the clocks this far apart, and
    /// how far.
    pub(super) fn clock_is_off(&self, by_ms: u64) -> Option<(u64, i64)> {
        let ahead_ms = self.clock_ahead_ms()?;
        let off = |taken: &Taken| taken.ahead_ms.unsigned_abs() >= by_ms;
        let first = self.facts.snapshots.front().filter(|_| self.facts.snapshots.iter().all(off))?;
        Some((first.at_ms, ahead_ms))
    }

    /// Since when the node that has been of no use for longest has been so, on the viewer's clock.
    pub(super) fn down_since_ms(&self) -> Option<u64> {
        self.facts.down.iter().map(|(_, since_ms)| *since_ms).min()
    }

    /// Since when all of it has been seen not to work, on the viewer's clock.
    pub(super) fn unfit_since_ms(&self) -> u64 {
        self.facts.unfit_since_ms.unwrap_or(self.facts.sampled_at_ms)
    }

    /// Returns what watching costs.
    pub fn cost(&self) -> Cost {
        let (Some(first), Some(last)) = (self.facts.snapshots.front(), self.facts.snapshots.back()) else {
            return Cost { every_ms: self.facts.every_ms, ..Cost::default() };
        };
        let requests: u64 = self.facts.snapshots.iter().skip(1).map(|taken| u64::from(taken.requests)).sum();
        let secs = last.at_ms.saturating_sub(first.at_ms) as f64 / 1_000.0;
        let reading_us: u64 = self.facts.snapshots.iter().map(|taken| taken.reading_us).sum();
        Cost {
            requests_per_sec: if secs > 0.0 { requests as f64 / secs } else { 0.0 },
            reading_ms: reading_us as f64 / self.facts.snapshots.len() as f64 / 1_000.0,
            every_ms: self.facts.every_ms,
        }
    }

    /// Since when a finding on a lock stands, on the viewer's clock.
    pub(super) fn since_ms(&self, lock: &Arc<str>, rule: Rule) -> Option<u64> {
        self.verdicts.standing.get(&(lock.clone(), rule)).map(|standing| standing.since_ms)
    }

    /// Takes note of a failure.
    pub(super) fn fail(&mut self, at_ms: u64, message: &str, retry_in_ms: Option<u64>) {
        let since_ms = self.facts.failure.as_ref().map_or(at_ms, |failure| failure.since_ms);
        let retry_at_ms = retry_in_ms.map(|ms| at_ms.saturating_add(ms));
        self.facts.failure = Some(Failure { since_ms, why: sanitized(message), retry_at_ms });
    }

    /// Forgets rows of locks that went a while ago. Says whether there were any.
    pub(super) fn tick(&mut self, now_ms: u64) -> bool {
        let before = self.verdicts.gone.len();
        self.verdicts
            .gone
            .retain(|row| row.gone_at_ms.is_none_or(|at| now_ms < at.saturating_add(GONE_FOR_MS)));
        before != self.verdicts.gone.len()
    }

    /// Takes a snapshot: histories go on. [`Verdicts::judge`] comes next.
    pub(super) fn take(&mut self, at_ms: u64, polled: Polled, limits: &Limits) {
        if self.facts.take(at_ms, polled, limits, &self.verdicts) {
            // What was seen before a gap says nothing about what was the case in between.
            self.verdicts.standing.clear();
        }
    }
}

impl Facts {
    fn is_late(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.sampled_at_ms) > self.every_ms + PATIENCE_MS
    }

    /// Says whether there is a gap before it. `before` tells where the locks stood.
    fn take(&mut self, at_ms: u64, polled: Polled, limits: &Limits, before: &Verdicts) -> bool {
        let new = polled.snapshot;
        let old = self.snapshot.take();
        let gap = old.is_some() && (self.failure.is_some() || self.is_late(at_ms));
        if let Some(old) = old.as_ref().filter(|_| gap) {
            let gap = Gap { from_ms: old.taken_at_ms, to_ms: new.taken_at_ms };
            push(&mut self.gaps, gap, limits.gaps);
        }
        self.failure = None;
        self.number += 1;
        self.remember(&new, old.as_deref(), gap, &polled.events, limits, before);
        for event in polled.events {
            self.numbered += 1;
            push(&mut self.events, Logged { number: self.numbered, event }, limits.events);
        }
        let reading_us = u64::try_from(new.round_trip.as_micros()).unwrap_or(u64::MAX);
        let middle_ms = at_ms.saturating_sub(reading_us / 2_000);
        let ahead_ms =
            i64::try_from(new.taken_at_ms).unwrap_or(i64::MAX) - i64::try_from(middle_ms).unwrap_or(0);
        self.snapshots.push_back(Taken { at_ms, requests: new.requests, reading_us, ahead_ms });
        let old = |taken: &Taken| at_ms.saturating_sub(taken.at_ms) > JUDGED_MS;
        while self.snapshots.len() > SNAPSHOTS && self.snapshots.front().is_some_and(old) {
            self.snapshots.pop_front();
        }
        self.unfit_since_ms = new.trouble().map(|_| self.unfit_since_ms.filter(|_| !gap).unwrap_or(at_ms));
        let before = std::mem::take(&mut self.down);
        let since = |node: &str| {
            let known = before.iter().find(|(known, _)| known == node && !gap);
            known.map_or(at_ms, |(_, since_ms)| *since_ms)
        };
        let down = new.troubles.iter().filter_map(|trouble| trouble.node.as_deref());
        self.down = down.map(|node| (node.to_owned(), since(node))).collect();
        (self.sampled_at_ms, self.every_ms) = (at_ms, polled.every_ms);
        self.local = Arc::new(polled.local);
        self.signs = Arc::new(self.signs.after(&new));
        self.snapshot = Some(new);
        gap
    }

    /// Lets the histories go on, and matches the rows with the locks of the new snapshot.
    fn remember(
        &mut self,
        new: &Snapshot,
        old: Option<&Snapshot>,
        gap: bool,
        events: &[Event],
        limits: &Limits,
        before: &Verdicts,
    ) {
        let mut by_lock: HashMap<&str, Vec<&Event>> = HashMap::new();
        for event in events {
            by_lock.entry(&event.lock).or_default().push(event);
        }
        let before_ms = old.map(|old| old.taken_at_ms);
        let taken_ms = new.taken_at_ms;
        let step = |old, new, events| Step { old, new, before_ms, taken_ms, gap, events };
        let mut still_here = 0;
        for (index, lock) in new.locks.iter().enumerate() {
            let name = lock.name.as_str();
            // Mostly every lock stands where it stood.
            let stays = old.and_then(|old| old.locks.get(index)).filter(|old| old.name == lock.name);
            let was = stays.or_else(|| old?.locks.get(before.place(name)?));
            still_here += usize::from(was.is_some());
            let events = by_lock.get(name).map_or(&[][..], Vec::as_slice);
            let history = match self.histories.get_mut(name) {
                Some(history) => history,
                None => self.histories.entry(name.into()).or_default(),
            };
            history.quiet = false;
            history.observe(&step(was, Some(lock), events), limits);
        }
        // Mostly all are, and then there is nothing to look for.
        let Some(old) = old.filter(|_| still_here < before.places.len()) else { return };
        // A truncated snapshot does not say that what is missing from it is gone.
        let here: std::collections::HashSet<&str> = new.locks.iter().map(|lock| lock.name.as_str()).collect();
        for (name, at) in before.places.iter().filter(|(name, _)| !here.contains(&***name)) {
            let Some(history) = self.histories.get_mut(name).filter(|_| !new.truncated) else { continue };
            let events = by_lock.get(&**name).map_or(&[][..], Vec::as_slice);
            history.observe(&step(old.locks.get(*at as usize), None, events), limits);
            if !history.quiet {
                history.quiet = true;
                self.quiet.push_back(name.clone());
            }
        }
        while self.quiet.len() > limits.quiet_locks {
            let Some(name) = self.quiet.pop_front() else { break };
            if self.histories.get(&name).is_some_and(|history| history.quiet) {
                self.histories.remove(&name);
            }
        }
    }
}

impl Verdicts {
    /// Returns the place of a lock among the rows.
    fn place(&self, lock: &str) -> Option<usize> {
        self.places.get(lock).map(|at| *at as usize)
    }

    /// Judges every lock of the latest snapshot, and brings the rows up to date.
    ///
    /// `before` is the snapshot that the rows are of; the same as the latest if only the rings changed.
    pub(super) fn judge(&mut self, facts: &Facts, before: Option<&Snapshot>, evidence: &Evidence<'_>) {
        let Some(snapshot) = &facts.snapshot else { return };
        let mut old_rows: Vec<Option<Row>> = std::mem::take(&mut self.rows).into_iter().map(Some).collect();
        // Mostly the same locks stand at the same places.
        let all_stay = before.is_some_and(|before| {
            let both = before.locks.iter().zip(&snapshot.locks);
            before.locks.len() == snapshot.locks.len()
                && both.into_iter().all(|(old, new)| old.name == new.name)
        });
        let mut rows = Vec::with_capacity(snapshot.locks.len());
        for (index, lock) in snapshot.locks.iter().enumerate() {
            let at = if all_stay { Some(index) } else { self.place(&lock.name) };
            let old_row = at.and_then(|at| old_rows.get_mut(at)?.take());
            let old_lock = at.and_then(|at| before?.locks.get(at));
            let history = facts.histories.get(lock.name.as_str());
            let name = match (&old_row, history) {
                (Some(row), _) => row.key.lock.clone(),
                (None, _) => lock.name.as_str().into(),
            };
            let verdicts = judge(lock, evidence, history);
            let hand_offs = history.map_or(0, |history| history.hand_offs(snapshot.taken_at_ms));
            let verdicts = self.settle(facts, &name, verdicts, !lock.holders.is_empty());
            let unchanged = old_lock.is_some_and(|old| is_same(old, lock));
            let mut row = match old_row {
                Some(old) if unchanged && can_stay(&old, lock, evidence) => {
                    old.refreshed(lock, index, verdicts)
                }
                old => {
                    let key = RowKey { connection: facts.connection.id.clone(), lock: name.clone() };
                    let mut row = row(key, snapshot, index, verdicts, evidence);
                    let changed = old.filter(|_| unchanged).map(|old| old.changed_at_ms);
                    row.changed_at_ms = changed.unwrap_or(facts.sampled_at_ms);
                    row
                }
            };
            row.sampled_at_ms = facts.sampled_at_ms;
            row.hand_offs = hand_offs;
            rows.push(row);
        }
        if !all_stay {
            let place = |(at, row): (usize, &Row)| (row.key.lock.clone(), at as u32);
            self.places = rows.iter().enumerate().map(place).collect();
        }
        for mut row in old_rows.into_iter().flatten() {
            row.gone_at_ms = Some(facts.sampled_at_ms);
            self.gone.push(row);
        }
        if !self.gone.is_empty() {
            self.gone.retain(|row| !self.places.contains_key(&row.key.lock));
        }
        self.standing.retain(|_, standing| standing.number == facts.number);
        self.rows = rows;
    }

    /// Keeps the verdicts that have stood long enough; the last one, that all is well, always does.
    fn settle(&mut self, facts: &Facts, lock: &Arc<str>, verdicts: Vec<Verdict>, held: bool) -> Vec<Verdict> {
        if verdicts
            .iter()
            .all(|verdict| verdict.rule.stands_for_ms() == 0 && verdict.severity == Severity::Fine)
        {
            return verdicts;
        }
        let now_ms = facts.sampled_at_ms;
        let mut settled = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            let fresh = Standing { since_ms: now_ms, number: facts.number };
            let standing = self.standing.entry((lock.clone(), verdict.rule)).or_insert(fresh);
            standing.number = facts.number;
            if now_ms.saturating_sub(standing.since_ms) >= verdict.rule.stands_for_ms() {
                settled.push(verdict);
            }
        }
        if settled.is_empty() {
            let rule = if held { Rule::Legit } else { Rule::Free };
            settled.push(Verdict { rule, severity: Severity::Fine, holder: None });
        }
        settled
    }
}

impl Row {
    /// The same row at a later snapshot, in which only ages and renewals differ.
    fn refreshed(mut self, lock: &LockView, index: usize, verdicts: Vec<Verdict>) -> Self {
        let holder = lock.holders.first();
        let head = lock.waiters.iter().find(|waiter| !waiter.silent);
        self.index = index;
        self.held_for_ms = holder.and_then(|holder| holder.held_for_ms);
        self.remaining_ms = holder.and_then(|holder| holder.remaining_ms);
        self.renewals = holder.and_then(|holder| holder.renewals);
        let beat = holder.and_then(Beat::of);
        self.since_renewal_ms = beat.map(|beat| beat.since_ms);
        self.missed = beat.map_or(0, Beat::missed);
        self.waited_ms = head.map(|waiter| waiter.waited_ms);
        self.set_verdicts(verdicts);
        self
    }
}

/// Says whether a row needs nothing but new ages. Of several holders another may be the worst now.
fn can_stay(row: &Row, lock: &LockView, evidence: &Evidence<'_>) -> bool {
    let id = lock.holders.first().and_then(|holder| holder.client.as_ref());
    // A client says who it is a moment after it was granted its first lock.
    let told = !row.program.is_empty() || id.is_none_or(|id| evidence.client(id).is_none());
    lock.holders.len() < 2 && told
}

/// Says whether two snapshots show the same, but for ages and renewals.
fn is_same(old: &LockView, new: &LockView) -> bool {
    let same_holder = |old: &HolderView, new: &HolderView| {
        old.owner_digest == new.owner_digest
            && old.fencing_token == new.fencing_token
            && old.mode == new.mode
            && old.client == new.client
            && old.label == new.label
            && old.lease_ms == new.lease_ms
            && old.permits == new.permits
            && old.remaining_ms.is_some() == new.remaining_ms.is_some()
    };
    let same_waiter = |old: &WaiterView, new: &WaiterView| {
        old.owner_digest == new.owner_digest && old.silent == new.silent && old.mode == new.mode
    };
    old.mode == new.mode
        && old.capacity == new.capacity
        && old.holders.len() == new.holders.len()
        && old.waiters.len() == new.waiters.len()
        && old.holders.iter().zip(&new.holders).all(|(old, new)| same_holder(old, new))
        && old.waiters.iter().zip(&new.waiters).all(|(old, new)| same_waiter(old, new))
}
