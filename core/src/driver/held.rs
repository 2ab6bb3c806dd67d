//! A held lease: its state machine, its signals, and its release.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{MutexGuard, watch};

use crate::backend::{Contender, Released, Reply};
use crate::client_info::process_id;
use crate::clock::BootInstant;
use crate::driver::Core;
use crate::driver::keep::{LEASES_STAY, Stays};
use crate::driver::leaving::{GOES_BEHIND, Leaves};
use crate::error::{Effect, Error, ErrorKind, LostReason, Result, Retry};
use crate::policy::backoff::Backoff;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::lease::{Due, Lease, LeaseState, RenewalOutcome};
use crate::wakeups::unpoisoned;

/// One lease that this client holds, or held.
pub(crate) struct HeldLease {
    pub(super) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) contender: Arc<Contender>,
    pub(crate) fence: FencingToken,
    /// As the store was when it granted the lease.
    pub(crate) fence_quality: FenceQuality,
    /// The owner id for which it can be entered again.
    pub(super) owner: Option<String>,
    pub(super) machine: Mutex<Lease>,
    signal: watch::Sender<LeaseState>,
    guards: Mutex<Guards>,
    /// Held by the one who talks to the store about the release; the others wait for what comes of it.
    pub(super) release: Arc<tokio::sync::Mutex<()>>,
    /// A release has left and its answer was not seen, so it may have freed the lock.
    unanswered: AtomicBool,
    /// If it may stay with its client after a release.
    pub(super) stays: Option<Stays>,
}

/// A release that has left.
struct Sent {
    request: Reply<Released>,
    /// An earlier one may have freed the lock, so "not held" is what this one may find.
    may_be_free: bool,
}

/// How many guards share a lease (reentrancy), and whether another one may come.
struct Guards {
    count: usize,
    closed: bool,
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLease")
            .field("lock", &self.contender.name)
            .field("fence", &self.fence)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

impl HeldLease {
    /// Makes a lease with one guard and hands it to the watchdog.
    pub(super) fn start(
        core: Arc<Core>,
        contender: Arc<Contender>,
        owner: Option<String>,
        fence: FencingToken,
        machine: Lease,
        keep_idle: Option<Duration>,
    ) -> Arc<Self> {
        let fence_quality = core.backend.fence_quality(contender.owner);
        let stays =
            keep_idle.filter(|_| LEASES_STAY).map(|idle_for| Stays::new(idle_for, machine.granted_at()));
        let lease = Arc::new(Self {
            id: core.watchdog.next_id(),
            core,
            contender,
            fence,
            fence_quality,
            owner,
            machine: Mutex::new(machine),
            signal: watch::Sender::new(LeaseState::Held),
            guards: Mutex::new(Guards { count: 1, closed: false }),
            release: Arc::default(),
            unanswered: AtomicBool::new(false),
            stays,
        });
        lease.core.observer.began();
        lease.core.watchdog.watch(&lease);
        lease
    }

    /// Judges the lease by the clock, now.
    pub(crate) fn judge(&self) -> LeaseState {
        let now = self.core.clock.now();
        self.with_machine(|machine| machine.judge(now))
    }

    /// Says whether the lock may still be relied on: not from when its release has left.
    pub(crate) fn is_held(&self) -> bool {
        !self.judge().is_over() && !unpoisoned(&self.machine).is_releasing()
    }

    /// Returns an error that says why, unless the lease is still held.
    pub(crate) fn check(&self) -> Result<()> {
        match self.judge() {
            LeaseState::Held | LeaseState::Endangered if self.is_held() => Ok(()),
            LeaseState::Lost(reason) => Err(self.lost_error(reason)),
            LeaseState::Held | LeaseState::Endangered | LeaseState::Released => Err(self.released_error()),
        }
    }

