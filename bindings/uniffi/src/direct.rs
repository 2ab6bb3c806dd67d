//! The question that is asked before every write, without the generator's buffers and status records: on the JVM
//! those cost some tens of microseconds a call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

use polylatch_bridge::border;

use crate::slot::Slot;

/// Slots that are asked about directly, by their numbers; a slot takes itself out at its end.
static SLOTS: LazyLock<RwLock<HashMap<u64, Weak<Slot>>>> = LazyLock::new(RwLock::default);

/// A slot's number, which no other slot of this process ever has.
#[derive(Debug)]
pub(crate) struct Number(u64);

impl Number {
    pub(crate) fn of(slot: &Arc<Slot>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        SLOTS.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::downgrade(slot));
        Self(number)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        SLOTS.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// Says whether what the slot of this number holds is still held, by the clock, now: 1 if so; 0 if not, and then
/// the slot itself says why.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_is_held(number: u64) -> i8 {
    let held = border::caught(|| {
        let slot = SLOTS.read().unwrap_or_else(PoisonError::into_inner).get(&number).and_then(Weak::upgrade);
        slot.is_some_and(|slot| slot.is_held())
    });
    held.unwrap_or(false).into()
}
