//! Why a lock is stuck, or why it is not: one sentence with its evidence, and what to do next.

use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, LockView, Snapshot};
use serde::Serialize;

use super::graph::{Ancestors, Cycle, cycles};
use super::text::{count, harmless, shell_word, span};
use super::{HostFacts, Process, sharing};

/// A ring of waits must have stood for this long before it is called a deadlock: clients that take
/// and give locks quickly form rings by chance in a reading that is not one instant.
const DEADLOCK_STANDS_MS: u64 = 1_000;

/// Two start times of one process may differ by this much: clocks are stepped, ticks are coarse.
const SAME_START_MS: u64 = 5_000;

/// How much a finding matters, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// All is as it should be.
    Fine,
    /// Worth knowing; passes by itself.
    Notice,
    /// Something went wrong; the lease bounds the harm.
    Warning,
    /// Will not go away by itself.
    Problem,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Rule {
    /// Clients wait for each other in a ring.
    Deadlock,
    /// The holder's process is stopped (SIGSTOP, Ctrl-Z, debugger).
    Stopped,
    /// There is no expiry, and the holder's process is gone.
    NoExpiryDead,
    /// There is no expiry.
    NoExpiry,
    /// The holder's process is gone; its lease still runs.
    HolderGone,
    /// Renewals have stopped.
    BeatsStopped,
    /// A renewal is late.
    LateBeat,
    /// The first in line is silent.
    DeadHead,
    /// The lock is free although somebody waits.
    LostWake,
    /// Another program's lock.
    Foreign,
    /// Held as it should be.
    Legit,
    /// Free.
    Free,
}

/// A step that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// A command line to copy.
    Run(String),
    /// Advice in words.
    Do(String),
}

/// One reason, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule found it.
    pub rule: Rule,
    /// How much it matters.
    pub severity: Severity,
    /// What is the case, with the numbers that show it.
    pub sentence: String,
    /// What to do, best first; empty if nothing is to be done.
    pub next: Vec<Next>,
}

/// What findings are drawn from.
#[expect(missing_debug_implementations, reason = "borrows a trait object and is never kept")]
pub struct Evidence<'a> {
    facts: &'a dyn HostFacts,
    command: &'a str,
    clients: HashMap<&'a ClientId, &'a ClientView>,
    cycles: Vec<Cycle>,
}

impl<'a> Evidence<'a> {
    /// Prepares a reading. `command` is how the CLI is called for this store, such as `polylatch` or
    /// `polylatch --url redis://cache`.
    pub fn new(snapshot: &'a Snapshot, facts: &'a dyn HostFacts, command: &'a str) -> Self {
        let clients = snapshot.clients.iter().map(|client| (&client.id, client)).collect();
        let cycles = cycles(snapshot, &ancestors(snapshot, &clients, facts));
        Self { facts, command, clients, cycles }
    }

    /// Returns what a client says about itself.
    pub fn client(&self, id: &ClientId) -> Option<&'a ClientView> {
        self.clients.get(id).copied()
    }

    /// Returns `host pid 42 (program)`.
    pub fn who(&self, id: &ClientId) -> String {
        let (host, pid) = self.place(id);
        let program =
            self.client(id).map(|client| format!(" ({})", harmless(&client.program))).unwrap_or_default();
        format!("{host} pid {pid}{program}")
    }

    /// Returns the host's name and the process id as text.
    pub fn place(&self, id: &ClientId) -> (String, String) {
        match self.client(id) {
            Some(client) => (harmless(&client.host), client.pid.to_string()),
            None => (harmless(id.host()), id.pid().map_or("?".into(), |pid| pid.to_string())),
        }
    }

    fn holder(&self, holder: &HolderView) -> String {
        holder.client.as_ref().map_or_else(|| "another program".into(), |id| self.who(id))
    }

    /// Looks the holder's process up, if it runs on this host.
    pub fn process(&self, holder: &HolderView) -> Process {
        let Some(client) = holder.client.as_ref().and_then(|id| self.client(id)) else {
            return Process::Unknown;
        };
        if client.host.is_empty() || client.host != self.facts.host_name() {
            return Process::Unknown;
        }
        let process = self.facts.process(client.pid);
        if let Process::Present { started_at_ms: Some(started), .. } = process
            && client.process_started_at_ms.is_some_and(|said| said.abs_diff(started) > SAME_START_MS)
        {
            return Process::Gone; // its number was given to another process
        }
        process
    }

    fn break_step(&self, lock: &LockView, holder: &HolderView) -> Option<Next> {
        let token = holder.fencing_token?;
        if harmless(&lock.name) != lock.name {
            let advice = "break it with the exact name from the JSON output: it has invisible characters";
            return Some(Next::Do(advice.into()));
        }
        let name = shell_word(&lock.name);
        Some(Next::Run(format!("{} break {name} --token {token} --reason '...'", self.command)))
    }
}

