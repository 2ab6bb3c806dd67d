//! The table: one row per lock, problems first.

use polylatch::inspect::Snapshot;
use serde::Serialize;

use super::findings::{Beat, Evidence, Finding, Rule, Severity, findings};
use super::{HostFacts, sharing, text};

/// What a lock is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockState {
    /// In a ring of waits.
    Deadlock,
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
    /// Held, and somebody waits.
    Contended,
    /// Held.
    Held,
    /// Free; with waiters, between two holders.
    Free,
}

impl LockState {
    /// Returns the word that is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Stopped => "stopped",
            Self::NoExpiry => "no expiry",
            Self::Gone => "holder gone",
            Self::NoRenewal => "no renewal",
            Self::Endangered => "endangered",
            Self::Foreign => "foreign",
            Self::Contended => "contended",
            Self::Held => "held",
            Self::Free => "free",
        }
    }

    /// Returns the sign beside the word, and its twin for terminals without Unicode.
    pub fn sign(self) -> (char, char) {
        match self {
            Self::Deadlock => ('◈', '%'),
            Self::Stopped => ('‖', '='),
            Self::NoExpiry => ('■', '#'),
            Self::Gone => ('✗', 'x'),
            Self::NoRenewal => ('▲', '!'),
            Self::Endangered => ('△', '^'),
            Self::Foreign => ('◌', '~'),
            Self::Contended => ('○', 'o'),
            Self::Held => ('●', '*'),
            Self::Free => ('–', '-'),
        }
    }

    fn of(findings: &[Finding], held: bool, waited_for: bool) -> Self {
        let plain = match (held, waited_for) {
            (true, true) => Self::Contended,
            (true, false) => Self::Held,
            (false, _) => Self::Free,
        };
        match findings.first().map(|finding| finding.rule) {
            Some(Rule::Deadlock) => Self::Deadlock,
            Some(Rule::Stopped) => Self::Stopped,
            Some(Rule::NoExpiryDead | Rule::NoExpiry) => Self::NoExpiry,
            Some(Rule::HolderGone) => Self::Gone,
            Some(Rule::BeatsStopped) => Self::NoRenewal,
            Some(Rule::LateBeat) => Self::Endangered,
            Some(Rule::Foreign) => Self::Foreign,
            Some(Rule::DeadHead | Rule::LostWake | Rule::Legit | Rule::Free) | None => plain,
        }
    }
}

/// One lock, ready to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Place of the lock in the reading.
    pub index: usize,
    /// Name, harmless.
    pub name: String,
    /// What it is.
    pub state: LockState,
    /// `read`, `write`, or `3/5` for permits; empty for a lock of one holder.
    pub mode: String,
    /// How many hold it. What follows about a holder is about the one whose state is the worst.
    pub holders: usize,
    /// `host:pid` of the holder; empty if free, `?` if the store does not say.
    pub place: String,
    /// The holder's program.
    pub program: String,
    /// What the holder says it is doing.
    pub label: String,
    /// Fencing token of the present grant.
    pub fencing_token: Option<u64>,
    /// How long it has been held.
    pub held_for_ms: Option<u64>,
    /// Length of a renewed lease.
    pub lease_ms: Option<u64>,
    /// What is left of the lease.
    pub remaining_ms: Option<u64>,
    /// Number of renewals so far.
    pub renewals: Option<u32>,
    /// Since the latest renewal, or since the grant.
    pub since_renewal_ms: Option<u64>,
    /// How many wait and give signs of life.
    pub waiters: usize,
    /// How many stand in line without a sign of life.
    pub silent: usize,
    /// How long the first live one in line waits.
    pub waited_ms: Option<u64>,
    /// Why, most severe first.
    pub findings: Vec<Finding>,
}

impl Row {
    /// How much this row needs somebody's attention.
    pub fn severity(&self) -> Severity {
        self.findings.first().map_or(Severity::Fine, |finding| finding.severity)
    }
}

/// The numbers above the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Locks in the reading.
    pub locks: usize,
    /// Of them held.
    pub held: usize,
    /// Live clients in line, over all locks.
    pub waiting: usize,
    /// Locks with a warning or a problem.
    pub attention: usize,
}

/// A store at one moment, ready to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Problems first; then the most waited for, the longest held, the name.
    pub rows: Vec<Row>,
    /// Counts.
    pub summary: Summary,
}

