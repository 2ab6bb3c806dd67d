//! Renewing: sessions are what keeps leases, and this asks for them.

use std::sync::Arc;

use crate::backend::consul::acquisition::{Acquisition, Lease};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::sessions::busy;
use crate::backend::consul::transport::api::{MOST_OPERATIONS, Op, Outcome};
use crate::backend::{RenewItem, Renewal};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;

impl Inner {
    pub(crate) async fn renew(self: Arc<Self>, items: Vec<RenewItem>) -> Result<Vec<Renewal>> {
        let now = SystemClock.now();
        let held: Vec<Option<(Arc<Acquisition>, Lease)>> = items
            .iter()
            .map(|item| {
                let acquisition = self.acquisitions.get(item.contender.owner)?;
                let lease = acquisition.lease().filter(|lease| lease.fence == item.fence.get())?;
                Some((acquisition, lease))
            })
            .collect();
        let mut sessions = std::collections::HashMap::new();
        for (acquisition, _) in held.iter().flatten() {
            sessions.extend(acquisition.sessions().into_iter().map(|one| (one.id.clone(), one)));
        }
        let mut renewing = tokio::task::JoinSet::new();
        for session in sessions.into_values() {
            let inner = Arc::clone(&self);
            renewing.spawn(async move {
                let renewed = inner.sessions.renew(&session, now).await;
                if let Ok(false) = renewed {
                    inner.session_ended(&session);
                }
                renewed.map(drop)
            });
        }
        while let Some(renewed) = renewing.join_next().await {
            renewed.map_err(|_| busy())??;
        }
        // A session that lives does not say that its locks are as they were: an operator may have
        // broken one, or a person may have deleted its key.
        let mut renewals = vec![Renewal::NotYours; items.len()];
        let alive: Vec<_> = held
            .iter()
            .enumerate()
            .filter_map(|(at, held)| Some((at, held.as_ref()?)))
            .filter(|(_, (acquisition, _))| acquisition.sessions().iter().all(|one| !one.has_ended()))
            .collect();
        for some in alive.chunks(MOST_OPERATIONS) {
            let checks: Vec<_> =
                some.iter().map(|(_, (_, lease))| Op::CheckIndex(lease.key.clone(), lease.index)).collect();
            let changed = match self.api.look(&checks).await? {
                Outcome::Done(_) => Vec::new(),
                Outcome::Refused(refused) => refused.causes,
            };
            for (nth, (at, (acquisition, _))) in some.iter().enumerate() {
                if !changed.iter().any(|(op, _)| *op == nth) {
                    renewals[*at] = Renewal::Extended;
                    acquisition.extended(now + items[*at].lease);
                }
            }
        }
        Ok(renewals)
    }
}
