//! A script call, and what a script answers.

use super::scripts::Script;
use crate::error::{Effect, Error, ErrorKind, Result};

/// One script call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub script: &'static Script,
    pub keys: Vec<String>,
    pub args: Vec<String>,
}

/// What a script answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Data>),
}

impl Data {
    pub(crate) fn list(self) -> Result<Vec<Data>> {
        match self {
            Self::List(items) => Ok(items),
            other => Err(other.unexpected("a list")),
        }
    }

    pub(crate) fn text(&self) -> Result<String> {
        match self {
            Self::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            Self::Int(number) => Ok(number.to_string()),
            other => Err(other.unexpected("a text")),
        }
    }

    pub(crate) fn int(&self) -> Result<i64> {
        match self {
            Self::Int(number) => Ok(*number),
            Self::Bytes(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| self.unexpected("a number")),
            other => Err(other.unexpected("a number")),
        }
    }

    pub(crate) fn uint(&self) -> Result<u64> {
        u64::try_from(self.int()?).map_err(|_| self.unexpected("a number that is not negative"))
    }

    fn unexpected(&self, wanted: &str) -> Error {
        Error::new(
            ErrorKind::Internal,
            format!("a script answered something else than {wanted}; please report this: {self:?}"),
        )
    }
}

/// What a script that answers less than it should is told as.
pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Internal, "a script answered with too few fields; please report this")
        .with_effect(Effect::Maybe)
}
