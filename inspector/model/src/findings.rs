//! Why a lock is stuck, or why it is not: the rules, and what they are judged by. The words for it are in
//! `explain`.

use std::borrow::Cow;
use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, LockView, Snapshot, Trouble};
use serde::Serialize;

use super::connection::ConnectionId;
use super::explain::explain;
use super::graph::{Cycle, Reading, cycles, lasting};
use super::history::LockHistory;
use super::rows::Verdict;
use super::signs::Signs;
use super::text::harmless;
use super::{HostFacts, Process, health, sharing, votes};

/// A hold counts as far beyond the usual only from this length on.
const LONG_HOLD_MS: u64 = 30_000;

/// So many times as long as the longest of the earlier holds is far beyond the usual.
const FAR_BEYOND: u64 = 5;

/// A waiter is starved when this many that came later got the lock.
pub(super) const PASSED_OVER: u32 = 5;

/// A wait counts as long from here on, and as very long.
const LONG_WAIT_MS: u64 = 60_000;
const VERY_LONG_WAIT_MS: u64 = 600_000;

/// So many waiters are many, and far too many.
const MANY_WAITERS: usize = 20;
const FAR_TOO_MANY_WAITERS: usize = 100;

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
    /// Clients wait for each other in a ring, unless other tasks of theirs hold the locks.
    MayDeadlock,
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
    /// A grant had a smaller fencing token than one before it.
    TokenFellBack,
    /// The store cannot be read.
    Backend,
    /// The store refuses writes: nothing can be acquired, renewed or released.
    WritesRefused,
    /// Too few independent nodes work for anything to be acquired, renewed or released.
    NoQuorum,
    /// Some of the independent nodes are of no use at present; a majority works.
    NodeDown,
    /// Nodes that do not answer decide whether it is held.
    Undecided,
    /// A client waits for long.
    LongWait,
    /// Many clients wait.
    ManyWaiters,
    /// Renewed, but held far longer than usual.
    ZombieRenew,
    /// Others that came later get the lock again and again.
    Starved,
    /// Renewals come so late that one more miss loses the lease.
    ShortLease,
    /// The store's clock and the viewer's differ.
    Clock,
    /// Several contenders have votes of independent nodes, and none has a majority.
    SplitVote,
    /// Nobody holds it, but fewer nodes than a majority still have it.
    Quorum,
    /// Free, but the store refuses new holders for a while.
    LockDelay,
    /// Another program's lock.
    Foreign,
    /// Held as it should be.
    Legit,
    /// Free.
    Free,
}

impl Rule {
    /// How long a condition must have been seen without a break before a live picture shows it, in
    /// milliseconds; from 1 on, at least in two readings. What flaps is never shown.
    pub fn stands_for_ms(self) -> u64 {
        match self {
            // A ring was seen in two readings before it is evidence. Of a store: at once, since whatever else would be
            // shown instead is not known.
            Self::Deadlock | Self::MayDeadlock | Self::WritesRefused | Self::NoQuorum | Self::Undecided => 0,
            // The age of a missing beat is in the evidence already.
            Self::BeatsStopped | Self::LateBeat | Self::Stopped => 1,
            Self::Backend | Self::DeadHead | Self::HolderGone | Self::LostWake | Self::NodeDown => 2_000,
            Self::LongWait | Self::ManyWaiters => 2_000,
            Self::SplitVote | Self::Quorum => 2_000,
            Self::NoExpiry | Self::NoExpiryDead => 2_000,
            Self::ZombieRenew => 5_000,
            Self::Clock => 10_000,
            Self::TokenFellBack | Self::Starved | Self::ShortLease | Self::LockDelay => 0,
            Self::Foreign | Self::Legit | Self::Free => 0,
        }
    }

