//! The leases that this client holds, and the nodes that may not have them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::backend::Inner;
use crate::backend::{Contender, RenewItem};
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::policy::quorum::{Election, Parting};
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// From so many entries on, those of acquisitions that ended in silence are swept out.
const MANY: usize = 4096;

/// How long after a win the nodes without the lease are offered it: by then other contenders have withdrawn, and a
/// lock that was held for a moment only is released.
const WIDEN_AFTER: Duration = Duration::from_millis(50);

/// So many leases go in one request.
const TOGETHER: usize = 256;

/// One lease that was won and not released.
pub(super) struct Live {
    /// As it was asked for last.
    item: RenewItem,
    asked: Instant,
    /// The longest lease that nodes were asked for.
    longest: Duration,
    fencing: FenceQuality,
    /// The nodes that refused or were not reached, as bits. Each makes the lease depend on the others.
    missing: u16,
    /// What its release has to know of votes that come late; `None` if there are none.
    parting: SharedParting,
}

/// Of the votes that are late, and of the release.
pub(super) type SharedParting = Option<Arc<Mutex<Parting>>>;

impl Inner {
    /// Notes a lease that was just won.
    pub(super) fn is_won(
        self: &Arc<Self>,
        contender: &Arc<Contender>,
        token: u64,
        election: &Election,
        parting: SharedParting,
    ) {
        let fencing = self.fencing(election.yes().map(|(at, _)| at));
        let lease = contender.first_lease;
        let item = RenewItem {
            contender: Arc::clone(contender),
            fence: FencingToken::new(token),
            lease,
            length: contender.lease,
            renewals: 0,
        };
        let refused = election.refused().fold(0, |bits, at| bits | 1 << at);
        self.forget_silent();
        let entry = Live { item, asked: Instant::now(), longest: lease, fencing, missing: refused, parting };
        unpoisoned(&self.acquisitions.live).insert(contender.owner, entry);
        if refused != 0 {
            self.widen_soon(contender.owner);
        }
    }

    fn forget_silent(&self) {
        let (now, longest) = (Instant::now(), self.max_lease * 2);
        let mut live = unpoisoned(&self.acquisitions.live);
        if live.len() >= MANY {
            live.retain(|_, entry| now.duration_since(entry.asked) < longest);
        }
        drop(live);
        let mut waiting = unpoisoned(&self.acquisitions.waiting);
        if waiting.len() > MANY {
            waiting.retain(|_, waited| now.duration_since(waited.seen) < longest);
        }
    }

    pub(super) fn is_live(&self, owner: OwnerToken) -> bool {
        unpoisoned(&self.acquisitions.live).contains_key(&owner)
    }

    /// Leaves nothing of a lost lease on the nodes. Its holder releases it no more, and a node that refused it may have it in
    /// its crowd still.
    pub(super) fn is_lost(self: &Arc<Self>, owner: OwnerToken, fence: u64) {
        let live = unpoisoned(&self.acquisitions.live);
        let Some(lost) = live.get(&owner).filter(|entry| entry.item.fence.get() == fence) else { return };
        let leaves = Arc::clone(self).cancel(Arc::clone(&lost.item.contender));
        self.runtime.spawn(async move {
            if let Err(error) = leaves.await {
                tracing::debug!(%error, "a lost lease may still be on a node until it ends there");
            }
        });
    }

    /// Notes that leases are asked for again.
    pub(super) fn is_renewed(&self, items: &[RenewItem]) {
        let now = Instant::now();
        let mut live = unpoisoned(&self.acquisitions.live);
        for item in items {
            if let Some(entry) = live.get_mut(&item.contender.owner) {
                (entry.asked, entry.item) = (now, item.clone());
                entry.longest = entry.longest.max(item.lease);
            }
        }
    }

    /// Notes which nodes a renewal did not reach; the others said whether they have the lease.
    pub(super) fn missed(&self, items: &[RenewItem], nodes: u16) {
        let mut live = unpoisoned(&self.acquisitions.live);
        for item in items {
            if let Some(entry) = live.get_mut(&item.contender.owner) {
                entry.missing = nodes;
            }
        }
    }

    /// Notes whether a node may be without a lease.
    pub(super) fn is_missing(&self, owner: OwnerToken, at: usize, is_missing: bool) {
        if let Some(entry) = unpoisoned(&self.acquisitions.live).get_mut(&owner) {
            entry.missing = entry.missing & !(1 << at) | u16::from(is_missing) << at;
        }
    }

    /// How far the order of a token can be relied on that these nodes gave. Each of them voted behind the gate that
    /// this client knows, which says whether its counter was known to be the largest when it was opened.
    pub(super) fn fencing(&self, mut voters: impl Iterator<Item = usize>) -> FenceQuality {
        let evicts = self.nodes.iter().any(|node| node.may_forget());
        match self.nodes.len() == 1 || evicts || voters.any(|at| self.nodes[at].is_floored()) {
            true => FenceQuality::TimeFloored,
            false => FenceQuality::Strict,
        }
    }

    pub(super) fn fencing_of(&self, owner: OwnerToken) -> FenceQuality {
        unpoisoned(&self.acquisitions.live)
            .get(&owner)
            .map_or(FenceQuality::TimeFloored, |entry| entry.fencing)
    }

    /// Offers a lease that was just won to the nodes that refused it, unless it is released by then.
    pub(super) fn widen_soon(self: &Arc<Self>, owner: OwnerToken) {
        let weak = Arc::downgrade(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(WIDEN_AFTER).await;
            if let Some(inner) = weak.upgrade() {
                let item = unpoisoned(&inner.acquisitions.live).get_mut(&owner).and_then(Live::take_missing);
                inner.renew_again(item.into_iter().collect()).await;
            }
        });
    }

    /// Offers a node that answers again the leases that it may have missed meanwhile.
    pub(super) fn widen_to(self: &Arc<Self>, at: usize) {
        let missed =
            |entry: &mut Live| (entry.missing & 1 << at != 0).then(|| entry.take_missing()).flatten();
        let items: Vec<_> = unpoisoned(&self.acquisitions.live).values_mut().filter_map(missed).collect();
        if items.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            for some in items.chunks(TOGETHER) {
                Arc::clone(&inner).renew_again(some.to_vec()).await;
            }
        });
    }

    /// As a renewal: only what a majority confirms is given to further nodes. What comes of it, the holder's next
    /// renewal tells.
    async fn renew_again(self: Arc<Self>, items: Vec<RenewItem>) {
        if !items.is_empty() && Arc::clone(&self).extend(items).await.is_err() {
            self.care();
        }
    }
}

impl Live {
    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    pub(super) fn parting(self) -> SharedParting {
        self.parting
    }

    /// What to ask for, so that nodes that missed it have it until it ends on the others. They count as asked.
    fn take_missing(&mut self) -> Option<RenewItem> {
        let left = self.item.lease.saturating_sub(self.asked.elapsed());
        if std::mem::take(&mut self.missing) == 0 || left.is_zero() {
            return None;
        }
        Some(RenewItem { lease: left, ..self.item.clone() })
    }
}