    pub(crate) fn released_error(&self) -> Error {
        let message = format!("the lease of {} was released; acquire a new one", self.contender.name);
        Error::new(ErrorKind::InvalidArgument, message).on_lock(self.contender.name.as_str())
    }

    /// Returns an error if the lease was lost.
    pub(crate) fn not_lost(&self) -> Result<()> {
        match self.judge() {
            LeaseState::Lost(reason) => Err(self.lost_error(reason)),
            LeaseState::Held | LeaseState::Endangered | LeaseState::Released => Ok(()),
        }
    }

    pub(crate) fn valid_until(&self) -> BootInstant {
        unpoisoned(&self.machine).valid_until()
    }

    pub(crate) fn renewals(&self) -> u32 {
        unpoisoned(&self.machine).renewals()
    }

    /// See [`Lease::renewal_due`].
    pub(super) fn renewal_due(&self) -> BootInstant {
        unpoisoned(&self.machine).renewal_due()
    }

    pub(crate) fn beat(&self) {
        let now = self.core.clock.now();
        self.with_machine(|machine| machine.beat(now));
    }

    /// Follows the lease's state.
    pub(crate) fn signal(&self) -> watch::Receiver<LeaseState> {
        self.signal.subscribe()
    }

    pub(super) fn due(&self, now: BootInstant) -> Due {
        self.with_machine(|machine| machine.due(now))
    }

    pub(super) fn renewal_sent(&self) -> u32 {
        self.with_machine(Lease::renewal_sent)
    }

    /// See [`Lease::renewal_limit`].
    pub(super) fn renewal_limit(&self, now: BootInstant, asked: Duration) -> Duration {
        unpoisoned(&self.machine).renewal_limit(now, asked)
    }

    /// Length of the leases that renewals ask for.
    pub(super) fn length(&self) -> Duration {
        unpoisoned(&self.machine).length()
    }

    /// The longest lease that the store was ever asked for.
    pub(super) fn longest(&self) -> Duration {
        unpoisoned(&self.machine).longest()
    }

    pub(super) fn renewal_done(
        &self,
        sent_at: BootInstant,
        asked: Duration,
        now: BootInstant,
        outcome: RenewalOutcome,
    ) {
        self.with_machine(|machine| machine.renewal_done(sent_at, asked, now, outcome));
    }

    pub(super) fn lose(&self, reason: LostReason) {
        let now = self.core.clock.now();
        self.with_machine(|machine| machine.lose(now, reason));
    }

    pub(super) fn name(&self) -> &str {
        self.contender.name.as_str()
    }

    /// Adds a guard, unless the lease is over, being released or being converted.
    pub(super) fn enter_again(&self) -> bool {
        let mut guards = unpoisoned(&self.guards);
        if guards.count == 0 || guards.closed || !self.is_held() {
            return false;
        }
        guards.count += 1;
        true
    }

    /// Takes a guard away. Returns whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        let mut guards = unpoisoned(&self.guards);
        guards.count = guards.count.saturating_sub(1);
        guards.count == 0
    }

    /// Lets no other guard in. `false` if there is more than one already.
    pub(super) fn close_for_others(&self) -> bool {
        let mut guards = unpoisoned(&self.guards);
        guards.closed |= guards.count == 1;
        guards.count == 1
    }

    pub(super) fn open_for_others(&self) {
        unpoisoned(&self.guards).closed = false;
    }

