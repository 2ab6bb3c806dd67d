//! Acquiring.

use std::ffi::c_char;
use std::ptr;
use std::time::Duration;

use polylatch_bridge::{Failure, LockOptions, LockSpec, Wanted, Way, units};

use crate::border::{self, handle, infallible, optional_text, place, text};
use crate::cancel::{PlCancel, wait_for};
use crate::client::PlClient;
use crate::error::{PlError, PlStatus};
use crate::guard::PlGuard;

/// A mutex: held alone.
pub const PL_MUTEX: u32 = 0;
/// A read-write lock, beside other readers.
pub const PL_READ: u32 = 1;
/// A read-write lock, as the only writer.
pub const PL_WRITE: u32 = 2;
/// Some of a semaphore's permits; see `permits` and `capacity`.
pub const PL_PERMITS: u32 = 3;

/// A length of time or a choice that was not given: the client's or the library's default.
pub const PL_DEFAULT: i32 = -1;

/// How to acquire. Fill it with pl_lock_options_init first, then change what you need.
#[repr(C)]
#[derive(Debug)]
pub struct PlLockOptions {
    /// sizeof(PlLockOptions), as it was given to pl_lock_options_init: lets later versions add fields.
    pub size: usize,
    /// PL_MUTEX, PL_READ, PL_WRITE or PL_PERMITS.
    pub mode: u32,
    /// How many permits, 1 to the capacity. Only with PL_PERMITS.
    pub permits: u32,
    /// How many permits there are, 1 to 1000. Only with PL_PERMITS.
    pub capacity: u32,
    /// 1: renew while it is held. 0: the lease ends after its full length. Default: 1.
    pub renew: i32,
    /// 1: first come, first served. 0: may take a free lock although others wait. Default: 1.
    pub fifo: i32,
    /// Length of the lease, milliseconds: 100 to a day. Default: 15 s, or what the client says.
    pub lease_ms: i64,
    /// How long to wait for a held lock, milliseconds. Default: as long as it takes.
    pub wait_ms: i64,
    /// Never hold it for longer than this, milliseconds. Default: unlimited.
    pub max_hold_ms: i64,
    /// Renew only while pl_guard_beat is called at least this often, milliseconds. Default: off.
    pub beat_every_ms: i64,
    /// After a release the client keeps the lease for its next caller, for at most so many milliseconds: 100 to a
    /// day. Acquiring it again costs no request; another client that asks for the lock has it released. A process
    /// that stops while it keeps a lease blocks the lock until the lease ends. Only with PL_MUTEX, on memory and
    /// Redis stores. Default: off.
    pub keep_idle_ms: i64,
    /// A description of the acquisition, shown to operators; at most 256 bytes, no secrets. NULL: nothing.
    pub label: *const c_char,
    /// Makes the lock reentrant for this owner id within this client. NULL: not reentrant.
    pub owner: *const c_char,
}

/// Fills options with the defaults. `size` is sizeof(PlLockOptions). Does nothing for NULL, and for a
/// size that this library does not know: the options are refused by the call that gets them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_lock_options_init(options: *mut PlLockOptions, size: usize) {
    if options.is_null() || size != size_of::<PlLockOptions>() {
        return;
    }
    let defaults = PlLockOptions {
        size,
        mode: PL_MUTEX,
        permits: 0,
        capacity: 0,
        renew: PL_DEFAULT,
        fifo: PL_DEFAULT,
        lease_ms: i64::from(PL_DEFAULT),
        wait_ms: i64::from(PL_DEFAULT),
        max_hold_ms: i64::from(PL_DEFAULT),
        beat_every_ms: i64::from(PL_DEFAULT),
        keep_idle_ms: i64::from(PL_DEFAULT),
        label: ptr::null(),
        owner: ptr::null(),
    };
    // SAFETY: not null, of the right size, and the caller's promise.
    infallible((), || unsafe { options.write(defaults) });
}

/// Acquires a lock, waiting as long as `options` say; NULL means the defaults: a mutex, for ever.
///
/// The wait blocks this thread. `cancel` is NULL or ends it from another thread. On PL_OK `guard` has the
/// held lock. A call that ends in any other way holds nothing.
///
/// Errors: "wait_timeout" with who holds it; "invalid_argument" before anything is sent; "canceled";
/// "name_conflict"; "backend_unavailable"; "backend_rejected"; "unsupported".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_acquire(
    client: *const PlClient,
    name: *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    guard: *mut *mut PlGuard,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { acquire(client, name, options, cancel, guard, error, true) }
}

