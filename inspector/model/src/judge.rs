//! The rules: facts become verdicts. The words for these are in `explain`.

use polylatch::inspect::{HolderView, LockView};

use super::beat::{Beat, Session};
use super::evidence::Evidence;
use super::history::LockHistory;
use super::verdict::{Rule, Severity, Verdict};
use super::{Process, health, sharing, votes};

/// A hold counts as far beyond the usual only from this length on.
const LONG_HOLD_MS: u64 = 30_000;

/// So many times as long as the longest of the earlier holds is far beyond the usual.
const FAR_BEYOND: u64 = 5;

/// A wait counts as long from here on, and as very long.
const LONG_WAIT_MS: u64 = 60_000;
const VERY_LONG_WAIT_MS: u64 = 600_000;

/// So many waiters are many, and far too many.
const MANY_WAITERS: usize = 20;
const FAR_TOO_MANY_WAITERS: usize = 100;

/// Applies the rules to one lock, the most severe verdict first. There is always at least one.
pub(super) fn judge(lock: &LockView, evidence: &Evidence<'_>, past: Option<&LockHistory>) -> Vec<Verdict> {
    match evidence.trouble() {
        Some(trouble) => {
            return judge_without_store(lock, evidence, health::rule(trouble), Severity::Problem);
        }
        None if health::is_undecided(lock) => {
            // It may be one late answer. Nodes that stay silent are a warning about the store.
            return judge_without_store(lock, evidence, Rule::Undecided, Severity::Notice);
        }
        None => {}
    }
    let mut found = Vec::new();
    let mut say = |rule, severity, holder| found.push(Verdict { rule, severity, holder });
    match evidence.ring(&lock.name) {
        Some(ring) if ring.is_proved() => say(Rule::Deadlock, Severity::Problem, None),
        Some(_) => say(Rule::MayDeadlock, Severity::Warning, None),
        None => {}
    }
    for (at, holder) in lock.holders.iter().enumerate() {
        if let Some((rule, severity)) = about_holder(lock, holder, evidence) {
            say(rule, severity, Some(at));
        } else if past.is_some_and(|past| is_far_beyond_usual(holder, past)) {
            say(Rule::ZombieRenew, Severity::Warning, Some(at));
        }
        if past.is_some_and(|past| past.fell_back(holder).is_some()) {
            say(Rule::TokenFellBack, Severity::Problem, Some(at));
        }
        if past.is_some_and(|past| past.beats_come_late(holder).is_some()) {
            say(Rule::ShortLease, Severity::Notice, Some(at));
        }
    }
    if let Some((rule, severity)) = about_votes(lock) {
        say(rule, severity, None);
    }
    if let Some((rule, severity)) = about_line(lock) {
        say(rule, severity, None);
    }
    for (rule, severity) in about_waiting(lock) {
        say(rule, severity, None);
    }
    if past.is_some_and(|past| past.starved(lock).is_some()) {
        say(Rule::Starved, Severity::Warning, None);
    }
    if found.is_empty() {
        let rule = if lock.holders.is_empty() { Rule::Free } else { Rule::Legit };
        return vec![Verdict { rule, severity: Severity::Fine, holder: None }];
    }
    found.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    found
}

/// While the store does not work, only what this host knows of its own processes counts: a missing heartbeat says nothing
/// about its client.
fn judge_without_store(
    lock: &LockView,
    evidence: &Evidence<'_>,
    rule: Rule,
    severity: Severity,
) -> Vec<Verdict> {
    let mut found = vec![Verdict { rule, severity, holder: None }];
    for (at, holder) in lock.holders.iter().enumerate() {
        let rule = match evidence.process(holder) {
            Process::Present { stopped: true, .. } => Rule::Stopped,
            Process::Gone => Rule::HolderGone,
            Process::Present { .. } | Process::Unknown => continue,
        };
        found.push(Verdict { rule, severity: Severity::Warning, holder: Some(at) });
    }
    found
}