    /// Returns the name as it stands in `inspector` documents and JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::Deadlock => "DEADLOCK",
            Self::MayDeadlock => "MAY-DEADLOCK",
            Self::Stopped => "STOPPED",
            Self::NoExpiryDead => "NO-EXPIRY-DEAD",
            Self::NoExpiry => "NO-EXPIRY",
            Self::HolderGone => "HOLDER-GONE",
            Self::BeatsStopped => "BEATS-STOPPED",
            Self::LateBeat => "LATE-BEAT",
            Self::DeadHead => "DEAD-HEAD",
            Self::LostWake => "LOST-WAKE",
            Self::TokenFellBack => "TOKEN-FELL-BACK",
            Self::Backend => "BACKEND",
            Self::WritesRefused => "WRITES-REFUSED",
            Self::NoQuorum => "NO-QUORUM",
            Self::NodeDown => "NODE-DOWN",
            Self::Undecided => "UNDECIDED",
            Self::LongWait => "LONG-WAIT",
            Self::ManyWaiters => "MANY-WAITERS",
            Self::ZombieRenew => "ZOMBIE-RENEW",
            Self::Starved => "STARVED",
            Self::ShortLease => "SHORT-LEASE",
            Self::Clock => "CLOCK",
            Self::SplitVote => "SPLIT-VOTE",
            Self::Quorum => "QUORUM",
            Self::LockDelay => "LOCK-DELAY",
            Self::Foreign => "FOREIGN",
            Self::Legit => "LEGIT",
            Self::Free => "FREE",
        }
    }
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
    connection: Cow<'a, ConnectionId>,
    /// How the CLI is called for each connection.
    commands: HashMap<Cow<'a, ConnectionId>, &'a str>,
    clients: HashMap<&'a ClientId, &'a ClientView>,
    rings: Cow<'a, [Cycle]>,
    /// Which ring each lock of this connection is in.
    ringed: HashMap<String, usize>,
    signs: Option<&'a Signs>,
    /// What the store says of itself.
    snapshot: Option<&'a Snapshot>,
}

impl<'a> Evidence<'a> {
    /// Prepares a single reading. `command` is how the CLI is called for this store, such as `polylatch`
    /// or `polylatch --url redis://cache`.
    pub fn new(snapshot: &'a Snapshot, facts: &'a dyn HostFacts, command: &'a str) -> Self {
        let nowhere = ConnectionId::new("");
        let clients = snapshot.clients.iter().map(|client| (&client.id, client)).collect();
        let rings = cycles(&[Reading { connection: &nowhere, snapshot, facts }]);
        let commands = HashMap::from([(Cow::Owned(nowhere.clone()), command)]);
        Self::among(Cow::Owned(nowhere), commands, clients, facts, Cow::Owned(rings)).of_store(Some(snapshot))
    }

    /// The same after an earlier reading of the same store. Without one no ring of waits is told, because a ring
    /// counts only if no lock in it changed hands between two readings.
    pub fn since(self, before: &Snapshot) -> Self {
        let before = cycles(&[Reading { connection: &self.connection, snapshot: before, facts: self.facts }]);
        let rings = lasting(self.rings.into_owned(), &before);
        let snapshot = self.snapshot;
        Self::among(self.connection, self.commands, self.clients, self.facts, Cow::Owned(rings))
            .of_store(snapshot)
    }

    /// Prepares one connection of several.
    pub(super) fn among(
        connection: Cow<'a, ConnectionId>,
        commands: HashMap<Cow<'a, ConnectionId>, &'a str>,
        clients: HashMap<&'a ClientId, &'a ClientView>,
        facts: &'a dyn HostFacts,
        rings: Cow<'a, [Cycle]>,
    ) -> Self {
        let mut ringed = HashMap::new();
        for (at, ring) in rings.iter().enumerate().filter(|(_, ring)| ring.stands()) {
            for wait in ring.waits.iter().filter(|wait| wait.connection == *connection) {
                let known = ringed.entry(wait.lock.clone()).or_insert(at);
                if rings[*known].certainty() < ring.certainty() {
                    *known = at;
                }
            }
        }
        Self { facts, connection, commands, clients, rings, ringed, signs: None, snapshot: None }
    }

    /// The same with what is remembered of the clients.
    pub(super) fn with_signs(self, signs: &'a Signs) -> Self {
        Self { signs: Some(signs), ..self }
    }

    /// The same with what the store says of itself.
    pub(super) fn of_store(self, snapshot: Option<&'a Snapshot>) -> Self {
        Self { snapshot, ..self }
    }

