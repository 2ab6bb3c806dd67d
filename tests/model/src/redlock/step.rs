//! Everything that can happen next.

use std::fmt;

use super::state::{Ask, Model, Phase, State, Write, name};

/// What happened, for traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Started { who: usize, proposal: u8 },
    Asked { who: usize, node: usize },
    Heard { who: usize, node: usize },
    Decided { who: usize },
    Wrote { who: usize, node: usize },
    HeardOfWrite { who: usize, node: usize },
    GaveUp { who: usize },
    Expired { node: usize },
    Restarted { node: usize },
    ReadForRestarted { node: usize },
    LetIn { node: usize },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Started { who, proposal } => write!(f, "{} starts, proposes {proposal}", name(who)),
            Self::Asked { who, node } => write!(f, "node {node} carries out the request of {}", name(who)),
            Self::Heard { who, node } => write!(f, "{} hears yes from node {node}", name(who)),
            Self::Decided { who } => write!(f, "{} has a majority", name(who)),
            Self::Wrote { who, node } => write!(f, "node {node} carries out the write of {}", name(who)),
            Self::HeardOfWrite { who, node } => write!(f, "{} hears that node {node} wrote", name(who)),
            Self::GaveUp { who } => write!(f, "{} gives up", name(who)),
            Self::Expired { node } => write!(f, "the lease on node {node} ends"),
            Self::Restarted { node } => write!(f, "node {node} restarts empty"),
            Self::ReadForRestarted { node } => write!(f, "the others' counters are read for node {node}"),
            Self::LetIn { node } => write!(f, "node {node} votes again"),
        }
    }
}

pub(super) struct Successor {
    pub event: Event,
    pub state: State,
    /// The acquisition that has its token from this step on.
    pub done: Option<usize>,
}

impl State {
    pub(super) fn successors(&self, model: &Model, found: &mut Vec<Successor>) {
        for who in 0..model.acquisitions {
            self.of_acquisition(model, who, found);
        }
        for node in 0..model.nodes {
            self.of_node(model, node, found);
        }
    }

    fn of_acquisition(&self, model: &Model, who: usize, found: &mut Vec<Successor>) {
        let mut add = |event, state, done| found.push(Successor { event, state, done });
        let one = self.acquisitions[who];
        if one.phase == Phase::Idle {
            // Acquisitions that have not begun are interchangeable: the first one begins.
            if who == 0 || self.acquisitions[who - 1].phase != Phase::Idle {
                for proposal in model.proposals {
                    let mut next = *self;
                    next.start(model, who, *proposal);
                    add(Event::Started { who, proposal: *proposal }, next, None);
                }
            }
            return;
        }
        let under_way = matches!(one.phase, Phase::Asking | Phase::Writing);
        for node in 0..model.nodes {
            let talk = self.nodes[node].talks[who];
            if talk.ask == Ask::Request {
                add(Event::Asked { who, node }, self.asked(who, node), None);
            }
            if talk.ask == Ask::Answer && under_way {
                let mut next = *self;
                next.nodes[node].talks[who].ask = Ask::Known;
                let done = next.finish_if_told(model, who);
                add(Event::Heard { who, node }, next, done);
            }
            if talk.write == Write::Request {
                add(Event::Wrote { who, node }, self.wrote(model, who, node), None);
            }
            if talk.write == Write::Answer && under_way {
                let mut next = *self;
                next.nodes[node].talks[who].write = Write::Known;
                let done = next.finish_if_told(model, who);
                add(Event::HeardOfWrite { who, node }, next, done);
            }
        }
        if one.phase == Phase::Asking && self.known(model, who).count() >= model.needed() {
            let (next, done) = self.decided(model, who);
            add(Event::Decided { who }, next, done);
        }
        if under_way {
            let mut next = *self;
            next.acquisitions[who].phase = Phase::GivenUp;
            next.acquisitions[who].token = 0;
            add(Event::GaveUp { who }, next, None);
        }
    }

