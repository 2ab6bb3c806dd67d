//! What the stores that keep locks as rows share: the decisions of each verb, over rows that a store reads and
//! writes in its own dialect.
//!
//! A store implements [`Rows`] inside one transaction that no other step on the same locks enters. [`Steps`] then
//! carries out the verbs. `memory::store` says the same in its own words; the differential tests compare them.

#[cfg(test)]
pub(crate) mod sequences;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod server;
mod steps;

use std::time::Duration;

pub(crate) use steps::Steps;

use crate::backend::{Contender, HolderHint};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::token::{ClientId, OwnerToken};

/// The time at which a step is carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Milliseconds on the clock by which leases end.
    pub clock_ms: i64,
    /// The same with a begun millisecond counted as whole: what starts now ends no earlier than asked.
    pub begun_ms: i64,
    /// Wall clock in microseconds: floors the counter and is shown to people; decides nothing else.
    pub wall_us: i64,
}

/// What a step tells clients without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    Granted { owner: OwnerToken, fence: u64 },
    Revoked { owner: OwnerToken, fence: u64 },
}

/// Who gets a lock: a contender that asks, or a waiter as it was written down.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub owner: String,
    pub client: String,
    pub label: String,
    pub lease_ms: i64,
    pub first_ms: i64,
    pub mode: Mode,
}

/// One live lease.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub owner: String,
    pub fence: i64,
    pub client: String,
    pub label: String,
    pub acquired_ms: i64,
    pub ends_ms: i64,
    pub mode: Mode,
    /// Its mode is one of this version. Another one excludes everything.
    pub is_known: bool,
}

/// Admits no other lease beside it, of any mode.
pub(crate) const EXCLUSIVE: Mode = Mode::Permits { count: u32::MAX, capacity: u32::MAX };

/// The rows of a store inside one transaction: read, written, not judged.
pub(crate) trait Rows {
    /// Why rows could not be read or written.
    type Error;

    /// The time of this step.
    fn now(&self) -> Now;

    /// The largest number given out for this lock, as fence or as ticket.
    fn counter(&self, name: &str) -> i64;

    /// Gives out the next number: never one that was given out before, and at least the wall clock in
    /// microseconds, so that numbers go on growing if the data is lost.
    fn next_number(&mut self, name: &str) -> i64;

    /// Reads the live leases of a name, oldest first, and deletes those whose time has passed.
    fn holders(&mut self, name: &str) -> Result<Vec<Holder>, Self::Error>;

    /// Writes a new lease.
    fn add(&mut self, name: &str, holder: &Holder, lease_ms: i64, first_ms: i64) -> Result<(), Self::Error>;

    /// Extends a lease to at least this time; never shortens it.
    fn extend(&mut self, name: &str, owner: &str, ends_ms: i64) -> Result<(), Self::Error>;

    /// Changes mode and fence of a lease and extends it.
    fn change(
        &mut self,
        name: &str,
        owner: &str,
        fence: i64,
        mode: Mode,
        ends_ms: i64,
    ) -> Result<(), Self::Error>;

    /// Deletes a lease.
    fn end(&mut self, name: &str, owner: &str) -> Result<(), Self::Error>;

    /// Returns the first waiter, and until when it counts as alive. Those whose mode is of another version are
    /// passed over.
    fn front(&mut self, name: &str) -> Result<Option<(Candidate, i64)>, Self::Error>;

    /// Says whether a waiter counts as alive, as far as the store can tell.
    fn lives(&mut self, client: &str, silent_ms: i64) -> Result<bool, Self::Error>;

    /// Deletes the stale waiters before the first live one, so many at most.
    fn drop_silent(&mut self, name: &str, most: usize) -> Result<(), Self::Error>;

    /// Adds a waiter at the end of the queue.
    fn queue(&mut self, name: &str, who: &Candidate, ticket: i64, silent_ms: i64) -> Result<(), Self::Error>;

    /// Records the heartbeat of a waiter.
    fn heartbeat(&mut self, name: &str, owner: &str, silent_ms: i64) -> Result<(), Self::Error>;

    /// The place of a waiter in the queue, if it is there.
    fn ticket(&mut self, name: &str, owner: &str) -> Result<Option<i64>, Self::Error>;

    /// How many waiters are before this place.
    fn before(&mut self, name: &str, ticket: i64) -> Result<u32, Self::Error>;

    /// Removes a waiter. Says whether it was there.
    fn leave(&mut self, name: &str, owner: &str) -> Result<bool, Self::Error>;

    /// Records a lease that its holder did not release, and forgets the oldest of many records.
    fn record(&mut self, name: &str, victim: &Holder, by: &str, reason: &str) -> Result<(), Self::Error>;

    /// A message for `client`, to be sent once the step is committed.
    fn push(&mut self, client: &str, push: Push);

    /// Whether the latest step could not drop all stale waiters from the front.
    fn unswept(&mut self) -> &mut bool;
}

impl From<&Contender> for Candidate {
    fn from(contender: &Contender) -> Self {
        Self {
            owner: contender.owner.to_hex(),
            client: contender.client.as_str().to_owned(),
            label: contender.label.clone(),
            lease_ms: ceil_ms(contender.lease),
            first_ms: ceil_ms(contender.first_lease),
            mode: contender.mode,
        }
    }
}

impl Holder {
    pub(crate) fn is(&self, owner: &str, fence: FencingToken) -> bool {
        self.owner == owner && unsigned(self.fence) == fence.get()
    }

    pub(crate) fn hint(&self, clock_ms: i64) -> HolderHint {
        HolderHint {
            client: Some(ClientId::from_stored(&self.client)),
            label: self.label.clone(),
            held_for: Some(millis(clock_ms - self.acquired_ms)),
            left: Some(millis(self.ends_ms - clock_ms)),
        }
    }
}

/// Rounds up, so that a lease in the store never ends before the holder's own reckoning.
pub(crate) fn ceil_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX / 4)
}

pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(unsigned(ms))
}

pub(crate) fn token(fence: i64) -> FencingToken {
    FencingToken::new(unsigned(fence))
}

/// The integers of databases are signed 64-bit numbers; ours are durations, fences and counts.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
