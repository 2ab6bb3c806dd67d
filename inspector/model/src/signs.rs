//! Heartbeats of clients whose leases hang on sessions: of such a lease the store tells neither when it was
//! renewed nor what is left.

use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, Snapshot};

use super::beat::Session;

/// How often a client with a session says who it is, as long as it holds or waits.
pub(super) const SIGN_EVERY_MS: u64 = 15_000;

/// A client that is overdue by one more than this is silent.
const PATIENCE_MS: u64 = 5_000;

/// When the latest heartbeat of each client came, as this viewer noticed it. The client's own clock wrote it, so only
/// that it is another one than before means something.
#[derive(Debug, Clone, Default)]
pub(super) struct Signs {
    now_ms: u64,
    signs: HashMap<ClientId, Sign>,
}

#[derive(Debug, Clone, Copy)]
struct Sign {
    /// By the client's clock.
    said_at_ms: u64,
    noticed_at_ms: u64,
}

impl Signs {
    /// The same after one more snapshot.
    pub(super) fn after(&self, snapshot: &Snapshot) -> Self {
        let on_session = |holder: &HolderView| holder.remaining_ms.is_none() && Session::of(holder).is_some();
        if !snapshot.locks.iter().any(|lock| lock.holders.iter().any(on_session)) {
            return Self::default();
        }
        let now_ms = snapshot.taken_at_ms;
        let sign = |client: &ClientView| {
            let said_at_ms = now_ms.saturating_sub(client.seen_ago_ms);
            let known = self.signs.get(&client.id).filter(|known| known.said_at_ms == said_at_ms);
            (client.id.clone(), known.copied().unwrap_or(Sign { said_at_ms, noticed_at_ms: now_ms }))
        };
        Self { now_ms, signs: snapshot.clients.iter().map(sign).collect() }
    }

    /// For how long nothing was heard of a client, if that is longer than it should be.
    pub(super) fn silent_for_ms(&self, client: &ClientView) -> Option<u64> {
        let since = self.now_ms.saturating_sub(self.signs.get(&client.id)?.noticed_at_ms);
        (since > 2 * SIGN_EVERY_MS + PATIENCE_MS).then_some(since)
    }
}
