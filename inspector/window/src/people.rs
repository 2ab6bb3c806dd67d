//! What clients are called on the screen.

use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, Snapshot};

use model::text::sanitized;

/// The clients of one snapshot by their ids.
#[derive(Debug, Default)]
pub struct People<'a>(HashMap<&'a ClientId, &'a ClientView>);

impl<'a> People<'a> {
    pub fn of(snapshot: Option<&'a Snapshot>) -> Self {
        let clients = snapshot.map(|snapshot| &snapshot.clients[..]).unwrap_or_default();
        Self(clients.iter().map(|client| (&client.id, client)).collect())
    }

    pub fn client(&self, id: &ClientId) -> Option<&'a ClientView> {
        self.0.get(id).copied()
    }

    /// Returns `program host:pid`, sanitized.
    pub fn who(&self, id: Option<&ClientId>) -> String {
        let Some(id) = id else { return "another program".into() };
        match self.client(id) {
            Some(client) if !client.program.is_empty() => {
                format!("{} {}:{}", sanitized(&client.program), sanitized(&client.host), client.pid)
            }
            Some(client) => format!("{}:{}", sanitized(&client.host), client.pid),
            None => {
                let pid = id.pid().map_or_else(|| "?".into(), |pid| pid.to_string());
                format!("{}:{pid}", sanitized(id.host()))
            }
        }
    }
}
