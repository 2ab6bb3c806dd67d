//! How often a store is read: often while something happens, rarely where a snapshot is expensive, never for
//! more than a small share of the time, nor with more requests than it can well bear.

use std::time::{Duration, Instant};

/// While something changes, a store is read for at most this share of the time: one part in so many.
const SHARE: u32 = 4;

/// While nothing changes. A snapshot is about as much work here as there, and both are to cost next to nothing.
const CALM_SHARE: u32 = 60;

/// While nothing changes, a snapshot that is expensive may come so many times later than otherwise.
const CALM_STRETCH: u32 = 4;

/// The longest pause between two snapshots that the time they take asks for. A store that hung once is looked at again
/// within seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A snapshot that takes as long may be a stall.
const STALL: Duration = Duration::from_secs(2);

/// For how long nothing must have changed.
const CALM_AFTER: Duration = Duration::from_secs(3);

/// How many requests a second a store gets on the average. 10 000 locks of which 1 000 change every second
/// take some 2 300 on Redis.
pub const MOST_REQUESTS: u32 = 2_500;

/// What may be spent at once: the first snapshot takes a request for every lock.
const SAVED: u32 = 10 * MOST_REQUESTS;

/// The pace of one connection.
#[derive(Debug)]
pub(crate) struct Pace {
    quick: Duration,
    every: Duration,
    stirred: Instant,
    /// Requests that may be sent without a pause; below zero, there has to be one first.
    left: f64,
    counted: Instant,
    /// What the snapshot before took.
    took: Option<Duration>,
}

impl Pace {
    /// `quick` is how often a store is read whose snapshots cost next to nothing, `every` how often one is
    /// whose snapshots are expensive and in which something happens. If both are the same, that is how often.
    pub(crate) fn new(quick: Duration, every: Duration, now: Instant) -> Self {
        Self {
            quick: quick.min(every),
            every,
            stirred: now,
            left: f64::from(SAVED),
            counted: now,
            took: None,
        }
    }

    /// Returns the time from the start of a snapshot, which was `now`, to that of the next.
    pub(crate) fn next(&mut self, now: Instant, took: Duration, requests: u32, changed: bool) -> Duration {
        let earned = now.duration_since(self.counted).as_secs_f64() * f64::from(MOST_REQUESTS);
        self.left = (self.left + earned).min(f64::from(SAVED)) - f64::from(requests);
        self.counted = now;
        let owed = Duration::from_secs_f64((-self.left).max(0.0) / f64::from(MOST_REQUESTS));
        if changed {
            self.stirred = now;
        }
        // One that took long between quick ones was a stall, not what a snapshot costs.
        let before = self.took.replace(took).unwrap_or(took);
        let usual = if took >= STALL { before.min(took) } else { took };
        let calm = now.duration_since(self.stirred) >= CALM_AFTER;
        let bearable = usual * if calm { CALM_SHARE } else { SHARE };
        // A busy store is spared even if it was asked to be read more often.
        let stretch = if calm && self.quick < self.every { CALM_STRETCH } else { 1 };
        let paced = bearable.clamp(self.quick, self.every * stretch).max(usual * SHARE);
        let most = (usual + LONGEST_PAUSE).max(self.every);
        paced.min(most).max(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_quick_store_is_read_often_and_a_slow_one_for_a_small_share_of_the_time() {
        let start = Instant::now();
        let mut pace = Pace::new(ms(200), ms(1_000), start);
        let later = start + ms(10_000);
        assert_eq!(pace.next(start, ms(1), 1, true), ms(200));
        assert_eq!(pace.next(later, ms(1), 1, false), ms(200), "also while nothing happens");
        assert_eq!(pace.next(later, ms(30), 1, true), ms(200), "a snapshot of thousands of locks");
        assert_eq!(pace.next(later, ms(100), 1, true), ms(400));
        assert_eq!(
            pace.next(later, ms(900), 1, true),
            ms(3_600),
            "never for more than a quarter of the time"
        );
    }

    #[test]
    fn while_nothing_changes_a_dear_reading_is_rare_and_a_change_makes_it_frequent_again() {
        let start = Instant::now();
        let mut pace = Pace::new(ms(200), ms(1_000), start);
        assert_eq!(pace.next(start + ms(2_900), ms(15), 1, false), ms(200));
        assert_eq!(pace.next(start + ms(3_000), ms(15), 1, false), ms(900));
        assert_eq!(pace.next(start + ms(4_000), ms(50), 1, false), ms(3_000));
        assert_eq!(pace.next(start + ms(4_500), ms(90), 1, false), ms(4_000));
        assert_eq!(pace.next(start + ms(5_000), ms(15), 1, true), ms(200));
        assert_eq!(pace.next(start + ms(7_900), ms(15), 1, false), ms(200));
    }

    #[test]
    fn after_a_stall_the_next_reading_comes_within_seconds() {
        let start = Instant::now();
        let (mut now, mut pace) = (start, Pace::new(ms(200), ms(1_000), start));
        assert_eq!(pace.next(now, ms(1), 1, true), ms(200));
        now += ms(200);
        assert_eq!(pace.next(now, ms(20_000), 1, true), ms(200), "not what a snapshot costs");
        now += ms(20_000);
        assert_eq!(
            pace.next(now, ms(20_000), 1, true),
            ms(30_000),
            "a slow store has a pause of 10 s at most"
        );
        let mut first = Pace::new(ms(200), ms(1_000), start);
        assert_eq!(first.next(start, ms(20_000), 1, true), ms(30_000));
    }

    #[test]
    fn the_wished_interval_bounds_the_pace_on_both_sides() {
        let start = Instant::now();
        let later = start + ms(60_000);
        let even = |every| Pace::new(every, every, start);
        assert_eq!(even(ms(10_000)).next(later, ms(1), 1, true), ms(10_000));
        assert_eq!(
            even(ms(100)).next(later, ms(30), 1, false),
            ms(120),
            "a quarter of the time all the same"
        );
        let wrong_way = Pace::new(ms(1_000), ms(200), start).next(later, ms(1), 1, true);
        assert_eq!(wrong_way, ms(200));
    }

    #[test]
    fn many_requests_are_spread_over_the_time_that_they_may_take() {
        let start = Instant::now();
        let mut pace = Pace::new(ms(200), ms(1_000), start);
        let mut now = start;
        // As many as there may be: nothing has to wait.
        for _ in 0..300 {
            assert_eq!(pace.next(now, ms(1), 500, true), ms(200));
            now += ms(200);
        }
        // The first snapshot of a large store, and then four times as many as there may be.
        let (mut sent, begun) = (20_000, now);
        assert_eq!(pace.next(now, ms(1), 20_000, true), ms(200));
        while now < begun + ms(60_000) {
            now += pace.next(now, ms(1), 2_000, true);
            sent += 2_000;
        }
        let most = MOST_REQUESTS * 60 + SAVED + 2_000;
        assert!((most - 6_000..=most).contains(&sent), "{sent} of {most}");
    }
}
