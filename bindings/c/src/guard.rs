//! Held locks.

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use polylatch_bridge::{Failure, Handle, Homed, runtime, units};

use crate::border::{self, free, handle, infallible, owned_text};
use crate::cancel::{PlCancel, run, wait_at_most};
use crate::error::{PlError, PlStatus};
use crate::lock::millis;

/// A held lock: proof of a lease, and the means to release it. It is renewed by the client's own thread
/// until it is released, freed or lost. A forked child does not hold what its parent holds.
pub struct PlGuard {
    held: Arc<Handle>,
    name: CString,
    /// Callbacks for the loss; they end with the guard.
    watches: Mutex<Vec<Watch>>,
}

impl fmt::Debug for PlGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlGuard").field("name", &self.name).field("held", &self.held.is_held()).finish()
    }
}

impl PlGuard {
    pub(crate) fn new(held: Handle) -> Self {
        Self { name: owned_text(held.name()), held: Arc::new(held), watches: Mutex::default() }
    }

    /// Returns once no callback is running or will run. In a child none ever does.
    fn end_calls(&self) {
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        for Watch { task, call } in watches {
            drop(task);
            if let Some(call) = call.get() {
                call.end();
            }
        }
    }
}

/// Returns the lock's name; NULL for NULL. It lives as long as the guard.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_name(guard: *const PlGuard) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { guard.as_ref() }.map_or(ptr::null(), |guard| guard.name.as_ptr())
}

/// Returns the number to hand to the protected resource: larger than any given out before for this name,
/// and below 2^53. 0 for NULL. An upgrade to writing makes a newer one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_fencing_token(guard: *const PlGuard) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { guard.as_ref() }.map_or(0, |guard| guard.held.fencing_token())
}

/// Says whether the lock is still held, by this process's own clock, now. Costs no request. False for
/// NULL and in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_is_held(guard: *const PlGuard) -> bool {
    // SAFETY: the caller's promise.
    let held = unsafe { guard.as_ref() }.map(|guard| &guard.held);
    infallible(false, || held.is_some_and(|held| held.is_held()))
}

/// Returns for how many milliseconds the lock may be relied on from now, rounded down; 0 once it is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_remaining_ms(guard: *const PlGuard) -> u64 {
    // SAFETY: the caller's promise.
    let held = unsafe { guard.as_ref() }.map(|guard| &guard.held);
    infallible(0, || {
        let remaining = held.map(|held| held.remaining()).unwrap_or_default();
        u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Fails unless the lock is still held, by this process's own clock, now. Costs no request.
///
/// Errors: "lease_lost" with the reason, also in a forked child; "invalid_argument" once it was released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_check(guard: *const PlGuard, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            handle("guard", guard)?.held.check()?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Says that the protected work moves on; matters only with `beat_every_ms`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_beat(guard: *const PlGuard) {
    // SAFETY: the caller's promise.
    let held = unsafe { guard.as_ref() }.map(|guard| &guard.held);
    infallible((), || held.and_then(|held| held.beat().ok()).unwrap_or_default());
}

/// Waits until the lock is over: PL_ERROR with "lease_lost" and the reason if it was lost, PL_OK if it was
/// released, PL_TIMED_OUT after `wait_ms` (-1: no limit). Blocks this thread; `cancel` is NULL or ends the
/// wait with "canceled". The guard must not be freed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_wait_ended(
    guard: *const PlGuard,
    wait_ms: i64,
    cancel: *const PlCancel,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let lost = handle("guard", guard)?.held.lost()?;
            let limit = millis("wait_ms", wait_ms)?;
            let ended = wait_at_most(cancel.as_ref(), limit, lost)?;
            Ok(if ended.is_some() { PlStatus::PL_OK } else { PlStatus::PL_TIMED_OUT })
        })
    }
}

/// A function that is called on a loss, with the pointer that was given for it and the reason, such as
/// "expired", which lives until it returns.
pub type PlLost = Option<unsafe extern "C" fn(user: *mut c_void, reason: *const c_char)>;

struct User(*mut c_void);
// SAFETY: the pointer is not looked at here; the caller promises that its function may get it on another
// thread.
unsafe impl Send for User {}

