//! Idempotent work: what follows from the record of a key, without I/O.
//!
//! A store keeps one record for each key and can do one thing with it: replace it if it has not changed since it was
//! read. Everything else is decided here, the same for every store. Time is what the store says is left of a lease and of
//! a retention, by its own clock, when it read the record.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::in_range;
use crate::token::{ClientId, OwnerToken};

/// Longest scope, in bytes of UTF-8.
pub const MAX_SCOPE_BYTES: usize = 256;

/// Longest key, in bytes of UTF-8; the limit of HTTP services that take such keys.
pub const MAX_KEY_BYTES: usize = 255;

/// Longest fingerprint, in bytes of UTF-8: a SHA-512 in hexadecimal digits.
pub const MAX_FINGERPRINT_BYTES: usize = 128;

/// Largest result that is stored, in bytes.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// How long a result is kept unless the caller says otherwise.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest and longest retention that is not for ever: a second, and ten years.
const RETENTION: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3_660 * 24 * 60 * 60)];

/// How long the record of a claim whose client died is kept after the end of its lease. Its payload is still compared, and
/// it can be inspected.
pub(crate) const ABANDONED_KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a stored result answers repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// So long after the work has ended: 1 s to 10 years.
    For(Duration),
    /// Until it is forgotten by [`crate::idempotency::Idempotency::forget`].
    Forever,
}

impl Retention {
    /// Errors: `invalid_argument` that names the range.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::For(time) => in_range("retention", time, RETENTION[0], RETENTION[1]),
            Self::Forever => Ok(()),
        }
    }

    pub(crate) fn length(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Forever => None,
        }
    }
}

/// What a record is about. Tokens and keys of one scope do not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Key,
    Token,
}

/// Names a record: its kind, the scope and the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordId {
    pub kind: Kind,
    pub scope: String,
    pub key: String,
}

impl RecordId {
    /// Errors: `invalid_argument` for a scope or a key that is empty, too long or has a control character.
    pub(crate) fn new(kind: Kind, scope: &str, key: &str) -> Result<Self> {
        check_scope(scope)?;
        let what = match kind {
            Kind::Key => "key",
            Kind::Token => "token",
        };
        let way_out = "use what is unique to one request, such as a UUID that its client made";
        check_text(what, key, MAX_KEY_BYTES, way_out)?;
        Ok(Self { kind, scope: scope.to_owned(), key: key.to_owned() })
    }

    /// One text for all three parts. Scope and key have no control characters, so no two records share it.
    pub(crate) fn spelled(&self) -> String {
        let kind = match self.kind {
            Kind::Key => 'k',
            Kind::Token => 't',
        };
        format!("{kind}\u{1f}{}\u{1f}{}", self.scope, self.key)
    }

    /// Undoes [`RecordId::spelled`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('\u{1f}');
        let kind = match parts.next()? {
            "k" => Kind::Key,
            "t" => Kind::Token,
            _ => return None,
        };
        let (scope, key) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        parts.next().is_none().then_some(Self { kind, scope, key })
    }
}

/// Checks a scope. Errors: `invalid_argument`.
pub(crate) fn check_scope(scope: &str) -> Result<()> {
    let way_out = "name the operation and the caller, such as orders/customer-7: who has another scope never gets its \
                   answers";
    check_text("scope", scope, MAX_SCOPE_BYTES, way_out)
}

/// Checks a fingerprint. Errors: `invalid_argument`.
pub(crate) fn check_fingerprint(fingerprint: &str) -> Result<()> {
    let way_out = "use a digest of the payload, or leave it out";
    check_text("fingerprint", fingerprint, MAX_FINGERPRINT_BYTES, way_out)
}

