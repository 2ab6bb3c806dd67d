//! Guards for what a lock protects: the resource itself refuses a holder from before.
//!
//! A lease can end while its holder is paused, and a request that has already left cannot be called
//! back. So the last word belongs to the resource: it remembers the largest fencing token it has
//! seen and refuses smaller ones, in the same atomic step as the write. This module has that step
//! for SQL tables ([`FencedUpdate`]), for Redis keys ([`redis`]), for Consul keys (`consul`), for HTTP requests ([`http`]), and a
//! printable value that carries the token across processes ([`Sequencer`]). For a resource inside one
//! process there is [`TokenGate`]. Writes to SQL tables that need no lock are [`VersionedUpdate`] and
//! [`ConditionalUpdate`].
//!
//! Nothing here sends anything or needs a client library: you get texts, their parameters in order,
//! and the meaning of the answer.
//!
//! Three rules hold for every guard:
//!
//! - **Check and write are one step.** A check that is followed by a write lets a pause in between.
//! - **The token outlives the data.** Deleting the row or the key that keeps the token, or letting it
//!   expire, opens the door to every late writer.
//! - **Equal tokens pass.** They belong to one grant, whose holder may write more than once.

#[cfg(feature = "consul")]
pub mod consul;
pub mod http;
pub mod redis;
#[cfg(not(target_family = "wasm"))]
mod runs;
mod sequencer;
mod sql;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod transaction;

use std::fmt;

#[cfg(not(target_family = "wasm"))]
pub use runs::{
    Ask, Claimed, Exchange, RunClaim, SqlRow, SqlStatement, SqlValue, StepsClaim, TransactionRun,
    TransactionRunOptions, TransactionRuns, TransactionSteps,
};
pub use sequencer::Sequencer;
pub use sql::{
    Change, Compare, ConditionalUpdate, Conflict, FencedUpdate, Placeholders, Unchanged, VersionedUpdate,
};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use transaction::TransactionLock;

use crate::error::{Error, ErrorKind, Result};
use crate::policy::fencing::{FencingToken, TokenGate};

/// Fencing tokens are below this, so that doubles keep them exactly.
const TOKEN_END: u64 = 1 << 53;

/// A write that came too late: the resource has seen a newer holder's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The token of the refused write.
    pub token: FencingToken,
    /// The largest token that the resource has seen.
    pub largest: FencingToken,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fencing token {} is older than {}", self.token, self.largest)
    }
}

impl From<Refused> for Error {
    /// Makes the `stale_token` error that [`TokenGate`] would give.
    fn from(refused: Refused) -> Self {
        match TokenGate::resumed_at(refused.largest).admit(refused.token) {
            Err(error) => error,
            Ok(()) => Error::new(ErrorKind::StaleToken, refused.to_string()),
        }
    }
}

/// Returns a token as the signed number that databases bind.
///
/// Errors: `invalid_argument` if it is 2^53 or more, which no store of ours ever grants.
pub fn token_value(token: FencingToken) -> Result<i64> {
    match i64::try_from(token.get()) {
        Ok(value) if token.get() < TOKEN_END => Ok(value),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the fencing token {token} is not below 2^53; it did not come from a lock"),
        )),
    }
}

/// Reads a token from decimal digits as this crate prints them: no sign, no space, no leading zero.
fn parse_token(text: &str) -> std::result::Result<FencingToken, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err("the token is not a decimal number without sign and leading zeros".into());
    }
    match text.parse::<u64>() {
        Ok(value) if value < TOKEN_END => Ok(FencingToken::new(value)),
        _ => Err("the token is not below 2^53".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_printed_and_in_no_other_way() {
        for (text, value) in [("0", 0), ("34", 34), ("9007199254740991", TOKEN_END - 1)] {
            assert_eq!(parse_token(text), Ok(FencingToken::new(value)));
            assert_eq!(token_value(FencingToken::new(value)).unwrap(), i64::try_from(value).unwrap());
        }
        for text in
            ["", "+1", "-1", "01", "1 ", "0x1", "1e3", "١", "9007199254740992", "99999999999999999999"]
        {
            assert!(parse_token(text).is_err(), "{text:?}");
        }
        assert_eq!(token_value(FencingToken::new(TOKEN_END)).unwrap_err().code(), "invalid_argument");
    }

    #[test]
    fn a_refusal_is_the_same_error_as_a_gates() {
        let error = Error::from(Refused { token: FencingToken::new(33), largest: FencingToken::new(34) });
        assert_eq!(error.code(), "stale_token");
        assert!(error.to_string().contains("33") && error.to_string().contains("34"), "{error}");
    }
}
