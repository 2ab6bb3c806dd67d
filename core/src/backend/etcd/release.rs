//! Letting go: of a held lock, of a place in the queue, and of unused leases.

use std::sync::Arc;

use crate::backend::{Contender, Released};
use crate::error::Result;
use crate::policy::fencing::FencingToken;

use super::backend::Inner;
use super::protocol::requests;
use super::sessions::Lease;

impl Inner {
    /// Deletes the key, which hands the lock to the next one in the queue.
    pub(crate) async fn release(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let Some(acquisition) = self.sessions.get(contender.owner) else { return Ok(Released::NotHeld) };
        let (lease, uncertain) = {
            let state = acquisition.state();
            (state.lease.clone().filter(|_| state.fence == Some(fence.get())), state.uncertain)
        };
        let Some(lease) = lease else { return Ok(Released::NotHeld) };
        let key = self.keys.contender(contender.name.as_str(), lease.id);
        let released = self.api.transact_once(&requests::leave(&key, fence.get())).await?.succeeded;
        acquisition.state().ended = true;
        if uncertain {
            // A request that creates the key may still arrive, and must find no lease.
            self.api.revoke(lease.id).await?;
        }
        self.sessions.forget(contender.owner);
        if !uncertain {
            self.put_back(lease);
        }
        Ok(if released { Released::Released } else { Released::NotHeld })
    }

    /// Undoes whatever was sent for an acquisition: without its lease nothing of it can stay or come.
    pub(crate) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let Some(acquisition) = self.sessions.get(contender.owner) else { return Ok(()) };
        acquisition.stop_watching();
        let lease = {
            let mut state = acquisition.state();
            state.ended = true;
            state.lease.clone()
        };
        if let Some(lease) = lease {
            self.api.revoke(lease.id).await?;
        }
        self.sessions.forget(contender.owner);
        Ok(())
    }

    /// Keeps a lease without keys for the next acquisition, or ends it.
    pub(crate) fn put_back(&self, lease: Lease) {
        let id = lease.id;
        if self.is_closed() || !self.sessions.keep(lease) {
            self.revoke_later(id);
        }
    }

    /// Ends a lease in the background. One that cannot be revoked expires.
    pub(crate) fn revoke_later(&self, lease: i64) {
        let api = Arc::clone(&self.api);
        self.runtime.spawn(async move { api.revoke(lease).await });
    }
}
