//! What can happen next, and what must never have happened.

use crate::message::{Kind, Message, Owner, client_name};
use crate::rules::{Bounds, Model, Rule, Watch};
use crate::state::{Lock, Phase, State};
use std::fmt;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// One tick passes everywhere, except on the clocks of the clients in this bit set.
    Tick {
        /// Clients whose clock loses this tick.
        slow: u8,
    },
    /// A client starts an acquisition and sends its first poll.
    Start(Owner),
    /// A client sends a request.
    Send(Message),
    /// The server executes a request; the lock goes to somebody or stays as it is.
    Execute {
        /// The request.
        request: Message,
        /// Who was granted the lock by it.
        granted: Option<Owner>,
        /// Whether the client's retry keeps the request in flight.
        retried: bool,
        /// Whether the owner was told, and by what.
        told: Option<Kind>,
    },
    /// A client receives an answer or a push.
    Deliver {
        /// The answer or push.
        message: Message,
        /// Whether the client enters on it.
        enters: bool,
    },
    /// The network loses a message.
    Lose(Message),
    /// The server drops a waiter whose heartbeat lapsed, to make room for another.
    Lapse(Owner),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick { slow } => {
                write!(f, "one tick passes")?;
                (0..Bounds::MAX_CLIENTS)
                    .filter(|client| slow >> client & 1 == 1)
                    .try_for_each(|client| write!(f, ", {} misses it", client_name(client)))
            }
            Self::Start(owner) => write!(f, "{owner} starts and sends its first poll"),
            Self::Send(message) => match message.kind {
                Kind::Release => write!(f, "{} leaves and sends {message}", message.owner),
                Kind::Cancel => write!(f, "{} gives up and sends {message}", message.owner),
                _ => write!(f, "{} sends {message}", message.owner),
            },
            Self::Execute { request, granted, retried, told } => {
                write!(f, "server executes {request}")?;
                if matches!(request.kind, Kind::Poll | Kind::Renew | Kind::RenewShort) {
                    write!(f, " sent {} ago", request.age)?;
                }
                if let Some(owner) = granted {
                    write!(f, ", grants {owner}")?;
                }
                if let Some(kind) = told {
                    write!(f, ", answers {kind:?}")?;
                }
                if retried {
                    write!(f, ", will see it again")?;
                }
                Ok(())
            }
            Self::Deliver { message, enters } => {
                let then = if enters { ", and enters" } else { "" };
                write!(f, "{} receives {message}{then}", message.owner)
            }
            Self::Lose(message) => write!(f, "network loses {message}"),
            Self::Lapse(owner) => write!(f, "server drops waiter {owner}"),
        }
    }
}

/// A client enters its critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which client.
    pub client: usize,
    /// Whether it entered on a push, without a round trip.
    pub by_push: bool,
    /// Whether it enters again with a guard that it had lost.
    pub again: bool,
}

/// An event, the state after it, and the entry it caused.
#[derive(Debug, Clone, Copy)]
pub struct Successor {
    /// What happened.
    pub event: Event,
    /// The state after it, not yet canonical.
    pub state: State,
    /// The entry it caused.
    pub entry: Option<Entry>,
}

/// What the protocol must never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A client believes that it holds, but the server's lock is gone or names another acquisition
    /// or fence.
    HolderWithoutLock {
        /// Which client.
        client: usize,
    },
    /// Two clients believe that they hold.
    TwoHolders {
        /// Which clients.
        clients: [usize; 2],
    },
    /// A client enters with a fence that is not above every fence entered before.
    FenceNotAbove {
        /// Its fence.
        fence: u16,
        /// The highest one entered before.
        last: u16,
    },
    /// A lock appears on the server with a fence that was handed out before.
    OldLockReturns {
        /// Its fence.
        fence: u16,
        /// The fence counter before it appeared.
        counter: u16,
    },
    /// The types that the core ships decide otherwise than the model.
    ShippedDiffers {
        /// For which client.
        client: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HolderWithoutLock { client } => {
                write!(f, "{} holds without the lock", client_name(client))
            }
            Self::TwoHolders { clients: [a, b] } => {
                let (a, b) = (client_name(a), client_name(b));
                write!(f, "{a} and {b} hold at the same time")
            }
            Self::FenceNotAbove { fence, last } => {
                write!(f, "entry with fence #{fence} after #{last}")
            }
            Self::OldLockReturns { fence, counter } => {
                write!(f, "a lock with fence #{fence} appears after #{counter}")
            }
            Self::ShippedDiffers { client } => {
                write!(f, "the core decides otherwise for {}", client_name(client))
            }
        }
    }
}

