//! Reading, forgetting and deleting records, for operators.

use super::Idempotency;
use crate::backend::records::{Listing, Put, Swapped};
use crate::clock::millis;
use crate::driver::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::idempotency::{Kind, RecordId, Seen, State};
use crate::token::ClientId;

/// Most records that one listing or one purge is about.
const MOST: usize = 100_000;

/// What a record says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RecordState {
    /// A client works on it.
    Running,
    /// The client that worked on it died or lost its claim. The next run does the work.
    Abandoned,
    /// Its result is stored.
    Done,
    /// Its failure is stored.
    Failed,
    /// It is done, and its result was too large to be stored.
    TooLarge,
    /// A token that was not consumed.
    Issued,
    /// A token that was consumed.
    Consumed,
}

impl RecordState {
    /// Returns the stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Abandoned => "abandoned",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TooLarge => "too-large",
            Self::Issued => "issued",
            Self::Consumed => "consumed",
        }
    }
}

/// A record, without its result and without what proves a claim.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RecordView {
    /// Its scope.
    pub scope: String,
    /// Its key. Of a token, what follows its first 8 digits is left out: it is the secret of the form that has it.
    pub key: String,
    /// It is of a token, not of a key.
    pub is_token: bool,
    /// What it says.
    pub state: RecordState,
    /// The client that wrote it last.
    pub client: ClientId,
    /// The number of its claim.
    pub fence: u64,
    /// When that claim began, in ms since 1970 by the store's wall clock, unless that clock was set back since the claim
    /// before; 0 of a token.
    pub claimed_at_ms: u64,
    /// How many runs began since the key was free.
    pub runs: u32,
    /// How often the claim was renewed.
    pub renewals: u32,
    /// What its payload is recognized by; empty if the caller gave nothing.
    pub fingerprint: String,
    /// The length of the claim's lease, in ms.
    pub lease_ms: u64,
    /// What is left of the lease, in ms; 0 unless it is running.
    pub lease_left_ms: u64,
    /// What is left of its retention, in ms; `None`: for ever.
    pub keep_left_ms: Option<u64>,
    /// When it was written last, in ms since 1970 by the store's wall clock.
    pub written_at_ms: u64,
    /// Size of the stored answer, in bytes.
    pub result_bytes: u64,
    /// Changes with every write.
    pub version: u64,
}

impl RecordView {
    /// Makes one of a first claim, without times: for tests of what shows records.
    pub fn new(
        scope: impl Into<String>,
        key: impl Into<String>,
        state: RecordState,
        client: ClientId,
    ) -> Self {
        Self {
            scope: scope.into(),
            key: key.into(),
            is_token: false,
            state,
            client,
            fence: 0,
            claimed_at_ms: 0,
            runs: 1,
            renewals: 0,
            fingerprint: String::new(),
            lease_ms: 0,
            lease_left_ms: 0,
            keep_left_ms: None,
            written_at_ms: 0,
            result_bytes: 0,
            version: 0,
        }
    }

    fn of(id: &RecordId, seen: &Seen) -> Self {
        let record = &seen.record;
        let is_token = id.kind == Kind::Token;
        let key = if is_token { id.key.chars().take(8).collect::<String>() + "…" } else { id.key.clone() };
        let is_live = seen.is_live_claim();
        Self {
            scope: id.scope.clone(),
            key,
            is_token,
            state: match record.state {
                State::Claimed | State::InSteps if is_live => RecordState::Running,
                State::Claimed | State::InSteps => RecordState::Abandoned,
                State::Done => RecordState::Done,
                State::Failed => RecordState::Failed,
                State::TooLarge => RecordState::TooLarge,
                State::Issued => RecordState::Issued,
                State::Consumed => RecordState::Consumed,
            },
            client: record.client.clone(),
            fence: record.fence.unwrap_or(0),
            // A store numbers claims by its clock in µs.
            claimed_at_ms: if is_token { 0 } else { record.fence.unwrap_or(0) / 1000 },
            runs: record.runs,
            renewals: record.renewals,
            fingerprint: record.fingerprint.clone(),
            lease_ms: millis(record.lease),
            lease_left_ms: if is_live { millis(seen.lease_left) } else { 0 },
            keep_left_ms: seen.keep_left.map(millis),
            written_at_ms: seen.written_ms,
            result_bytes: seen.result_bytes,
            version: seen.version,
        }
    }
}

