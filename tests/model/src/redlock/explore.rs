//! Breadth-first search and random walks over the model.

use std::fmt;

use super::state::{Model, State};
use super::step::Successor;
use crate::store::{Packed, Random, Visited};

/// What a search saw.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Distinct states, for a breadth-first search.
    pub states: usize,
    pub steps: u64,
    /// How often an acquisition got its token.
    pub tokens: u64,
    /// No reachable state is left unvisited within the bounds.
    pub exhausted: bool,
    pub violation: Option<Found>,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states, {} steps, {} tokens", self.states, self.steps, self.tokens)?;
        f.write_str(if self.exhausted { ", exhausted" } else { "" })?;
        match &self.violation {
            Some(found) => write!(f, "\n{found}"),
            None => f.write_str(", no violation"),
        }
    }
}

/// A broken promise, and the way to it.
#[derive(Debug, Clone)]
pub struct Found {
    pub what: String,
    pub events: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {} steps:", self.what, self.events.len())?;
        self.events.iter().enumerate().try_for_each(|(at, event)| writeln!(f, "{:3}. {event}", at + 1))
    }
}

/// Visits states in the order of their distance until a violation, the end, or the limit. A violation
/// found this way has a shortest trace.
#[must_use]
pub fn search(model: &Model, most_states: usize) -> Search {
    let mut search = Search::default();
    let mut visited = Visited::new();
    for counters in roots(model) {
        let mut root = State::root(model, &counters);
        let packed = settle(model, &mut root);
        let place = visited.len();
        visited.insert(packed, place);
    }
    let (mut at, mut found) = (0, Vec::new());
    while at < visited.len() && visited.len() < most_states {
        let state = State::unpack(model, visited.get(at));
        state.successors(model, &mut found);
        for Successor { mut state, done, .. } in found.drain(..) {
            search.steps += 1;
            search.tokens += u64::from(done.is_some());
            let bad = done.is_some_and(|who| state.judge(model, who).is_some());
            let packed = settle(model, &mut state);
            if bad {
                let mut path = visited.path_to(at);
                path.push(packed);
                search.states = visited.len();
                search.violation = Some(retrace(model, &path));
                return search;
            }
            visited.insert(packed, at);
        }
        at += 1;
    }
    search.exhausted = at == visited.len();
    search.states = visited.len();
    search
}

/// Takes seeded random walks until a violation or the given number of steps.
#[must_use]
pub fn walk(model: &Model, seed: u64, steps: u64) -> Search {
    let mut search = Search::default();
    let mut random = Random::new(seed);
    let roots = roots(model);
    let (mut path, mut found): (Vec<Packed>, Vec<Successor>) = (Vec::new(), Vec::new());
    while search.steps < steps {
        let mut state = match path.last() {
            Some(packed) => State::unpack(model, *packed),
            None => State::root(model, &roots[random.below(roots.len())]),
        };
        if path.is_empty() {
            path.push(settle(model, &mut state));
        }
        state.successors(model, &mut found);
        if found.is_empty() {
            path.clear();
            continue;
        }
        let chosen = random.below(found.len());
        let Successor { mut state, done, .. } = found.swap_remove(chosen);
        found.clear();
        search.steps += 1;
        search.tokens += u64::from(done.is_some());
        let bad = done.is_some_and(|who| state.judge(model, who).is_some());
        path.push(settle(model, &mut state));
        if bad {
            search.violation = Some(retrace(model, &path));
            return search;
        }
    }
    search
}

/// Every way in which the nodes can begin; their order does not matter.
fn roots(model: &Model) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for _ in 0..model.nodes {
        all = all
            .iter()
            .flat_map(|begun: &Vec<u8>| {
                let least = begun.last().copied().unwrap_or(0);
                let more = model.counters.iter().filter(move |counter| **counter >= least);
                more.map(move |counter| begun.iter().copied().chain([*counter]).collect())
            })
            .collect();
    }
    all
}

fn settle(model: &Model, state: &mut State) -> Packed {
    state.prune(model);
    state.sort_nodes(model);
    state.pack(model)
}

/// Tells a path. The numbers of nodes are those of each line's state, where they are sorted anew.
fn retrace(model: &Model, path: &[Packed]) -> Found {
    let (mut events, mut found, mut what) = (Vec::new(), Vec::new(), String::new());
    for pair in path.windows(2) {
        State::unpack(model, pair[0]).successors(model, &mut found);
        let step = found.drain(..).find_map(|Successor { event, mut state, done }| {
            let verdict = done.and_then(|who| state.judge(model, who));
            (settle(model, &mut state) == pair[1]).then_some((event, state, verdict))
        });
        let (event, state, verdict) = step.expect("the path was walked before");
        events.push(format!("{event} | {state}"));
        what = verdict.unwrap_or(what);
    }
    Found { what, events }
}
