//! What may happen next.

use std::time::Duration;

use super::state::{CLIENTS, Client, Door, Gate, Lock, Node, Opening, Phase, State, View};
use super::{Rule, World};
use crate::clock::BootInstant;
use crate::policy::admission::{ClockReading, Quarantine, Standing, Terms, openable, stepped};
use crate::policy::quorum::Quorum;

/// What a node has after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All its data.
    All,
    /// An old state: neither lock nor counter, but the gate.
    Old,
    Nothing,
}

/// One thing that happens. Nodes are numbered as they are sorted in the state before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Tick,
    Restart {
        node: u8,
        kept: Kept,
    },
    Step {
        node: u8,
        forward: bool,
    },
    /// The client looks at the nodes of this set, and decides what it opens.
    Look {
        client: u8,
        nodes: u8,
    },
    /// An opening that was decided arrives.
    Open {
        client: u8,
        node: u8,
    },
    Ask {
        client: u8,
        node: u8,
    },
    Decide {
        client: u8,
    },
    GiveUp {
        client: u8,
    },
    Renew {
        client: u8,
    },
    Heal {
        client: u8,
        node: u8,
    },
    Release {
        client: u8,
    },
}

/// A broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Two clients have guards that are valid by their own clocks.
    TwoHolders,
    /// A token that is not larger than one that was granted before its acquisition began.
    TokenFell,
}

pub(super) struct Next {
    pub event: Event,
    pub state: State,
    pub violation: Option<Violation>,
}

/// One tick; more than what a slow correction of a clock explains.
const TICK_MS: u64 = 1000;
const NOW: BootInstant = BootInstant::from_nanos(0);

const fn ticks(ticks: u8) -> Duration {
    Duration::from_millis(ticks as u64 * TICK_MS)
}

fn in_ticks(time: Duration) -> u8 {
    u8::try_from(time.as_millis() / u128::from(TICK_MS)).unwrap_or(u8::MAX)
}

impl State {
    pub(super) fn successors(&self, world: &World, found: &mut Vec<Next>) {
        if self.excused {
            return;
        }
        let mut add = |event: Event| {
            let mut state = *self;
            if let Some(violation) = state.apply(world, event) {
                found.push(Next { event, state, violation });
            }
        };
        add(Event::Tick);
        let nodes = self.count;
        for node in 0..nodes {
            for kept in world.kept.iter().copied() {
                add(Event::Restart { node, kept });
            }
            for forward in [true, false] {
                add(Event::Step { node, forward });
            }
        }
        for client in 0..world.clients() as u8 {
            let all = (1 << nodes) - 1;
            for set in if world.away { 1 } else { all }..=all {
                add(Event::Look { client, nodes: set });
            }
            for node in 0..nodes {
                add(Event::Open { client, node });
                add(Event::Ask { client, node });
                add(Event::Heal { client, node });
            }
            add(Event::Decide { client });
            add(Event::GiveUp { client });
            add(Event::Renew { client });
            add(Event::Release { client });
        }
    }

    /// Lets it happen. `None` if it cannot; otherwise what it breaks.
    pub(super) fn apply(&mut self, world: &World, event: Event) -> Option<Option<Violation>> {
        let done = match event {
            Event::Tick => self.tick(world),
            Event::Restart { node, kept } => self.restart(world, usize::from(node), kept),
            Event::Step { node, forward } => self.step(world, usize::from(node), forward),
            Event::Look { client, nodes } => self.look_at(world, usize::from(client), nodes),
            Event::Open { client, node } => self.open(world, usize::from(client), usize::from(node)),
            Event::Ask { client, node } => self.ask(world, usize::from(client), usize::from(node)),
            Event::Decide { client } => return self.decide(usize::from(client)),
            Event::GiveUp { client } => self.give_up(usize::from(client)),
            Event::Renew { client } => self.renew(world, usize::from(client)),
            Event::Heal { client, node } => self.heal(world, usize::from(client), usize::from(node)),
            Event::Release { client } => self.release(usize::from(client)),
        };
        done.then_some(None)
    }

    fn quorum(&self) -> Quorum {
        Quorum::of(usize::from(self.count))
    }

