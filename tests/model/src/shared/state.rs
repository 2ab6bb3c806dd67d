//! The state of server, clients and network, and its canonical form.

use super::{Rule, Want, World};

/// An owner token: the client that drew it and which of its acquisitions it is, 0 for the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The client.
    pub client: u8,
    /// 0 for its present acquisition, or a name for one that has ended.
    pub former: u8,
}

/// One lease on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// The acquisition that owns it.
    pub owner: Owner,
    /// Its fence.
    pub fence: u8,
    /// In which way it is held.
    pub want: Want,
    /// Ticks until it ends, at least one.
    pub left: u8,
    /// It was renewed since its grant.
    pub renewed: bool,
}

/// One place in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// The acquisition that waits.
    pub owner: Owner,
    /// In which way it wants the lock.
    pub want: Want,
}

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Nothing.
    Idle,
    /// Waiting; a push can only be a hint.
    Waiting,
    /// Waiting; a push with a larger fence may be entered on, until the window since then has passed.
    Anchored {
        /// The counter in the answer.
        fence: u8,
        /// Ticks since its poll was sent.
        age: u8,
    },
    /// Inside its section and its window.
    Held {
        /// Its fence.
        fence: u8,
        /// Ticks of its window that remain.
        left: u8,
    },
    /// Outside its section, between reading and writing.
    Converting {
        /// The fence before.
        fence: u8,
        /// Ticks of its window that remain; zero when it has passed.
        left: u8,
    },
    /// Its window passed before it left.
    Lost {
        /// The fence it had.
        fence: u8,
    },
}

/// One client process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// What it is doing.
    pub phase: Phase,
    /// In which way it wants or holds the lock.
    pub want: Want,
}

/// What a message asks or says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Request: acquire, confirm and wait in one.
    Poll,
    /// Request: extend the lease of this owner and fence.
    Renew,
    /// Request: end the lease of this owner and fence.
    Release,
    /// Request: leave the line, and end what this owner has.
    Cancel,
    /// Request: from reading to writing, or back.
    Convert,
    /// Answer to a poll: somebody else's turn; carries the counter.
    Wait,
    /// Answer to a poll: held under this fence.
    Held,
    /// Answer to a renewal.
    Renewed,
    /// Answer to a conversion: held in the way that the message names, under this fence.
    Converted,
    /// Answer to a conversion: nothing was changed.
    Refused,
    /// One-way message of a grant.
    Push,
}

/// A message that the network has not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// What it asks or says.
    pub verb: Verb,
    /// Which acquisition it belongs to.
    pub owner: Owner,
    /// In which way that wants the lock; of a conversion, the way it asks for.
    pub want: Want,
    /// The fence it names, or zero.
    pub fence: u8,
    /// Ticks since the request was sent; answers inherit it.
    pub age: u8,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Live leases on the server, oldest first.
    pub holders: Vec<Holder>,
    /// Live waiters on the server, in the order in which they came.
    pub line: Vec<Waiter>,
    /// The largest fence given out.
    pub counter: u8,
    /// The largest fence with which anybody entered, and the largest with which a writer did. Only the
    /// check knows them.
    pub entered: (u8, u8),
    /// The clients.
    pub clients: Vec<Client>,
    /// Messages in flight, as a sorted set.
    pub network: Vec<Message>,
}

impl Verb {
    /// Whether the server carries it out; otherwise a client receives it.
    pub(super) const fn is_request(self) -> bool {
        matches!(self, Self::Poll | Self::Renew | Self::Release | Self::Cancel | Self::Convert)
    }
}

impl State {
    /// The state in which nothing has happened yet.
    #[must_use]
    pub fn initial(world: &World) -> Self {
        let client = Client { phase: Phase::Idle, want: world.wants()[0] };
        Self {
            holders: Vec::new(),
            line: Vec::new(),
            counter: 0,
            entered: (0, 0),
            clients: vec![client; world.clients],
            network: Vec::new(),
        }
    }

    /// The client for which this owner token is the present one.
    pub(super) fn user_of(&self, owner: Owner) -> Option<usize> {
        let client = usize::from(owner.client);
        (owner.former == 0 && self.clients[client].phase != Phase::Idle).then_some(client)
    }

    pub(super) fn place_of(&self, owner: Owner, fence: u8) -> Option<usize> {
        self.holders.iter().position(|holder| holder.owner == owner && holder.fence == fence)
    }

