//! A client in a JavaScript host, which has connected it. Nothing forks there.

use polylatch::Polylatch;

use crate::events::Route;
use crate::failure::Failure;

/// One client of one store.
#[derive(Debug)]
pub struct Client {
    client: Polylatch,
    route: Option<Route>,
}

impl Client {
    /// Makes one of what is connected, and what brings its events.
    pub fn of(client: Polylatch, route: Option<Route>) -> Self {
        Self { client, route }
    }

    /// Returns the core's client.
    pub fn connected(&self) -> Option<&Polylatch> {
        Some(&self.client)
    }

    /// Returns the core's client, as where a client may have to connect first.
    pub async fn get(&self) -> Result<&Polylatch, Failure> {
        Ok(&self.client)
    }

    /// Closes it; see [`Polylatch::close`].
    pub async fn close(&self) {
        self.client.close().await;
        if let Some(route) = &self.route {
            route.end();
        }
    }
}