    /// Returns what keeps the store from granting, renewing and releasing locks.
    pub fn trouble(&self) -> Option<&'a Trouble> {
        self.snapshot?.trouble()
    }

    /// Says whether leases hang on sessions there, with a lock-delay after those that end without a release.
    pub(super) fn hangs_on_sessions(&self) -> bool {
        self.snapshot.is_some_and(|snapshot| snapshot.backend == "consul")
    }

    /// Returns the nodes that did not answer.
    pub(super) fn silent_nodes(&self) -> Vec<&'a str> {
        self.snapshot.map(|snapshot| snapshot.silent_nodes().collect()).unwrap_or_default()
    }

    /// How long ago the client of a lease last gave a heartbeat, where that is all that the store can tell.
    pub(super) fn heartbeat_ago_ms(&self, holder: &HolderView) -> Option<u64> {
        Session::of(holder).filter(|_| holder.remaining_ms.is_none())?;
        Some(self.client(holder.client.as_ref()?)?.seen_ago_ms)
    }

    /// For how long the client of a lease that hangs on a session has given no sign of life, if that is too
    /// long.
    pub(super) fn silent_for_ms(&self, holder: &HolderView) -> Option<u64> {
        Session::of(holder).filter(|_| holder.remaining_ms.is_none())?;
        self.signs?.silent_for_ms(self.client(holder.client.as_ref()?)?)
    }

    /// Returns the ring of waits that a lock is in, if it has stood long enough.
    pub(super) fn ring(&self, lock: &str) -> Option<&Cycle> {
        self.ringed.get(lock).and_then(|at| self.rings.get(*at))
    }

    /// Returns how the CLI is called for a connection.
    pub(super) fn command(&self, connection: &ConnectionId) -> &'a str {
        self.commands.get(connection).copied().unwrap_or("polylatch")
    }

    /// Returns how the CLI is called for the connection whose locks are explained.
    pub(super) fn own_command(&self) -> &'a str {
        self.command(&self.connection)
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

    pub(super) fn holder(&self, holder: &HolderView) -> String {
        holder.client.as_ref().map_or_else(|| "another program".into(), |id| self.who(id))
    }

    /// Looks the holder's process up, if it runs on this host.
    pub fn process(&self, holder: &HolderView) -> Process {
        holder.client.as_ref().map_or(Process::Unknown, |id| self.process_of(id))
    }

    /// Looks a client's process up, if it runs on this host.
    pub(super) fn process_of(&self, id: &ClientId) -> Process {
        let Some(client) = self.client(id) else { return Process::Unknown };
        if !self.facts.is_here(client) {
            return Process::Unknown;
        }
        if let (Some(then), Some(now)) = (&client.boot, self.facts.boot())
            && then != now
        {
            return Process::Gone; // the host was started anew since
        }
        let process = self.facts.process(client.pid);
        if let Process::Present { started_at_ms: Some(started), .. } = process
            && client.process_started_at_ms.is_some_and(|said| said.abs_diff(started) > SAME_START_MS)
        {
            return Process::Gone; // its number was given to another process
        }
        process
    }
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

    /// How many beats did not come; one counts as missed when it is half an interval late.
    pub fn missed(self) -> u32 {
        let halves = self.since_ms.saturating_mul(2) / self.every_ms.max(1);
        u32::try_from(halves.saturating_sub(1) / 2).unwrap_or(u32::MAX)
    }

    /// Two renewals are missing.
    pub fn has_stopped(self) -> bool {
        self.since_ms / 2 > self.left_ms
    }
}

/// The session that a lease hangs on, where the store has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session<'a> {
    ttl: Option<&'a str>,
}

impl<'a> Session<'a> {
    pub(super) fn of(holder: &'a HolderView) -> Option<Self> {
        let detail = |name| holder.details.iter().find(|detail| detail.name == name);
        detail("session")?;
        Some(Self { ttl: detail("session TTL").map(|ttl| ttl.value.as_str()) })
    }

    /// Returns when it ends after its client has stopped, in words.
    pub(super) fn ends(self) -> String {
        match self.ttl {
            // Source: developer.hashicorp.com, sessions: the TTL is a lower bound, and Consul may wait for
            // up to twice that time.
            Some(ttl) if ttl != "none" => format!("within twice its time to live, {}", harmless(ttl)),
            Some(_) => "only with its node's health checks".into(),
            None => "when the store finds its client gone".into(),
        }
    }
}

/// Explains one lock, the most severe finding first. There is always at least one.
pub fn findings(lock: &LockView, evidence: &Evidence<'_>) -> Vec<Finding> {
    judge(lock, evidence, None).into_iter().map(|verdict| explain(lock, verdict, evidence, None)).collect()
}

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

/// While the store does not work, only what this host knows of its own processes counts: whoever is silent may just not
/// be heard.
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

pub(super) fn about_holder(
    lock: &LockView,
    holder: &HolderView,
    evidence: &Evidence<'_>,
) -> Option<(Rule, Severity)> {
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
        return Some((Rule::BeatsStopped, Severity::Warning));
    }
    let beat = beat.filter(|_| holder.renewed != Some(false))?;
    // A lease that may be of a fixed length is not late.
    let to_be_renewed = holder.renewed == Some(true);
    if beat.has_stopped() {
        let severity = if to_be_renewed { Severity::Warning } else { Severity::Notice };
        return Some((Rule::BeatsStopped, severity));
    }
    (beat.is_late() && to_be_renewed).then_some((Rule::LateBeat, Severity::Notice))
}

/// Only while nobody has a majority: a minority that is behind is no harm to a holder.
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
    held >= LONG_HOLD_MS && past.usual_hold_ms().is_some_and(|usual| held > usual.saturating_mul(FAR_BEYOND))
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
