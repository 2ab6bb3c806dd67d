//! What can happen next, and what must never have happened.

use super::state::{Client, Holder, Message, Owner, Phase, State, Verb, Waiter};
use super::{Rule, Want, World};

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// One tick passes everywhere.
    Tick,
    /// A client sends a message, maybe the first of an acquisition or the last.
    Send(Message),
    /// The server carries out a request; the network may keep it to deliver it again.
    Execute(Message),
    /// A client receives an answer or a push.
    Deliver(Message),
    /// The network loses a message.
    Lose(Message),
    /// A waiter falls silent.
    Lapse(Owner),
}

/// What the protocol must never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The server has two leases beside each other that exclude each other, or too many permits.
    WrongTogether,
    /// A client believes that it holds, and the server has no such lease.
    HolderWithoutLease,
    /// Clients believe at the same time that they hold, in ways that exclude each other.
    Overlap,
    /// Somebody is granted the lock while somebody live who came before it still waits.
    Overtaken,
    /// A request has made room for the first in line, which was not let in.
    LeftOut,
    /// An entry whose fence is not above those that it has to outrun: every one for a writer, every
    /// writer's for everybody.
    FenceNotAbove,
}

/// An event, the state after it, and whether it violates anything.
#[derive(Debug, Clone)]
pub struct Successor {
    /// What happened.
    pub event: Event,
    /// The state after it, not yet settled.
    pub state: State,
    /// What it violates.
    pub violation: Option<Violation>,
}

impl State {
    /// Lists everything that can happen next.
    #[must_use]
    pub fn successors(&self, world: &World) -> Vec<Successor> {
        let mut found = Vec::new();
        let mut add = |event, state: Self, granting: bool| {
            let violation = state.check(world, self, granting);
            found.push(Successor { event, state, violation });
        };
        add(Event::Tick, self.ticked(), false);
        if self.network.len() < world.messages {
            for client in 0..self.clients.len() {
                for (message, state) in self.sent_by(world, client) {
                    add(Event::Send(message), state, false);
                }
            }
        }
        for (at, message) in self.network.iter().copied().enumerate() {
            let mut rest = self.clone();
            rest.network.remove(at);
            if self.network.len() == world.messages {
                add(Event::Lose(message), rest.clone(), false);
            }
            if !message.verb.is_request() {
                rest.receive(world, message);
                add(Event::Deliver(message), rest, false);
                continue;
            }
            let grants = matches!(message.verb, Verb::Release | Verb::Cancel | Verb::Convert);
            for again in [false, true] {
                let mut state = if again { self.clone() } else { rest.clone() };
                if again && !matches!(message.verb, Verb::Release | Verb::Cancel) {
                    continue;
                }
                if state.execute(world, message) && state.holders.len() <= world.holders {
                    let changed = state.holders != self.holders || state.line != self.line;
                    add(Event::Execute(message), state, grants && changed);
                }
            }
        }
        for waiter in &self.line {
            let mut state = self.clone();
            state.line.retain(|other| other != waiter);
            add(Event::Lapse(waiter.owner), state, false);
        }
        found
    }

    fn ticked(&self) -> Self {
        let mut state = self.clone();
        state.holders.iter_mut().for_each(|holder| holder.left -= 1);
        state.holders.retain(|holder| holder.left > 0);
        for Client { phase, .. } in &mut state.clients {
            match phase {
                Phase::Anchored { age, .. } => *age += 1,
                Phase::Held { fence, left: 1 } => *phase = Phase::Lost { fence: *fence },
                Phase::Held { left, .. } => *left -= 1,
                Phase::Converting { left, .. } => *left = left.saturating_sub(1),
                _ => {}
            }
        }
        state.network.iter_mut().for_each(|message| message.age += 1);
        state
    }

    /// What a client can send now, and the state after that.
    fn sent_by(&self, world: &World, client: usize) -> Vec<(Message, Self)> {
        let owner = Owner { client: client as u8, former: 0 };
        let Client { phase, want } = self.clients[client];
        let mut found = Vec::new();
        let mut send = |verb, want: Want, fence, phase: Option<Phase>| {
            let message = Message { verb, owner, want, fence, age: 0 };
            let mut state = self.clone();
            if self.clients[client].phase == Phase::Idle {
                state.retire(client);
                state.clients[client].want = want;
            }
            state.clients[client].phase = phase.unwrap_or(self.clients[client].phase);
            state.network.push(message);
            found.push((message, state));
        };
        match phase {
            Phase::Idle => {
                world.wants().into_iter().for_each(|want| send(Verb::Poll, want, 0, Some(Phase::Waiting)));
            }
            Phase::Waiting | Phase::Anchored { .. } => {
                send(Verb::Poll, want, 0, None);
                send(Verb::Cancel, want, 0, Some(Phase::Idle));
            }
            Phase::Held { fence, left } => {
                send(Verb::Renew, want, fence, None);
                send(Verb::Release, want, fence, Some(Phase::Idle));
                let converting = Some(Phase::Converting { fence, left });
                match want {
                    Want::Read => send(Verb::Convert, Want::Write, fence, converting),
                    Want::Write => send(Verb::Convert, Want::Read, fence, converting),
                    Want::Permits(_) => {}
                }
            }
            Phase::Converting { .. } => send(Verb::Cancel, want, 0, Some(Phase::Idle)),
            Phase::Lost { fence } => send(Verb::Release, want, fence, Some(Phase::Idle)),
        }
        found
    }

