//! What a URL says about the file.

use std::time::Duration;

use crate::error::Result;
use crate::params::Params;

/// What a URL can say about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqliteOptions {
    /// How long a request waits for the transactions of other processes, 2 s by default. Shorter
    /// reports a blocked file sooner; longer rides out a backup or an open database shell.
    pub busy_timeout: Duration,
    /// Use the file even where it seems to be on a network or shared file system. Off by default:
    /// file locks that do not work there give one lock to two holders.
    pub allow_network_file_system: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(2), allow_network_file_system: false }
    }
}

impl SqliteOptions {
    /// Takes the options of this store out of a URL's parameters.
    pub(crate) fn from_params(params: &mut Params) -> Result<Self> {
        let default = Self::default();
        Ok(Self {
            busy_timeout: params.duration(
                "busy_timeout",
                default.busy_timeout,
                Duration::from_millis(10),
                Duration::from_secs(60),
            )?,
            allow_network_file_system: params.choice(
                "allow_network_file_system",
                &[("yes", true), ("no", false)],
                default.allow_network_file_system,
            )?,
        })
    }
}