fn about_holder(lock: &LockView, holder: &HolderView, evidence: &Evidence<'_>) -> Option<(Rule, Severity)> {
    let process = evidence.process(holder);
    if let Process::Present { stopped: true, .. } = process {
        return Some((Rule::Stopped, Severity::Problem));
    }
    let session = Session::of(holder);
    if lock.mode == "foreign" || holder.client.is_none() {
        return Some(match (holder.remaining_ms, session) {
            (None, None) => (Rule::NoExpiry, Severity::Problem),
            _ => (Rule::Foreign, Severity::Notice),
        });
    }
    let beat = Beat::of(holder);
    match (process, holder.remaining_ms) {
        (Process::Gone, None) if session.is_some() => return Some((Rule::HolderGone, Severity::Warning)),
        (Process::Gone, None) => return Some((Rule::NoExpiryDead, Severity::Problem)),
        (Process::Gone, Some(_)) => {
            // Renewed a moment ago and not here: it ended just now, or it runs in a container that
            // shares this host's name but not its process numbers.
            let beats = beat.is_some_and(|beat| !beat.is_late());
            let severity = if beats { Severity::Notice } else { Severity::Warning };
            return Some((Rule::HolderGone, severity));
        }
        _ => {}
    }
    if evidence.silent_for_ms(holder).is_some() {
        return Some((Rule::RenewalsStopped, Severity::Warning));
    }
    let beat = beat.filter(|_| holder.renewed != Some(false))?;
    // A lease that may be of a fixed length is not late.
    let to_be_renewed = holder.renewed == Some(true);
    if beat.has_stopped() {
        let severity = if to_be_renewed { Severity::Warning } else { Severity::Notice };
        return Some((Rule::RenewalsStopped, severity));
    }
    (beat.is_late() && to_be_renewed).then_some((Rule::LateRenewal, Severity::Notice))
}

/// Only while no client has a majority: a minority that is behind is no harm to a holder.
fn about_votes(lock: &LockView) -> Option<(Rule, Severity)> {
    let tally = votes::tally(lock).filter(|_| lock.holders.is_empty())?;
    match tally.camps.len() {
        0 => None,
        1 => Some((Rule::Quorum, Severity::Notice)),
        _ => Some((Rule::SplitVote, Severity::Warning)),
    }
}

fn about_line(lock: &LockView) -> Option<(Rule, Severity)> {
    if lock.holders.is_empty() && lock.details.iter().any(|detail| detail.name == "lock-delay") {
        return Some((Rule::LockDelay, Severity::Notice));
    }
    let head = lock.waiters.first()?;
    let free = lock.holders.is_empty();
    if free && lock.waiters.iter().all(|waiter| waiter.silent) {
        return Some((Rule::Free, Severity::Fine));
    }
    if head.silent {
        return Some((Rule::DeadHead, if free { Severity::Warning } else { Severity::Notice }));
    }
    sharing::has_room(lock, head).then_some((Rule::LostWake, Severity::Notice))
}

/// How long the first one waits, and how many wait.
fn about_waiting(lock: &LockView) -> impl Iterator<Item = (Rule, Severity)> {
    let mut live = lock.waiters.iter().filter(|waiter| !waiter.silent);
    let longest = live.clone().map(|waiter| waiter.waited_ms).max().unwrap_or(0);
    let long = match longest {
        VERY_LONG_WAIT_MS.. => Some((Rule::LongWait, Severity::Warning)),
        LONG_WAIT_MS.. => Some((Rule::LongWait, Severity::Notice)),
        _ => None,
    };
    let many = match live.by_ref().count() {
        FAR_TOO_MANY_WAITERS.. => Some((Rule::ManyWaiters, Severity::Warning)),
        MANY_WAITERS.. => Some((Rule::ManyWaiters, Severity::Notice)),
        _ => None,
    };
    long.into_iter().chain(many)
}

fn is_far_beyond_usual(holder: &HolderView, past: &LockHistory) -> bool {
    let held = holder.held_for_ms.unwrap_or(0);
    // Between the callers of a kept lease there is no work that could hang.
    let is_long = held >= LONG_HOLD_MS && !past.was_kept(holder);
    is_long && past.usual_hold_ms().is_some_and(|usual| held > usual.saturating_mul(FAR_BEYOND))
}

/// Returns the holder that stands for all where there is room for one: the first of those whose state
/// is the worst.
pub(super) fn speaker<'l>(lock: &'l LockView, evidence: &Evidence<'_>) -> Option<&'l HolderView> {
    if lock.holders.len() < 2 {
        return lock.holders.first();
    }
    let severity = |holder| about_holder(lock, holder, evidence).map(|(_, severity)| severity);
    lock.holders.iter().rev().max_by_key(|holder| severity(holder))
}
