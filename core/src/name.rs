//! Lock names: what is allowed, and how each store spells them.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "redis")]
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, ErrorKind, Result};

/// Longest lock name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 512;

/// Longest label, in bytes of UTF-8.
pub const MAX_LABEL_BYTES: usize = 256;

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// Every other character is allowed, so `orders/42`, `Größe` and `a:b{c}` are good names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// Errors: `invalid_argument` if it is empty, longer than 512 bytes, or has a control character.
    pub fn new(name: &str) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the lock name is empty; give it 1 to 512 bytes of text",
            ));
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the lock name {:?}… has {} bytes; at most {MAX_NAME_BYTES} are allowed, so shorten or hash it",
                    name.chars().take(24).collect::<String>(),
                    name.len()
                ),
            ));
        }
        if let Some((at, bad)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the lock name {name:?} has the control character {bad:?} at byte {at}; remove or escape it"
                ),
            ));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Spells the name for a Redis key: braces and percent signs are escaped, so that the key's own
    /// hash tag is the only one and two names never share a key.
    #[cfg(feature = "redis")]
    pub(crate) fn escaped_for_redis(&self) -> String {
        const SET: &AsciiSet = &CONTROLS.add(b'%').add(b'{').add(b'}');
        // Only the listed ASCII characters are escaped, so other languages' letters stay readable.
        encode(&self.0, SET)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Checks a label: at most 256 bytes without control characters.
pub(crate) fn check_label(label: &str) -> Result<()> {
    if label.len() > MAX_LABEL_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the label has {} bytes; at most {MAX_LABEL_BYTES} are allowed", label.len()),
        ));
    }
    if let Some(bad) = label.chars().find(|c| c.is_control()) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the label has the control character {bad:?}; remove it"),
        ));
    }
    Ok(())
}

/// Escapes a text for a field of a record whose fields are separated by `|`.
#[cfg(feature = "redis")]
pub(crate) fn escape_field(text: &str) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b'%').add(b'|');
    encode(text, SET)
}

/// Undoes [`escape_field`]. Text that was never escaped comes back as it is.
#[cfg(feature = "redis")]
pub(crate) fn unescape_field(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(feature = "redis")]
fn encode(text: &str, set: &'static AsciiSet) -> String {
    // Most names have nothing to escape.
    if utf8_percent_encode(text, set).next() == Some(text) {
        return text.to_owned();
    }
    // utf8_percent_encode escapes every non-ASCII byte; names should stay readable in a store.
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(|c: char| !c.is_ascii()) {
        let (ascii, tail) = match part.char_indices().next_back() {
            Some((at, c)) if !c.is_ascii() => part.split_at(at),
            _ => (part, ""),
        };
        out.extend(utf8_percent_encode(ascii, set));
        out.push_str(tail);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_told_with_the_rule() {
        for (name, part) in [
            ("", "empty"),
            ("a\nb", "control character '\\n' at byte 1"),
            (&"x".repeat(513), "513 bytes; at most 512"),
        ] {
            let error = LockName::new(name).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(LockName::new(&"x".repeat(512)).is_ok());
    }

    #[cfg(feature = "redis")]
    #[test]
    fn redis_spelling_keeps_names_apart_and_readable() {
        let spell = |name: &str| LockName::new(name).unwrap().escaped_for_redis();
        assert_eq!(spell("orders/42"), "orders/42");
        assert_eq!(spell("Größe:ß"), "Größe:ß");
        assert_eq!(spell("a{b}%"), "a%7Bb%7D%25");
        assert_ne!(spell("a%7B"), spell("a{"));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn fields_survive_escaping() {
        for text in ["plain", "a|b%c", "Größe | 100%"] {
            assert!(!escape_field(text).contains('|'));
            assert_eq!(unescape_field(&escape_field(text)), text);
        }
    }
}
