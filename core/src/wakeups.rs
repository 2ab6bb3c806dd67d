//! Where a backend drops what it hears, and where waiting acquisitions pick it up.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use crate::error::LostReason;
use crate::token::OwnerToken;

/// What the store pushed to one waiting acquisition since it last looked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// A grant, with its fence.
    pub grant: Option<u64>,
    /// Something may have changed: ask again.
    pub hint: bool,
}

#[derive(Default)]
pub(crate) struct WaiterSlot {
    pushed: Mutex<Pushed>,
    notify: Notify,
}

impl WaiterSlot {
    pub(crate) fn take(&self) -> Pushed {
        std::mem::take(&mut *unpoisoned(&self.pushed))
    }

    /// Completes once something was pushed. Safe to drop and to call again.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }

    fn push(&self, change: impl FnOnce(&mut Pushed)) {
        change(&mut unpoisoned(&self.pushed));
        self.notify.notify_one();
    }
}

/// Called when another client wants a lock whose lease is kept after its release: the owner and the fence of the
/// lease. `None` if such messages may have been missed.
type OnWanted = Box<dyn Fn(Option<(OwnerToken, u64)>) + Send + Sync>;

/// Called when the store says that a lease was ended, and why.
type OnRevoked = Box<dyn Fn(OwnerToken, u64, LostReason) + Send + Sync>;

/// The waiting acquisitions of one client, by owner token.
#[derive(Default)]
pub(crate) struct Wakeups {
    slots: Mutex<HashMap<OwnerToken, Arc<WaiterSlot>>>,
    /// Set once: what is called may call back, so nothing is locked meanwhile.
    on_revoked: OnceLock<OnRevoked>,
    on_wanted: OnceLock<OnWanted>,
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Wakeups {
    /// Registers a waiting acquisition until the returned place is dropped.
    pub(crate) fn register(self: &Arc<Self>, owner: OwnerToken) -> WaiterPlace {
        let slot = Arc::new(WaiterSlot::default());
        unpoisoned(&self.slots).insert(owner, Arc::clone(&slot));
        WaiterPlace { wakeups: Arc::clone(self), owner, slot }
    }

    /// The store granted the lock to this acquisition.
    pub(crate) fn grant(&self, owner: OwnerToken, fence: u64) {
        let slot = unpoisoned(&self.slots).get(&owner).cloned();
        if let Some(slot) = slot {
            slot.push(|pushed| pushed.grant = Some(pushed.grant.map_or(fence, |before| before.max(fence))));
        }
    }

    /// Something may have changed for this acquisition alone: ask again.
    pub(crate) fn hint(&self, owner: OwnerToken) {
        let slot = unpoisoned(&self.slots).get(&owner).cloned();
        if let Some(slot) = slot {
            slot.push(|pushed| pushed.hint = true);
        }
    }

    /// Messages may have been missed (a new subscription, a changed file): all ask again.
    pub(crate) fn hint_all(&self) {
        let slots: Vec<_> = unpoisoned(&self.slots).values().cloned().collect();
        for slot in slots {
            slot.push(|pushed| pushed.hint = true);
        }
        self.tell_wanted(None);
    }

    /// Another client wants the lock that is kept under this owner and fence.
    pub(crate) fn wanted(&self, owner: OwnerToken, fence: u64) {
        self.tell_wanted(Some((owner, fence)));
    }

    fn tell_wanted(&self, which: Option<(OwnerToken, u64)>) {
        if let Some(tell) = self.on_wanted.get() {
            tell(which);
        }
    }

    /// Later calls change nothing.
    pub(crate) fn when_wanted(&self, tell: OnWanted) {
        let _ = self.on_wanted.set(tell);
    }

    /// An operator ended the lease of this owner and fence.
    pub(crate) fn revoked(&self, owner: OwnerToken, fence: u64) {
        self.lost(owner, fence, LostReason::Broken);
    }

    /// The session has ended that the lease of this owner and fence hung on.
    #[cfg(any(feature = "http", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
    pub(crate) fn session_ended(&self, owner: OwnerToken, fence: u64) {
        self.lost(owner, fence, LostReason::SessionEnded);
    }

    fn lost(&self, owner: OwnerToken, fence: u64, reason: LostReason) {
        if let Some(tell) = self.on_revoked.get() {
            tell(owner, fence, reason);
        }
    }

    /// Later calls change nothing.
    pub(crate) fn when_revoked(&self, tell: OnRevoked) {
        let _ = self.on_revoked.set(tell);
    }

    /// Whether this acquisition waits.
    #[cfg(feature = "mysql")]
    pub(crate) fn waits(&self, owner: OwnerToken) -> bool {
        unpoisoned(&self.slots).contains_key(&owner)
    }

    /// How many acquisitions wait.
    pub(crate) fn waiting(&self) -> usize {
        unpoisoned(&self.slots).len()
    }
}

/// A registered waiting acquisition.
pub(crate) struct WaiterPlace {
    wakeups: Arc<Wakeups>,
    owner: OwnerToken,
    slot: Arc<WaiterSlot>,
}

impl std::ops::Deref for WaiterPlace {
    type Target = WaiterSlot;
    fn deref(&self) -> &WaiterSlot {
        &self.slot
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        unpoisoned(&self.wakeups.slots).remove(&self.owner);
    }
}

/// Locks a mutex whose data stays consistent even if a holder panicked: every critical section here
/// is a single assignment or map operation.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
