//! What the rules can say of a lock, without words.

use serde::Serialize;

/// How much a finding matters, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// All is as it should be.
    Fine,
    /// Worth knowing; passes by itself.
    Notice,
    /// Something went wrong; the lease bounds the harm.
    Warning,
    /// Will not go away by itself.
    Problem,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Rule {
    /// Clients wait for each other in a ring.
    Deadlock,
    /// Clients wait for each other in a ring, unless other tasks of theirs hold the locks.
    MayDeadlock,
    /// The holder's process is stopped (SIGSTOP, Ctrl-Z, debugger).
    Stopped,
    /// There is no expiry, and the holder's process is gone.
    NoExpiryDead,
    /// There is no expiry.
    NoExpiry,
    /// The holder's process is gone; its lease still runs.
    HolderGone,
    /// Renewals have stopped.
    RenewalsStopped,
    /// A renewal is late.
    LateRenewal,
    /// The first waiter in the queue is stale.
    DeadHead,
    /// The lock is free although a client waits.
    LostWake,
    /// A grant had a smaller fencing token than one before it.
    TokenFellBack,
    /// The store cannot be read.
    Backend,
    /// The store refuses writes: nothing can be acquired, renewed or released.
    WritesRefused,
    /// Too few independent nodes work for anything to be acquired, renewed or released.
    NoQuorum,
    /// Some of the independent nodes are of no use at present; a majority works.
    NodeDown,
    /// Nodes that do not answer decide whether it is held.
    Undecided,
    /// A client waits for long.
    LongWait,
    /// Many clients wait.
    ManyWaiters,
    /// Renewed, but held far longer than usual, and not kept between callers.
    ZombieRenew,
    /// Others that came later get the lock again and again.
    Starved,
    /// Renewals come so late that one more miss loses the lease.
    ShortLease,
    /// The store's clock and the viewer's differ.
    Clock,
    /// Several contenders have votes of independent nodes, and none has a majority.
    SplitVote,
    /// No client holds it, but fewer nodes than a majority still have it.
    Quorum,
    /// Free, but the store refuses new holders for a while.
    LockDelay,
    /// Another program's lock.
    Foreign,
    /// Held as it should be.
    Legit,
    /// Free.
    Free,
    /// The client of idempotent work ended or lost its claim, and no answer is stored.
    ClaimAbandoned,
    /// Idempotent work runs far longer than usual.
    ClaimLong,
    /// The answer of idempotent work was too large to be stored.
    ResultTooLarge,
    /// Idempotent work was begun more than once before its answer was stored.
    WorkRepeated,
}

impl Rule {
    /// How long a condition must have been seen without a break before a live view shows it, in
    /// milliseconds; from 1 on, at least in two snapshots. What flaps is never shown.
    pub fn stands_for_ms(self) -> u64 {
        match self {
            // A ring was seen in two snapshots before it is evidence. Of a store: at once, since whatever else would be
            // shown instead is not known.
            Self::Deadlock | Self::MayDeadlock | Self::WritesRefused | Self::NoQuorum | Self::Undecided => 0,
            // The age of a missing beat is in the evidence already.
            Self::RenewalsStopped | Self::LateRenewal | Self::Stopped => 1,
            Self::Backend | Self::DeadHead | Self::HolderGone | Self::LostWake | Self::NodeDown => 2_000,
            Self::LongWait | Self::ManyWaiters => 2_000,
            Self::SplitVote | Self::Quorum => 2_000,
            Self::NoExpiry | Self::NoExpiryDead => 2_000,
            Self::ZombieRenew => 5_000,
            Self::Clock => 10_000,
            Self::TokenFellBack | Self::Starved | Self::ShortLease | Self::LockDelay => 0,
            Self::Foreign | Self::Legit | Self::Free => 0,
            // Their age is in the evidence.
            Self::ClaimAbandoned | Self::ClaimLong | Self::ResultTooLarge | Self::WorkRepeated => 0,
        }
    }

    /// Says whether it is about records of idempotent work only, which are read where they are asked for.
    pub fn is_of_records(self) -> bool {
        matches!(self, Self::ClaimAbandoned | Self::ClaimLong | Self::ResultTooLarge | Self::WorkRepeated)
    }

    /// Returns the name as it is in `inspector` documents and JSON.
    pub fn code(self) -> &'static str {
        match self {
            Self::Deadlock => "DEADLOCK",
            Self::MayDeadlock => "MAY-DEADLOCK",
            Self::Stopped => "STOPPED",
            Self::NoExpiryDead => "NO-EXPIRY-DEAD",
            Self::NoExpiry => "NO-EXPIRY",
            Self::HolderGone => "HOLDER-GONE",
            Self::RenewalsStopped => "RENEWALS-STOPPED",
            Self::LateRenewal => "LATE-RENEWAL",
            Self::DeadHead => "DEAD-HEAD",
            Self::LostWake => "LOST-WAKE",
            Self::TokenFellBack => "TOKEN-FELL-BACK",
            Self::Backend => "BACKEND",
            Self::WritesRefused => "WRITES-REFUSED",
            Self::NoQuorum => "NO-QUORUM",
            Self::NodeDown => "NODE-DOWN",
            Self::Undecided => "UNDECIDED",
            Self::LongWait => "LONG-WAIT",
            Self::ManyWaiters => "MANY-WAITERS",
            Self::ZombieRenew => "ZOMBIE-RENEW",
            Self::Starved => "STARVED",
            Self::ShortLease => "SHORT-LEASE",
            Self::Clock => "CLOCK",
            Self::SplitVote => "SPLIT-VOTE",
            Self::Quorum => "QUORUM",
            Self::LockDelay => "LOCK-DELAY",
            Self::Foreign => "FOREIGN",
            Self::Legit => "LEGIT",
            Self::Free => "FREE",
            Self::ClaimAbandoned => "CLAIM-ABANDONED",
            Self::ClaimLong => "CLAIM-LONG",
            Self::ResultTooLarge => "RESULT-TOO-LARGE",
            Self::WorkRepeated => "WORK-REPEATED",
        }
    }
}

/// What a rule says of a lock, without words: made for every lock at every snapshot, so it is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Which rule.
    pub rule: Rule,
    /// How much it matters.
    pub severity: Severity,
    /// The holder it is about, by its place; `None` if it is about the lock or its line.
    pub holder: Option<usize>,
}
