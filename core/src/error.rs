//! The one error type: what went wrong, whether to try again, and whether anything may have happened.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

pub use lost_reason::LostReason;

mod lost_reason;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`ErrorKind::code`] is the stable text that every language uses.
///
/// `core/docs/errors.md` has the cause and the remedy of each code, under a heading with that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A URL, option or environment variable is wrong. Nothing was sent.
    InvalidConfig,
    /// An argument of a call is wrong. Nothing was sent.
    InvalidArgument,
    /// This store cannot do what was asked; its capability says so.
    Unsupported,
    /// Another client still held the lock when the wait was over.
    WaitTimeout,
    /// The caller, or the closing of the client, ended the wait.
    Canceled,
    /// The lease is over; [`Error::lost_reason`] says why.
    LeaseLost,
    /// A guarded resource has seen a newer fencing token.
    StaleToken,
    /// The name holds data that is not ours; it was left as it is.
    NameConflict,
    /// Too many nodes failed to decide.
    QuorumUnreachable,
    /// The store refused the connection, did not answer in time, or is not ready.
    BackendUnavailable,
    /// The store refused for good: credentials, permission, schema, read-only.
    BackendRejected,
    /// A bug in this library.
    Internal,
}

impl ErrorKind {
    /// Every kind, for tables and metrics.
    pub const ALL: &[Self] = &[
        Self::InvalidConfig,
        Self::InvalidArgument,
        Self::Unsupported,
        Self::WaitTimeout,
        Self::Canceled,
        Self::LeaseLost,
        Self::StaleToken,
        Self::NameConflict,
        Self::QuorumUnreachable,
        Self::BackendUnavailable,
        Self::BackendRejected,
        Self::Internal,
    ];

    /// Returns the stable code, the same in every language.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidConfig => "invalid_config",
            Self::InvalidArgument => "invalid_argument",
            Self::Unsupported => "unsupported",
            Self::WaitTimeout => "wait_timeout",
            Self::Canceled => "canceled",
            Self::LeaseLost => "lease_lost",
            Self::StaleToken => "stale_token",
            Self::NameConflict => "name_conflict",
            Self::QuorumUnreachable => "quorum_unreachable",
            Self::BackendUnavailable => "backend_unavailable",
            Self::BackendRejected => "backend_rejected",
            Self::Internal => "internal",
        }
    }

    /// Returns whether a call that failed in this way may help if it is made again.
    pub fn retry(self) -> Retry {
        match self {
            Self::WaitTimeout => Retry::CallerDecides,
            Self::LeaseLost => Retry::AcquireAnew,
            Self::QuorumUnreachable | Self::BackendUnavailable => Retry::AfterBackoff,
            _ => Retry::Never,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Whether the same call may help if it is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It will fail the same way.
    Never,
    /// Nothing is broken; whether to wait longer is the caller's business.
    CallerDecides,
    /// Try again after a pause.
    AfterBackoff,
    /// This lease is over; acquire a new one.
    AcquireAnew,
}

impl Retry {
    /// Returns the stable code, the same in every language.
    pub fn code(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::CallerDecides => "caller_decides",
            Self::AfterBackoff => "after_backoff",
            Self::AcquireAnew => "acquire_anew",
        }
    }
}

/// Whether the failed request may have changed the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Certainly not.
    None,
    /// The request may have been carried out; its reply is missing.
    Maybe,
}

impl Effect {
    /// Returns the stable code, the same in every language.
    pub fn code(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Maybe => "maybe",
        }
    }
}

/// Where an error happened. Unknown parts are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorContext {
    /// Kind of store, such as `redis`.
    pub backend: Option<&'static str>,
    /// What was being done, such as `acquire`.
    pub operation: Option<&'static str>,
    /// The lock's name.
    pub lock: Option<String>,
    /// How many tries were made.
    pub attempt: Option<u32>,
    /// How long the call had taken.
    pub elapsed: Option<Duration>,
}

