//! The thread on which a host language's callbacks are called.
//!
//! It is not the thread that renews leases: a callback may have to wait for an interpreter lock, and
//! a lease must not be lost for that.

use std::future::Future;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{io, ptr, thread};

use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::failure::Failure;
use crate::process::Process;

struct Slot {
    home: Process,
    handle: Handle,
}

/// The slot of this process, or of the one that forked it. Never freed: a child must not drop what
/// its parent runs, and a process has few ancestors.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Work on the callback thread. Dropping the handle ends it.
#[derive(Debug)]
#[must_use = "dropping the handle ends the work"]
pub struct Task {
    home: Process,
    abort: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.home.is_this() {
            self.abort.abort();
        }
    }
}

/// Runs `work` on the callback thread. It may block for short.
///
/// Errors: `backend_unavailable` if the operating system gives no thread.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Result<Task, Failure> {
    let abort = handle()?.spawn(work).abort_handle();
    Ok(Task { home: Process::this(), abort })
}

/// The same for short work that nobody ends; it does not happen if the system gives no thread.
pub fn spawn_detached(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(handle) = handle() {
        handle.spawn(work);
    }
}

/// Sees to it that there is a callback thread, so that work for it happens in this process.
///
/// Errors: as [`spawn`].
pub fn prepare() -> Result<(), Failure> {
    handle().map(drop)
}

fn handle() -> Result<&'static Handle, Failure> {
    loop {
        let present = SLOT.load(Ordering::Acquire);
        // SAFETY: slots are leaked when they are made, so every pointer stays valid.
        if let Some(slot) = unsafe { present.as_ref() }
            && slot.home.is_this()
        {
            return Ok(&slot.handle);
        }
        let handle = start().map_err(Failure::no_thread)?;
        let fresh = Box::into_raw(Box::new(Slot { home: Process::this(), handle }));
        if SLOT.compare_exchange(present, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Somebody else was faster.
            // SAFETY: it was made above and nobody else has seen it. Its thread ends with its last handle.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("polylatch-calls".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}