    /// The tokens of an acquisition that ends now get a former one's name.
    pub(super) fn retire(&mut self, client: usize) {
        let present = Owner { client: client as u8, former: 0 };
        let free = self.owners_mut().filter(|owner| owner.client == present.client).map(|owner| owner.former);
        let name = free.max().unwrap_or(0) + 1;
        for owner in self.owners_mut().filter(|owner| **owner == present) {
            owner.former = name;
        }
    }

    fn owners_mut(&mut self) -> impl Iterator<Item = &mut Owner> {
        let holders = self.holders.iter_mut().map(|holder| &mut holder.owner);
        let line = self.line.iter_mut().map(|waiter| &mut waiter.owner);
        holders.chain(line).chain(self.network.iter_mut().map(|message| &mut message.owner))
    }

    /// Drops what can change nothing any more, and brings the rest into one form: two states that the
    /// protocol cannot tell apart become equal.
    pub fn settle(&mut self, world: &World) {
        let longest = world.lease.max(world.provisional);
        for client in &mut self.clients {
            match client.phase {
                Phase::Anchored { age, .. } if age >= world.provisional => client.phase = Phase::Waiting,
                Phase::Idle => client.want = world.wants()[0],
                _ => {}
            }
        }
        if world.has(Rule::ProvisionalPermitsCount) {
            self.holders.iter_mut().for_each(|holder| holder.renewed = false);
        }
        let before = self.clone();
        self.network.retain(|message| before.matters(*message));
        for message in &mut self.network {
            let ages = !matches!(message.verb, Verb::Push | Verb::Release | Verb::Cancel);
            message.age = if ages { message.age.min(longest) } else { 0 };
        }
        self.rank_fences();
        self.rename_formers();
        self.network.sort_unstable();
        self.network.dedup();
    }

    fn matters(&self, message: Message) -> bool {
        let Message { verb, owner, fence, .. } = message;
        match verb {
            Verb::Poll => true,
            Verb::Renew | Verb::Release | Verb::Convert => self.place_of(owner, fence).is_some(),
            Verb::Cancel => {
                self.line.iter().any(|waiter| waiter.owner == owner)
                    || self.holders.iter().any(|holder| holder.owner == owner)
                    || self.network.iter().any(|other| other.verb == Verb::Poll && other.owner == owner)
            }
            _ => self.user_of(owner).is_some_and(|client| {
                let phase = self.clients[client].phase;
                let waits = matches!(phase, Phase::Waiting | Phase::Anchored { .. });
                match verb {
                    Verb::Wait | Verb::Push => waits,
                    Verb::Held => waits || matches!(phase, Phase::Held { fence: held, .. } if held == fence),
                    Verb::Renewed => matches!(phase, Phase::Held { fence: held, .. } if held == fence),
                    _ => matches!(phase, Phase::Converting { .. }),
                }
            }),
        }
    }

    fn fences_mut(&mut self) -> impl Iterator<Item = &mut u8> {
        let holders = self.holders.iter_mut().map(|holder| &mut holder.fence);
        let clients = self.clients.iter_mut().filter_map(|client| match &mut client.phase {
            Phase::Idle | Phase::Waiting => None,
            Phase::Anchored { fence, .. }
            | Phase::Held { fence, .. }
            | Phase::Converting { fence, .. }
            | Phase::Lost { fence } => Some(fence),
        });
        let network = self.network.iter_mut();
        let network = network.filter(|one| !matches!(one.verb, Verb::Poll | Verb::Cancel));
        let network = network.map(|message| &mut message.fence);
        let (all, writers) = &mut self.entered;
        holders.chain(clients).chain(network).chain([all, writers])
    }

    /// Fences keep their order and equality, not their size.
    fn rank_fences(&mut self) {
        let mut known: Vec<u8> = self.fences_mut().map(|fence| *fence).chain([0]).collect();
        known.sort_unstable();
        known.dedup();
        for fence in self.fences_mut() {
            *fence = known.partition_point(|one| one < fence) as u8;
        }
        self.counter = known.len() as u8 - 1;
    }

    fn rename_formers(&mut self) {
        let mut known: Vec<Owner> = self.owners_mut().map(|owner| *owner).collect();
        known.retain(|owner| owner.former > 0);
        known.sort_unstable();
        known.dedup();
        for owner in self.owners_mut().filter(|owner| owner.former > 0) {
            let same = known.iter().filter(|one| one.client == owner.client);
            owner.former = 1 + same.take_while(|one| **one != *owner).count() as u8;
        }
    }
}