    fn tick(&mut self, world: &World) -> bool {
        // Beyond these nothing changes any more.
        let longest = world.longest();
        let most_by_node = world.step() * (1 + world.steps.cast_signed());
        for node in self.nodes_mut() {
            node.lock =
                node.lock.and_then(|lock| (lock.left > 1).then(|| Lock { left: lock.left - 1, ..lock }));
            if let Some(Gate { door: Door::Closed { by_node, age }, .. }) = &mut node.gate {
                *by_node = (*by_node + 1).min(most_by_node);
                *age = (*age + 1).min(longest);
            }
            for view in &mut node.views {
                view.closed_for = view.closed_for.map(|passed| (passed + 1).min(longest));
            }
        }
        for (client, lease) in self.clients.iter_mut().zip(world.leases) {
            client.phase = match client.phase {
                Phase::Asking { since } if since + 1 < *lease => Phase::Asking { since: since + 1 },
                Phase::Held { since } if since + 1 < *lease => Phase::Held { since: since + 1 },
                _ => Phase::Idle,
            };
        }
        true
    }

    fn restart(&mut self, world: &World, at: usize, kept: Kept) -> bool {
        if self.restarts == 0 {
            return false;
        }
        self.restarts -= 1;
        let node = &mut self.nodes[at];
        node.changed = true;
        if kept != Kept::All {
            node.lost |= node.lock.is_some() || node.counter > 0;
            (node.lock, node.counter) = (None, 0);
        }
        node.gate =
            node.gate.filter(|_| kept != Kept::Nothing).map(|gate| Gate { of_process: false, ..gate });
        for view in &mut node.views {
            view.process = false;
            view.knows &= kept != Kept::Nothing;
            view.closed_for = None;
            view.opening &= !world.has(Rule::OpensOnlyUnchanged);
        }
        true
    }

    /// A node's clock steps. Not while it votes and a client has not read its clock: such a step is among the limits.
    fn step(&mut self, world: &World, at: usize, forward: bool) -> bool {
        let node = &mut self.nodes[at];
        let is_open = node.gate.is_some_and(|gate| gate.is_open());
        let is_read = |view: &View| view.moved == Some(0);
        if self.steps == 0 || (is_open && !node.views[..world.clients()].iter().all(is_read)) {
            return false;
        }
        self.steps -= 1;
        let by = if forward { world.step() } else { -world.step() };
        node.changed = true;
        node.lock = node.lock.and_then(|lock| {
            let left = lock.left.cast_signed() - by;
            (left > 0).then_some(Lock { left: left.cast_unsigned(), ..lock })
        });
        if let Some(Gate { door: Door::Closed { by_node, .. }, .. }) = &mut node.gate {
            *by_node += by;
        }
        for view in &mut node.views {
            view.moved = view.moved.map(|moved| moved + by);
        }
        true
    }

    fn look_at(&mut self, world: &World, client: usize, set: u8) -> bool {
        if world.looker == Some(client) && world.has(Rule::LookingWritesNothing) {
            // It changes nothing that another client could notice.
            return false;
        }
        let looked: Vec<usize> = (0..usize::from(self.count)).filter(|at| set >> at & 1 == 1).collect();
        let used = self.clients[client].used && world.has(Rule::SeenIsRemembered);
        looked.iter().for_each(|at| self.look(world, client, *at, used));
        let is_open = |node: &Node| node.gate.is_some_and(|gate| gate.is_open());
        let moved: Vec<_> = (0..usize::from(self.count))
            .map(|at| {
                let moved = looked.contains(&at).then(|| self.nodes[at].views[client].moved)??;
                let harmless = moved < 0 && is_open(&self.nodes[at]);
                Some(if harmless || !world.has(Rule::StepsClose) { 0 } else { moved_ms(moved) })
            })
            .collect();
        if moved.iter().flatten().any(|by| *by != 0) {
            let stepped = stepped(self.quorum(), &moved);
            looked.iter().filter(|at| stepped[**at]).for_each(|at| self.close(world, client, *at));
        }
        looked.iter().for_each(|at| self.nodes[*at].views[client].moved = Some(0));
        self.plan(world, client, &looked);
        if !world.late {
            for at in 0..usize::from(self.count) {
                self.open(world, client, at);
            }
        }
        true
    }

