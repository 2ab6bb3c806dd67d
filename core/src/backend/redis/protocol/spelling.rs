//! How names and labels are spelled in keys and records.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::name::LockName;
#[cfg(not(target_family = "wasm"))]
use crate::policy::idempotency::RecordId;

/// Spells a lock name for a key: braces and percent signs are escaped, so that the key's own hash tag is the only
/// one and two names never share a key.
pub(crate) fn key_name(name: &LockName) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b'%').add(b'{').add(b'}');
    // Only the listed ASCII characters are escaped, so other languages' letters stay readable.
    encode(name.as_str(), SET)
}

/// Spells the name of a record for a key, as a lock's name is spelled. Its parts are separated by a control character,
/// which is escaped.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn record_name(id: &RecordId) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b'%').add(b'{').add(b'}');
    encode(&id.spelled(), SET)
}

/// Undoes [`record_name`].
#[cfg(not(target_family = "wasm"))]
pub(crate) fn record_of(name: &str) -> Option<RecordId> {
    RecordId::parse(&percent_decode_str(name).decode_utf8().ok()?)
}

/// Escapes a text for a field of a record whose fields are separated by `|`.
pub(crate) fn escape_field(text: &str) -> String {
    const SET: &AsciiSet = &CONTROLS.add(b'%').add(b'|');
    encode(text, SET)
}

/// Undoes [`escape_field`]. Text that was never escaped comes back as it is.
pub(crate) fn unescape_field(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

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
    fn redis_spelling_keeps_names_apart_and_readable() {
        let spell = |name: &str| key_name(&LockName::new(name).unwrap());
        assert_eq!(spell("orders/42"), "orders/42");
        assert_eq!(spell("Größe:ß"), "Größe:ß");
        assert_eq!(spell("a{b}%"), "a%7Bb%7D%25");
        assert_ne!(spell("a%7B"), spell("a{"));
    }

    #[test]
    fn fields_survive_escaping() {
        for text in ["plain", "a|b%c", "Größe | 100%"] {
            assert!(!escape_field(text).contains('|'));
            assert_eq!(unescape_field(&escape_field(text)), text);
        }
    }
}
