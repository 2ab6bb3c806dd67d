//! A bounded model check of leases that stay with their client after a release.
//!
//! # What is shipped and what is restated
//!
//! What the keeper decides is the core's own `Keeping`, included from `core/src/policy`, with the
//! numbers that it is given made small. Restated are the store's `poll`, `keep`, `renew` and `release`, and the few
//! lines of `core/src/driver/keep.rs` that carry the decisions out.
//!
//! # What is modelled
//!
//! - **The keeper** is one client whose callers come and go, one at a time: a caller enters under the kept lease if it
//!   can, and else asks the store like any other client. It is stopped for any time by not being chosen, and its
//!   callers stay in the section for as long as they like, also beyond the lease, which they find out by its clock.
//! - **The other client** asks, waits in the queue, enters, stays, releases or lets its lease run out. In a world with
//!   [`World::older`] it is of a version whose requests make the store push nothing to the keeper.
//! - **Messages**: a request of the keeper is carried out at any time after it was sent, also when the keeper has given
//!   it up, and its answer arrives at any time after that or is lost. The message that the lock is wanted comes at any
//!   time or not at all. The other client's requests are carried out and answered at once.
//! - **Time**: discrete. A lease ends at the store after [`World::lease`] ticks, and for its holder as many ticks after
//!   its request was sent.
//!
//! # What is checked
//!
//! Two callers never rely on the lock at one time; every entry has a larger token than every entry before; and while
//! another client waits, the keeper enters no more once it was told so or a renewal was due. That holds with lost
//! messages and beside older versions, too, so no waiter is starved.
//!
//! # What is not modelled
//!
//! More clients than two, loss of the store's data, an operator who breaks a lease, and the lengths of time for which a
//! lease may be idle: the keeper may let go of an idle one at any time.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::policy::keeping::{Keeping, Left};

/// One rule of keeping a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// K1: an entry has a token that the store set aside.
    TokensAreSetAside,
    /// K2: once another client wants the lock, nobody enters any more.
    WantedEndsIt,
    /// K3: nobody enters while the store is asked, or after its answer got lost.
    AskedIsClosed,
    /// K4: nobody enters a lease that is at risk.
    SoundOnly,
    /// The store hands the lock on if a client is queued when it is asked.
    AskingHandsOn,
    /// At every renewal the store is asked, so that a waiter is found whose message was lost.
    RenewalsAsk,
}

/// One deployment. Durations are in ticks.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub lease: u8,
    /// How many tokens are set aside at a time.
    pub tokens: u64,
    /// Entries of both clients together.
    pub entries: u8,
    /// Ticks that pass.
    pub ticks: u8,
    /// The other client is of a version that has the store push nothing.
    pub older: bool,
    /// Messages to the keeper may be lost, and its answers.
    pub loses: bool,
    pub without: Option<Rule>,
}

impl World {
    /// Both clients are of this version.
    #[must_use]
    pub const fn usual() -> Self {
        Self { lease: 2, tokens: 2, entries: 6, ticks: 5, older: false, loses: true, without: None }
    }

    /// Returns this world without one rule.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self { without: Some(rule), ..self }
    }

    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Two callers rely on the lock at one time.
    TwoCallers,
    /// An entry has a token that is not larger than every one before.
    TokenFell,
    /// The keeper enters while another client waits, though it was told so or a renewal has come since.
    Starved,
    /// The keeper enters with no more than half of its lease left.
    AtRisk,
}

/// A request of the keeper that the store has not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Verb {
    Keep { tokens: u64 },
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Kept { tokens: Option<(u64, u64)> },
    Released,
    NotHeld,
}

/// A request on its way, and the answer on its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Request {
    verb: Verb,
    fence: u64,
    /// Ticks since it was sent.
    age: u8,
    answer: Option<Answer>,
    /// The keeper still waits for the answer.
    awaited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    is_keeper: bool,
    fence: u64,
    left: u8,
    is_kept: bool,
}

