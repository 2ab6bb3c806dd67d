//! How much an event matters, and from where on a program wants to know.

use crate::failure::Failure;

/// How much an event matters. As what a listener wants: this level and those above it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What comes with every lock: acquired at once, released; single requests that are tried again.
    Debug,
    /// Waits, and what is well again.
    #[default]
    Info,
    /// A lease or a promise is at risk.
    Warn,
    /// A lease is lost.
    Error,
}

impl Level {
    /// All of them, those that matter most first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Returns the level as a word, the same in every language.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// Reads what a program gave as the option `level`.
    ///
    /// Errors: `invalid_config` for anything else, with the levels that there are.
    pub fn of_option(given: &str) -> Result<Self, Failure> {
        let known = Self::ALL.map(Self::word);
        Self::ALL.into_iter().find(|level| level.word() == given).ok_or_else(|| {
            let known = known.join(", ");
            Failure::invalid_config(format!("the option level is {given:?}; it must be one of {known}"))
        })
    }
}
