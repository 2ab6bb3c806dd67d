//! The same hand-off for locks that several can hold: readers and writers, and permits.
//!
//! What is new here against the mutex: a step may grant to several, whoever holds may be joined by
//! others, the line has an order that decides about turns, and a lease may be converted between reading
//! and writing. Network, time and the rules for entering on a push are as in the model of the mutex and
//! hold throughout; what can be switched off is what only locks that are shared need.
//!
//! Waiters fall silent whenever they like ([`Event::Lapse`]), so every policy for heartbeats is covered.
//! Not modelled: waiters whom no message reaches and who are passed over, and barging.

mod search;
mod state;
mod step;

pub use search::{Search, Trace, search, walk};
pub use state::{Client, Holder, Message, Owner, Phase, State, Verb, Waiter};
pub use step::{Event, Violation};

/// In which way a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// Beside other readers.
    Read,
    /// Alone.
    Write,
    /// So many permits.
    Permits(u8),
}

/// What kind of lock a world has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Readers and writers, with steps between them.
    ReadWrite,
    /// This many permits.
    Semaphore(u8),
}

/// One rule that only shared locks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A newcomer that could share the lock stands behind whoever waits already.
    NewcomerKeepsTurn,
    /// A grant to those in line stops at the first who cannot have the lock.
    GrantStopsAtFirst,
    /// A writer is granted only when the last reader is gone.
    WriterWaitsForAllReaders,
    /// Readers are granted only when the writer is gone.
    ReadersWaitForWriter,
    /// Permits that were granted and not yet renewed count as taken.
    ProvisionalPermitsCount,
    /// The end of one holder's lease is its own: another grant does not move it.
    LeasesEndApart,
    /// Who leaves the line lets those in whom only it kept out.
    LeavingGrants,
    /// A step up to writing is refused while others hold.
    UpgradeNeedsToBeAlone,
    /// A step up to writing takes a new fence.
    UpgradeTakesFence,
    /// A step down to reading keeps writers out until it is released.
    DowngradeStaysHeld,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NewcomerKeepsTurn,
        Self::GrantStopsAtFirst,
        Self::WriterWaitsForAllReaders,
        Self::ReadersWaitForWriter,
        Self::ProvisionalPermitsCount,
        Self::LeasesEndApart,
        Self::LeavingGrants,
        Self::UpgradeNeedsToBeAlone,
        Self::UpgradeTakesFence,
        Self::DowngradeStaysHeld,
    ];
}

/// One protocol in one small world. Durations are in ticks.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// What kind of lock it is.
    pub family: Family,
    /// Number of clients.
    pub clients: usize,
    /// The lease that every grant gives.
    pub provisional: u8,
    /// The lease that a renewal gives.
    pub lease: u8,
    /// Most messages in flight at once.
    pub messages: usize,
    /// Most waiters at once.
    pub waiters: usize,
    /// Most leases on the server at once: with those of acquisitions that have ended they are more than
    /// the clients.
    pub holders: usize,
    /// The rule that does not hold, if one does not.
    pub without: Option<Rule>,
}

impl World {
    /// A world in which every rule matters.
    #[must_use]
    pub const fn of(family: Family, clients: usize, messages: usize) -> Self {
        Self {
            family,
            clients,
            provisional: 2,
            lease: 2,
            messages,
            waiters: clients,
            holders: clients,
            without: None,
        }
    }

    /// Returns this world without one rule.
    #[must_use]
    pub const fn without(mut self, rule: Rule) -> Self {
        self.without = Some(rule);
        self
    }

    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// In which ways a client may want the lock.
    pub(crate) fn wants(&self) -> Vec<Want> {
        match self.family {
            Family::ReadWrite => vec![Want::Read, Want::Write],
            Family::Semaphore(capacity) => (1..=capacity).map(Want::Permits).collect(),
        }
    }

    /// Whether those who hold leave room for one more, by the rules as they should be.
    pub(crate) fn admits<'h>(&self, held: impl IntoIterator<Item = &'h Want>, wanted: Want) -> bool {
        let mut held = held.into_iter();
        match (wanted, self.family) {
            (Want::Write, _) => held.next().is_none(),
            (Want::Read, _) => held.all(|want| *want == Want::Read),
            (Want::Permits(count), Family::Semaphore(capacity)) => {
                held.map(|want| want.permits()).sum::<u8>() + count <= capacity
            }
            (Want::Permits(_), Family::ReadWrite) => false,
        }
    }
}

impl Want {
    const fn permits(self) -> u8 {
        match self {
            Self::Permits(count) => count,
            _ => 1,
        }
    }
}