/// Makes the picture of a reading. `command` is how the CLI is called for this store.
pub fn picture(snapshot: &Snapshot, facts: &dyn HostFacts, command: &str) -> Picture {
    let evidence = Evidence::new(snapshot, facts, command);
    let mut rows: Vec<Row> = (0..snapshot.locks.len()).map(|index| row(snapshot, index, &evidence)).collect();
    let summary = Summary {
        locks: rows.len(),
        held: snapshot.locks.iter().filter(|lock| !lock.holders.is_empty()).count(),
        waiting: rows.iter().map(|row| row.waiters).sum(),
        attention: rows.iter().filter(|row| row.severity() >= Severity::Warning).count(),
    };
    rows.sort_by(|a, b| {
        (b.severity(), b.waiters, b.held_for_ms)
            .cmp(&(a.severity(), a.waiters, a.held_for_ms))
            .then_with(|| a.name.cmp(&b.name))
    });
    Picture { rows, summary }
}

fn row(snapshot: &Snapshot, index: usize, evidence: &Evidence<'_>) -> Row {
    let lock = &snapshot.locks[index];
    let findings = findings(lock, evidence);
    let live = || lock.waiters.iter().filter(|waiter| !waiter.silent);
    let state = LockState::of(&findings, !lock.holders.is_empty(), live().next().is_some());
    let holder = sharing::speaker(lock, evidence);
    let client = holder.and_then(|holder| holder.client.as_ref());
    let place = match (holder, client) {
        (None, _) => String::new(),
        (Some(_), None) => "?".into(),
        (Some(_), Some(id)) => {
            let (host, pid) = evidence.place(id);
            format!("{host}:{pid}")
        }
    };
    Row {
        index,
        name: text::harmless(&lock.name),
        state,
        mode: sharing::mode(lock),
        holders: lock.holders.len(),
        place,
        program: client
            .and_then(|id| evidence.client(id))
            .map(|client| text::harmless(&client.program))
            .unwrap_or_default(),
        label: holder.map(|holder| text::harmless(&holder.label)).unwrap_or_default(),
        fencing_token: holder.and_then(|holder| holder.fencing_token).map(|token| token.get()),
        held_for_ms: holder.and_then(|holder| holder.held_for_ms),
        lease_ms: holder.and_then(|holder| holder.lease_ms),
        remaining_ms: holder.and_then(|holder| holder.remaining_ms),
        renewals: holder.and_then(|holder| holder.renewals),
        since_renewal_ms: holder.and_then(Beat::of).map(|beat| beat.since_ms),
        waiters: live().count(),
        silent: lock.waiters.len() - live().count(),
        waited_ms: live().next().map(|waiter| waiter.waited_ms),
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Host, clients, held, lock, read_write, semaphore, snapshot, waiting};
    use super::*;

    fn shown(picture: &Picture) -> Vec<(&str, LockState)> {
        picture.rows.iter().map(|row| (row.name.as_str(), row.state)).collect()
    }

    #[test]
    fn problems_come_first_then_queues_then_long_holds() {
        let [a, b, c] = clients();
        let mut overdue = held(c, 12_000);
        overdue.remaining_ms = Some(3_000);
        let picture = picture(
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
            shown(&picture),
            [
                ("worst", LockState::NoRenewal),
                ("queue", LockState::Contended),
                ("long", LockState::Held),
                ("calm", LockState::Held),
                ("free", LockState::Free),
            ]
        );
        assert_eq!(picture.summary, Summary { locks: 5, held: 4, waiting: 2, attention: 1 });
    }

    #[test]
    fn of_several_holders_the_worst_stands_in_the_row() {
        let [a, b, c] = clients();
        let mut overdue = held(b, 12_000);
        overdue.remaining_ms = Some(3_000);
        let shared = lock("shared", vec![held(a, 900), overdue, held(c, 800)], vec![]);
        let permits = lock("permits", vec![held(a, 900), held(b, 800)], vec![waiting(c, 500)]);
        let picture = picture(
            &snapshot(vec![read_write(shared, "read", ""), semaphore(permits, 5, &[2, 1], &[3])]),
            &Host::default(),
            "polylatch",
        );
        let (shared, permits) = (&picture.rows[0], &picture.rows[1]);
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
        let picture = picture(&snapshot(vec![view]), &Host::default(), "polylatch");
        let row = &picture.rows[0];
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
        let picture = picture(&reading, &Host::default(), "polylatch");
        let row = &picture.rows[0];
        for text in [&row.name, &row.label, &row.program, &row.place, &row.findings[0].sentence] {
            assert!(!text.chars().any(text::is_treacherous), "{text:?}");
        }
    }

    #[test]
    fn every_state_has_its_own_word_and_signs() {
        use LockState::*;
        let all = [Deadlock, Stopped, NoExpiry, Gone, NoRenewal, Endangered, Foreign, Contended, Held, Free];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert_ne!(one.word(), other.word());
                assert_ne!(one.sign().0, other.sign().0);
                assert_ne!(one.sign().1, other.sign().1);
            }
        }
    }
}
