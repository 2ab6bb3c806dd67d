//! The table: one row per lock, problems first.

use std::borrow::Cow;
use std::sync::Arc;

use polylatch::inspect::Snapshot;
use serde::Serialize;

use super::beat::Beat;
use super::connection::ConnectionId;
use super::evidence::Evidence;
use super::explain::findings;
use super::finding::Finding;
use super::judge::{judge, speaker};
use super::verdict::{Rule, Severity, Verdict};
use super::{HostFacts, sharing, text};

/// What a lock is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockState {
    /// In a ring of waits.
    Deadlock,
    /// In what may be a ring of waits.
    MayDeadlock,
    /// Its holder's process is stopped.
    Stopped,
    /// Nothing ends it by itself.
    NoExpiry,
    /// Its holder's process is gone.
    Gone,
    /// Renewals have stopped.
    NoRenewal,
    /// A renewal is late.
    Endangered,
    /// Another program's.
    Foreign,
    /// Held, and a client waits.
    Contended,
    /// Held.
    Held,
    /// Free, but the store refuses new holders for a while after a session died.
    LockDelay,
    /// Free; with waiters, between two holders.
    Free,
    /// The store could not be read lately.
    Unknown,
}

/// The shapes and colours that states are drawn with: fewer than states, distinguished without colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A filled circle.
    Held,
    /// A triangle: expiring, or a late beat.
    Expiring,
    /// A filled square: no expiry, or an orphan.
    NoExpiry,
    /// A ring: a client waits.
    Contended,
    /// A bar.
    Free,
    /// A diamond with a hole.
    Deadlock,
    /// A hatched circle.
    Unknown,
}

impl LockState {
    /// Returns the word that is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::MayDeadlock => "deadlock?",
            Self::Stopped => "stopped",
            Self::NoExpiry => "no expiry",
            Self::Gone => "holder gone",
            Self::NoRenewal => "no renewal",
            Self::Endangered => "endangered",
            Self::Foreign => "foreign",
            Self::Contended => "contended",
            Self::Held => "held",
            Self::LockDelay => "lock-delay",
            Self::Free => "free",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the shape that it is drawn with.
    pub fn mark(self) -> Mark {
        match self {
            Self::Deadlock | Self::MayDeadlock => Mark::Deadlock,
            Self::Stopped | Self::NoExpiry | Self::Gone => Mark::NoExpiry,
            Self::NoRenewal | Self::Endangered => Mark::Expiring,
            Self::Foreign | Self::Held => Mark::Held,
            Self::Contended => Mark::Contended,
            Self::LockDelay | Self::Free => Mark::Free,
            Self::Unknown => Mark::Unknown,
        }
    }

    /// All states, the worst first.
    pub const ALL: [Self; 13] = [
        Self::Deadlock,
        Self::MayDeadlock,
        Self::Stopped,
        Self::NoExpiry,
        Self::Gone,
        Self::NoRenewal,
        Self::Endangered,
        Self::Foreign,
        Self::Contended,
        Self::Held,
        Self::LockDelay,
        Self::Free,
        Self::Unknown,
    ];

    /// Returns the sign beside the word, and its twin for terminals without Unicode.
    pub fn sign(self) -> (char, char) {
        match self {
            Self::Deadlock => ('◈', '%'),
            Self::MayDeadlock => ('◇', '&'),
            Self::Stopped => ('‖', '='),
            Self::NoExpiry => ('■', '#'),
            Self::Gone => ('✗', 'x'),
            Self::NoRenewal => ('▲', '!'),
            Self::Endangered => ('△', '^'),
            Self::Foreign => ('◌', '~'),
            Self::Contended => ('○', 'o'),
            Self::Held => ('●', '*'),
            Self::LockDelay => ('┄', ':'),
            Self::Free => ('–', '-'),
            Self::Unknown => ('?', '?'),
        }
    }

