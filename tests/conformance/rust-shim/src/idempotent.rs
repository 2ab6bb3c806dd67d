//! Idempotent work that returns or fails as the runner says.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use polylatch::Polylatch;
use polylatch::idempotency::{Failure, OnFailure, RunError, RunOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{Request, unpoisoned};

/// What work waits for, by name.
#[derive(Debug, Default)]
pub struct Gates(Mutex<HashMap<String, watch::Sender<Stage>>>);

/// How far work has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    #[default]
    NotBegun,
    Working,
    MayEnd,
}

impl Gates {
    pub fn reach(&self, name: &str, stage: Stage) {
        self.of(name).send_modify(|now| *now = stage.max(*now));
    }

    pub async fn reached(&self, name: &str, stage: Stage) {
        // The sender is kept in the map.
        let _ = self.of(name).subscribe().wait_for(|now| *now >= stage).await;
    }

    fn of(&self, name: &str) -> watch::Sender<Stage> {
        unpoisoned(&self.0).entry(name.to_owned()).or_default().clone()
    }
}

pub async fn run(client: &Polylatch, request: &Request, gates: &Gates) -> Result<Value, RunError> {
    let mut options = RunOptions::new();
    if let Some(payload) = &request.payload {
        options = options.payload(payload.as_bytes());
    }
    let length = |name: &str| request.options.get(name).and_then(Value::as_u64).map(Duration::from_millis);
    if let Some(lease) = length("lease_ms") {
        options = options.lease(lease);
    }
    if let Some(wait) = length("wait_ms") {
        options = options.wait(wait);
    }
    if request.options.get("on_failure").is_some_and(|word| word == "free") {
        options = options.on_failure(OnFailure::Free);
    }
    let scope = client.idempotency(request.scope.as_str());
    let outcome = scope.run_json(&request.key, &options, |_claim| async {
        if let Some(name) = &request.waits {
            gates.reach(name, Stage::Working);
            gates.reached(name, Stage::MayEnd).await;
        }
        let value = request.value.clone();
        // As `run_json` stores what other languages read.
        if request.fails { Err(Failure::new(json!(value).to_string())) } else { Ok(value) }
    });
    let outcome = outcome.await?;
    Ok(json!({"replayed": outcome.is_replayed(), "value": outcome.value()}))
}

/// The error in the words of `errors.json`.
pub fn told(error: &RunError) -> Value {
    if let RunError::Store(error) = error {
        return crate::told(error);
    }
    let (retry, effect) = match error {
        RunError::InProgress { .. } => ("caller_decides", "none"),
        RunError::NotRecorded { .. } => ("caller_decides", "maybe"),
        _ => ("never", "none"),
    };
    json!({"code": error.code(), "retry": retry, "effect": effect, "reason": null, "message": error.to_string()})
}
