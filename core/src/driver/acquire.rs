//! The waiting loop: asks the store, sleeps, enters on a push, gives up.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Answer, Ask, Contender, HolderHint, LIST_WITHIN};
use crate::clock::{BootInstant, seconds};
use crate::driver::undo::Undo;
use crate::driver::{Core, HeldLease};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::mode::{Mode, other_kind};
use crate::observe::WaitOutcome;
use crate::options::{AcquireOptions, Wait};
use crate::policy::backoff::Backoff;
use crate::policy::fencing::FencingToken;
use crate::policy::lease::{Lease, LeasePlan, valid_until};
use crate::policy::waiting::{Next, Waiting};
use crate::token::OwnerToken;

/// Acquires as the options say. `None` only if they say not to wait and somebody else holds it.
///
/// Cancellation: dropping the future at any await undoes what it may have done at the store, in the
/// background.
pub(crate) async fn acquire(core: Arc<Core>, options: AcquireOptions) -> Result<Option<Arc<HeldLease>>> {
    let mut outcome = Outcome::of(&core);
    let result = enter(core, options).await;
    outcome.is(&result);
    result
}

async fn enter(core: Arc<Core>, options: AcquireOptions) -> Result<Option<Arc<HeldLease>>> {
    core.check_open()?;
    let Some(owner) = options.owner.clone() else {
        return Acquisition::new(core, options)?.run().await;
    };
    let slot = core.owners.slot(&options.name, &owner, options.mode);
    if let Some(lease) = slot.enter_again() {
        return Ok(Some(lease));
    }
    // One acquisition at a time for one owner of one lock: the others re-enter when it holds.
    let started = core.clock.now();
    let _turn = match options.wait {
        Wait::Forever => slot.turn().await,
        Wait::No => match slot.try_turn() {
            Some(turn) => turn,
            None => return Ok(None),
        },
        Wait::For(wait) => match core.service.within(wait, async { Ok(slot.turn().await) }).await {
            Ok(turn) => turn,
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::WaitTimeout,
                    format!("{} was still being acquired for the same owner", options.name),
                )
                .on_lock(options.name.as_str()));
            }
        },
    };
    if let Some(lease) = slot.enter_again() {
        return Ok(Some(lease));
    }
    let mut options = options;
    if let Wait::For(wait) = options.wait {
        options.wait = Wait::For(wait.saturating_sub(core.clock.now().since(started)));
    }
    let acquisition = Acquisition::new(core, options)?.run();
    tokio::select! {
        biased;
        acquired = acquisition => {
            let lease = acquired?;
            if let Some(lease) = &lease {
                slot.set(lease);
            }
            Ok(lease)
        }
        lease = slot.entered_by_conversion() => Ok(Some(lease)),
    }
}

/// How long a wait that is over is drawn out for the store to forget it; then the background sees to it.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// How long a request may take beyond the end of a wait: one that leaves in time, or at once where the caller does not
/// wait, must have a chance to be answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The time limit of a request that leaves now for a caller who waits until `deadline`.
pub(super) fn request_limit(timeout: Duration, deadline: Option<BootInstant>, now: BootInstant) -> Duration {
    deadline.map_or(timeout, |deadline| timeout.min(deadline.since(now).max(ANSWER_WITHIN)))
}

/// One acquisition under way.
pub(super) struct Acquisition {
    core: Arc<Core>,
    pub(super) options: AcquireOptions,
    pub(super) contender: Arc<Contender>,
    started: BootInstant,
    polls: u32,
    seed: u64,
    /// What to tell if the wait ends without the lock.
    last_seen: LastSeen,
}

#[derive(Default)]
struct LastSeen {
    holder: Option<HolderHint>,
    position: Option<u32>,
    error: Option<Error>,
    withheld: Option<Duration>,
    lock_delay: Option<Option<Duration>>,
}

impl Acquisition {
    pub(super) fn new(core: Arc<Core>, options: AcquireOptions) -> Result<Self> {
        let owner = OwnerToken::random()?;
        let contender = Arc::new(Contender {
            name: options.name.clone(),
            owner,
            client: core.client.id.clone(),
            label: options.label.clone(),
            lease: options.plan.lease,
            first_lease: options.plan.first,
            barge: options.barge,
            mode: options.mode,
        });
        let started = core.clock.now();
        let seed = owner.jitter_seed();
        Ok(Self { core, options, contender, started, polls: 0, seed, last_seen: LastSeen::default() })
    }

