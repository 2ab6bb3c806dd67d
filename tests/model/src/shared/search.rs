//! Breadth-first search and random walks.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::state::{Phase, State};
use super::step::{Event, Violation};
use super::{Rule, World};
use crate::store::Random;

/// What a search saw.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Distinct states, for a breadth-first search.
    pub states: usize,
    /// Events looked at.
    pub steps: u64,
    /// Most clients that were inside at the same time.
    pub most_inside: usize,
    /// Whether no reachable state is left unvisited within the bounds.
    pub exhausted: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// The violation that ended it, and the way to it.
    pub violation: Option<Trace>,
}

/// A way from the initial state to a violation.
#[derive(Debug, Clone)]
pub struct Trace {
    /// What was violated.
    pub violation: Violation,
    /// The rule that the world was without.
    pub without: Option<Rule>,
    /// The events.
    pub events: Vec<Event>,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, most_inside, elapsed, .. } = self;
        write!(f, "{states} states, {steps} steps, at most {most_inside} inside at once")?;
        write!(f, "{}, {:.1} s", if self.exhausted { ", exhausted" } else { "" }, elapsed.as_secs_f64())?;
        let Some(trace) = &self.violation else { return f.write_str(", no violation") };
        writeln!(f, "\n{:?} without {:?}:", trace.violation, trace.without)?;
        trace.events.iter().enumerate().try_for_each(|(at, event)| writeln!(f, "{:3}. {event:?}", at + 1))
    }
}

fn inside(state: &State) -> usize {
    state.clients.iter().filter(|client| matches!(client.phase, Phase::Held { .. })).count()
}

/// Visits states in the order of their distance until a violation, the end, or the limit. A violation
/// found this way has a shortest trace.
#[must_use]
pub fn search(world: &World, most_states: usize) -> Search {
    let started = Instant::now();
    let mut report = Search::default();
    // A collision of two hashes would only leave a state out, once in about 2^64 / states².
    let mut visited = HashSet::new();
    let mark = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let root = State::initial(world);
    visited.insert(mark(&root));
    let mut nodes: Vec<(State, usize, Option<Event>)> = vec![(root, 0, None)];
    let mut at = 0;
    'search: while at < nodes.len() && nodes.len() < most_states {
        let state = std::mem::replace(&mut nodes[at].0, State::initial(world));
        for mut next in state.successors(world) {
            report.steps += 1;
            report.most_inside = report.most_inside.max(inside(&next.state));
            if let Some(violation) = next.violation {
                let mut events = vec![next.event];
                let mut back = at;
                while let (_, parent, Some(event)) = &nodes[back] {
                    events.push(*event);
                    back = *parent;
                }
                events.reverse();
                report.violation = Some(Trace { violation, without: world.without, events });
                break 'search;
            }
            next.state.settle(world);
            if visited.insert(mark(&next.state)) {
                nodes.push((next.state, at, Some(next.event)));
            }
        }
        at += 1;
    }
    report.exhausted = report.violation.is_none() && at == nodes.len();
    report.states = nodes.len();
    report.elapsed = started.elapsed();
    report
}

/// Takes seeded random walks of this length until a violation or the given number of steps.
#[must_use]
pub fn walk(world: &World, seed: u64, steps: u64, length: usize) -> Search {
    let started = Instant::now();
    let mut report = Search::default();
    let mut random = Random::new(seed);
    while report.steps < steps && report.violation.is_none() {
        let (mut state, mut events) = (State::initial(world), Vec::new());
        while events.len() < length {
            let mut all = state.successors(world);
            let next = all.swap_remove(random.below(all.len()));
            report.steps += 1;
            report.most_inside = report.most_inside.max(inside(&next.state));
            events.push(next.event);
            if let Some(violation) = next.violation {
                report.violation = Some(Trace { violation, without: world.without, events });
                break;
            }
            state = next.state;
            state.settle(world);
        }
    }
    report.elapsed = started.elapsed();
    report
}
