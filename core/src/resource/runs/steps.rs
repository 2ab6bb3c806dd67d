//! Work in several transactions, each of them a step with a name.

use std::time::Duration;

use super::claiming::{Claimed, Plan, Written};
use super::place::{Write, unreadable};
use super::run::answered;
use super::statement::Exchange;
use crate::error::Result;
use crate::policy::fencing::FencingToken;
use crate::policy::idempotency::{Record, State};
use crate::policy::progress::Steps;

/// The work of one key in several transactions; see [`TransactionRuns::steps`](super::TransactionRuns::steps).
///
/// 1. [`TransactionSteps::claim`] in a transaction of its own, or in autocommit. Other clients see the claim from its commit
///    on.
/// 2. For each step that [`StepsClaim::value`] does not know: begin, do its work, [`StepsClaim::step`], commit.
/// 3. In the last transaction [`StepsClaim::complete`] instead.
///
/// If the answer to a commit is lost, claim again with the same value: it says whether the step was committed.
#[derive(Debug, Clone)]
pub struct TransactionSteps(pub(super) Plan);

impl TransactionSteps {
    /// Claims the key with its finished steps, or finds its answer. While another client works on it, the answer is
    /// [`Claimed::InProgress`].
    pub fn claim(&self) -> Exchange<Claimed<StepsClaim>> {
        self.0.clone().claiming(|plan, seen| StepsClaim::new(Written::new(plan, seen)))
    }
}

/// Claimed work in steps, as it was when the last exchange about it was committed.
///
/// Each exchange returns the next value. After a rollback go on with the one before.
#[derive(Debug, Clone)]
pub struct StepsClaim {
    written: Written,
    steps: Steps,
}

impl StepsClaim {
    fn new(written: Written) -> Result<Self> {
        let steps = Steps::decode(&written.record.result).ok_or_else(|| unreadable(&written.plan.id))?;
        Ok(Self { written, steps })
    }

    /// Returns the value of a finished step; `None` if it is to be done.
    pub fn value(&self, step: &str) -> Option<&[u8]> {
        self.steps.value(step)
    }

    /// Returns names and values of the finished steps, in order.
    pub fn finished(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.steps.iter()
    }

    /// Returns the number of the claim. A client that takes the work over has a larger one.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.written.fence())
    }

    /// Returns how many clients have worked on it, this one counted.
    pub fn runs(&self) -> u32 {
        self.written.record.runs
    }

    /// Records that a step is finished, and renews the lease: the last exchange of the step's transaction. It fails if another
    /// client has taken the work over; roll back, and the step was not done by this client.
    ///
    /// Errors: `invalid_argument` for a name that is not 1 to 100 bytes without control characters, for a step that is
    /// finished already, and for values of more than 1 MiB in all.
    pub fn step(&self, name: &str, value: &[u8]) -> Result<Exchange<Self>> {
        Ok(self.rewrite(self.steps.with(name, value)?.encode(), self.written.plan.lease))
    }

    /// Renews the lease, for a step that takes long: in a transaction of its own, or in autocommit, on another connection than
    /// that of the step.
    pub fn renew(&self) -> Exchange<Self> {
        self.rewrite(self.written.record.result.clone(), self.written.plan.lease)
    }

    /// Ends the claim without an answer, so that another client goes on at once: in a transaction of its own, or in
    /// autocommit.
    pub fn release(&self) -> Exchange<()> {
        let write = self.of(self.written.record.result.clone(), Some(Duration::ZERO));
        self.written.writing(write, |_| Ok(()))
    }

    /// Records the result of all: the last exchange of the last transaction.
    ///
    /// Errors: as of [`RunClaim::complete`](super::RunClaim::complete).
    pub fn complete(&self, result: &[u8]) -> Result<Exchange<()>> {
        Ok(self.written.writing(answered(&self.written, State::Done, result)?, |_| Ok(())))
    }

    /// Records a failure that every repetition gets. What finished steps have done remains.
    ///
    /// Errors: as of [`RunClaim::complete`](super::RunClaim::complete).
    pub fn fail(&self, answer: &[u8]) -> Result<Exchange<()>> {
        Ok(self.written.writing(answered(&self.written, State::Failed, answer)?, |_| Ok(())))
    }

    fn rewrite(&self, finished: Vec<u8>, lease: Option<Duration>) -> Exchange<Self> {
        self.written.writing(self.of(finished, lease), Self::new)
    }

    fn of(&self, finished: Vec<u8>, lease: Option<Duration>) -> Write {
        let before = &self.written.record;
        let record = Record {
            state: State::InSteps,
            renewals: before.renewals.saturating_add(1),
            result: finished,
            ..before.clone()
        };
        Write { record, lease, keep: self.written.plan.keep_of_claim() }
    }
}
