//! Several locks, all together or not at all.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::lock::Lock;

/// Several locks that are had all together or not at all.
///
/// They are acquired one after the other in the order of their names, whatever order they were given
/// in, so two that want the same locks never wait for each other in a circle. While one waits for the
/// next, it holds those before. A name that is given twice counts once.
#[derive(Debug, Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockAll {
    locks: Vec<Lock>,
    wait: Option<Duration>,
}

impl LockAll {
    pub(crate) fn new(mut locks: Vec<Lock>) -> Self {
        locks.sort_by(|one, other| one.name().cmp(other.name()));
        locks.dedup_by(|one, other| one.name() == other.name());
        Self { locks, wait: None }
    }

    /// Changes every lock's options, as in `all.each(|lock| lock.lease(…))`. The wait is set by
    /// [`LockAll::wait`] for all together.
    pub fn each(mut self, change: impl Fn(Lock) -> Lock) -> Self {
        self.locks = self.locks.into_iter().map(change).collect();
        self
    }

    /// Waits at most this long for all of them together.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Acquires them all, or none: if one cannot be had, those before it are released.
    ///
    /// Errors: as [`Lock::acquire`], for the first that cannot be had. Cancellation: releases those
    /// that were acquired, in the background.
    pub async fn acquire(&self) -> Result<GuardSet> {
        self.check()?;
        // The client's clock, as for every other wait: it goes on while the machine sleeps.
        let started = self.locks[0].now();
        let mut guards = GuardSet { guards: Vec::with_capacity(self.locks.len()) };
        for lock in &self.locks {
            let lock = match self.wait {
                Some(wait) => lock.clone().wait(wait.saturating_sub(lock.now().since(started))),
                None => lock.clone().wait_forever(),
            };
            match lock.acquire().await {
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

    /// Acquires them all without waiting; `None` if one is held by somebody else.
    pub async fn try_acquire(&self) -> Result<Option<GuardSet>> {
        self.check()?;
        let mut guards = GuardSet { guards: Vec::with_capacity(self.locks.len()) };
        for lock in &self.locks {
            match lock.try_acquire().await {
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

    fn check(&self) -> Result<()> {
        if self.locks.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "lock_all was given no names; give at least one",
            ));
        }
        Ok(())
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

    /// Gives them all back, the last one first, and waits until the store knows.
    ///
    /// Errors: the first that came up; the others are released all the same.
    pub async fn release(&self) -> Result<()> {
        let mut result = Ok(());
        for guard in self.guards.iter().rev() {
            let released = guard.release().await;
            if result.is_ok() {
                result = released;
            }
        }
        result
    }

    async fn give_back(&self) {
        for guard in self.guards.iter().rev() {
            if let Err(error) = guard.release().await {
                // The caller is told why not all could be had; this one ends with its lease.
                tracing::debug!(lock = guard.name(), %error, "could not give back at once");
            }
        }
    }
}
