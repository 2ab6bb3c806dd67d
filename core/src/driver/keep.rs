//! Leases that stay with this client after a release: carries out what [`crate::policy::keeping`] decides.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::backend::{Kept, RenewItem};
use crate::clock::BootInstant;
use crate::driver::{Core, HeldLease};
use crate::error::{Effect, LostReason, Result};
use crate::observe::{Entered, WaitOutcome};
use crate::options::Asked;
use crate::policy::fencing::FencingToken;
use crate::policy::keeping::{Keeping, Left};
use crate::policy::lease::{LeaseState, RenewalOutcome};
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// Not in pages and workers: their hosts stop them at any time and for long, and a lease that they keep would block all
/// others meanwhile. So what is only for kept leases is not in what they load.
pub(super) const LEASES_STAY: bool = cfg!(not(target_family = "wasm"));

/// One stay in the section under a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub token: FencingToken,
    number: u64,
}

/// How many entries are over, for those who follow one of them.
#[derive(Default)]
struct Over {
    count: AtomicU64,
    changed: Notify,
}

/// What a lease that may be kept has beside the others.
pub(super) struct Stays {
    keeping: Mutex<Keeping>,
    over: Arc<Over>,
    /// When the present entry began, in nanoseconds of the clock; 0 while there is none.
    since: AtomicU64,
    /// The store has answered whether it keeps the lease.
    answered: Notify,
}

impl Stays {
    pub(super) fn new(idle_for: Duration, granted_at: BootInstant) -> Self {
        Self {
            keeping: Mutex::new(Keeping::new(idle_for)),
            over: Arc::default(),
            since: AtomicU64::new(granted_at.as_nanos().max(1)),
            answered: Notify::new(),
        }
    }

    /// Since when a caller is in; `None` if the lease is not in use.
    pub(super) fn in_since(&self) -> Option<BootInstant> {
        let since = self.since.load(Ordering::SeqCst);
        (since > 0).then(|| BootInstant::from_nanos(since))
    }

    /// The present entry is over, and the lease is not.
    fn leave(&self) -> Option<BootInstant> {
        let since = self.since.swap(0, Ordering::SeqCst);
        self.over.count.fetch_add(1, Ordering::SeqCst);
        self.over.changed.notify_waiters();
        (since > 0).then(|| BootInstant::from_nanos(since))
    }
}

/// The leases of one client that stay with it, by the lock's name: usually a few, and to compare their names takes less time than
/// to hash one.
#[derive(Default)]
pub(super) struct KeptLeases(Mutex<BTreeMap<String, Arc<HeldLease>>>);

/// What an acquisition finds here.
pub(crate) enum Found {
    Entered(Arc<HeldLease>, Entry),
    /// The store is being asked whether it keeps the lease; look again after its answer.
    Asked(Arc<HeldLease>),
    /// The store has to be asked for the lock.
    Nothing,
}

impl KeptLeases {
    fn of(&self, name: &str) -> Option<Arc<HeldLease>> {
        unpoisoned(&self.0).get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<HeldLease>> {
        unpoisoned(&self.0).values().cloned().collect()
    }

    fn keep(&self, lease: &Arc<HeldLease>) {
        let mut kept = unpoisoned(&self.0);
        if kept.get(lease.name()).is_none_or(|present| present.id != lease.id) {
            kept.insert(lease.name().to_owned(), Arc::clone(lease));
        }
    }

    /// Another lease of the same name may have come after it.
    pub(super) fn forget(&self, lease: &HeldLease) {
        let mut kept = unpoisoned(&self.0);
        let forgotten = match kept.get(lease.name()) {
            Some(present) if present.id == lease.id => kept.remove(lease.name()),
            _ => None,
        };
        drop(kept);
        // Outside of the lock: it may be the last one of its client.
        drop(forgotten);
    }
}

impl Core {
    /// Enters a kept lease that is what was asked for, without a request.
    pub(crate) fn enter_kept(&self, asked: &Asked) -> Found {
        if !LEASES_STAY {
            return Found::Nothing;
        }
        let Some(lease) = self.kept.of(&asked.name) else { return Found::Nothing };
        match lease.enter_kept(asked) {
            Some(entry) => Found::Entered(lease, entry),
            None if lease.is_asked() => Found::Asked(lease),
            None => Found::Nothing,
        }
    }

    /// Another client wants the lock that is kept under this owner and fence; `None` if such messages may have been
    /// missed.
    pub(super) fn wanted(&self, which: Option<(OwnerToken, u64)>) {
        if !LEASES_STAY {
            return;
        }
        for lease in self.kept.all() {
            let Some(stays) = &lease.stays else { continue };
            match which {
                Some((owner, fence)) if lease.contender.owner != owner || lease.fence.get() != fence => {}
                Some(_) => {
                    if unpoisoned(&stays.keeping).wanted() {
                        lease.release_in_background();
                    }
                }
                None => {
                    if unpoisoned(&stays.keeping).renewal_due() {
                        drop(lease.ask_to_keep(0));
                    }
                }
            }
        }
    }

