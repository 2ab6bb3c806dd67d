//! The same locks for threads: every call blocks until it is done.
//!
//! Calls are carried out on the calling thread; only renewal and other background work happens on
//! the client's own thread. Do not use this from inside an async task: it would block its executor.

use std::future::Future;
use std::time::Duration;

use crate::caller_driven::blocking::{block_on, block_on_while};
use crate::capability::Capability;
use crate::clock::BootInstant;
use crate::error::{LostReason, Result};
use crate::inspect::{BreakOutcome, BreakRequest, Query, Snapshot};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::resource::Sequencer;
use crate::stats::Stats;

/// Runs a call of the async API to its end on this thread, as the calls here do. Whenever it has to
/// sleep, it asks `look` for how long at most: for a host that must look for signals or a time limit.
///
/// Returns `None` if `look` did. The call was dropped then, which cancels it.
pub fn run_while<F: Future>(future: F, look: impl FnMut() -> Option<Duration>) -> Option<F::Output> {
    block_on_while(future, look)
}

/// One client of one store; see [`crate::Polylatch`].
#[derive(Debug, Clone)]
pub struct Polylatch(crate::Polylatch);

impl Polylatch {
    /// Connects; see [`crate::Polylatch::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        block_on(crate::Polylatch::connect(url)).map(Self)
    }

    /// Connects to `POLYLATCH_URL` or the embedded default; see [`crate::Polylatch::builder`].
    pub fn connect_default() -> Result<Self> {
        block_on(crate::Polylatch::builder().connect()).map(Self)
    }

    /// Wraps an async client; both share everything.
    pub fn from_async(client: crate::Polylatch) -> Self {
        Self(client)
    }

    /// Names a lock; see [`crate::Polylatch::lock`].
    pub fn lock(&self, name: impl Into<String>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// Names a lock to read; see [`crate::RwLock`].
    pub fn read_lock(&self, name: impl Into<String>) -> Lock {
        Lock(self.0.rw_lock(name).read())
    }

    /// Names a lock to write; see [`crate::RwLock`].
    pub fn write_lock(&self, name: impl Into<String>) -> Lock {
        Lock(self.0.rw_lock(name).write())
    }

    /// Names `count` of a semaphore's permits; see [`crate::Semaphore`].
    pub fn permits(&self, name: impl Into<String>, capacity: u32, count: u32) -> Lock {
        Lock(self.0.semaphore(name, capacity).permits(count))
    }

    /// Names several locks that are had all together or not at all; see [`crate::LockAll`].
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl Into<String>>) -> LockAll {
        LockAll(self.0.lock_all(names))
    }

    /// Returns what this store can do.
    pub fn capability(&self) -> &Capability {
        self.0.capability()
    }

    /// Returns what this client has done since it was made, in numbers; see [`crate::Polylatch::stats`].
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Reads who holds and who waits.
    pub fn list(&self, query: &Query) -> Result<Snapshot> {
        block_on(self.0.inspect().list(query))
    }

    /// Breaks a lease; see [`crate::inspect::Inspector::break_lease`].
    pub fn break_lease(&self, request: &BreakRequest) -> Result<BreakOutcome> {
        block_on(self.0.inspect().break_lease(request))
    }

    /// Releases what is held and waits until the store knows; see [`crate::Polylatch::close`].
    pub fn close(&self) {
        block_on(self.0.close());
    }
}

/// A lock to acquire; see [`crate::Lock`] for what each option means.
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock(crate::Lock);

impl Lock {
    /// See [`crate::Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// See [`crate::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// See [`crate::Lock::no_wait`].
    pub fn no_wait(self) -> Self {
        Self(self.0.no_wait())
    }

    /// See [`crate::Lock::label`].
    pub fn label(self, label: impl Into<String>) -> Self {
        Self(self.0.label(label))
    }

    /// See [`crate::Lock::owner`].
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self(self.0.owner(owner))
    }

    /// See [`crate::Lock::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.max_hold(max_hold))
    }

    /// See [`crate::Lock::beat_every`].
    pub fn beat_every(self, beat_every: Duration) -> Self {
        Self(self.0.beat_every(beat_every))
    }

    /// See [`crate::Lock::fifo`].
    pub fn fifo(self, fifo: bool) -> Self {
        Self(self.0.fifo(fifo))
    }

    /// See [`crate::Lock::renew`].
    pub fn renew(self, renew: bool) -> Self {
        Self(self.0.renew(renew))
    }

    /// See [`crate::Lock::keep_idle`].
    pub fn keep_idle(self, keep_idle: Duration) -> Self {
        Self(self.0.keep_idle(keep_idle))
    }

    /// Acquires; see [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard> {
        // What takes no time needs nothing that waits.
        match self.0.enter_kept() {
            Some(guard) => Ok(Guard(guard)),
            None => block_on(self.0.acquire()).map(Guard),
        }
    }

    /// Acquires without waiting; see [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_acquire())?.map(Guard))
    }
}