    /// One look that writes (`look.lua`), and what the client notes (`Node::note`, `Shape::learn`).
    fn look(&mut self, world: &World, client: usize, at: usize, used: bool) {
        let lease = if world.has(Rule::LongestLeaseStands) { world.leases[client] } else { 0 };
        let strict = world.is_strict(client);
        let node = &mut self.nodes[at];
        let before = node.gate;
        let changed = !before.is_some_and(|gate| gate.of_process);
        let mut gate = before.unwrap_or(Gate {
            door: Door::Closed { by_node: 0, age: 0 },
            of_process: true,
            fresh: false,
            strict: false,
            longest: 0,
        });
        if changed {
            gate.fresh = before.is_none() && node.counter == 0;
            (gate.door, gate.of_process) = (Door::Closed { by_node: 0, age: 0 }, true);
            node.views.iter_mut().for_each(|view| view.closed_for = None);
        }
        gate.fresh &= gate.is_open() || !used;
        gate.strict |= strict;
        gate.longest = gate.longest.max(lease);
        if before != Some(gate) {
            node.gate_changed(world);
        }
        node.gate = Some(gate);
        let view = &mut node.views[client];
        (view.knows, view.process) = (true, true);
        view.moved = view.moved.or(Some(0));
        match gate.door {
            Door::Closed { by_node, age } if view.closed_for.is_none() => {
                view.closed_for = Some(first_seen(by_node, age, world));
                // Whatever moved before is behind this gate.
                view.moved = Some(0);
            }
            Door::Closed { .. } => {}
            _ => view.closed_for = None,
        }
        let mind = &mut self.clients[client];
        mind.used |= node.counter > 0;
        mind.told |= node.counter > 0;
        mind.strict |= gate.strict;
        mind.longest = mind.longest.max(gate.longest);
    }

    /// Closes a node whose clock stepped.
    fn close(&mut self, world: &World, client: usize, at: usize) {
        let node = &mut self.nodes[at];
        let Some(gate) = &mut node.gate else { return };
        (gate.door, gate.fresh) = (Door::Closed { by_node: 0, age: 0 }, false);
        node.gate_changed(world);
        node.views.iter_mut().for_each(|view| view.closed_for = None);
        let view = &mut node.views[client];
        (view.knows, view.closed_for) = (true, Some(0));
    }

    /// Decides with the shipped policy what may be opened.
    fn plan(&mut self, world: &World, client: usize, looked: &[usize]) {
        let mind = self.clients[client];
        let standings = self.nodes().iter().enumerate().map(|(at, node)| match node.gate {
            Some(gate) if looked.contains(&at) => standing(world, client, node, gate, &mind),
            _ if world.has(Rule::SilenceIsNotNew) => Standing::Unknown,
            _ => Standing::Closed { left: Duration::MAX, counter: 0, fresh: true },
        });
        let standings: Vec<_> = standings.collect();
        let used = mind.used && world.has(Rule::SeenIsRemembered);
        let terms = Terms { strict: mind.strict, used };
        let opening = openable(self.quorum(), &standings, terms).or_else(|| {
            let rash = Terms { strict: false, used: true };
            let goes_on = !world.has(Rule::StrictWaitsForTheRest);
            goes_on.then(|| openable(self.quorum(), &standings, rash)).flatten()
        });
        let Some(opening) = opening else { return };
        for (at, node) in self.nodes_mut().iter_mut().enumerate() {
            node.views[client].opening = looked.contains(&at) && opening.nodes.contains(&at);
        }
        let counter = if world.has(Rule::CounterIsBroughtUp) { opening.counter as u8 } else { 0 };
        let (fresh, floored) = (opening.fresh, opening.floored);
        let hopeless = self.nodes().iter().filter(|node| node.changed).count() >= self.quorum().needed();
        self.clients[client].opening = Some(Opening { counter, fresh, floored, told: mind.told, hopeless });
    }

