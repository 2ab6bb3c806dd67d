//! What a majority of independent nodes has said: votes, fencing tokens, renewals, releases.
//!
//! Every question is decided the moment its answer can no longer change, so no caller waits for a node
//! that is not needed. The fencing protocol is checked exhaustively by `tests/model` (`redlock`).

/// Most nodes of one store: beyond that a further node costs more than it protects.
pub(crate) const MAX_NODES: usize = 9;

/// How many nodes there are, and how many of them decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// Of 1 to [`MAX_NODES`] nodes, odd or even.
    pub(crate) fn of(nodes: usize) -> Self {
        debug_assert!((1..=MAX_NODES).contains(&nodes));
        Self { nodes }
    }

    pub(crate) fn nodes(self) -> usize {
        self.nodes
    }

    /// More than half: any two such sets share a node.
    pub(crate) fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// All nodes, as bits.
    pub(crate) fn all(self) -> u16 {
        (1 << self.nodes) - 1
    }

    /// So many nodes share a node with every majority: enough to refuse one, and enough to have seen
    /// whatever any majority was told.
    pub(crate) fn covering(self) -> usize {
        self.nodes - self.needed() + 1
    }
}

/// What one node says to a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    /// The node's lock is the contender's, under this number.
    Yes(u64),
    /// Another client has it; equal tags are the same holder.
    No(u64),
    /// The node does not vote: it restarted, was promoted or was emptied a short while ago.
    Closed,
    /// It refused, broke or was silent for too long.
    Failed,
}

/// How an election stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Both are still possible.
    Open,
    /// A majority said yes.
    Won,
    /// A majority is impossible by now.
    Lost(Lost),
}

/// Why a majority is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// A majority of the nodes names one other holder.
    Taken,
    /// No client is known to have a majority: contenders got in each other's way.
    Split,
    /// Too many nodes do not vote yet; the others alone are too few.
    Closed,
    /// Too many nodes failed.
    Unreachable,
}

/// The votes for one contender.
#[derive(Debug, Clone)]
pub(crate) struct Election {
    quorum: Quorum,
    votes: [Option<Vote>; MAX_NODES],
}

impl Election {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self { quorum, votes: [None; MAX_NODES] }
    }

    /// Counts a node's vote. The first one counts: a node speaks once.
    pub(crate) fn cast(&mut self, node: usize, vote: Vote) {
        self.votes[node].get_or_insert(vote);
    }

    fn cast_votes(&self) -> impl Iterator<Item = (usize, Vote)> + '_ {
        let votes = self.votes.iter().take(self.quorum.nodes()).enumerate();
        votes.filter_map(|(node, vote)| vote.map(|vote| (node, vote)))
    }

    fn count(&self, which: impl Fn(Vote) -> bool) -> usize {
        self.cast_votes().filter(|(_, vote)| which(*vote)).count()
    }

    /// The nodes that said yes, with their numbers.
    pub(crate) fn yes(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.cast_votes().filter_map(|(node, vote)| match vote {
            Vote::Yes(number) => Some((node, number)),
            _ => None,
        })
    }

    /// The nodes that have answered something else than yes.
    pub(crate) fn refused(&self) -> impl Iterator<Item = usize> + '_ {
        self.cast_votes().filter(|(_, vote)| !matches!(vote, Vote::Yes(_))).map(|(node, _)| node)
    }

    /// How many nodes have not voted.
    pub(crate) fn outstanding(&self) -> usize {
        self.quorum.nodes() - self.count(|_| true)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let needed = self.quorum.needed();
        let yes = self.yes().count();
        if yes >= needed {
            return Outcome::Won;
        }
        let open = self.outstanding();
        if yes + open >= needed {
            return Outcome::Open;
        }
        let no = self.count(|vote| matches!(vote, Vote::No(_)));
        let closed = self.count(|vote| vote == Vote::Closed);
        Outcome::Lost(if yes + no + open < needed {
            if yes + no + open + closed >= needed { Lost::Closed } else { Lost::Unreachable }
        } else if self.largest_other() >= needed {
            Lost::Taken
        } else {
            Lost::Split
        })
    }

    /// On how many nodes the most successful other holder stands.
    fn largest_other(&self) -> usize {
        let named = |tag| self.count(|vote| vote == Vote::No(tag));
        let tags = self.cast_votes().filter_map(|(_, vote)| match vote {
            Vote::No(tag) => Some(tag),
            _ => None,
        });
        tags.map(named).max().unwrap_or(0)
    }
}

