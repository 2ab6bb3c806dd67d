//! What is remembered of a lock: its beats, who held it when, who waited. Bounded.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use polylatch::ClientId;
use polylatch::inspect::{Event, EventKind, HolderView, LockView, WaiterView};

use super::beat::Beat;

/// A waiter is starved when this many that came later got the lock.
const PASSED_OVER: u32 = 5;

/// So many finished holds make a usual one.
const USUAL_FROM: usize = 8;

/// So many late beats in a row make a lease too short.
const LATE_BEATS: usize = 4;

/// The time over which hand-offs are counted.
const MINUTE_MS: u64 = 60_000;

/// Most hand-offs that are counted in that time.
const MOST_HAND_OFFS: usize = 600;

/// How much is remembered. What is older or rarer is forgotten first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Beats of each lock.
    pub pulses: usize,
    /// Holds of each lock.
    pub holds: usize,
    /// Waits of each lock.
    pub waits: usize,
    /// Events of each connection.
    pub events: usize,
    /// Locks without holder and waiter whose history is kept, of each connection.
    pub quiet_locks: usize,
    /// Times without data, of each connection.
    pub gaps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pulses: 48, holds: 24, waits: 24, events: 5_000, quiet_locks: 2_000, gaps: 64 }
    }
}

/// One place on the renewal strip. Times are the store's, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// When.
    pub at_ms: u64,
    /// What.
    pub kind: PulseKind,
}

/// What a place on the renewal strip is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PulseKind {
    /// The lease began.
    Granted,
    /// It was renewed, this long after the one before.
    Renewed {
        /// Since the beat before.
        after_ms: u64,
    },
    /// It was due and did not come; a later `Renewed` tells that it came after all.
    Missed,
    /// The lease was over.
    Ended,
}

/// Who held a lock, and for what. Many holds of a lock share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// `None` for another program.
    pub client: Option<ClientId>,
    /// What it said it was doing.
    pub label: String,
}

/// One hold on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who held it.
    pub by: Arc<HeldBy>,
    /// `mutex`, `read`, `write` or `permits`.
    pub mode: Cow<'static, str>,
    /// The fencing token.
    pub fencing_token: Option<u64>,
    /// Tells two acquisitions apart.
    pub owner_digest: Box<str>,
    /// From when, on the store's clock.
    pub from_ms: u64,
    /// It was held already at the first snapshot, so `from_ms` may be too late.
    pub began_unseen: bool,
    /// Its client was seen to keep it between its callers: how long it was held says nothing of their work.
    pub kept: bool,
    /// Until when; `None` if it goes on.
    pub to_ms: Option<u64>,
    /// How it ended.
    pub end: Option<HoldEnd>,
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    /// Released by its holder.
    Released,
    /// Its time was up.
    Expired,
    /// Ended by an operator.
    Broken,
    /// It was over after a time without data; how is not known.
    Unseen,
}

/// One wait on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// Who waited.
    pub client: ClientId,
    /// What it said it wanted to do.
    pub label: String,
    /// Tells two acquisitions apart.
    pub owner_digest: String,
    /// Since when, on the store's clock.
    pub from_ms: u64,
    /// Until when; `None` if it goes on.
    pub to_ms: Option<u64>,
    /// It got the lock; otherwise it gave up.
    pub got_it: bool,
}

/// A time in which the store was not read, on the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The last good snapshot before.
    pub from_ms: u64,
    /// The first good snapshot after.
    pub to_ms: u64,
}

/// What is remembered of one lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockHistory {
    /// The renewal strip, oldest first: of a lock that several hold, the beats of the first of them.
    pub pulses: VecDeque<Pulse>,
    /// Who held it, oldest first; those that still hold are among them.
    pub holds: VecDeque<Hold>,
    /// Who waited, oldest first; those that still wait are among them.
    pub waits: VecDeque<Waited>,
    /// The first snapshot of the store, on its clock, if the lock was in it: what was before is known only as far as
    /// the store reported it then.
    pub observed_from_ms: Option<u64>,
    /// When it was granted during the last minute.
    grants: VecDeque<u64>,
    /// How often queued clients were passed over.
    passed: HashMap<String, u32>,
    /// The largest token that was granted, and who was granted a smaller one afterwards.
    top_token: u64,
    fell_back: Option<(String, u64)>,
    /// Beats of the present gap that are in the strip already.
    told_missed: u32,
    /// No client holds it or waits for it: it is kept for a while.
    pub(super) quiet: bool,
}

