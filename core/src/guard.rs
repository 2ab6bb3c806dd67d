//! A held lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::HeldLease;
use crate::error::{LostReason, Result};
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::lease::LeaseState;

/// A held lock: proof of a lease, and the way to give it back.
///
/// The lease is renewed in the background until the guard is released or dropped, or the lease is
/// lost. A loss is told by this process's own clock, with or without any answer from the store.
///
/// Dropping the guard stops renewal and releases in the background; [`Guard::release`] waits until
/// the store knows and reports a loss.
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    lease: Arc<HeldLease>,
    done: AtomicBool,
}

impl Guard {
    pub(crate) fn new(lease: Arc<HeldLease>) -> Self {
        Self { lease, done: AtomicBool::new(false) }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.lease.contender.name.as_str()
    }

    /// Returns the number to hand to the protected resource: larger than any given out before.
    pub fn fencing_token(&self) -> FencingToken {
        self.lease.fence
    }

    /// Returns how far the order of fencing tokens can be relied on.
    pub fn fence_quality(&self) -> FenceQuality {
        self.lease.core.backend.capability().fencing
    }

    /// Returns until when the lease may be relied on; see [`crate::SystemClock`] for the clock.
    pub fn valid_until(&self) -> BootInstant {
        self.lease.valid_until()
    }

    /// Returns for how long the lease may be relied on from now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        if !self.lease.is_held() {
            return Duration::ZERO;
        }
        self.lease.valid_until().since(self.lease.core.clock.now())
    }

    /// Says whether the lock is still held, by the clock, now; no more from when a release was begun.
    /// Costs no request.
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns how often the lease was renewed.
    pub fn renewals(&self) -> u32 {
        self.lease.renewals()
    }

    /// Fails unless the lock is still held, by the clock, now. Costs no request.
    ///
    /// Errors: `lease_lost` with the reason; `invalid_argument` once a release was begun.
    pub fn check(&self) -> Result<()> {
        self.lease.check()
    }

    /// Completes when the lease is lost, with the reason; never after a release.
    ///
    /// The future borrows nothing. Cancellation: safe.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let mut signal = self.lease.signal();
        async move {
            let ended =
                signal.wait_for(|state| matches!(state, LeaseState::Lost(_))).await.map(|state| *state);
            match ended {
                Ok(LeaseState::Lost(reason)) => reason,
                // The lease was released and is gone: there is nothing left to lose.
                _ => std::future::pending().await,
            }
        }
    }

    /// Completes when no renewal was confirmed for half of the lease, or a hold limit is near, or
    /// the lease is lost already. Renewal may still succeed afterwards.
    ///
    /// The future borrows nothing. Cancellation: safe.
    pub fn endangered(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut signal = self.lease.signal();
        async move {
            let ended = signal
                .wait_for(|state| matches!(state, LeaseState::Endangered | LeaseState::Lost(_)))
                .await
                .is_err();
            if ended {
                std::future::pending().await
            }
        }
    }

    /// Tells the watchdog that the protected work moves on; matters only with `beat_every`.
    pub fn beat(&self) {
        self.lease.beat();
    }

    /// Gives the lock back and waits until the store knows.
    ///
    /// Repeatable: after success it returns `Ok` again. With several guards of one owner id, only
    /// the last one releases.
    ///
    /// Errors: `lease_lost` if the lease was over before; `backend_unavailable` if the store did not
    /// answer within the client's time limit, and then the background goes on trying until the
    /// lease has ended.
    /// Cancellation: the background finishes the release.
    pub async fn release(&self) -> Result<()> {
        if self.done.load(Ordering::SeqCst) {
            return Ok(());
        }
        if !self.done.swap(true, Ordering::SeqCst) && !self.lease.leave() {
            return self.lease.check();
        }
        let result = self.lease.release().await;
        if result.is_err() {
            // The handle stays usable: a second call asks again, or says again that it is lost.
            self.done.store(false, Ordering::SeqCst);
        }
        result
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.done.load(Ordering::SeqCst) && self.lease.leave() {
            self.lease.release_in_background();
        }
    }
}
