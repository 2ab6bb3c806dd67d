//! Several locks, all together or not at all.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::driver;
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::options::Wait;

/// Most locks of one set. A store looks at all of them in one step, and all other requests wait meanwhile.
pub const MAX_LOCKS: usize = 128;

/// Several locks that are acquired all or none.
///
/// [`LockAll::try_acquire`] takes them in one step of the store where [`crate::Capability`] says
/// `atomic_sets`: then no client ever sees a part of a set that was not available.
///
/// [`LockAll::acquire`] begins with the same step. If they are not all available at once, it
/// acquires them one at a time in the order of their names, and keeps those it already holds. So two
/// callers that want the same locks never wait for each other in a circle, and as every queue is FIFO, no
/// caller starves. The price is that a part is held while it waits.
///
/// Every lock has a lease and a fencing token of its own. They may be of different kinds
/// ([`LockAll::of`]). A name that is given twice counts once.
#[derive(Debug, Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockAll {
    locks: Vec<Lock>,
    wait: Option<Duration>,
}

impl LockAll {
    /// Puts locks of one client together: mutexes, readers, writers and permits, each with its own
    /// options. Their waits do not count; see [`LockAll::wait`].
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> Self {
        let mut locks: Vec<Lock> = locks.into_iter().collect();
        locks.sort_by(|one, other| one.name().cmp(other.name()));
        locks.dedup_by(|one, other| one.name() == other.name() && one.mode() == other.mode());
        Self { locks, wait: None }
    }

    /// Changes every lock's options, as in `all.each(|lock| lock.lease(…))`. The wait is set by
    /// [`LockAll::wait`] for all together.
    pub fn each(self, change: impl Fn(Lock) -> Lock) -> Self {
        Self { wait: self.wait, ..Self::of(self.locks.into_iter().map(change)) }
    }

    /// Waits at most this long for all of them together.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Acquires all or none: if one is not available, those before it are released.
    ///
    /// Errors: as [`Lock::acquire`], for the first that fails; `invalid_argument` for no locks,
    /// more than [`MAX_LOCKS`], locks of different clients, or one name in two ways.
    /// Cancellation: releases those that were acquired, in the background.
    pub async fn acquire(&self) -> Result<GuardSet> {
        self.counted(self.enter().await)
    }

