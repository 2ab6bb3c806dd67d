//! Several locks, all together or not at all.

use std::ffi::{CString, c_char};
use std::ptr;

use polylatch_bridge::{Failure, Handle, Wanted, Way};

use crate::border::{self, free, handle, infallible, owned_text, place, text};
use crate::cancel::{PlCancel, run, wait_for};
use crate::client::PlClient;
use crate::error::{PlError, PlStatus};
use crate::lock::{PlLockOptions, read_options};

/// Several held locks.
#[derive(Debug)]
pub struct PlGuardSet {
    held: Handle,
    locks: Vec<(CString, u64)>,
}

impl PlGuardSet {
    fn new(held: Handle) -> Self {
        let locks = held.held().into_iter().map(|(name, token)| (owned_text(name), token)).collect();
        Self { held, locks }
    }
}

/// Acquires several locks, all of them or none, in the order of their names, so that two that want the same
/// locks never wait for each other in a circle. `names` ends with NULL; 1 to 128. `wait_ms` is for all of them
/// together; the other options are for each, and `mode` has to be PL_MUTEX.
///
/// Otherwise as pl_acquire, with the errors of the first lock that cannot be acquired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_acquire_all(
    client: *const PlClient,
    names: *const *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    set: *mut *mut PlGuardSet,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { acquire_all(client, names, options, cancel, set, error, true) }
}

/// Acquires several locks if all are available at once; PL_BUSY, and none is held, if one is not. `wait_ms` is not
/// looked at. Otherwise as pl_acquire_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_try_acquire_all(
    client: *const PlClient,
    names: *const *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    set: *mut *mut PlGuardSet,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { acquire_all(client, names, options, cancel, set, error, false) }
}

/// # Safety
/// Every pointer is null or what its type says.
unsafe fn acquire_all(
    client: *const PlClient,
    names: *const *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    set: *mut *mut PlGuardSet,
    error: *mut *mut PlError,
    wait: bool,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let set = place("set", set)?;
            *set = ptr::null_mut();
            let client = handle("client", client)?;
            let names = read_names(names)?;
            let (way, options) = read_options(options.as_ref())?;
            if way != Way::Mutex {
                return Err(Failure::invalid_argument("options.mode must be PL_MUTEX for several locks"));
            }
            let wanted = Wanted::All { names, options };
            let held = wait_for(cancel.as_ref(), client.0.acquire(&wanted, wait))?;
            Ok(match held {
                Some(held) => {
                    *set = Box::into_raw(Box::new(PlGuardSet::new(held)));
                    PlStatus::PL_OK
                }
                None => PlStatus::PL_BUSY,
            })
        })
    }
}

/// # Safety
/// `names` is null or a list of texts that ends with null.
unsafe fn read_names(names: *const *const c_char) -> Result<Vec<String>, Failure> {
    if names.is_null() {
        return Err(Failure::invalid_argument(
            "names is NULL; it must be a list of names that ends with NULL",
        ));
    }
    let mut read = Vec::new();
    // SAFETY: the caller's promise; no entry behind the null at the end is read.
    unsafe {
        let mut at = names;
        while !(*at).is_null() {
            read.push(text("a name", *at)?.to_owned());
            at = at.add(1);
        }
    }
    Ok(read)
}

/// Returns how many locks are held, in the order of their names: one for each name, given twice or once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_count(set: *const PlGuardSet) -> usize {
    // SAFETY: the caller's promise.
    unsafe { set.as_ref() }.map_or(0, |set| set.locks.len())
}

/// Returns the name of a lock, NULL from `pl_guard_set_count` on. It lives as long as the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_name(set: *const PlGuardSet, index: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let held = unsafe { set.as_ref() }.and_then(|set| set.locks.get(index));
    held.map_or(ptr::null(), |(name, _)| name.as_ptr())
}

/// Returns the fencing token of a lock, 0 from `pl_guard_set_count` on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_fencing_token(set: *const PlGuardSet, index: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { set.as_ref() }.and_then(|set| set.locks.get(index)).map_or(0, |(_, token)| *token)
}

/// Returns for how many milliseconds all of them may be relied on from now; 0 once one is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_remaining_ms(set: *const PlGuardSet) -> u64 {
    // SAFETY: the caller's promise.
    let set = unsafe { set.as_ref() };
    infallible(0, || {
        let remaining = set.map(|set| set.held.remaining()).unwrap_or_default();
        u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Says of all that the protected work moves on; see pl_guard_beat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_beat(set: *const PlGuardSet) {
    // SAFETY: the caller's promise.
    let set = unsafe { set.as_ref() };
    infallible((), || set.and_then(|set| set.held.beat().ok()).unwrap_or_default());
}

/// Fails unless all of them are still held, by this process's own clock, now; see pl_guard_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_check(set: *const PlGuardSet, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            handle("set", set)?.held.check()?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives all of them back and waits until the store knows; see pl_guard_release. Repeatable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_release(set: *const PlGuardSet, error: *mut *mut PlError) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            run(handle("set", set)?.held.release())?;
            Ok(PlStatus::PL_OK)
        })
    }
}

/// Gives the set back; locks that are still held are released in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_guard_set_free(set: *mut PlGuardSet) {
    // SAFETY: the caller's promise.
    unsafe { free(set) };
}