    fn of(verdicts: &[Verdict], held: bool, waited_for: bool) -> Self {
        let plain = match (held, waited_for) {
            (true, true) => Self::Contended,
            (true, false) => Self::Held,
            (false, _) => Self::Free,
        };
        match verdicts.first().map(|verdict| verdict.rule) {
            Some(Rule::Deadlock) => Self::Deadlock,
            Some(Rule::MayDeadlock) => Self::MayDeadlock,
            Some(Rule::Stopped) => Self::Stopped,
            Some(Rule::NoExpiryDead | Rule::NoExpiry) => Self::NoExpiry,
            Some(Rule::HolderGone) => Self::Gone,
            Some(Rule::RenewalsStopped) => Self::NoRenewal,
            Some(Rule::LateRenewal) => Self::Endangered,
            Some(Rule::Foreign) => Self::Foreign,
            Some(Rule::LockDelay) => Self::LockDelay,
            Some(Rule::NoQuorum | Rule::Undecided) => Self::Unknown,
            // A lease that was granted runs, but whether a free lock is free, or a new holder is known, is not.
            Some(Rule::WritesRefused) if !held => Self::Unknown,
            Some(
                Rule::WritesRefused
                | Rule::NodeDown
                | Rule::LongWait
                | Rule::ManyWaiters
                | Rule::DeadHead
                | Rule::LostWake
                | Rule::SplitVote
                | Rule::Quorum
                | Rule::Legit
                | Rule::Free
                | Rule::TokenFellBack
                | Rule::ZombieRenew
                | Rule::Starved
                | Rule::ShortLease
                | Rule::Backend
                | Rule::Clock
                // Of keys, not of locks.
                | Rule::ClaimAbandoned
                | Rule::ClaimLong
                | Rule::ResultTooLarge
                | Rule::WorkRepeated,
            )
            | None => plain,
        }
    }
}

/// Names a lock among all connections. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RowKey {
    /// The connection.
    pub connection: ConnectionId,
    /// The lock's name as the store has it; not sanitized.
    pub lock: Arc<str>,
}

/// One lock, ready to show. Ages are as of the snapshot; the methods tell them as of now.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Which lock.
    pub key: RowKey,
    /// Place of the lock in the snapshot.
    pub index: usize,
    /// Name, sanitized.
    pub name: String,
    /// Kind of store.
    pub backend: Cow<'static, str>,
    /// What it is, as of the snapshot. [`Fleet::state`](super::Fleet::state) knows how old that is.
    pub state: LockState,
    /// Why, most severe first; never empty. Those of findings that have not stood long enough are left
    /// out.
    pub verdicts: Vec<Verdict>,
    /// `read`, `write`, or `3/5` for permits; empty for a lock of one holder.
    pub mode: String,
    /// How many hold it. What follows about a holder is about the one whose state is the worst.
    pub holders: usize,
    /// `host:pid` of the holder; empty if free, `?` if the store does not say.
    pub place: String,
    /// The holder's program.
    pub program: String,
    /// Language of the holder's binding.
    pub language: String,
    /// What the holder says it is doing.
    pub label: String,
    /// Fencing token of the present grant.
    pub fencing_token: Option<u64>,
    /// How long it has been held.
    pub held_for_ms: Option<u64>,
    /// Since when it is held and since when the first waiter waits, on the store's clock: they stay the same while the
    /// ages grow, each store's at its own snapshots.
    pub(super) since_ms: [Option<u64>; 2],
    /// Length of a renewed lease.
    pub lease_ms: Option<u64>,
    /// What is left of the lease.
    pub remaining_ms: Option<u64>,
    /// Number of renewals so far.
    pub renewals: Option<u32>,
    /// Since the latest renewal, or since the grant.
    pub since_renewal_ms: Option<u64>,
    /// Beats that are missing now.
    pub missed: u32,
    /// How many wait, without those whose heartbeat is overdue.
    pub waiters: usize,
    /// How many queued waiters are stale: their heartbeat is overdue.
    pub silent: usize,
    /// How long the first live one in the queue waits.
    pub waited_ms: Option<u64>,
    /// How often it changed hands during the last minute, as far as it was seen.
    pub hand_offs: u32,
    /// When the snapshot came, on the viewer's clock; 0 for a single snapshot.
    pub sampled_at_ms: u64,
    /// When something but its ages and renewals changed last, on the viewer's clock.
    pub changed_at_ms: u64,
    /// When it was seen to be gone, on the viewer's clock; it is shown for a moment more.
    pub gone_at_ms: Option<u64>,
}

