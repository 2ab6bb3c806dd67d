//! What other clients of the prefix mean for this one: those of another version, those of another guarantee.

use std::time::Duration;

use crate::backend::redis::doctor::facts::{Facts, Locks};
use crate::backend::redis::protocol::Guarantee;
use crate::snapshot::Check;

/// What other clients have stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sharers {
    /// Records that this version cannot read, besides those of locks.
    pub unreadable: Vec<String>,
    /// Clients that hold or wait, with the guarantee that each declares; empty for older ones.
    pub guarantees: Vec<(String, String)>,
    /// The longest lease that a client with `guarantee=strict` has declared.
    pub longest: Option<Duration>,
}

impl Sharers {
    /// The clients that declare this guarantee.
    pub(crate) fn with(&self, guarantee: Guarantee) -> Vec<&str> {
        let declared = self.guarantees.iter().filter(|(_, declared)| declared == guarantee.code());
        declared.map(|(client, _)| client.as_str()).collect()
    }
}

pub(crate) fn checks(facts: &Facts) -> Vec<Check> {
    vec![records(facts), guarantees(facts)]
}

fn records(facts: &Facts) -> Check {
    const ID: &str = "records";
    let of_locks = match &facts.locks {
        Locks::Read { unreadable, .. } => unreadable.as_slice(),
        _ => &[],
    };
    let found: Vec<&String> = of_locks.iter().chain(&facts.sharers.unreadable).collect();
    if found.is_empty() {
        return Check::ok(ID, "all records can be read", "no record of another version of Polylatch");
    }
    let shown: Vec<&str> = found.iter().take(3).map(|record| record.as_str()).collect();
    let seen = format!("{} records, such as {}", found.len(), shown.join("; "));
    Check::warning(ID, "Records of another version of Polylatch", seen)
        .means(
            "They are skipped: clients of this version pass those waiters over, and treat those leases as held \
             until they expire.",
        )
        .fix("Run the same version in all programs of this prefix: polylatch ls --json lists their clients")
}

fn guarantees(facts: &Facts) -> Check {
    const ID: &str = "guarantee";
    const FIX: &str = "Set guarantee=strict in the URL of every client of this prefix, or another prefix= for the other clients";
    let (mine, other) = if facts.strict {
        (Guarantee::Strict, Guarantee::BestEffort)
    } else {
        (Guarantee::BestEffort, Guarantee::Strict)
    };
    let others = facts.sharers.with(other);
    if others.is_empty() {
        let longest = facts.sharers.longest.filter(|_| facts.strict).unwrap_or_default().max(facts.max_lease);
        let seen = match mine {
            Guarantee::Strict => {
                format!("after a restart nothing is granted for {longest:?}, the longest max_lease")
            }
            Guarantee::BestEffort => "no client with guarantee=strict holds or waits".into(),
        };
        return Check::ok(ID, format!("the clients that hold or wait use guarantee={}", mine.code()), seen);
    }
    let shown = others.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    let seen = format!("{} with guarantee={}, such as {shown}", others.len(), other.code());
    Check::warning(ID, "Best-effort and strict clients share this prefix", seen)
        .means(
            "A restart blocks grants only to strict clients: a best-effort client may acquire a lock that a strict \
             client from before the restart still holds.",
        )
        .fix(FIX)
}