    /// Whether the server of this world finds room for one more.
    fn finds_room(&self, world: &World, wanted: Want) -> bool {
        let held = self.holders.iter().filter(|holder| match (wanted, holder.want) {
            (Want::Write, Want::Read) => world.has(Rule::WriterWaitsForAllReaders),
            (Want::Read, Want::Write) => world.has(Rule::ReadersWaitForWriter),
            (Want::Permits(_), _) => holder.renewed || world.has(Rule::ProvisionalPermitsCount),
            _ => true,
        });
        world.admits(held.map(|holder| &holder.want), wanted)
    }

    fn grant(&mut self, world: &World, owner: Owner, want: Want) -> u8 {
        self.line.retain(|waiter| waiter.owner != owner);
        self.counter += 1;
        if !world.has(Rule::LeasesEndApart) {
            self.holders.iter_mut().for_each(|holder| holder.left = 1);
        }
        let holder = Holder { owner, fence: self.counter, want, left: world.provisional, renewed: false };
        self.holders.push(holder);
        self.counter
    }

    /// Grants to those at the head of the line who can have it now, and tells them.
    fn grant_together(&mut self, world: &World) {
        for Waiter { owner, want } in self.line.clone() {
            if self.finds_room(world, want) {
                let fence = self.grant(world, owner, want);
                self.tell(world, Message { verb: Verb::Push, owner, want, fence, age: 0 });
            } else if world.has(Rule::GrantStopsAtFirst) {
                return;
            }
        }
    }

    /// An answer or a push takes room in the network, or is lost.
    fn tell(&mut self, world: &World, message: Message) {
        if self.user_of(message.owner).is_some() && self.network.len() < world.messages {
            self.network.push(message);
        }
    }

    /// Carries out a request. `false` if the world has no room for what would come of it.
    fn execute(&mut self, world: &World, request: Message) -> bool {
        let Message { verb, owner, want, fence, .. } = request;
        match verb {
            Verb::Poll => return self.poll(world, request),
            Verb::Renew => {
                if let Some(at) = self.place_of(owner, fence) {
                    self.holders[at].left = world.lease;
                    self.holders[at].renewed = true;
                    self.tell(world, Message { verb: Verb::Renewed, ..request });
                }
            }
            Verb::Release => {
                if let Some(at) = self.place_of(owner, fence) {
                    self.holders.remove(at);
                    self.grant_together(world);
                }
            }
            Verb::Cancel => {
                let (line, holders) = (self.line.len(), self.holders.len());
                self.line.retain(|waiter| waiter.owner != owner);
                self.holders.retain(|holder| holder.owner != owner);
                let left = self.line.len() < line && world.has(Rule::LeavingGrants);
                if left || self.holders.len() < holders {
                    self.grant_together(world);
                }
            }
            Verb::Convert => {
                let Some(at) = self.place_of(owner, fence) else { return true };
                let alone = self.holders.len() == 1 || !world.has(Rule::UpgradeNeedsToBeAlone);
                if want == Want::Write && !alone {
                    self.tell(world, Message { verb: Verb::Refused, ..request });
                    return true;
                }
                if want == Want::Write && world.has(Rule::UpgradeTakesFence) {
                    self.counter += 1;
                    self.holders[at].fence = self.counter;
                }
                let held = &mut self.holders[at];
                (held.want, held.left) = (want, held.left.max(world.provisional));
                let fence = held.fence;
                if want == Want::Read && !world.has(Rule::DowngradeStaysHeld) {
                    self.holders.remove(at);
                }
                self.grant_together(world);
                self.tell(world, Message { verb: Verb::Converted, fence, ..request });
            }
            _ => unreachable!("only requests reach the server"),
        }
        true
    }