    /// An opening is carried out (`open.lua`).
    fn open(&mut self, world: &World, client: usize, at: usize) -> bool {
        let mind = self.clients[client];
        let lost = self.nodes().iter().filter(|node| node.lost).count();
        let needed = self.quorum().needed();
        let node = &mut self.nodes[at];
        let Some(opening) = mind.opening.filter(|_| node.views[client].opening) else { return false };
        let Some(gate) = &mut node.gate else { return false };
        let Door::Closed { by_node, .. } = gate.door else { return false };
        let is_checked = world.has(Rule::OpensOnlyUnchanged);
        let least = if opening.fresh || !world.has(Rule::Quarantine) { 0 } else { mind.longest };
        if is_checked && by_node < least.cast_signed() {
            return false;
        }
        gate.of_process = true;
        gate.door = if opening.floored { Door::Floored } else { Door::Open };
        node.counter = node.counter.max(opening.counter);
        if !opening.floored && !opening.fresh {
            (node.lost, node.changed) = (false, false);
        }
        node.gate_changed(world);
        node.views.iter_mut().for_each(|view| view.closed_for = None);
        node.views[client].opening = false;
        node.views[client].knows = true;
        self.excused |= opening.fresh && !opening.told && !world.strict && lost >= needed;
        self.floored |= opening.floored && (!world.strict || opening.hopeless);
        true
    }

    /// A node is asked for its vote (`acquire.lua`, `Node::vote`).
    fn ask(&mut self, world: &World, client: usize, at: usize) -> bool {
        let mind = &mut self.clients[client];
        let may_begin = mind.phase == Phase::Idle && world.may_ask(client, mind.attempt);
        let view = self.nodes[at].views[client];
        let is_asking = matches!(mind.phase, Phase::Asking { .. }) && view.yes == 0;
        let gate = self.nodes[at].gate.filter(|gate| view.knows && !matches!(gate.door, Door::Closed { .. }));
        if gate.is_none() || !(may_begin || is_asking) {
            return false;
        }
        if may_begin {
            mind.phase = Phase::Asking { since: 0 };
            mind.attempt += 1;
            mind.above = self.top;
        }
        mind.told = true;
        mind.used |= world.has(Rule::VotesAreSeen);
        let owner = self.owner(client);
        let node = &mut self.nodes[at];
        let mut yes = 0;
        if node.lock.is_none_or(|lock| lock.owner == owner) {
            node.counter += 1;
            yes = node.counter;
            let left = node.lock.map_or(0, |lock| lock.left).max(world.leases[client]);
            node.lock = Some(Lock { owner, left });
        }
        let view = &mut node.views[client];
        let moved = view.moved.unwrap_or(0);
        if moved < 0 {
            view.moved = Some(0);
        }
        if world.has(Rule::StepsClose) && moved > 0 {
            yes = 0;
        }
        if !view.process && world.has(Rule::VotesOfKnownProcess) {
            let used = self.clients[client].used && world.has(Rule::SeenIsRemembered);
            self.look(world, client, at, used);
            self.nodes[at].views[client].knows = false;
            return true;
        }
        view.yes = yes;
        true
    }

    /// A client with the votes of a majority takes its token, which it writes back if it has to.
    fn decide(&mut self, client: usize) -> Option<Option<Violation>> {
        let mind = self.clients[client];
        let Phase::Asking { since } = mind.phase else { return None };
        let needed = self.quorum().needed();
        let owner = self.owner(client);
        let votes = self.nodes().iter().filter(|node| node.views[client].yes > 0).count();
        let token = self.nodes().iter().map(|node| node.views[client].yes).max()?;
        if votes < needed {
            return None;
        }
        let mut have = 0;
        for node in self.nodes_mut() {
            let view = node.views[client];
            let is_behind = view.yes > 0 && view.yes < token;
            if is_behind && view.process && node.lock.is_some_and(|lock| lock.owner == owner) {
                node.counter = node.counter.max(token);
                have += 1;
            }
            have += usize::from(view.yes == token);
        }
        if have < needed {
            return None;
        }
        let holds = |other: &Client| matches!(other.phase, Phase::Held { .. });
        let violation = if self.clients.iter().any(holds) {
            Some(Violation::TwoHolders)
        } else if token <= mind.above && !self.floored {
            Some(Violation::TokenFell)
        } else {
            None
        };
        self.top = self.top.max(token);
        let mind = &mut self.clients[client];
        (mind.phase, mind.token) = (Phase::Held { since }, token);
        Some(violation)
    }

