//! Nodes, acquisitions, and what is on its way between them.

use std::fmt;

use crate::store::{Bits, Packed};

/// Most nodes and most acquisitions that a packed state has room for.
pub(super) const NODES: usize = 5;
pub(super) const ACQUISITIONS: usize = 3;

/// Which parts of the protocol are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The token is written back to a majority; otherwise the largest answer is used as it is.
    pub write_back: bool,
    /// Only the owner of a node's lock may raise its counter.
    pub only_the_owner: bool,
    /// One node may restart without its data.
    pub restart: bool,
    /// A restarted node does not vote before it is let in again.
    pub gate: bool,
    /// It is let in only after every acquisition from before has ended.
    pub wait: bool,
    /// A yes that comes after the decision with a larger number does not count as having the token:
    /// somebody else may have had that token from this node before.
    pub larger_is_no_proof: bool,
}

impl Rules {
    /// The protocol as it is shipped, without a restart.
    pub const FULL: Self = Self {
        write_back: true,
        only_the_owner: true,
        restart: false,
        gate: true,
        wait: true,
        larger_is_no_proof: true,
    };
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub nodes: usize,
    pub acquisitions: usize,
    pub rules: Rules,
    /// What a client may propose.
    pub proposals: &'static [u8],
    /// With what counter a node may begin.
    pub counters: &'static [u8],
}

impl Model {
    /// The whole protocol over so many nodes.
    pub fn new(nodes: usize, acquisitions: usize) -> Self {
        assert!((1..=NODES).contains(&nodes) && (1..=ACQUISITIONS).contains(&acquisitions));
        Self { nodes, acquisitions, rules: Rules::FULL, proposals: &[0, 2], counters: &[0, 1] }
    }

