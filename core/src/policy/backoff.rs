//! Jittered retry delays, bounded.

use std::time::Duration;

/// A small generator for jitter. Not for secrets: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns `base` changed by at most a tenth in either direction.
    pub(crate) fn tenth(&mut self, base: Duration) -> Duration {
        let share = 0.9 + 0.2 * self.unit();
        base.mul_f64(share)
    }

    /// Returns a duration between half of `base` and `base`.
    pub(crate) fn upper_half(&mut self, base: Duration) -> Duration {
        base.mul_f64(0.5 + 0.5 * self.unit())
    }

    fn unit(&mut self) -> f64 {
        // 53 random bits, the precision of a double.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Delays between tries: doubling from `first` up to `most`, each shortened by up to a half so that
/// contenders that failed together do not come back together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    most: Duration,
    jitter: Jitter,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration, seed: u64) -> Self {
        Self { next: first, most, jitter: Jitter::seeded(seed) }
    }

    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.jitter.upper_half(self.next);
        self.next = (self.next * 2).min(self.most);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_bound_and_never_pass_it() {
        let most = Duration::from_secs(1);
        let mut backoff = Backoff::new(Duration::from_millis(20), most, 7);
        let delays: Vec<_> = (0..20).map(|_| backoff.delay()).collect();
        assert!(delays[0] >= Duration::from_millis(10) && delays[0] <= Duration::from_millis(20));
        assert!(delays.iter().all(|delay| *delay <= most));
        assert!(delays[19] >= most / 2);
    }

    #[test]
    fn jitter_stays_within_a_tenth() {
        let mut jitter = Jitter::seeded(3);
        for _ in 0..1000 {
            let value = jitter.tenth(Duration::from_millis(1000));
            assert!((900..=1100).contains(&value.as_millis()), "{value:?}");
        }
    }
}