    async fn run(mut self) -> Result<Option<Arc<HeldLease>>> {
        let waits = self.options.wait != Wait::No;
        let deadline = match self.options.wait {
            Wait::No => Some(self.started),
            Wait::For(wait) => Some(self.started + wait),
            Wait::Forever => None,
        };
        let times = self.options.times;
        let ask = if waits {
            Ask::Wait { near_heartbeat: times.near_heartbeat(), far_heartbeat: times.far_heartbeat() }
        } else {
            Ask::Try
        };
        let _under_way = self.core.acquiring.begin();
        // The undo is declared early, so that it is dropped late: after the place in the wake list.
        let mut undo = Undo::new(Arc::clone(&self.core), vec![Arc::clone(&self.contender)]);
        let place = waits.then(|| self.core.wakeups.register(self.contender.owner));
        self.core.watchdog.somebody_is_active();
        let mut waiting = Waiting::new(times, self.options.plan.first, deadline, self.started, self.seed);
        let mut backoff = Backoff::new(Duration::from_millis(20), times.near, self.seed);

        let mut queued = None;

        // The first poll comes before any thought of giving up: a wait of zero still asks once.
        let mut next = Next::Poll;
        loop {
            match next {
                Next::Poll => {
                    let sent_at = self.core.clock.now();
                    self.polls += 1;
                    let limit = request_limit(self.core.settings.timeout, deadline, sent_at);
                    let request = match &self.options.steal {
                        Some(reason) => self.core.backend.steal(&self.contender, reason),
                        None => self.core.backend.poll(&self.contender, ask),
                    };
                    let answer = undo.ask(request, limit).await;
                    let now = self.core.clock.now();
                    if answer.is_ok() && self.core.reach.is_back() {
                        tracing::info!(
                            target: "polylatch", event = "store_reachable", client = self.core.client.id.as_str(),
                            lock = %self.options.name, "the store answers again"
                        );
                    }
                    match answer {
                        Ok(Answer::Held { fence }) => {
                            if now < valid_until(sent_at, self.options.plan.first) {
                                undo.disarm();
                                return Ok(Some(self.held(fence, sent_at, now, false)));
                            }
                            // The answer took longer than the lease: the next poll confirms it.
                            if deadline.is_some_and(|deadline| now >= deadline) {
                                return Err(self.in_context(too_slow(self.options.plan.first)));
                            }
                        }
                        Ok(Answer::Wait { answer, holder }) => {
                            if !waits {
                                undo.disarm();
                                return Ok(None);
                            }
                            if queued.is_none() {
                                let backend = self.core.backend.capability().backend;
                                queued = Some(self.core.observer.queued());
                                tracing::debug!(
                                    target: "polylatch", event = "waiting", client = self.core.client.id.as_str(),
                                    lock = %self.options.name, backend, position = answer.position,
                                );
                            }
                            self.last_seen =
                                LastSeen { holder, position: answer.position, ..LastSeen::default() };
                            waiting.told_to_wait(sent_at, now, answer);
                        }
                        Ok(Answer::OtherKind { present }) => {
                            let name = self.options.name.as_str();
                            return Err(self.in_context(other_kind(name, present, self.options.mode.kind())));
                        }
                        Ok(Answer::Withheld { left }) => {
                            if !waits {
                                undo.disarm();
                                return Err(self.in_context(withheld(left)));
                            }
                            self.last_seen = LastSeen { withheld: Some(left), ..LastSeen::default() };
                            waiting.could_not_ask(now, left.min(times.near));
                        }
                        Ok(Answer::LockDelay { left }) => {
                            if !waits {
                                undo.disarm();
                                return Err(self.in_context(lock_delay(left)));
                            }
                            self.last_seen = LastSeen { lock_delay: Some(left), ..LastSeen::default() };
                            waiting.could_not_ask(now, left.map_or(times.near, |left| left.min(times.near)));
                        }
                        Err(error) if waits && error.retry() == Retry::AfterBackoff => {
                            if self.core.reach.is_news(now) {
                                tracing::warn!(
                                    target: "polylatch", event = "store_unreachable",
                                    client = self.core.client.id.as_str(), lock = %self.options.name, %error,
                                    "the store is unreachable; trying again"
                                );
                            }
                            waiting.could_not_ask(now, backoff.delay());
                            self.last_seen = LastSeen { error: Some(error), ..LastSeen::default() };
                        }
                        Err(error) => return Err(self.in_context(error)),
                    }
                }
                Next::Enter { fence, anchor } => {
                    undo.disarm();
                    let now = self.core.clock.now();
                    return Ok(Some(self.held(FencingToken::new(fence), anchor, now, true)));
                }
                Next::Sleep(until) => {
                    if let Some(place) = &place {
                        tokio::select! {
                            biased;
                            () = place.changed() => {}
                            () = self.core.service.timers().sleep_until(until) => {}
                        }
                    }
                }
                Next::GiveUp => {
                    let error = self.give_up();
                    if error.kind() == ErrorKind::WaitTimeout {
                        // Told when it has left the line, so that who asks next does not meet it there.
                        let leaves = self.core.backend.cancel(&self.contender);
                        let limit = self.core.settings.timeout.min(LEAVE_WITHIN);
                        if self.core.service.within(limit, leaves).await.is_ok() {
                            undo.disarm();
                        }
                    }
                    return Err(error);
                }
            }
            self.core.check_open().map_err(|error| error.on_lock(self.options.name.as_str()))?;
            let now = self.core.clock.now();
            if let Some(place) = &place {
                let pushed = place.take();
                if let Some(fence) = pushed.grant {
                    waiting.pushed_grant(fence);
                }
                if pushed.hint {
                    waiting.hinted(now);
                }
            }
            next = waiting.next(now);
        }
    }

