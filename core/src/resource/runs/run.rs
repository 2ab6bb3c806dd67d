//! Work that is one transaction.

use std::time::Duration;

use super::claiming::{Claimed, Plan, Written};
use super::place::Write;
use super::statement::Exchange;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::fencing::FencingToken;
use crate::policy::idempotency::{MAX_RESULT_BYTES, Record, State};

/// The work of one key in one transaction of the caller; see [`TransactionRuns::run`](super::TransactionRuns::run).
#[derive(Debug, Clone)]
pub struct TransactionRun(pub(super) Plan);

impl TransactionRun {
    /// Claims the key, or finds its answer. Make it the first exchange of the transaction.
    ///
    /// It waits for another transaction with this key. A claim with a lease, of work in steps or of
    /// [`crate::Polylatch::idempotency`], is not waited for: it is [`Claimed::InProgress`].
    pub fn claim(&self) -> Exchange<Claimed<RunClaim>> {
        self.0.clone().claiming(|plan, seen| Ok(RunClaim(Written::new(plan, seen))))
    }
}

/// A claimed key. The transaction does the work, completes the claim and commits.
///
/// A rollback undoes it: the key is free at once. A commit without [`RunClaim::complete`] leaves work that a repetition does
/// again.
#[derive(Debug, Clone)]
pub struct RunClaim(Written);

impl RunClaim {
    /// Returns the number of the claim. A later claim of the same key has a larger one.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.0.fence())
    }

    /// Returns which run of this key it is, from 1; clients that died are counted.
    pub fn runs(&self) -> u32 {
        self.0.record.runs
    }

    /// Records the result: the last exchange before the commit.
    ///
    /// Errors: `invalid_argument` if it has more than 1 MiB. Nothing is recorded then: roll back.
    pub fn complete(&self, result: &[u8]) -> Result<Exchange<()>> {
        self.end(State::Done, result)
    }

    /// Records a failure that every repetition gets, such as a refused card. Undo the work first, or do none: what the
    /// transaction changed is committed with it.
    ///
    /// Errors: as of [`RunClaim::complete`].
    pub fn fail(&self, answer: &[u8]) -> Result<Exchange<()>> {
        self.end(State::Failed, answer)
    }

    fn end(&self, state: State, result: &[u8]) -> Result<Exchange<()>> {
        let write = answered(&self.0, state, result)?;
        Ok(self.0.writing(write, |_| Ok(())))
    }
}

/// The answer to be written over a claim. Errors: `invalid_argument`.
pub(super) fn answered(before: &Written, state: State, result: &[u8]) -> Result<Write> {
    if result.len() > MAX_RESULT_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the result of the key {:?} has {} bytes; at most {MAX_RESULT_BYTES} are stored, so roll back, or store a \
                 reference to it instead",
                before.plan.id.key,
                result.len()
            ),
        ));
    }
    let record = Record { state, result: result.to_vec(), ..before.record.clone() };
    Ok(Write { record, lease: Some(Duration::ZERO), keep: before.plan.keep })
}