/// Two snapshots of one lock, with what is said to have happened in between.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    pub old: Option<&'a LockView>,
    pub new: Option<&'a LockView>,
    /// When the old and the new one were taken, on the store's clock; no old one at the first snapshot.
    pub before_ms: Option<u64>,
    pub taken_ms: u64,
    /// There was a time without data in between.
    pub gap: bool,
    pub events: &'a [&'a Event],
}

impl LockHistory {
    /// Returns how often it changed hands during the minute before `taken_ms`, as far as it was seen.
    pub fn hand_offs(&self, taken_ms: u64) -> u32 {
        let from = taken_ms.saturating_sub(MINUTE_MS);
        u32::try_from(self.grants.iter().filter(|at| **at >= from).count()).unwrap_or(u32::MAX)
    }

    /// Returns the length of the longest of the holds that were seen from begin to end; `None` if there
    /// were too few to know.
    pub fn usual_hold_ms(&self) -> Option<u64> {
        let seen = |hold: &&Hold| !hold.began_unseen && !hold.kept && hold.end != Some(HoldEnd::Unseen);
        let whole = || self.holds.iter().filter(seen).filter_map(Hold::length_ms);
        (whole().count() >= USUAL_FROM).then(|| whole().max()).flatten()
    }

    /// Says whether its client was seen to keep this lease between its callers.
    pub(super) fn was_kept(&self, holder: &HolderView) -> bool {
        holder.idle_ago_ms.is_some() || self.holds.iter().rev().any(|hold| hold.kept && hold.is(holder))
    }

    /// Returns the larger token that was granted before this holder's.
    pub(super) fn fell_back(&self, holder: &HolderView) -> Option<u64> {
        self.fell_back.as_ref().filter(|(digest, _)| *digest == holder.owner_digest).map(|(_, top)| *top)
    }

    /// Returns the mean time between the last beats, if it leaves no room for one more miss.
    pub(super) fn beats_come_late(&self, holder: &HolderView) -> Option<u64> {
        let lease = holder.lease_ms?;
        let mut beats = self.pulses.iter().rev().take_while(|pulse| pulse.kind != PulseKind::Granted);
        let gaps: Vec<u64> = beats
            .by_ref()
            .filter_map(|pulse| match pulse.kind {
                PulseKind::Renewed { after_ms } => Some(after_ms),
                _ => None,
            })
            .take(LATE_BEATS)
            .collect();
        let late = |gap: &u64| gap.saturating_mul(5) > lease.saturating_mul(3);
        let all_late = gaps.len() == LATE_BEATS && gaps.iter().all(late);
        all_late.then(|| gaps.iter().sum::<u64>() / LATE_BEATS as u64)
    }

