//! Idempotent work, for languages whose work fits no closure of Rust: a key is claimed, the language does the work, and what
//! came of it is stored. What to do with a key is the core's decision; so are all limits and defaults.
//!
//! Results are bytes here. Each language writes its own values, as JSON unless its caller says otherwise.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylatch::LostReason;
use polylatch::idempotency::{
    self as core, BegunRun, Claim, Consumed, Forgotten, OnFailure, Retention, RunError,
};
use tokio::sync::watch;

use crate::client::Client;
use crate::failure::Failure;
use crate::held::INHERITED;
use crate::process::Homed;
use crate::runtime;

/// What a caller says of one run. A value that was not given stays with the core, which alone has defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunOptions {
    /// What the request consists of; see [`core::RunOptions::payload`].
    pub payload: Option<Vec<u8>>,
    /// Its digest instead; see [`core::RunOptions::fingerprint`].
    pub fingerprint: Option<String>,
    /// See [`core::RunOptions::retention`].
    pub retention: Option<Retention>,
    /// See [`core::RunOptions::lease`].
    pub lease: Option<Duration>,
    /// See [`core::RunOptions::wait`].
    pub wait: Option<Duration>,
    /// See [`core::RunOptions::on_failure`].
    pub on_failure: Option<OnFailure>,
}

/// By what a payload is recognized: its fingerprint, or the one that the caller has made.
///
/// Errors: `invalid_argument` for both at the same time.
pub(crate) fn fingerprint(payload: Option<&[u8]>, given: Option<&str>) -> Result<Option<String>, Failure> {
    match (payload, given) {
        (Some(_), Some(_)) => {
            let rule =
                "payload and fingerprint are both given; the fingerprint is that of the payload, so give one";
            Err(Failure::invalid_argument(rule))
        }
        (Some(payload), None) => Ok(Some(core::fingerprint_of(payload))),
        (None, given) => Ok(given.map(str::to_owned)),
    }
}

impl RunOptions {
    /// Errors: `invalid_argument` for a payload and a fingerprint at the same time.
    fn of_core(&self) -> Result<core::RunOptions, Failure> {
        let mut options = core::RunOptions::new();
        if let Some(fingerprint) = fingerprint(self.payload.as_deref(), self.fingerprint.as_deref())? {
            options = options.fingerprint(fingerprint);
        }
        if let Some(retention) = self.retention {
            options = options.retention(retention);
        }
        if let Some(lease) = self.lease {
            options = options.lease(lease);
        }
        if let Some(wait) = self.wait {
            options = options.wait(wait);
        }
        if let Some(on_failure) = self.on_failure {
            options = options.on_failure(on_failure);
        }
        Ok(options)
    }
}

/// Reads what becomes of a key whose work has failed.
///
/// Errors: `invalid_argument` that names what there is.
pub fn on_failure(word: &str) -> Result<OnFailure, Failure> {
    match word {
        "store" => Ok(OnFailure::Store),
        "free" => Ok(OnFailure::Free),
        other => Err(Failure::invalid_argument(format!(
            "on_failure is {other:?}; it must be \"store\" (every repetition gets the failure) or \"free\" (the next run \
             does the work again)"
        ))),
    }
}

/// What a run begins with.
#[derive(Debug)]
pub enum Begun {
    /// The work is the caller's to do.
    Mine(Arc<ClaimHandle>),
    /// An earlier run did it, and this is its stored result.
    Replayed(Vec<u8>),
    /// An earlier run failed, and this is its stored answer.
    Failed {
        /// Of code `failed`.
        failure: Failure,
        /// What the work answered.
        answer: Vec<u8>,
    },
}

impl Client {
    /// Claims a key of a scope, or finds its answer; see [`core::Idempotency::begin`].
    ///
    /// Errors: `in_progress`, `payload_mismatch`, `result_too_large`; as [`core::Idempotency::run`] before the work; as
    /// [`Client::get`].
    pub async fn begin(&self, scope: &str, key: &str, options: &RunOptions) -> Result<Begun, Failure> {
        let options = options.of_core()?;
        match self.get().await?.idempotency(scope).begin(key, &options).await {
            Ok(core::Begun::Mine(run)) => {
                Ok(Begun::Mine(Arc::new(ClaimHandle::new(format!("{key:?} in {scope:?}"), run))))
            }
            Ok(core::Begun::Replayed(value)) => Ok(Begun::Replayed(value)),
            Err(RunError::Failed { answer, replayed }) => Ok(Begun::Failed {
                failure: RunError::Failed { answer: answer.clone(), replayed }.into(),
                answer,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes what is stored for a key: `forgotten`, `absent`, or `running` if a client works on it.
    ///
    /// Errors: as [`core::Idempotency::forget`] and [`Client::get`].
    pub async fn forget_key(&self, scope: &str, key: &str) -> Result<&'static str, Failure> {
        Ok(match self.get().await?.idempotency(scope).forget(key).await? {
            Forgotten::Forgotten => "forgotten",
            Forgotten::Absent => "absent",
            Forgotten::Running(_) => "running",
        })
    }

    /// Reads the record of a key as JSON, without its result; `None` if there is none.
    ///
    /// Errors: as [`core::Idempotency::show`] and [`Client::get`].
    pub async fn record_json(&self, scope: &str, key: &str) -> Result<Option<String>, Failure> {
        let record = self.get().await?.idempotency(scope).show(key).await?;
        let written = record.map(|record| serde_json::to_string(&record)).transpose();
        written.map_err(|_| Failure::internal("what was read cannot be written as JSON"))
    }

    /// Issues a token that can be consumed once. Errors: as [`core::Idempotency::issue`] and [`Client::get`].
    pub async fn issue_token(&self, scope: &str, ttl: Duration) -> Result<String, Failure> {
        Ok(self.get().await?.idempotency(scope).issue(ttl).await?)
    }

    /// Consumes a token: `first`, `duplicate` or `unknown`. Errors: as [`core::Idempotency::consume`] and [`Client::get`].
    pub async fn consume_token(&self, scope: &str, token: &str) -> Result<&'static str, Failure> {
        Ok(match self.get().await?.idempotency(scope).consume(token).await? {
            Consumed::First => "first",
            Consumed::Duplicate => "duplicate",
            Consumed::Unknown => "unknown",
        })
    }
}

/// A claimed key whose work is under way: renewed until it is finished or dropped. A forked child does not hold what its
/// parent claimed.
///
/// Dropping it says nothing of the work: the key is free for another run when the lease ends.
pub struct ClaimHandle {
    parts: Homed<Parts>,
    /// Key and scope, for errors.
    what: String,
    fencing_token: u64,
    runs: u32,
}

struct Parts {
    claim: Claim,
    /// Empty once it is finished, or is being finished.
    run: Mutex<Option<BegunRun>>,
    is_over: watch::Sender<bool>,
}

impl fmt::Debug for ClaimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimHandle").field("what", &self.what).finish_non_exhaustive()
    }
}

