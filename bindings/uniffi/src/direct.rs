//! What the JVM asks most, as functions of numbers, which it may call directly: the generator's buffers and status records
//! cost some tens of microseconds a call there.
//!
//! A prepared lock and a slot are known by a number, which no other one of this process ever has, until it is dropped. What is
//! asked of a number that was dropped is answered as if nothing were held.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};

use polylatch_bridge::{Client, Failure, Wanted, border, runtime};

use crate::fault::NativeError;
use crate::handed::at_once;
use crate::slot::Slot;
use crate::view::whole;

static LOCKS: LazyLock<Table<(Arc<Client>, Wanted)>> = LazyLock::new(Table::default);
static SLOTS: LazyLock<Table<Slot>> = LazyLock::new(Table::default);
/// Calls that the host has begun, by the numbers that it has given them.
static CALLS: LazyLock<Table<Call>> = LazyLock::new(Table::default);
/// What is called with the number of a call that goes on when it is polled.
static WOKEN: OnceLock<extern "C" fn(u64)> = OnceLock::new();
/// What is called with the number of a slot that has lost a lease.
static LOST: OnceLock<extern "C" fn(u64)> = OnceLock::new();

/// What is known by numbers.
struct Table<T>(RwLock<HashMap<u64, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T> Table<T> {
    fn add(&self, one: T) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.put(number, Arc::new(one));
        number
    }

    fn put(&self, number: u64, one: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, one);
    }

    fn get(&self, number: u64) -> Option<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn forget(&self, number: u64) {
        let forgotten = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        // When the table is not locked any more.
        drop(forgotten);
    }
}

/// Adds a lock with its options, checked, and returns its number.
pub(crate) fn prepared(client: Arc<Client>, wanted: Wanted) -> u64 {
    LOCKS.add((client, wanted))
}

/// Returns the slot of a number, for what is asked of it less often.
///
/// Errors: `invalid_argument` for one that was dropped.
#[uniffi::export]
pub fn slot_of(number: u64) -> Result<Arc<Slot>, NativeError> {
    at_once(|| SLOTS.get(number).ok_or_else(|| Failure::invalid_argument("nothing was acquired here")))
}

/// Says what is to be called with the number of a call of [`polylatch_uniffi_begin`] that is to be polled again, on a thread of this
/// library's. Only the first counts. It has to stay where it is as long as the process lives.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_on_woken(woken: extern "C" fn(u64)) {
    let _ = WOKEN.set(woken);
}

/// Says what is to be called with the number of a slot of [`polylatch_uniffi_follow`] that has lost a lease, on a thread of its own.
/// Only the first counts. It has to stay where it is as long as the process lives.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_on_lost(lost: extern "C" fn(u64)) {
    let _ = LOST.set(lost);
}

/// Reports it once if the slot of this number loses a lease, not if that is released; [`Slot::lost_reason`] says why. Returns 1; 0 if
/// nothing can be followed, and then [`Slot::failure`] says why.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_follow(slot: u64) -> i8 {
    let followed = border::caught(|| {
        let number = slot;
        let slot = SLOTS.get(number)?;
        let followed = slot.followed(move || {
            if let Some(lost) = LOST.get() {
                lost(number);
            }
        });
        followed.map_err(|failure| slot.failed(failure)).ok()
    });
    followed.ok().flatten().is_some().into()
}

/// Makes a slot for a prepared lock and returns its number; 0 if that was dropped.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_slot(lock: u64) -> u64 {
    let added = border::caught(|| {
        let lock = LOCKS.get(lock)?;
        Some(SLOTS.add(Slot::new(Arc::clone(&lock.0), lock.1.clone())))
    });
    added.ok().flatten().unwrap_or(0)
}

/// Forgets a prepared lock.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_drop_lock(lock: u64) {
    let _ = border::caught(|| LOCKS.forget(lock));
}

/// Ends what the slot of this number has under way, releases in the background what it holds or still gets, and forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_drop_slot(slot: u64) {
    let _ = border::caught(|| {
        if let Some(slot) = SLOTS.get(slot) {
            slot.abandon();
        }
        SLOTS.forget(slot);
    });
}

/// Says whether what the slot of this number holds is still held, by the clock, now: 1 if so; 0 if not, and then
/// the slot itself says why.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_is_held(slot: u64) -> i8 {
    border::caught(|| SLOTS.get(slot).is_some_and(|slot| slot.is_held())).unwrap_or(false).into()
}

/// The fencing token of what the slot of this number holds; 0 if it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_token(slot: u64) -> i64 {
    border::caught(|| SLOTS.get(slot).and_then(|slot| slot.token()).map_or(0, whole)).unwrap_or(0)
}

/// The call is under way.
const PENDING: i8 = -1;
/// It was not available.
const NO: i8 = 0;
const YES: i8 = 1;
/// [`Slot::failure`] says why.
const FAILED: i8 = 2;

/// Begins a call of a slot: 0 acquires, 1 tries to, 2 releases. The request has left when this returns. The host gives the call a
/// number that no other one of this process has, polls it after each time that it is woken, and ends it by
/// [`polylatch_uniffi_end`]. Returns the outcome, or −1 for one that is under way.
/// Cancellation: to end it undoes an acquisition; the background finishes a release.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_begin(slot: u64, operation: i8, call: u64) -> i8 {
    border::caught(|| begin(SLOTS.get(slot)?, operation, call)).ok().flatten().unwrap_or(FAILED)
}

/// Polls a call; as [`polylatch_uniffi_begin`]. Of one that has an outcome it returns that.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_poll(call: u64) -> i8 {
    border::caught(|| CALLS.get(call).map(|call| call.poll())).ok().flatten().unwrap_or(FAILED)
}

/// Ends a call, whether it has an outcome or not.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_uniffi_end(call: u64) {
    let _ = border::caught(|| CALLS.forget(call));
}

/// A call that the host polls.
struct Call {
    waker: Waker,
    stage: Mutex<Stage>,
}

enum Stage {
    UnderWay(Pin<Box<dyn Future<Output = i8> + Send>>),
    Over(i8),
}

impl Call {
    fn poll(&self) -> i8 {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match &mut *stage {
            Stage::Over(outcome) => return *outcome,
            Stage::UnderWay(work) => match work.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => return PENDING,
                Poll::Ready(outcome) => outcome,
            },
        };
        *stage = Stage::Over(outcome);
        outcome
    }
}

/// As of [`crate::handed::handed`]: it only passes the word on.
struct Woken(u64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        runtime::spawn_detached(async move {
            if let Some(woken) = WOKEN.get() {
                woken(self.0);
            }
        });
    }
}

fn begin(slot: Arc<Slot>, operation: i8, number: u64) -> Option<i8> {
    if let Err(failure) = runtime::prepare() {
        slot.failed(failure);
        return None;
    }
    let waker = Waker::from(Arc::new(Woken(number)));
    let call =
        Arc::new(Call { waker, stage: Mutex::new(Stage::UnderWay(Box::pin(carried_out(slot, operation)))) });
    // Before it is polled: it may be woken at once.
    CALLS.put(number, Arc::clone(&call));
    Some(call.poll())
}

async fn carried_out(slot: Arc<Slot>, operation: i8) -> i8 {
    let done = border::caught_call(async {
        match operation {
            0 => slot.entered(true).await,
            1 => slot.entered(false).await,
            _ => slot.given_back().await.map(|()| true),
        }
    });
    match done.await.and_then(|result| result) {
        Ok(true) => YES,
        Ok(false) => NO,
        Err(failure) => {
            slot.failed(failure);
            FAILED
        }
    }
}
