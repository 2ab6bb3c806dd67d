//! The exchanges about one record: claim it, write it.

use std::time::Duration;

use super::place::{Place, Write, seen};
use super::statement::{Ask, Columns, Exchange, is_over};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{
    ABANDONED_KEEP, Answer, Decision, Holding, Record, RecordId, Seen, State, decide, decide_in_steps,
    holding, in_steps,
};
use crate::token::{ClientId, OwnerToken};

/// How often a claim begins again because another client deleted or took over the record between two statements.
const MOST_ATTEMPTS: u32 = 16;

/// All that is known of the work of a key, checked.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub place: Place,
    pub id: RecordId,
    pub owner: OwnerToken,
    /// Empty for none.
    pub fingerprint: String,
    /// How long an answer is kept; `None`: for ever.
    pub keep: Option<Duration>,
    /// Work in steps has one: its claims outlive their transactions.
    pub lease: Option<Duration>,
    pub no_wait: bool,
    pub client: ClientId,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed<C> {
    /// The work is the caller's to do, in this transaction.
    Mine(C),
    /// It was done before, and this is its result.
    Replayed(Vec<u8>),
    /// It failed before, and this is the stored answer.
    Failed(Vec<u8>),
    /// It was done before, and its result was too large to be stored.
    ResultTooLarge,
    /// Another client works on it.
    InProgress {
        /// Which one, and what is left of its lease; `None` if it works in one transaction.
        lease: Option<(ClientId, Duration)>,
    },
    /// The key belongs to another payload: a new request needs a new key, and a repetition the same payload.
    PayloadMismatch,
}

impl<C> Claimed<C> {
    /// Returns the claim; `None` if the work is not the caller's to do.
    pub fn mine(self) -> Option<C> {
        match self {
            Self::Mine(claim) => Some(claim),
            _ => None,
        }
    }
}

enum At {
    Begin,
    Lock,
    Locked,
    Insert,
    Written,
    Looked,
    Over,
}

impl Plan {
    fn is_in_steps(&self) -> bool {
        self.lease.is_some()
    }

    /// A new claim. `finished`: what a client that worked on it in steps has finished.
    fn claim(&self, runs: u32, finished: Vec<u8>) -> Write {
        let record = Record {
            state: if self.is_in_steps() { State::InSteps } else { State::Claimed },
            owner: self.owner,
            fence: None,
            fingerprint: self.fingerprint.clone(),
            client: self.client.clone(),
            runs,
            lease: self.lease.unwrap_or_default(),
            renewals: 0,
            result: finished,
        };
        Write { record, lease: self.lease, keep: self.keep_of_claim() }
    }

    /// Steps that are finished are kept as long as an answer.
    pub(super) fn keep_of_claim(&self) -> Option<Duration> {
        match self.lease {
            Some(lease) => self.keep.map(|keep| lease + keep.max(ABANDONED_KEEP)),
            None => Some(ABANDONED_KEEP),
        }
    }