fn check_text(what: &str, text: &str, most: usize, way_out: &str) -> Result<()> {
    let invalid = |rule: String| Err(Error::new(ErrorKind::InvalidArgument, format!("{rule}; {way_out}")));
    if text.is_empty() {
        return invalid(format!("the {what} of idempotent work is empty"));
    }
    if text.len() > most {
        let begin: String = text.chars().take(24).collect();
        return invalid(format!(
            "the {what} {begin:?}… has {} bytes; at most {most} are allowed, so shorten or hash it",
            text.len()
        ));
    }
    if let Some((at, bad)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return invalid(format!("the {what} {text:?} has the control character {bad:?} at byte {at}"));
    }
    Ok(())
}

/// What a record says of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// A client works on it, or did until its lease ended.
    Claimed,
    /// The same, in several transactions: the result is what they have finished, see [`super::progress`].
    InSteps,
    Done,
    /// It failed, and the failure is the answer.
    Failed,
    /// It is done, and its result was too large to be stored.
    TooLarge,
    /// A token that was not consumed yet.
    Issued,
    Consumed,
}

impl State {
    pub(crate) const ALL: [Self; 7] = [
        Self::Claimed,
        Self::InSteps,
        Self::Done,
        Self::Failed,
        Self::TooLarge,
        Self::Issued,
        Self::Consumed,
    ];

    /// As stores keep it.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::InSteps => "in-steps",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TooLarge => "too-large",
            Self::Issued => "issued",
            Self::Consumed => "consumed",
        }
    }

    pub(crate) fn parse(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

/// What a store keeps of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub state: State,
    /// The secret of the claim that wrote it last.
    pub owner: OwnerToken,
    /// Number of the claim; `None` in what is to be written as a new claim, which the store numbers, and where it was not
    /// read.
    pub fence: Option<u64>,
    /// Empty if the caller gave none.
    pub fingerprint: String,
    pub client: ClientId,
    /// How many claims there were, this one counted.
    pub runs: u32,
    /// The length of the lease.
    pub lease: Duration,
    pub renewals: u32,
    /// The result, the failure, or the finished steps; empty for all other states.
    pub result: Vec<u8>,
}

/// A record as it was read. Where a new claim finds work that is over, a store may read only what answers it: version,
/// retention, state, fingerprint and result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub record: Record,
    /// Larger after every write.
    pub version: u64,
    /// What is left of the lease of a claim; zero once it has ended.
    pub lease_left: Duration,
    /// What is left of its retention; `None`: for ever.
    pub keep_left: Option<Duration>,
    /// When it was written last, in milliseconds since 1970 by the wall clock of the store; for display.
    pub written_ms: u64,
    /// Size of the result, also where it was not read.
    pub result_bytes: u64,
}

impl Seen {
    /// Whether its retention is over: it counts as absent.
    pub(crate) fn is_expired(&self) -> bool {
        self.keep_left == Some(Duration::ZERO)
    }

    /// Whether a client works on it now.
    pub(crate) fn is_live_claim(&self) -> bool {
        let is_claim = matches!(self.record.state, State::Claimed | State::InSteps);
        is_claim && !self.lease_left.is_zero() && !self.is_expired()
    }
}

/// What a caller that wants the work done does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Write a claim over this version (`None`: over nothing), as run number `runs`.
    Claim { expected: Option<u64>, runs: u32 },
    /// The claim is the caller's already: the answer to its request was lost.
    Mine { fence: u64 },
    /// Another client works on it.
    InProgress { client: ClientId, left: Duration },
    /// The answer is stored.
    Replay(Answer),
    /// The key belongs to another payload.
    PayloadMismatch,
    /// The key belongs to work in steps whose claim has ended. Doing all of it would repeat what is finished.
    InSteps,
}

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(Vec<u8>),
    Failed(Vec<u8>),
    TooLarge,
}

