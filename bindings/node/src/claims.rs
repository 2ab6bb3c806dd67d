//! Idempotent work: claims on keys, and what else is asked of a scope. Results are bytes here; `idempotency.ts` writes them.

use std::sync::Arc;

use napi::bindgen_prelude::{Buffer, Either};
use napi_derive::napi;
use polylatch::idempotency::Retention;
use polylatch_bridge::{Begun, ClaimHandle, Client, Failure, RunOptions, idempotency};

use crate::client::NativeClient;
use crate::failure::Fault;
use crate::hub::{Hub, Reply, Value, failed};
use crate::options::NUMBERS;

/// What a caller says of a run; lengths of time are milliseconds. What is missing is the core's to say.
#[napi(object, object_to_js = false)]
pub struct RunWith {
    pub payload: Option<Buffer>,
    pub fingerprint: Option<String>,
    /// Infinity is for ever.
    pub retention: Option<f64>,
    pub lease: Option<f64>,
    pub wait: Option<f64>,
    pub on_failure: Option<String>,
}

impl RunWith {
    pub(crate) fn checked(self) -> Result<RunOptions, Failure> {
        let retention = match self.retention {
            Some(f64::INFINITY) => Some(Retention::Forever),
            given => NUMBERS.length("retention", given)?.map(Retention::For),
        };
        Ok(RunOptions {
            payload: self.payload.map(Vec::from),
            fingerprint: self.fingerprint,
            retention,
            lease: NUMBERS.length("lease", self.lease)?,
            wait: NUMBERS.length("wait", self.wait)?,
            on_failure: self.on_failure.as_deref().map(idempotency::on_failure).transpose()?,
        })
    }
}

/// How a run has begun: a claim, or the answer of an earlier run. A claim that JavaScript forgets is not renewed any more.
#[napi]
pub struct NativeRun {
    begun: Begun,
    /// Only to be held, so that it can be closed as long as the work runs.
    _client: Arc<Client>,
}

impl NativeRun {
    pub(crate) fn new(begun: Begun, client: Arc<Client>) -> Self {
        Self { begun, _client: client }
    }

    fn claim(&self) -> Result<&Arc<ClaimHandle>, Failure> {
        match &self.begun {
            Begun::Mine(claim) => Ok(claim),
            _ => Err(Failure::internal("this run has no claim")),
        }
    }

    fn ask<T>(&self, ask: impl FnOnce(&ClaimHandle) -> T) -> Option<T> {
        self.claim().ok().map(|claim| ask(claim))
    }
}

#[napi]
impl NativeRun {
    /// What an earlier run has answered; nothing for a claim.
    #[napi(catch_unwind)]
    pub fn answer(&self) -> Option<Buffer> {
        match &self.begun {
            Begun::Mine(_) => None,
            Begun::Replayed(value) => Some(value.clone().into()),
            Begun::Failed { answer, .. } => Some(answer.clone().into()),
        }
    }

    /// The error of an earlier run that failed.
    #[napi(catch_unwind)]
    pub fn failure(&self) -> Option<Fault> {
        match &self.begun {
            Begun::Failed { failure, .. } => Some(failure.clone().into()),
            _ => None,
        }
    }

    /// Tokens are below 2^53.
    #[napi(catch_unwind)]
    pub fn token(&self) -> f64 {
        self.ask(ClaimHandle::fencing_token).unwrap_or(0) as f64
    }

    #[napi(catch_unwind)]
    pub fn runs(&self) -> u32 {
        self.ask(ClaimHandle::runs).unwrap_or(0)
    }

    /// Milliseconds.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        self.ask(ClaimHandle::remaining).unwrap_or_default().as_secs_f64() * 1e3
    }

    /// Nothing, or why it is not held.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Either<Fault, ()> {
        match self.claim().and_then(|claim| claim.check()) {
            Ok(()) => Either::B(()),
            Err(failure) => Either::A(failure.into()),
        }
    }

    /// Says nothing of the work: the key is free when the lease ends.
    #[napi(catch_unwind)]
    pub fn abandon(&self) {
        self.ask(ClaimHandle::abandon);
    }
}

