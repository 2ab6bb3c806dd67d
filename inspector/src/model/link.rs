//! Deep links: `polylatch://connection/lock?at=time`.

use super::connection::ConnectionId;

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The connection, by its name.
    pub connection: ConnectionId,
    /// The lock; `None` leads to the connection.
    pub lock: Option<String>,
    /// A moment, in milliseconds since the Unix epoch.
    pub at_ms: Option<u64>,
}

impl Link {
    /// Reads a link. Errors: a sentence that names the part that is wrong.
    pub fn parse(_text: &str) -> Result<Self, String> {
        Err("not read yet".into())
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "polylatch://{}", self.connection)
    }
}