    fn poll(&mut self, world: &World, request: Message) -> bool {
        let Message { owner, want, .. } = request;
        let held = |state: &Self| state.holders.iter().position(|holder| holder.owner == owner);
        if let Some(at) = held(self) {
            let holder = &mut self.holders[at];
            holder.left = holder.left.max(world.provisional);
            let fence = holder.fence;
            self.tell(world, Message { verb: Verb::Held, fence, ..request });
            return true;
        }
        let my_turn = self.line.first().is_none_or(|first| first.owner == owner);
        if (my_turn || !world.has(Rule::NewcomerKeepsTurn)) && self.finds_room(world, want) {
            self.grant(world, owner, want);
        }
        self.grant_together(world);
        if let Some(at) = held(self) {
            let fence = self.holders[at].fence;
            self.tell(world, Message { verb: Verb::Held, fence, ..request });
            return true;
        }
        if !self.line.iter().any(|waiter| waiter.owner == owner) {
            if self.line.len() == world.waiters {
                return false;
            }
            self.line.push(Waiter { owner, want });
        }
        let fence = self.counter;
        self.tell(world, Message { verb: Verb::Wait, fence, ..request });
        true
    }

    fn receive(&mut self, world: &World, message: Message) {
        let Message { verb, owner, want, fence, age } = message;
        let Some(client) = self.user_of(owner) else { return };
        let phase = self.clients[client].phase;
        let waits = matches!(phase, Phase::Waiting | Phase::Anchored { .. });
        let enter = |state: &mut Self, window: u8, used: u8| {
            if let left @ 1.. = window.saturating_sub(used) {
                state.clients[client].phase = Phase::Held { fence, left };
            }
        };
        match (verb, phase) {
            (Verb::Wait, _) if waits => self.clients[client].phase = Phase::Anchored { fence, age },
            (Verb::Held, _) if waits => enter(self, world.provisional, age),
            (Verb::Push, Phase::Anchored { fence: seen, age }) if fence > seen => {
                enter(self, world.provisional, age);
            }
            (Verb::Held | Verb::Renewed, Phase::Held { fence: mine, left }) if mine == fence => {
                let full = if verb == Verb::Held { world.provisional } else { world.lease };
                let left = left.max(full.saturating_sub(age));
                self.clients[client].phase = Phase::Held { fence, left };
            }
            (Verb::Converted, Phase::Converting { .. }) => {
                self.clients[client].want = want;
                self.clients[client].phase = Phase::Lost { fence };
                enter(self, world.provisional, age);
            }
            (Verb::Refused, Phase::Converting { fence, left }) => {
                self.clients[client].phase =
                    if left > 0 { Phase::Held { fence, left } } else { Phase::Lost { fence } };
            }
            _ => {}
        }
        if let Phase::Held { fence, .. } = self.clients[client].phase
            && !matches!(phase, Phase::Held { .. })
            && verb != Verb::Refused
        {
            let (all, writers) = self.entered;
            let alone = self.clients[client].want == Want::Write;
            self.entered = (all.max(fence), if alone { writers.max(fence) } else { writers });
        }
    }

    /// Looks at this state, which an event made of `before`.
    fn check(&self, world: &World, before: &Self, grants: bool) -> Option<Violation> {
        let together = |wants: &[Want]| {
            (0..wants.len()).all(|at| {
                let others = wants.iter().enumerate().filter(|(other, _)| *other != at);
                world.admits(others.map(|(_, want)| want), wants[at])
            })
        };
        let held: Vec<_> = self.holders.iter().map(|holder| holder.want).collect();
        if !together(&held) {
            return Some(Violation::WrongTogether);
        }
        let mut inside = Vec::new();
        for (client, Client { phase, want }) in self.clients.iter().enumerate() {
            if let Phase::Held { fence, .. } = *phase {
                let owner = Owner { client: client as u8, former: 0 };
                let at = self.place_of(owner, fence);
                if at.is_none_or(|at| self.holders[at].want != *want) {
                    return Some(Violation::HolderWithoutLease);
                }
                inside.push(*want);
                let entered = !matches!(before.clients[client].phase, Phase::Held { .. });
                let outruns = if *want == Want::Write { before.entered.0 } else { before.entered.1 };
                // Who steps down from writing, or goes on as before, keeps its fence.
                let converts = matches!(before.clients[client].phase, Phase::Converting { fence: old, .. }
                    if old == fence && *want == Want::Read);
                if entered && !converts && fence <= outruns {
                    return Some(Violation::FenceNotAbove);
                }
            }
        }
        if !together(&inside) {
            return Some(Violation::Overlap);
        }
        for holder in self.holders.iter().filter(|holder| holder.fence > before.counter) {
            let stepped_up = before.holders.iter().any(|old| old.owner == holder.owner);
            let place = before.line.iter().position(|waiter| waiter.owner == holder.owner);
            let ahead = &before.line[..place.unwrap_or(before.line.len())];
            if !stepped_up && ahead.iter().any(|waiter| self.line.contains(waiter)) {
                return Some(Violation::Overtaken);
            }
        }
        let first = self.line.first().filter(|_| grants);
        if first.is_some_and(|first| world.admits(&held, first.want)) {
            return Some(Violation::LeftOut);
        }
        None
    }
}