    /// Releases the lock, trying again until the request time limit of the client is over.
    ///
    /// If a release is under way already, waits for that one, and asks again only if it came to nothing.
    /// Lost replies: asked again; "not yours" after a lost reply counts as released. If the store
    /// cannot be reached, the background goes on trying until the lease ends, and this returns the
    /// error. Cancellation: the background finishes the release.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<()> {
        self.with_machine(Lease::release_started);
        let mut unfinished = FinishRelease(Some(Arc::clone(self)));
        let core = &self.core;
        let alone = match self.release.try_lock() {
            Ok(alone) => alone,
            Err(_) => {
                // Another call, or the background, is at it: what comes of that is the answer.
                let turn = async { Ok(self.release.lock().await) };
                match core.service.within(core.settings.timeout, turn).await {
                    Ok(alone) => alone,
                    Err(error) => {
                        unfinished.0 = None;
                        return Err(self.in_release(error));
                    }
                }
            }
        };
        let result = self.release_alone(alone, core.clock.now() + core.settings.timeout, None, None).await;
        if !matches!(&result, Err(error) if error.retry() == Retry::AfterBackoff) {
            unfinished.0 = None;
        }
        result
    }

    /// Releases the lock in the background, until the store has answered or the lease has ended.
    pub(crate) fn release_in_background(self: &Arc<Self>) {
        if self.judge().is_over() {
            self.core.watchdog.forget(self.id);
            return;
        }
        self.with_machine(Lease::release_started);
        let lease = Arc::clone(self);
        let sent = self.send_in_turn();
        let in_turn = sent.is_some().then(|| self.core.service.runtime_here());
        let leaves = self.core.leaving.begin(self.name(), in_turn);
        self.core.service.spawn_job(async move {
            let end = unpoisoned(&lease.machine).server_end(lease.core.clock.now());
            let alone = lease.release.lock().await;
            match lease.core.observer.counted(lease.release_alone(alone, end, sent, leaves).await) {
                Ok(()) => {}
                Err(error) if error.lost_reason().is_some() => {
                    tracing::warn!(lock = %lease.contender.name, %error, "released too late");
                }
                Err(error) => tracing::warn!(
                    lock = %lease.contender.name,
                    %error,
                    "could not release; the lock is freed when its lease ends"
                ),
            }
        });
    }

    fn in_release(&self, error: Error) -> Error {
        error.during(self.core.backend.capability().backend, "release").on_lock(self.name())
    }

    /// Sends a release so that later requests of this runtime come after it, if the store can, and no other call is at it.
    fn send_in_turn(&self) -> Option<Sent> {
        // A forked child has the connections of its parent, and holds nothing of what that holds.
        if !GOES_BEHIND || process_id() != self.core.client.pid {
            return None;
        }
        let _alone = self.release.try_lock().ok()?;
        // Noted before it leaves.
        let may_be_free = self.unanswered.swap(true, Ordering::SeqCst);
        let request = self.core.backend.release_in_turn(&self.contender, self.fence);
        if request.is_none() {
            self.unanswered.store(may_be_free, Ordering::SeqCst);
        }
        request.map(|request| Sent { request, may_be_free })
    }

    /// Goes on from what was `sent` already. `leaves` ends with the first answer, whatever it is.
    async fn release_alone(
        &self,
        _alone: MutexGuard<'_, ()>,
        end: BootInstant,
        mut sent: Option<Sent>,
        mut leaves: Option<Leaves>,
    ) -> Result<()> {
        match self.judge() {
            LeaseState::Released => return Ok(()),
            LeaseState::Lost(reason) => return Err(self.lost_error(reason)),
            LeaseState::Held | LeaseState::Endangered => {}
        }
        let core = &self.core;
        let started = core.clock.now();
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1), self.fence.get());
        let mut tries = 0;
        loop {
            tries += 1;
            let Sent { request, may_be_free } = sent.take().unwrap_or_else(|| Sent {
                // Noted before it leaves: this future may be dropped at the next await.
                may_be_free: self.unanswered.swap(true, Ordering::SeqCst),
                request: core.backend.release(&self.contender, self.fence),
            });
            let now = core.clock.now();
            let answer = core.service.within(core.settings.timeout, request).await;
            if let Some(leaves) = leaves.take() {
                leaves.end();
            }
            let error = match answer {
                Ok(Released::Released) => {
                    self.finish(None);
                    return Ok(());
                }
                Ok(Released::NotHeld) if may_be_free => {
                    self.finish(None);
                    return Ok(());
                }
                Ok(Released::NotHeld) => {
                    let reason = match self.judge() {
                        LeaseState::Lost(reason) => reason,
                        LeaseState::Released => return Ok(()),
                        _ => LostReason::Superseded,
                    };
                    self.finish(Some(reason));
                    return Err(self.lost_error(reason));
                }
                Err(error) => error,
            };
            if error.effect() == Effect::None {
                self.unanswered.store(may_be_free, Ordering::SeqCst);
            }
            let pause = backoff.delay();
            if error.retry() != Retry::AfterBackoff || now + pause >= end {
                return Err(self.in_release(error).after(tries, core.clock.now().since(started)));
            }
            core.service.sleep(pause).await;
        }
    }

    /// A request has left that may free the lock, and its answer is not known.
    pub(super) fn may_be_free(&self) {
        self.unanswered.store(true, Ordering::SeqCst);
    }

    pub(super) fn finish(&self, lost: Option<LostReason>) {
        let now = self.core.clock.now();
        self.with_machine(|machine| match lost {
            None => {
                machine.released(now);
            }
            Some(reason) => machine.lose(now, reason),
        });
        unpoisoned(&self.guards).count = 0;
        self.core.watchdog.forget(self.id);
    }

    pub(super) fn lost_error(&self, reason: LostReason) -> Error {
        Error::lost(reason, self.contender.name.as_str())
    }

    /// Changes the machine and notifies its followers, in that order.
    pub(super) fn with_machine<T>(&self, change: impl FnOnce(&mut Lease) -> T) -> T {
        let mut machine = unpoisoned(&self.machine);
        let result = change(&mut machine);
        let state = machine.last_judged();
        // Of the present caller; one that is kept has none.
        let since = match self.stays.as_ref().filter(|_| self.may_stay()) {
            None => Some(machine.granted_at()),
            Some(stays) => stays.in_since(),
        };
        let mut held = None;
        // Inside the lock, so that two changes cannot be told in the wrong order.
        let changed = self.signal.send_if_modified(|told| {
            let changed = *told != state && !told.is_over();
            if changed {
                *told = state;
                if let Some(since) = since {
                    let held = *held.insert(self.core.clock.now().since(since));
                    if state.is_over() {
                        self.core.observer.ended(held, state.lost_reason());
                    }
                }
            }
            changed
        });
        let renewals = machine.renewals();
        drop(machine);
        if changed && self.may_stay() && state.is_over() {
            self.core.kept.forget(self);
        }
        if changed && let Some(held) = held {
            self.tell(state, held, renewals);
        }
        result
    }

    /// Tells the program's observers that the lease is in another state.
    fn tell(&self, state: LeaseState, held: Duration, renewals: u32) {
        let backend = self.core.backend.capability().backend;
        let client = self.core.client.id.as_str();
        let (lock, token, held_ms) = (&self.contender.name, self.fence.get(), held.as_millis() as u64);
        // The metrics first: an observer that has seen the event finds it counted.
        if state.is_over() {
            self.core.observer.ended_for_export(held, state.lost_reason());
        }
        match state {
            LeaseState::Held => {}
            LeaseState::Endangered => tracing::warn!(
                target: "polylatch", event = "endangered", client, %lock, token,
                "lease at risk: no successful renewal for half the lease, or hold limit near"
            ),
            LeaseState::Released => {
                tracing::debug!(target: "polylatch", event = "released", client, %lock, backend, token, held_ms, renewals);
            }
            LeaseState::Lost(reason) => {
                tracing::error!(
                    target: "polylatch", event = "lost", client, %lock, token, reason = reason.code(), held_ms,
                    "the lease is lost"
                );
            }
        }
    }
}

/// Hands a release that its caller abandoned to the background.
struct FinishRelease(Option<Arc<HeldLease>>);

impl Drop for FinishRelease {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.release_in_background();
        }
    }
}
