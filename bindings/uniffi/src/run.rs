//! Idempotent work: a claim on a key, or the answer of an earlier run. Results are bytes here.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use polylatch::idempotency::Retention;
use polylatch_bridge::{
    Begun, ClaimHandle, Client, Failure, Homed, RunOptions, border, idempotency, runtime, units,
};
use tokio::sync::watch;

use crate::client::NativeClient;
use crate::fault::{Fault, NativeError};
use crate::handed::{at_once, handed};
use crate::slot::LossListener;
use crate::view::whole;

/// What a caller says of a run; lengths of time are seconds. What is missing is the core's to say.
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct RunWith {
    pub payload: Option<Vec<u8>>,
    pub fingerprint: Option<String>,
    /// Infinity is for ever.
    pub retention: Option<f64>,
    pub lease: Option<f64>,
    pub wait: Option<f64>,
    /// `store` or `free`.
    pub on_failure: Option<String>,
}

impl RunWith {
    fn checked(self) -> Result<RunOptions, Failure> {
        Ok(RunOptions {
            payload: self.payload,
            fingerprint: self.fingerprint,
            retention: retention(self.retention)?,
            lease: length("lease", self.lease)?,
            wait: length("wait", self.wait)?,
            on_failure: self.on_failure.as_deref().map(idempotency::on_failure).transpose()?,
        })
    }
}

/// A length of time in seconds, if one was given.
pub(crate) fn length(option: &str, seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    seconds.map(|seconds| units::seconds(option, seconds)).transpose()
}

/// How long an answer is kept; infinity is for ever.
pub(crate) fn retention(seconds: Option<f64>) -> Result<Option<Retention>, Failure> {
    Ok(match seconds {
        Some(f64::INFINITY) => Some(Retention::Forever),
        given => length("retention", given)?.map(Retention::For),
    })
}

/// How a run has begun.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct RunEntry {
    /// The work is the caller's to do; otherwise `answer` is that of an earlier run.
    pub mine: bool,
    pub answer: Option<Vec<u8>>,
    /// The earlier run failed.
    pub failure: Option<Fault>,
}

/// The place for one run: made before it begins, filled by it.
#[derive(uniffi::Object)]
pub struct RunSlot {
    client: Arc<Client>,
    scope: String,
    key: String,
    options: RunOptions,
    canceled: watch::Sender<bool>,
    state: Mutex<State>,
    /// Listeners; they end with the slot.
    watches: Mutex<Vec<Homed<runtime::Task>>>,
}

enum State {
    Empty,
    Claimed(Arc<ClaimHandle>),
    /// The caller will not ask: what is claimed from now on is not renewed.
    Abandoned,
}

impl fmt::Debug for RunSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSlot").finish_non_exhaustive()
    }
}

impl RunSlot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self) -> Result<Arc<ClaimHandle>, Failure> {
        match &*self.state() {
            State::Claimed(claim) => Ok(Arc::clone(claim)),
            _ => Err(Failure::invalid_argument("nothing was claimed here")),
        }
    }

    async fn enter(&self) -> Result<RunEntry, Failure> {
        let (mine, answer, failure) = match self.client.begin(&self.scope, &self.key, &self.options).await? {
            Begun::Mine(claim) => {
                let mut state = self.state();
                if let State::Abandoned = *state {
                    return Err(given_up());
                }
                *state = State::Claimed(claim);
                (true, None, None)
            }
            Begun::Replayed(value) => (false, Some(value), None),
            Begun::Failed { failure, answer } => {
                let NativeError::Failed { fault } = failure.into();
                (false, Some(answer), Some(fault))
            }
        };
        Ok(RunEntry { mine, answer, failure })
    }
}

fn given_up() -> Failure {
    Failure::canceled("the wait was ended by its caller; nothing is claimed")
}

#[uniffi::export]
impl RunSlot {
    /// Claims the key, or finds its answer.
    ///
    /// Errors: `in_progress`, `payload_mismatch`, `result_too_large`, and those of the store.
    /// Cancellation: dropping the call; so do [`RunSlot::cancel`] and [`RunSlot::abandon`].
    pub async fn start_run(self: Arc<Self>) -> Result<RunEntry, NativeError> {
        handed(async move {
            let mut canceled = self.canceled.subscribe();
            tokio::select! {
                biased;
                _ = canceled.wait_for(|canceled| *canceled) => Err(given_up()),
                result = self.enter() => result,
            }
        })
        .await
    }