    /// The attempt ends; what it took runs out.
    fn give_up(&mut self, client: usize) -> bool {
        let mind = &mut self.clients[client];
        let is_asking = matches!(mind.phase, Phase::Asking { .. });
        if is_asking {
            mind.phase = Phase::Idle;
        }
        is_asking
    }

    fn has_majority(&self, client: usize) -> bool {
        let owner = self.owner(client);
        let owns = |node: &&Node| node.lock.is_some_and(|lock| lock.owner == owner);
        matches!(self.clients[client].phase, Phase::Held { .. })
            && self.nodes().iter().filter(owns).count() >= self.quorum().needed()
    }

    fn renew(&mut self, world: &World, client: usize) -> bool {
        if !world.renews || !self.has_majority(client) {
            return false;
        }
        let owner = self.owner(client);
        for node in self.nodes_mut() {
            if let Some(lock) = node.lock.as_mut().filter(|lock| lock.owner == owner) {
                lock.left = lock.left.max(world.leases[client]);
            }
        }
        self.clients[client].phase = Phase::Held { since: 0 };
        true
    }

    /// A node that lost a lease that a majority has gets it again (`heal.lua`).
    fn heal(&mut self, world: &World, client: usize, at: usize) -> bool {
        let (owner, token) = (self.owner(client), self.clients[client].token);
        let node = &self.nodes[at];
        if !world.renews || node.lock.is_some() || !self.has_majority(client) {
            return false;
        }
        let node = &mut self.nodes[at];
        node.counter = node.counter.max(token);
        node.lock = Some(Lock { owner, left: world.leases[client] });
        true
    }

    fn release(&mut self, client: usize) -> bool {
        let owner = self.owner(client);
        let mind = &mut self.clients[client];
        if !matches!(mind.phase, Phase::Held { .. }) {
            return false;
        }
        mind.phase = Phase::Idle;
        for node in self.nodes_mut() {
            node.lock = node.lock.filter(|lock| lock.owner != owner);
        }
        true
    }
}

impl Node {
    /// What clients know of the gate, and what they decided to do about it, is out of date.
    fn gate_changed(&mut self, world: &World) {
        for view in &mut self.views[..CLIENTS] {
            view.knows = false;
            view.opening &= !world.has(Rule::OpensOnlyUnchanged);
        }
    }
}

fn standing(world: &World, client: usize, node: &Node, gate: Gate, mind: &Client) -> Standing {
    let counter = u64::from(node.counter);
    let Door::Closed { by_node, .. } = gate.door else { return Standing::Voting { counter } };
    let by_node = ticks(by_node.max(0).cast_unsigned());
    let by_client = node.views[client].closed_for.map_or(Duration::ZERO, ticks);
    let by_client = if world.has(Rule::OwnClockToo) { by_client } else { by_node };
    let mut quarantine = Quarantine::seen(NOW, by_client, by_client);
    quarantine.answered(NOW, by_node);
    let length = if world.has(Rule::Quarantine) { ticks(mind.longest) } else { Duration::ZERO };
    Standing::Closed { left: quarantine.left(NOW, length), counter, fresh: gate.fresh }
}

/// For how long a node is closed, as far as a client believes that sees it closed for the first time. Clients'
/// wall clocks are right.
fn first_seen(by_node: i8, age: u8, world: &World) -> u8 {
    let long = ticks(100);
    let seen = Quarantine::seen(NOW, ticks(by_node.max(0).cast_unsigned()), ticks(age));
    in_ticks(long.saturating_sub(seen.left(NOW, long))).min(world.longest())
}

/// By how many ms a clock that moved by so many ticks seems to have moved.
fn moved_ms(moved: i8) -> i64 {
    let at = |node_ms: u64| ClockReading { sent: NOW, received: NOW, node_ms };
    let before = 100 * TICK_MS;
    at(before.saturating_add_signed(i64::from(moved) * TICK_MS.cast_signed())).moved_since(&at(before))
}
