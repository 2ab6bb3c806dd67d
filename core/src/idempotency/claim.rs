//! A claim on a key: renewed by the client's own thread, judged by its own clock.
//!
//! The watchdog of locks renews leases of locks, so claims have a loop of their own, with the same rule: a claim is valid
//! until the send time of the last confirmed request plus the lease, less drift and margin, whether or not anything
//! answers.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::error::shown;
use crate::backend::records::{Put, Swapped};
use crate::clock::BootInstant;
use crate::driver::Core;
use crate::error::{Error, LostReason, Result, Retry};
use crate::policy::backoff::Backoff;
use crate::policy::fencing::FencingToken;
use crate::policy::idempotency::{ABANDONED_KEEP, Holding, Record, RecordId, holding};
use crate::policy::lease::valid_until;
use crate::service::PutOff;
use crate::wakeups::unpoisoned;

/// How long the loop sleeps at most: after a resume from suspend, a loss is noticed within this time.
const LOOK_AT_CLOCK_EVERY: Duration = Duration::from_millis(500);

/// First and longest pause between tries that failed.
const BETWEEN_TRIES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The claim under which work runs. Hand its token to what the work changes, and stop when the claim is lost.
#[derive(Debug, Clone)]
pub struct Claim(pub(super) Arc<Held>);

impl Claim {
    /// Returns the number of this claim, larger than that of every claim on the same key before. What the work changes can
    /// refuse smaller ones.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.0.fence)
    }

    /// Returns how many runs of this key began since it was free, this one counted: more than 1 if a run before died or
    /// lost its claim, so that its work may have been done in part.
    pub fn runs(&self) -> u32 {
        self.0.record.runs
    }

    /// Returns how long the claim is certainly valid without another renewal.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Errors: `lease_lost` if the claim was lost; another client may do the work.
    pub fn check(&self) -> Result<()> {
        match self.0.lost_reason() {
            Some(reason) => Err(self.0.lost_error(reason)),
            None => Ok(()),
        }
    }

    /// Completes when the claim is lost; never if the work ends before. Stop the work then: another client may begin it.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let held = Arc::clone(&self.0);
        async move {
            loop {
                let changed = held.changed.notified();
                if let Some(reason) = held.lost_reason() {
                    return reason;
                }
                changed.await;
            }
        }
    }
}

#[derive(Debug)]
struct Timing {
    version: u64,
    valid_until: BootInstant,
    renewals: u32,
    lost: Option<LostReason>,
}

/// What the loop and the run share.
pub(super) struct Held {
    core: Arc<Core>,
    pub id: RecordId,
    /// As it was written, without a result.
    pub record: Record,
    pub fence: u64,
    timing: Mutex<Timing>,
    changed: Notify,
    stop: Notify,
    stopped: AtomicBool,
    /// The loop, until the first renewal is due.
    renewing: Mutex<Option<PutOff>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("id", &self.id).field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Held {
    /// Begins to renew a claim that was asked for at `sent` and written as this version.
    pub(super) fn begin(
        core: &Arc<Core>,
        id: RecordId,
        record: Record,
        fence: u64,
        sent: BootInstant,
    ) -> Arc<Self> {
        let timing =
            Timing { version: fence, valid_until: valid_until(sent, record.lease), renewals: 0, lost: None };
        let held = Arc::new(Self {
            core: Arc::clone(core),
            id,
            record: Record { fence: Some(fence), ..record },
            fence,
            timing: Mutex::new(timing),
            changed: Notify::new(),
            stop: Notify::new(),
            stopped: AtomicBool::new(false),
            renewing: Mutex::new(None),
        });
        // Most work is done before, and has no need of a task.
        let due = sent + held.record.lease / 3;
        *unpoisoned(&held.renewing) = Some(core.service.begin_at(due, keep(Arc::clone(&held), due)));
        held
    }

    /// Renews no more. Other clients can claim the key when the lease ends.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.stop.notify_one();
        let put_off = unpoisoned(&self.renewing).take();
        drop(put_off);
    }

    fn remaining(&self) -> Duration {
        let timing = unpoisoned(&self.timing);
        if timing.lost.is_some() { Duration::ZERO } else { timing.valid_until.since(self.core.clock.now()) }
    }

    /// Why it is lost; the clock is asked, not the loop, which may be late.
    fn lost_reason(&self) -> Option<LostReason> {
        let timing = unpoisoned(&self.timing);
        let is_over = self.core.clock.now() >= timing.valid_until;
        timing.lost.or_else(|| is_over.then_some(LostReason::Expired))
    }

    pub(super) fn lost_error(&self, reason: LostReason) -> Error {
        Error::lost(reason, &shown(&self.id))
    }

