//! Carries out what [`crate::policy::acquisition`] decides: sends requests, sleeps, hands out the lease or the error.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Answer, Ask, Contender, LIST_WITHIN};
use crate::clock::BootInstant;
use crate::driver::refusals::{Last, closed, lock_delay, too_slow, withheld};
use crate::driver::undo::Undo;
use crate::driver::{Core, HeldLease};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::mode::Mode;
use crate::observe::{Entered, WaitOutcome};
use crate::options::AcquireOptions;
use crate::policy::acquisition::{self, Action, End, Leaves, Said, Terms, Wait};
use crate::policy::fencing::FencingToken;
use crate::policy::lease::{Lease, LeasePlan};
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

/// One acquisition under way.
pub(super) struct Acquisition {
    core: Arc<Core>,
    pub(super) options: AcquireOptions,
    pub(super) contender: Arc<Contender>,
    started: BootInstant,
    requests: u32,
    seed: u64,
    /// It was queued, and that was told.
    queued: bool,
    /// What to report if it ends without the lock.
    last: Last,
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
        Ok(Self { core, options, contender, started, requests: 0, seed, queued: false, last: Last::Nothing })
    }

    async fn run(mut self) -> Result<Option<Arc<HeldLease>>> {
        let _under_way = self.core.acquiring.begin();
        // The undo is declared early, so that it is dropped late: after the place in the wake list.
        let mut undo = Undo::new(Arc::clone(&self.core), vec![Arc::clone(&self.contender)]);
        self.core.watchdog.somebody_is_active();
        let terms = Terms {
            wait: self.options.wait,
            times: self.options.times,
            first_lease: self.options.plan.first,
            timeout: self.core.settings.timeout,
        };
        let mut policy = acquisition::Acquisition::new(terms, self.started, self.seed);
        let limit = policy.request_limit(self.core.clock.now());
        self.core.behind_own_releases(std::iter::once(&self.options.name), limit).await;
        if self.core.is_closed() {
            policy.closed();
        }
        let place = policy.waits().then(|| self.core.wakeups.register(self.contender.owner));
        // Counts as queued from the first answer to wait until the end.
        let mut queued = None;
        loop {
            match policy.next(self.core.clock.now()) {
                Action::Ask { limit } => {
                    let said = self.ask(&mut undo, &policy, limit).await;
                    if let Said::Wait(answer) = said
                        && policy.waits()
                        && queued.is_none()
                    {
                        queued = Some(self.core.observer.queued());
                        self.tell_queued(answer.position);
                    }
                    policy.answered(self.core.clock.now(), said);
                }
                Action::Sleep { until } => {
                    if let Some(place) = &place {
                        tokio::select! {
                            biased;
                            () = place.changed() => {}
                            () = self.core.service.timers().sleep_until(until) => {}
                        }
                    }
                }
                Action::Hold { fence, sent_at, pushed } => {
                    undo.disarm();
                    let now = self.core.clock.now();
                    return Ok(Some(self.held(FencingToken::new(fence), sent_at, now, pushed)));
                }
                Action::End { end, leaves } => {
                    // Told when it has left the queue, so that the caller's next request does not meet it there.
                    if leaves == Leaves::Nothing || (leaves == Leaves::Place && self.leave().await) {
                        undo.disarm();
                    }
                    return self.ended(end);
                }
            }
            if self.core.is_closed() {
                policy.closed();
            }
            if let Some(place) = &place {
                let pushed = place.take();
                if let Some(fence) = pushed.grant {
                    policy.pushed_grant(fence);
                }
                if pushed.hint {
                    policy.hinted(self.core.clock.now());
                }
            }
        }
    }

    /// Sends one request. What its answer has for people is kept for the end.
    async fn ask(
        &mut self,
        undo: &mut Undo<Answer>,
        policy: &acquisition::Acquisition,
        limit: Duration,
    ) -> Said {
        self.requests += 1;
        let times = self.options.times;
        let request = match &self.options.steal {
            Some(reason) => self.core.backend.steal(&self.contender, reason),
            None if policy.waits() => {
                let (near_heartbeat, far_heartbeat) = (times.near_heartbeat(), times.far_heartbeat());
                let left = policy.left(self.core.clock.now());
                self.core.backend.poll(&self.contender, Ask::Wait { near_heartbeat, far_heartbeat, left })
            }
            None => self.core.backend.poll(&self.contender, Ask::Try),
        };
        let answer = undo.ask(request, limit).await;
        if answer.is_ok() && self.core.reach.is_back() {
            tracing::info!(
                target: "polylatch", event = "store_reachable", client = self.core.client.id.as_str(),
                lock = %self.options.name, "the store answers again"
            );
        }
        match answer {
            Ok(Answer::Held { fence }) => Said::Held { fence: fence.get() },
            Ok(Answer::Wait { answer, holder }) => {
                self.last = Last::Queued { holder, position: answer.position };
                Said::Wait(answer)
            }
            Ok(Answer::OtherKind { present }) => {
                self.last = Last::OtherKind(present);
                Said::OtherKind
            }
            Ok(Answer::Withheld { left }) => Said::Withheld { left },
            Ok(Answer::LockDelay { left }) => Said::LockDelay { left },
            Err(error) => {
                let said = match error.retry() {
                    Retry::AfterBackoff => Said::Unreachable,
                    _ => Said::Refused,
                };
                if said == Said::Unreachable
                    && policy.waits()
                    && self.core.reach.is_news(self.core.clock.now())
                {
                    tracing::warn!(
                        target: "polylatch", event = "store_unreachable",
                        client = self.core.client.id.as_str(), lock = %self.options.name, %error,
                        "the store is unreachable; trying again"
                    );
                }
                self.last = Last::Failed(error);
                said
            }
        }
    }

    fn tell_queued(&mut self, position: Option<u32>) {
        self.queued = true;
        tracing::info!(
            target: "polylatch", event = "waiting", client = self.core.client.id.as_str(),
            lock = %self.options.name, backend = self.core.backend.capability().backend, position,
        );
    }

    /// Leaves the queue. Returns whether the store confirmed it.
    async fn leave(&self) -> bool {
        let leaves = self.core.backend.cancel(&self.contender);
        let limit = self.core.settings.timeout.min(LEAVE_WITHIN);
        self.core.service.within(limit, leaves).await.is_ok()
    }

    pub(super) fn held(
        &self,
        fence: FencingToken,
        sent_at: BootInstant,
        now: BootInstant,
        at_once: bool,
    ) -> Arc<HeldLease> {
        let (client, lock, waited) =
            (&self.core.client.id, self.options.name.as_str(), now.since(self.started));
        let entered = Entered { queued: self.queued, pushed: at_once };
        self.core.observer.acquired(client.as_str(), lock, fence.get(), entered, waited);
        let (phase, cohort) = (self.core.renewal_phase, self.core.watchdog.cohort());
        let plan = LeasePlan { phase, cohort, ..self.options.plan };
        let mut machine = Lease::granted(plan, sent_at, now, at_once, self.seed);
        // Where the first lease is the whole one, the grant has listed it already.
        if plan.first != plan.lease && self.options.mode == Mode::Mutex && self.core.backend.lists_late() {
            machine.renew_early(now + LIST_WITHIN);
        }
        let owner = self.options.owner.clone();
        let keep_idle = self.options.keep_idle;
        HeldLease::start(
            Arc::clone(&self.core),
            Arc::clone(&self.contender),
            owner,
            fence,
            machine,
            keep_idle,
        )
    }

    pub(super) fn in_context(&self, error: Error) -> Error {
        let elapsed = self.core.clock.now().since(self.started);
        error
            .during(self.core.backend.capability().backend, "acquire")
            .on_lock(self.options.name.as_str())
            .after(self.requests.max(1), elapsed)
    }

    /// The answer to a caller whose acquisition ended without the lock.
    fn ended(&mut self, end: End) -> Result<Option<Arc<HeldLease>>> {
        let waited = self.core.clock.now().since(self.started);
        let last = std::mem::take(&mut self.last);
        let error = match end {
            End::NotNow => return Ok(None),
            End::Closed => return Err(closed().on_lock(self.options.name.as_str())),
            End::TimedOut => {
                let backend = self.core.backend.capability().backend;
                let error = last.into_error(&self.options, waited).during(backend, "acquire");
                return Err(error.on_lock(self.options.name.as_str()));
            }
            End::TimedOutInLockDelay(left) => {
                Error::new(ErrorKind::WaitTimeout, lock_delay(left).message().to_owned())
            }
            End::OtherKind | End::Failed => last.into_error(&self.options, waited),
            End::Withheld(left) => withheld(left),
            End::LockDelay(left) => lock_delay(left),
            End::TooSlow => too_slow(self.options.plan.first),
        };
        Err(self.in_context(error))
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
