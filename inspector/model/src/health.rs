//! Whether the store itself works: known first, because what is missing in a store that refuses writes says nothing
//! about clients.

use polylatch::inspect::{LockView, Snapshot, Trouble, TroubleKind};

use super::evidence::Evidence;
use super::finding::Next;
use super::text::{count, sanitized, span};
use super::verdict::{Rule, Severity};
use super::votes;

/// Returns the rule for what keeps a whole store from working.
pub(super) fn rule(trouble: &Trouble) -> Rule {
    match trouble.kind {
        TroubleKind::NoQuorum | TroubleKind::NodeSilent => Rule::NoQuorum,
        _ => Rule::WritesRefused,
    }
}

/// Returns a few words for where there is no room for a sentence.
pub fn word(trouble: &Trouble) -> &'static str {
    match trouble.kind {
        TroubleKind::ReadOnly => "READ-ONLY",
        TroubleKind::OutOfMemory => "OUT OF MEMORY",
        TroubleKind::NoQuorum | TroubleKind::NodeSilent => "NO QUORUM",
        _ => "WRITES REFUSED",
    }
}

/// Returns what is the case. Nothing of a single lock is in it, so that all locks share it.
pub fn sentence(trouble: &Trouble) -> String {
    let detail = sanitized(&trouble.detail);
    match trouble.kind {
        TroubleKind::NoQuorum | TroubleKind::NodeSilent => format!(
            "No quorum: {detail}. No lock can be acquired, renewed or released, and which locks are held is not known."
        ),
        // A full server still takes what needs no memory (PEXPIRE, DEL).
        TroubleKind::OutOfMemory => format!(
            "The store refuses writes ({detail}). No lock can be acquired or waited for until it accepts them again; \
             mutexes that are held may still be renewed and released. Missing heartbeats say nothing about the clients."
        ),
        _ => format!(
            "The store refuses writes ({detail}). No lock can be acquired, renewed or released until it accepts them \
             again; missing renewals and heartbeats say nothing about the clients."
        ),
    }
}

/// Returns the sentence with the nodes that do not answer, and what to do.
pub(super) fn explain(trouble: &Trouble, silent: &[&str], command: &str) -> (String, Vec<Next>) {
    let mut sentence = sentence(trouble);
    if !silent.is_empty() {
        sentence += &format!(" No answer from {}.", sanitized(&silent.join(", ")));
    }
    let advice = match trouble.kind {
        TroubleKind::ReadOnly => {
            "connect to the primary (“master”), or promote this replica: INFO replication"
        }
        TroubleKind::OutOfMemory => "free memory, or raise maxmemory: INFO memory",
        TroubleKind::TooFewReplicas => {
            "bring the replicas back, or lower min-replicas-to-write: INFO replication"
        }
        TroubleKind::CannotSave => "look at the server's log and its disk: INFO persistence",
        _ => "bring the nodes back; leases that cannot be renewed expire meanwhile",
    };
    (sentence, vec![Next::Do(advice.into()), Next::Run(format!("{command} doctor"))])
}

/// Returns what is known of nodes that are of no use while the store as a whole works.
pub fn nodes_down(snapshot: &Snapshot) -> Option<String> {
    let of_node = |trouble: &Trouble| {
        let node = sanitized(trouble.node.as_deref()?);
        Some(match trouble.kind {
            TroubleKind::NodeSilent => format!("{node} does not answer"),
            _ => format!("{node} refuses writes ({})", sanitized(&trouble.detail)),
        })
    };
    let down: Vec<String> = snapshot.troubles.iter().filter_map(of_node).collect();
    (!down.is_empty()).then(|| down.join("; "))
}

/// Says whether silent nodes decide who holds a lock: no client is known to have a majority, and one may have it.
pub fn is_undecided(lock: &LockView) -> bool {
    votes::tally(lock).is_some_and(|tally| {
        let silent = tally.nodes - tally.reached;
        let most = tally.camps.first().map_or(0, |camp| camp.nodes);
        silent > 0 && most < tally.needed && most + silent >= tally.needed
    })
}

/// Returns the words for a lock of which [`is_undecided`] is true.
pub(super) fn undecided(lock: &LockView, evidence: &Evidence<'_>) -> Option<(String, Vec<Next>)> {
    let tally = votes::tally(lock)?;
    let silent: Vec<String> =
        lock.votes.iter().filter(|vote| !vote.reached).map(|vote| sanitized(&vote.node)).collect();
    let who = match tally.camps.first() {
        None => "a client".to_owned(),
        Some(camp) => {
            let who = camp.client.map_or_else(|| "another program".into(), |id| evidence.who(id));
            let left = camp.left_ms.map(|left| format!(", for another {}", span(left))).unwrap_or_default();
            format!("{who}, which has {}{left},", count(camp.nodes, "node", "nodes"))
        }
    };
    let sentence = format!(
        "Not known whether it is held: {} of {} nodes do not answer ({}). With them, {who} may have the {} that are \
         needed.",
        silent.len(),
        tally.nodes,
        silent.join(", "),
        tally.needed
    );
    let doctor = Next::Run(format!("{} doctor", evidence.own_command()));
    Some((
        sentence,
        vec![Next::Do("bring these nodes back, or wait for the leases to expire".into()), doctor],
    ))
}

/// How much it matters that a node is down while a majority works.
pub(super) const NODE_DOWN: Severity = Severity::Warning;
