//! Owner tokens and the messages that carry them.

use crate::rules::Bounds;
use std::fmt;

/// An owner token: the client that drew it and the number of its acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u16);

impl Owner {
    /// Canonical names of owner tokens that no client uses any more start here.
    const FORMER: u16 = 0xF000;
    pub(crate) const NOBODY: Self = Self(u16::MAX);

    pub(crate) const fn of(client: usize, acquisition: u16) -> Self {
        Self((client as u16) << 12 | acquisition)
    }

    pub(crate) const fn former(number: usize) -> Self {
        Self(Self::FORMER | number as u16)
    }

    pub(crate) const fn client(self) -> usize {
        (self.0 >> 12) as usize
    }

    /// The token that the same client draws next.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place of a canonical token in a packed state.
    pub(crate) const fn index(self) -> u64 {
        if self.0 >= Self::FORMER {
            (Bounds::MAX_CLIENTS as u16 + (self.0 & 0xFFF)) as u64
        } else {
            self.client() as u64
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", client_name(self.client()), self.0 & 0xFFF)
    }
}

pub(crate) fn client_name(client: usize) -> char {
    char::from(b'A' + client as u8)
}

/// The kind of a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Request: acquire, confirm, heartbeat and back-stop in one.
    Poll,
    /// Request: extend exactly this owner's lock with this fence.
    Renew,
    /// Request: the same for the shorter of the two lengths that renewals have.
    RenewShort,
    /// Request: give back exactly this owner's lock with this fence.
    Release,
    /// Request: leave the queue; give the lock back if it was granted meanwhile.
    Cancel,
    /// Answer to a poll: somebody else holds; carries the fence counter.
    Wait,
    /// Answer to a poll or to a short renewal: the lock is yours; carries its fence.
    Held,
    /// Answer to a long renewal that found its lock.
    Renewed,
    /// One-way message of a grant; carries its fence.
    Push,
}

impl Kind {
    /// Those that are packed by their place here; a short renewal is packed as a cancel that names a fence.
    pub(crate) const PACKED: [Self; 8] = [
        Self::Poll,
        Self::Renew,
        Self::Release,
        Self::Cancel,
        Self::Wait,
        Self::Held,
        Self::Renewed,
        Self::Push,
    ];

    /// Whether the server executes it; otherwise a client receives it.
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(self, Self::Poll | Self::Renew | Self::RenewShort | Self::Release | Self::Cancel)
    }

    /// Whether the client's clock runs for it: it measures from when the request was sent.
    pub(crate) const fn ages(self) -> bool {
        !matches!(self, Self::Release | Self::Cancel | Self::Push)
    }
}

/// A message that the network has not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// What it asks or says.
    pub kind: Kind,
    /// Which acquisition it belongs to.
    pub owner: Owner,
    /// The fence it names, zero for polls and cancels.
    pub fence: u16,
    /// Ticks of the client's clock since the request was sent; answers inherit it.
    pub age: u8,
}

impl Message {
    pub(crate) const fn new(kind: Kind, owner: Owner, fence: u16) -> Self {
        Self { kind, owner, fence, age: 0 }
    }

    pub(crate) fn packed(self) -> u64 {
        let (kind, fence) = match self.kind {
            Kind::RenewShort => (Kind::Cancel, self.fence + 1),
            kind => (kind, self.fence),
        };
        let kind = Kind::PACKED.iter().position(|packed| *packed == kind).unwrap_or_default();
        let high = (kind as u64) << 4 | self.owner.index();
        high << 8 | u64::from(fence) << 4 | u64::from(self.age)
    }

    /// Reverses [`Message::packed`].
    pub(crate) fn unpacked(packed: u64, owner: Owner) -> Self {
        let (kind, fence) = (Kind::PACKED[(packed >> 12) as usize], (packed >> 4 & 15) as u16);
        let (kind, fence) = match kind {
            Kind::Cancel if fence > 0 => (Kind::RenewShort, fence - 1),
            kind => (kind, fence),
        };
        Self { kind, owner, fence, age: (packed & 15) as u8 }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, fence, age) = (self.owner, self.fence, self.age);
        match self.kind {
            Kind::Poll => write!(f, "poll({owner})"),
            Kind::Renew => write!(f, "renew({owner}, #{fence})"),
            Kind::RenewShort => write!(f, "renew_short({owner}, #{fence})"),
            Kind::Release => write!(f, "release({owner}, #{fence})"),
            Kind::Cancel => write!(f, "cancel({owner})"),
            Kind::Wait => write!(f, "answer to {owner}'s poll sent {age} ago: wait, F=#{fence}"),
            Kind::Held => write!(f, "answer to {owner}'s poll or renewal sent {age} ago: held, #{fence}"),
            Kind::Renewed => write!(f, "answer to {owner}'s renewal sent {age} ago: #{fence}"),
            Kind::Push => write!(f, "push({owner}, #{fence})"),
        }
    }
}