impl Row {
    /// How much this row needs an operator's attention.
    pub fn severity(&self) -> Severity {
        self.verdicts.first().map_or(Severity::Fine, |verdict| verdict.severity)
    }

    /// The rule that explains it best.
    pub fn rule(&self) -> Rule {
        self.verdicts.first().map_or(Rule::Free, |verdict| verdict.rule)
    }

    /// How long it has been held by now.
    pub fn held_now_ms(&self, now_ms: u64) -> Option<u64> {
        self.held_for_ms.map(|held| held.saturating_add(self.age_ms(now_ms)))
    }

    /// What is left of the lease by now.
    pub fn left_now_ms(&self, now_ms: u64) -> Option<u64> {
        self.remaining_ms.map(|left| left.saturating_sub(self.age_ms(now_ms)))
    }

    /// How much of the lease is left by now, from 0 to 1.
    pub fn left_share(&self, now_ms: u64) -> Option<f32> {
        let left = self.left_now_ms(now_ms)?;
        let whole = self.lease_ms.unwrap_or(left).max(1);
        Some((left as f32 / whole as f32).clamp(0.0, 1.0))
    }

    /// How long ago it was renewed by now.
    pub fn since_renewal_now_ms(&self, now_ms: u64) -> Option<u64> {
        self.since_renewal_ms.map(|since| since.saturating_add(self.age_ms(now_ms)))
    }

    /// How long the first live one in the queue waits by now.
    pub fn waited_now_ms(&self, now_ms: u64) -> Option<u64> {
        self.waited_ms.map(|waited| waited.saturating_add(self.age_ms(now_ms)))
    }

    pub(super) fn set_verdicts(&mut self, verdicts: Vec<Verdict>) {
        self.state = LockState::of(&verdicts, self.holders > 0, self.waiters > 0);
        self.verdicts = verdicts;
    }

    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.min(self.gone_at_ms.unwrap_or(u64::MAX)).saturating_sub(self.sampled_at_ms)
    }
}

/// The numbers above the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Locks in the snapshot.
    pub locks: usize,
    /// Of them held.
    pub held: usize,
    /// Live queued clients, over all locks.
    pub waiting: usize,
    /// Locks with a warning or a problem.
    pub attention: usize,
    /// Locks that nothing ends by itself.
    pub no_expiry: usize,
    /// Locks in a ring of waits.
    pub deadlocked: usize,
    /// Locks in what may be a ring of waits.
    pub may_deadlock: usize,
    /// Locks of which nothing is known at present.
    pub unknown: usize,
}

impl Summary {
    /// Counts one more row, in the state in which it is shown.
    pub fn count(&mut self, row: &Row, state: LockState) {
        self.locks += 1;
        self.held += usize::from(row.holders > 0);
        self.waiting += row.waiters;
        // What was found in a store that is not read any more is not known to be so.
        let known = state == row.state;
        self.attention += usize::from(known && row.severity() >= Severity::Warning);
        self.no_expiry += usize::from(state == LockState::NoExpiry);
        self.deadlocked += usize::from(state == LockState::Deadlock);
        self.may_deadlock += usize::from(state == LockState::MayDeadlock);
        self.unknown += usize::from(state == LockState::Unknown);
    }
}

/// A single snapshot, ready to show.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// Problems first; then the most waited for, the longest held, the name.
    pub rows: Vec<Row>,
    /// Why, for each row; most severe first.
    pub findings: Vec<Vec<Finding>>,
    /// Counts.
    pub summary: Summary,
}

/// Makes the overview of a snapshot. `command` is how the CLI is called for this store.
pub fn overview(snapshot: &Snapshot, facts: &dyn HostFacts, command: &str) -> Overview {
    overview_by(snapshot, &Evidence::new(snapshot, facts, command))
}

