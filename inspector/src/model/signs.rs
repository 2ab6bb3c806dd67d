//! Signs of life of clients whose leases hang on sessions: of such a lease the store tells neither when it was
//! renewed nor what is left.

use std::collections::HashMap;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, Snapshot};

use super::findings::Session;

/// How often a client with a session says who it is, as long as it holds or waits.
pub(super) const SIGN_EVERY_MS: u64 = 15_000;

/// A client that is overdue by one more than this is silent.
const PATIENCE_MS: u64 = 5_000;

/// How old the latest sign of each client was at the best of times. The client's own clock wrote it, so an age
/// means something only beside this: it has the difference of the clocks in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Signs(HashMap<ClientId, u64>);

impl Signs {
    /// The same after one more reading.
    pub(super) fn after(&self, snapshot: &Snapshot) -> Self {
        let on_session = |holder: &HolderView| holder.remaining_ms.is_none() && Session::of(holder).is_some();
        if !snapshot.locks.iter().any(|lock| lock.holders.iter().any(on_session)) {
            return Self::default();
        }
        let best = |client: &ClientView| {
            let known = self.0.get(&client.id).copied().unwrap_or(u64::MAX);
            (client.id.clone(), client.seen_ago_ms.min(known))
        };
        Self(snapshot.clients.iter().map(best).collect())
    }

    /// For how long a client has given no sign of life, if that is longer than it should be.
    pub(super) fn silent_for_ms(&self, client: &ClientView) -> Option<u64> {
        let since = client.seen_ago_ms.checked_sub(*self.0.get(&client.id)?)?;
        (since > 2 * SIGN_EVERY_MS + PATIENCE_MS).then_some(since)
    }
}
