//! The state of server, clients and network, its canonical form and its packed form.

use crate::message::{Kind, Message, Owner};
use crate::rules::{Bounds, Model, Rule};
use crate::store::{Bits, List, Packed};

/// The lock on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The acquisition that owns it.
    pub owner: Owner,
    /// The fence of this grant.
    pub fence: u16,
    /// Ticks until it expires, at least one.
    pub expires_in: u8,
}

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// Waiting without an anchor: a push can only be a hint.
    Waiting,
    /// Waiting with an anchor: a push may be entered on.
    Anchored,
    /// In its critical section, inside its window.
    Held,
    /// Its window passed before it left.
    Lost,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Idle, Self::Waiting, Self::Anchored, Self::Held, Self::Lost];

    pub(crate) const fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::Anchored)
    }
}

/// One client process with at most one acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// What it is doing.
    pub phase: Phase,
    /// The token of its current acquisition, or of its last one when idle.
    pub owner: Owner,
    /// Anchored: the counter in the answer that gave the anchor. Held, lost: the fence held.
    pub fence: u16,
    /// Anchored: age of the anchor. Held: ticks of its own clock that remain in its window.
    pub time: u8,
    /// Ticks until its clock may lose a tick again.
    pub steady_for: u8,
}

/// Everything at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The lock, unless it is free or expired.
    pub lock: Option<Lock>,
    /// The fence counter.
    pub counter: u16,
    /// The highest fence that any client has entered with; only the check knows it.
    pub last_entered: u16,
    pub(crate) clients: [Client; Bounds::MAX_CLIENTS],
    pub(crate) client_count: usize,
    pub(crate) queue: List<Owner, { Bounds::MAX_WAITERS }>,
    pub(crate) network: List<Message, { Bounds::MAX_MESSAGES }>,
}

impl State {
    /// The state in which nothing has happened yet.
    #[must_use]
    pub fn initial(model: &Model) -> Self {
        let first = u16::from(!model.has(Rule::FreshOwner));
        let clients = std::array::from_fn(|client| Client {
            phase: Phase::Idle,
            owner: Owner::of(client, first),
            fence: 0,
            time: 0,
            steady_for: 0,
        });
        Self {
            lock: None,
            counter: 0,
            last_entered: 0,
            clients,
            client_count: model.bounds.clients,
            queue: List::new(Owner::NOBODY),
            network: List::new(Message::new(Kind::Poll, Owner::NOBODY, 0)),
        }
    }