impl ClaimHandle {
    fn new(what: String, run: BegunRun) -> Self {
        let claim = run.claim().clone();
        Self {
            what,
            fencing_token: claim.fencing_token().get(),
            runs: claim.runs(),
            parts: Homed::new(Parts {
                claim,
                run: Mutex::new(Some(run)),
                is_over: watch::Sender::new(false),
            }),
        }
    }

    /// See [`Claim::fencing_token`].
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// See [`Claim::runs`].
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Returns for how long the claim may be relied on from now; zero once it is over.
    pub fn remaining(&self) -> Duration {
        match self.parts.get() {
            Some(parts) if !*parts.is_over.borrow() => parts.claim.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Says whether it is neither finished nor abandoned; also if the claim was lost.
    pub fn is_under_way(&self) -> bool {
        self.parts.get().is_some_and(|parts| !*parts.is_over.borrow())
    }

    /// Fails unless the key is still claimed; costs no request.
    ///
    /// Errors: `lease_lost`; `invalid_argument` once it is finished.
    pub fn check(&self) -> Result<(), Failure> {
        let parts = self.parts()?;
        if *parts.is_over.borrow() {
            return Err(self.finished());
        }
        Ok(parts.claim.check()?)
    }

    /// Stores the result, at most 1 MiB.
    ///
    /// Errors: `result_too_large`, `not_recorded`; `invalid_argument` if it was finished before; `lease_lost` in a forked
    /// child.
    /// Cancellation: whether it is stored is not known; if not, the key is free when the lease ends.
    pub async fn complete(&self, result: Vec<u8>) -> Result<(), Failure> {
        self.finish(Ok(result)).await
    }

    /// Stores a failure as the answer, or frees the key; without `fate`, as the options of the run say.
    ///
    /// Errors and cancellation: as of [`ClaimHandle::complete`].
    pub async fn fail(&self, answer: Vec<u8>, fate: Option<OnFailure>) -> Result<(), Failure> {
        self.finish(Err(match fate {
            None => core::Failure::new(answer),
            Some(OnFailure::Store) => core::Failure::stored(answer),
            Some(OnFailure::Free) => core::Failure::freed(answer),
        }))
        .await
    }

    async fn finish(&self, worked: Result<Vec<u8>, core::Failure>) -> Result<(), Failure> {
        let parts = self.parts()?;
        let run = parts.run.lock().unwrap_or_else(PoisonError::into_inner).take();
        let run = run.ok_or_else(|| self.finished())?;
        parts.is_over.send_replace(true);
        match run.finish(worked).await {
            Ok(_) | Err(RunError::Failed { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the renewal without a word of what came of the work. Repeatable.
    pub fn abandon(&self) {
        if let Some(parts) = self.parts.get() {
            let run = parts.run.lock().unwrap_or_else(PoisonError::into_inner).take();
            parts.is_over.send_replace(true);
            drop(run);
        }
    }

    /// Completes with the reason when the claim is lost, with `None` when it is finished. In a forked child it is lost. It
    /// does not keep the claim renewed.
    pub fn ended(&self) -> Pin<Box<dyn Future<Output = Option<LostReason>> + Send>> {
        let Some(parts) = self.parts.get() else { return Box::pin(std::future::ready(Some(INHERITED))) };
        let (lost, mut is_over) = (parts.claim.lost(), parts.is_over.subscribe());
        Box::pin(async move {
            tokio::select! {
                biased;
                // The handle may be gone: then there is nothing left to lose, either.
                _ = is_over.wait_for(|is_over| *is_over) => None,
                reason = lost => Some(reason),
            }
        })
    }

    /// Has `tell` called with the reason when the claim is lost, on the callback thread; not after it is finished. Dropping
    /// what is returned ends that.
    ///
    /// Errors: `lease_lost` in a forked child; as [`runtime::spawn`].
    pub fn on_lost(
        &self,
        tell: impl FnOnce(&'static str) + Send + 'static,
    ) -> Result<Homed<runtime::Task>, Failure> {
        self.parts()?;
        let ended = self.ended();
        let task = runtime::spawn(async move {
            if let Some(reason) = ended.await {
                tell(reason.code());
            }
        })?;
        Ok(Homed::new(task))
    }

    fn parts(&self) -> Result<&Parts, Failure> {
        self.parts.get().ok_or_else(|| Failure::inherited(&self.what))
    }

    fn finished(&self) -> Failure {
        Failure::invalid_argument(format!(
            "the run of {} is finished; a new request needs a new key",
            self.what
        ))
    }
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