/// The fencing token of a won election, and which nodes have to be told.
///
/// The token is the largest number among the yes votes. It may be used once a majority of the nodes
/// has a counter of at least that, written while the contender still owned the node's lock: every
/// later majority then shares a node with this one and draws a larger number there. When a majority
/// answered with the same number (the usual case, because the contender proposed it) there is nothing
/// to write. A yes that comes after the decision does not count: with a larger number it would prove
/// nothing, because another client may have had this very token from that node before.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    quorum: Quorum,
    token: u64,
    nodes: [Told; MAX_NODES],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Not asked, or it said that the lock is not the contender's any more.
    No,
    /// Owned by the contender under a smaller number.
    Behind,
    Yes,
}

impl Fence {
    pub(crate) fn of(election: &Election) -> Self {
        let token = election.yes().map(|(_, number)| number).max().unwrap_or(0);
        let mut nodes = [Told::No; MAX_NODES];
        for (node, number) in election.yes() {
            nodes[node] = if number == token { Told::Yes } else { Told::Behind };
        }
        Self { quorum: election.quorum, token, nodes }
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The nodes whose counter has to be raised.
    pub(crate) fn behind(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().enumerate().filter(|(_, told)| **told == Told::Behind).map(|(node, _)| node)
    }

    /// Notes whether a node raised its counter; it does so only for the owner of its lock.
    pub(crate) fn told(&mut self, node: usize, raised: bool) {
        self.nodes[node] = if raised { Told::Yes } else { Told::No };
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let count = |which| self.nodes.iter().filter(|told| **told == which).count();
        let (yes, behind) = (count(Told::Yes), count(Told::Behind));
        if yes >= self.quorum.needed() {
            Outcome::Won
        } else if yes + behind >= self.quorum.needed() {
            Outcome::Open
        } else {
            Outcome::Lost(Lost::Split)
        }
    }
}

/// The numbers that a client proposes: its wall clock in µs, and above everything it has seen.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    largest: u64,
}

impl Proposals {
    /// The next proposal. Nodes bound it by their own clock, so a wrong clock here does no harm.
    pub(crate) fn next(&mut self, wall_us: u64) -> u64 {
        self.largest = wall_us.max(self.largest + 1);
        self.largest
    }

    /// Notes a node's counter, so that the next proposal lies above it.
    pub(crate) fn learn(&mut self, counter: u64) {
        self.largest = self.largest.max(counter);
    }
}

/// Yes and no to a question about one lease that a majority has to answer alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub yes: usize,
    pub no: usize,
    /// Nodes that have not answered and still may.
    pub open: usize,
}

impl Tally {
    /// `Some(true)` if a majority says yes, `Some(false)` if enough nodes say no that no majority can
    /// be behind the lease, `None` while, or for good if, neither is certain.
    ///
    /// A node that fails says nothing: a lease is never given up because of it.
    pub(crate) fn verdict(self, quorum: Quorum) -> Option<bool> {
        if self.yes >= quorum.needed() {
            Some(true)
        } else if self.no >= quorum.covering() {
            Some(false)
        } else {
            None
        }
    }

    /// Says whether further answers cannot change the verdict.
    pub(crate) fn is_final(self, quorum: Quorum) -> bool {
        self.verdict(quorum).is_some()
            || (self.yes + self.open < quorum.needed() && self.no + self.open < quorum.covering())
    }
}

