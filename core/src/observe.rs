//! What can be observed from outside: events with stable names, and metrics.
//!
//! # Events
//!
//! Through the `tracing` crate, target `polylatch`; a subscriber decides what becomes of them, and
//! without one they cost a few nanoseconds. The field `event` is stable. All of these have a field `client`, the id
//! of the client as in the store:
//!
//! | event | level | when | fields |
//! | --- | --- | --- | --- |
//! | `waiting` | debug | an acquisition is queued | lock, backend, position |
//! | `acquired` | debug | a lease began | lock, backend, token, waited_ms, pushed |
//! | `released` | debug | a lease was released | lock, backend, token, held_ms, renewals |
//! | `renewal_failed` | warn | a renewal was refused or not answered in time; it is tried again | leases, error |
//! | `endangered` | warn | no renewal was confirmed for half of a lease, or a hold limit is near | lock, token |
//! | `lost` | warn | a lease is over without having been released | lock, token, reason, held_ms |
//! | `store_unreachable` | warn | a waiting acquisition could not ask the store; it asks again | lock, error |
//! | `store_reachable` | info | the store answers again | lock |
//! | `setup_warning` | warn | the store, as it is set up, may break a promise; told when connecting | which, findings |
//!
//! `store_unreachable` is told once per client, and again every 30 s while the store stays away.
//!
//! # Metrics
//!
//! With the Cargo feature `metrics`, through the facade of the `metrics` crate, for whatever exporter
//! the program installs. Lock names are no labels: there may be any number of them.
//!
//! | metric | kind | labels | what |
//! | --- | --- | --- | --- |
//! | `polylatch_wait_seconds` | histogram | backend, outcome | from the call of acquire to its end |
//! | `polylatch_held_seconds` | histogram | backend | from grant to release or loss |
//! | `polylatch_renewal_lag_seconds` | histogram | backend | from when a renewal was due to its confirmation |
//! | `polylatch_losses_total` | counter | backend, reason | leases lost |
//! | `polylatch_waiting` | gauge | backend | acquisitions of this process that stand in line |
//! | `polylatch_held` | gauge | backend | leases of this process |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::LostReason;

/// What became of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Acquired,
    Refused,
    TimedOut,
    Failed,
    Cancelled,
}

#[cfg(feature = "metrics")]
mod export {
    use super::*;

    impl WaitOutcome {
        fn code(self) -> &'static str {
            match self {
                Self::Acquired => "acquired",
                Self::Refused => "refused",
                Self::TimedOut => "timed_out",
                Self::Failed => "failed",
                Self::Cancelled => "cancelled",
            }
        }
    }

    pub(crate) fn waited(backend: &'static str, outcome: WaitOutcome, waited: Duration) {
        metrics::histogram!("polylatch_wait_seconds", "backend" => backend, "outcome" => outcome.code())
            .record(waited);
    }

    pub(crate) fn line_changed(backend: &'static str, by: f64) {
        metrics::gauge!("polylatch_waiting", "backend" => backend).increment(by);
    }

    pub(crate) fn held_changed(backend: &'static str, by: f64) {
        metrics::gauge!("polylatch_held", "backend" => backend).increment(by);
    }

    pub(crate) fn held_for(backend: &'static str, held: Duration) {
        metrics::histogram!("polylatch_held_seconds", "backend" => backend).record(held);
    }

    pub(crate) fn renewed(backend: &'static str, lag: Duration) {
        metrics::histogram!("polylatch_renewal_lag_seconds", "backend" => backend).record(lag);
    }

    pub(crate) fn lost(backend: &'static str, reason: LostReason) {
        metrics::counter!("polylatch_losses_total", "backend" => backend, "reason" => reason.code())
            .increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod export {
    use super::*;

    #[inline]
    pub(crate) fn waited(_: &'static str, _: WaitOutcome, _: Duration) {}
    #[inline]
    pub(crate) fn line_changed(_: &'static str, _: f64) {}
    #[inline]
    pub(crate) fn held_changed(_: &'static str, _: f64) {}
    #[inline]
    pub(crate) fn held_for(_: &'static str, _: Duration) {}
    #[inline]
    pub(crate) fn renewed(_: &'static str, _: Duration) {}
    #[inline]
    pub(crate) fn lost(_: &'static str, _: LostReason) {}
}

pub(crate) use export::{held_changed, held_for, line_changed, lost, renewed, waited};

/// How long a store that stays away is not mentioned again.
const REMIND_EVERY: Duration = Duration::from_secs(30);

/// When a client last said that its store is unreachable: however many acquisitions wait, one of them says it.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Nanoseconds of the clock, plus one; zero while the store answers.
    said_at: AtomicU64,
}

impl Reach {
    /// The store did not answer. Says whether to tell it.
    pub(crate) fn is_news(&self, now: BootInstant) -> bool {
        let said_at = self.said_at.load(Ordering::Relaxed);
        let silent = said_at != 0 && now.as_nanos() < said_at.saturating_add(REMIND_EVERY.as_nanos() as u64);
        let saying = now.as_nanos().saturating_add(1);
        !silent
            && self.said_at.compare_exchange(said_at, saying, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The store answered. Says whether it was told to be unreachable.
    pub(crate) fn is_back(&self) -> bool {
        self.said_at.load(Ordering::Relaxed) != 0 && self.said_at.swap(0, Ordering::Relaxed) != 0
    }
}

/// Counts one acquisition that stands in line, for as long as it lives.
#[derive(Debug)]
pub(crate) struct InLine(&'static str);

impl InLine {
    pub(crate) fn new(backend: &'static str) -> Self {
        line_changed(backend, 1.0);
        Self(backend)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        line_changed(self.0, -1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_told_once_and_again_every_half_minute() {
        let reach = Reach::default();
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        assert!(!reach.is_back());
        assert!(reach.is_news(at(0)) && !reach.is_news(at(0)) && !reach.is_news(at(29)));
        assert!(reach.is_news(at(31)) && !reach.is_news(at(32)));
        assert!(reach.is_back() && !reach.is_back());
        assert!(reach.is_news(at(33)));
    }
}