/// The keeper's lease, while it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    fence: u64,
    keeping: Keeping,
    /// Ticks for which it may be relied on.
    left: u8,
    /// The token of the caller who is in.
    inside: Option<u64>,
    /// A renewal was due, and is not made up for yet.
    due: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    holder: Option<Holder>,
    counter: u64,
    /// The other client is queued; the keeper is.
    queue: Vec<bool>,
    lease: Option<Lease>,
    /// The other client relies on the lock for so many ticks more.
    other: Option<(u64, u8)>,
    /// To the keeper: the lock under this fence is wanted.
    wanted: Vec<u64>,
    requests: Vec<Request>,
    newest: u64,
    entries: u8,
    ticks: u8,
    /// Since the other client was queued, the keeper has got the message, or a renewal of its lease was due.
    reminded: bool,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Tick,
    /// A caller of the keeper enters, or asks the store.
    KeeperEnters,
    KeeperLeaves,
    /// The keeper's lease was idle for long enough.
    KeeperIdle,
    /// A renewal of the keeper is due.
    KeeperRenews,
    OtherAsks,
    OtherLeaves,
    Delivered {
        wanted: usize,
    },
    Missed {
        wanted: usize,
    },
    CarriedOut {
        request: usize,
    },
    Answered {
        request: usize,
    },
    /// The keeper waits no longer for the answer.
    GivenUp {
        request: usize,
    },
}

/// What a search saw.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Distinct states.
    pub states: usize,
    /// Entries under a kept lease.
    pub kept_entries: u64,
    /// Entries of the other client.
    pub others: u64,
    /// No reachable state is left unvisited within the bounds.
    pub exhausted: bool,
    /// The shortest way to a violation.
    pub violation: Option<(Violation, Vec<String>)>,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, kept_entries, others, exhausted, violation } = self;
        write!(f, "{states} states, {kept_entries} entries of a kept lease, {others} of the other client")?;
        f.write_str(if *exhausted { ", exhausted" } else { "" })?;
        let Some((violation, way)) = violation else { return f.write_str(", no violation") };
        writeln!(f, "\n{violation:?} after {} events:", way.len())?;
        way.iter().enumerate().try_for_each(|(at, step)| writeln!(f, "{:3}. {step}", at + 1))
    }
}

/// Any moment will do: idleness is an event of its own here.
const NOW: BootInstant = BootInstant::from_nanos(0);
const IDLE_FOR: Duration = Duration::from_secs(1);

impl Lease {
    fn granted(world: &World, fence: u64) -> Self {
        Self { fence, keeping: Keeping::new(IDLE_FOR), left: world.lease, inside: Some(fence), due: false }
    }

    /// More than half of the lease is left: no renewal has failed for long.
    fn is_sound(&self, world: &World) -> bool {
        self.left > 0 && (!world.has(Rule::SoundOnly) || 2 * self.left > world.lease)
    }
}

impl State {
    fn new() -> Self {
        Self {
            holder: None,
            counter: 0,
            queue: Vec::new(),
            lease: None,
            other: None,
            wanted: Vec::new(),
            requests: Vec::new(),
            newest: 0,
            entries: 0,
            ticks: 0,
            reminded: false,
        }
    }

    fn events(&self, world: &World) -> Vec<Event> {
        let mut events = Vec::new();
        let more = self.entries < world.entries;
        if self.ticks < world.ticks {
            events.push(Event::Tick);
        }
        let inside = self.lease.as_ref().and_then(|lease| lease.inside);
        if more && inside.is_none() && !self.queue.contains(&true) {
            events.push(Event::KeeperEnters);
        }
        if inside.is_some() {
            events.push(Event::KeeperLeaves);
        }
        if let Some(lease) = &self.lease {
            if lease.keeping.is_free() {
                events.push(Event::KeeperIdle);
            }
            if lease.due {
                events.push(Event::KeeperRenews);
            }
        }
        if more && self.other.is_none() {
            events.push(Event::OtherAsks);
        }
        if self.other.is_some() {
            events.push(Event::OtherLeaves);
        }
        for wanted in 0..self.wanted.len() {
            events.push(Event::Delivered { wanted });
            if world.loses {
                events.push(Event::Missed { wanted });
            }
        }
        for (request, one) in self.requests.iter().enumerate() {
            if one.answer.is_none() {
                events.push(Event::CarriedOut { request });
            } else if one.awaited {
                events.push(Event::Answered { request });
            }
            if one.awaited && world.loses {
                events.push(Event::GivenUp { request });
            }
        }
        events
    }

