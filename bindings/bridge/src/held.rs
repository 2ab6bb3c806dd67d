//! A held lock as a handle for languages whose objects do not move: it stays the same handle when a
//! step between reading and writing makes another guard of it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylatch::{Converted, Guard, LostReason};

use crate::failure::Failure;
use crate::process::Homed;

/// A held lock. A forked child does not hold what its parent holds.
#[derive(Debug)]
pub struct Held {
    /// Empty while a step between reading and writing is under way, and for good after one that failed.
    guard: Homed<Mutex<Option<Arc<Guard>>>>,
    name: String,
    fencing_token: AtomicU64,
}

impl Held {
    /// Makes the handle of a guard.
    pub fn new(guard: Guard) -> Self {
        Self {
            name: guard.name().to_owned(),
            fencing_token: AtomicU64::new(guard.fencing_token().get()),
            guard: Homed::new(Mutex::new(Some(Arc::new(guard)))),
        }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the latest fencing token.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token.load(Ordering::SeqCst)
    }

    /// Returns the guard. Keep it for short: a step between reading and writing wants it alone.
    ///
    /// Errors: `lease_lost` in a forked child; `invalid_argument` while or after such a step.
    pub fn now(&self) -> Result<Arc<Guard>, Failure> {
        self.place()?.clone().ok_or_else(|| {
            Failure::invalid_argument(format!(
                "the lease of {:?} was given up by a step between reading and writing; acquire the lock anew",
                self.name
            ))
        })
    }

    /// Gives the lock back; see [`Guard::release`].
    pub async fn release(&self) -> Result<(), Failure> {
        let guard = self.place()?.clone();
        match guard {
            Some(guard) => Ok(guard.release().await?),
            // Lost by a step that failed: the background gives back what is left.
            None => Ok(()),
        }
    }

    /// Steps down from writing to reading; see [`Guard::downgrade`]. A guard that does not write stays
    /// as it is, with an error.
    pub async fn downgrade(&self) -> Result<(), Failure> {
        let guard = self.take("write")?.downgrade().await?;
        self.put(guard)
    }

    /// Steps up from reading to writing, if nobody else reads; see [`Guard::try_upgrade`]. A guard that
    /// does not read stays as it is, with an error.
    pub async fn try_upgrade(&self) -> Result<bool, Failure> {
        let (guard, done) = match self.take("read")?.try_upgrade().await? {
            Converted::Done(guard) => (guard, true),
            Converted::Refused(guard) => (guard, false),
        };
        self.put(guard)?;
        Ok(done)
    }

    /// Completes when the lease is over: with the reason if it was lost, with `None` if it was given
    /// back. It goes on with the lease that a step between reading and writing leaves.
    pub fn ended(self: &Arc<Self>) -> impl Future<Output = Option<LostReason>> + Send + 'static {
        let held = Arc::downgrade(self);
        async move {
            loop {
                let guard = held.upgrade()?.now().ok()?;
                // Held no longer than needed: a step between reading and writing wants it alone.
                let (ended, before) = (guard.ended(), Arc::downgrade(&guard));
                drop(guard);
                if let Some(reason) = ended.await {
                    return Some(reason);
                }
                match held.upgrade()?.now() {
                    Ok(now) if !std::ptr::eq(Arc::as_ptr(&now), before.as_ptr()) => {}
                    _ => return None,
                }
            }
        }
    }

    fn place(&self) -> Result<MutexGuard<'_, Option<Arc<Guard>>>, Failure> {
        let place = self.guard.get().ok_or_else(|| Failure::inherited(&self.name))?;
        Ok(place.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self, from: &str) -> Result<Guard, Failure> {
        // Asked before the guard is given away: the core drops one that is held in another way.
        let mode = self.now()?.mode().code();
        if mode != from {
            return Err(Failure::invalid_argument(format!(
                "{:?} is held by {mode}, not by {from}",
                self.name
            )));
        }
        let mut place = self.place()?;
        let taken = place.take().map(Arc::try_unwrap);
        match taken {
            Some(Ok(guard)) => Ok(guard),
            shared => {
                *place = shared.and_then(Result::err);
                Err(Failure::invalid_argument(format!(
                    "another call of the guard of {:?} is under way; let it end first",
                    self.name
                )))
            }
        }
    }

    fn put(&self, guard: Guard) -> Result<(), Failure> {
        self.fencing_token.store(guard.fencing_token().get(), Ordering::SeqCst);
        *self.place()? = Some(Arc::new(guard));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use polylatch::Polylatch;

    use super::*;
    use crate::blocking::run_interruptible;

    fn run<T>(call: impl Future<Output = T>) -> T {
        run_interruptible(call, || Ok::<(), ()>(())).expect("not interrupted")
    }

    #[test]
    fn one_handle_goes_through_both_steps_and_is_told_of_its_end() {
        run(async {
            let client = Polylatch::connect("memory:held").await.unwrap();
            let write = client.rw_lock("page").write().acquire().await.unwrap();
            let held = Arc::new(Held::new(write));
            let ended = held.ended();
            let first = held.fencing_token();
            held.downgrade().await.unwrap();
            assert_eq!(held.downgrade().await.unwrap_err().code, "invalid_argument");
            assert!(held.try_upgrade().await.unwrap());
            assert!(held.fencing_token() > first);
            held.release().await.unwrap();
            held.release().await.unwrap();
            assert_eq!(ended.await, None);
            assert_eq!(held.now().unwrap().check().unwrap_err().code(), "invalid_argument");
        });
    }

    #[test]
    fn a_guard_in_use_is_not_taken_away_for_a_step() {
        run(async {
            let client = Polylatch::connect("memory:held-in-use").await.unwrap();
            let held = Held::new(client.rw_lock("page").read().acquire().await.unwrap());
            let used = held.now().unwrap();
            assert!(held.try_upgrade().await.unwrap_err().message.contains("another call"));
            drop(used);
            assert!(held.try_upgrade().await.unwrap());
        });
    }
}
