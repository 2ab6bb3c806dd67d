//! Which nodes may vote: who is quarantined after a change, and when and with which counter it votes again.
//!
//! A node that restarted, was promoted or was emptied may have forgotten a lock that is still held and
//! tokens that were handed out. So has one whose clock moved forward: leases ended there before their time.
//! It is closed until every lease from before has expired; then its counter is raised to what nodes know
//! that share one with every majority, and it votes again.

use std::time::Duration;

use crate::clock::BootInstant;
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

/// What decides, beside the nodes' standings, whether a store without enough voting nodes starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// A client of this store relies on it for correctness.
    pub strict: bool,
    /// This client has seen a counter or a lease in this store before: it lost its data, and is not new.
    pub used: bool,
}

/// Closed nodes that may vote from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opening {
    pub nodes: Vec<usize>,
    /// What their counters are raised to.
    pub counter: u64,
    /// They were all new, so no time had to pass.
    pub fresh: bool,
    /// The counter is not known to be the largest: the order of tokens rests on the nodes' clocks.
    pub floored: bool,
}

/// Returns which closed nodes may vote now, and with which counter.
///
/// - Usually the counter comes from voting nodes: enough of them to share one with every majority have seen
///   every token that was handed out.
/// - Where fewer vote, a majority starts again together. At once, if every node answers and none has ever
///   been used, as far as this client knows. Otherwise when all their time has passed; under `strict` only
///   if so many nodes are known to have changed that no set of voting nodes could know every token. Then
///   the order of tokens rests on the clocks.
pub(crate) fn openable(quorum: Quorum, nodes: &[Standing], terms: Terms) -> Option<Opening> {
    let counters = |voting_only: bool| {
        let counter = nodes.iter().filter_map(move |node| match node {
            Standing::Voting { counter } => Some(*counter),
            Standing::Closed { counter, .. } if !voting_only => Some(*counter),
            _ => None,
        });
        counter.max().unwrap_or(0)
    };
    let which = |may: &dyn Fn(Duration) -> bool| -> Vec<usize> {
        let nodes = nodes.iter().enumerate();
        let open = nodes.filter(|(_, node)| matches!(node, Standing::Closed { left, .. } if may(*left)));
        open.map(|(at, _)| at).collect()
    };
    let voting = nodes.iter().filter(|node| matches!(node, Standing::Voting { .. })).count();
    let closed = nodes.iter().filter(|node| matches!(node, Standing::Closed { .. })).count();
    let opening = if voting >= quorum.covering() {
        let nodes = which(&|left| left.is_zero());
        Opening { nodes, counter: counters(true), fresh: false, floored: false }
    } else {
        let fresh = !terms.strict
            && !terms.used
            && nodes.iter().all(|node| match node {
                Standing::Voting { counter } => *counter == 0,
                Standing::Closed { fresh, .. } => *fresh,
                // What it knows is not known.
                Standing::Unknown => false,
            });
        let nodes = which(&|left| fresh || left.is_zero());
        let hopeless = closed >= quorum.needed();
        if voting + nodes.len() < quorum.needed() || (terms.strict && !hopeless) {
            return None;
        }
        Opening { nodes, counter: counters(false), fresh, floored: !fresh }
    };
    (!opening.nodes.is_empty()).then_some(opening)
}

/// How long a node is closed by that longest lease: its clock and the holder's may run at different rates.
pub(crate) fn quarantine_of(longest_lease: Duration) -> Duration {
    longest_lease + longest_lease / 50
}

/// The time that a closed node has been closed, by two clocks: the node's own, and this client's since it
/// first saw the node closed. The shorter one counts, so neither clock alone can end it early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quarantine {
    seen: BootInstant,
    /// What had passed before this client saw it.
    before: Duration,
    /// What had passed by the node's clock at its latest answer.
    by_node: (BootInstant, Duration),
}

impl Quarantine {
    /// A node that this client sees closed for the first time. What passed before is believed as far as the
    /// node's clock and the wall clocks of the two clients, the one that closed it and this one, agree.
    pub(crate) fn seen(now: BootInstant, by_node: Duration, by_walls: Duration) -> Self {
        Self { seen: now, before: by_node.min(by_walls), by_node: (now, by_node) }
    }

    /// The node has answered again, and is closed for so long by its own clock.
    pub(crate) fn answered(&mut self, now: BootInstant, by_node: Duration) {
        self.by_node = (now, by_node);
    }

