//! A lock's name, its holder and its fencing token as one printable value.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::parse_token;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::token::ClientId;

/// Longest printed sequencer: a name of 512 bytes and a holder of 128, all of them escaped.
const MAX_BYTES: usize = 2_048;

/// Longest holder, in bytes.
const MAX_HOLDER_BYTES: usize = 128;

/// Everything but letters, digits and these is escaped: visible ASCII without separators is left.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'@');

/// A lock's name, its holder and its fencing token as one printable value.
///
/// It travels in messages, headers, job arguments and logs:
/// `name=orders/42; holder=web-1:4711:9f3a01bc; token=34`. The holder is for display and may be
/// left out; what a guard judges is name and token. Every value has exactly one spelling, which is
/// ASCII without control characters, so it fits an HTTP header.
///
/// A sequencer proves nothing: a client that can send one can invent a token. It tells late writers from
/// present ones, not friends from foes.
///
/// ```
/// use polylatch::resource::Sequencer;
/// let text = "name=orders/42; holder=web-1:4711:9f3a01bc; token=34";
/// let sequencer: Sequencer = text.parse().unwrap();
/// assert_eq!((sequencer.name(), sequencer.token().get()), ("orders/42", 34));
/// assert_eq!(sequencer.to_string(), text);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    name: LockName,
    holder: Option<String>,
    token: FencingToken,
}

impl Sequencer {
    /// Says which grant of a lock this is, without saying whose.
    ///
    /// Errors: `invalid_argument` for an impossible name or a token of 2^53 or more.
    pub fn new(name: &str, token: FencingToken) -> Result<Self> {
        super::token_value(token)?;
        Ok(Self { name: LockName::new(name)?, holder: None, token })
    }

    /// Describes a held lock; see [`crate::Guard::sequencer`].
    pub(crate) fn of(name: &LockName, holder: &ClientId, token: FencingToken) -> Self {
        Self { name: name.clone(), holder: Some(holder.as_str().to_owned()), token }
    }

    /// Adds who holds it, for display.
    ///
    /// Errors: `invalid_argument` unless it has 1 to 128 bytes without control characters.
    pub fn with_holder(mut self, holder: &str) -> Result<Self> {
        if holder.is_empty() || holder.len() > MAX_HOLDER_BYTES || holder.chars().any(char::is_control) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the holder must have 1 to {MAX_HOLDER_BYTES} bytes without control characters"),
            ));
        }
        self.holder = Some(holder.to_owned());
        Ok(self)
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns who holds it, if that was said.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// Returns the fencing token of the grant.
    pub fn token(&self) -> FencingToken {
        self.token
    }
}

impl fmt::Display for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name={}; ", utf8_percent_encode(self.name.as_str(), ESCAPED))?;
        if let Some(holder) = &self.holder {
            write!(f, "holder={}; ", utf8_percent_encode(holder, ESCAPED))?;
        }
        write!(f, "token={}", self.token)
    }
}

impl FromStr for Sequencer {
    type Err = Error;

    /// Reads what `Display` writes, and nothing else: one spelling for one meaning.
    ///
    /// Errors: `invalid_argument` with the rule that was broken. The text itself is not repeated,
    /// because it may come from any client.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|rule| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("this is no sequencer such as \"name=orders/42; token=34\": {rule}"),
            )
        })
    }
}

fn parse(text: &str) -> std::result::Result<Sequencer, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_BYTES} are allowed", text.len()));
    }
    let mut parts = text.split("; ");
    let mut field = |key: &str| -> std::result::Result<&str, String> {
        let value =
            parts.next().and_then(|part| part.strip_prefix(key)).and_then(|rest| rest.strip_prefix('='));
        value.ok_or_else(|| format!("{key}= is missing or not in its place"))
    };
    let name = decode("name", field("name")?)?;
    let has_holder = text.matches("; ").count() == 2;
    let holder = if has_holder { Some(decode("holder", field("holder")?)?) } else { None };
    let token = parse_token(field("token")?)?;
    if parts.next().is_some() {
        return Err("it has more parts than name, holder and token".into());
    }
    let message = |error: Error| error.message().to_owned();
    let sequencer = Sequencer::new(&name, token).map_err(message)?;
    let sequencer = match holder {
        Some(holder) => sequencer.with_holder(&holder).map_err(message)?,
        None => sequencer,
    };
    // Two spellings of one value would be two values where texts are compared.
    if sequencer.to_string() == text {
        Ok(sequencer)
    } else {
        Err("a character is escaped needlessly".into())
    }
}

fn decode(key: &str, value: &str) -> std::result::Result<String, String> {
    let bad = || format!("the {key} has a character that must be escaped as %XX, or is not UTF-8");
    // Escapes the encoder would not write are found by comparing the result; raw ones are found here.
    let plain = |byte: u8| byte == b'%' || byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    if !value.bytes().all(plain) {
        return Err(bad());
    }
    percent_decode_str(value).decode_utf8().map(|text| text.into_owned()).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_holder_survives() {
        for (name, holder) in [
            ("orders/42", None),
            ("a; token=1", Some("b; token=2")),
            ("100%=x;", Some("web-1:4711:9f3a01bc")),
            ("Größe 注文", Some("Jürgen, \"x\"")),
            (&"%".repeat(512), Some(&*"=".repeat(128))),
        ] {
            let mut sequencer = Sequencer::new(name, FencingToken::new(34)).unwrap();
            if let Some(holder) = holder {
                sequencer = sequencer.with_holder(holder).unwrap();
            }
            let text = sequencer.to_string();
            assert!(
                text.len() <= MAX_BYTES && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{text}"
            );
            assert_eq!(text.parse::<Sequencer>().unwrap(), sequencer, "{text}");
        }
    }

    #[test]
    fn nothing_but_the_one_spelling_is_read() {
        for text in [
            "",
            "34",
            "token=34",
            "name=a",
            "name=; token=34",
            "name=a;token=34",
            "name=a; token=34 ",
            " name=a; token=34",
            "name=a; token=034",
            "name=a; token=-1",
            "name=a; token=9007199254740992",
            "name=a; token=34; token=35",
            "name=a; name=b; token=34",
            "name=a; holder=; token=34",
            "name=a; holder=b; holder=c; token=34",
            "name=a; holder=b; token=34; x=y",
            "token=34; name=a",
            "Name=a; token=34",
            "name=a b; token=34",
            "name=%61; token=34",
            "name=%2f; token=34",
            "name=%c3%a4; token=34",
            "name=%ff; token=34",
            "name=%0A; token=34",
            "name=%2; token=34",
            "name=ä; token=34",
            "name=a\r\nx; token=34",
            "name=a; holder=%00; token=34",
        ] {
            let error = text.parse::<Sequencer>().expect_err(text);
            assert_eq!(error.code(), "invalid_argument", "{text:?}");
            assert!(!error.to_string().contains('\r'));
        }
        let long = format!("name={}; token=1", "a".repeat(3_000));
        assert!(long.parse::<Sequencer>().unwrap_err().to_string().contains("at most 2048"));
        assert!("name=%20b; token=34".parse::<Sequencer>().is_ok());
    }
}