    /// What an entry means for all that is checked.
    fn enters(&mut self, token: u64) -> Result<(), Violation> {
        self.entries += 1;
        if token <= self.newest {
            return Err(Violation::TokenFell);
        }
        self.newest = token;
        self.exclusive()
    }

    fn exclusive(&self) -> Result<(), Violation> {
        let keeper = self.lease.as_ref().is_some_and(|lease| lease.inside.is_some() && lease.left > 0);
        let other = self.other.is_some_and(|(_, left)| left > 0);
        if keeper && other { Err(Violation::TwoCallers) } else { Ok(()) }
    }

    /// The store grants to the first in the queue, who enters at once.
    fn grant_next(&mut self, world: &World) -> Result<(), Violation> {
        if self.holder.is_some() || self.queue.is_empty() {
            return Ok(());
        }
        let is_keeper = self.queue.remove(0);
        self.grant(world, is_keeper)
    }

    fn grant(&mut self, world: &World, is_keeper: bool) -> Result<(), Violation> {
        self.counter += 1;
        let fence = self.counter;
        self.holder = Some(Holder { is_keeper, fence, left: world.lease, is_kept: false });
        if is_keeper {
            self.lease = Some(Lease::granted(world, fence));
        } else {
            self.other = Some((fence, world.lease));
            self.reminded = false;
        }
        self.enters(fence)
    }

    /// A poll: acquires a free lock, and else is queued; a kept lock is asked for.
    fn poll(&mut self, world: &World, is_keeper: bool) -> Result<(), Violation> {
        if self.holder.is_none() {
            self.queue.retain(|queued| *queued != is_keeper);
            self.queue.insert(0, is_keeper);
            return self.grant_next(world);
        }
        if let Some(holder) = self.holder.filter(|holder| holder.is_kept)
            && (is_keeper || !world.older)
            && !self.wanted.contains(&holder.fence)
        {
            self.wanted.push(holder.fence);
        }
        if !self.queue.contains(&is_keeper) {
            self.queue.push(is_keeper);
        }
        Ok(())
    }

    fn send(&mut self, verb: Verb, fence: u64) {
        self.requests.push(Request { verb, fence, age: 0, answer: None, awaited: true });
    }