impl State {
    /// Lists everything that can happen next.
    pub fn successors(&self, model: &Model, found: &mut Vec<Successor>) {
        let room = self.network.len() < model.bounds.messages;
        self.ticks(model, found);
        if room {
            (0..self.client_count).for_each(|client| self.client_steps(client, found, model));
        }
        for i in 0..self.network.len() {
            let message = self.network[i];
            // A message may stay in flight for ever, which is as good as losing it. So an explicit
            // loss is only needed where others wait for its room.
            if !room {
                let mut state = *self;
                state.network.swap_remove(i);
                add(found, Event::Lose(message), state);
            }
            if message.kind.is_request() {
                self.execute(i, false, model, found);
                if matches!(message.kind, Kind::Release | Kind::Cancel) {
                    self.execute(i, true, model, found);
                }
            } else {
                self.deliver(i, model, found);
            }
        }
        if self.queue.len() == model.bounds.waiters {
            for &owner in self.queue.iter() {
                let mut state = *self;
                state.queue.retain(|waiter| *waiter != owner);
                add(found, Event::Lapse(owner), state);
            }
        }
    }

    fn ticks(&self, model: &Model, found: &mut Vec<Successor>) {
        let may_slow = (0..self.client_count)
            .filter(|&client| model.bounds.drift && self.clients[client].steady_for == 0)
            .fold(0u8, |set, client| set | 1 << client);
        for slow in (0..=may_slow).filter(|set| set & !may_slow == 0) {
            let mut state = *self;
            state.lock = self.lock.and_then(|lock| {
                let expires_in = lock.expires_in - 1;
                (expires_in > 0).then_some(Lock { expires_in, ..lock })
            });
            for client in 0..self.client_count {
                let steady_for = &mut state.clients[client].steady_for;
                *steady_for = steady_for.saturating_sub(1);
                if slow >> client & 1 == 1 {
                    // Two lost ticks are at least `lease` apart, so no window contains both.
                    *steady_for = model.bounds.lease - 1;
                } else {
                    state.advance_clock(model, client);
                }
            }
            add(found, Event::Tick { slow }, state);
        }
    }

    fn client_steps(&self, client: usize, found: &mut Vec<Successor>, model: &Model) {
        let me = self.clients[client];
        let send = |found: &mut Vec<Successor>, kind, fence, leaves: bool| {
            let message = Message::new(kind, me.owner, fence);
            let mut state = *self;
            state.network.push(message);
            if leaves {
                let me = &mut state.clients[client];
                (me.phase, me.fence, me.time) = (Phase::Idle, 0, 0);
            }
            add(found, Event::Send(message), state);
        };
        match me.phase {
            Phase::Idle => {
                let mut state = *self;
                let me = &mut state.clients[client];
                me.phase = Phase::Waiting;
                if model.has(Rule::FreshOwner) {
                    me.owner = me.owner.next();
                }
                let owner = me.owner;
                state.network.push(Message::new(Kind::Poll, owner, 0));
                add(found, Event::Start(owner), state);
            }
            Phase::Waiting | Phase::Anchored => {
                send(found, Kind::Poll, 0, false);
                send(found, Kind::Cancel, 0, true);
            }
            Phase::Held => {
                send(found, Kind::Renew, me.fence, false);
                if model.bounds.provisional < model.bounds.lease {
                    send(found, Kind::RenewShort, me.fence, false);
                }
                send(found, Kind::Release, me.fence, true);
            }
            Phase::Lost => send(found, Kind::Release, me.fence, true),
        }
    }