/// Acquires a lock if it is available at once; PL_BUSY if another client holds it or is queued before.
/// `wait_ms` is not looked at. Otherwise as pl_acquire.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_try_acquire(
    client: *const PlClient,
    name: *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    guard: *mut *mut PlGuard,
    error: *mut *mut PlError,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe { acquire(client, name, options, cancel, guard, error, false) }
}

/// # Safety
/// Every pointer is null or what its type says.
unsafe fn acquire(
    client: *const PlClient,
    name: *const c_char,
    options: *const PlLockOptions,
    cancel: *const PlCancel,
    guard: *mut *mut PlGuard,
    error: *mut *mut PlError,
    wait: bool,
) -> PlStatus {
    // SAFETY: the caller's promise for every pointer.
    unsafe {
        border::call(error, || {
            let guard = place("guard", guard)?;
            *guard = ptr::null_mut();
            let client = handle("client", client)?;
            let name = text("name", name)?.to_owned();
            let (way, options) = read_options(options.as_ref())?;
            let wanted = Wanted::One(LockSpec { name, way, options });
            let held = wait_for(cancel.as_ref(), client.0.acquire(&wanted, wait))?;
            Ok(match held {
                Some(held) => {
                    *guard = Box::into_raw(Box::new(PlGuard::new(held)));
                    PlStatus::PL_OK
                }
                None => PlStatus::PL_BUSY,
            })
        })
    }
}

/// # Safety
/// The texts are null or end with a NUL byte.
pub(crate) unsafe fn read_options(options: Option<&PlLockOptions>) -> Result<(Way, LockOptions), Failure> {
    let Some(given) = options else { return Ok((Way::Mutex, LockOptions::default())) };
    sized::<PlLockOptions>("pl_lock_options_init", "PlLockOptions", given.size)?;
    let way = match given.mode {
        PL_MUTEX => Way::Mutex,
        PL_READ => Way::Read,
        PL_WRITE => Way::Write,
        PL_PERMITS => Way::Permits { count: given.permits, capacity: given.capacity },
        mode => {
            return Err(Failure::invalid_argument(format!(
                "options.mode is {mode}; it must be PL_MUTEX, PL_READ, PL_WRITE or PL_PERMITS"
            )));
        }
    };
    if given.mode != PL_PERMITS && (given.permits != 0 || given.capacity != 0) {
        return Err(Failure::invalid_argument(
            "options.permits and options.capacity belong to PL_PERMITS; leave them 0 otherwise",
        ));
    }
    // SAFETY: the caller's promise.
    let (label, owner) = unsafe {
        (optional_text("options.label", given.label)?, optional_text("options.owner", given.owner)?)
    };
    let options = LockOptions {
        lease: millis("lease_ms", given.lease_ms)?,
        wait: millis("wait_ms", given.wait_ms)?,
        label: label.map(str::to_owned),
        owner: owner.map(str::to_owned),
        max_hold: millis("max_hold_ms", given.max_hold_ms)?,
        beat_every: millis("beat_every_ms", given.beat_every_ms)?,
        keep_idle: millis("keep_idle_ms", given.keep_idle_ms)?,
        fifo: choice("fifo", given.fifo)?,
        renew: choice("renew", given.renew)?,
        ..LockOptions::default()
    };
    Ok((way, options))
}

/// Checks that options of the type `T` were made for this version. Errors: `invalid_argument`.
pub(crate) fn sized<T>(init: &str, name: &str, size: usize) -> Result<(), Failure> {
    if size == size_of::<T>() {
        return Ok(());
    }
    Err(Failure::invalid_argument(format!(
        "options.size is {size}; it must be {}: call {init} with sizeof({name}), and build with the header of this \
         version, {}",
        size_of::<T>(),
        env!("CARGO_PKG_VERSION")
    )))
}

/// Reads milliseconds; -1 stands for the default.
pub(crate) fn millis(option: &str, value: i64) -> Result<Option<Duration>, Failure> {
    if value == i64::from(PL_DEFAULT) {
        return Ok(None);
    }
    // Beyond 2^53 the number is rounded, and refused as far too long anyway.
    units::millis(option, value as f64).map(Some)
}

pub(crate) fn choice(option: &str, value: i32) -> Result<Option<bool>, Failure> {
    match value {
        PL_DEFAULT => Ok(None),
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        _ => Err(Failure::invalid_argument(format!(
            "options.{option} is {value}; it must be 0, 1 or PL_DEFAULT"
        ))),
    }
}
