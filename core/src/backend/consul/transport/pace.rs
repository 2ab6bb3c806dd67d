//! Requests that are to wait for a change, and those that do not wait.

use std::time::Duration;

use crate::clock::Instant;

/// Least time from one request without news to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// When a request that waits for a change was sent.
pub(crate) struct Pace(Instant);

impl Pace {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The index for the next request. One that goes back is from another history (Consul, "Blocking
    /// Queries"); that, and one that got lost, ask for an answer at once. So whatever brought no newer
    /// index is followed by a pause, unless the request waited.
    pub(crate) async fn next(self, before: u64, seen: u64) -> u64 {
        if seen == 0 || seen <= before {
            tokio::time::sleep(PAUSE.saturating_sub(self.0.elapsed())).await;
        }
        if seen < before { 0 } else { seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_does_not_grow_is_not_asked_for_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for (before, seen, next, pauses) in [
                (0, 7, 7, false),
                (7, 8, 8, false),
                (7, 7, 7, true),
                (7, 3, 0, true),
                (7, 0, 0, true),
                (0, 0, 0, true),
            ] {
                let started = Instant::now();
                assert_eq!(Pace::start().next(before, seen).await, next);
                assert_eq!(started.elapsed() >= PAUSE - Duration::from_millis(5), pauses, "{before} {seen}");
            }
        });
    }
}
