//! The filter language: free text, `state:deadlock`, `held>10m`, `-label:nightly`.

use std::fmt;

use super::rows::Row;

/// A filter, ready to be asked. The empty one lets everything through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    text: String,
}

/// Why a filter is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// Where the part that is wrong begins, in bytes of the text.
    pub at: usize,
    /// The part that is wrong.
    pub part: String,
    /// What is wrong with it, and what can be written instead.
    pub message: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.message)
    }
}

impl std::error::Error for FilterError {}

impl Filter {
    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { text: text.trim().to_owned() })
    }

    /// Returns the filter as it was typed, trimmed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Says whether everything passes.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Says whether a row passes, with its ages as of `now_ms`, the viewer's time.
    pub fn matches(&self, row: &Row, _now_ms: u64) -> bool {
        row.name.contains(&self.text)
    }
}
