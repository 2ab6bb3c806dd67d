//! Breadth-first search, random walks, and traces of what they find.

use crate::message::client_name;
use crate::rules::Model;
use crate::shipped;
use crate::state::{Client, Phase, State};
use crate::step::{Successor, Violation};
use crate::store::{Packed, Random, Visited};
use std::fmt;
use std::time::{Duration, Instant};

/// What a search saw.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Distinct states, for a breadth-first search.
    pub states: usize,
    /// Events taken or looked at.
    pub steps: u64,
    /// Entries into a critical section among those events.
    pub entries: u64,
    /// Entries on a push, without a round trip.
    pub push_entries: u64,
    /// Most events from the initial state.
    pub depth: usize,
    /// Whether no reachable state is left unvisited within the bounds.
    pub exhausted: bool,
    /// How long the search took.
    pub elapsed: Duration,
    /// The violation that ended the search.
    pub violation: Option<Trace>,
}

impl Report {
    fn count(&mut self, next: &Successor) {
        self.steps += 1;
        if let Some(entry) = next.entry {
            self.entries += 1;
            self.push_entries += u64::from(entry.by_push);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, entries, push_entries, depth, .. } = self;
        if *states > 0 {
            write!(f, "{states} states, ")?;
        }
        write!(f, "{steps} steps, {entries} entries ({push_entries} without a round trip), ")?;
        write!(f, "depth {depth}")?;
        if self.exhausted {
            write!(f, ", exhausted")?;
        }
        write!(f, ", {:.1} s", self.elapsed.as_secs_f64())?;
        match &self.violation {
            Some(trace) => write!(f, "\n{trace}"),
            None => write!(f, ", no violation"),
        }
    }
}

/// A way from the initial state to a violation.
#[derive(Debug, Clone)]
pub struct Trace {
    /// What was violated.
    pub violation: Violation,
    /// One line per event.
    pub events: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {} steps:", self.violation, self.events.len())?;
        for (i, event) in self.events.iter().enumerate() {
            writeln!(f, "{:3}. {event}", i + 1)?;
        }
        Ok(())
    }
}

/// Visits states in the order of their distance until a violation, the end, or the limit.
///
/// A violation found this way has a shortest trace.
#[must_use]
pub fn breadth_first(model: &Model, most_states: usize) -> Report {
    let started = Instant::now();
    let mut report = Report::default();
    let mut visited = Visited::new();
    visited.insert(root(model), 0);
    let mut found = Vec::new();
    let mut at = 0;
    let mut next_level = 1;
    'search: while at < visited.len() && visited.len() < most_states {
        if at == next_level {
            report.depth += 1;
            next_level = visited.len();
        }
        let state = State::unpack(model, visited.get(at));
        state.successors(model, &mut found);
        for mut next in found.drain(..) {
            report.count(&next);
            let verdict = verdict(model, &state, &mut next);
            let packed = settle(model, &mut next.state);
            if verdict.is_err() {
                let mut path = visited.path_to(at);
                path.push(packed);
                report.depth = path.len() - 1;
                report.violation = Some(replay(model, &path));
                break 'search;
            }
            visited.insert(packed, at);
        }
        at += 1;
    }
    report.exhausted = report.violation.is_none() && at == visited.len();
    report.states = visited.len();
    report.elapsed = started.elapsed();
    report
}

/// Which random walks to take.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// Where the random numbers start; the same seed repeats the same walks.
    pub seed: u64,
    /// Steps over all walks.
    pub steps: u64,
    /// Steps of one walk before the next one starts from the initial state.
    pub length: usize,
}

/// Takes seeded random walks until a violation or the given number of steps.
#[must_use]
pub fn random_walks(model: &Model, walk: Walk) -> Report {
    let started = Instant::now();
    let mut report = Report::default();
    let mut random = Random::new(walk.seed);
    let mut found = Vec::new();
    let mut path = vec![root(model)];
    let mut state = State::unpack(model, path[0]);
    while report.steps < walk.steps {
        if path.len() > walk.length {
            path.truncate(1);
            state = State::unpack(model, path[0]);
        }
        state.successors(model, &mut found);
        let mut next = found[random.below(found.len())];
        found.clear();
        report.count(&next);
        let verdict = verdict(model, &state, &mut next);
        path.push(settle(model, &mut next.state));
        state = next.state;
        report.depth = report.depth.max(path.len() - 1);
        if verdict.is_err() {
            report.violation = Some(replay(model, &path));
            break;
        }
    }
    report.elapsed = started.elapsed();
    report
}

fn verdict(model: &Model, before: &State, next: &mut Successor) -> Result<(), Violation> {
    shipped::follows(model, before, next)?;
    next.state.check(model, before, next.entry)
}

fn root(model: &Model) -> Packed {
    State::initial(model).pack()
}

fn settle(model: &Model, state: &mut State) -> Packed {
    state.prune(model);
    state.canonical(model);
    state.pack()
}

/// Walks a path of canonical states again with the real names and numbers.
///
/// This also tests the canonical form: every step between canonical states must have a counterpart
/// between real ones, and the violation must show there as well.
fn replay(model: &Model, path: &[Packed]) -> Trace {
    let mut state = State::initial(model);
    let mut events = Vec::new();
    let mut found = Vec::new();
    for (i, target) in path.iter().enumerate().skip(1) {
        let last = i + 1 == path.len();
        state.successors(model, &mut found);
        let step = found.drain(..).find_map(|mut next| {
            let verdict = verdict(model, &state, &mut next);
            next.state.prune(model);
            let mut canonical = next.state;
            let packed = settle(model, &mut canonical);
            (packed == *target && verdict.is_err() == last).then_some((next, verdict))
        });
        let (next, verdict) = step.expect("canonical and real states take the same steps");
        state = next.state;
        events.push(format!("{} | {state}", next.event));
        if let Err(violation) = verdict {
            return Trace { violation, events };
        }
    }
    unreachable!("the last step of a replayed path is a violation")
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lock {
            Some(lock) => {
                let (owner, fence, left) = (lock.owner, lock.fence, lock.expires_in);
                write!(f, "lock {owner}#{fence} for {left}")?;
            }
            None => write!(f, "free")?,
        }
        if !self.queue.is_empty() {
            write!(f, "; queue")?;
        }
        for owner in self.queue.iter() {
            write!(f, " {owner}")?;
        }
        for (i, client) in self.clients().iter().enumerate() {
            let Client { fence, time, .. } = client;
            match client.phase {
                Phase::Idle => {}
                Phase::Waiting => write!(f, "; {} waits", client_name(i))?,
                Phase::Anchored => {
                    write!(f, "; {} waits, anchor #{fence} {time} ago", client_name(i))?;
                }
                Phase::Held => write!(f, "; {} holds #{fence} for {time}", client_name(i))?,
                Phase::Lost => write!(f, "; {} lost #{fence}", client_name(i))?,
            }
        }
        Ok(())
    }
}
