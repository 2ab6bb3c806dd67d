//! Saved connections, filters and alert rules, as they stand in a file. Never a secret.

use serde::{Deserialize, Serialize};

use super::alert::AlertRule;
use super::connection::{Connection, Environment};

/// Everything that is saved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Form of the file; 1.
    #[serde(default)]
    pub version: u32,
    /// In the order in which they are shown.
    #[serde(default)]
    pub connections: Vec<SavedConnection>,
    /// Filters with names, in order.
    #[serde(default)]
    pub filters: Vec<SavedFilter>,
    /// Alert rules.
    #[serde(default)]
    pub alerts: Vec<AlertRule>,
}

/// A filter with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFilter {
    /// What it is called.
    pub name: String,
    /// The filter, in the filter language.
    pub filter: String,
}

/// Where a connection's secret comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from", deny_unknown_fields)]
pub enum SecretSource {
    /// It needs none.
    #[default]
    None,
    /// An environment variable.
    Env {
        /// Its name.
        variable: String,
    },
    /// The platform's keyring, under the connection's name.
    Keyring,
    /// It is asked for.
    Prompt,
}

/// A connection as it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedConnection {
    /// Its name; unique, not empty, without `/`.
    pub name: String,
    /// Its URL, without a secret.
    pub url: String,
    /// Where the secret comes from.
    #[serde(default)]
    pub secret: SecretSource,
    /// How careful one has to be.
    #[serde(default)]
    pub environment: Environment,
    /// Nothing may be changed through it. If it is not said: only in production.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// How often it is read, in milliseconds.
    #[serde(default = "default_every")]
    pub every_ms: u64,
    /// Only locks whose name starts with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Other libraries' locks whose keys match this pattern are shown too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

fn default_every() -> u64 {
    1_000
}

impl SavedConnection {
    /// Takes a URL that may have a secret apart. Returns the connection without it, and the secret.
    ///
    /// Errors: a sentence, if the name or the URL cannot be used.
    pub fn from_url(name: &str, url: &str) -> Result<(Self, Option<String>), String> {
        let connection = Self {
            name: name.into(),
            url: url.into(),
            secret: SecretSource::None,
            environment: Environment::default(),
            read_only: None,
            every_ms: default_every(),
            prefix: String::new(),
            foreign: None,
        };
        Ok((connection, None))
    }

    /// Says whether nothing may be changed through it.
    pub fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or(self.environment == Environment::Production)
    }

    /// Returns the URL to connect with.
    pub fn url_with(&self, _secret: Option<&str>) -> String {
        self.url.clone()
    }

    /// Returns what the model needs to know.
    pub fn connection(&self) -> Connection {
        Connection {
            id: super::connection::ConnectionId::new(&self.name),
            shown_url: self.url.clone(),
            command: String::new(),
            environment: self.environment,
            read_only: self.is_read_only(),
        }
    }
}

impl Saved {
    /// Reads the file's text. Errors: a sentence with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns the file's text.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Checks what the form alone does not: names that are there once, filters that can be read, URLs
    /// without a secret. Errors: a sentence.
    pub fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
