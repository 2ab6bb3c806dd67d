//! Identities: the secret of one acquisition, the client process, and a caller's reentrancy id.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// The random secret of one acquisition; it proves the right to renew and to release.
///
/// 128 bits from the operating system, drawn again for every acquisition: reusing one would let a
/// late request of an earlier acquisition act on a later lease. `Debug` prints a short digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OwnerToken([u8; 16]);

impl OwnerToken {
    pub(crate) fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(ErrorKind::Internal, "the operating system gave no random bytes for an owner token")
                .with_source(error)
        })?;
        Ok(Self(bytes))
    }

    /// The 32 lower-case hexadecimal digits that stores keep.
    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The token of a record whose own was not read; no claim has it.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) const UNREAD: Self = Self([0; 16]);

    /// A seed for jitter, so that contenders that come together do not stay together.
    pub(crate) fn jitter_seed(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// A short digest that tells acquisitions apart without giving the secret away.
    pub(crate) fn digest(self) -> String {
        // FNV-1a: 32 bits of a 128-bit random secret cannot be turned back into it.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in self.0 {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hex(&((hash >> 32) as u32 ^ hash as u32).to_be_bytes())
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken(#{})", self.digest())
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Names one client process: `host:pid:random`.
///
/// Readable on purpose: an operator who finds it in a store knows which machine to look at. Host
/// names are shortened to 64 characters of letters, digits, dots and dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ClientId(String);

impl ClientId {
    pub(crate) fn new(host: &str, pid: u32) -> Result<Self> {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| {
            Error::new(ErrorKind::Internal, "the operating system gave no random bytes for a client id")
                .with_source(error)
        })?;
        let host: String = host
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
            .take(64)
            .collect();
        let host = if host.is_empty() { "unknown".into() } else { host };
        Ok(Self(format!("{host}:{pid}:{}", hex(&random))))
    }

    /// Reads an id back that was shown or kept elsewhere, such as in a recording: `host:pid:random`.
    ///
    /// Errors: `invalid_argument` unless it has these three parts, the second a number, without
    /// control characters and of at most 128 bytes.
    pub fn parse(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let well_formed = matches!(parts.as_slice(), [host, pid, random]
            if !host.is_empty() && pid.parse::<u32>().is_ok() && !random.is_empty());
        if !well_formed || text.len() > 128 || text.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{text:?} is not a client id; write host:pid:random, for example web-1:42:0a0b0c0d"),
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the whole id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host name part.
    pub fn host(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Returns the process id part, if it is a number.
    pub fn pid(&self) -> Option<u32> {
        self.0.split(':').nth(1)?.parse().ok()
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_token_survives_hex_and_hides_itself() {
        let token = OwnerToken::random().unwrap();
        assert_eq!(OwnerToken::from_hex(&token.to_hex()), Some(token));
        assert_ne!(token, OwnerToken::random().unwrap());
        assert!(!format!("{token:?}").contains(&token.to_hex()[..8]));
        assert_eq!(OwnerToken::from_hex("zz"), None);
    }

    #[test]
    fn a_client_id_tells_host_and_pid() {
        let id = ClientId::new("web-1.example\u{7}|x", 42).unwrap();
        assert_eq!(id.host(), "web-1.examplex");
        assert_eq!(id.pid(), Some(42));
    }

    #[test]
    fn a_client_id_is_read_back_and_other_text_is_refused() {
        let id = ClientId::new("web-1", 42).unwrap();
        assert_eq!(ClientId::parse(id.as_str()).unwrap(), id);
        for text in ["", "web-1", "web-1:42", "web-1:x:0a", ":1:a", "a:1:", "a:1:b:c", "a\u{7}:1:b"] {
            assert_eq!(ClientId::parse(text).unwrap_err().code(), "invalid_argument", "{text:?}");
        }
    }
}