    /// The clients.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients[..self.client_count]
    }

    /// The client that uses this owner token now. Without fresh tokens it always does.
    pub(crate) fn user_of(&self, model: &Model, owner: Owner) -> Option<usize> {
        let client = owner.client();
        let user = self.clients().get(client)?;
        let in_use = user.phase != Phase::Idle || !model.has(Rule::FreshOwner);
        (user.owner == owner && in_use).then_some(client)
    }

    /// Drops messages that cannot change anything any more and forgets ages beyond every window.
    ///
    /// Being in flight for ever and being lost are the same thing, so this removes no behaviour; it
    /// makes room for messages that matter.
    pub fn prune(&mut self, model: &Model) {
        for client in &mut self.clients[..self.client_count] {
            if client.phase == Phase::Anchored {
                client.time = client.time.min(model.bounds.provisional);
                let useless = model.has(Rule::WindowFromAnchor)
                    && model.has(Rule::WindowNotPast)
                    && client.time >= model.provisional_window();
                if useless && model.prune {
                    (client.phase, client.fence, client.time) = (Phase::Waiting, 0, 0);
                }
            }
        }
        let mut kept = 0;
        for i in 0..self.network.len() {
            let mut message = self.network[i];
            let longest = match message.kind {
                Kind::Renew | Kind::Renewed => model.lease_window(),
                _ => model.provisional_window(),
            };
            message.age = message.age.min(longest);
            if model.prune {
                if self.is_inert(model, message) {
                    continue;
                }
                if self.answer_is_useless(model, message.owner) {
                    message.age = 0;
                }
            }
            self.network[kept] = message;
            kept += 1;
        }
        self.network.truncate(kept);
    }

    /// Whether nobody will ever act on an answer or push for this owner.
    fn answer_is_useless(&self, model: &Model, owner: Owner) -> bool {
        match self.user_of(model, owner) {
            None => true,
            Some(client) => {
                self.clients[client].phase == Phase::Lost
                    && model.has(Rule::FreshOwner)
                    && model.has(Rule::LossIsFinal)
            }
        }
    }

    fn is_inert(&self, model: &Model, message: Message) -> bool {
        let Message { kind, owner, fence, age } = message;
        // Fences only grow: a lock that is not (owner, fence) now never becomes it again.
        let names_lock = (self.lock).is_some_and(|l| l.owner == owner && l.fence == fence);
        match kind {
            Kind::Poll => false,
            Kind::Renew | Kind::RenewShort => model.has(Rule::RenewNeverCreates) && !names_lock,
            Kind::Release => {
                model.has(Rule::RenewNeverCreates) && model.has(Rule::ReleaseChecksOwner) && !names_lock
            }
            // Only a poll still in flight could give it something to undo.
            Kind::Cancel => {
                self.user_of(model, owner).is_none()
                    && self.lock.is_none_or(|lock| lock.owner != owner)
                    && !self.queue.contains(&owner)
                    && model.has(Rule::RenewNeverCreates)
                    && !(self.network.iter()).any(|m| m.kind == Kind::Poll && m.owner == owner)
            }
            Kind::Wait | Kind::Held | Kind::Renewed | Kind::Push => {
                let Some(user) = self.user_of(model, owner) else {
                    return true;
                };
                if self.answer_is_useless(model, owner) {
                    return true;
                }
                let fresh = model.has(Rule::FreshOwner);
                let user = self.clients[user];
                let waits = user.phase.is_waiting();
                match kind {
                    Kind::Wait => {
                        let late = model.has(Rule::AnchorAtSend)
                            && model.has(Rule::WindowFromAnchor)
                            && model.has(Rule::WindowNotPast)
                            && age >= model.provisional_window();
                        !model.entry_by_push || late || (fresh && !waits)
                    }
                    Kind::Push => !model.entry_by_push || (fresh && !waits),
                    Kind::Held => {
                        let late = model.has(Rule::AnswerFromSend) && age >= model.provisional_window();
                        late || (fresh && !waits && user.fence != fence)
                    }
                    _ => age >= model.lease_window() || (fresh && user.fence != fence),
                }
            }
        }
    }

    /// Brings the state into its canonical form: two states that the protocol cannot tell apart
    /// become equal.
    ///
    /// - Fences keep their order and equality, not their size. The counter only has to be no lower
    ///   than every fence in use, so it becomes the highest of them.
    /// - Owner tokens that no client uses any more keep only what is known about them: whether
    ///   they own the lock, whether they wait, and their messages in flight.
    /// - Waiters and messages are sets.
    ///
    /// # Panics
    ///
    /// If the bounds let more fences or owners live at once than a packed state has room for, which
    /// [`Model::full`] rules out.
    pub fn canonical(&mut self, model: &Model) {
        self.rank_fences();
        self.rename_owners(model);
        self.queue.sort_unstable();
        self.network.sort_unstable_by_key(|m| m.packed());
    }

    fn fences_mut(&mut self) -> impl Iterator<Item = &mut u16> {
        let lock = self.lock.iter_mut().map(|lock| &mut lock.fence);
        let clients = self.clients[..self.client_count].iter_mut();
        let clients =
            clients.filter(|c| !matches!(c.phase, Phase::Idle | Phase::Waiting)).map(|c| &mut c.fence);
        let messages = self.network.iter_mut();
        let messages =
            messages.filter(|m| !matches!(m.kind, Kind::Poll | Kind::Cancel)).map(|m| &mut m.fence);
        lock.chain(clients).chain(messages).chain([&mut self.last_entered])
    }

    fn rank_fences(&mut self) {
        let mut known = [u16::MAX; 16];
        let mut count = 0;
        for fence in self.fences_mut() {
            if let Err(place) = known[..count].binary_search(fence) {
                known.copy_within(place..count, place + 1);
                known[place] = *fence;
                count += 1;
            }
        }
        for fence in self.fences_mut() {
            *fence = known[..count].partition_point(|k| k < fence) as u16;
        }
        self.counter = count as u16 - 1;
    }

    fn rename_owners(&mut self, model: &Model) {
        const MOST: usize = 1 + Bounds::MAX_WAITERS + Bounds::MAX_MESSAGES;
        let mut former = [(0u128, Owner::NOBODY); MOST];
        let mut count = 0;
        // The order of the queue and of the network must not leak into the names.
        self.network.sort_unstable_by_key(|m| (m.kind, m.fence, m.age));
        let mut note = |state: &Self, owner: Owner, what: u128, bits: u32| {
            if state.user_of(model, owner).is_some() {
                return;
            }
            let place = (former[..count].iter()).position(|(_, known)| *known == owner);
            let place = place.unwrap_or_else(|| {
                former[count] = (1, owner);
                count += 1;
                count - 1
            });
            former[place].0 = former[place].0 << bits | what;
        };
        if let Some(lock) = self.lock {
            note(self, lock.owner, 1, 2);
        }
        for owner in self.queue.iter() {
            note(self, *owner, 2, 2);
        }
        for m in self.network.iter() {
            let what = (m.kind as u128) << 8 | u128::from(m.fence) << 4 | u128::from(m.age);
            note(self, m.owner, what, 12);
        }
        let former = &mut former[..count];
        former.sort_unstable_by_key(|(known, _)| *known);
        let idle = u16::from(!model.has(Rule::FreshOwner));
        let users = self.clients;
        let rename = |owner: Owner| {
            let place = former.iter().position(|(_, known)| *known == owner);
            place.map_or_else(|| Owner::of(owner.client(), 1), Owner::former)
        };
        if let Some(lock) = &mut self.lock {
            lock.owner = rename(lock.owner);
        }
        for owner in self.queue.iter_mut() {
            *owner = rename(*owner);
        }
        for message in self.network.iter_mut() {
            message.owner = rename(message.owner);
        }
        for (i, user) in users[..self.client_count].iter().enumerate() {
            let acquisition = if user.phase == Phase::Idle { idle } else { 1 };
            self.clients[i].owner = Owner::of(i, acquisition);
        }
    }

    /// Moves a client's clock on by one tick, and with it everything it measures.
    pub(crate) fn advance_clock(&mut self, model: &Model, client: usize) {
        let me = &mut self.clients[client];
        match me.phase {
            Phase::Anchored => me.time += 1,
            Phase::Held => {
                me.time -= 1;
                if me.time == 0 {
                    me.phase = Phase::Lost;
                }
            }
            _ => {}
        }
        for i in 0..self.network.len() {
            let owner = self.network[i].owner;
            if self.network[i].kind.ages() && self.user_of(model, owner) == Some(client) {
                self.network[i].age += 1;
            }
        }
    }

    /// Packs a canonical state.
    #[must_use]
    pub fn pack(&self) -> Packed {
        const NO_OWNER: u64 = 15;
        let mut bits = Bits::default();
        let lock = self.lock.map_or(NO_OWNER, |lock| {
            lock.owner.index() | u64::from(lock.fence) << 4 | u64::from(lock.expires_in) << 8
        });
        bits.put(lock, 12);
        bits.put(self.queue.iter().map(|o| 1 << o.index()).sum(), 16);
        bits.put(u64::from(self.counter), 4);
        bits.put(u64::from(self.last_entered), 4);
        for client in &self.clients {
            bits.put(client.phase as u64, 3);
            bits.put(u64::from(client.fence), 4);
            bits.put(u64::from(client.time), 4);
            bits.put(u64::from(client.steady_for), 4);
        }
        bits.put(self.network.len() as u64, 3);
        for message in self.network.iter() {
            bits.put(message.packed(), 15);
        }
        bits.words
    }

    /// Reverses [`State::pack`].
    #[must_use]
    pub fn unpack(model: &Model, packed: Packed) -> Self {
        const CLIENTS: u64 = Bounds::MAX_CLIENTS as u64;
        let owner = |index: u64| match index {
            0..CLIENTS => Owner::of(index as usize, 1),
            _ => Owner::former((index - CLIENTS) as usize),
        };
        let mut bits = Bits { words: packed, at: 0 };
        let mut state = Self::initial(model);
        let lock = bits.take(12);
        state.lock = (lock >> 8 != 0).then(|| Lock {
            owner: owner(lock & 15),
            fence: (lock >> 4 & 15) as u16,
            expires_in: (lock >> 8) as u8,
        });
        let queue = bits.take(16);
        for index in (0..16).filter(|i| queue >> i & 1 == 1) {
            state.queue.push(owner(index));
        }
        state.counter = bits.take(4) as u16;
        state.last_entered = bits.take(4) as u16;
        for client in &mut state.clients {
            client.phase = Phase::ALL[bits.take(3) as usize];
            client.fence = bits.take(4) as u16;
            client.time = bits.take(4) as u8;
            client.steady_for = bits.take(4) as u8;
            if client.phase != Phase::Idle {
                client.owner = Owner::of(client.owner.client(), 1);
            }
        }
        for _ in 0..bits.take(3) {
            let m = bits.take(15);
            state.network.push(Message::unpacked(m, owner(m >> 8 & 15)));
        }
        state
    }
}