    /// Releases what is kept: no caller of this client is left.
    pub(super) fn keep_nothing(&self) {
        if !LEASES_STAY {
            return;
        }
        let kept = std::mem::take(&mut *unpoisoned(&self.kept.0));
        for lease in kept.into_values() {
            if lease.stays.as_ref().is_some_and(|stays| unpoisoned(&stays.keeping).wanted()) {
                lease.release_in_background();
            }
        }
    }
}

impl HeldLease {
    /// Whether it may stay with its client after a release.
    pub(crate) fn may_stay(&self) -> bool {
        LEASES_STAY && self.stays.is_some()
    }

    /// The entry of the caller that the store granted it to.
    pub(crate) fn first_entry(&self) -> Entry {
        Entry { token: self.fence, number: 0 }
    }

    fn enter_kept(&self, asked: &Asked) -> Option<Entry> {
        let stays = self.stays.as_ref()?;
        let core = &self.core;
        let lease = asked.lease.unwrap_or(core.settings.lease);
        let mut keeping = unpoisoned(&stays.keeping);
        // Another lease than was asked for: the store is asked, and has this one released. What a kept lease cannot be
        // asked for is refused on that way.
        // Usually both labels are empty. To compare what is not there takes some C libraries longer than all else here.
        let (label, asked_label) = (self.contender.label.as_str(), asked.label.as_str());
        let is_asked_for = self.contender.lease == lease
            && label.len() == asked_label.len()
            && (label.is_empty() || label == asked_label)
            && asked.keep_idle == Some(keeping.idle_for())
            && asked.may_be_kept();
        if !is_asked_for || core.is_closed() {
            return None;
        }
        let now = core.clock.now();
        let is_sound = unpoisoned(&self.machine).is_sound(now);
        let token = FencingToken::new(keeping.enter(is_sound)?);
        stays.since.store(now.as_nanos().max(1), Ordering::SeqCst);
        let number = stays.over.count.load(Ordering::SeqCst);
        drop(keeping);
        let entered = Entered { queued: false, pushed: false };
        core.observer.acquired(core.client.id.as_str(), self.name(), token.get(), entered, Duration::ZERO);
        core.observer.began();
        core.observer.waited(WaitOutcome::Acquired, Duration::ZERO);
        Some(Entry { token, number })
    }

    fn is_asked(&self) -> bool {
        LEASES_STAY && self.stays.as_ref().is_some_and(|stays| unpoisoned(&stays.keeping).is_asked())
    }

    /// Completes when the store has answered whether it keeps the lease.
    pub(crate) async fn answered(&self) {
        let Some(stays) = self.stays.as_ref().filter(|_| LEASES_STAY) else { return };
        let mut answered = pin!(stays.answered.notified());
        // Registered before the look, so that nothing is missed between the two.
        answered.as_mut().enable();
        if self.is_asked() {
            answered.await;
        }
    }

    /// Completes when this entry is over and the lease is not; never for a lease that cannot stay.
    pub(crate) fn entry_over(&self, entry: Entry) -> impl Future<Output = ()> + Send + 'static {
        let over = self.stays.as_ref().filter(|_| LEASES_STAY).map(|stays| Arc::clone(&stays.over));
        async move {
            let Some(over) = over.filter(|_| LEASES_STAY) else { return std::future::pending().await };
            loop {
                let mut changed = pin!(over.changed.notified());
                // Registered before the look, so that nothing is missed between the two.
                changed.as_mut().enable();
                if over.count.load(Ordering::SeqCst) > entry.number {
                    return;
                }
                changed.await;
            }
        }
    }

    /// The caller leaves the section. If the lease is not to be released, this entry is over.
    pub(crate) fn leave_kept(&self, entry: Entry) -> Left {
        self.leave_if(entry, |_, _| true).unwrap_or(Left::Release)
    }

    /// The caller leaves the section if the lease stays and the store need not be asked. Returns whether that is so.
    pub(crate) fn leave_idle(&self, entry: Entry) -> bool {
        self.leave_if(entry, Keeping::stays_idle) == Some(Left::Idle)
    }