/// Looks up which waiting clients of this host were started by holding ones, as by nested `run`s.
fn ancestors(
    snapshot: &Snapshot,
    clients: &HashMap<&ClientId, &ClientView>,
    facts: &dyn HostFacts,
) -> Ancestors {
    const MOST_GENERATIONS: usize = 32;
    let local = |id: &ClientId| {
        let client = clients.get(id).filter(|client| client.host == facts.host_name())?;
        (!client.host.is_empty()).then_some(client.pid)
    };
    let mut holders: HashMap<u32, Vec<&ClientId>> = HashMap::new();
    let holding =
        snapshot.locks.iter().flat_map(|lock| &lock.holders).filter_map(|holder| holder.client.as_ref());
    for (id, pid) in holding.filter_map(|id| Some((id, local(id)?))) {
        let of_process = holders.entry(pid).or_default();
        if !of_process.contains(&id) {
            of_process.push(id);
        }
    }
    let mut ancestors = Ancestors::new();
    for id in snapshot.locks.iter().flat_map(|lock| &lock.waiters).map(|waiter| &waiter.client) {
        if let Some(pid) = local(id)
            && !ancestors.contains_key(id)
        {
            let line =
                std::iter::successors(facts.parent(pid), |&pid| facts.parent(pid)).take(MOST_GENERATIONS);
            let found = line.filter_map(|pid| holders.get(&pid)).flatten().map(|&id| id.clone()).collect();
            ancestors.insert(id.clone(), found);
        }
    }
    ancestors
}

/// A running lease's beat, judged by the length of its present term: a first lease may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Since the latest renewal, or since the grant.
    pub since_ms: u64,
    /// What is left.
    pub left_ms: u64,
    /// How often a renewal is expected.
    pub every_ms: u64,
}

impl Beat {
    /// Reads the beat, if the store can tell.
    pub fn of(holder: &HolderView) -> Option<Self> {
        let since_ms = holder.renewed_ago_ms.or(holder.held_for_ms)?;
        let left_ms = holder.remaining_ms?;
        let term = since_ms.saturating_add(left_ms);
        Some(Self { since_ms, left_ms, every_ms: holder.lease_ms.map_or(term, |lease| lease.min(term)) / 3 })
    }

    /// More than half of the term went by without a renewal.
    pub fn is_late(self) -> bool {
        self.since_ms > self.left_ms
    }

    /// Two renewals are missing.
    pub fn has_stopped(self) -> bool {
        self.since_ms / 2 > self.left_ms
    }
}

