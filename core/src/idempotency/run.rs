//! One run: claim the key, do the work, store the answer; or get the stored one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::claim::{Claim, Held};
use super::error::{shown, wrong_json};
use super::options::Plan;
use super::{Failure, Idempotency, OnFailure, RunError, RunOptions};
use crate::backend::records::{Put, Swapped};
use crate::error::Result;
use crate::options::Wait;
use crate::policy::backoff::Backoff;
use crate::policy::idempotency::{
    ABANDONED_KEEP, Answer, Decision, MAX_RESULT_BYTES, Record, State, decide, in_steps,
};
use crate::token::OwnerToken;

/// First and longest pause between two looks at a run of another client: it bounds how late its answer is noticed.
const BETWEEN_LOOKS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(250)];

/// One in so many runs deletes what is over, so many records at most.
const PURGE_EVERY: u32 = 64;
const PURGED: usize = 256;

/// What a run returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T = Vec<u8>> {
    /// This run did the work.
    First(T),
    /// An earlier run did, and this is its stored result.
    Replayed(T),
}

impl<T> Outcome<T> {
    /// Whether an earlier run did the work.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }

    /// The result.
    pub fn value(&self) -> &T {
        match self {
            Self::First(value) | Self::Replayed(value) => value,
        }
    }

    /// The result.
    pub fn into_value(self) -> T {
        match self {
            Self::First(value) | Self::Replayed(value) => value,
        }
    }

    fn try_map<U, E>(self, change: impl FnOnce(T) -> Result<U, E>) -> Result<Outcome<U>, E> {
        Ok(match self {
            Self::First(value) => Outcome::First(change(value)?),
            Self::Replayed(value) => Outcome::Replayed(change(value)?),
        })
    }
}

/// What [`Idempotency::begin`] returns.
#[derive(Debug)]
pub enum Begun {
    /// The work is the caller's to do.
    Mine(BegunRun),
    /// An earlier run did it, and this is its stored result.
    Replayed(Vec<u8>),
}

/// A claimed key whose work is under way. Its lease is renewed until this is finished or dropped.
///
/// Dropping it says nothing of the work, so the key is free for another run only when the lease ends, as if the process had
/// died.
#[derive(Debug)]
#[must_use = "dropping it stops the renewal of its claim"]
pub struct BegunRun {
    scope: Idempotency,
    plan: Plan,
    running: StopsRenewing,
    claim: Claim,
}

impl BegunRun {
    /// Returns the claim under which the work runs.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The second half of [`Idempotency::run`]: stores what came of the work, at most 1 MiB, or frees the key.
    ///
    /// Cancellation: whether it is stored is not known; if not, the key is free when the lease ends.
    ///
    /// Errors: `failed` for a failure; `result_too_large` and `not_recorded`.
    pub async fn finish(self, worked: Result<Vec<u8>, Failure>) -> Result<Outcome, RunError> {
        self.scope.settle(&self.plan, &self.running.0, worked).await
    }
}

enum Claimed {
    Mine(Arc<Held>),
    Stored(Answer),
}

/// Ends the renewal of a claim when its run ends in any way.
#[derive(Debug)]
struct StopsRenewing(Arc<Held>);

impl Drop for StopsRenewing {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Idempotency {
    /// Runs `work` for this key unless it has run: then its stored answer is returned. The result has at most 1 MiB.
    ///
    /// `key`: what is unique to one request, 1 to 255 bytes without control characters, made by its client, such as a UUID.
    /// A first run costs two requests to the store, a repetition one. While another client runs the same key, this one waits
    /// as the options say, and looks every 5 to 250 ms.
    ///
    /// Cancellation: a run that is dropped while it works, and one whose work panics, stops to renew its claim. What the work
    /// did is not known, so the key is free for another run only when the lease ends, as if the process had died.
    ///
    /// Errors: see [`RunError`]. In the store's: `unsupported` for a store without records, `invalid_argument`,
    /// `backend_unavailable`. The work has not begun then.
    pub async fn run<F, W>(&self, key: &str, options: &RunOptions, work: F) -> Result<Outcome, RunError>
    where
        F: FnOnce(Claim) -> W,
        W: Future<Output = Result<Vec<u8>, Failure>>,
    {
        match self.begin(key, options).await? {
            Begun::Replayed(value) => Ok(Outcome::Replayed(value)),
            Begun::Mine(run) => {
                let worked = work(run.claim().clone()).await;
                run.finish(worked).await
            }
        }
    }

    /// The first half of [`Idempotency::run`], for work that fits no closure, such as what another language does: claims the
    /// key, or finds its answer.
    ///
    /// Cancellation: a call that is dropped may have claimed the key, which is then free when the lease ends.
    ///
    /// Errors: as of [`Idempotency::run`] before the work.
    pub async fn begin(&self, key: &str, options: &RunOptions) -> Result<Begun, RunError> {
        let plan = options.check(&self.core, &self.scope, key)?;
        match self.claim(&plan).await? {
            Claimed::Stored(Answer::Done(value)) => Ok(Begun::Replayed(value)),
            Claimed::Stored(Answer::Failed(answer)) => Err(RunError::Failed { answer, replayed: true }),
            Claimed::Stored(Answer::TooLarge) => {
                Err(RunError::ResultTooLarge { what: shown(&plan.id), value: None })
            }
            Claimed::Mine(held) => Ok(Begun::Mine(BegunRun {
                scope: self.clone(),
                plan,
                running: StopsRenewing(Arc::clone(&held)),
                claim: Claim(held),
            })),
        }
    }

