//! What a connection is called, where it leads, and what may be done through it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::text::command_for_shown;

/// Names a connection: what it is saved, shown and linked to as. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ConnectionId(Arc<str>);

impl ConnectionId {
    /// Takes a name as it is.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name; not sanitized.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ConnectionId {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<ConnectionId> for String {
    fn from(id: ConnectionId) -> Self {
        id.as_str().to_owned()
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How careful one has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// A developer's own.
    #[default]
    Development,
    /// Shared, for tests.
    Staging,
    /// The real thing; read-only until that is changed.
    Production,
}

impl Environment {
    /// All, the least severe first.
    pub const ALL: [Self; 3] = [Self::Development, Self::Staging, Self::Production];

    /// Returns the word that is shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Staging => "staging",
            Self::Production => "production",
        }
    }
}

/// A store as the model knows it. Never has a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its name.
    pub id: ConnectionId,
    /// Its URL without secrets.
    pub shown_url: String,
    /// How the command line is called for it, such as `polylatch --url redis://cache`. It is shown to be
    /// copied, so it is never read from a file, but made from the URL that is shown.
    #[serde(skip_deserializing)]
    pub command: String,
    /// How careful one has to be.
    #[serde(default)]
    pub environment: Environment,
    /// Nothing may be changed through it.
    #[serde(default)]
    pub read_only: bool,
}

impl Connection {
    /// Completes a connection from a file that anyone may have written: the command is made
    /// from the URL that is shown.
    pub(super) fn read_from_file(self) -> Self {
        Self { command: command_for_shown(&self.shown_url), ..self }
    }
}
