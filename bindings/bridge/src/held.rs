//! A held lock as a handle for languages whose objects do not move: it stays the same handle when a
//! step between reading and writing makes another guard of it.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use polylatch::{BootInstant, Guard, LostReason};
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::place::{Endangered, Place, endangered, step};
use crate::process::Homed;

/// Why a lease is lost in a forked child.
pub(crate) const INHERITED: LostReason = LostReason::Unverifiable;

/// A held lock. A forked child does not hold what its parent holds.
#[derive(Debug)]
pub struct Held {
    /// Shared with its followers.
    place: Homed<Arc<Followed>>,
    name: String,
    fencing_token: AtomicU64,
}

/// Where the guard is, and what its followers wait for. Most guards have none, so it costs next to nothing to make this and
/// to change it.
#[derive(Debug)]
struct Followed {
    /// With the number of its changes.
    place: RwLock<(Place, u64)>,
    changed: Notify,
}

impl Followed {
    fn new(place: Place) -> Self {
        Self { place: RwLock::new((place, 0)), changed: Notify::new() }
    }

    fn look<T>(&self, look: impl FnOnce(&Place) -> T) -> T {
        look(&self.place.read().unwrap_or_else(PoisonError::into_inner).0)
    }

    fn changes(&self) -> u64 {
        self.place.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Changes it, unless that returns `None`.
    fn change<T>(&self, change: impl FnOnce(&mut Place) -> Option<T>) -> Option<T> {
        let mut at = self.place.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut at.0)?;
        at.1 += 1;
        drop(at);
        self.changed.notify_waiters();
        Some(changed)
    }

    fn put(&self, place: Place) {
        // What was there is dropped when the place is not locked any more.
        drop(self.change(|present| Some(mem::replace(present, place))));
    }

    /// Completes when no step is under way, with what `look` makes of the place, and how often that had changed by then.
    async fn settled<T>(&self, look: impl Fn(&Place) -> T) -> (T, u64) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the look, so that nothing is missed between the two.
            changed.as_mut().enable();
            let seen = {
                let at = self.place.read().unwrap_or_else(PoisonError::into_inner);
                (!matches!(at.0, Place::Stepping)).then(|| (look(&at.0), at.1))
            };
            if let Some(seen) = seen {
                return seen;
            }
            changed.await;
        }
    }
}

