//! One watchdog per client: renews in batches, tells losses by the clock, announces the client.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::backend::{ANNOUNCE_EVERY, Backend, RenewItem, Renewal};
use crate::client_info::ClientInfo;
use crate::clock::{BootInstant, Clock};
use crate::driver::HeldLease;
use crate::error::{ErrorKind, LostReason};
use crate::observe::Observer;
use crate::policy::lease::{Due, RenewalOutcome};
use crate::policy::watchdog::{BATCH_SIZE, Schedule, cohort_of};
use crate::service::{Service, Timers};
use crate::token::OwnerToken;
use crate::wakeups::{Wakeups, unpoisoned};

/// How long the watchdog sleeps at most while it has leases: a resume from suspend is noticed within
/// this time even if the runtime's timers stood still.
const LOOK_AT_CLOCK_EVERY: Duration = Duration::from_millis(500);

/// A renewal may take this long even where hardly anything of its lease is left.
const LEAST_LIMIT: Duration = Duration::from_millis(20);

/// How many ends of leases are kept that came before their lease; those of other clients are among them.
const EARLY_ENDS: usize = 64;

#[derive(Default)]
struct State {
    schedule: Schedule,
    leases: HashMap<u64, Weak<HeldLease>>,
    /// Ends of leases that were not in its care: an end can overtake the answer that grants the lease.
    early: VecDeque<(OwnerToken, u64, LostReason)>,
}

pub(super) struct Watchdog {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    timers: Timers,
    wakeups: Arc<Wakeups>,
    client: Arc<ClientInfo>,
    observer: Arc<Observer>,
    timeout: Duration,
    state: Mutex<State>,
    wake: Notify,
    next_id: AtomicU64,
    announced_at: AtomicU64,
    stopped: AtomicBool,
}

impl Watchdog {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        service: &Service,
        wakeups: Arc<Wakeups>,
        client: Arc<ClientInfo>,
        observer: Arc<Observer>,
        timeout: Duration,
    ) -> Self {
        Self {
            backend,
            clock,
            handle: service.handle().clone(),
            timers: service.timers().clone(),
            wakeups,
            client,
            observer,
            timeout,
            state: Mutex::default(),
            wake: Notify::new(),
            next_id: AtomicU64::new(0),
            announced_at: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a lease into its care.
    pub(super) fn watch(&self, lease: &Arc<HeldLease>) {
        let now = self.clock.now();
        let ended = {
            let mut state = unpoisoned(&self.state);
            state.leases.insert(lease.id, Arc::downgrade(lease));
            let is_of = |owner, fence| lease.contender.owner == owner && lease.fence.get() == fence;
            state.early.iter().find(|(owner, fence, _)| is_of(*owner, *fence)).map(|(_, _, reason)| *reason)
        };
        self.look_again(lease, now);
        if let Some(reason) = ended {
            lease.lose(reason);
        }
        if self.stopped.load(Ordering::SeqCst) {
            lease.lose(LostReason::Unverifiable);
        }
    }

    /// Lets go of a lease that is over.
    pub(super) fn forget(&self, id: u64) {
        let mut state = unpoisoned(&self.state);
        state.leases.remove(&id);
        state.schedule.remove(id);
    }

    /// The cohort of a lease that comes into its care now.
    pub(super) fn cohort(&self) -> u32 {
        cohort_of(unpoisoned(&self.state).leases.len())
    }

    /// The leases in its care.
    pub(super) fn leases(&self) -> Vec<Arc<HeldLease>> {
        unpoisoned(&self.state).leases.values().filter_map(Weak::upgrade).collect()
    }

    /// An acquisition begins: announces this client, unless that was done lately.
    pub(super) fn somebody_is_active(&self) {
        if self.announcement_is_due(self.clock.now()) {
            self.wake.notify_one();
        }
    }

    /// The store says that this lease has ended.
    pub(super) fn revoked(&self, owner: OwnerToken, fence: u64, reason: LostReason) {
        let is_it = |lease: &&Arc<HeldLease>| lease.contender.owner == owner && lease.fence.get() == fence;
        // Dropped outside of the lock, which the last one of a lease may take.
        let leases: Vec<_> = {
            let mut state = unpoisoned(&self.state);
            let leases: Vec<_> = state.leases.values().filter_map(Weak::upgrade).collect();
            if !leases.iter().any(|lease| is_it(&lease)) {
                state.early.truncate(EARLY_ENDS - 1);
                state.early.push_front((owner, fence, reason));
            }
            leases
        };
        if let Some(lease) = leases.iter().find(is_it) {
            lease.lose(reason);
        }
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    fn announcement_is_due(&self, now: BootInstant) -> bool {
        let before = self.announced_at.load(Ordering::Relaxed);
        before == 0 || now.since(BootInstant::from_nanos(before)) >= ANNOUNCE_EVERY
    }

    /// Puts a lease into the schedule for when it next needs attention.
    pub(super) fn look_again(&self, lease: &HeldLease, now: BootInstant) {
        let at = match lease.due(now) {
            Due::Renew(_) => now,
            Due::Nothing(at) => at.min(lease.idle_until(now)),
            Due::Over => return self.forget(lease.id),
        };
        if unpoisoned(&self.state).schedule.add(at, lease.id) {
            self.wake.notify_one();
        }
    }

    /// Does what is due and returns until when to sleep.
    fn turn(self: &Arc<Self>) -> BootInstant {
        let now = self.clock.now();
        let due: Vec<_> = {
            let mut state = unpoisoned(&self.state);
            let ids = state.schedule.take_due(now);
            ids.iter().filter_map(|id| state.leases.get(id).and_then(Weak::upgrade)).collect()
        };
        // What lies within the batch window counts as due, so that it leaves together.
        let soon = now + crate::policy::watchdog::BATCH_WINDOW / 2;
        let mut batch = Vec::new();
        for lease in due {
            if lease.ends_idle(now) {
                lease.release_in_background();
                continue;
            }
            match lease.due(soon.min(lease.valid_until() - Duration::from_nanos(1)).max(now)) {
                Due::Renew(_) if lease.renews_by_keeping() => {
                    drop(lease.ask_to_keep(0));
                    self.look_again(&lease, now);
                }
                Due::Renew(asked) => batch.push((lease, asked)),
                Due::Nothing(at) => {
                    unpoisoned(&self.state).schedule.add(at.min(lease.idle_until(now)), lease.id);
                }
                Due::Over => self.forget(lease.id),
            }
        }
        // One request for each part of the store: a part that does not answer delays its own answer alone.
        let mut parts: HashMap<u64, Vec<_>> = HashMap::new();
        for renewal in batch {
            parts.entry(self.backend.part_of(&renewal.0.contender.name)).or_default().push(renewal);
        }
        for mut batch in parts.into_values() {
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(BATCH_SIZE));
                self.handle.spawn(renew(Arc::clone(self), std::mem::replace(&mut batch, rest), now));
            }
        }

        let (idle, until) = {
            let mut state = unpoisoned(&self.state);
            let idle = state.leases.is_empty();
            let longest = if idle { ANNOUNCE_EVERY } else { LOOK_AT_CLOCK_EVERY };
            (idle, state.schedule.fall_asleep(now, longest))
        };
        let waiting = self.wakeups.waiting() > 0;
        if (!idle || waiting) && self.announcement_is_due(now) {
            self.announced_at.store(now.as_nanos(), Ordering::Relaxed);
            self.handle.spawn(announce(Arc::clone(self)));
        }
        until
    }
}

