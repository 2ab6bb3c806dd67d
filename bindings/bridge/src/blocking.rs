//! Waiting on the caller's thread, for hosts that must look for signals meanwhile.

use std::future::Future;
use std::time::{Duration, Instant};

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
    look: impl FnMut() -> Result<(), E>,
) -> Result<T, Interrupted<E>> {
    run_at_most(call, None, look).map(|output| output.expect("without a limit it goes on until it is done"))
}

/// The same with a time limit; `None` when it is over, and the call was dropped.
pub fn run_at_most<T, E>(
    call: impl Future<Output = T>,
    limit: Option<Duration>,
    mut look: impl FnMut() -> Result<(), E>,
) -> Result<Option<T>, Interrupted<E>> {
    let started = Instant::now();
    let mut said = None;
    let output = polylatch::blocking::run_while(call, || {
        if let Err(error) = look() {
            said = Some(error);
            return None;
        }
        match limit {
            None => Some(LOOK_EVERY),
            Some(limit) => limit
                .checked_sub(started.elapsed())
                .filter(|left| !left.is_zero())
                .map(|left| left.min(LOOK_EVERY)),
        }
    });
    match said {
        Some(error) => Err(Interrupted(error)),
        None => Ok(output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_and_a_host_each_end_a_wait() {
        let never = std::future::pending::<()>;
        let at_ease = || Ok::<(), &str>(());
        assert_eq!(run_at_most(never(), Some(Duration::from_millis(5)), at_ease), Ok(None));
        assert_eq!(run_at_most(async { 7 }, Some(Duration::ZERO), at_ease), Ok(Some(7)));
        assert_eq!(run_interruptible(never(), || Err("a signal")), Err(Interrupted("a signal")));
    }
}