/// Decides about a key.
///
/// A payload is compared with every record that is known, also with the claim of a client that died: its work may have
/// been done.
pub(crate) fn decide(seen: Option<&Seen>, owner: OwnerToken, fingerprint: &str) -> Decision {
    let Some(seen) = seen else { return Decision::Claim { expected: None, runs: 1 } };
    let record = &seen.record;
    if seen.is_expired() {
        return Decision::Claim { expected: Some(seen.version), runs: 1 };
    }
    if record.fingerprint != fingerprint {
        return Decision::PayloadMismatch;
    }
    match record.state {
        State::Claimed if record.owner == owner => Decision::Mine { fence: record.fence.unwrap_or(0) },
        State::Claimed | State::InSteps if seen.is_live_claim() => {
            Decision::InProgress { client: record.client.clone(), left: seen.lease_left }
        }
        State::InSteps => Decision::InSteps,
        State::Claimed => {
            Decision::Claim { expected: Some(seen.version), runs: record.runs.saturating_add(1) }
        }
        State::Done => Decision::Replay(Answer::Done(record.result.clone())),
        State::Failed => Decision::Replay(Answer::Failed(record.result.clone())),
        // Tokens have records of another kind; of one that is there nevertheless, nothing is overwritten.
        State::TooLarge | State::Issued | State::Consumed => Decision::Replay(Answer::TooLarge),
    }
}

/// The error of [`Decision::InSteps`].
pub(crate) fn in_steps(id: &RecordId) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "the key {:?} in {:?} belongs to work in steps that was not finished; continue it with TransactionSteps, or \
             forget the key",
            id.key, id.scope
        ),
    )
}

/// Decides about a key whose work is done in steps: as [`decide`], but such work is the caller's to continue.
pub(crate) fn decide_in_steps(seen: Option<&Seen>, owner: OwnerToken, fingerprint: &str) -> Decision {
    match (decide(seen, owner, fingerprint), seen) {
        (Decision::InProgress { .. } | Decision::InSteps, Some(Seen { record, .. }))
            if record.owner == owner =>
        {
            Decision::Mine { fence: record.fence.unwrap_or(0) }
        }
        (Decision::InSteps, Some(Seen { record, version, .. })) => {
            Decision::Claim { expected: Some(*version), runs: record.runs.saturating_add(1) }
        }
        (decision, _) => decision,
    }
}

/// What the holder of a claim does next to renew or to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// Write over this version.
    Mine { version: u64 },
    /// It has ended it already: the answer to that request was lost.
    Ended,
    /// Another client has it, or it was forgotten.
    Lost,
}

/// Decides whether a claim is still that of its owner. Its lease may be over: as long as no other client has claimed the
/// key, its result is the only one.
pub(crate) fn holding(seen: Option<&Seen>, owner: OwnerToken, fence: u64) -> Holding {
    match seen {
        Some(Seen { record, version, .. }) if record.owner == owner && record.fence == Some(fence) => {
            match record.state {
                State::Claimed | State::InSteps => Holding::Mine { version: *version },
                _ => Holding::Ended,
            }
        }
        _ => Holding::Lost,
    }
}

/// What comes of consuming a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consuming {
    /// Write "consumed" over this version, kept as long as the token would have been.
    First {
        version: u64,
        keep: Option<Duration>,
    },
    /// This call has consumed it: the answer to its request was lost.
    Mine,
    Duplicate,
    /// It was never issued, or its time is over.
    Unknown,
}

pub(crate) fn consuming(seen: Option<&Seen>, owner: OwnerToken) -> Consuming {
    let Some(seen) = seen.filter(|seen| !seen.is_expired()) else { return Consuming::Unknown };
    match seen.record.state {
        State::Issued => Consuming::First { version: seen.version, keep: seen.keep_left },
        State::Consumed if seen.record.owner == owner => Consuming::Mine,
        _ => Consuming::Duplicate,
    }
}

/// Returns a fingerprint of a payload: 32 hexadecimal digits.
///
/// It notices mistakes, such as one key for two orders. It is FNV-1a of 128 bits, so a client that wants to can make two
/// payloads with the same one, and harms only itself.
pub fn fingerprint_of(payload: &[u8]) -> String {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = payload.iter().fold(START, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