    pub(super) fn held(
        &self,
        fence: FencingToken,
        sent_at: BootInstant,
        now: BootInstant,
        at_once: bool,
    ) -> Arc<HeldLease> {
        tracing::debug!(
            target: "polylatch", event = "acquired", client = self.core.client.id.as_str(),
            lock = %self.options.name, backend = self.core.backend.capability().backend, token = fence.get(),
            waited_ms = now.since(self.started).as_millis() as u64, pushed = at_once,
        );
        let plan = LeasePlan { phase: self.core.renewal_phase, ..self.options.plan };
        let mut machine = Lease::granted(plan, sent_at, now, at_once, self.seed);
        // Where the first lease is the whole one, the grant has listed it already.
        if plan.first != plan.lease && self.options.mode == Mode::Mutex && self.core.backend.lists_late() {
            machine.renew_early(now + LIST_WITHIN);
        }
        let owner = self.options.owner.clone();
        HeldLease::start(Arc::clone(&self.core), Arc::clone(&self.contender), owner, fence, machine)
    }

    pub(super) fn in_context(&self, error: Error) -> Error {
        let elapsed = self.core.clock.now().since(self.started);
        error
            .during(self.core.backend.capability().backend, "acquire")
            .on_lock(self.options.name.as_str())
            .after(self.polls.max(1), elapsed)
    }

    fn give_up(&mut self) -> Error {
        let last = std::mem::take(&mut self.last_seen);
        if let Some(error) = last.error {
            return self.in_context(error);
        }
        if let Some(left) = last.withheld {
            return self.in_context(withheld(left));
        }
        if let Some(left) = last.lock_delay {
            let error = lock_delay(left);
            return self.in_context(Error::new(ErrorKind::WaitTimeout, error.message().to_owned()));
        }
        let waited = self.core.clock.now().since(self.started);
        let mut message = format!("{} was not free within {}", self.options.name, seconds(waited));
        if let Some(holder) = last.holder {
            message.push_str(&format!(": {holder}"));
        }
        if let Some(position @ 1..) = last.position {
            message.push_str(&format!("; {position} waited before this one"));
        }
        Error::new(ErrorKind::WaitTimeout, message)
            .during(self.core.backend.capability().backend, "acquire")
            .on_lock(self.options.name.as_str())
    }
}

/// Tells the metrics what came of an acquisition; also if the caller drops the future.
pub(super) struct Outcome {
    core: Arc<Core>,
    started: BootInstant,
    /// Nothing if another try of the same call goes on.
    outcome: Option<WaitOutcome>,
}

impl Outcome {
    pub(super) fn of(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), started: core.clock.now(), outcome: Some(WaitOutcome::Cancelled) }
    }

    pub(super) fn is<T>(&mut self, result: &Result<Option<T>>) {
        self.outcome = Some(match result {
            Ok(Some(_)) => WaitOutcome::Acquired,
            Ok(None) => WaitOutcome::Refused,
            Err(error) => match error.kind() {
                ErrorKind::WaitTimeout => WaitOutcome::TimedOut,
                ErrorKind::Canceled => WaitOutcome::Cancelled,
                _ => WaitOutcome::Failed,
            },
        });
    }

    /// The call goes on in another way, which is observed by itself.
    pub(super) fn is_open(&mut self) {
        self.outcome = None;
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.core.observer.waited(outcome, self.core.clock.now().since(self.started));
        }
    }
}

pub(super) fn withheld(left: Duration) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "the store restarted, failed over or lost data, so it grants nothing for another {}, until all earlier \
             leases have expired; retry after that",
            seconds(left)
        ),
    )
}

pub(super) fn lock_delay(left: Option<Duration>) -> Error {
    let retry = match left {
        Some(left) => format!("in up to {}", seconds(left)),
        None => "in a while".to_owned(),
    };
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "the lock is free but in lock-delay: the session of the previous holder ended without releasing it, and \
             that holder may not know yet; retry {retry}"
        ),
    )
}

pub(super) fn too_slow(lease: Duration) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!("the store answered later than the lease of {lease:?} lasts; use a longer lease"),
    )
}