    /// Ends the wait, from any thread: it fails with `canceled`. Does nothing to what is claimed.
    pub fn cancel(&self) {
        self.canceled.send_replace(true);
    }

    /// Says nothing of the work: the key is free when the lease ends. Nothing once it is finished.
    pub fn abandon(&self) {
        self.cancel();
        let before = std::mem::replace(&mut *self.state(), State::Abandoned);
        if let State::Claimed(claim) = before {
            claim.abandon();
        }
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        drop(watches);
    }

    /// Stores the result. Errors: `result_too_large`, `not_recorded`; `invalid_argument` if it was finished before.
    pub async fn complete(self: Arc<Self>, result: Vec<u8>) -> Result<(), NativeError> {
        handed(async move { self.claim()?.complete(result).await }).await
    }

    /// Stores a failure, or frees the key: `store`, `free`, or as the options say. Errors: as [`RunSlot::complete`].
    pub async fn fail(self: Arc<Self>, answer: Vec<u8>, fate: Option<String>) -> Result<(), NativeError> {
        handed(async move {
            let fate = fate.as_deref().map(idempotency::on_failure).transpose()?;
            self.claim()?.fail(answer, fate).await
        })
        .await
    }

    /// Errors: `lease_lost`; `invalid_argument` once it is finished.
    pub fn check(&self) -> Result<(), NativeError> {
        at_once(|| self.claim()?.check())
    }

    /// Larger than that of every claim on the same key before.
    pub fn fencing_token(&self) -> i64 {
        self.claim().map_or(0, |claim| whole(claim.fencing_token()))
    }

    /// How many runs of the key began since it was free.
    pub fn runs(&self) -> i64 {
        self.claim().map_or(0, |claim| claim.runs().into())
    }

    /// Seconds for which the claim may be relied on from now.
    pub fn remaining(&self) -> f64 {
        self.claim().map_or(0.0, |claim| claim.remaining().as_secs_f64())
    }

    /// Waits until the claim is lost, with the reason, or the work has ended.
    pub async fn ended(self: Arc<Self>) -> Result<Option<String>, NativeError> {
        handed(async move {
            let ended = self.claim()?.ended();
            drop(self);
            Ok(ended.await.map(|reason| reason.code().to_owned()))
        })
        .await
    }

    /// Has the listener called once if the claim is lost.
    pub fn on_lost(&self, listener: Arc<dyn LossListener>) -> Result<(), NativeError> {
        at_once(|| {
            let watch = self.claim()?.on_lost(move |reason| {
                // A thread of its own: a listener may call, and its call is woken by this one.
                let tell = move || border::caught(|| listener.lost(reason.to_owned()));
                let listening = thread::Builder::new().name("polylatch-loss".into());
                if let Err(error) = listening.spawn(tell) {
                    eprintln!("polylatch: no thread to tell a listener that its claim is lost: {error}");
                }
            })?;
            self.watches.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
            Ok(())
        })
    }
}

#[uniffi::export]
impl NativeClient {
    /// Makes the place for one run. Nothing is sent.
    ///
    /// Errors: `invalid_argument` for what is no length of time.
    pub fn run_slot(&self, scope: String, key: String, with: RunWith) -> Result<Arc<RunSlot>, NativeError> {
        at_once(|| {
            Ok(Arc::new(RunSlot {
                client: self.store()?,
                scope,
                key,
                options: with.checked()?,
                canceled: watch::Sender::new(false),
                state: Mutex::new(State::Empty),
                watches: Mutex::default(),
            }))
        })
    }

    /// `forgotten`, `absent` or `running`.
    pub async fn forget_key(self: Arc<Self>, scope: String, key: String) -> Result<String, NativeError> {
        handed(async move { Ok(self.store()?.forget_key(&scope, &key).await?.to_owned()) }).await
    }

    /// Issues a token for so many seconds.
    pub async fn issue_token(self: Arc<Self>, scope: String, ttl: f64) -> Result<String, NativeError> {
        handed(async move { self.store()?.issue_token(&scope, units::seconds("ttl", ttl)?).await }).await
    }

    /// `first`, `duplicate` or `unknown`.
    pub async fn consume_token(self: Arc<Self>, scope: String, token: String) -> Result<String, NativeError> {
        handed(async move { Ok(self.store()?.consume_token(&scope, &token).await?.to_owned()) }).await
    }
}
