//! How to run idempotent work.

use std::time::Duration;

use crate::driver::Core;
use crate::error::Result;
use crate::limits::{MAX_WAIT, in_range};
use crate::options::Wait;
use crate::policy::idempotency::{
    DEFAULT_RETENTION, Kind, RecordId, Retention, check_fingerprint, fingerprint_of,
};

/// What becomes of a key whose work has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The failure is stored and is the answer to every repetition. The default: work that failed may have had an effect,
    /// and a run of the same key must not have it twice.
    #[default]
    Store,
    /// The key is freed, and the next run does the work again. Right only if failed work has no effect.
    Free,
}

/// How to run the work of a key. Checked by the run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    fingerprint: Option<String>,
    retention: Retention,
    lease: Option<Duration>,
    wait: Wait,
    on_failure: OnFailure,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RunOptions {
    /// Results are kept for 24 h, repetitions wait for the first run, failures are stored, and payloads are not compared.
    pub fn new() -> Self {
        Self {
            fingerprint: None,
            retention: Retention::For(DEFAULT_RETENTION),
            lease: None,
            wait: Wait::Forever,
            on_failure: OnFailure::default(),
        }
    }

    /// Sets what the payload is recognized by, such as its SHA-256: 1 to 128 bytes without control characters. A run of the
    /// same key with another fingerprint, or with one where the first had none, fails with `payload_mismatch`.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Sets the fingerprint to [`fingerprint_of`] the payload.
    #[must_use]
    pub fn payload(self, payload: &[u8]) -> Self {
        self.fingerprint(fingerprint_of(payload))
    }

    /// Sets how long the answer is kept, 1 s to 10 years or for ever, counted by the store from the end of the work. Keep it
    /// for longer than clients repeat a request.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the length of the claim's lease: 100 ms to 24 h, 15 s unless the client says otherwise. It is renewed at a third.
    /// A client that dies blocks its key for so long.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Waits at most this long, 0 to a year, for another run of the same key; then the run fails with `in_progress`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Waits as long as another run of the same key takes. This is the default.
    #[must_use]
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Fails with `in_progress` at once while another run of the same key is under way.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.wait = Wait::No;
        self
    }

    /// Sets what becomes of the key if the work fails; [`crate::idempotency::Failure`] may say otherwise for one failure.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Checks all of it. Errors: `invalid_argument`.
    pub(super) fn check(&self, core: &Core, scope: &str, key: &str) -> Result<Plan> {
        let id = RecordId::new(Kind::Key, scope, key)?;
        if let Some(fingerprint) = &self.fingerprint {
            check_fingerprint(fingerprint)?;
        }
        self.retention.check()?;
        let capability = core.backend.capability();
        let lease = self.lease.unwrap_or(core.settings.lease);
        in_range("lease", lease, capability.min_lease, capability.max_lease)?;
        if let Wait::For(wait) = self.wait {
            in_range("wait", wait, Duration::ZERO, MAX_WAIT)?;
        }
        Ok(Plan {
            id,
            fingerprint: self.fingerprint.clone().unwrap_or_default(),
            keep: self.retention.length(),
            lease,
            wait: self.wait,
            on_failure: self.on_failure,
        })
    }
}

/// A run, checked.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub id: RecordId,
    /// Empty for none.
    pub fingerprint: String,
    /// How long an answer is kept; `None`: for ever.
    pub keep: Option<Duration>,
    pub lease: Duration,
    pub wait: Wait,
    pub on_failure: OnFailure,
}