    #[must_use]
    pub fn with(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    pub(super) fn needed(&self) -> usize {
        self.nodes / 2 + 1
    }

    pub(super) fn covering(&self) -> usize {
        self.nodes - self.needed() + 1
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Idle,
    Asking,
    Writing,
    Done,
    GivenUp,
}

/// What is between an acquisition and a node about taking the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Nothing,
    Request,
    Answer,
    Known,
}

/// The same about writing the token back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Write {
    Nothing,
    Request,
    Answer,
    Known,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Talk {
    pub ask: Ask,
    /// The node's number, from when it has said yes.
    pub number: u8,
    pub write: Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub counter: u8,
    /// 0 nobody, otherwise the acquisition's number + 1.
    pub owner: u8,
    pub votes: bool,
    /// What it was given to begin again with; 0 if it was not.
    pub refill: u8,
    pub talks: [Talk; ACQUISITIONS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acquisition {
    pub phase: Phase,
    pub proposal: u8,
    pub token: u8,
    /// The acquisitions that had their token when this one began, as bits.
    pub after: u8,
    /// It was under way when the node restarted.
    pub old: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub nodes: [Node; NODES],
    pub acquisitions: [Acquisition; ACQUISITIONS],
    pub restarted: bool,
}

impl State {
    pub(super) fn root(model: &Model, counters: &[u8]) -> Self {
        let talk = Talk { ask: Ask::Nothing, number: 0, write: Write::Nothing };
        let node = Node { counter: 0, owner: 0, votes: true, refill: 0, talks: [talk; ACQUISITIONS] };
        let idle = Acquisition { phase: Phase::Idle, proposal: 0, token: 0, after: 0, old: false };
        let mut state = Self {
            nodes: [node; NODES],
            acquisitions: [idle; ACQUISITIONS],
            restarted: !model.rules.restart,
        };
        for (node, counter) in state.nodes.iter_mut().zip(counters) {
            node.counter = *counter;
        }
        state
    }

    pub(super) fn start(&mut self, model: &Model, at: usize, proposal: u8) {
        let done = |one: &Acquisition| one.phase == Phase::Done;
        let after = (0..model.acquisitions)
            .filter(|other| done(&self.acquisitions[*other]))
            .fold(0, |bits, other| bits | 1 << other);
        self.acquisitions[at] = Acquisition { phase: Phase::Asking, proposal, token: 0, after, old: false };
        for node in &mut self.nodes[..model.nodes] {
            node.talks[at].ask = Ask::Request;
        }
    }

    /// Nodes are interchangeable.
    pub(super) fn sort_nodes(&mut self, model: &Model) {
        self.nodes[..model.nodes].sort_unstable();
    }

    /// Forgets what can change nothing any more.
    pub(super) fn prune(&mut self, model: &Model) {
        for (at, one) in self.acquisitions.iter_mut().enumerate().take(model.acquisitions) {
            let over = matches!(one.phase, Phase::Done | Phase::GivenUp);
            if over {
                one.proposal = if one.phase == Phase::GivenUp { 0 } else { one.proposal };
                one.old = false;
            }
            for node in &mut self.nodes[..model.nodes] {
                let talk = &mut node.talks[at];
                // Answers to nobody. Requests may still be carried out.
                if over && talk.ask != Ask::Request {
                    (talk.ask, talk.number) = (Ask::Nothing, 0);
                }
                if over && talk.write != Write::Request {
                    talk.write = Write::Nothing;
                }
            }
        }
    }

    pub(super) fn pack(&self, model: &Model) -> Packed {
        let mut bits = Bits::default();
        bits.put(u64::from(self.restarted), 1);
        for one in &self.acquisitions[..model.acquisitions] {
            bits.put(one.phase as u64, 3);
            bits.put(u64::from(one.proposal), 3);
            bits.put(u64::from(one.token), 4);
            bits.put(u64::from(one.after), 3);
            bits.put(u64::from(one.old), 1);
        }
        for node in &self.nodes[..model.nodes] {
            bits.put(u64::from(node.counter), 4);
            bits.put(u64::from(node.owner), 2);
            bits.put(u64::from(node.votes), 1);
            bits.put(u64::from(node.refill), 4);
            for talk in &node.talks[..model.acquisitions] {
                bits.put(talk.ask as u64, 2);
                bits.put(u64::from(talk.number), 4);
                bits.put(talk.write as u64, 2);
            }
        }
        bits.words
    }

    pub(super) fn unpack(model: &Model, words: Packed) -> Self {
        let mut bits = Bits { words, at: 0 };
        let mut take = |width| bits.take(width) as u8;
        let mut state = Self::root(model, &[]);
        state.restarted = take(1) == 1;
        for one in &mut state.acquisitions[..model.acquisitions] {
            const PHASES: [Phase; 5] =
                [Phase::Idle, Phase::Asking, Phase::Writing, Phase::Done, Phase::GivenUp];
            *one = Acquisition {
                phase: PHASES[usize::from(take(3))],
                proposal: take(3),
                token: take(4),
                after: take(3),
                old: take(1) == 1,
            };
        }
        for node in &mut state.nodes[..model.nodes] {
            node.counter = take(4);
            node.owner = take(2);
            node.votes = take(1) == 1;
            node.refill = take(4);
            for talk in &mut node.talks[..model.acquisitions] {
                const ASKS: [Ask; 4] = [Ask::Nothing, Ask::Request, Ask::Answer, Ask::Known];
                const WRITES: [Write; 4] = [Write::Nothing, Write::Request, Write::Answer, Write::Known];
                *talk = Talk {
                    ask: ASKS[usize::from(take(2))],
                    number: take(4),
                    write: WRITES[usize::from(take(2))],
                };
            }
        }
        state
    }
}

/// The name of an acquisition in a trace.
pub(super) fn name(at: usize) -> char {
    char::from(b'A' + at as u8)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in &self.nodes {
            let owner = if node.owner == 0 { '-' } else { name(usize::from(node.owner) - 1) };
            let closed = if node.votes { "" } else { " closed" };
            write!(f, "[{owner} {}{closed}] ", node.counter)?;
        }
        for (at, one) in self.acquisitions.iter().enumerate() {
            if one.phase != Phase::Idle {
                write!(f, "{} {:?} {} ", name(at), one.phase, one.token)?;
            }
        }
        Ok(())
    }
}
