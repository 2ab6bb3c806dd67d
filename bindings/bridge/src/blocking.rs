//! Waiting on the caller's thread, for hosts that must look for signals meanwhile.

use std::future::Future;
use std::time::Duration;

/// How long a host can be kept from looking for signals: short against what a person notices.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The host wanted to stop waiting, with what it said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted<E>(pub E);

/// Runs a call of the core to its end on this thread. While it waits, asks the host every 50 ms
/// whether to stop, as in `Python.check_signals`.
///
/// Cancellation: when the host says so, the call is dropped, which undoes what it may have done.
pub fn run_interruptible<T, E>(
    call: impl Future<Output = T>,
    mut look: impl FnMut() -> Result<(), E>,
) -> Result<T, Interrupted<E>> {
    let mut said = None;
    let go_on = || match look() {
        Ok(()) => true,
        Err(error) => {
            said = Some(error);
            false
        }
    };
    match (polylatch::blocking::run_while(call, LOOK_EVERY, go_on), said) {
        (Some(output), _) => Ok(output),
        (None, Some(error)) => Err(Interrupted(error)),
        (None, None) => unreachable!("only an error of the host ends the wait"),
    }
}