    fn apply(&mut self, world: &World, event: Event, seen: &mut Search) -> Result<(), Violation> {
        match event {
            Event::Tick => {
                self.ticks += 1;
                if let Some(holder) = &mut self.holder {
                    holder.left -= 1;
                    if holder.left == 0 {
                        self.holder = None;
                    }
                }
                if let Some(lease) = &mut self.lease {
                    lease.left = lease.left.saturating_sub(1);
                    lease.due = lease.left > 0;
                    if lease.left == 0 && lease.inside.is_none() && !lease.keeping.is_asked() {
                        self.lease = None;
                    }
                }
                if let Some((_, left)) = &mut self.other {
                    *left = left.saturating_sub(1);
                }
                for request in &mut self.requests {
                    request.age = request.age.saturating_add(1).min(world.lease);
                }
                Ok(())
            }
            Event::KeeperEnters => {
                let Some(lease) = &mut self.lease else { return self.poll(world, true) };
                let is_sound = lease.is_sound(world);
                // The variants see a lease as the rules that are left out would leave it.
                let token = match lease.keeping.enter(is_sound) {
                    Some(token) if world.has(Rule::TokensAreSetAside) => Some(token),
                    Some(_) => Some(self.newest + 1),
                    None if !world.has(Rule::AskedIsClosed) && lease.keeping.is_asked() && is_sound => {
                        self.counter += 1;
                        Some(self.counter)
                    }
                    None => None,
                };
                let Some(token) = token else {
                    // It waits for the answer of the store, or asks for the lock.
                    let waits = lease.keeping.is_asked() && lease.left > 0;
                    return if waits { Ok(()) } else { self.poll(world, true) };
                };
                lease.inside = Some(token);
                seen.kept_entries += 1;
                if 2 * lease.left <= world.lease {
                    return Err(Violation::AtRisk);
                }
                self.enters(token)?;
                if self.reminded && self.queue.contains(&false) { Err(Violation::Starved) } else { Ok(()) }
            }
            Event::KeeperLeaves => {
                let Some(lease) = &mut self.lease else { return Ok(()) };
                lease.inside = None;
                let is_sound = lease.is_sound(world);
                let fence = lease.fence;
                match lease.keeping.left(NOW, is_sound) {
                    Left::Idle => {}
                    Left::Ask { tokens } => self.send(Verb::Keep { tokens: tokens.min(world.tokens) }, fence),
                    Left::Release => self.lets_go(),
                }
                Ok(())
            }
            Event::KeeperIdle => {
                self.lets_go();
                Ok(())
            }
            Event::KeeperRenews => {
                let Some(lease) = &mut self.lease else { return Ok(()) };
                lease.due = false;
                let fence = lease.fence;
                self.reminded |= self.queue.contains(&false);
                if world.has(Rule::RenewalsAsk) && lease.keeping.renewal_due() {
                    self.send(Verb::Keep { tokens: 0 }, fence);
                } else if let Some(holder) = &mut self.holder
                    && (holder.is_keeper, holder.fence) == (true, fence)
                    && lease.left > 0
                    && !lease.keeping.is_asked()
                {
                    // Carried out and answered at once: a late one extends less.
                    holder.left = world.lease;
                    lease.left = world.lease;
                }
                Ok(())
            }
            Event::OtherAsks => self.poll(world, false),
            Event::OtherLeaves => {
                if let Some((fence, _)) = self.other.take()
                    && self.holder.is_some_and(|holder| holder.fence == fence)
                {
                    self.holder = None;
                    return self.grant_next(world);
                }
                Ok(())
            }
            Event::Delivered { wanted } => {
                let fence = self.wanted.remove(wanted);
                let is_present = self.lease.as_ref().is_some_and(|lease| lease.fence == fence);
                self.reminded |= is_present && self.queue.contains(&false);
                if let Some(lease) = &mut self.lease
                    && lease.fence == fence
                    && world.has(Rule::WantedEndsIt)
                    && lease.keeping.wanted()
                {
                    self.lets_go();
                }
                Ok(())
            }
            Event::Missed { wanted } => {
                self.wanted.remove(wanted);
                Ok(())
            }
            Event::CarriedOut { request } => self.carry_out(world, request),
            Event::Answered { request } => {
                let request = self.requests.remove(request);
                self.answered(world, request);
                Ok(())
            }
            Event::GivenUp { request } => {
                self.requests[request].awaited = false;
                let fence = self.requests[request].fence;
                if self.requests[request].answer.is_some() {
                    self.requests.remove(request);
                }
                if let Some(lease) = &mut self.lease
                    && lease.fence == fence
                    && lease.keeping.is_asked()
                {
                    if world.has(Rule::AskedIsClosed) {
                        lease.keeping.ended();
                    } else {
                        lease.keeping.kept(None);
                    }
                    if !lease.keeping.is_free() {
                        self.lets_go();
                    }
                }
                Ok(())
            }
        }
    }