    /// `None` if the lease cannot stay, or `leaves` says no.
    fn leave_if(&self, entry: Entry, leaves: impl FnOnce(&Keeping, bool) -> bool) -> Option<Left> {
        let stays = self.stays.as_ref().filter(|_| LEASES_STAY)?;
        let core = &self.core;
        let now = core.clock.now();
        let is_sound = !core.is_closed() && unpoisoned(&self.machine).is_sound(now);
        let mut keeping = unpoisoned(&stays.keeping);
        if !leaves(&keeping, is_sound) {
            return None;
        }
        let left = keeping.left(now, is_sound);
        if left == Left::Release {
            return Some(left);
        }
        let since = stays.leave().unwrap_or(now);
        // Before anybody enters again.
        let held = now.since(since);
        core.observer.ended(held, None);
        drop(keeping);
        core.observer.ended_for_export(held, None);
        let (backend, client) = (core.backend.capability().backend, core.client.id.as_str());
        let (lock, token, held_ms) = (self.name(), entry.token.get(), held.as_millis() as u64);
        tracing::debug!(
            target: "polylatch", event = "released", client, lock, backend, token, held_ms,
            renewals = self.renewals()
        );
        Some(left)
    }

    /// The caller has changed the lease, so it is no more what the next one asks for.
    pub(super) fn keep_no_longer(&self) {
        if let Some(stays) = self.stays.as_ref().filter(|_| LEASES_STAY) {
            // It is in use, so there is nothing to release now.
            let _ = unpoisoned(&stays.keeping).wanted();
        }
    }

    /// Whether a renewal that is due is made by asking the store to keep the lease.
    pub(super) fn renews_by_keeping(&self) -> bool {
        LEASES_STAY && self.stays.as_ref().is_some_and(|stays| unpoisoned(&stays.keeping).renewal_due())
    }

    /// When the watchdog is to look at it on account of its idleness.
    pub(super) fn idle_until(&self, now: BootInstant) -> BootInstant {
        const LATER: Duration = Duration::from_secs(3600);
        let Some(stays) = self.stays.as_ref().filter(|_| LEASES_STAY) else { return now + LATER };
        unpoisoned(&stays.keeping).idle_until(now)
    }

    /// Whether it was idle for long enough, and is to be released.
    pub(super) fn ends_idle(&self, now: BootInstant) -> bool {
        LEASES_STAY && self.stays.as_ref().is_some_and(|stays| unpoisoned(&stays.keeping).ends_idle(now))
    }

    /// Asks the store to keep the lease, in the background: what it answers counts, whatever becomes of the caller.
    /// `tokens`: how many are to be set aside. What is received is the outcome of the release that this is.
    pub(crate) fn ask_to_keep(self: &Arc<Self>, tokens: u64) -> oneshot::Receiver<Result<()>> {
        // Before the request leaves: its answer may be overtaken by the message that another client wants the lock.
        self.core.kept.keep(self);
        let renewals = self.renewal_sent();
        let (tell, told) = oneshot::channel();
        let lease = Arc::clone(self);
        self.core.service.spawn_job(async move {
            // The caller may have gone.
            let _ = tell.send(lease.ask_store(tokens, renewals).await);
        });
        told
    }

    async fn ask_store(self: &Arc<Self>, tokens: u64, renewals: u32) -> Result<()> {
        let Some(stays) = self.stays.as_ref().filter(|_| LEASES_STAY) else { return Ok(()) };
        let core = &self.core;
        let (sent_at, lease) = (core.clock.now(), self.length());
        let contender = Arc::clone(&self.contender);
        let item = RenewItem { contender, fence: self.fence, lease, length: lease, renewals };
        let limit = core.settings.timeout;
        let answer = core.service.within(limit, core.backend.keep(item, tokens)).await;
        let now = core.clock.now();
        let mut result = Ok(());
        let stays_here = match answer {
            Ok(Kept::Extended { tokens }) => {
                self.renewal_done(sent_at, lease, now, RenewalOutcome::Extended);
                unpoisoned(&stays.keeping).kept(tokens)
            }
            Ok(Kept::Released) => {
                self.finish(None);
                false
            }
            Ok(Kept::NotHeld) => {
                // A release may have overtaken the request.
                if self.judge() != LeaseState::Released {
                    let reason = self.judge().lost_reason().unwrap_or(LostReason::Superseded);
                    self.finish(Some(reason));
                    result = Err(self.lost_error(reason));
                }
                false
            }
            Err(error) => {
                self.renewal_done(sent_at, lease, now, RenewalOutcome::Failed);
                if error.effect() != Effect::None {
                    self.may_be_free();
                }
                tracing::debug!(lock = %self.contender.name, %error, "not kept");
                false
            }
        };
        if !stays_here {
            unpoisoned(&stays.keeping).ended();
        }
        let is_over = self.judge().is_over();
        if !stays_here || is_over {
            core.kept.forget(self);
        }
        if !stays_here && !is_over {
            result = self.release().await;
        }
        let asks_again = stays_here && unpoisoned(&stays.keeping).asks_again();
        stays.answered.notify_waiters();
        if asks_again {
            drop(self.ask_to_keep(0));
        }
        if stays_here {
            core.watchdog.look_again(self, now);
        }
        result
    }
}
