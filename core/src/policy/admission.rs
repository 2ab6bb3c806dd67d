//! Which nodes may vote: who sits out after a restart, and when it comes back.
//!
//! A node that restarted, was promoted or was emptied may have forgotten a lock that is still held and
//! numbers that were given out. It is closed until every lease from before has ended; then its counter
//! is brought up from nodes that share one with every majority, and it votes again.

use std::time::Duration;

use crate::policy::quorum::Quorum;

/// What is known of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It votes; its counter.
    Voting { counter: u64 },
    /// It does not vote before this time has passed.
    Closed { left: Duration, counter: u64, fresh: bool },
    /// It could not be asked.
    Unknown,
}

/// Returns the counter with which closed nodes may be opened now, and which of them.
///
/// - Usually from nodes that vote: enough of them to share one with every majority have seen every
///   number that was ever given out.
/// - Where fewer vote, a majority of the nodes starts anew together: at once if none of them has ever
///   been used and `wait_when_fresh` does not forbid it, otherwise once all their time has passed. This is
///   how a store begins, and what is left when too many nodes lost their data together; the order of
///   tokens then rests on the clock.
pub(crate) fn openable(
    quorum: Quorum,
    nodes: &[Standing],
    wait_when_fresh: bool,
) -> Option<(u64, Vec<usize>)> {
    let counters = |voting_only: bool| {
        let counter = nodes.iter().filter_map(move |node| match node {
            Standing::Voting { counter } => Some(*counter),
            Standing::Closed { counter, .. } if !voting_only => Some(*counter),
            _ => None,
        });
        counter.max().unwrap_or(0)
    };
    let which = |may: &dyn Fn(Duration, bool) -> bool| -> Vec<usize> {
        let nodes = nodes.iter().enumerate();
        let open = nodes.filter(|(_, node)| match node {
            Standing::Closed { left, fresh, .. } => may(*left, *fresh),
            _ => false,
        });
        open.map(|(at, _)| at).collect()
    };
    let voting = nodes.iter().filter(|node| matches!(node, Standing::Voting { .. })).count();
    let ripe = which(&|left, _| left.is_zero());
    let (counter, open) = if voting >= quorum.covering() {
        (counters(true), ripe)
    } else {
        let all_fresh = nodes.iter().all(|node| match node {
            Standing::Voting { counter } => *counter == 0,
            Standing::Closed { fresh, .. } => *fresh,
            Standing::Unknown => true,
        });
        let open = if all_fresh && !wait_when_fresh { which(&|_, _| true) } else { ripe };
        if voting + open.len() < quorum.needed() {
            return None;
        }
        (counters(false), open)
    };
    (!open.is_empty()).then_some((counter, open))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(40);

    fn closed(left: Duration, fresh: bool) -> Standing {
        Standing::Closed { left, counter: 3, fresh }
    }

    fn voting(counter: u64) -> Standing {
        Standing::Voting { counter }
    }

    #[test]
    fn a_node_comes_back_after_its_time_with_what_the_others_know() {
        let quorum = Quorum::of(5);
        let mut nodes = [voting(10), voting(30), closed(LATER, true), voting(20), Standing::Unknown];
        assert_eq!(openable(quorum, &nodes, false), None, "a lease from before may be alive");
        nodes[2] = closed(Duration::ZERO, true);
        assert_eq!(openable(quorum, &nodes, false), Some((30, vec![2])));
    }

    #[test]
    fn too_few_that_vote_open_nobody_before_the_time_of_a_majority_is_over() {
        let quorum = Quorum::of(5);
        let ripe = closed(Duration::ZERO, false);
        let late = closed(LATER, false);
        let unknown = Standing::Unknown;
        assert_eq!(openable(quorum, &[voting(9), voting(8), late, late, late], false), None);
        assert_eq!(openable(quorum, &[voting(9), unknown, ripe, late, unknown], false), None);
        let open = openable(quorum, &[voting(9), voting(8), ripe, late, unknown], false);
        assert_eq!(open, Some((9, vec![2])));
        // Nobody votes any more, but a majority has sat its time out.
        let open = openable(quorum, &[ripe, ripe, ripe, unknown, unknown], false);
        assert_eq!(open, Some((3, vec![0, 1, 2])));
    }

    #[test]
    fn a_new_store_begins_at_once_unless_that_is_forbidden() {
        let quorum = Quorum::of(3);
        let fresh = closed(LATER, true);
        assert_eq!(openable(quorum, &[fresh; 3], false), Some((3, vec![0, 1, 2])));
        assert_eq!(openable(quorum, &[fresh, fresh, Standing::Unknown], false), Some((3, vec![0, 1])));
        assert_eq!(openable(quorum, &[fresh, Standing::Unknown, Standing::Unknown], false), None);
        assert_eq!(openable(quorum, &[fresh; 3], true), None);
        let used = closed(LATER, false);
        assert_eq!(openable(quorum, &[fresh, fresh, used], false), None, "this store is not new");
        assert_eq!(openable(quorum, &[voting(8), fresh, fresh], false), None, "a majority lost its data");
        // Whoever began it was interrupted.
        assert_eq!(openable(quorum, &[voting(0), fresh, fresh], false), Some((3, vec![1, 2])));
    }

    #[test]
    fn one_surviving_node_of_two_knows_every_number() {
        let quorum = Quorum::of(2);
        let open = openable(quorum, &[voting(7), closed(Duration::ZERO, true)], true);
        assert_eq!(open, Some((7, vec![1])));
        assert_eq!(openable(quorum, &[voting(7), closed(LATER, true)], false), None);
    }
}