/// Makes the overview of a snapshot, judged by this evidence.
pub fn overview_by(snapshot: &Snapshot, evidence: &Evidence<'_>) -> Overview {
    let nowhere = ConnectionId::new("");
    let mut rows: Vec<Row> = (0..snapshot.locks.len())
        .map(|index| {
            let key =
                RowKey { connection: nowhere.clone(), lock: snapshot.locks[index].name.as_str().into() };
            row(key, snapshot, index, judge(&snapshot.locks[index], evidence, None), evidence)
        })
        .collect();
    let mut summary = Summary::default();
    rows.iter().for_each(|row| summary.count(row, row.state));
    rows.sort_by(by_attention);
    let findings = rows.iter().map(|row| findings(&snapshot.locks[row.index], evidence)).collect();
    Overview { rows, findings, summary }
}

/// Problems first; then the most waited for, the longest held, the name.
pub(super) fn by_attention(a: &Row, b: &Row) -> std::cmp::Ordering {
    (b.severity(), b.waiters)
        .cmp(&(a.severity(), a.waiters))
        .then_with(|| earlier_first(a.since_ms[0], b.since_ms[0]))
        .then_with(|| a.name.cmp(&b.name))
}

/// Compares two moments; what is not known comes last.
pub(super) fn earlier_first(a: Option<u64>, b: Option<u64>) -> std::cmp::Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