/// Runs until the client is gone. If it ends in any other way, no lease can be vouched for any more.
pub(super) async fn run(watchdog: Arc<Watchdog>) {
    struct FailClosed(Arc<Watchdog>);
    impl Drop for FailClosed {
        fn drop(&mut self) {
            self.0.stopped.store(true, Ordering::SeqCst);
            for lease in self.0.leases() {
                lease.lose(LostReason::Unverifiable);
            }
        }
    }
    let watched = FailClosed(watchdog);
    while !watched.0.stopped.load(Ordering::SeqCst) {
        let until = watched.0.turn();
        tokio::select! {
            () = watched.0.wake.notified() => {}
            () = watched.0.timers.sleep_until(until) => {}
        }
    }
}

/// Extends one batch of leases.
async fn renew(watchdog: Arc<Watchdog>, batch: Vec<(Arc<HeldLease>, Duration)>, sent_at: BootInstant) {
    let items: Vec<_> = batch
        .iter()
        .map(|(lease, asked)| RenewItem {
            contender: Arc::clone(&lease.contender),
            fence: lease.fence,
            lease: *asked,
            length: lease.length(),
            renewals: lease.renewal_sent(),
        })
        .collect();
    for (lease, _) in &batch {
        // While the request is under way the verdict of the clock still has to be told in time.
        watchdog.look_again(lease, sent_at);
    }
    let limits = batch.iter().map(|(lease, asked)| lease.renewal_limit(sent_at, *asked));
    let limit = limits.fold(watchdog.timeout, Duration::min).max(LEAST_LIMIT);
    let mut reply = watchdog.backend.renew(items);
    let first = watchdog.timers.timeout(limit, &mut reply).await;
    let late = first.is_none();
    settle(&watchdog, &batch, sent_at, first);
    if late {
        // Tries go on, but an answer that comes late still counts from when its request left.
        let answer = watchdog.timers.timeout(watchdog.timeout, reply).await;
        if let Some(answer @ Ok(_)) = answer {
            settle(&watchdog, &batch, sent_at, Some(answer));
        }
    }
}

fn settle(
    watchdog: &Watchdog,
    batch: &[(Arc<HeldLease>, Duration)],
    sent_at: BootInstant,
    answer: Option<crate::error::Result<Vec<Renewal>>>,
) {
    let now = watchdog.clock.now();
    let renewals = match answer {
        Some(Ok(renewals)) => Some(renewals),
        Some(Err(error)) => {
            watchdog.observer.failed(error.kind());
            tracing::warn!(
                target: "polylatch", event = "renewal_failed", client = watchdog.client.id.as_str(),
                leases = batch.len(), %error,
                "renewal failed; trying again"
            );
            None
        }
        None => {
            watchdog.observer.failed(ErrorKind::BackendUnavailable);
            tracing::warn!(
                target: "polylatch", event = "renewal_failed", client = watchdog.client.id.as_str(),
                leases = batch.len(),
                "renewal not answered yet; trying again"
            );
            None
        }
    };
    for (index, (lease, asked)) in batch.iter().enumerate() {
        let outcome = match renewals.as_ref().map(|renewals| renewals.get(index)) {
            Some(Some(Renewal::Extended)) => {
                watchdog.observer.renewed(now.since(lease.renewal_due()));
                RenewalOutcome::Extended
            }
            Some(Some(Renewal::NotYours)) => RenewalOutcome::NotYours,
            Some(Some(Renewal::Unknown) | None) | None => RenewalOutcome::Failed,
        };
        lease.renewal_done(sent_at, *asked, now, outcome);
        watchdog.look_again(lease, now);
    }
}

async fn announce(watchdog: Arc<Watchdog>) {
    let announced =
        watchdog.timers.timeout(watchdog.timeout, watchdog.backend.announce(&watchdog.client)).await;
    if let Some(Err(error)) = announced {
        // Only people miss it; the locks do not depend on it.
        tracing::debug!(%error, "could not record who this client is");
    }
}
