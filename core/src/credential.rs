//! A secret that may be rotated while the program runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::address::Secret;
use crate::error::{Error, ErrorKind, Result};
use crate::params::Params;
use crate::wakeups::unpoisoned;

/// A secret, and where it is read again: a store that refuses the old one is reached with the new one,
/// without a restart. Cheap to clone; all clones have the same secret.
#[derive(Clone)]
pub(crate) struct Credential(Arc<Inner>);

struct Inner {
    source: Source,
    latest: Mutex<Secret>,
}

#[cfg_attr(
    all(target_family = "wasm", not(feature = "http")),
    allow(dead_code, reason = "the host program connects and logs in")
)]
enum Source {
    /// The URL, which does not change.
    Url,
    Variable(String),
    File(PathBuf),
}

impl Credential {
    /// A secret of the URL.
    pub(crate) fn given(secret: String) -> Self {
        Self::of(Source::Url, secret)
    }

    /// Reads the options `variable` and `file`, which name an environment variable and a file.
    pub(crate) fn from_params(
        params: &mut Params,
        variable: &'static str,
        file: &'static str,
    ) -> Result<Option<Self>> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        match (params.text(variable), params.text(file)) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(invalid(format!("give one of {variable} and {file}, not both"))),
            #[cfg(target_family = "wasm")]
            _ => Err(invalid(format!(
                "{variable} and {file} need the environment or the files of a process, which a JavaScript host does not \
                 have; give the secret itself"
            ))),
            #[cfg(not(target_family = "wasm"))]
            (Some(name), None) => {
                let secret = std::env::var(&name).map_err(|_| {
                    invalid(format!("{variable} names the variable {name}, which is not set"))
                })?;
                Ok(Some(Self::of(Source::Variable(name), secret)))
            }
            #[cfg(not(target_family = "wasm"))]
            (None, Some(path)) => {
                let secret = std::fs::read_to_string(&path).map_err(|error| {
                    invalid(format!("the file of {file}={path} cannot be read")).with_source(error)
                })?;
                let secret = without_line_end(secret);
                if secret.is_empty() {
                    return Err(invalid(format!("the file of {file}={path} is empty")));
                }
                Ok(Some(Self::of(Source::File(path.into()), secret)))
            }
        }
    }

    fn of(source: Source, secret: String) -> Self {
        Self(Arc::new(Inner { source, latest: Mutex::new(Secret(secret)) }))
    }

    /// The secret as it was read last.
    pub(crate) fn latest(&self) -> Secret {
        unpoisoned(&self.0.latest).clone()
    }

    /// Whether reading it again can give another one.
    #[cfg(feature = "http")]
    pub(crate) fn can_change(&self) -> bool {
        !matches!(self.0.source, Source::Url)
    }

    /// Reads it again, and returns whether it has changed. What cannot be read or is not accepted leaves the
    /// one before: a file may be read while it is written.
    #[cfg_attr(
        all(target_family = "wasm", not(feature = "http")),
        allow(dead_code, reason = "the host program connects and logs in")
    )]
    pub(crate) fn read_again(&self, accepts: impl Fn(&str) -> bool) -> bool {
        let read = match &self.0.source {
            Source::Url => None,
            Source::Variable(name) => std::env::var(name).ok(),
            Source::File(path) => std::fs::read_to_string(path).ok().map(without_line_end),
        };
        let Some(read) = read.filter(|secret| !secret.is_empty() && accepts(secret)) else { return false };
        let mut latest = unpoisoned(&self.0.latest);
        let changed = latest.0 != read;
        *latest = Secret(read);
        changed
    }
}

/// Editors and `echo` end a file with a line end, which belongs to no secret.
fn without_line_end(mut text: String) -> String {
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    text
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        self.latest() == other.latest()
    }
}

impl Eq for Credential {}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_and_an_unreadable_one_leaves_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let read = || {
            let pairs = [("password_file".to_owned(), path.display().to_string())];
            let mut params = Params::new("redis", pairs.into_iter()).unwrap();
            Credential::from_params(&mut params, "password_env", "password_file")
        };
        assert!(read().unwrap_err().to_string().contains("cannot be read"));
        std::fs::write(&path, "\n").unwrap();
        assert!(read().unwrap_err().to_string().contains("is empty"));
        std::fs::write(&path, "old one \n").unwrap();
        let credential = read().unwrap().unwrap();
        assert_eq!(credential.latest().0, "old one ");
        std::fs::write(&path, "new").unwrap();
        assert!(credential.clone().read_again(|_| true) && !credential.read_again(|_| true));
        assert_eq!(credential.latest().0, "new");
        std::fs::remove_file(&path).unwrap();
        assert!(!credential.read_again(|_| true));
        assert_eq!((credential.latest().0.as_str(), format!("{credential:?}").as_str()), ("new", "***"));
    }
}