    pub(crate) fn left(&self, now: BootInstant, length: Duration) -> Duration {
        let (at, by_node) = self.by_node;
        let by_client = self.before + now.since(self.seen);
        length.saturating_sub(by_client.min(by_node + now.since(at)))
    }
}

/// When a node told its time: at some moment between the two by this client's boot clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub sent: BootInstant,
    pub received: BootInstant,
    pub node_ms: u64,
}

/// A clock may be off by this much between two readings beside a hundredth of the time between them: it is
/// set right slowly, and rounds.
const CLOCK_SLACK_MS: i64 = 50;

impl ClockReading {
    /// By how many ms the node's clock has moved, beyond what passing time explains, since `before`.
    pub(crate) fn moved_since(&self, before: &Self) -> i64 {
        let whole = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4);
        let by_node = i64::try_from(self.node_ms).unwrap_or(i64::MAX / 4)
            - i64::try_from(before.node_ms).unwrap_or(i64::MAX / 4);
        let (least, most) =
            (whole(self.sent.since(before.received)), whole(self.received.since(before.sent)) + 1);
        let slack = CLOCK_SLACK_MS + most / 100;
        if by_node > most + slack {
            by_node - most
        } else if by_node < least - slack {
            by_node - least
        } else {
            0
        }
    }
}

