//! Tokens that can be consumed once.

use std::time::Duration;

use super::Idempotency;
use crate::backend::records::{Put, Swapped};
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{Consuming, Kind, Record, RecordId, Retention, State, consuming};
use crate::token::OwnerToken;

/// What came of consuming a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// This call consumed it.
    First,
    /// Another call has consumed it before.
    Duplicate,
    /// It was never issued in this scope, or its time is over.
    Unknown,
}

impl Idempotency {
    /// Issues a token that can be consumed once within `ttl`, 1 s to 10 years: 32 hexadecimal digits, 128 random bits.
    ///
    /// Every form then costs a request for its token, also those that are never sent twice. Where the client can make a
    /// key, [`Idempotency::run`] needs none, and it answers repetitions.
    ///
    /// Errors: `invalid_argument`, `unsupported`, and those of the store.
    pub async fn issue(&self, ttl: Duration) -> Result<String> {
        Retention::For(ttl).check()?;
        let token = OwnerToken::random()?.to_hex();
        let id = RecordId::new(Kind::Token, &self.scope, &token)?;
        let record = self.token_record(State::Issued, OwnerToken::random()?);
        match self.swap(&id, None, Put::Write { record, lease: None, keep: Some(ttl) }).await? {
            Swapped::Done { .. } => Ok(token),
            // A request that was sent again after its answer was lost.
            Swapped::Refused(Some(seen)) if seen.record.state == State::Issued => Ok(token),
            Swapped::Refused(_) => {
                Err(Error::new(ErrorKind::Internal, "a new token is in use already; please report this"))
            }
        }
    }

    /// Consumes a token. However many calls do so at the same time, one is the first.
    ///
    /// Before the work: work that fails or dies afterwards is not done, and its form cannot be sent again. After the work: two
    /// requests at the same time both do it. Before it, and in the transaction of the work, or with [`Idempotency::run`], is
    /// the only form without either.
    ///
    /// Errors: `invalid_argument` for a text that no token has, `unsupported`, and those of the store. If an error's effect
    /// is `maybe`, the token may be consumed.
    pub async fn consume(&self, token: &str) -> Result<Consumed> {
        let id = RecordId::new(Kind::Token, &self.scope, token)?;
        let owner = OwnerToken::random()?;
        self.core.check_open()?;
        let records = self.core.backend.records()?;
        let mut seen = self.core.service.within(self.core.settings.timeout, records.read(&id)).await?;
        loop {
            match consuming(seen.as_ref(), owner) {
                Consuming::Unknown => return Ok(Consumed::Unknown),
                Consuming::Duplicate => return Ok(Consumed::Duplicate),
                Consuming::Mine => return Ok(Consumed::First),
                Consuming::First { version, keep } => {
                    let record = self.token_record(State::Consumed, owner);
                    let put = Put::Write { record, lease: None, keep };
                    match self.swap(&id, Some(version), put).await? {
                        Swapped::Done { .. } => return Ok(Consumed::First),
                        Swapped::Refused(now) => seen = now,
                    }
                }
            }
        }
    }

    async fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Result<Swapped> {
        self.core.check_open()?;
        let asked = self.core.backend.records()?.swap(id, expected, put);
        self.core.service.within(self.core.settings.timeout, asked).await
    }

    fn token_record(&self, state: State, owner: OwnerToken) -> Record {
        Record {
            state,
            owner,
            fence: None,
            fingerprint: String::new(),
            client: self.core.client.id.clone(),
            runs: 0,
            lease: Duration::ZERO,
            renewals: 0,
            result: Vec::new(),
        }
    }
}