    async fn enter(&self) -> Result<GuardSet> {
        let first = self.check()?;
        // The client's clock, as for every other wait: it goes on while the machine sleeps.
        let clock = &first.core().clock;
        let started = clock.now();
        if self.is_atomic() {
            match self.try_at_once(true).await {
                Ok(Some(guards)) => return Ok(guards),
                Ok(None) => {}
                // What a wait for one lock would ride out, this one does as well.
                Err(error) if error.retry() == Retry::AfterBackoff => {}
                // More than the store takes in one step; one after the other it can.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        let mut guards = GuardSet { guards: Vec::with_capacity(self.locks.len()) };
        for lock in &self.locks {
            let lock = match self.wait {
                Some(wait) => lock.clone().wait(wait.saturating_sub(clock.now().since(started))),
                None => lock.clone().wait_forever(),
            };
            match lock.get().await {
                Ok(guard) => guards.guards.push(guard),
                Err(error) => {
                    guards.give_back().await;
                    return Err(error);
                }
            }
        }
        // The first ones were renewed meanwhile, but a pause may have ended one of them.
        match guards.check() {
            Ok(()) => Ok(guards),
            Err(error) => {
                guards.give_back().await;
                Err(error)
            }
        }
    }

    /// Acquires them all without waiting; `None` if one is not available now. In one step where the store
    /// can ([`crate::Capability`]), else one after the other.
    ///
    /// Errors and cancellation: as [`LockAll::acquire`]; `unsupported` for more locks than the store can
    /// take in one step.
    pub async fn try_acquire(&self) -> Result<Option<GuardSet>> {
        self.counted(self.try_enter().await)
    }

    async fn try_enter(&self) -> Result<Option<GuardSet>> {
        self.check()?;
        if self.is_atomic() {
            return self.try_at_once(false).await;
        }
        let mut guards = GuardSet { guards: Vec::with_capacity(self.locks.len()) };
        for lock in &self.locks {
            match lock.enter(Wait::No).await {
                Ok(Some(guard)) => guards.guards.push(guard),
                Ok(None) => {
                    guards.give_back().await;
                    return Ok(None);
                }
                Err(error) => {
                    guards.give_back().await;
                    return Err(error);
                }
            }
        }
        Ok(Some(guards))
    }

    fn is_atomic(&self) -> bool {
        self.locks.iter().all(|lock| lock.core().backend.capability().atomic_sets)
    }

    /// Counts the call as one operation, however many locks it has.
    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        match self.locks.first() {
            Some(first) => first.core().observer.counted(result),
            None => result,
        }
    }

    async fn try_at_once(&self, or_wait: bool) -> Result<Option<GuardSet>> {
        let handle = self.check()?.core();
        let all = self.locks.iter().map(|lock| lock.checked(Wait::No)).collect::<Result<Vec<_>>>()?;
        let leases = driver::try_acquire_all(Arc::clone(handle), all, or_wait).await?;
        let guard = |lease| Guard::new(lease, handle.clone());
        Ok(leases.map(|leases| GuardSet { guards: leases.into_iter().map(guard).collect() }))
    }

    /// Refuses what cannot be a set, before anything is sent. Returns the first lock.
    fn check(&self) -> Result<&Lock> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        let Some(first) = self.locks.first() else {
            return invalid("a set of locks was given no locks; give at least one".into());
        };
        if self.locks.len() > MAX_LOCKS {
            return invalid(format!(
                "a set of locks was given {} names; 1 to {MAX_LOCKS} are allowed",
                self.locks.len()
            ));
        }
        if let Some(pair) = self.locks.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return invalid(format!(
                "lock {:?} appears twice in the set with conflicting modes; list it once",
                pair[0].name()
            ));
        }
        if let Some(other) = self.locks.iter().find(|lock| !Arc::ptr_eq(lock.core(), first.core())) {
            return invalid(format!(
                "the locks {:?} and {:?} are of different clients; a set is of one client",
                first.name(),
                other.name()
            ));
        }
        if let Some(lock) = self.locks.iter().find(|lock| lock.stays()) {
            let message = format!(
                "the lock {:?} is in a set, and keep_idle is for one lock alone; leave it out, or acquire the lock by itself",
                lock.name()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).on_lock(lock.name()));
        }
        if let Some(lock) = self.locks.iter().find(|lock| lock.steals()) {
            return invalid(format!(
                "the lock {:?} is in a set, and steal is for one lock alone",
                lock.name()
            ));
        }
        for lock in &self.locks {
            let lock = self.wait.map_or_else(|| lock.clone(), |wait| lock.clone().wait(wait));
            lock.checked(Wait::No)?;
        }
        Ok(first)
    }
}

/// Several held locks.
///
/// Dropping it releases them in the background.
#[derive(Debug)]
#[must_use = "dropping the guards releases their locks"]
pub struct GuardSet {
    guards: Vec<Guard>,
}

impl GuardSet {
    /// Returns the guards, in the order of their locks' names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Fails unless all of them are still held; see [`Guard::check`].
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Gives them all back at once, and waits until the store knows: the requests leave together.
    ///
    /// Errors: the first in the order of names; the others are released all the same.
    /// Cancellation: the background finishes the release.
    pub async fn release(&self) -> Result<()> {
        self.release_together().await.into_iter().collect()
    }

    async fn give_back(&self) {
        for (guard, result) in self.guards.iter().zip(self.release_together().await) {
            if let Err(error) = result {
                // The caller is told why not all were available; this one ends with its lease.
                tracing::debug!(lock = guard.name(), %error, "could not release at once");
            }
        }
    }

    /// What came of each release, in the order of the guards.
    async fn release_together(&self) -> Vec<Result<()>> {
        type Releasing<'g> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'g>>;
        let releasing = |guard| -> (Option<Releasing<'_>>, Option<Result<()>>) {
            (Some(Box::pin(Guard::release(guard))), None)
        };
        let mut all: Vec<_> = self.guards.iter().map(releasing).collect();
        poll_fn(|context| {
            for (under_way, result) in &mut all {
                if let Some(release) = under_way
                    && let Poll::Ready(done) = release.as_mut().poll(context)
                {
                    (*under_way, *result) = (None, Some(done));
                }
            }
            let pending = all.iter().any(|(under_way, _)| under_way.is_some());
            if pending { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        all.into_iter().filter_map(|(_, result)| result).collect()
    }
}