/// What came of forgetting a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// It is gone, and the next run does the work again.
    Forgotten,
    /// There is none.
    Absent,
    /// A client works on it; nothing was changed.
    Running(Box<RecordView>),
}

/// The records of a store, for operators; see [`crate::Polylatch::idempotency_records`].
#[derive(Debug, Clone)]
pub struct RecordInspector {
    core: Handle,
}

impl RecordInspector {
    pub(crate) fn new(core: Handle) -> Self {
        Self { core }
    }

    /// Lists the records of the scopes that begin with `scope_prefix` (all, if it is empty) in the order of scopes and
    /// keys, at most 100 000, results and records whose retention is over left out. Redis and a cluster are scanned for
    /// it, key by key.
    ///
    /// Errors: `unsupported` for a store without records, `backend_unavailable`, `backend_rejected`.
    pub async fn list(&self, scope_prefix: &str, most: usize) -> Result<Vec<RecordView>> {
        let listing = Listing { scope_prefix: scope_prefix.to_owned(), most: most.min(MOST) };
        let records = self.core.backend.records()?.list(&listing).await?;
        Ok(records.iter().map(|(id, seen)| RecordView::of(id, seen)).collect())
    }

    /// Reads the record of a key; `None` if there is none, or its retention is over.
    ///
    /// Errors: as of [`RecordInspector::list`], and `invalid_argument`.
    pub async fn show(&self, scope: &str, key: &str) -> Result<Option<RecordView>> {
        let id = RecordId::new(Kind::Key, scope, key)?;
        Ok(self.read(&id).await?.map(|seen| RecordView::of(&id, &seen)))
    }

    /// Deletes the record of a key, so that its work is done again. One whose work is running is left alone, unless
    /// `even_if_running`: its client then loses its claim at its next renewal, and another may run beside it until then.
    ///
    /// Errors: as of [`RecordInspector::show`].
    pub async fn forget(&self, scope: &str, key: &str, even_if_running: bool) -> Result<Forgotten> {
        let id = RecordId::new(Kind::Key, scope, key)?;
        let mut seen = self.read(&id).await?;
        while let Some(found) = seen {
            if found.is_live_claim() && !even_if_running {
                return Ok(Forgotten::Running(Box::new(RecordView::of(&id, &found))));
            }
            let records = self.core.backend.records()?;
            let asked = records.swap(&id, Some(found.version), Put::Delete);
            seen = match self.core.service.within(self.core.settings.timeout, asked).await? {
                Swapped::Done { .. } => return Ok(Forgotten::Forgotten),
                Swapped::Refused(seen) => seen.filter(|seen| !seen.is_expired()),
            };
        }
        Ok(Forgotten::Absent)
    }

    /// Deletes records whose retention is over, at most so many (1 to 100 000), and says how many. Clients do so by
    /// themselves, 256 in one of 64 runs; Redis does it on its own, so there it is always 0.
    ///
    /// Errors: as of [`RecordInspector::list`], and `invalid_argument` for another number.
    pub async fn purge(&self, most: usize) -> Result<u64> {
        if most == 0 || most > MOST {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("one purge deletes 1 to {MOST} records, not {most}; repeat it for more"),
            ));
        }
        self.core.backend.records()?.purge(most).await
    }

    async fn read(&self, id: &RecordId) -> Result<Option<Seen>> {
        let asked = self.core.backend.records()?.read(id);
        let seen = self.core.service.within(self.core.settings.timeout, asked).await?;
        Ok(seen.filter(|seen| !seen.is_expired()))
    }
}

impl Idempotency {
    /// Deletes what is stored for a key of this scope, so that its work is done again; see [`RecordInspector::forget`].
    pub async fn forget(&self, key: &str) -> Result<Forgotten> {
        RecordInspector::new(self.core.clone()).forget(&self.scope, key, false).await
    }

    /// Reads the record of a key of this scope; see [`RecordInspector::show`].
    pub async fn show(&self, key: &str) -> Result<Option<RecordView>> {
        RecordInspector::new(self.core.clone()).show(&self.scope, key).await
    }
}
