//! The finished steps of idempotent work that is done in several transactions, as its record keeps them.
//!
//! Each step in order: one byte for the length of its name, the name, four bytes (least first) for the length of its
//! value, the value.

use crate::error::{Error, ErrorKind, Result};

use super::idempotency::MAX_RESULT_BYTES;

/// Longest name of a step, in bytes of UTF-8.
const MAX_STEP_BYTES: usize = 100;

/// Names and values of the finished steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Steps(Vec<(String, Vec<u8>)>);

impl Steps {
    /// The steps in the order in which they were finished.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The value of a finished step.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// These steps, and one more.
    ///
    /// Errors: `invalid_argument` for a name that is empty, longer than 100 bytes or has a control character, for a step
    /// that is finished already, and for values of more than 1 MiB in all.
    pub(crate) fn with(&self, name: &str, value: &[u8]) -> Result<Self> {
        let invalid = |rule: String| Err(Error::new(ErrorKind::InvalidArgument, rule));
        if name.is_empty() || name.len() > MAX_STEP_BYTES || name.chars().any(char::is_control) {
            let shown: String = name.chars().take(24).collect();
            return invalid(format!(
                "the name {shown:?} of a step must have 1 to {MAX_STEP_BYTES} bytes without control characters"
            ));
        }
        if self.value(name).is_some() {
            return invalid(format!(
                "the step {name:?} is finished already; ask for its value before its work is done"
            ));
        }
        let mut more = self.clone();
        more.0.push((name.to_owned(), value.to_vec()));
        let size = more.encode().len();
        if size > MAX_RESULT_BYTES {
            return invalid(format!(
                "with the step {name:?} the finished steps have {size} bytes; at most {MAX_RESULT_BYTES} are kept, so \
                 return references instead of values"
            ));
        }
        Ok(more)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in self.iter() {
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// `None` for bytes in another form.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut steps = Vec::new();
        while let Some((length, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (value, rest) = rest.split_at_checked(length)?;
            steps.push((String::from_utf8(name.to_vec()).ok()?, value.to_vec()));
            bytes = rest;
        }
        Some(Self(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_are_written_and_nothing_else_is_read() {
        let none = Steps::default();
        let two = none.with("card", b"c-1").unwrap().with("größe", &[0, 255]).unwrap();
        assert_eq!(Steps::decode(&two.encode()), Some(two.clone()));
        assert_eq!(Steps::decode(&none.encode()), Some(none));
        assert_eq!((two.value("card"), two.value("mail")), (Some(&b"c-1"[..]), None));
        let bytes = two.encode();
        // A cut between two steps reads as the first one.
        let whole = Steps::default().with("card", b"c-1").unwrap().encode().len();
        for end in (1..bytes.len()).filter(|end| *end != whole) {
            assert_eq!(Steps::decode(&bytes[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_step_has_a_name_and_is_finished_once_and_all_of_them_have_a_size() {
        let one = Steps::default().with("card", b"").unwrap();
        let long = "x".repeat(101);
        for (name, value, part) in [
            ("", &b""[..], "1 to 100 bytes"),
            (long.as_str(), b"", "1 to 100 bytes"),
            ("a\nb", b"", "control characters"),
            ("card", b"", "finished already"),
            ("mail", &[0; MAX_RESULT_BYTES], "at most 1048576"),
        ] {
            let error = one.with(name, value).unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
