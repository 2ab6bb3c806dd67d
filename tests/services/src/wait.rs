//! Waiting for something to become true, with a deadline and a panic that says what was missing.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);

/// Waits until `predicate` answers true; panics with `what` when `within` has passed.
///
/// ```ignore
/// wait_until("the waiter to be listed", Duration::from_secs(5), || list().len() == 2);
/// ```
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut predicate: impl FnMut() -> bool) {
    wait_for(what, within, || predicate().then_some(()));
}

/// Waits until `probe` answers `Some` and returns it; panics with `what` when `within` has passed.
#[track_caller]
pub fn wait_for<T>(what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
    match poll(within, probe) {
        Some(found) => found,
        None => panic!("waited {within:?} in vain for {what}"),
    }
}

/// Asks `probe` until it answers `Some` or `within` has passed; asks at least once.
pub(crate) fn poll<T>(within: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    loop {
        // Read the clock first: the last probe then happens after the deadline, never before it.
        let late = Instant::now() >= deadline;
        if let Some(found) = probe() {
            return Some(found);
        }
        if late {
            return None;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_returns_what_the_probe_found() {
        let mut asked = 0;
        let found = wait_for("the third answer", Duration::from_secs(5), || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "in vain for a miracle")]
    fn wait_until_says_what_it_waited_for() {
        wait_until("a miracle", Duration::from_millis(5), || false);
    }
}
