//! Fencing tokens, and the gate that a protected resource puts them through.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// A number that grows with every grant of a lock; give it to the protected resource.
///
/// Always below 2^53, so that scripts and languages whose numbers are doubles keep it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps a number that came from a guard, for example out of a message or an environment variable.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far the order of fencing tokens can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FenceQuality {
    /// There is no token.
    None,
    /// Strictly growing while the store keeps its data; after a loss of data, growing because the
    /// store's wall clock did, so only if that clock did not step back by more than the outage.
    TimeFloored,
    /// Strictly growing, whatever happens to one process of the store.
    Strict,
}

impl FenceQuality {
    /// Returns the stable code, the same in every language.
    pub fn code(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TimeFloored => "time-floored",
            Self::Strict => "strict",
        }
    }
}

/// Remembers the largest fencing token that a resource has seen, and refuses smaller ones.
///
/// One gate guards one resource that is protected by one lock. Equal tokens pass: they come from the
/// same holder. The gate must live where the resource's state lives (see the examples for SQL and
/// Redis forms); this one is for resources inside a process.
///
/// ```
/// use polylatch::{FencingToken, TokenGate};
/// let mut gate = TokenGate::new();
/// gate.admit(FencingToken::new(34)).unwrap();
/// let late = gate.admit(FencingToken::new(33)).unwrap_err();
/// assert_eq!(late.code(), "stale_token");
/// ```
#[derive(Debug, Clone, Default)]
pub struct TokenGate {
    largest: Option<FencingToken>,
}

impl TokenGate {
    /// Makes a gate that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a gate that continues from the largest token seen so far.
    pub fn resumed_at(largest: FencingToken) -> Self {
        Self { largest: Some(largest) }
    }

    /// Lets a write with this token pass, or refuses it because a newer holder was here before.
    ///
    /// Errors: `stale_token` with both numbers.
    pub fn admit(&mut self, token: FencingToken) -> Result<()> {
        if let Some(largest) = self.largest
            && token < largest
        {
            return Err(Error::new(
                ErrorKind::StaleToken,
                format!(
                    "the fencing token {token} is older than {largest}, which was seen before: \
                     the lock has a newer holder, so this write is refused"
                ),
            ));
        }
        self.largest = Some(token);
        Ok(())
    }

    /// Returns the largest token seen.
    pub fn largest(&self) -> Option<FencingToken> {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_admits_equal_and_newer_tokens_only() {
        let mut gate = TokenGate::new();
        gate.admit(FencingToken::new(5)).unwrap();
        gate.admit(FencingToken::new(5)).unwrap();
        gate.admit(FencingToken::new(9)).unwrap();
        let error = gate.admit(FencingToken::new(8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StaleToken);
        assert!(error.to_string().contains('8') && error.to_string().contains('9'));
        assert_eq!(gate.largest(), Some(FencingToken::new(9)));
        assert!(TokenGate::resumed_at(FencingToken::new(9)).admit(FencingToken::new(1)).is_err());
    }
}
