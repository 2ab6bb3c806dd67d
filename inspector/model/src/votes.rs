//! How the votes of several independent nodes stand.

use polylatch::ClientId;
use polylatch::inspect::LockView;

/// Those nodes that name one holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Camp<'a> {
    /// Tells holders apart; empty for another program.
    pub owner_digest: &'a str,
    /// The client, if it is known.
    pub client: Option<&'a ClientId>,
    /// How many nodes.
    pub nodes: usize,
    /// When the last of them lets go, in milliseconds from the snapshot; `None` if one never does.
    pub left_ms: Option<u64>,
}

/// All votes on one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally<'a> {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many of them have to agree.
    pub needed: usize,
    /// How many answered.
    pub reached: usize,
    /// Who has votes, the most first.
    pub camps: Vec<Camp<'a>>,
}

/// Counts the votes on a lock; `None` where one server decides.
pub fn tally(lock: &LockView) -> Option<Tally<'_>> {
    if lock.votes.is_empty() {
        return None;
    }
    let mut camps: Vec<Camp<'_>> = Vec::new();
    for vote in &lock.votes {
        let Some(owner_digest) = vote.owner_digest.as_deref() else { continue };
        match camps.iter_mut().find(|camp| camp.owner_digest == owner_digest) {
            None => camps.push(Camp {
                owner_digest,
                client: vote.client.as_ref(),
                nodes: 1,
                left_ms: vote.remaining_ms,
            }),
            Some(camp) => {
                camp.nodes += 1;
                camp.left_ms = camp.left_ms.zip(vote.remaining_ms).map(|(one, other)| one.max(other));
            }
        }
    }
    camps.sort_by_key(|camp| std::cmp::Reverse(camp.nodes));
    let nodes = lock.votes.len();
    Some(Tally {
        nodes,
        needed: nodes / 2 + 1,
        reached: lock.votes.iter().filter(|vote| vote.reached).count(),
        camps,
    })
}