impl User {
    /// A method, so that a closure takes the whole of it along and not the pointer in it.
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// A callback for the loss. A child forgets it: the thread that would call it stayed with the parent.
struct Watch {
    task: Homed<runtime::Task>,
    call: Homed<Arc<Call>>,
}

/// How far a callback is.
#[derive(Clone, Copy)]
enum Stage {
    Waiting,
    Running(ThreadId),
    Over,
}

struct Call {
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Call {
    fn new() -> Arc<Self> {
        Arc::new(Self { stage: Mutex::new(Stage::Waiting), changed: Condvar::new() })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.stage() = stage;
        self.changed.notify_all();
    }

    /// Makes the call, unless the guard was freed before.
    fn make(&self, call: impl FnOnce()) {
        {
            let mut stage = self.stage();
            if !matches!(*stage, Stage::Waiting) {
                return;
            }
            *stage = Stage::Running(thread::current().id());
        }
        call();
        self.set(Stage::Over);
    }

    /// Returns once the call is not running and never will be. The call itself may come here: it is running
    /// then, and goes on.
    fn end(&self) {
        let mut stage = self.stage();
        loop {
            match *stage {
                Stage::Running(thread) if thread != thread::current().id() => {
                    stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
                }
                Stage::Running(_) => return,
                Stage::Waiting | Stage::Over => {
                    *stage = Stage::Over;
                    return;
                }
            }
        }
    }
}

/// Has `lost` called once if the lock is lost, on a thread of this library's; not when it is released.
///
/// The function may block for short and must not throw. It may free the guard. After pl_guard_free it is
/// neither called nor running, so `user` can be freed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_on_lost(
    guard: *const PlGuard,
    lost: PlLost,
    user: *mut c_void,
    error: *mut *mut PlError,
) -> PlStatus {
    let user = User(user);
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let guard = handle("guard", guard)?;
            let Some(lost) = lost else {
                return Err(Failure::invalid_argument("lost is NULL; it must be the function to call"));
            };
            let call = Call::new();
            let made = Arc::clone(&call);
            // Held until the watch is in the list: a callback that frees the guard at once finds it there.
            let mut watches = guard.watches.lock().unwrap_or_else(PoisonError::into_inner);
            let task = guard.held.on_lost(move |reason| {
                let reason = owned_text(reason);
                // SAFETY: the caller promises that the function may be called with this pointer.
                made.make(|| lost(user.get(), reason.as_ptr()));
            })?;
            watches.push(Watch { task, call: Homed::new(call) });
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives the lock back and waits until the store knows, within the client's time limit. Repeatable.
///
/// Errors: "lease_lost" if it was over before; "backend_unavailable" if the store did not answer, and then
/// the background goes on trying until the lease has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_release(guard: *const PlGuard, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            run(handle("guard", guard)?.held.release())?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives the lease another length; later renewals use it too. The store is asked at once; afterwards
/// pl_guard_remaining_ms says what there is of it. A shorter length takes nothing back: a deadline that lies
/// further away stays. `max_hold_ms` and `beat_every_ms` limit the lease as before. Without renewal, extend
/// again before it ends.
///
/// Errors: "lease_lost"; "invalid_argument" for a length out of range and after a release; "unsupported" where
/// a lease keeps its length (Consul); "backend_unavailable" if the store did not confirm it within the client's
/// time limit, and then the guard keeps its deadline and its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_extend(
    guard: *const PlGuard,
    lease_ms: i64,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            // Beyond 2^53 the number is rounded, and refused as far too long anyway.
            let lease = units::millis("lease_ms", lease_ms as f64)?;
            run(handle("guard", guard)?.held.extend(lease))?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Atomically downgrades a write lock to a read lock. The fencing token stays.
///
/// Errors: "invalid_argument" unless this is the only guard of a write lock; "lease_lost"; as pl_guard_release
/// if the store fails, and then the lock is given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_downgrade(guard: *const PlGuard, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            run(handle("guard", guard)?.held.convert(false))?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Upgrades a read lock to a write lock, under a newer fencing token, if there is no other reader; PL_BUSY otherwise, and
/// then the guard still reads. There is no form that waits: two readers would wait for each other for ever.
///
/// Errors: "invalid_argument" unless this is the only guard of a read lock; else as pl_guard_downgrade.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_try_upgrade(guard: *const PlGuard, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let done = run(handle("guard", guard)?.held.convert(true))?;
            Ok(if done { PlStatus::PL_OK } else { PlStatus::PL_BUSY })
        })
    }
}

/// Frees the guard; a lock that is still held is released in the background.
///
/// Waits for a function of pl_guard_on_lost that is running, unless it is called from there: so do not hold
/// what that function waits for. Afterwards none is running or called any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_free(guard: *mut PlGuard) {
    // SAFETY: the caller's promise.
    if let Some(guard) = unsafe { guard.as_ref() } {
        infallible((), || guard.end_calls());
    }
    // SAFETY: the caller's promise.
    unsafe { free(guard) };
}
