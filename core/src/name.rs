//! Lock names and labels: what is allowed.

use std::fmt;
use std::sync::Arc;

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
}