/// What went wrong, whether to try again, and whether anything may have happened.
///
/// The message names the input, the rule and the way out. It never contains a secret: no passwords,
/// no owner tokens, no connection strings.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    effect: Effect,
    message: Cow<'static, str>,
    lost: Option<LostReason>,
    context: ErrorContext,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error whose request certainly had no effect.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect: Effect::None,
            message: message.into(),
            lost: None,
            context: ErrorContext::default(),
            source: None,
        }))
    }

    pub(crate) fn lost(reason: LostReason, lock: &str) -> Self {
        let mut error = Self::new(
            ErrorKind::LeaseLost,
            format!(
                "the lease of {lock:?} is lost: {}; stop the protected work and acquire it again",
                reason.sentence()
            ),
        );
        error.0.lost = Some(reason);
        error.0.context.lock = Some(lock.to_owned());
        error
    }

    /// Says whether the request may have been carried out.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Attaches the underlying cause. It must not contain a secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The underlying cause, if it is of this type.
    #[cfg(feature = "redis")]
    pub(crate) fn cause<T: StdError + 'static>(&self) -> Option<&T> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// The same once more, for another whom it concerns too.
    pub(crate) fn twin(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            effect: self.0.effect,
            message: self.0.message.clone(),
            lost: self.0.lost,
            context: self.0.context.clone(),
            source: self.0.source.as_ref().map(|source| source.to_string().into()),
        }))
    }

    pub(crate) fn during(mut self, backend: &'static str, operation: &'static str) -> Self {
        self.0.context.backend.get_or_insert(backend);
        self.0.context.operation.get_or_insert(operation);
        self
    }

    pub(crate) fn on_lock(mut self, lock: &str) -> Self {
        self.0.context.lock.get_or_insert_with(|| lock.to_owned());
        self
    }

    pub(crate) fn after(mut self, attempt: u32, elapsed: Duration) -> Self {
        self.0.context.attempt.get_or_insert(attempt);
        self.0.context.elapsed.get_or_insert(elapsed);
        self
    }

    /// Returns what went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stable code, the same in every language.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// Returns whether the same call may help if it is made again.
    pub fn retry(&self) -> Retry {
        self.0.kind.retry()
    }

    /// Returns whether the failed request may have changed the store.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns why the lease was lost, if this is [`ErrorKind::LeaseLost`].
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }

    /// Returns where it happened.
    pub fn context(&self) -> &ErrorContext {
        &self.0.context
    }

    /// Returns the sentence alone, without context and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        let context = &self.0.context;
        // The code first: it is what the pages of errors are found by.
        let mut parts = vec![self.code().to_owned()];
        if let (Some(backend), Some(operation)) = (context.backend, context.operation) {
            parts.push(format!("{backend} {operation}"));
        }
        if let Some(lock) = &context.lock
            && !self.0.message.contains(lock.as_str())
        {
            parts.push(format!("lock {lock:?}"));
        }
        if let Some(attempt) = context.attempt
            && attempt > 1
        {
            parts.push(format!("{attempt} tries"));
        }
        if let Some(elapsed) = context.elapsed
            && elapsed >= Duration::from_millis(1)
        {
            parts.push(format!("after {elapsed:.1?}"));
        }
        write!(f, " ({})", parts.join(", "))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.code())
            .field("message", &self.0.message)
            .field("retry", &self.retry())
            .field("effect", &self.0.effect)
            .field("lost", &self.0.lost)
            .field("context", &self.0.context)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Display already prints the source, so a chain printer starts behind it.
        self.0.source.as_ref().and_then(|source| source.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a kind stands in [`ErrorKind::ALL`]. A new kind does not compile before it is told here.
    fn place(kind: ErrorKind) -> usize {
        match kind {
            ErrorKind::InvalidConfig => 0,
            ErrorKind::InvalidArgument => 1,
            ErrorKind::Unsupported => 2,
            ErrorKind::WaitTimeout => 3,
            ErrorKind::Canceled => 4,
            ErrorKind::LeaseLost => 5,
            ErrorKind::StaleToken => 6,
            ErrorKind::NameConflict => 7,
            ErrorKind::QuorumUnreachable => 8,
            ErrorKind::BackendUnavailable => 9,
            ErrorKind::BackendRejected => 10,
            ErrorKind::Internal => 11,
        }
    }

    /// The same for [`LostReason::ALL`].
    fn place_of_reason(reason: LostReason) -> usize {
        match reason {
            LostReason::Expired => 0,
            LostReason::Superseded => 1,
            LostReason::SessionEnded => 2,
            LostReason::Broken => 3,
            LostReason::HoldLimit => 4,
            LostReason::NoProgress => 5,
            LostReason::Unverifiable => 6,
        }
    }

    #[test]
    fn every_text_says_its_code_and_the_page_of_errors_has_it() {
        let page = include_str!("../docs/errors.md");
        for kind in ErrorKind::ALL {
            let text = Error::new(*kind, "a sentence").during("redis", "acquire").to_string();
            assert_eq!(text, format!("a sentence ({}, redis acquire)", kind.code()));
            assert!(page.contains(&format!("\n### `{}`\n", kind.code())), "{kind}");
        }
    }

    #[test]
    fn the_table_that_every_binding_is_tested_against_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/errors.json");
        let text = std::fs::read_to_string(path).expect("the table is in the repository");
        let table: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let rows = table["errors"].as_array().expect("a list of errors");
        assert_eq!(rows.len(), ErrorKind::ALL.len());
        for (row, kind) in rows.iter().zip(ErrorKind::ALL) {
            assert_eq!(ErrorKind::ALL[place(*kind)], *kind);
            assert_eq!(row["code"], kind.code());
            assert_eq!(row["kind"], format!("{kind:?}"));
            assert_eq!(row["retry"], kind.retry().code(), "{kind}");
            let effects = row["effects"].as_array().expect("a list of effects");
            assert!(effects.iter().any(|effect| effect == "none"), "{kind}");
            assert!(effects.iter().all(|effect| effect == "none" || effect == "maybe"), "{kind}");
        }
        let reasons = table["lost_reasons"].as_array().expect("a list of reasons");
        assert_eq!(reasons.len(), LostReason::ALL.len());
        for (told, reason) in reasons.iter().zip(LostReason::ALL) {
            assert_eq!(LostReason::ALL[place_of_reason(*reason)], *reason);
            assert_eq!(told, reason.code());
        }
    }
}