    /// Returns the waiter that was passed over most, and how often, if that is too often.
    pub(super) fn starved<'l>(&self, lock: &'l LockView) -> Option<(&'l WaiterView, u32)> {
        if self.passed.is_empty() {
            return None;
        }
        let times = |waiter: &WaiterView| self.passed.get(&waiter.owner_digest).copied().unwrap_or(0);
        let worst = lock.waiters.iter().filter(|waiter| !waiter.silent).max_by_key(|waiter| times(waiter))?;
        Some((worst, times(worst))).filter(|(_, times)| *times >= PASSED_OVER)
    }

    /// Takes note of one more snapshot.
    pub(super) fn observe(&mut self, step: &Step<'_>, limits: &Limits) {
        let holders = step.new.map_or(&[][..], |lock| &lock.holders);
        let waiters = step.new.map_or(&[][..], |lock| &lock.waiters);
        let at_ms = step.taken_ms;
        if step.before_ms.is_none() && self.observed_from_ms.is_none() {
            self.observed_from_ms = Some(at_ms);
        }
        let mut ended = false;
        for hold in self.holds.iter_mut().filter(|hold| hold.to_ms.is_none()) {
            match holders.iter().find(|holder| hold.is(holder)) {
                Some(holder) => {
                    // A converted lease goes on in another way, under another token.
                    hold.fencing_token = holder.fencing_token.map(|token| token.get());
                    hold.kept |= holder.idle_ago_ms.is_some();
                    if hold.mode != holder.mode {
                        hold.mode = holder.mode.clone();
                    }
                }
                None => {
                    let end = ending(hold, step);
                    // What ended while nobody looked ended after the last look; a lease not later than itself.
                    hold.to_ms = Some(at_ms.max(hold.from_ms));
                    hold.end = Some(end);
                    ended = true;
                }
            }
        }
        if ended && holders.is_empty() {
            self.pulse(at_ms, PulseKind::Ended, limits);
        }
        for holder in holders {
            if !self.holds.iter().any(|hold| hold.to_ms.is_none() && hold.is(holder)) {
                self.begin(holder, step, limits);
            }
        }
        self.line(waiters, holders, at_ms, limits);
        if let Some(holder) = holders.first() {
            let old = step.old.and_then(|lock| lock.holders.first());
            self.beat(holder, old.filter(|old| old.owner_digest == holder.owner_digest), at_ms, limits);
        }
    }

    fn begin(&mut self, holder: &HolderView, step: &Step<'_>, limits: &Limits) {
        let token = holder.fencing_token.map(|token| token.get());
        let from_ms = holder.acquired_at_ms.unwrap_or(step.taken_ms).min(step.taken_ms);
        let began_unseen = step.before_ms.is_none() && holder.acquired_at_ms.is_none();
        if let Some(token) = token {
            if token < self.top_token && step.before_ms.is_some_and(|before| from_ms >= before) {
                self.fell_back = Some((holder.owner_digest.clone(), self.top_token));
            }
            self.top_token = self.top_token.max(token);
        }
        if step.before_ms.is_some() {
            self.pass_over(holder, step);
            push(&mut self.grants, from_ms, MOST_HAND_OFFS);
            while self.grants.front().is_some_and(|at| at + MINUTE_MS < step.taken_ms) {
                self.grants.pop_front();
            }
        }
        if step.new.is_some_and(|lock| lock.holders.first() == Some(holder)) {
            self.told_missed = 0;
            self.pulse(from_ms, PulseKind::Granted, limits);
            // Of the renewals before the first snapshot only the last one is told, and how many there were.
            if let (None, Some(times @ 1..), Some(ago)) =
                (step.before_ms, holder.renewals, holder.renewed_ago_ms)
            {
                let last_ms = step.taken_ms.saturating_sub(ago).max(from_ms);
                let after_ms = (last_ms - from_ms) / u64::from(times);
                self.pulse(last_ms, PulseKind::Renewed { after_ms }, limits);
            }
        }
        let is_same = |by: &HeldBy| by.client == holder.client && by.label == holder.label;
        let known = self.holds.iter().rev().map(|hold| &hold.by).find(|by| is_same(by));
        let by = known.cloned().unwrap_or_else(|| {
            Arc::new(HeldBy { client: holder.client.clone(), label: holder.label.clone() })
        });
        let hold = Hold {
            by,
            mode: holder.mode.clone(),
            fencing_token: token,
            owner_digest: holder.owner_digest.as_str().into(),
            from_ms,
            began_unseen,
            kept: holder.idle_ago_ms.is_some(),
            to_ms: None,
            end: None,
        };
        push(&mut self.holds, hold, limits.holds);
    }

    /// Counts the clients that were queued before the new holder came, and still are.
    fn pass_over(&mut self, holder: &HolderView, step: &Step<'_>) {
        let (Some(old), Some(new)) = (step.old, step.new) else { return };
        let place = old.waiters.iter().position(|waiter| waiter.owner_digest == holder.owner_digest);
        for waiter in old.waiters.iter().take(place.unwrap_or(usize::MAX)).filter(|waiter| !waiter.silent) {
            if new.waiters.iter().any(|still| still.owner_digest == waiter.owner_digest) {
                *self.passed.entry(waiter.owner_digest.clone()).or_default() += 1;
            }
        }
    }

    fn line(&mut self, waiters: &[WaiterView], holders: &[HolderView], at_ms: u64, limits: &Limits) {
        for wait in self.waits.iter_mut().filter(|wait| wait.to_ms.is_none()) {
            if !waiters.iter().any(|waiter| waiter.owner_digest == wait.owner_digest) {
                wait.to_ms = Some(at_ms);
                wait.got_it = holders.iter().any(|holder| holder.owner_digest == wait.owner_digest);
            }
        }
        // Of a long line only its head is remembered.
        for waiter in waiters.iter().take(limits.waits) {
            let known = |wait: &Waited| wait.to_ms.is_none() && wait.owner_digest == waiter.owner_digest;
            if !self.waits.iter().any(known) {
                let wait = Waited {
                    client: waiter.client.clone(),
                    label: waiter.label.clone(),
                    owner_digest: waiter.owner_digest.clone(),
                    from_ms: waiter.since_ms,
                    to_ms: None,
                    got_it: false,
                };
                push(&mut self.waits, wait, limits.waits);
            }
        }
        if !self.passed.is_empty() {
            self.passed.retain(|digest, _| waiters.iter().any(|waiter| waiter.owner_digest == *digest));
        }
    }

    fn beat(&mut self, holder: &HolderView, old: Option<&HolderView>, at_ms: u64, limits: &Limits) {
        let beats = |holder: &HolderView| holder.renewals.unwrap_or(0);
        if let Some(old) = old
            && beats(holder) > beats(old)
        {
            let renewed_ms = at_ms.saturating_sub(holder.renewed_ago_ms.unwrap_or(0));
            let last = self.pulses.iter().rev().find(|pulse| pulse.kind != PulseKind::Missed);
            let since = renewed_ms.saturating_sub(last.map_or(renewed_ms, |pulse| pulse.at_ms));
            // Several beats between two snapshots are told apart by their number only.
            let number = u64::from(beats(holder) - beats(old)).min(limits.pulses as u64).max(1);
            for nth in 1..=number {
                let at_ms = renewed_ms - since + since * nth / number;
                self.pulse(at_ms, PulseKind::Renewed { after_ms: since / number }, limits);
            }
            self.told_missed = 0;
        }
        let Some(beat) = Beat::of(holder) else { return };
        let last_ms = at_ms.saturating_sub(beat.since_ms);
        for nth in self.told_missed + 1..=beat.missed() {
            self.pulse(last_ms + beat.every_ms * u64::from(nth), PulseKind::Missed, limits);
            self.told_missed = nth;
        }
    }

    fn pulse(&mut self, at_ms: u64, kind: PulseKind, limits: &Limits) {
        push(&mut self.pulses, Pulse { at_ms, kind }, limits.pulses);
    }
}