/// Says of which nodes the clock has stepped, from how far each moved against this client's clock (`None`
/// where that is not known). Where a majority of several moved the same way, this client's own clock stood
/// still or jumped, as in a virtual machine that was suspended.
pub(crate) fn stepped(quorum: Quorum, moved: &[Option<i64>]) -> Vec<bool> {
    let same_way = |sign: i64| moved.iter().flatten().filter(|by| by.signum() == sign).count();
    let own = |by: i64| quorum.nodes() > 2 && same_way(by.signum()) >= quorum.needed();
    moved.iter().map(|by| by.is_some_and(|by| by != 0 && !own(by))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(40);
    const BEST_EFFORT: Terms = Terms { strict: false, used: false };
    const USED: Terms = Terms { used: true, ..BEST_EFFORT };
    const STRICT: Terms = Terms { strict: true, ..BEST_EFFORT };

    fn closed(left: Duration, fresh: bool) -> Standing {
        Standing::Closed { left, counter: 3, fresh }
    }

    fn voting(counter: u64) -> Standing {
        Standing::Voting { counter }
    }

    fn open(nodes: &[Standing], terms: Terms) -> Option<(u64, Vec<usize>)> {
        openable(Quorum::of(nodes.len()), nodes, terms).map(|opening| (opening.counter, opening.nodes))
    }

    #[test]
    fn a_node_comes_back_after_its_time_with_what_the_others_know() {
        let mut nodes = [voting(10), voting(30), closed(LATER, true), voting(20), Standing::Unknown];
        assert_eq!(open(&nodes, BEST_EFFORT), None, "a lease from before may be alive");
        nodes[2] = closed(Duration::ZERO, true);
        assert_eq!(open(&nodes, BEST_EFFORT), Some((30, vec![2])));
        assert_eq!(open(&nodes, STRICT), Some((30, vec![2])));
    }

    #[test]
    fn too_few_that_vote_open_no_node_before_the_time_of_a_majority_is_over() {
        let ripe = closed(Duration::ZERO, false);
        let late = closed(LATER, false);
        let unknown = Standing::Unknown;
        assert_eq!(open(&[voting(9), voting(8), late, late, late], BEST_EFFORT), None);
        assert_eq!(open(&[voting(9), unknown, ripe, late, unknown], BEST_EFFORT), None);
        assert_eq!(open(&[voting(9), voting(8), ripe, late, unknown], BEST_EFFORT), Some((9, vec![2])));
        // No node votes any more, but a majority has been closed for its time.
        let all = [ripe, ripe, ripe, unknown, unknown];
        assert_eq!(open(&all, BEST_EFFORT), Some((3, vec![0, 1, 2])));
        assert!(openable(Quorum::of(5), &all, BEST_EFFORT).is_some_and(|opening| opening.floored));
    }

    #[test]
    fn strict_takes_no_counter_from_too_few_while_nodes_that_know_it_may_come_back() {
        let ripe = closed(Duration::ZERO, false);
        let unknown = Standing::Unknown;
        // The two that are away and the one that lost its data may be all that had the largest token.
        let nodes = [voting(9), voting(8), ripe, unknown, unknown];
        assert_eq!(open(&nodes, STRICT), None);
        assert!(openable(Quorum::of(5), &nodes, BEST_EFFORT).unwrap().floored);
        // A majority has changed: waiting for the others would not help.
        let opening = openable(Quorum::of(5), &[voting(9), ripe, ripe, ripe, unknown], STRICT).unwrap();
        assert!(opening.floored && opening.nodes == [1, 2, 3], "{opening:?}");
    }

    #[test]
    fn a_new_store_begins_at_once_unless_that_is_forbidden() {
        let fresh = closed(LATER, true);
        assert_eq!(open(&[fresh; 3], BEST_EFFORT), Some((3, vec![0, 1, 2])));
        assert_eq!(open(&[fresh; 3], STRICT), None);
        assert_eq!(open(&[fresh; 3], USED), None, "this client knows that there was something");
        assert_eq!(open(&[fresh, fresh, Standing::Unknown], BEST_EFFORT), None, "one may have data");
        let used = closed(LATER, false);
        assert_eq!(open(&[fresh, fresh, used], BEST_EFFORT), None, "this store is not new");
        assert_eq!(open(&[voting(8), fresh, fresh], BEST_EFFORT), None, "a majority lost its data");
        // The client that began it was interrupted.
        assert_eq!(open(&[voting(0), fresh, fresh], BEST_EFFORT), Some((3, vec![1, 2])));
    }

    #[test]
    fn one_surviving_node_of_two_knows_every_token() {
        assert_eq!(open(&[voting(7), closed(Duration::ZERO, true)], STRICT), Some((7, vec![1])));
        assert_eq!(open(&[voting(7), closed(LATER, true)], BEST_EFFORT), None);
    }

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_quarantine_ends_when_both_clocks_say_so() {
        let length = ms(60_000);
        let mut node = Quarantine::seen(at(1_000), ms(0), ms(0));
        assert_eq!(node.left(at(11_000), length), ms(50_000));
        // The node's clock jumped by a minute: the client's counts.
        node.answered(at(11_000), ms(70_000));
        assert_eq!(node.left(at(11_000), length), ms(50_000));
        // It stands still: the node's counts.
        node.answered(at(61_000), ms(5_000));
        assert_eq!(node.left(at(61_000), length), ms(55_000));
    }

    #[test]
    fn what_passed_before_a_client_came_counts_as_far_as_two_clocks_agree() {
        let length = ms(60_000);
        assert_eq!(Quarantine::seen(at(0), ms(70_000), ms(65_000)).left(at(0), length), ms(0));
        assert_eq!(Quarantine::seen(at(0), ms(70_000), ms(2_000)).left(at(0), length), ms(58_000));
        assert_eq!(Quarantine::seen(at(0), ms(2_000), ms(70_000)).left(at(0), length), ms(58_000));
    }

    #[test]
    fn a_step_is_told_from_passing_time_late_answers_and_slow_correction() {
        let reading =
            |sent, received, node_ms| ClockReading { sent: at(sent), received: at(received), node_ms };
        let before = reading(1_000, 1_002, 500_000);
        for (sent, received, node_ms) in [
            (6_000, 6_001, 505_000),
            (6_000, 9_000, 506_500),
            (6_000, 6_001, 505_090),
            (6_000, 6_001, 504_910),
        ] {
            assert_eq!(reading(sent, received, node_ms).moved_since(&before), 0, "{node_ms}");
        }
        assert!(reading(6_000, 6_001, 525_000).moved_since(&before) >= 19_990);
        assert!(reading(6_000, 6_001, 485_000).moved_since(&before) <= -19_990);
    }

    #[test]
    fn a_minority_that_moved_has_stepped_and_a_majority_is_this_clients_own_clock() {
        let three = |moved: [i64; 3]| stepped(Quorum::of(3), &moved.map(Some));
        assert_eq!(three([0, 0, 20_000]), [false, false, true]);
        assert_eq!(three([9_000, 9_001, 0]), [false; 3]);
        assert_eq!(three([-9_000, 9_000, 0]), [true, true, false]);
        assert_eq!(
            stepped(Quorum::of(5), &[Some(9), None, Some(9), None, Some(0)]),
            [true, false, true, false, false]
        );
        assert_eq!(stepped(Quorum::of(1), &[Some(20_000)]), [true]);
        assert_eq!(stepped(Quorum::of(2), &[Some(20_000), Some(0)]), [true, false]);
    }
}
