//! A bounded model check of admission to several independent nodes (RedLock): which nodes vote after a
//! restart, a loss of data or a step of a clock.
//!
//! # What is shipped and what is restated
//!
//! The decisions are the core's own, included from `core/src/policy`: `openable`, `Quarantine`,
//! `ClockReading::moved_since` and `stepped`. Restated are the scripts of a node (`look`, `open`, `acquire`,
//! `raise`, `renew`, `heal`, `release`) and what a client remembers of a node (`redlock/transport/node.rs`, `redlock/gate.rs`,
//! `care.rs`).
//!
//! # What is modelled
//!
//! - **Nodes**: a lock that ends by the node's wall clock, a counter, and a gate: open, floored or closed since a
//!   time of the node's clock, whether it is of the present process, whether the node was new, strict, longest
//!   lease. A node restarts with all its data, with an old state of it (no lock, no counter, but the gate), or
//!   empty. Its clock steps forward or back by more than a lease.
//! - **Clients**: each has a lease of its own, its own boot clock, and remembers what it learned: since when it
//!   saw each node closed, how far each node's clock moved, whether it saw a counter or a lease. It looks at
//!   any set of nodes (the others do not answer), closes what changed, decides with the shipped policy and
//!   opens. It asks nodes for their votes one after another, decides with a majority, writes its token back,
//!   renews, heals, releases or lets its lease run out.
//! - **Messages**: a vote is carried out at any time within its attempt, and an opening at any time after it was
//!   decided, whatever happened meanwhile.
//!
//! # What is checked
//!
//! Never two clients whose guards are valid by their own clocks, and no token that is not larger than every
//! token that was granted before its acquisition began. What is promised with an exception is not checked after
//! it:
//!
//! - tokens: after a floored opening; under `strict` only if a majority of all nodes had changed by then;
//! - all of it: after a majority lost its data and a client that had seen neither counter nor lease took the
//!   store for new. Under `strict` this never happens.
//!
//! # What is not modelled
//!
//! Clocks of different rates (the quarantine's margin for them is left out), wrong wall clocks of clients, a
//! jump of a client's own clock, the proposals (a token is the largest counter and one, so nothing here rests on
//! clocks), a step that a client cannot see because it never read the clock before, or because another step
//! took it back in between, looks that are answered late, the number of nodes in the gate, requests of attempts that
//! were given up, and interleavings within a write-back ([`crate::redlock`] has these).
//!
//! # Bounds
//!
//! Nodes, clients, attempts of each client, restarts, steps; durations in ticks. Any run within them is visited,
//! unless the limit of states ends the search first. Nodes are interchangeable.

mod search;
mod state;
mod step;

pub use search::{Search, Trace, search};
pub use step::{Event, Kept, Violation};

/// One rule of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A node that changed does not vote before its time is over.
    Quarantine,
    /// The quarantine is also counted by the boot clock of the client that opens the node.
    OwnClockToo,
    /// A node whose clock stepped does not count, and is quarantined.
    StepsClose,
    /// A node that does not answer is not taken for new.
    SilenceIsNotNew,
    /// A client that has seen a counter or a lease does not take the store for new.
    SeenIsRemembered,
    /// Votes count as having seen it, not only looks.
    VotesAreSeen,
    /// A client that only looks neither closes nor opens nodes.
    LookingWritesNothing,
    /// The gate has the longest lease of any client, and the quarantine lasts for it.
    LongestLeaseStands,
    /// A node that is opened gets the largest counter of so many voting nodes that every majority has one.
    CounterIsBroughtUp,
    /// Under `strict`, too few voting nodes give no counter unless a majority of all nodes has changed.
    StrictWaitsForTheRest,
    /// A vote counts only if the process that gave it is the one whose gate was read.
    VotesOfKnownProcess,
    /// A node is opened only if it is as it was when that was decided.
    OpensOnlyUnchanged,
}

/// How a world begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// No node has ever been used.
    New,
    /// All nodes vote, and no client has looked.
    Voting,
    /// All nodes vote, and the first client has just got the lock, on a majority or on all of them. The others
    /// have looked at all nodes, at none, or (one of them) have been refused the lock.
    Held,
}

/// One deployment, and what may happen to it. Durations are in ticks.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub nodes: usize,
    /// The lease of each client that takes locks, which is also its longest one.
    pub leases: &'static [u8],
    /// The client at this place only looks: it takes no lock and its guarantee is best effort.
    pub looker: Option<usize>,
    pub strict: bool,
    /// How often each client may ask for the lock.
    pub attempts: u8,
    pub restarts: u8,
    /// What a node may have after a restart.
    pub kept: &'static [Kept],
    /// An opening may arrive at any time after it was decided; otherwise at once.
    pub late: bool,
    /// Any nodes may fail to answer a look; otherwise all answer.
    pub away: bool,
    /// Steps of nodes' clocks. By how much: more than any lease.
    pub steps: u8,
    /// Holders renew, and give the lease to nodes that lost it.
    pub renews: bool,
    /// How it begins.
    pub begin: Begin,
    /// The rule that does not hold, if one does not.
    pub without: Option<Rule>,
}

impl World {
    /// Two clients with the same lease at nodes that all vote.
    #[must_use]
    pub const fn of(nodes: usize, strict: bool) -> Self {
        Self {
            nodes,
            leases: &[2, 2],
            looker: None,
            strict,
            attempts: 1,
            restarts: 1,
            kept: &[Kept::All, Kept::Old, Kept::Nothing],
            late: true,
            away: true,
            steps: 0,
            renews: false,
            begin: Begin::Voting,
            without: None,
        }
    }

    /// Returns this world without one rule.
    #[must_use]
    pub const fn without(mut self, rule: Rule) -> Self {
        self.without = Some(rule);
        self
    }

    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn clients(&self) -> usize {
        self.leases.len()
    }

    fn longest(&self) -> u8 {
        self.leases.iter().copied().max().unwrap_or(0)
    }

    fn is_strict(&self, client: usize) -> bool {
        self.strict && self.looker != Some(client)
    }

    /// By how much a clock steps.
    fn step(&self) -> i8 {
        self.longest().cast_signed()
    }
}