impl Hold {
    /// Returns how long it lasted; `None` if it goes on.
    pub fn length_ms(&self) -> Option<u64> {
        Some(self.to_ms?.saturating_sub(self.from_ms))
    }

    fn is(&self, holder: &HolderView) -> bool {
        let shared = |mode: &str| matches!(mode, "read" | "write");
        *self.owner_digest == *holder.owner_digest
            && (self.fencing_token == holder.fencing_token.map(|token| token.get())
                || (shared(&self.mode) && shared(&holder.mode)))
    }
}

fn ending(hold: &Hold, step: &Step<'_>) -> HoldEnd {
    if step.gap {
        return HoldEnd::Unseen;
    }
    let of_it = step.events.iter().filter(|event| event.client == hold.by.client);
    of_it
        .filter_map(|event| match event.kind {
            EventKind::Released => Some(HoldEnd::Released),
            EventKind::Expired => Some(HoldEnd::Expired),
            EventKind::Broken { .. } => Some(HoldEnd::Broken),
            _ => None,
        })
        .next()
        .unwrap_or(HoldEnd::Unseen)
}

/// Puts something at the end and forgets the oldest.
pub(super) fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    } else if queue.len() == queue.capacity() {
        // There are several for each lock, and together they are most of what is remembered.
        queue.reserve_exact((queue.len() / 2 + 1).min(most - queue.len()));
    }
    queue.push_back(item);
}

/// Something that happened, with its number: a consumer remembers the last one it has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Grows by one with every event of a connection.
    pub number: u64,
    /// What happened.
    pub event: Event,
}
