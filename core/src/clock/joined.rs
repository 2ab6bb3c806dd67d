//! One clock out of two that both fail: a monotonic one that may stand still while the machine sleeps, and
//! a wall clock that may be set. The worse for a holder counts.
#![cfg_attr(
    not(any(test, target_family = "wasm")),
    allow(dead_code, reason = "only JavaScript hosts need it")
)]

use std::time::Duration;

use crate::clock::BootInstant;
use crate::limits::MAX_LEASE;

/// How far the wall clock may run ahead within one [`WINDOW`] without a sleep: both clocks are rounded, in
/// some browsers to 100 ms, and time services slew the wall clock by up to half a millisecond a second.
const ROUNDING: Duration = Duration::from_millis(20);

/// After how long the two are compared again, so that slow differences never add up to a sleep.
const WINDOW: Duration = Duration::from_secs(10);

/// A wall clock set back by more hides any sleep of that length, so nothing that was held can be vouched for.
const SET_BACK: Duration = Duration::from_secs(2);

/// What both clocks said at one moment, each from a start of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub monotonic: Duration,
    pub wall: Duration,
}

/// The joined clock. Between any two readings it advances by no less than the monotonic clock, and by no
/// less than the wall clock, up to [`ROUNDING`].
#[derive(Debug)]
pub(crate) struct Joined {
    now: Duration,
    last: Reading,
    /// Where the present comparison began, and what was added since because the wall clock ran ahead.
    since: Reading,
    added: Duration,
}

impl Joined {
    pub(crate) fn starting_at(reading: Reading) -> Self {
        // Not from zero: an instant before the first reading has to be expressible.
        Self { now: MAX_LEASE, last: reading, since: reading, added: Duration::ZERO }
    }

    /// Returns the present instant. It never goes back.
    pub(crate) fn read(&mut self, reading: Reading) -> BootInstant {
        let monotonic = reading.monotonic.saturating_sub(self.since.monotonic);
        let wall = reading.wall.saturating_sub(self.since.wall);
        self.now += reading.monotonic.saturating_sub(self.last.monotonic);
        let ahead = wall.saturating_sub(monotonic);
        if ahead > ROUNDING && ahead > self.added {
            self.now += ahead - self.added;
            self.added = ahead;
        }
        let set_back = (self.last.wall + reading.monotonic.saturating_sub(self.last.monotonic))
            .saturating_sub(reading.wall);
        if set_back > SET_BACK {
            self.now += MAX_LEASE;
        }
        self.last = reading;
        if monotonic.max(wall) >= WINDOW || set_back > SET_BACK {
            self.since = reading;
            self.added = Duration::ZERO;
        }
        BootInstant::from_nanos(0) + self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic_ms: u64, wall_ms: u64) -> Reading {
        Reading {
            monotonic: Duration::from_millis(monotonic_ms),
            wall: Duration::from_millis(1_000_000_000 + wall_ms),
        }
    }

    fn passed(readings: &[(u64, u64)]) -> Duration {
        let mut clock = Joined::starting_at(reading(0, 0));
        let start = clock.read(reading(0, 0));
        let mut last = start;
        for (monotonic, wall) in readings {
            let now = clock.read(reading(*monotonic, *wall));
            assert!(now >= last, "it went back");
            last = now;
        }
        last.since(start)
    }

    #[test]
    fn a_sleep_in_which_the_monotonic_clock_stood_still_is_counted() {
        assert_eq!(passed(&[(100, 100), (101, 60_101)]), Duration::from_millis(60_101));
        assert_eq!(passed(&[(100, 125), (110, 160)]), Duration::from_millis(160));
    }

    #[test]
    fn many_readings_of_rounded_clocks_do_not_add_up() {
        let rounded: Vec<_> = (0..200_000).map(|tenth| (tenth / 10, tenth / 10 + (tenth % 7) / 4)).collect();
        let passed = passed(&rounded);
        assert!(passed < Duration::from_millis(20_100), "{passed:?} in 20 s");
    }

    #[test]
    fn a_slewed_wall_clock_does_not_add_up() {
        let slewed: Vec<_> = (0..3_600).map(|second| (second * 1_000, second * 1_000 + second / 2)).collect();
        assert_eq!(passed(&slewed), Duration::from_millis(3_599_000));
    }

    #[test]
    fn a_wall_clock_set_ahead_and_back_never_makes_time_slower_than_the_monotonic_clock() {
        let mut clock = Joined::starting_at(reading(0, 0));
        clock.read(reading(10, 40_000));
        let between = clock.read(reading(20, 40_010));
        let later = clock.read(reading(5_020, 5_020));
        assert!(later.since(between) >= Duration::from_secs(5));
    }

    #[test]
    fn a_wall_clock_set_back_ends_every_lease() {
        assert!(passed(&[(1_000, 1_000), (1_100, 0)]) < Duration::from_secs(2), "a correction");
        assert!(passed(&[(10_000, 10_000), (10_100, 7_000)]) > MAX_LEASE);
    }
}
