//! The one handle of what an acquisition holds: one lock, or several that were acquired together.
//!
//! What a handle answers that was released, that a step has given up, or that a forked child has inherited is decided
//! here and in [`crate::held`], for every language.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polylatch::{BootInstant, Guard, GuardSet, LostReason};

use crate::ended::one_ended;
use crate::failure::Failure;
use crate::held::{Held, INHERITED};
use crate::place::Endangered;
use crate::process::Homed;

/// What is held. Dropping it releases the locks in the background. A forked child does not hold what its parent holds.
#[derive(Debug)]
pub enum Handle {
    /// One lock.
    One(Held),
    /// Several.
    All(Set),
}

/// Several held locks.
#[derive(Debug)]
pub struct Set {
    guards: Homed<GuardSet>,
    /// In the order of the names.
    held: Vec<(String, u64)>,
}

impl Set {
    fn guards(&self) -> Result<&GuardSet, Failure> {
        let first = || self.held.first().map_or("", |(name, _)| name.as_str());
        self.guards.get().ok_or_else(|| Failure::inherited(first()))
    }

    fn each(&self) -> impl Iterator<Item = &Guard> {
        self.guards.get().into_iter().flat_map(GuardSet::guards)
    }
}

impl Handle {
    /// Makes the handle of one guard.
    pub fn one(guard: Guard) -> Self {
        Self::One(Held::new(guard))
    }

    /// Makes the handle of several guards.
    pub fn all(guards: GuardSet) -> Self {
        let held = |guard: &Guard| (guard.name().to_owned(), guard.fencing_token().get());
        Self::All(Set { held: guards.guards().iter().map(held).collect(), guards: Homed::new(guards) })
    }

    /// Returns each lock's name and latest fencing token, in the order of the names.
    pub fn held(&self) -> Vec<(&str, u64)> {
        match self {
            Self::One(one) => vec![(one.name(), one.fencing_token())],
            Self::All(set) => set.held.iter().map(|(name, token)| (name.as_str(), *token)).collect(),
        }
    }

    /// Returns the lock's name; of several, the first.
    pub fn name(&self) -> &str {
        match self {
            Self::One(one) => one.name(),
            Self::All(set) => set.held.first().map_or("", |(name, _)| name),
        }
    }

    /// Returns the latest fencing token; of several, that of the first.
    pub fn fencing_token(&self) -> u64 {
        match self {
            Self::One(one) => one.fencing_token(),
            Self::All(set) => set.held.first().map_or(0, |(_, token)| *token),
        }
    }

    /// Fails where there is nothing to ask.
    ///
    /// Errors: `lease_lost` in a forked child; `invalid_argument` while a step between reading and writing is under way,
    /// and after one that failed.
    pub fn here(&self) -> Result<(), Failure> {
        match self {
            Self::One(one) => one.with(|_| ()),
            Self::All(set) => set.guards().map(drop),
        }
    }