    fn execute(&self, i: usize, retried: bool, model: &Model, found: &mut Vec<Successor>) {
        let mut after = *self;
        let request = after.network[i];
        if !retried {
            after.network.swap_remove(i);
        }
        let Message { owner, fence, .. } = request;
        let names = |lock: Lock| lock.owner == owner && lock.fence == fence;
        let event = |granted, told| Event::Execute { request, granted, retried, told };
        match request.kind {
            Kind::Poll => match &mut after.lock {
                Some(lock) if lock.owner == owner => {
                    let longer = lock.expires_in.max(model.bounds.provisional);
                    lock.expires_in =
                        if model.has(Rule::ConfirmKeepsLease) { longer } else { model.bounds.provisional };
                    let fence = lock.fence;
                    after.answer(model, request, Kind::Held, fence);
                    add(found, event(None, Some(Kind::Held)), after);
                }
                Some(_) => after.make_wait(model, request, None, found),
                None => {
                    let mut taken = after;
                    taken.grant(model, owner);
                    taken.answer(model, request, Kind::Held, taken.counter);
                    add(found, event(Some(owner), Some(Kind::Held)), taken);
                    for &head in self.queue.iter().filter(|head| **head != owner) {
                        let mut helped = after;
                        helped.hand_to(model, head);
                        helped.make_wait(model, request, Some(head), found);
                    }
                }
            },
            Kind::Renew | Kind::RenewShort => {
                if after.lock.is_none() && !model.has(Rule::RenewNeverCreates) {
                    after.lock = Some(Lock { owner, fence, expires_in: 0 });
                }
                if let Some(lock) = after.lock.as_mut().filter(|lock| names(**lock)) {
                    let (asked, told) = match request.kind {
                        Kind::RenewShort => (model.bounds.provisional, Kind::Held),
                        _ => (model.bounds.lease, Kind::Renewed),
                    };
                    let keeps = model.has(Rule::RenewKeepsLease);
                    lock.expires_in = if keeps { lock.expires_in.max(asked) } else { asked };
                    after.answer(model, request, told, fence);
                    add(found, event(None, Some(told)), after);
                } else {
                    add(found, event(None, None), after);
                }
            }
            Kind::Release | Kind::Cancel => {
                let frees = if request.kind == Kind::Cancel {
                    after.queue.retain(|waiter| *waiter != owner);
                    after.lock.is_some_and(|lock| lock.owner == owner)
                } else {
                    after.lock.is_some_and(names) || !model.has(Rule::ReleaseChecksOwner)
                };
                if !frees {
                    add(found, event(None, None), after);
                    return;
                }
                after.lock = None;
                add(found, event(None, None), after);
                for &head in after.queue.iter() {
                    let mut handed = after;
                    handed.hand_to(model, head);
                    handed.push_to(model, head);
                    add(found, event(Some(head), None), handed);
                }
            }
            _ => unreachable!("only requests reach the server"),
        }
    }

    /// Gives the free lock to `owner` with the next fence.
    fn grant(&mut self, model: &Model, owner: Owner) {
        self.queue.retain(|waiter| *waiter != owner);
        self.counter += 1;
        self.lock = Some(Lock { owner, fence: self.counter, expires_in: model.bounds.provisional });
    }

    /// Gives the free lock to a waiter in a script that another client runs.
    fn hand_to(&mut self, model: &Model, head: Owner) {
        self.grant(model, head);
        if let Some(lock) = self.lock.as_mut()
            && !model.has(Rule::LeaseOfReceiver)
        {
            lock.expires_in -= 1;
        }
    }

    /// Ends a poll that is not answered by the lock: the poller waits.
    fn make_wait(mut self, model: &Model, poll: Message, granted: Option<Owner>, found: &mut Vec<Successor>) {
        if !self.queue.contains(&poll.owner) {
            if self.queue.len() == model.bounds.waiters {
                return;
            }
            self.queue.push(poll.owner);
        }
        self.answer(model, poll, Kind::Wait, self.counter);
        if let Some(head) = granted {
            self.push_to(model, head);
        }
        let event = Event::Execute { request: poll, granted, retried: false, told: Some(Kind::Wait) };
        add(found, event, self);
    }

    fn answer(&mut self, model: &Model, request: Message, kind: Kind, fence: u16) {
        let answer = Message { kind, fence, ..request };
        self.send_if_used(model, answer);
    }

    fn push_to(&mut self, model: &Model, head: Owner) {
        let fence = self.counter;
        self.send_if_used(model, Message::new(Kind::Push, head, fence));
    }

    fn send_if_used(&mut self, model: &Model, message: Message) {
        let used = self.user_of(model, message.owner).is_some();
        if used && self.network.len() < model.bounds.messages {
            self.network.push(message);
        }
    }