    fn lose(&self, reason: LostReason) {
        unpoisoned(&self.timing).lost.get_or_insert(reason);
        self.changed.notify_waiters();
        tracing::warn!(
            target: "polylatch", event = "claim_lost", client = self.core.client.id.as_str(), scope = self.id.scope,
            key = self.id.key, token = self.fence, reason = reason.code(), "the claim is lost"
        );
    }

    /// Writes how it ended, if the key is still this claim's: `None` frees it. Tries again while the claim is valid and
    /// the store is unavailable.
    ///
    /// Errors: `lease_lost` if another client has taken it over; the error of the store.
    pub(super) async fn end(&self, ending: Option<Record>, keep: Option<Duration>) -> Result<()> {
        self.stop();
        let records = self.core.backend.records()?;
        let mut pauses = Backoff::new(BETWEEN_TRIES[0], BETWEEN_TRIES[1], self.record.owner.jitter_seed());
        loop {
            let (version, last) = {
                let timing = unpoisoned(&self.timing);
                (timing.version, timing.valid_until)
            };
            let put = match &ending {
                Some(record) => Put::Write { record: record.clone(), lease: None, keep },
                None => Put::Delete,
            };
            let asked = records.swap(&self.id, Some(version), put);
            match self.core.service.within(self.core.settings.timeout, asked).await {
                Ok(Swapped::Done { .. }) => return Ok(()),
                Ok(Swapped::Refused(seen)) => match holding(seen.as_ref(), self.record.owner, self.fence) {
                    // A renewal that was under way came first.
                    Holding::Mine { version } => unpoisoned(&self.timing).version = version,
                    Holding::Ended => return Ok(()),
                    Holding::Lost => {
                        let lost = unpoisoned(&self.timing).lost;
                        return Err(self.lost_error(lost.unwrap_or(LostReason::Superseded)));
                    }
                },
                Err(error) if error.retry() == Retry::AfterBackoff && self.core.clock.now() < last => {
                    tracing::debug!(%error, "the end of a claim is written again");
                    self.core.service.sleep(pauses.delay()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One renewal. Returns when the next one is due; `None` if there is none.
    async fn renew(&self, pauses: &mut Backoff) -> Option<BootInstant> {
        let core = &self.core;
        let (sent, lease) = (core.clock.now(), self.record.lease);
        let (put, version, end) = {
            let timing = unpoisoned(&self.timing);
            let record = Record { renewals: timing.renewals.saturating_add(1), ..self.record.clone() };
            let put = Put::Write { record, lease: Some(lease), keep: Some(lease + ABANDONED_KEEP) };
            (put, timing.version, timing.valid_until)
        };
        let limit = core.settings.timeout.min(end.since(sent));
        let asked = match core.backend.records() {
            Ok(records) => records.swap(&self.id, Some(version), put),
            Err(_) => return None,
        };
        match core.service.timers().timeout(limit, asked).await {
            Some(Ok(Swapped::Done { version })) => {
                let mut timing = unpoisoned(&self.timing);
                timing.version = version;
                timing.renewals += 1;
                timing.valid_until = valid_until(sent, lease);
                *pauses = pauses_of(self);
                Some(sent + lease / 3)
            }
            Some(Ok(Swapped::Refused(seen))) => match holding(seen.as_ref(), self.record.owner, self.fence) {
                // The answer to an earlier renewal was lost; that one may count from later than is known.
                Holding::Mine { version } => {
                    unpoisoned(&self.timing).version = version;
                    Some(sent)
                }
                Holding::Ended => None,
                Holding::Lost => {
                    self.lose(LostReason::Superseded);
                    None
                }
            },
            Some(Err(_)) | None => Some(core.clock.now() + pauses.delay()),
        }
    }
}

fn pauses_of(held: &Held) -> Backoff {
    let most = (held.record.lease / 10).clamp(BETWEEN_TRIES[0], BETWEEN_TRIES[1]);
    Backoff::new(BETWEEN_TRIES[0], most, held.record.owner.jitter_seed())
}

/// Renews at `next`, and after each third of the lease, until the claim is ended or lost.
async fn keep(held: Arc<Held>, mut next: BootInstant) {
    let mut pauses = pauses_of(&held);
    while !held.stopped.load(Ordering::SeqCst) {
        let now = held.core.clock.now();
        let end = unpoisoned(&held.timing).valid_until;
        if now >= end {
            return held.lose(LostReason::Expired);
        }
        if now < next {
            let until = next.min(end).min(now + LOOK_AT_CLOCK_EVERY);
            tokio::select! {
                () = held.stop.notified() => return,
                () = held.core.service.timers().sleep_until(until) => continue,
            }
        }
        tokio::select! {
            () = held.stop.notified() => return,
            due = held.renew(&mut pauses) => match due {
                Some(due) => next = due,
                None => return,
            }
        }
    }
}
