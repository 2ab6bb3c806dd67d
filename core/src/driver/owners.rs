//! Re-entry: which lease an owner id of this client holds, per lock and mode.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Notify, OwnedMutexGuard};

use crate::driver::HeldLease;
use crate::mode::Mode;
use crate::name::LockName;
use crate::wakeups::unpoisoned;

/// The slots of one client. A reader does not re-enter to write, so the mode is part of the key.
#[derive(Default)]
pub(super) struct Owners(Mutex<HashMap<(LockName, String, Mode), Arc<OwnerSlot>>>);

impl Owners {
    pub(super) fn slot(&self, name: &LockName, owner: &str, mode: Mode) -> Arc<OwnerSlot> {
        let mut owners = unpoisoned(&self.0);
        // A slot that only this map knows, and whose lease is gone, is of no use any more.
        owners.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.is_taken());
        Arc::clone(owners.entry((name.clone(), owner.to_owned(), mode)).or_default())
    }
}

/// The lease that an owner id holds in one mode of one lock.
#[derive(Default)]
pub(super) struct OwnerSlot {
    /// Held while an acquisition or a conversion is under way for the owner id.
    turn: Arc<tokio::sync::Mutex<()>>,
    lease: Mutex<Weak<HeldLease>>,
    moved_in: Notify,
}

/// The turn of one acquisition or conversion; the next one begins when it is dropped.
pub(super) type Turn = OwnedMutexGuard<()>;

impl OwnerSlot {
    fn is_taken(&self) -> bool {
        unpoisoned(&self.lease).strong_count() > 0
    }

    /// Adds a guard to the lease that the owner id holds; `None` if it holds none.
    pub(super) fn enter_again(&self) -> Option<Arc<HeldLease>> {
        let lease = unpoisoned(&self.lease).upgrade()?;
        lease.enter_again().then_some(lease)
    }

    /// Waits for the acquisitions of the same owner id before this one.
    pub(super) async fn turn(&self) -> Turn {
        Arc::clone(&self.turn).lock_owned().await
    }

    pub(super) fn try_turn(&self) -> Option<Turn> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    pub(super) fn set(&self, lease: &Arc<HeldLease>) {
        *unpoisoned(&self.lease) = Arc::downgrade(lease);
    }

    /// A conversion moves a lease into this slot: an acquisition of the same owner id that waits at the
    /// store would wait for itself.
    pub(super) fn move_in(&self, lease: &Arc<HeldLease>) {
        self.set(lease);
        self.moved_in.notify_waiters();
    }

    /// Completes with a new guard's share once a conversion has moved a lease in.
    pub(super) async fn entered_by_conversion(&self) -> Arc<HeldLease> {
        loop {
            let mut moved_in = pin!(self.moved_in.notified());
            // Registered before the look, so that nothing is missed between the two.
            moved_in.as_mut().enable();
            if let Some(lease) = self.enter_again() {
                return lease;
            }
            moved_in.await;
        }
    }
}