    /// The keeper releases its lease. From now on it relies on nothing.
    fn lets_go(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.send(Verb::Release, lease.fence);
        }
    }

    fn carry_out(&mut self, world: &World, at: usize) -> Result<(), Violation> {
        let Request { verb, fence, awaited, .. } = self.requests[at];
        let holds = self.holder.is_some_and(|holder| holder.is_keeper && holder.fence == fence);
        let is_queued = !self.queue.is_empty() && world.has(Rule::AskingHandsOn);
        let answer = match verb {
            _ if !holds => Answer::NotHeld,
            Verb::Keep { tokens } if !is_queued => {
                let first = self.counter + 1;
                if tokens > 0 && world.has(Rule::TokensAreSetAside) {
                    self.counter += tokens;
                }
                let holder = self.holder.as_mut().expect("it holds");
                (holder.left, holder.is_kept) = (world.lease, true);
                Answer::Kept { tokens: (tokens > 0).then_some((first, first + tokens - 1)) }
            }
            Verb::Keep { .. } | Verb::Release => {
                self.holder = None;
                Answer::Released
            }
        };
        if awaited {
            self.requests[at].answer = Some(answer);
        } else {
            self.requests.remove(at);
        }
        self.grant_next(world)
    }

    fn answered(&mut self, world: &World, request: Request) {
        let Request { verb: Verb::Keep { .. }, fence, age, answer: Some(answer), .. } = request else {
            return;
        };
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.fence == fence) else { return };
        match answer {
            Answer::Kept { .. } if lease.left == 0 => self.lease = None,
            Answer::Kept { tokens } => {
                lease.left = lease.left.max(world.lease - age);
                let stays = lease.keeping.kept(tokens);
                if !stays && lease.inside.is_none() {
                    return self.lets_go();
                }
                if lease.keeping.asks_again() {
                    self.send(Verb::Keep { tokens: 0 }, fence);
                }
            }
            Answer::Released | Answer::NotHeld => {
                lease.keeping.ended();
                if lease.inside.is_none() {
                    self.lease = None;
                }
            }
        }
    }

    /// Drops messages that can change nothing any more.
    fn settle(&mut self) {
        let fence = self.lease.as_ref().map(|lease| lease.fence);
        self.wanted.retain(|wanted| Some(*wanted) == fence);
        let held = self.holder.filter(|holder| holder.is_keeper).map(|holder| holder.fence);
        self.requests.retain(|request| {
            let is_heard =
                request.awaited && Some(request.fence) == fence && matches!(request.verb, Verb::Keep { .. });
            is_heard || request.answer.is_none() && Some(request.fence) == held
        });
        self.requests.iter_mut().for_each(|request| request.awaited &= Some(request.fence) == fence);
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// Visits states in the order of their distance until a violation, the end, or the limit.
#[must_use]
pub fn search(world: &World, most_states: usize) -> Search {
    let mut report = Search::default();
    let mut visited = HashSet::new();
    let (mut states, mut ways) = (VecDeque::new(), vec![(0_usize, None)]);
    let first = State::new();
    visited.insert(first.key());
    states.push_back((0_usize, first));
    while let Some((at, state)) = states.pop_front() {
        for event in state.events(world) {
            let mut next = state.clone();
            let others = next.other.is_some();
            let result = next.apply(world, event, &mut report).and_then(|()| next.exclusive());
            report.others += u64::from(next.other.is_some() && !others);
            if let Err(violation) = result {
                let (mut way, mut at) = (vec![format!("{event:?}")], at);
                while let (before, Some(event)) = &ways[at] {
                    way.push(format!("{event:?}"));
                    at = *before;
                }
                way.reverse();
                report.violation = Some((violation, way));
                report.states = visited.len();
                return report;
            }
            next.settle();
            if visited.insert(next.key()) {
                ways.push((at, Some(event)));
                states.push_back((ways.len() - 1, next));
            }
        }
        if visited.len() >= most_states {
            break;
        }
    }
    report.exhausted = states.is_empty();
    report.states = visited.len();
    report
}