    /// As [`Idempotency::run`], for a value that is stored as JSON.
    ///
    /// Errors: in the store's, `invalid_argument` if the stored JSON is of another type.
    pub async fn run_json<T, F, W>(
        &self,
        key: &str,
        options: &RunOptions,
        work: F,
    ) -> Result<Outcome<T>, RunError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Claim) -> W,
        W: Future<Output = Result<T, Failure>>,
    {
        let to_json = |claim| {
            let working = work(claim);
            async move {
                let value = working.await?;
                serde_json::to_vec(&value).map_err(|error| Failure::new(wrong_json(error).to_string()))
            }
        };
        let outcome = self.run(key, options, to_json).await?;
        outcome.try_map(|json| Ok(serde_json::from_slice(&json).map_err(wrong_json)?))
    }

    /// Claims the key, or finds its answer.
    async fn claim(&self, plan: &Plan) -> Result<Claimed, RunError> {
        let core = &self.core;
        core.check_open()?;
        let records = core.backend.records()?;
        let owner = OwnerToken::random()?;
        let started = core.clock.now();
        let mut sent = started;
        let mut pauses = Backoff::new(BETWEEN_LOOKS[0], BETWEEN_LOOKS[1], owner.jitter_seed());
        let record = |runs| Record {
            state: State::Claimed,
            owner,
            fence: None,
            fingerprint: plan.fingerprint.clone(),
            client: core.client.id.clone(),
            runs,
            lease: plan.lease,
            renewals: 0,
            result: Vec::new(),
        };
        // Most keys are new.
        let mut decision = Decision::Claim { expected: None, runs: 1 };
        let mut of_mine = 1;
        loop {
            decision = match decision {
                Decision::Claim { expected, runs } => {
                    (sent, of_mine) = (core.clock.now(), runs);
                    let keep = Some(plan.lease + ABANDONED_KEEP);
                    let put = Put::Write { record: record(runs), lease: Some(plan.lease), keep };
                    let asked = records.swap(&plan.id, expected, put);
                    match core.service.within(core.settings.timeout, asked).await? {
                        Swapped::Done { version } => Decision::Mine { fence: version },
                        Swapped::Refused(seen) => decide(seen.as_ref(), owner, &plan.fingerprint),
                    }
                }
                Decision::Mine { fence } => {
                    let held = Held::begin(core, plan.id.clone(), record(of_mine), fence, sent);
                    return Ok(Claimed::Mine(held));
                }
                Decision::Replay(answer) => return Ok(Claimed::Stored(answer)),
                Decision::PayloadMismatch => {
                    return Err(RunError::PayloadMismatch { what: shown(&plan.id) });
                }
                Decision::InSteps => return Err(in_steps(&plan.id).into()),
                Decision::InProgress { client, left } => {
                    let waited = core.clock.now().since(started);
                    let patience = match plan.wait {
                        Wait::No => Duration::ZERO,
                        Wait::For(wait) => wait.saturating_sub(waited),
                        Wait::Forever => Duration::MAX,
                    };
                    if patience.is_zero() {
                        return Err(RunError::InProgress { what: shown(&plan.id), client, left });
                    }
                    let pause = pauses.delay().min(left + Duration::from_millis(1)).min(patience);
                    core.service.sleep(pause).await;
                    core.check_open()?;
                    let seen = core.service.within(core.settings.timeout, records.read(&plan.id)).await?;
                    decide(seen.as_ref(), owner, &plan.fingerprint)
                }
            };
        }
    }

    /// Stores what came of the work.
    async fn settle(
        &self,
        plan: &Plan,
        held: &Held,
        worked: Result<Vec<u8>, Failure>,
    ) -> Result<Outcome, RunError> {
        let (state, value) = match worked {
            Ok(value) => (State::Done, value),
            Err(failure) if failure.fate.unwrap_or(plan.on_failure) == OnFailure::Free => {
                // If this fails, the claim ends with its lease.
                if let Err(error) = held.end(None, None).await {
                    tracing::debug!(%error, "a failed key is free when its lease ends");
                }
                return Err(RunError::Failed { answer: failure.answer, replayed: false });
            }
            Err(failure) => (State::Failed, failure.answer),
        };
        let is_too_large = value.len() > MAX_RESULT_BYTES;
        let result = if is_too_large { Vec::new() } else { value.clone() };
        let stored = if is_too_large { State::TooLarge } else { state };
        let record = Record { state: stored, result, ..held.record.clone() };
        if let Err(error) = held.end(Some(record), plan.keep).await {
            return Err(RunError::NotRecorded { value, error });
        }
        self.purge_now_and_then();
        match state {
            _ if is_too_large => Err(RunError::ResultTooLarge { what: shown(&plan.id), value: Some(value) }),
            State::Failed => Err(RunError::Failed { answer: value, replayed: false }),
            _ => Ok(Outcome::First(value)),
        }
    }

    /// Records are deleted by the clients that make them: no server need run for it.
    fn purge_now_and_then(&self) {
        static ENDED: AtomicU32 = AtomicU32::new(1);
        if !ENDED.fetch_add(1, Ordering::Relaxed).is_multiple_of(PURGE_EVERY) {
            return;
        }
        let core = Arc::clone(&self.core);
        self.core.service.spawn(async move {
            if let Ok(records) = core.backend.records()
                && let Err(error) = records.purge(PURGED).await
            {
                tracing::debug!(%error, "records that are over were not deleted");
            }
        });
    }
}