#[napi]
impl Hub {
    /// Claims a key, or finds its answer.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        call: f64,
        client: &NativeClient,
        scope: String,
        key: String,
        options: RunWith,
    ) -> Reply {
        let options = match options.checked() {
            Ok(options) => options,
            Err(failure) => return failed(failure),
        };
        let client = Arc::clone(&client.client);
        self.start(call, async move {
            let begun = client.begin(&scope, &key, &options).await?;
            Ok(Value::Begun(Box::new(begun), client))
        })
    }

    #[napi(catch_unwind)]
    pub fn complete(&self, call: f64, run: &NativeRun, result: Buffer) -> Reply {
        let result = Vec::from(result);
        match run.claim() {
            Ok(claim) => {
                let claim = Arc::clone(claim);
                self.start(call, async move { claim.complete(result).await.map(|()| Value::Nothing) })
            }
            Err(failure) => failed(failure),
        }
    }

    /// `fate`: `store` or `free`; nothing: as the options of the run say.
    #[napi(catch_unwind)]
    pub fn fail(&self, call: f64, run: &NativeRun, answer: Buffer, fate: Option<String>) -> Reply {
        let answer = Vec::from(answer);
        let fate = fate.as_deref().map(idempotency::on_failure).transpose();
        match run.claim().and_then(|claim| Ok((Arc::clone(claim), fate?))) {
            Ok((claim, fate)) => {
                self.start(call, async move { claim.fail(answer, fate).await.map(|()| Value::Nothing) })
            }
            Err(failure) => failed(failure),
        }
    }

    /// Ends when the claim does: with what went wrong if it was lost, otherwise with nothing.
    #[napi(catch_unwind)]
    pub fn lost_claim(&self, call: f64, run: &NativeRun) -> Reply {
        match run.claim() {
            Ok(claim) => {
                let (ended, claim) = (claim.ended(), Arc::downgrade(claim));
                self.start(call, async move {
                    match (ended.await, claim.upgrade()) {
                        (Some(_), Some(claim)) => claim.check().map(|()| Value::Nothing),
                        _ => Ok(Value::Nothing),
                    }
                })
            }
            Err(failure) => failed(failure),
        }
    }

    /// `forgotten`, `absent` or `running`.
    #[napi(catch_unwind)]
    pub fn forget_key(&self, call: f64, client: &NativeClient, scope: String, key: String) -> Reply {
        let client = Arc::clone(&client.client);
        self.start(call, async move { client.forget_key(&scope, &key).await.map(word) })
    }

    /// JSON; `null` if there is no record.
    #[napi(catch_unwind)]
    pub fn record(&self, call: f64, client: &NativeClient, scope: String, key: String) -> Reply {
        let client = Arc::clone(&client.client);
        self.start(call, async move {
            let record = client.record_json(&scope, &key).await?;
            Ok(record.map_or(Value::NotHad, Value::Json))
        })
    }

    #[napi(catch_unwind)]
    pub fn issue_token(&self, call: f64, client: &NativeClient, scope: String, ttl: f64) -> Reply {
        let client = Arc::clone(&client.client);
        match NUMBERS.millis("ttl", ttl) {
            Ok(ttl) => {
                self.start(call, async move { client.issue_token(&scope, ttl).await.map(Value::Json) })
            }
            Err(failure) => failed(failure),
        }
    }

    /// `first`, `duplicate` or `unknown`.
    #[napi(catch_unwind)]
    pub fn consume_token(&self, call: f64, client: &NativeClient, scope: String, token: String) -> Reply {
        let client = Arc::clone(&client.client);
        self.start(call, async move { client.consume_token(&scope, &token).await.map(word) })
    }
}

fn word(word: &'static str) -> Value {
    Value::Json(word.to_owned())
}
