//! Ending a wait from another thread.

use std::future::Future;
use std::time::{Duration, Instant};

use polylatch_bridge::Failure;
use tokio::sync::watch;

use crate::border::{free, infallible};

/// Ends calls that wait, from any thread. One may serve many calls.
#[derive(Debug)]
pub struct PlCancel(watch::Sender<bool>);

/// Makes a handle with which waiting calls can be ended.
#[unsafe(no_mangle)]
pub extern "C" fn pl_cancel_new() -> *mut PlCancel {
    infallible(std::ptr::null_mut(), || Box::into_raw(Box::new(PlCancel(watch::Sender::new(false)))))
}

/// Ends the calls that wait with this handle, now and from now on: they fail with "canceled", and what
/// they may have done is undone. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_cancel_trigger(cancel: *const PlCancel) {
    // SAFETY: the caller's promise.
    if let Some(cancel) = unsafe { cancel.as_ref() } {
        infallible((), || {
            cancel.0.send_replace(true);
        });
    }
}

/// Gives the handle back. No call may be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_cancel_free(cancel: *mut PlCancel) {
    // SAFETY: the caller's promise.
    unsafe { free(cancel) };
}

/// Waits on this thread for a call, or until it is cancelled: the call is dropped then, which undoes it.
pub(crate) fn wait_for<T>(
    cancel: Option<&PlCancel>,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    run(until_triggered(cancel, call))
}

/// Waits as [`wait_for`], with a time limit; `None` when it is over.
pub(crate) fn wait_at_most<T>(
    cancel: Option<&PlCancel>,
    limit: Option<Duration>,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    run_at_most(until_triggered(cancel, call), limit).transpose()
}

async fn until_triggered<T>(
    cancel: Option<&PlCancel>,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(cancel) = cancel else { return call.await };
    let mut triggered = cancel.0.subscribe();
    tokio::select! {
        biased;
        _ = triggered.wait_for(|triggered| *triggered) => {
            Err(Failure::canceled("the wait was ended by pl_cancel_trigger; nothing is held"))
        }
        result = call => result,
    }
}

/// Waits on this thread for a call.
pub(crate) fn run<T>(call: impl Future<Output = T>) -> T {
    run_at_most(call, None).expect("without a limit it goes on until it is done")
}

/// Waits on this thread for a call; `None` when the time is over first, and the call was dropped.
pub(crate) fn run_at_most<T>(call: impl Future<Output = T>, limit: Option<Duration>) -> Option<T> {
    // Nobody asks in between: a year, the longest wait there is, is as good as never.
    const NEVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let started = Instant::now();
    polylatch::blocking::run_while(call, || match limit {
        None => Some(NEVER),
        Some(limit) => limit.checked_sub(started.elapsed()).filter(|left| !left.is_zero()),
    })
}
