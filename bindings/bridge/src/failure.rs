//! Errors as plain values, ready for an exception or an error object.

use std::borrow::Cow;
use std::ops::Deref;

use polylatch::{Error, ErrorKind};

/// What went wrong; [`Details`] has the values.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure(Box<Details>);

impl Deref for Failure {
    type Target = Details;
    fn deref(&self) -> &Details {
        &self.0
    }
}

/// What went wrong, in values that every language has.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// The stable code, such as `lease_lost`.
    pub code: &'static str,
    /// `never`, `caller_decides`, `after_backoff` or `acquire_anew`.
    pub retry: &'static str,
    /// `none` or `maybe`.
    pub effect: &'static str,
    /// Why a lease was lost, such as `expired`.
    pub lost_reason: Option<&'static str>,
    /// The whole message: names the input, the rule and the way out; no secrets.
    pub message: String,
    /// What to do about errors of this code, in one sentence.
    pub hint: &'static str,
    /// Where it happened.
    pub context: Context,
}

/// Where a failure happened. Unknown parts are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Kind of store, such as `redis`.
    pub backend: Option<&'static str>,
    /// What was being done, such as `acquire`.
    pub operation: Option<&'static str>,
    /// The lock's name.
    pub lock: Option<String>,
    /// How many tries were made.
    pub attempt: Option<u32>,
    /// How long the call had taken.
    pub elapsed: Option<std::time::Duration>,
}

impl Failure {
    /// A caller's mistake in an argument; nothing was sent.
    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::InvalidArgument, message).into()
    }

    /// A caller's mistake in an option of the client; nothing was sent.
    pub fn invalid_config(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::InvalidConfig, message).into()
    }

    /// The host ended the wait: a signal, a cancelled task, an aborted signal object.
    pub fn canceled(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::Canceled, message).into()
    }

    /// A handle of a lease was used in a process that inherited it by a fork.
    pub fn inherited(lock: &str) -> Self {
        let mut failure = Self::from(Error::new(
            ErrorKind::LeaseLost,
            format!(
                "the lease of {lock:?} belongs to the process that acquired it, not to this forked child; \
                 acquire the lock here"
            ),
        ));
        failure.0.lost_reason = Some(polylatch::LostReason::Unverifiable.code());
        failure.0.context.lock = Some(lock.to_owned());
        failure
    }

    /// The operating system gave no thread for callbacks.
    pub fn no_thread(error: std::io::Error) -> Self {
        let rule =
            "the operating system gave no thread for callbacks; check its limits on threads and open files";
        Error::new(ErrorKind::BackendUnavailable, rule).with_source(error).into()
    }

    /// A bug on this side of the border.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::Internal, message).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Box::new(Details {
            code: error.code(),
            retry: error.retry().code(),
            effect: error.effect().code(),
            lost_reason: error.lost_reason().map(|reason| reason.code()),
            message: error.to_string(),
            hint: hint(error.kind()),
            context: context_of(&error),
        }))
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<polylatch::idempotency::RunError> for Failure {
    fn from(error: polylatch::idempotency::RunError) -> Self {
        use polylatch::idempotency::RunError;
        let (retry, effect, hint) = match error {
            RunError::Store(error) => return error.into(),
            RunError::InProgress { .. } | RunError::InTransaction { .. } => {
                ("caller_decides", "none", "Repeat the request later, with the same key.")
            }
            RunError::PayloadMismatch { .. } => {
                ("never", "none", "Use a new key for a new request, and the same payload for a repetition.")
            }
            RunError::Failed { replayed, .. } => {
                let effect = if replayed { "none" } else { "maybe" };
                ("never", effect, "The failure is the answer of this key; a new request needs a new key.")
            }
            RunError::ResultTooLarge { ref value, .. } => {
                let effect = if value.is_some() { "maybe" } else { "none" };
                ("never", effect, "The work is done; have it return a reference to its result.")
            }
            RunError::NotRecorded { .. } => (
                "caller_decides",
                "maybe",
                "The work is done and may be done again: let what it changes refuse smaller fencing tokens.",
            ),
            // The core has learned a new one.
            _ => ("never", "maybe", hint(ErrorKind::Internal)),
        };
        let context = error.error().map(context_of).unwrap_or_default();
        let (code, message) = (error.code(), error.to_string());
        Self(Box::new(Details { code, retry, effect, lost_reason: None, message, hint, context }))
    }
}

fn context_of(error: &Error) -> Context {
    let context = error.context();
    Context {
        backend: context.backend,
        operation: context.operation,
        lock: context.lock.clone(),
        attempt: context.attempt,
        elapsed: context.elapsed,
    }
}

fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidConfig => "Fix the URL, the option or the environment variable that is named.",
        ErrorKind::InvalidArgument => "Fix the argument that is named; nothing was sent.",
        ErrorKind::Unsupported => "Use a store that can do this, or do without.",
        ErrorKind::WaitTimeout => "Wait longer, come back later, or see who holds it: polylatch show NAME.",
        ErrorKind::Canceled => "The wait was ended on purpose; nothing is held.",
        ErrorKind::LeaseLost => "Stop the protected work and acquire the lock again.",
        ErrorKind::StaleToken => "Stop: a newer holder has written. Acquire the lock again.",
        ErrorKind::NameConflict => "Choose another name, or find out who keeps data under this one.",
        ErrorKind::QuorumUnreachable => "Try again after a pause; see which nodes are down.",
        ErrorKind::BackendUnavailable => "Try again after a pause; see whether the store is up.",
        ErrorKind::BackendRejected => "Have an operator look: polylatch doctor names what the store refuses.",
        _ => "This is a bug in Polylatch; please report it with this message.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_the_error_said() {
        let error = Error::new(ErrorKind::BackendUnavailable, "the store did not answer");
        let failure = Failure::from(error.with_effect(polylatch::Effect::Maybe));
        assert_eq!(
            (failure.code, failure.retry, failure.effect),
            ("backend_unavailable", "after_backoff", "maybe")
        );
        assert_eq!(failure.message, "the store did not answer (backend_unavailable)");
        assert!(failure.hint.ends_with('.'));
        assert!(Failure::invalid_argument("it is 0").hint.starts_with("Fix the argument"));
        assert!(Failure::invalid_config("it is 0").hint.starts_with("Fix the URL"));
    }
}
