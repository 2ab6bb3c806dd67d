//! A held lock.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::driver::{Entry, Handle, HeldLease};
use crate::error::{Error, ErrorKind, LostReason, Result};
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::keeping::Left;
use crate::policy::lease::LeaseState;
use crate::resource::Sequencer;
use crate::wakeups::unpoisoned;

/// A held lock: proof of a lease, and the means to release it.
///
/// The lease is renewed in the background until the guard is released or dropped, or the lease is
/// lost. A loss is reported by this process's own clock, with or without any answer from the store.
///
/// Dropping the guard stops renewal and releases in the background; [`Guard::release`] waits until
/// the store knows and reports a loss. The same client may acquire the lock again at once: that request
/// comes after the release.
///
/// A program may end right after a drop, as at the end of `main`. So when the last handle of a client
/// goes (of [`crate::Polylatch`], its locks and guards), that drop blocks its thread until background
/// releases are done, for 500 ms at most. It does not wait in a forked child, in a JavaScript host, or
/// where the program brings its own connection. `std::process::exit` and an abort drop nothing: the lock
/// is then free when its lease expires. To be sure, call [`Guard::release`] or
/// [`crate::Polylatch::close`].
#[derive(Debug)]
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    lease: Arc<HeldLease>,
    entry: Entry,
    share: Mutex<Share>,
    // The last field: it is dropped after the release has been handed to the background.
    handle: Handle,
}

/// What a guard has of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Held,
    /// Left to the other guards of the same owner id, to a conversion, or to the next caller.
    Left,
    /// It was the last guard, so it began the release.
    Last {
        failed: bool,
    },
}

impl Guard {
    pub(crate) fn new(lease: Arc<HeldLease>, handle: Handle) -> Self {
        let entry = lease.first_entry();
        Self::entered(lease, entry, handle)
    }

    /// Of a lease that this client had kept.
    pub(crate) fn entered(lease: Arc<HeldLease>, entry: Entry, handle: Handle) -> Self {
        Self { lease, entry, share: Mutex::new(Share::Held), handle }
    }

    /// Whether the lease may serve another guard by now.
    fn is_left(&self) -> bool {
        self.lease.may_stay() && *unpoisoned(&self.share) == Share::Left
    }

    /// As what the store knows it.
    #[cfg(test)]
    pub(crate) fn contender(&self) -> Arc<crate::backend::Contender> {
        Arc::clone(&self.lease.contender)
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.lease.contender.name.as_str()
    }

    /// Returns the number to hand to the protected resource: larger than any given out before.
    pub fn fencing_token(&self) -> FencingToken {
        self.entry.token
    }

    /// Returns how far the order of fencing tokens can be relied on, as the store was when it granted this lease.
    pub fn fence_quality(&self) -> FenceQuality {
        self.lease.fence_quality
    }

    /// Returns name, holder and fencing token as one printable value, for messages, headers and logs.
    pub fn sequencer(&self) -> Sequencer {
        Sequencer::of(&self.lease.contender.name, &self.lease.contender.client, self.fencing_token())
    }

    /// Returns until when the lease may be relied on; see [`crate::SystemClock`] for the clock.
    pub fn valid_until(&self) -> BootInstant {
        self.lease.valid_until()
    }

