//! The acquisitions of one client, and the lease that each hangs on.
//!
//! Every acquisition has a lease of its own, for two reasons. The TTL of a lease is fixed when it is granted, and each
//! lock may have another. And to revoke it undoes everything that was ever sent for the acquisition: a request that is
//! still on its way, to a member that hangs, finds no lease and creates nothing. A lease whose requests have all been
//! answered is used again after a release, so that a section of a busy client costs two requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::{BootInstant, Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

use super::transport::api::Api;

/// How many unused leases are kept for the next acquisitions.
const KEPT: usize = 16;

/// A lease of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub id: i64,
    /// Whole seconds, as they were asked for. The server may have granted more.
    pub ttl: Duration,
    /// When the latest request left that the server has confirmed: the lease ends no sooner than a TTL later.
    pub renewed: BootInstant,
}

impl Lease {
    pub(crate) fn lasts(&self, from: BootInstant, need: Duration) -> bool {
        self.renewed + self.ttl >= from + need
    }
}

/// What this client knows of one acquisition.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub lease: Option<Lease>,
    /// The create revision of its key, once it is known.
    pub fence: Option<u64>,
    /// A request that creates its key may still be on its way.
    pub uncertain: bool,
    /// It was cancelled or released: nothing is sent for it any more.
    pub ended: bool,
    /// The key before its own, and the task that waits for the end of that key.
    pub watch: Option<(String, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Acquisition {
    /// Held while it is polled.
    pub turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

impl Acquisition {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }

    pub(crate) fn stop_watching(&self) {
        if let Some((_, task)) = self.state().watch.take() {
            task.abort();
        }
    }
}

/// All acquisitions, and leases that are not used.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    present: Mutex<HashMap<OwnerToken, Arc<Acquisition>>>,
    idle: Mutex<Vec<Lease>>,
}

impl Sessions {
    /// The acquisition of this owner, which may be a new one.
    pub(crate) fn of(&self, owner: OwnerToken) -> Arc<Acquisition> {
        let mut present = unpoisoned(&self.present);
        if let Some(known) = present.get(&owner) {
            return Arc::clone(known);
        }
        // Those whose lease was lost have no other end.
        let now = SystemClock.now();
        let is_over = |lease: &Lease| lease.renewed + lease.ttl * 2 < now;
        present.retain(|_, one| !one.state().lease.as_ref().is_some_and(is_over));
        Arc::clone(present.entry(owner).or_default())
    }

    pub(crate) fn get(&self, owner: OwnerToken) -> Option<Arc<Acquisition>> {
        unpoisoned(&self.present).get(&owner).cloned()
    }

    pub(crate) fn forget(&self, owner: OwnerToken) -> Option<Arc<Acquisition>> {
        let gone = unpoisoned(&self.present).remove(&owner);
        gone.inspect(|acquisition| acquisition.stop_watching())
    }

    /// Takes out everything.
    pub(crate) fn take_all(&self) -> Vec<i64> {
        let present = std::mem::take(&mut *unpoisoned(&self.present));
        let mut leases: Vec<_> =
            std::mem::take(&mut *unpoisoned(&self.idle)).iter().map(|one| one.id).collect();
        for acquisition in present.into_values() {
            acquisition.stop_watching();
            let mut state = acquisition.state();
            state.ended = true;
            leases.extend(state.lease.as_ref().map(|lease| lease.id));
        }
        leases
    }

    /// A lease for an acquisition that needs it for `need` from now on: one that is not used, or a new one.
    pub(crate) async fn lease(&self, api: &Api, length: Duration, need: Duration) -> Result<Lease> {
        let (ttl, now) = (ttl_of(length), SystemClock.now());
        let mut fits = None;
        unpoisoned(&self.idle).retain(|lease| {
            if fits.is_none() && lease.ttl == ttl && lease.lasts(now, need) {
                fits = Some(lease.clone());
                return false;
            }
            lease.lasts(now, Duration::ZERO)
        });
        match fits {
            Some(lease) => Ok(lease),
            None => {
                let id = random_id()?;
                api.grant(id, ttl.as_secs()).await?;
                Ok(Lease { id, ttl, renewed: now })
            }
        }
    }

    /// Keeps a lease without keys, about which no request is on its way. `false` if there are enough.
    pub(crate) fn keep(&self, lease: Lease) -> bool {
        let mut idle = unpoisoned(&self.idle);
        let has_room = idle.len() < KEPT;
        if has_room {
            idle.push(lease);
        }
        has_room
    }
}

/// The TTL for a lease: whole seconds, as etcd counts.
fn ttl_of(lease: Duration) -> Duration {
    Duration::from_secs(lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
}

/// Chosen by the client, so that a lease is known before it is granted.
fn random_id() -> Result<i64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, "could not read random bytes from the OS").with_source(error)
    })?;
    // Positive, and never 0, which lets the server choose.
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_are_whole_seconds_that_cover_the_lease() {
        for (lease, ttl) in [(100, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
            assert_eq!(ttl_of(Duration::from_millis(lease)), Duration::from_secs(ttl));
        }
        assert!(random_id().unwrap() > 0);
    }
}