/// Explains one lock, the most severe finding first. There is always at least one.
pub fn findings(lock: &LockView, evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = evidence
        .cycles
        .iter()
        .filter(|cycle| cycle.waits.iter().any(|wait| wait.lock == lock.name))
        .filter(|cycle| cycle.age_ms() >= DEADLOCK_STANDS_MS)
        .take(1)
        .map(|cycle| deadlock(cycle, evidence))
        .collect();
    for holder in &lock.holders {
        found.extend(about_holder(lock, holder, evidence));
    }
    found.extend(about_line(lock, evidence));
    if found.is_empty() {
        found.push(nothing_wrong(lock, evidence));
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

fn deadlock(cycle: &Cycle, evidence: &Evidence<'_>) -> Finding {
    let waits: Vec<String> = cycle
        .waits
        .iter()
        .map(|wait| {
            let (waiter, holder) = (evidence.who(&wait.waiter), evidence.who(&wait.holder));
            let lock = harmless(&wait.lock);
            match &wait.through {
                None => format!("{waiter} waits for {lock}, held by {holder}"),
                Some(started) => {
                    let started = evidence.who(started);
                    format!("{waiter} started {started}, which waits for {lock}, held by {holder}")
                }
            }
        })
        .collect();
    let mut next = Vec::new();
    if let Some(wait) = cycle.cheapest()
        && let Some(token) = wait.fencing_token
        && harmless(&wait.lock) == wait.lock
    {
        let name = shell_word(&wait.lock);
        let reason = "'deadlock: taken last'";
        next.push(Next::Run(format!("{} break {name} --token {token} --reason {reason}", evidence.command)));
    }
    next.push(Next::Do("let every program take these locks in the same order".into()));
    Finding {
        rule: Rule::Deadlock,
        severity: Severity::Problem,
        sentence: format!(
            "Deadlock, standing for {}: {}. Renewal keeps all of these leases alive, so nothing ends it.",
            span(cycle.age_ms()),
            waits.join("; ")
        ),
        next,
    }
}

pub(super) fn about_holder(lock: &LockView, holder: &HolderView, evidence: &Evidence<'_>) -> Option<Finding> {
    let who = evidence.holder(holder);
    let pid = holder.client.as_ref().map(|id| evidence.place(id).1).unwrap_or_default();
    let process = evidence.process(holder);
    let beat = Beat::of(holder);
    let free_in = holder.remaining_ms.map(span);
    let free = if lock.holders.len() > 1 { "Its lease ends" } else { "Free" };
    let breaking = evidence.break_step(lock, holder);
    let finding =
        |rule, severity, sentence: String, next: Vec<Next>| Some(Finding { rule, severity, sentence, next });

    if let Process::Present { stopped: true, .. } = process {
        let end = free_in.map_or_else(String::new, |left| format!(" The lease ends in {left}."));
        return finding(
            Rule::Stopped,
            Severity::Problem,
            format!("{who} is stopped (process state T): it can neither work, renew nor release.{end}"),
            [Some(Next::Run(format!("kill -CONT {pid}"))), breaking].into_iter().flatten().collect(),
        );
    }
    if lock.mode == "foreign" || holder.client.is_none() {
        let ask = Next::Do("ask the program that keeps this name; Polylatch leaves its data as it is".into());
        return match free_in {
            Some(left) => finding(
                Rule::Foreign,
                Severity::Notice,
                format!(
                    "Another program holds it, and the store does not say who. Free in {left} unless extended."
                ),
                vec![],
            ),
            None => finding(
                Rule::NoExpiry,
                Severity::Problem,
                "Another program holds it without an expiry: only that program can free it.".into(),
                vec![ask],
            ),
        };
    }
    let beats = beat.is_some_and(|beat| !beat.is_late());
    if process == Process::Gone && free_in.is_none() {
        return finding(
            Rule::NoExpiryDead,
            Severity::Problem,
            format!("{who} holds it, but that process is gone, and no expiry is known: nothing may free it."),
            breaking.into_iter().collect(),
        );
    }
    if let (Process::Gone, Some(left)) = (process, &free_in) {
        // Renewed a moment ago and not here: it ended just now, or it runs in a container that
        // shares this host's name but not its process numbers.
        let severity = if beats { Severity::Notice } else { Severity::Warning };
        let doubt = if beats {
            " If renewals go on, it runs in a container with process numbers of its own."
        } else {
            ""
        };
        return finding(
            Rule::HolderGone,
            severity,
            format!(
                "{who} holds it, but this host has no such process any more. {free} in {left} at the latest.{doubt}"
            ),
            [Some(Next::Do(format!("wait {left}"))), breaking].into_iter().flatten().collect(),
        );
    }
    let beat = beat?;
    let (since, every, left) = (span(beat.since_ms), span(beat.every_ms), span(beat.left_ms));
    if beat.has_stopped() {
        return finding(
            Rule::BeatsStopped,
            Severity::Warning,
            format!(
                "{who} has not renewed for {since}, one was due every {every}: it ended, hangs, is cut off from \
                 the store, or is at its hold limit. {free} in {left} unless it renews."
            ),
            [Some(Next::Do(format!("wait {left}"))), breaking].into_iter().flatten().collect(),
        );
    }
    if beat.is_late() {
        return finding(
            Rule::LateBeat,
            Severity::Notice,
            format!(
                "The renewal of {who} is late: none for {since}, one was due every {every}; {left} left."
            ),
            vec![Next::Do("look again in a moment".into())],
        );
    }
    None
}

fn about_line(lock: &LockView, evidence: &Evidence<'_>) -> Option<Finding> {
    let head = lock.waiters.first()?;
    let who = evidence.who(&head.client);
    if lock.holders.is_empty() && lock.waiters.iter().all(|waiter| waiter.silent) {
        return Some(Finding {
            rule: Rule::Free,
            severity: Severity::Fine,
            sentence: format!(
                "Free: nobody holds it. Only records of waiters that gave up without a word are left ({who}{}); \
                 whoever asks next gets the lock.",
                if lock.waiters.len() > 1 { " and others" } else { "" }
            ),
            next: vec![],
        });
    }
    if head.silent {
        let severity = if lock.holders.is_empty() { Severity::Warning } else { Severity::Notice };
        return Some(Finding {
            rule: Rule::DeadHead,
            severity,
            sentence: format!("The first in line, {who}, gives no sign of life; the next hand-off skips it."),
            next: vec![],
        });
    }
    let state = if lock.holders.is_empty() { "Free" } else { "There is room" };
    sharing::has_room(lock, head).then(|| Finding {
        rule: Rule::LostWake,
        severity: Severity::Notice,
        sentence: format!(
            "{state}, but {who} waits, for {}: between two holders, or a wake-up was lost and its next poll takes the lock.",
            span(head.waited_ms)
        ),
        next: vec![Next::Do("look again in a moment; if it stays, that process hangs".into())],
    })
}

fn nothing_wrong(lock: &LockView, evidence: &Evidence<'_>) -> Finding {
    let Some(holder) = lock.holders.first() else {
        let sentence = "Free: nobody holds it and nobody waits.".into();
        return Finding { rule: Rule::Free, severity: Severity::Fine, sentence, next: vec![] };
    };
    let held = holder.held_for_ms.map(|ms| format!(" for {}", span(ms))).unwrap_or_default();
    let renewed = match (holder.renewals, holder.renewed_ago_ms) {
        (Some(1..), Some(ago)) => format!(", renewed {} ago", span(ago)),
        (Some(0), _) => ", first renewal not due yet".into(),
        _ => String::new(),
    };
    let who = evidence.holder(holder);
    let live: Vec<_> = lock.waiters.iter().filter(|waiter| !waiter.silent).collect();
    let line = match live.first() {
        None => "Nobody waits.".into(),
        Some(first) => {
            let waiting = count(live.len(), "client waits", "clients wait");
            format!("{waiting}, the first{} for {}.", sharing::wish(first), span(first.waited_ms))
        }
    };
    Finding {
        rule: Rule::Legit,
        severity: Severity::Fine,
        sentence: match sharing::held(lock).as_str() {
            "held" => format!("Held{held} by {who}{renewed}: all is well. {line}"),
            shared => {
                let (first, rest) = shared.split_at(1);
                let (first, others) = (first.to_uppercase(), sharing::and_others(lock));
                format!("{first}{rest} by {who}{held}{renewed}{others}: all is well. {line}")
            }
        },
        next: vec![],
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
