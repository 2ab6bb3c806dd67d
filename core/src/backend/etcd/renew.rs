//! Renewing leases, all of a client in one request.

use std::collections::HashMap;
use std::sync::Arc;

use crate::backend::{RenewItem, Renewal};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;

use super::acquire::elected;
use super::backend::Inner;
use super::protocol::requests::{self, MOST_OPERATIONS};
use super::sessions::Acquisition;

/// One lease to renew: its place among the items, and its key.
struct Held {
    at: usize,
    acquisition: Arc<Acquisition>,
    lease: i64,
    key: String,
}

impl Inner {
    pub(crate) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let mut renewals = vec![Renewal::NotYours; items.len()];
        let held: Vec<_> = items.iter().enumerate().filter_map(|(at, item)| self.held(at, item)).collect();
        for some in held.chunks(MOST_OPERATIONS) {
            let sent_at = SystemClock.now();
            let leases: Vec<_> = some.iter().map(|one| one.lease).collect();
            let renewed = self.api.keep_alive(&leases).await?;
            // A lease that lives does not say that its key is there: an operator may have broken the lock, or deleted
            // the key. And this is read from a majority; see the term below.
            let found = self.api.transact(&requests::look(some.iter().map(|one| &*one.key))).await?;
            let created: HashMap<&str, u64> = (0..some.len())
                .filter_map(|at| found.found(at).first())
                .map(|entry| (&*entry.key, entry.created))
                .collect();
            for (one, renewed) in some.iter().zip(&renewed) {
                let fence = items[one.at].fence.get();
                if created.get(&*one.key) != Some(&fence) {
                    if renewed.ttl == 0 {
                        self.wakeups.session_ended(items[one.at].contender.owner, fence);
                    }
                    continue;
                }
                // A leader that was deposed without knowing it renews leases that another one lets expire.
                if renewed.ttl == 0 || renewed.header.raft_term != found.header.raft_term {
                    return Err(elected());
                }
                if let Some(lease) = &mut one.acquisition.state().lease {
                    lease.renewed = sent_at;
                }
                renewals[one.at] = Renewal::Extended;
            }
        }
        Ok(renewals)
    }

    fn held(&self, at: usize, item: &RenewItem) -> Option<Held> {
        let acquisition = self.sessions.get(item.contender.owner)?;
        let lease = {
            let state = acquisition.state();
            state.lease.as_ref().filter(|_| state.fence == Some(item.fence.get()))?.id
        };
        let key = self.keys.contender(item.contender.name.as_str(), lease);
        Some(Held { at, acquisition, lease, key })
    }
}