    /// Fails unless all of it is still held; see [`Guard::check`].
    ///
    /// Errors: as [`Handle::here`] and [`Guard::check`].
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::One(one) => Ok(one.with(Guard::check)??),
            Self::All(set) => Ok(set.guards()?.check()?),
        }
    }

    /// Says whether all of it is still held, by the clock, now.
    pub fn is_held(&self) -> bool {
        match self {
            Self::One(one) => one.with(Guard::is_held).unwrap_or(false),
            Self::All(set) => set.guards().is_ok() && set.each().all(Guard::is_held),
        }
    }

    /// Returns for how long all of it may be relied on from now; zero once one is over.
    pub fn remaining(&self) -> Duration {
        let remaining = match self {
            Self::One(one) => one.with(Guard::remaining).ok(),
            Self::All(set) => set.each().map(Guard::remaining).min(),
        };
        remaining.unwrap_or_default()
    }

    /// Says of all of it that the protected work moves on.
    ///
    /// Errors: as [`Handle::here`].
    pub fn beat(&self) -> Result<(), Failure> {
        match self {
            Self::One(one) => one.with(Guard::beat),
            Self::All(set) => set.guards().map(|set| set.guards().iter().for_each(Guard::beat)),
        }
    }

    /// Releases all of it and waits until the store has confirmed it; see [`Guard::release`]. Repeatable. A step that is
    /// under way comes to its end first; what a failed step has given up is released already.
    ///
    /// Errors: `lease_lost` in a forked child; as [`Guard::release`].
    /// Cancellation: the background finishes the release.
    pub async fn release(&self) -> Result<(), Failure> {
        match self {
            Self::One(one) => one.release().await,
            Self::All(set) => Ok(set.guards()?.release().await?),
        }
    }

    /// Leaves a lock that its client keeps, at once; see [`Guard::leave_kept`]. Returns whether that was its release.
    pub fn leave_kept(&self) -> bool {
        self.with(Guard::leave_kept).unwrap_or(false)
    }

    /// Completes with the reason when a lease is lost, with `None` when all of it is over otherwise. In a forked child it
    /// is lost. It goes on with the lease that a step leaves, and does not keep the locks held.
    pub fn ended(&self) -> Pin<Box<dyn Future<Output = Option<LostReason>> + Send>> {
        match self {
            Self::One(one) => one.ended(),
            Self::All(set) => match set.guards.get() {
                Some(guards) => Box::pin(one_ended(guards)),
                None => Box::pin(std::future::ready(Some(INHERITED))),
            },
        }
    }

    /// Completes when all of it is over. It does not keep the locks held.
    ///
    /// Errors: at once as [`Handle::here`]; in the end what [`Handle::check`] says, if a lease was lost.
    pub fn lost(
        self: &Arc<Self>,
    ) -> Result<impl Future<Output = Result<(), Failure>> + Send + use<>, Failure> {
        self.here()?;
        let (ended, handle) = (self.ended(), Arc::downgrade(self));
        Ok(async move {
            match (ended.await, handle.upgrade()) {
                (Some(_), Some(handle)) => handle.check(),
                _ => Ok(()),
            }
        })
    }

    /// Has `tell` called with the reason when a lease is lost, on the callback thread; not after a release. Dropping what
    /// is returned ends that.
    ///
    /// Errors: as [`Handle::here`] and [`crate::runtime::spawn`].
    #[cfg(not(target_family = "wasm"))]
    pub fn on_lost(
        &self,
        tell: impl FnOnce(&'static str) + Send + 'static,
    ) -> Result<Homed<crate::runtime::Task>, Failure> {
        self.here()?;
        let ended = self.ended();
        let task = crate::runtime::spawn(async move {
            if let Some(reason) = ended.await {
                tell(reason.code());
            }
        })?;
        Ok(Homed::new(task))
    }

    /// Asks the one guard something that is answered at once.
    ///
    /// Errors: as [`Handle::here`]; `invalid_argument` for several.
    pub fn with<T>(&self, ask: impl FnOnce(&Guard) -> T) -> Result<T, Failure> {
        self.single()?.with(ask)
    }

    /// See [`Held::extend`]. Errors: `invalid_argument` for several; as there.
    pub async fn extend(&self, lease: Duration) -> Result<BootInstant, Failure> {
        self.single()?.extend(lease).await
    }

    /// See [`Held::convert`]. Errors: `invalid_argument` for several; as there.
    pub async fn convert(&self, up: bool) -> Result<bool, Failure> {
        self.single()?.convert(up).await
    }

    /// See [`Held::endangered`]. Errors: `invalid_argument` for several; as there.
    pub fn endangered(&self) -> Result<Endangered, Failure> {
        self.single()?.endangered()
    }

    fn single(&self) -> Result<&Held, Failure> {
        match self {
            Self::One(one) => Ok(one),
            Self::All(_) => {
                Err(Failure::invalid_argument("this is about one lock, and several are held together"))
            }
        }
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

    async fn both(store: &str) -> [Arc<Handle>; 2] {
        let client = Polylatch::connect(store).await.unwrap();
        let one = client.lock("one").lease(Duration::from_millis(300)).renew(false).acquire().await.unwrap();
        let all =
            client.lock_all(["b", "a"]).each(|lock| lock.lease(Duration::from_millis(300)).renew(false));
        [Handle::one(one), Handle::all(all.acquire().await.unwrap())].map(Arc::new)
    }

    #[test]
    fn one_lock_and_several_answer_alike() {
        run(async {
            for handle in both("memory:handle-alike").await {
                assert!(handle.is_held() && handle.check().is_ok() && handle.beat().is_ok());
                assert!(!handle.remaining().is_zero() && handle.fencing_token() > 0);
                let (ended, lost) = (handle.ended(), handle.lost().unwrap());
                handle.release().await.unwrap();
                handle.release().await.unwrap();
                assert!(!handle.is_held() && handle.remaining().is_zero());
                assert_eq!(handle.check().unwrap_err().code, "invalid_argument");
                assert_eq!((ended.await, lost.await), (None, Ok(())));
            }
        });
    }

    #[test]
    fn a_loss_is_reported_with_its_reason() {
        run(async {
            for handle in both("memory:handle-lost").await {
                let lost = handle.lost().unwrap();
                assert_eq!(handle.ended().await, Some(LostReason::Expired));
                assert_eq!(lost.await.unwrap_err().lost_reason, Some("expired"));
                assert!(!handle.is_held());
            }
        });
    }

    #[test]
    fn what_follows_does_not_keep_the_locks_held() {
        run(async {
            for handle in both("memory:handle-followed").await {
                let (ended, lost) = (handle.ended(), handle.lost().unwrap());
                drop(handle);
                assert_eq!((ended.await, lost.await), (None, Ok(())));
            }
        });
    }

    #[test]
    fn several_are_named_in_order_and_have_no_mode() {
        run(async {
            let [_, all] = both("memory:handle-several").await;
            assert_eq!(all.held().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b"]);
            let refused = all.with(Guard::mode).unwrap_err();
            assert!(refused.message.contains("several are held together"), "{refused:?}");
            assert!(all.endangered().is_err());
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_child_has_lost_what_it_inherited() {
        run(async {
            for handle in both("memory:handle-forked").await {
                // SAFETY: the child only asks what is answered at once, and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    let inherited = |result: Result<(), Failure>| {
                        result.is_err_and(|failure| failure.lost_reason == Some("unverifiable"))
                    };
                    let now = &mut std::task::Context::from_waker(std::task::Waker::noop());
                    let right = inherited(handle.check())
                        && inherited(handle.beat())
                        && inherited(handle.lost().map(drop))
                        && !handle.is_held()
                        && handle.remaining().is_zero()
                        && handle.ended().as_mut().poll(now) == std::task::Poll::Ready(Some(INHERITED));
                    drop(handle);
                    // SAFETY: ends the child without running what belongs to the parent.
                    unsafe { libc::_exit(if right { 0 } else { 1 }) };
                }
                assert!(child > 0);
                let mut status = 0;
                // SAFETY: `status` is a valid place for the result.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0);
                handle.release().await.unwrap();
            }
        });
    }
}
