//! Time as a holder must count it: monotonic, and running while the machine sleeps.
//!
//! `std::time::Instant` stops during suspend on Linux and macOS, so a laptop that slept for an hour
//! would believe in a lease that ended long ago. [`SystemClock`] reads the clock that goes on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

pub use instant::BootInstant;

mod instant;
use instant::nanos;
pub(crate) mod joined;
#[cfg(target_family = "wasm")]
mod web;

#[cfg(not(target_family = "wasm"))]
pub(crate) use std::time::{Instant, SystemTime, UNIX_EPOCH};
#[cfg(target_family = "wasm")]
pub(crate) use web_time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the whole milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1000).saturating_add(u64::from(duration.subsec_millis()))
}

/// The wall clock, in milliseconds since the Unix epoch. It may be set and step back, so nothing that excludes is
/// decided by it.
pub(crate) fn wall_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// As [`wall_ms`], in microseconds.
#[cfg(all(any(feature = "redis", feature = "postgres", feature = "mysql"), not(target_family = "wasm")))]
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Writes a duration as a whole number of milliseconds.
pub(crate) fn as_millis<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(millis(*duration))
}

/// Shows a duration as seconds with one digit after the point.
///
/// In whole numbers, as `parse_duration` reads it, for the same reason.
pub(crate) fn seconds(duration: Duration) -> String {
    let tenths = millis(duration).saturating_add(50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

/// A source of suspend-aware monotonic time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns the present instant. It never goes back.
    fn now(&self) -> BootInstant;

    /// Completes when the clock has reached `at`. `None` for a clock that runs with real time, which is the
    /// default: then timers do.
    fn reached(&self, at: BootInstant) -> Option<Reached<'_>> {
        let _ = at;
        None
    }
}

/// Waits for a clock; see [`Clock::reached`].
pub type Reached<'c> = Pin<Box<dyn Future<Output = ()> + Send + 'c>>;

/// The operating system's suspend-aware clock.
///
/// Source: `CLOCK_BOOTTIME` of clock_gettime(2) on Linux and Android. On macOS `CLOCK_MONOTONIC`
/// counts sleep (its manual page says so), unlike the clock that std uses there. In a JavaScript host
/// the monotonic clock may stand still meanwhile, so it is compared with the wall clock and the worse
/// counts. Elsewhere std's clock is used.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[cfg(unix)]
    fn now(&self) -> BootInstant {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(CLOCK);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        BootInstant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(target_family = "wasm")]
    fn now(&self) -> BootInstant {
        web::now()
    }

    #[cfg(not(any(unix, target_family = "wasm")))]
    fn now(&self) -> BootInstant {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        BootInstant::from_nanos(nanos(START.get_or_init(Instant::now).elapsed()))
    }
}

/// A clock that only moves when told to, for tests of what depends on time; see
/// [`ClientBuilder::clock`](crate::ClientBuilder::clock).
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// Makes a clock that stands at `start`.
    pub fn starting_at(start: BootInstant) -> Self {
        Self { nanos: AtomicU64::new(start.as_nanos()), moved: Notify::new() }
    }

    /// Moves the clock forward, and ends the sleeps that are over by then.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(nanos(by), Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn reached(&self, at: BootInstant) -> Option<Reached<'_>> {
        Some(Box::pin(async move {
            loop {
                // Before the look at the clock, so that no move comes in between.
                let moved = self.moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second >= first);
        assert!(first.as_nanos() > 0);
    }

    #[test]
    fn seconds_are_shown_rounded_to_tenths() {
        for (millis, shown) in
            [(0, "0.0 s"), (49, "0.0 s"), (50, "0.1 s"), (1_960, "2.0 s"), (75_250, "75.3 s")]
        {
            assert_eq!(seconds(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let early = BootInstant::from_nanos(5);
        assert_eq!(early - Duration::from_secs(1), BootInstant::from_nanos(0));
        let far = BootInstant::from_nanos(u64::MAX);
        assert_eq!(far + Duration::from_secs(1), far);
        assert_eq!(early.since(far), Duration::ZERO);
    }
}
