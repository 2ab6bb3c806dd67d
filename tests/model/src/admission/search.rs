//! Breadth-first search.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use super::World;
use super::state::{Phase, State, name};
use super::step::{Event, Violation};

/// What a search saw.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Distinct states.
    pub states: usize,
    /// Events looked at.
    pub steps: u64,
    /// How often a client got the lock.
    pub granted: u64,
    /// How often a node was opened.
    pub opened: u64,
    /// No reachable state is left unvisited within the bounds.
    pub exhausted: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// The shortest way to a violation.
    pub violation: Option<Trace>,
}

/// A way from the first state to a violation.
#[derive(Debug, Clone)]
pub struct Trace {
    /// What is broken.
    pub violation: Violation,
    /// The state that it begins with.
    pub begin: String,
    /// Each event, with the state that it leaves behind.
    pub events: Vec<String>,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, steps, granted, opened, elapsed, .. } = self;
        write!(f, "{states} states, {steps} steps, {granted} grants, {opened} openings, ")?;
        write!(f, "{:.1} s", elapsed.as_secs_f64())?;
        f.write_str(if self.exhausted { ", exhausted" } else { "" })?;
        let Some(trace) = &self.violation else { return f.write_str(", no violation") };
        writeln!(f, "\n{:?} after {} events:\n  0. {}", trace.violation, trace.events.len(), trace.begin)?;
        trace.events.iter().enumerate().try_for_each(|(at, event)| writeln!(f, "{:3}. {event}", at + 1))
    }
}

/// Visits states in the order of their distance until a violation, the end, or the limit. A violation
/// found this way has a shortest trace.
#[must_use]
pub fn search(world: &World, most_states: usize) -> Search {
    let started = Instant::now();
    let mut report = Search::default();
    // A collision of two hashes would only leave a state out, once in about 2^64 / states².
    let mut visited: HashSet<u64, BuildHasherDefault<Marked>> = HashSet::default();
    let mark = |state: &State| {
        let mut hasher = Mixed::default();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let roots = State::roots(world);
    let (mut ways, mut open) = (Vec::new(), VecDeque::new());
    for (at, root) in roots.iter().enumerate() {
        visited.insert(mark(root));
        ways.push((index(at), None));
        open.push_back(*root);
    }
    let (mut at, mut found) = (0, Vec::new());
    while ways.len() < most_states
        && report.violation.is_none()
        && let Some(state) = open.pop_front()
    {
        state.successors(world, &mut found);
        for mut next in found.drain(..) {
            report.steps += 1;
            report.granted += u64::from(matches!(next.event, Event::Decide { .. }));
            report.opened += u64::from(matches!(next.event, Event::Open { .. }));
            if let Some(violation) = next.violation {
                report.violation = Some(retrace(world, &roots, &ways, at, (next.event, violation)));
                break;
            }
            next.state.settle(world);
            if visited.insert(mark(&next.state)) {
                ways.push((index(at), Some(next.event)));
                open.push_back(next.state);
            }
        }
        at += 1;
    }
    report.exhausted = report.violation.is_none() && open.is_empty();
    report.states = ways.len();
    report.elapsed = started.elapsed();
    report
}

fn retrace(
    world: &World,
    roots: &[State],
    ways: &[(u32, Option<Event>)],
    mut at: usize,
    (last, violation): (Event, Violation),
) -> Trace {
    let mut events = vec![last];
    while let (parent, Some(event)) = ways[at] {
        events.push(event);
        at = parent as usize;
    }
    let mut state = roots[at];
    let begin = state.to_string();
    let walked = events.into_iter().rev().map(|event| {
        let told = tell(&state, event);
        state.apply(world, event).expect("the path was walked before");
        state.settle(world);
        format!("{told} | {state}")
    });
    Trace { violation, begin, events: walked.collect() }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("memory ends long before four thousand million states")
}

/// Hashes the many small fields of a state: each is mixed in by a multiplication whose halves are folded.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_i8(&mut self, number: i8) {
        self.write_u64(number.cast_unsigned().into());
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let odd = (self.0 ^ number).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let wide = u128::from(odd) * 0xD6E8_FEB8_6659_FD93;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64).rotate_left(23);
    }
}

/// What is a hash already.
#[derive(Default)]
struct Marked(u64);

impl Hasher for Marked {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole hashes are kept");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// An event in words, with the nodes' names.
fn tell(state: &State, event: Event) -> String {
    let node = |at: u8| state.nodes[usize::from(at)].name + 1;
    let client = |at: u8| name(usize::from(at));
    match event {
        Event::Tick => "a tick passes".to_owned(),
        Event::Restart { node: at, kept } => format!("{} restarts, keeps {kept:?}", node(at)),
        Event::Step { node: at, forward } => {
            format!("the clock of {} steps {}", node(at), if forward { "forward" } else { "back" })
        }
        Event::Look { client: who, nodes } => {
            let mut seen: Vec<_> = (0..state.count).filter(|at| nodes >> at & 1 == 1).map(node).collect();
            seen.sort_unstable();
            format!("{} looks at {seen:?}", client(who))
        }
        Event::Open { client: who, node: at } => format!("{} opens {}", client(who), node(at)),
        Event::Ask { client: who, node: at } => format!("{} asks {}", client(who), node(at)),
        Event::Decide { client: who } => match state.clients[usize::from(who)].phase {
            Phase::Asking { since } => format!("{} has the lock, asked {since} ago", client(who)),
            _ => format!("{} has the lock", client(who)),
        },
        Event::GiveUp { client: who } => format!("{} gives up", client(who)),
        Event::Renew { client: who } => format!("{} renews", client(who)),
        Event::Heal { client: who, node: at } => format!("{} heals {}", client(who), node(at)),
        Event::Release { client: who } => format!("{} releases", client(who)),
    }
}