    /// The numbers that an acquisition knows.
    fn known(&self, model: &Model, who: usize) -> impl Iterator<Item = u8> + '_ {
        let talks = self.nodes[..model.nodes].iter().map(move |node| node.talks[who]);
        talks.filter(|talk| talk.ask == Ask::Known).map(|talk| talk.number)
    }

    fn asked(&self, who: usize, node: usize) -> Self {
        let mut next = *self;
        let proposal = self.acquisitions[who].proposal;
        let place = &mut next.nodes[node];
        place.talks[who].ask = Ask::Nothing;
        if place.votes && place.owner == 0 {
            place.counter = (place.counter + 1).max(proposal);
            place.owner = who as u8 + 1;
            place.talks[who].ask = Ask::Answer;
            place.talks[who].number = place.counter;
        }
        next
    }

    fn decided(&self, model: &Model, who: usize) -> (Self, Option<usize>) {
        let mut next = *self;
        let token = self.known(model, who).max().unwrap_or(0);
        next.acquisitions[who].token = token;
        if !model.rules.write_back {
            next.acquisitions[who].phase = Phase::Done;
            return (next, Some(who));
        }
        next.acquisitions[who].phase = Phase::Writing;
        for node in &mut next.nodes[..model.nodes] {
            if node.talks[who].ask == Ask::Known && node.talks[who].number < token {
                node.talks[who].write = Write::Request;
            }
        }
        let done = next.finish_if_told(model, who);
        (next, done)
    }

    /// The token may be used once a majority has it.
    fn finish_if_told(&mut self, model: &Model, who: usize) -> Option<usize> {
        let one = self.acquisitions[who];
        if one.phase != Phase::Writing {
            return None;
        }
        let told = self.nodes[..model.nodes].iter().filter(|node| {
            let talk = node.talks[who];
            let larger = talk.number > one.token && !model.rules.larger_is_no_proof;
            let has_it = talk.number == one.token || larger;
            (talk.ask == Ask::Known && has_it) || talk.write == Write::Known
        });
        (told.count() >= model.needed()).then(|| {
            self.acquisitions[who].phase = Phase::Done;
            who
        })
    }

    fn wrote(&self, model: &Model, who: usize, node: usize) -> Self {
        let mut next = *self;
        let token = self.acquisitions[who].token;
        let place = &mut next.nodes[node];
        place.talks[who].write = Write::Nothing;
        if place.owner == who as u8 + 1 || !model.rules.only_the_owner {
            place.counter = place.counter.max(token);
            place.talks[who].write = Write::Answer;
        }
        next
    }

    fn of_node(&self, model: &Model, node: usize, found: &mut Vec<Successor>) {
        let mut add = |event, state| found.push(Successor { event, state, done: None });
        if self.nodes[node].owner != 0 {
            let mut next = *self;
            next.nodes[node].owner = 0;
            add(Event::Expired { node }, next);
        }
        if !self.restarted {
            add(Event::Restarted { node }, self.after_restart(model, node));
        }
        if self.nodes[node].votes {
            return;
        }
        if self.nodes[node].refill > 0 {
            let mut next = *self;
            let place = &mut next.nodes[node];
            // One more than was read, so that 0 can say that nothing was.
            place.counter = place.counter.max(place.refill - 1);
            (place.votes, place.refill) = (true, 0);
            add(Event::LetIn { node }, next);
        }
        let old_goes_on = self.acquisitions[..model.acquisitions]
            .iter()
            .any(|one| one.old && matches!(one.phase, Phase::Asking | Phase::Writing));
        if self.nodes[node].refill == 0 && !(model.rules.wait && old_goes_on) {
            for largest in self.readings(model, node) {
                let mut next = *self;
                next.nodes[node].refill = largest + 1;
                add(Event::ReadForRestarted { node }, next);
            }
        }
    }

    fn after_restart(&self, model: &Model, node: usize) -> Self {
        let mut next = *self;
        next.restarted = true;
        for one in &mut next.acquisitions {
            one.old = matches!(one.phase, Phase::Asking | Phase::Writing);
        }
        let place = &mut next.nodes[node];
        (place.counter, place.owner, place.votes) = (0, 0, !model.rules.gate);
        for talk in &mut place.talks {
            if talk.ask == Ask::Request {
                talk.ask = Ask::Nothing;
            }
            if talk.write == Write::Request {
                talk.write = Write::Nothing;
            }
        }
        next
    }

    /// The largest counters that can be read from enough other nodes that vote.
    fn readings(&self, model: &Model, node: usize) -> Vec<u8> {
        let others: Vec<_> = (0..model.nodes)
            .filter(|other| *other != node && self.nodes[*other].votes)
            .map(|other| self.nodes[other].counter)
            .collect();
        let mut found: Vec<u8> = (0u32..1 << others.len())
            .filter(|chosen| chosen.count_ones() as usize == model.covering())
            .filter_map(|chosen| {
                let read = others.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
                read.map(|(_, counter)| *counter).max()
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Judges the token of an acquisition that has just finished.
    pub(super) fn judge(&self, model: &Model, who: usize) -> Option<String> {
        let mine = self.acquisitions[who];
        (0..model.acquisitions).filter(|other| *other != who).find_map(|other| {
            let theirs = self.acquisitions[other];
            if theirs.phase != Phase::Done {
                return None;
            }
            let (me, they) = (name(who), name(other));
            if theirs.token == mine.token {
                return Some(format!("{me} and {they} have the same token {}", mine.token));
            }
            let later = mine.after >> other & 1 == 1;
            (later && mine.token < theirs.token)
                .then(|| format!("{me} began after {they} had {}, and has only {}", theirs.token, mine.token))
        })
    }
}