    fn deliver(&self, i: usize, model: &Model, found: &mut Vec<Successor>) {
        let mut after = *self;
        let message = after.network.swap_remove(i);
        let mut entry = None;
        if let Some(client) = self.user_of(model, message.owner) {
            entry = after.receive(model, client, message);
        }
        let enters = entry.is_some();
        found.push(Successor { event: Event::Deliver { message, enters }, state: after, entry });
    }

    fn receive(&mut self, model: &Model, client: usize, message: Message) -> Option<Entry> {
        let Message { kind, fence, age, .. } = message;
        let me = &mut self.clients[client];
        let anchored = me.phase == Phase::Anchored;
        let waits = me.phase.is_waiting();
        let mine = me.phase == Phase::Held && me.fence == fence;
        let left = |full: u8, used: u8| full.saturating_sub(used);
        let mut entry = Entry { client, by_push: false, again: false };
        let window = match kind {
            Kind::Wait if waits => {
                let at_send = model.has(Rule::AnchorAtSend);
                me.time = if at_send { age } else { 0 };
                (me.phase, me.fence) = (Phase::Anchored, fence);
                return None;
            }
            Kind::Held if waits || mine => {
                let from_send = model.has(Rule::AnswerFromSend);
                let used = if from_send { age } else { 0 };
                left(model.provisional_window(), used)
            }
            Kind::Renewed if mine => left(model.lease_window(), age),
            Kind::Renewed
                if me.phase == Phase::Lost && me.fence == fence && !model.has(Rule::LossIsFinal) =>
            {
                entry.again = true;
                left(model.lease_window(), age)
            }
            Kind::Push if anchored && model.entry_by_push => {
                if model.has(Rule::FenceAboveAnchor) && fence <= me.fence {
                    return None;
                }
                entry.by_push = true;
                let from_anchor = model.has(Rule::WindowFromAnchor);
                let used = if from_anchor { me.time } else { 0 };
                left(model.provisional_window(), used)
            }
            _ => return None,
        };
        if mine {
            me.time = me.time.max(window);
            return None;
        }
        if window == 0 && (model.has(Rule::WindowNotPast) || !entry.by_push) {
            return None;
        }
        me.phase = if window == 0 { Phase::Lost } else { Phase::Held };
        (me.fence, me.time) = (fence, window);
        Some(entry)
    }

    /// Checks the invariants after `entry` led from `before` to this state, and notes the entry.
    ///
    /// # Errors
    ///
    /// The first violation that the model watches for.
    pub fn check(&mut self, model: &Model, before: &Self, entry: Option<Entry>) -> Result<(), Violation> {
        let entering = |client| entry.is_some_and(|e| e.client == client);
        // Entering is believing, even with a window that has passed.
        let holds = |client: &usize| self.clients[*client].phase == Phase::Held || entering(*client);
        let everything = model.watch == Watch::Everything;
        if everything || model.watch == Watch::Overlap {
            let mut holders = (0..self.client_count).filter(holds);
            if let (Some(a), Some(b)) = (holders.next(), holders.next()) {
                return Err(Violation::TwoHolders { clients: [a, b] });
            }
        }
        if everything {
            for client in (0..self.client_count).filter(holds) {
                let me = self.clients[client];
                let names = |lock: Lock| lock.owner == me.owner && lock.fence == me.fence;
                if !self.lock.is_some_and(names) {
                    return Err(Violation::HolderWithoutLock { client });
                }
            }
            let grant = |lock: Option<Lock>| lock.map(|lock| (lock.owner, lock.fence));
            if let Some((_, fence)) = grant(self.lock).filter(|g| Some(*g) != grant(before.lock)) {
                let counter = before.counter;
                if fence <= counter {
                    return Err(Violation::OldLockReturns { fence, counter });
                }
            }
        }
        if let Some(Entry { client, again, .. }) = entry {
            let (fence, last) = (self.clients[client].fence, self.last_entered);
            let above = fence > last || (again && fence == last);
            if (everything || model.watch == Watch::FenceOrder) && !above {
                return Err(Violation::FenceNotAbove { fence, last });
            }
            self.last_entered = last.max(fence);
        }
        Ok(())
    }
}

fn add(found: &mut Vec<Successor>, event: Event, state: State) {
    found.push(Successor { event, state, entry: None });
}