/// A lease that was won and released before every node had voted: what each node says of the release, and each yes that
/// comes too late.
///
/// A release is sent after the vote, and mostly finds what the vote has left; then nothing is left to take back. It does not
/// where the vote was delayed: a script that the node did not know is sent a second time.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    /// The nodes that had the lease when the release came, and those that had not, as bits.
    freed: u16,
    missed: u16,
    late: Vec<(usize, u64)>,
}

impl Parting {
    /// A node has answered the release. Returns the number of its late yes that has to be taken back.
    pub(crate) fn released(&mut self, node: usize, freed: bool) -> Option<u64> {
        *(if freed { &mut self.freed } else { &mut self.missed }) |= 1 << node;
        self.late.iter().find(|(of, _)| *of == node && !freed).map(|(_, number)| *number)
    }

    /// A node has said yes after the release was sent. Returns whether that has to be taken back now; otherwise the release
    /// does it, as far as is known.
    pub(crate) fn late_yes(&mut self, node: usize, number: u64) -> bool {
        if (self.freed | self.missed) & 1 << node == 0 {
            self.late.push((node, number));
        }
        self.missed & 1 << node != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way in which `nodes` nodes can vote with one of these.
    fn patterns(nodes: usize, kinds: &[Option<Vote>]) -> impl Iterator<Item = Vec<Option<Vote>>> + '_ {
        (0..kinds.len().pow(nodes as u32)).map(move |mut code| {
            (0..nodes)
                .map(|_| {
                    let vote = kinds[code % kinds.len()];
                    code /= kinds.len();
                    vote
                })
                .collect()
        })
    }

    #[test]
    fn every_pattern_of_one_to_nine_nodes_is_decided_as_early_and_only_as_early_as_it_can_be() {
        let kinds = [Some(Vote::Yes(7)), Some(Vote::No(1)), None];
        for nodes in 1..=MAX_NODES {
            let quorum = Quorum::of(nodes);
            assert!(2 * quorum.needed() > nodes && quorum.needed() + quorum.covering() == nodes + 1);
            for pattern in patterns(nodes, &kinds) {
                let mut election = Election::new(quorum);
                for (node, vote) in pattern.iter().enumerate() {
                    if let Some(vote) = vote {
                        election.cast(node, *vote);
                    }
                }
                let count = |vote: Option<Vote>| pattern.iter().filter(|cast| **cast == vote).count();
                let (yes, silent) = (count(kinds[0]), count(None));
                let expected = match yes {
                    _ if 2 * yes > nodes => Outcome::Won,
                    _ if 2 * (yes + silent) > nodes => Outcome::Open,
                    _ if 2 * count(kinds[1]) > nodes => Outcome::Lost(Lost::Taken),
                    _ => Outcome::Lost(Lost::Split),
                };
                assert_eq!(election.outcome(), expected, "{pattern:?}");
                // Silence has an end: a failure in its place decides everything.
                for (node, vote) in pattern.iter().enumerate() {
                    election.cast(node, vote.unwrap_or(Vote::Failed));
                }
                assert_ne!(election.outcome(), Outcome::Open, "{pattern:?}");
                assert_eq!(election.outcome() == Outcome::Won, 2 * yes > nodes, "{pattern:?}");
            }
        }
    }

    #[test]
    fn a_tie_of_an_even_number_is_nobodys() {
        let mut election = Election::new(Quorum::of(4));
        for (node, vote) in [Vote::Yes(1), Vote::No(9), Vote::Yes(1)].into_iter().enumerate() {
            election.cast(node, vote);
            assert_eq!(election.outcome(), Outcome::Open);
        }
        election.cast(3, Vote::No(9));
        assert_eq!(election.outcome(), Outcome::Lost(Lost::Split));
    }

