//! Why a run has no answer, and how work says that it failed.

use std::fmt;
use std::time::Duration;

use crate::clock::seconds;
use crate::error::{Error, ErrorKind};
use crate::idempotency::OnFailure;
use crate::policy::idempotency::{MAX_RESULT_BYTES, RecordId};
use crate::token::ClientId;

/// What work returns that has failed: what to answer, and what becomes of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(super) answer: Vec<u8>,
    pub(super) fate: Option<OnFailure>,
}

impl Failure {
    /// The key is stored or freed as the options of the run say. `answer`: at most 1 MiB.
    pub fn new(answer: impl Into<Vec<u8>>) -> Self {
        Self { answer: answer.into(), fate: None }
    }

    /// A failure without effect, such as one of a check before the work: the next run does the work again.
    pub fn freed(answer: impl Into<Vec<u8>>) -> Self {
        Self { answer: answer.into(), fate: Some(OnFailure::Free) }
    }

    /// A failure that every repetition gets, such as a refused card.
    pub fn stored(answer: impl Into<Vec<u8>>) -> Self {
        Self { answer: answer.into(), fate: Some(OnFailure::Store) }
    }
}

/// Why a run has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// Another run of the key is under way, and the caller does not wait for it, or no longer.
    InProgress {
        /// Scope and key.
        what: String,
        /// The client that runs it.
        client: ClientId,
        /// What is left of its lease, unless it renews it.
        left: Duration,
    },
    /// A transaction is at work on the key; see [`crate::resource::TransactionRuns`].
    InTransaction {
        /// Scope and key.
        what: String,
    },
    /// The key belongs to another payload. Nothing was done.
    PayloadMismatch {
        /// Scope and key.
        what: String,
    },
    /// The work has failed, now or in an earlier run.
    Failed {
        /// What it answered.
        answer: Vec<u8>,
        /// It failed in an earlier run; this one did not do the work.
        replayed: bool,
    },
    /// The work is done, and its result is larger than 1 MiB, so it is not stored. The work is not repeated.
    ResultTooLarge {
        /// Scope and key.
        what: String,
        /// The result, if this run did the work.
        value: Option<Vec<u8>>,
    },
    /// This run did the work, and what came of it is not stored: another client has taken the key over, or the store did
    /// not answer. Another run may do the work again, or has.
    NotRecorded {
        /// The result, or the answer of a failure.
        value: Vec<u8>,
        /// `lease_lost`, or the error of the store.
        error: Error,
    },
    /// An argument is wrong, or the store failed before the work began.
    Store(Error),
}

impl RunError {
    /// Returns the stable code: `in_progress`, `payload_mismatch`, `failed`, `result_too_large`, `not_recorded`, or that of
    /// the store's error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InProgress { .. } | Self::InTransaction { .. } => "in_progress",
            Self::PayloadMismatch { .. } => "payload_mismatch",
            Self::Failed { .. } => "failed",
            Self::ResultTooLarge { .. } => "result_too_large",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Store(error) => error.code(),
        }
    }

    /// The error of the store, if one is the reason.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Store(error) | Self::NotRecorded { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress { what, client, left } => write!(
                f,
                "another run of {what} is in progress on host {} pid {}, lease ends in {} unless renewed; wait for it, or \
                 repeat the request later",
                client.host(),
                client.pid().unwrap_or_default(),
                seconds(*left)
            ),
            Self::InTransaction { what } => {
                write!(f, "a transaction is at work on the key {what}; repeat the request when it has ended")
            }
            Self::PayloadMismatch { what } => write!(
                f,
                "the key {what} was used with another payload; a new request needs a new key, and a repetition the same \
                 payload"
            ),
            Self::Failed { answer, replayed } => {
                let size = answer.len();
                let when = if *replayed { "failed in an earlier run, which is stored" } else { "failed" };
                write!(f, "the work {when}; its answer has {size} bytes")
            }
            Self::ResultTooLarge { what, .. } => write!(
                f,
                "the work of {what} is done, and its result is larger than {MAX_RESULT_BYTES} bytes, so it is not stored; \
                 return a reference to it instead"
            ),
            Self::NotRecorded { error, .. } => {
                write!(
                    f,
                    "the work is done, but its answer is not recorded, so it may be done again: {error}"
                )
            }
            Self::Store(error) => return error.fmt(f),
        }?;
        write!(f, " ({})", self.code())
    }
}

impl std::error::Error for RunError {}

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Scope and key, as messages show them.
pub(super) fn shown(id: &RecordId) -> String {
    format!("{:?} in {:?}", id.key, id.scope)
}

pub(super) fn wrong_json(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "the value of idempotent work and the type that is asked for do not fit to JSON; use one type for all runs of a \
         scope",
    )
    .with_source(error)
}