/// Makes the row of one lock.
pub(super) fn row(
    key: RowKey,
    snapshot: &Snapshot,
    index: usize,
    verdicts: Vec<Verdict>,
    evidence: &Evidence<'_>,
) -> Row {
    let lock = &snapshot.locks[index];
    let live = || lock.waiters.iter().filter(|waiter| !waiter.silent);
    let holder = speaker(lock, evidence);
    let client = holder.and_then(|holder| holder.client.as_ref());
    let place = match (holder, client) {
        (None, _) => String::new(),
        (Some(_), None) => "?".into(),
        (Some(_), Some(id)) => {
            let (host, pid) = evidence.place(id);
            format!("{host}:{pid}")
        }
    };
    let said = client.and_then(|id| evidence.client(id));
    let mut row = Row {
        key,
        index,
        name: text::sanitized(&lock.name),
        backend: snapshot.backend.clone(),
        state: LockState::Free,
        verdicts: Vec::new(),
        mode: sharing::mode(lock),
        holders: lock.holders.len(),
        place,
        program: said.map(|client| text::sanitized(&client.program)).unwrap_or_default(),
        language: said.map(|client| text::sanitized(&client.language)).unwrap_or_default(),
        label: holder.map(|holder| text::sanitized(&holder.label)).unwrap_or_default(),
        fencing_token: holder.and_then(|holder| holder.fencing_token).map(|token| token.get()),
        held_for_ms: holder.and_then(|holder| holder.held_for_ms),
        since_ms: [
            holder.and_then(|holder| {
                let told = || Some(snapshot.taken_at_ms.saturating_sub(holder.held_for_ms?));
                holder.acquired_at_ms.or_else(told)
            }),
            live().next().map(|waiter| waiter.since_ms),
        ],
        lease_ms: holder.and_then(|holder| holder.lease_ms),
        remaining_ms: holder.and_then(|holder| holder.remaining_ms),
        renewals: holder.and_then(|holder| holder.renewals),
        since_renewal_ms: holder.and_then(Beat::of).map(|beat| beat.since_ms),
        missed: holder.and_then(Beat::of).map_or(0, Beat::missed),
        waiters: live().count(),
        silent: lock.waiters.len() - live().count(),
        waited_ms: live().next().map(|waiter| waiter.waited_ms),
        hand_offs: 0,
        sampled_at_ms: 0,
        changed_at_ms: 0,
        gone_at_ms: None,
    };
    row.set_verdicts(verdicts);
    row
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Host, clients, held, lock, read_write, semaphore, snapshot, waiting};
    use super::*;

    fn shown(overview: &Overview) -> Vec<(&str, LockState)> {
        overview.rows.iter().map(|row| (row.name.as_str(), row.state)).collect()
    }

    #[test]
    fn problems_come_first_then_queues_then_long_holds() {
        let [a, b, c] = clients();
        let mut overdue = held(c, 12_000);
        overdue.remaining_ms = Some(3_000);
        let overview = overview(
            &snapshot(vec![
                lock("calm", vec![held(a, 2_000)], vec![]),
                lock("free", vec![], vec![]),
                lock("long", vec![held(a, 4_000)], vec![]),
                lock("queue", vec![held(a, 1_000)], vec![waiting(b, 500), waiting(c, 400)]),
                lock("worst", vec![overdue], vec![]),
            ]),
            &Host::default(),
            "polylatch",
        );
        assert_eq!(
            shown(&overview),
            [
                ("worst", LockState::NoRenewal),
                ("queue", LockState::Contended),
                ("long", LockState::Held),
                ("calm", LockState::Held),
                ("free", LockState::Free),
            ]
        );
        assert_eq!(
            overview.summary,
            Summary { locks: 5, held: 4, waiting: 2, attention: 1, ..Summary::default() }
        );
    }

    #[test]
    fn of_several_holders_the_worst_stands_in_the_row() {
        let [a, b, c] = clients();
        let mut overdue = held(b, 12_000);
        overdue.remaining_ms = Some(3_000);
        let shared = lock("shared", vec![held(a, 900), overdue, held(c, 800)], vec![]);
        let permits = lock("permits", vec![held(a, 900), held(b, 800)], vec![waiting(c, 500)]);
        let overview = overview(
            &snapshot(vec![read_write(shared, "read", ""), semaphore(permits, 5, &[2, 1], &[3])]),
            &Host::default(),
            "polylatch",
        );
        let (shared, permits) = (&overview.rows[0], &overview.rows[1]);
        assert_eq!((shared.mode.as_str(), shared.holders, shared.state), ("read", 3, LockState::NoRenewal));
        assert_eq!((shared.place.as_str(), shared.held_for_ms), ("web-1:200", Some(12_000)));
        assert_eq!((permits.mode.as_str(), permits.holders, permits.state), ("3/5", 2, LockState::Contended));
        assert_eq!(permits.place, "web-1:100", "the first of equals");
    }

    #[test]
    fn what_a_store_does_not_say_stays_unknown() {
        let mut foreign = held(clients::<1>()[0], 0);
        foreign.client = None;
        foreign.fencing_token = None;
        foreign.held_for_ms = None;
        foreign.renewals = None;
        let mut view = lock("theirs", vec![foreign], vec![]);
        view.mode = "foreign".into();
        let overview = overview(&snapshot(vec![view]), &Host::default(), "polylatch");
        let row = &overview.rows[0];
        assert_eq!((row.state, row.place.as_str()), (LockState::Foreign, "?"));
        assert_eq!((row.fencing_token, row.held_for_ms, row.since_renewal_ms), (None, None, None));
    }

    #[test]
    fn stored_text_is_harmless_in_a_row() {
        let [a] = clients();
        let mut holder = held(a, 10);
        holder.label = "\u{1b}]0;owned\u{7}".into();
        let mut reading = snapshot(vec![lock("x\u{202e}y", vec![holder], vec![])]);
        reading.clients[0].program = "p\u{9b}2J".into();
        reading.clients[0].host = "h\u{200b}".into();
        let overview = overview(&reading, &Host::default(), "polylatch");
        let row = &overview.rows[0];
        for text in [&row.name, &row.label, &row.program, &row.place, &overview.findings[0][0].sentence] {
            assert!(!text.chars().any(text::is_treacherous), "{text:?}");
        }
    }

    #[test]
    fn every_state_has_its_own_word_and_signs() {
        let all = LockState::ALL;
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(one.word(), other.word());
                assert_ne!(one.sign().0, other.sign().0);
                assert_ne!(one.sign().1, other.sign().1);
            }
        }
    }
}