    /// Returns for how long the lease may be relied on from now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        self.lease.valid_until().since(self.lease.core.clock.now())
    }

    /// Says whether the lock is still held, by the clock, now; no more from when a release was begun.
    /// Costs no request.
    pub fn is_held(&self) -> bool {
        !self.is_left() && self.lease.is_held()
    }

    /// Returns how often the lease was renewed.
    pub fn renewals(&self) -> u32 {
        self.lease.renewals()
    }

    /// Fails unless the lock is still held, by the clock, now. Costs no request.
    ///
    /// Errors: `lease_lost` with the reason; `invalid_argument` once a release was begun.
    pub fn check(&self) -> Result<()> {
        if self.is_left() { Err(self.lease.released_error()) } else { self.lease.check() }
    }

    /// Completes when the lease is lost, with the reason; never after a release.
    ///
    /// The future borrows nothing. Cancellation: safe.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let (mut signal, over) = (self.lease.signal(), self.lease.entry_over(self.entry));
        async move {
            let ended = async {
                signal.wait_for(|state| matches!(state, LeaseState::Lost(_))).await.map(|state| *state)
            };
            let ended = tokio::select! {
                biased;
                () = over => return std::future::pending().await,
                ended = ended => ended,
            };
            match ended {
                Ok(LeaseState::Lost(reason)) => reason,
                // The lease was released and is gone: there is nothing left to lose.
                _ => std::future::pending().await,
            }
        }
    }

    /// Completes when the lease is over: with the reason if it was lost, with `None` if it was
    /// released or its guard was forgotten. Like [`Guard::lost`], but never waits for ever.
    ///
    /// The future borrows nothing. Cancellation: safe.
    pub fn ended(&self) -> impl Future<Output = Option<LostReason>> + Send + 'static {
        let (mut signal, over) = (self.lease.signal(), self.lease.entry_over(self.entry));
        async move {
            let ended = async { signal.wait_for(|state| state.is_over()).await.map(|state| *state) };
            let ended = tokio::select! {
                biased;
                () = over => return None,
                ended = ended => ended,
            };
            match ended {
                Ok(LeaseState::Lost(reason)) => Some(reason),
                _ => None,
            }
        }
    }

    /// Completes when no renewal was confirmed for half of the lease, or a hold limit is near, or
    /// the lease is lost already. Renewal may still succeed afterwards.
    ///
    /// The future borrows nothing. Cancellation: safe.
    pub fn endangered(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut signal, over) = (self.lease.signal(), self.lease.entry_over(self.entry));
        async move {
            let at_risk = async {
                signal
                    .wait_for(|state| matches!(state, LeaseState::Endangered | LeaseState::Lost(_)))
                    .await
                    .is_ok()
            };
            let at_risk = tokio::select! {
                biased;
                () = over => false,
                at_risk = at_risk => at_risk,
            };
            if !at_risk {
                std::future::pending().await
            }
        }
    }

    /// Returns the mode in which the lock is held.
    pub fn mode(&self) -> Mode {
        self.lease.contender.mode
    }

    /// Atomically downgrades a write lock to a read lock. Readers at the head of the queue enter too. The
    /// fencing token stays.
    ///
    /// Errors: `invalid_argument` unless this is the only guard of a write lock; `lease_lost`; and
    /// as [`Guard::release`] if the store fails. Whatever the error, the guard is gone: if it was
    /// held still, it is released in the background.
    pub async fn downgrade(self) -> Result<Self> {
        match self.convert(Mode::Write, Mode::Read).await? {
            Converted::Done(guard) => Ok(guard),
            Converted::Refused(_) => {
                Err(Error::new(ErrorKind::Internal, "a downgrade to reading was refused"))
            }
        }
    }

    /// Atomically upgrades a read lock to a write lock, if there is no other reader. The new guard has a newer token.
    ///
    /// There is no form that waits: two readers that both wait to write would wait for each other
    /// for ever. If it is refused, the guard still reads; to write, release it and acquire the write
    /// lock, and read again what may have changed meanwhile.
    ///
    /// Errors: `invalid_argument` unless this is the only guard of a read lock; else as
    /// [`Guard::downgrade`].
    pub async fn try_upgrade(self) -> Result<Converted> {
        self.convert(Mode::Read, Mode::Write).await
    }

    async fn convert(self, from: Mode, to: Mode) -> Result<Converted> {
        let observer = Arc::clone(&self.lease.core.observer);
        observer.counted(self.convert_checked(from, to).await)
    }

    async fn convert_checked(self, from: Mode, to: Mode) -> Result<Converted> {
        if self.mode() != from {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{} is held by {}, not by {}",
                    self.lease.contender.name,
                    self.mode().code(),
                    from.code()
                ),
            ));
        }
        // From its first poll on, the conversion answers for the lease, also if this future is dropped.
        *unpoisoned(&self.share) = Share::Left;
        let converted = self.lease.convert(to).await;
        if let Ok(Some(lease)) = converted {
            return Ok(Converted::Done(Self::new(lease, self.handle.clone())));
        }
        *unpoisoned(&self.share) = Share::Held;
        converted.map(|_| Converted::Refused(self))
    }

    /// Tells the watchdog that the protected work moves on; matters only with `beat_every`.
    pub fn beat(&self) {
        self.lease.beat();
    }

    /// Sets the length of the lease: 100 ms to 24 h, and within what the store can keep, as [`crate::Lock::lease`].
    ///
    /// The store is asked at once. Returns until when the lease may be relied on now, which is also
    /// [`Guard::valid_until`]. Later renewals use the new length; with `renew(false)` there are none, so extend
    /// again before the lease ends. For several guards of one owner id it is the same lease.
    ///
    /// A shorter length never takes back what was promised: until the earlier deadline has come within the new
    /// length, that deadline stays. `max_hold` and `beat_every` limit the lease as before, so the deadline can
    /// be earlier than asked for.
    ///
    /// Consul keeps the length that a lease was acquired with (`unsupported` for another one); extending by
    /// that length renews it now.
    ///
    /// Errors: `lease_lost`; `invalid_argument` for a length out of range and once a release was begun;
    /// `unsupported`; `backend_unavailable` if the store did not confirm it within the client's time limit or a
    /// connection failed: the guard then keeps its deadline and its length, though the store may keep the lock
    /// for the new one.
    /// The future borrows nothing. Cancellation: once polled, the request goes on, and what the store confirms
    /// counts.
    pub fn extend(&self, lease: Duration) -> impl Future<Output = Result<BootInstant>> + Send + use<> {
        let is_held = *unpoisoned(&self.share) == Share::Held;
        let held = Arc::clone(&self.lease);
        async move {
            let observer = Arc::clone(&held.core.observer);
            let extended = match held.check() {
                Ok(()) if !is_held => Err(held.released_error()),
                Ok(()) => held.extend(lease).await,
                Err(error) => Err(error),
            };
            observer.counted(extended)
        }
    }

    /// Gives the lock back and waits until the store knows.
    ///
    /// Repeatable: after success it returns `Ok` again, and while another call is under way it waits for
    /// that one. With several guards of one owner id, only the last one releases.
    ///
    /// Errors: `lease_lost` if the lease was over before; `backend_unavailable` if the store did not
    /// answer within the client's time limit, and then the background goes on trying until the
    /// lease has ended.
    /// Cancellation: the background finishes the release.
    pub async fn release(&self) -> Result<()> {
        self.lease.core.observer.counted(self.release_share().await)
    }

    /// Leaves the lease to its client, which keeps it (see [`crate::Lock::keep_idle`]), at once and without a request.
    /// Returns whether it did, and then the lock is released; otherwise nothing has changed, and [`Guard::release`] does it.
    ///
    /// To release is to do this first, so a program has no need of it; see [`crate::Lock::enter_kept`].
    pub fn leave_kept(&self) -> bool {
        let mut share = unpoisoned(&self.share);
        let leaves = *share == Share::Held && self.lease.leave_idle(self.entry);
        if leaves {
            *share = Share::Left;
        }
        leaves
    }

    async fn release_share(&self) -> Result<()> {
        let mut asked = None;
        let share = {
            let mut share = unpoisoned(&self.share);
            if *share == Share::Held {
                *share = if !self.lease.may_stay() {
                    if self.lease.leave() { Share::Last { failed: false } } else { Share::Left }
                } else {
                    match self.lease.leave_kept(self.entry) {
                        Left::Idle => Share::Left,
                        Left::Ask { tokens } => {
                            asked = Some(self.lease.ask_to_keep(tokens));
                            Share::Left
                        }
                        Left::Release => Share::Last { failed: false },
                    }
                };
            }
            *share
        };
        if let Some(asked) = asked {
            return self.kept(asked.await);
        }
        if share == Share::Left {
            return if self.lease.may_stay() { Ok(()) } else { self.lease.not_lost() };
        }
        let result = self.lease.release().await;
        // After a failure a second call asks again, or says again that it is lost.
        *unpoisoned(&self.share) = Share::Last { failed: result.is_err() };
        result
    }

    /// What came of asking the store to keep the lease: no answer if the client's own runtime has ended.
    fn kept(&self, outcome: std::result::Result<Result<()>, oneshot::error::RecvError>) -> Result<()> {
        let result = outcome.unwrap_or_else(|_| self.lease.not_lost());
        if result.is_err() {
            *unpoisoned(&self.share) = Share::Last { failed: true };
        }
        result
    }
}

/// What came of a step from reading to writing.
#[derive(Debug)]
#[must_use = "either way it holds the guard"]
pub enum Converted {
    /// Held in the new way.
    Done(Guard),
    /// Others hold the lock too: still held in the old way.
    Refused(Guard),
}

impl Drop for Guard {
    fn drop(&mut self) {
        let releases = match *unpoisoned(&self.share) {
            Share::Held if self.lease.may_stay() => match self.lease.leave_kept(self.entry) {
                Left::Idle => false,
                Left::Ask { tokens } => {
                    drop(self.lease.ask_to_keep(tokens));
                    false
                }
                Left::Release => true,
            },
            Share::Held => self.lease.leave(),
            Share::Last { failed } => failed,
            Share::Left => false,
        };
        if releases {
            self.lease.release_in_background();
        }
    }
}
