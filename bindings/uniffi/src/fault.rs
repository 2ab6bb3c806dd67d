//! What went wrong, as values that every language makes its own error of.

use std::error::Error;
use std::fmt;

use polylatch_bridge::Failure;

/// What went wrong; see `polylatch_bridge::Details`.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Fault {
    pub code: String,
    pub again: String,
    pub effect: String,
    pub lost_reason: Option<String>,
    pub text: String,
    pub hint: String,
    pub backend: Option<String>,
    pub operation: Option<String>,
    pub lock: Option<String>,
    pub attempt: Option<i64>,
    /// Seconds.
    pub elapsed: Option<f64>,
}

/// The error of every call that can fail.
#[derive(Debug, Clone, PartialEq, uniffi::Error)]
pub enum NativeError {
    Failed { fault: Fault },
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Failed { fault } = self;
        f.write_str(&fault.text)
    }
}

impl Error for NativeError {}

impl From<Failure> for NativeError {
    fn from(failure: Failure) -> Self {
        let owned = |text: &str| text.to_owned();
        let context = &failure.context;
        Self::Failed {
            fault: Fault {
                code: owned(failure.code),
                again: owned(failure.retry),
                effect: owned(failure.effect),
                lost_reason: failure.lost_reason.map(owned),
                text: failure.message.clone(),
                hint: owned(failure.hint),
                backend: context.backend.map(owned),
                operation: context.operation.map(owned),
                lock: context.lock.clone(),
                attempt: context.attempt.map(i64::from),
                elapsed: context.elapsed.map(|elapsed| elapsed.as_secs_f64()),
            },
        }
    }
}

impl From<polylatch::Error> for NativeError {
    fn from(error: polylatch::Error) -> Self {
        Failure::from(error).into()
    }
}