    /// Claims the key, or finds its answer. `mine` makes the claim of the record that was written.
    pub(super) fn claiming<C: 'static>(
        self,
        mine: impl Fn(&Self, &Seen) -> Result<C> + Send + 'static,
    ) -> Exchange<Claimed<C>> {
        let (mut at, mut attempts) = (At::Begin, 0);
        Exchange::new(move |rows| {
            loop {
                match at {
                    At::Begin => at = if self.is_in_steps() { At::Insert } else { At::Lock },
                    At::Lock => match self.place.lock(&self.id, self.no_wait) {
                        Some(statement) => {
                            at = At::Locked;
                            return Ok(Ask::Run(statement));
                        }
                        None => at = At::Insert,
                    },
                    At::Locked => {
                        let is_free = rows.first().and_then(|row| Columns(row).int(0));
                        if is_free.ok_or_else(|| super::place::unreadable(&self.id))? == 0 {
                            at = At::Over;
                            return Ok(Ask::Done(Claimed::InProgress { lease: None }));
                        }
                        at = At::Insert;
                    }
                    At::Insert => {
                        at = At::Written;
                        let claim = self.claim(1, Vec::new());
                        return Ok(Ask::Run(self.place.insert(&self.id, claim, self.no_wait)));
                    }
                    At::Written => {
                        at = At::Looked;
                        return Ok(Ask::Run(self.place.look(&self.id)));
                    }
                    At::Looked => {
                        attempts += 1;
                        if attempts > MOST_ATTEMPTS {
                            return Err(contended(&self.id));
                        }
                        let seen = seen(&self.id, rows)?;
                        let decide = if self.is_in_steps() { decide_in_steps } else { decide };
                        match (decide(seen.as_ref(), self.owner, &self.fingerprint), seen) {
                            (Decision::Claim { expected: Some(version), runs }, Some(seen)) => {
                                at = At::Written;
                                let claim = self.claim(runs, continued(seen));
                                return Ok(Ask::Run(self.place.update(&self.id, version, claim)));
                            }
                            (Decision::Claim { .. }, _) => at = At::Insert,
                            (decision, seen) => {
                                at = At::Over;
                                return self.ended(decision, seen.as_ref(), &mine).map(Ask::Done);
                            }
                        }
                    }
                    At::Over => return Err(is_over()),
                }
            }
        })
    }

    fn ended<C>(
        &self,
        decision: Decision,
        seen: Option<&Seen>,
        mine: impl Fn(&Self, &Seen) -> Result<C>,
    ) -> Result<Claimed<C>> {
        Ok(match (decision, seen) {
            (Decision::Mine { .. }, Some(seen)) => Claimed::Mine(mine(self, seen)?),
            (Decision::Replay(Answer::Done(result)), _) => Claimed::Replayed(result),
            (Decision::Replay(Answer::Failed(answer)), _) => Claimed::Failed(answer),
            (Decision::Replay(Answer::TooLarge), _) => Claimed::ResultTooLarge,
            (Decision::InProgress { client, left }, _) => Claimed::InProgress { lease: Some((client, left)) },
            (Decision::PayloadMismatch, _) => Claimed::PayloadMismatch,
            (Decision::InSteps, _) => return Err(in_steps(&self.id)),
            (Decision::Claim { .. } | Decision::Mine { .. }, _) => return Err(contended(&self.id)),
        })
    }
}

/// Steps that were finished by a client that died; nothing of a record whose time is over.
fn continued(seen: Seen) -> Vec<u8> {
    if seen.record.state == State::InSteps && !seen.is_expired() { seen.record.result } else { Vec::new() }
}

/// A claim that was written, as its row says.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub plan: Plan,
    pub record: Record,
    pub version: u64,
}

impl Written {
    pub(super) fn new(plan: &Plan, seen: &Seen) -> Self {
        Self { plan: plan.clone(), record: seen.record.clone(), version: seen.version }
    }

    pub(super) fn fence(&self) -> u64 {
        self.record.fence.unwrap_or(0)
    }

    /// Writes over the claim, and makes sure that it was its own. `end` makes what the exchange returns.
    pub(super) fn writing<T: 'static>(
        &self,
        write: Write,
        end: impl Fn(Self) -> Result<T> + Send + 'static,
    ) -> Exchange<T> {
        let (before, mut at) = (self.clone(), At::Begin);
        Exchange::new(move |rows| {
            let id = &before.plan.id;
            match at {
                At::Begin => {
                    at = At::Written;
                    Ok(Ask::Run(before.plan.place.update(id, before.version, write.clone())))
                }
                At::Written => {
                    at = At::Looked;
                    Ok(Ask::Run(before.plan.place.look(id)))
                }
                At::Looked => {
                    at = At::Over;
                    let seen = seen(id, rows)?;
                    match (holding(seen.as_ref(), before.plan.owner, before.fence()), seen) {
                        (Holding::Mine { .. } | Holding::Ended, Some(seen))
                            if seen.version > before.version
                                && seen.record.state == write.record.state
                                && seen.record.result == write.record.result =>
                        {
                            end(Self::new(&before.plan, &seen)).map(Ask::Done)
                        }
                        _ => Err(taken_over(id, before.fence())),
                    }
                }
                At::Lock | At::Locked | At::Insert | At::Over => Err(is_over()),
            }
        })
    }
}

fn contended(id: &RecordId) -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        format!(
            "other clients changed the record of the key {:?} in {:?} again and again; roll back and try again",
            id.key, id.scope
        ),
    )
}

fn taken_over(id: &RecordId, fence: u64) -> Error {
    Error::new(
        ErrorKind::StaleToken,
        format!(
            "the claim {fence} of the key {:?} in {:?} is not the present one: another client has taken the work over, the \
             record was forgotten, or an earlier write of this claim was rolled back or committed meanwhile; roll back and \
             claim the key again",
            id.key, id.scope
        ),
    )
}
