//! Why a request failed: whether it is over, and whether to try again.

use crate::error::Error;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection ended, or could not be opened. `sent`: the request may have been carried out.
    Lost { error: Error, sent: bool },
    /// Another transaction was in the way; nothing was done, and the same again may succeed.
    Collision(Error),
    /// The server refused; nothing was done. The code is the server's.
    Refused { code: String, error: Error },
}

impl Failure {
    /// Whether the same request may help, at once.
    pub(crate) fn may_repeat(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Lost { error, .. } | Self::Collision(error) | Self::Refused { error, .. } => error,
        }
    }

    /// The server's code of a refusal.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            _ => "",
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused { code: String::new(), error }
    }
}