impl Held {
    /// Makes the handle of a guard.
    pub fn new(guard: Guard) -> Self {
        Self {
            name: guard.name().to_owned(),
            fencing_token: AtomicU64::new(guard.fencing_token().get()),
            place: Homed::new(Arc::new(Followed::new(Place::of(guard)))),
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

    /// Asks the guard something that is answered at once.
    ///
    /// Errors: `lease_lost` in a forked child; `invalid_argument` while a step between reading and
    /// writing is under way, and after one that failed.
    pub fn with<T>(&self, ask: impl FnOnce(&Guard) -> T) -> Result<T, Failure> {
        self.place()?.look(|place| place.guard(&self.name).map(|guard| ask(guard)))
    }

    /// Gives the lease another length, and returns until when it may be relied on; see [`Guard::extend`].
    ///
    /// Errors: as [`Held::with`] and [`Guard::extend`].
    /// Cancellation: the request goes on, and what the store confirms counts.
    pub async fn extend(&self, lease: Duration) -> Result<BootInstant, Failure> {
        let extension = self.with(|guard| guard.extend(lease))?;
        Ok(extension.await?)
    }

    /// Releases the lock; see [`Guard::release`]. A step that is under way comes to its end first.
    pub async fn release(&self) -> Result<(), Failure> {
        let place = self.place()?;
        // To follow costs more than to look once, and a step is rarely under way.
        let at = match place.look(Place::after_steps) {
            Some(at) => at,
            None => place.settled(Place::after_steps).await.0.flatten(),
        };
        match at {
            Some(guard) => Ok(guard.release().await?),
            // Lost by a step that failed: the background releases what is left.
            None => Ok(()),
        }
    }

    /// Upgrades from reading to writing if no other client reads, or downgrades; see [`Guard::try_upgrade`] and
    /// [`Guard::downgrade`]. Returns whether it is held in the other mode now. A guard that is not held in the mode that
    /// the step begins with stays as it is, with an error.
    /// Cancellation: the lock is given up.
    pub async fn convert(&self, up: bool) -> Result<bool, Failure> {
        let (guard, under_way) = self.take(up)?;
        let (guard, done) = step(guard, up).await?;
        under_way.end(guard);
        Ok(done)
    }

    /// Completes when the lease is over: with the reason if it was lost, with `None` if it was
    /// released. In a forked child it is lost. It goes on with the lease that a step between reading and
    /// writing leaves, and does not keep the lock held.
    pub fn ended(&self) -> Pin<Box<dyn Future<Output = Option<LostReason>> + Send>> {
        let place = self.place.get().map(Arc::clone);
        Box::pin(async move {
            let Some(place) = place else { return Some(INHERITED) };
            loop {
                let here = |place: &Place| -> Option<Pin<Box<dyn Future<Output = _> + Send>>> {
                    let Place::Here(guard) = place else { return None };
                    Some(Box::pin(guard.ended()))
                };
                let (ended, changes) = place.settled(here).await;
                if let Some(reason) = ended?.await {
                    return Some(reason);
                }
                // A step ends the lease it began with, and says so here before.
                if place.changes() == changes {
                    return None;
                }
            }
        })
    }

    /// Completes with `true` when the present lease is endangered or lost, with `false` when it is over otherwise. It does
    /// not keep the lock held, and does not go on with the lease that a step leaves.
    ///
    /// Errors: as [`Held::with`].
    pub fn endangered(&self) -> Result<Endangered, Failure> {
        self.with(endangered)
    }

    fn place(&self) -> Result<&Followed, Failure> {
        self.place.get().map(|place| &**place).ok_or_else(|| Failure::inherited(&self.name))
    }

    /// Takes the guard out for a step.
    fn take(&self, up: bool) -> Result<(Guard, Step<'_>), Failure> {
        let place = self.place()?;
        let mut refused = None;
        let taken =
            place.change(|place| place.take(&self.name, up).map_err(|failure| refused = Some(failure)).ok());
        match taken {
            Some(guard) => Ok((guard, Step { held: self, place })),
            None => Err(refused.unwrap_or_else(|| Failure::internal("the guard was not looked for"))),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Its followers keep the place, and must not keep the lock held. Usually there are none.
        if let Some(place) = self.place.get().filter(|place| Arc::strong_count(place) > 1) {
            place.put(Place::Gone);
        }
    }
}

/// A step that is under way. One that does not come to its end leaves no guard.
struct Step<'held> {
    held: &'held Held,
    place: &'held Followed,
}

impl Step<'_> {
    fn end(self, guard: Guard) {
        self.held.fencing_token.store(guard.fencing_token().get(), Ordering::SeqCst);
        self.place.put(Place::of(guard));
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.place.change(|place| matches!(place, Place::Stepping).then(|| *place = Place::Gone));
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
            let held = Held::new(write);
            let ended = held.ended();
            let first = held.fencing_token();
            held.convert(false).await.unwrap();
            assert_eq!(held.convert(false).await.unwrap_err().code, "invalid_argument");
            assert!(held.convert(true).await.unwrap());
            assert!(held.fencing_token() > first);
            held.release().await.unwrap();
            held.release().await.unwrap();
            assert_eq!(ended.await, None);
            assert_eq!(held.with(Guard::check).unwrap().unwrap_err().code(), "invalid_argument");
        });
    }

    fn pending<T>(call: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        call.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
    }

    #[test]
    fn whoever_asks_during_a_step_is_told_of_a_loss_after_it() {
        run(async {
            let client = Polylatch::connect("memory:held-stepping").await.unwrap();
            let lock = client.rw_lock("page").write().lease(Duration::from_millis(300)).renew(false);
            let held = Held::new(lock.acquire().await.unwrap());
            let mut before = pin!(held.ended());
            assert!(pending(before.as_mut()));
            let (guard, step) = held.take(false).unwrap();
            let mut during = pin!(held.ended());
            assert!(pending(during.as_mut()));
            assert!(held.with(Guard::is_held).unwrap_err().message.contains("is under way"));
            // The old lease is over, and the new one is not put in yet.
            let guard = guard.downgrade().await.unwrap();
            assert!(pending(before.as_mut()) && pending(during.as_mut()));
            step.end(guard);
            assert_eq!((before.await, during.await), (Some(LostReason::Expired), Some(LostReason::Expired)));
        });
    }

    #[test]
    fn a_release_waits_for_the_step_that_is_under_way() {
        run(async {
            let client = Polylatch::connect("memory:held-release").await.unwrap();
            let held = Held::new(client.rw_lock("page").write().acquire().await.unwrap());
            let (guard, step) = held.take(false).unwrap();
            let mut release = pin!(held.release());
            assert!(pending(release.as_mut()));
            step.end(guard.downgrade().await.unwrap());
            release.await.unwrap();
            assert!(!held.with(Guard::is_held).unwrap());
            let other = client.rw_lock("page").write().try_acquire().await.unwrap();
            other.expect("it is free").release().await.unwrap();
        });
    }

    #[test]
    fn a_handle_is_extended_and_says_so_when_it_cannot_be() {
        run(async {
            let client = Polylatch::connect("memory:held-extended").await.unwrap();
            let lock = client.rw_lock("page").write().lease(Duration::from_secs(5)).renew(false);
            let held = Held::new(lock.acquire().await.unwrap());
            let deadline = held.extend(Duration::from_secs(60)).await.unwrap();
            assert_eq!(held.with(Guard::valid_until).unwrap(), deadline);
            assert!(held.with(Guard::remaining).unwrap() > Duration::from_secs(40));
            let (guard, step) = held.take(false).unwrap();
            let refused = held.extend(Duration::from_secs(60)).await.unwrap_err();
            assert!(refused.message.contains("is under way"), "{refused:?}");
            step.end(guard.downgrade().await.unwrap());
            held.extend(Duration::from_secs(60)).await.unwrap();
            held.release().await.unwrap();
            assert_eq!(held.extend(Duration::from_secs(60)).await.unwrap_err().code, "invalid_argument");
        });
    }

    #[test]
    fn a_step_that_is_given_up_leaves_no_guard() {
        run(async {
            let client = Polylatch::connect("memory:held-given-up").await.unwrap();
            let held = Held::new(client.rw_lock("page").write().acquire().await.unwrap());
            let ended = held.ended();
            drop(held.take(false).unwrap());
            assert_eq!(ended.await, None);
            assert!(held.with(Guard::is_held).unwrap_err().message.contains("acquire the lock again"));
            held.release().await.unwrap();
        });
    }

    #[test]
    fn whoever_follows_does_not_keep_the_lock_held() {
        run(async {
            let client = Polylatch::connect("memory:held-followed").await.unwrap();
            let held = Held::new(client.lock("page").acquire().await.unwrap());
            let ended = held.ended();
            drop(held);
            assert_eq!(ended.await, None);
            client
                .lock("page")
                .wait(Duration::from_secs(10))
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        });
    }

    #[test]
    fn a_guard_that_is_being_released_is_not_taken_away_for_a_step() {
        run(async {
            let client = Polylatch::connect("memory:held-in-use").await.unwrap();
            let held = Held::new(client.rw_lock("page").read().acquire().await.unwrap());
            let releasing = held.place().unwrap().look(|place| match place {
                Place::Here(guard) => Arc::clone(guard),
                other => panic!("{other:?}"),
            });
            assert!(held.convert(true).await.unwrap_err().message.contains("is being released"));
            drop(releasing);
            assert!(held.convert(true).await.unwrap());
        });
    }
}