    #[test]
    fn the_reason_of_a_lost_election_says_what_would_help() {
        let lost = |votes: [Vote; 5]| {
            let mut election = Election::new(Quorum::of(5));
            votes.into_iter().enumerate().for_each(|(node, vote)| election.cast(node, vote));
            election.outcome()
        };
        use super::Vote::{Closed, Failed, No, Yes};
        assert_eq!(lost([Yes(1), Yes(1), No(5), No(5), No(5)]), Outcome::Lost(Lost::Taken));
        assert_eq!(lost([Yes(1), Yes(1), No(5), No(5), No(6)]), Outcome::Lost(Lost::Split));
        assert_eq!(lost([Yes(1), No(5), No(5), Failed, Failed]), Outcome::Lost(Lost::Split));
        assert_eq!(lost([Yes(1), Yes(1), Closed, Closed, Closed]), Outcome::Lost(Lost::Closed));
        assert_eq!(lost([Yes(1), Yes(1), Closed, Failed, Failed]), Outcome::Lost(Lost::Closed));
        assert_eq!(lost([Yes(1), Yes(1), Failed, Failed, Failed]), Outcome::Lost(Lost::Unreachable));
    }

    #[test]
    fn a_node_votes_once() {
        let mut election = Election::new(Quorum::of(1));
        election.cast(0, Vote::No(3));
        election.cast(0, Vote::Yes(4));
        assert_eq!(election.outcome(), Outcome::Lost(Lost::Taken));
    }

    #[test]
    fn equal_numbers_of_a_majority_need_no_write() {
        let mut election = Election::new(Quorum::of(5));
        for node in [0, 2, 4] {
            election.cast(node, Vote::Yes(70));
        }
        let fence = Fence::of(&election);
        assert_eq!((fence.token(), fence.outcome()), (70, Outcome::Won));
        assert_eq!(fence.behind().count(), 0);
    }

    #[test]
    fn the_largest_number_is_written_where_it_is_missing_until_a_majority_has_it() {
        let mut election = Election::new(Quorum::of(5));
        for (node, number) in [(0, 70), (1, 90), (2, 80), (3, 90)] {
            election.cast(node, Vote::Yes(number));
        }
        let mut fence = Fence::of(&election);
        assert_eq!((fence.token(), fence.outcome()), (90, Outcome::Open));
        assert_eq!(fence.behind().collect::<Vec<_>>(), [0, 2]);
        fence.told(0, false);
        assert_eq!(fence.outcome(), Outcome::Open);
        let mut refused = fence.clone();
        refused.told(2, false);
        assert_eq!(refused.outcome(), Outcome::Lost(Lost::Split), "the lock was lost meanwhile");
        fence.told(2, true);
        assert_eq!(fence.outcome(), Outcome::Won);
    }

    #[test]
    fn proposals_follow_the_clock_and_never_repeat() {
        let mut proposals = Proposals::default();
        assert_eq!(proposals.next(100), 100);
        assert_eq!(proposals.next(100), 101);
        proposals.learn(500);
        proposals.learn(300);
        assert_eq!(proposals.next(200), 501);
        assert_eq!(proposals.next(900), 900);
    }

    #[test]
    fn a_renewal_needs_a_majority_of_all_and_silence_gives_nothing_up() {
        for nodes in 1..=MAX_NODES {
            let quorum = Quorum::of(nodes);
            for yes in 0..=nodes {
                for no in 0..=nodes - yes {
                    for open in 0..=nodes - yes - no {
                        let tally = Tally { yes, no, open };
                        let verdict = tally.verdict(quorum);
                        assert_eq!(verdict == Some(true), 2 * yes > nodes);
                        // Lost means that no majority can be left, whatever the silent ones hold.
                        assert_eq!(verdict == Some(false), 2 * (nodes - no) <= nodes && 2 * yes <= nodes);
                        assert!(open > 0 || tally.is_final(quorum), "{tally:?} of {nodes} never ends");
                    }
                }
            }
        }
    }

    #[test]
    fn a_late_yes_is_taken_back_only_where_the_release_did_not_find_it() {
        for freed in [true, false] {
            let mut parting = Parting::default();
            assert!(!parting.late_yes(2, 7), "the release is under way");
            assert_eq!(parting.released(1, false), None, "another node");
            assert_eq!(parting.released(2, freed), (!freed).then_some(7));

            let mut parting = Parting::default();
            assert_eq!(parting.released(2, freed), None, "no late yes so far");
            assert_eq!(parting.late_yes(2, 7), !freed);
        }
    }
}