/// A held lock; see [`crate::Guard`], also for what a drop at the end of a program waits for.
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard(crate::Guard);

impl Guard {
    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the number to hand to the protected resource.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// Returns name, holder and fencing token as one printable value; see [`crate::Guard::sequencer`].
    pub fn sequencer(&self) -> Sequencer {
        self.0.sequencer()
    }

    /// Returns how far the order of fencing tokens can be relied on.
    pub fn fence_quality(&self) -> FenceQuality {
        self.0.fence_quality()
    }

    /// Returns until when the lease may be relied on.
    pub fn valid_until(&self) -> BootInstant {
        self.0.valid_until()
    }

    /// Returns for how long the lease may be relied on from now.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Says whether the lock is still held, by the clock, now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Fails unless the lock is still held; see [`crate::Guard::check`].
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Returns the mode in which the lock is held.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// Atomically downgrades a write lock to a read lock; see [`crate::Guard::downgrade`].
    pub fn downgrade(self) -> Result<Self> {
        block_on(self.0.downgrade()).map(Self)
    }

    /// Atomically upgrades a read lock to a write lock if there is no other reader; see [`crate::Guard::try_upgrade`].
    pub fn try_upgrade(self) -> Result<Converted> {
        Ok(match block_on(self.0.try_upgrade())? {
            crate::Converted::Done(guard) => Converted::Done(Self(guard)),
            crate::Converted::Refused(guard) => Converted::Refused(Self(guard)),
        })
    }

    /// Tells the watchdog that the protected work moves on.
    pub fn beat(&self) {
        self.0.beat();
    }

    /// Sets the length of the lease; see [`crate::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<BootInstant> {
        block_on(self.0.extend(lease))
    }

    /// Blocks until the lease is lost. After a release it blocks for ever: call it on a thread of its own.
    pub fn wait_until_lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// Gives the lock back; see [`crate::Guard::release`].
    pub fn release(&self) -> Result<()> {
        if self.0.leave_kept() { Ok(()) } else { block_on(self.0.release()) }
    }
}

/// What came of a step from reading to writing; see [`crate::Converted`].
#[derive(Debug)]
#[must_use = "either way it holds the guard"]
pub enum Converted {
    /// Held in the new way.
    Done(Guard),
    /// Others hold the lock too: still held in the old way.
    Refused(Guard),
}

/// Several locks, all together or not at all; see [`crate::LockAll`].
#[derive(Debug, Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockAll(crate::LockAll);

impl LockAll {
    /// Puts locks of one client together; see [`crate::LockAll::of`].
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self(crate::LockAll::of(locks.into_iter().map(|lock| lock.0)))
    }

    /// See [`crate::LockAll::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// Acquires them all, or none; see [`crate::LockAll::acquire`].
    pub fn acquire(&self) -> Result<GuardSet> {
        block_on(self.0.acquire()).map(GuardSet)
    }

    /// Acquires them all without waiting, or none; see [`crate::LockAll::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<GuardSet>> {
        Ok(block_on(self.0.try_acquire())?.map(GuardSet))
    }
}

/// Several held locks; see [`crate::GuardSet`].
#[derive(Debug)]
#[must_use = "dropping the guards releases their locks"]
pub struct GuardSet(crate::GuardSet);

impl GuardSet {
    /// Returns the names and fencing tokens, in the order of the names.
    pub fn fencing_tokens(&self) -> Vec<(&str, FencingToken)> {
        self.0.guards().iter().map(|guard| (guard.name(), guard.fencing_token())).collect()
    }

    /// Fails unless all of them are still held; see [`crate::Guard::check`].
    pub fn check(&self) -> Result<()> {
        self.0.check()
    }

    /// Gives them all back; see [`crate::GuardSet::release`].
    pub fn release(&self) -> Result<()> {
        // Not with the patience of one request: the requests of all leave before the first is answered.
        pollster::block_on(self.0.release())
    }
}
