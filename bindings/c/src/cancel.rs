//! Ending a wait from another thread.

use std::future::Future;
use std::time::Duration;

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
    let Some(cancel) = cancel else { return run(call) };
    let mut triggered = cancel.0.subscribe();
    run(async move {
        tokio::select! {
            biased;
            _ = triggered.wait_for(|triggered| *triggered) => {
                Err(Failure::canceled("the wait was ended by pl_cancel_trigger; nothing is held"))
            }
            result = call => result,
        }
    })
}

/// Waits on this thread for a call.
pub(crate) fn run<T>(call: impl Future<Output = T>) -> T {
    // Nobody asks in between: a year, the longest wait there is, is as good as never.
    const NEVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let output = polylatch::blocking::run_while(call, NEVER, || true);
    output.expect("it always goes on")
}
