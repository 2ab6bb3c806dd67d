//! What can be observed from outside: events with stable names, and metrics.
//!
//! # Events
//!
//! Through the `tracing` crate, target `polylatch`; a subscriber decides what becomes of them. An event that no
//! subscriber wants costs a few nanoseconds: a lock that is free is acquired and released without any at `info`. The
//! field `event` is stable. All of these have a field `client`, the id
//! of the client as in the store:
//!
//! | event | level | when | fields |
//! | --- | --- | --- | --- |
//! | `waiting` | info | an acquisition is queued | lock, backend, position |
//! | `acquired` | info, debug | a lease began: info after `waiting`, else debug | lock, backend, token, waited_ms, pushed |
//! | `released` | debug | a lease was released | lock, backend, token, held_ms, renewals |
//! | `renewal_failed` | warn | a renewal was refused or not answered in time; it is tried again | leases, error |
//! | `endangered` | warn | no renewal was confirmed for half of a lease, or a hold limit is near | lock, token |
//! | `lost` | error | a lease is over without having been released | lock, token, reason, held_ms |
//! | `store_unreachable` | warn | a waiting acquisition could not ask the store; it asks again | lock, error |
//! | `store_reachable` | info | the store answers again | lock |
//! | `setup_warning` | warn | the store, as it is set up, may break a promise; reported when connecting | which, findings |
//!
//! `store_unreachable` is reported once per client, and again every 30 s while the store stays away.
//!
//! # Metrics
//!
//! [`crate::Polylatch::stats`] counts for one client, always. With the Cargo feature `metrics` the same goes through
//! the facade of the `metrics` crate, for whatever exporter the program installs. Both have these names. Lock names
//! are no labels: there may be any number of them.
//!
//! | metric | kind | labels | what |
//! | --- | --- | --- | --- |
//! | `polylatch_wait_seconds` | histogram | backend, outcome | from the call of acquire to its end |
//! | `polylatch_acquisitions_total` | counter | backend, outcome | ended acquisitions |
//! | `polylatch_held_seconds` | histogram | backend | from grant to release or loss |
//! | `polylatch_renewal_lag_seconds` | histogram | backend | from when a renewal was due to its confirmation, with all its tries |
//! | `polylatch_losses_total` | counter | backend, reason | leases lost |
//! | `polylatch_errors_total` | counter | backend, code | operations that failed; see [`crate::Stats::errors`] |
//! | `polylatch_waiting` | gauge | backend | acquisitions that are queued |
//! | `polylatch_held` | gauge | backend | leases that are held |
//!
//! The outcomes are `acquired`, `refused`, `timed_out`, `failed` and `cancelled`. [`crate::Stats`] keeps the
//! histogram of the waits for `acquired` alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::{ErrorKind, LostReason, Result};
use crate::stats::Stats;
use crate::stats::counters::Counters;

pub use crate::prometheus::{MetricType, PrometheusText};
pub(crate) use crate::stats::counters::WaitOutcome;

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

    pub(super) fn waited(backend: &'static str, outcome: WaitOutcome, waited: Duration) {
        let outcome = outcome.code();
        metrics::histogram!("polylatch_wait_seconds", "backend" => backend, "outcome" => outcome)
            .record(waited);
        metrics::counter!("polylatch_acquisitions_total", "backend" => backend, "outcome" => outcome)
            .increment(1);
    }

    pub(super) fn queue_changed(backend: &'static str, by: f64) {
        metrics::gauge!("polylatch_waiting", "backend" => backend).increment(by);
    }

    pub(super) fn held_changed(backend: &'static str, by: f64) {
        metrics::gauge!("polylatch_held", "backend" => backend).increment(by);
    }

    pub(super) fn held_for(backend: &'static str, held: Duration) {
        metrics::histogram!("polylatch_held_seconds", "backend" => backend).record(held);
    }

    pub(super) fn renewed(backend: &'static str, lag: Duration) {
        metrics::histogram!("polylatch_renewal_lag_seconds", "backend" => backend).record(lag);
    }

    pub(super) fn lost(backend: &'static str, reason: LostReason) {
        metrics::counter!("polylatch_losses_total", "backend" => backend, "reason" => reason.code())
            .increment(1);
    }

    pub(super) fn failed(backend: &'static str, kind: ErrorKind) {
        metrics::counter!("polylatch_errors_total", "backend" => backend, "code" => kind.code()).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod export {
    use super::*;

    #[inline]
    pub(super) fn waited(_: &'static str, _: WaitOutcome, _: Duration) {}
    #[inline]
    pub(super) fn queue_changed(_: &'static str, _: f64) {}
    #[inline]
    pub(super) fn held_changed(_: &'static str, _: f64) {}
    #[inline]
    pub(super) fn held_for(_: &'static str, _: Duration) {}
    #[inline]
    pub(super) fn renewed(_: &'static str, _: Duration) {}
    #[inline]
    pub(super) fn lost(_: &'static str, _: LostReason) {}
    #[inline]
    pub(super) fn failed(_: &'static str, _: ErrorKind) {}
}

/// How an acquisition got its lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entered {
    /// It was queued before, and that was reported.
    pub queued: bool,
    /// The store notified it.
    pub pushed: bool,
}

/// Takes down what one client does: for [`Stats`], and for the program's own exporter.
#[derive(Debug)]
pub(crate) struct Observer {
    backend: &'static str,
    counters: Counters,
}

impl Observer {
    pub(crate) fn new(backend: &'static str) -> Arc<Self> {
        Arc::new(Self { backend, counters: Counters::default() })
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.read(self.backend)
    }

    /// An acquisition ended.
    pub(crate) fn waited(&self, outcome: WaitOutcome, waited: Duration) {
        self.counters.waited(outcome, waited);
        export::waited(self.backend, outcome, waited);
    }

    /// An acquisition is queued for as long as the result lives.
    pub(crate) fn queued(self: &Arc<Self>) -> Queued {
        self.counters.queued();
        export::queue_changed(self.backend, 1.0);
        Queued(Arc::clone(self))
    }

    /// Tells that an acquisition got its lease: how it entered, with which fencing token, after how long.
    pub(crate) fn acquired(&self, client: &str, lock: &str, token: u64, entered: Entered, waited: Duration) {
        let (backend, waited_ms) = (self.backend, waited.as_millis() as u64);
        let Entered { queued, pushed } = entered;
        if queued {
            tracing::info!(target: "polylatch", event = "acquired", client, lock, backend, token, waited_ms, pushed);
        } else {
            tracing::debug!(target: "polylatch", event = "acquired", client, lock, backend, token, waited_ms, pushed);
        }
    }

    /// A lease began.
    pub(crate) fn began(&self) {
        self.counters.began();
        export::held_changed(self.backend, 1.0);
    }

    /// A lease ended. Called before the holder is notified, so that the holder finds it counted, and therefore under
    /// the lease's lock: the exporter, which is foreign code, comes later, with [`Observer::ended_for_export`].
    pub(crate) fn ended(&self, held: Duration, lost: Option<LostReason>) {
        self.counters.ended(held, lost);
    }

    /// The second half of [`Observer::ended`], without a lock.
    pub(crate) fn ended_for_export(&self, held: Duration, lost: Option<LostReason>) {
        export::held_for(self.backend, held);
        export::held_changed(self.backend, -1.0);
        if let Some(reason) = lost {
            export::lost(self.backend, reason);
        }
    }

    /// A renewal was confirmed, so long after it was due.
    pub(crate) fn renewed(&self, lag: Duration) {
        self.counters.renewed(lag);
        export::renewed(self.backend, lag);
    }

    /// An operation failed.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        self.counters.failed(kind);
        export::failed(self.backend, kind);
    }

    /// Counts an operation that failed, and passes on what came of it.
    pub(crate) fn counted<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.failed(error.kind()))
    }
}

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

    /// The store answered. Says whether it was reported as unreachable.
    pub(crate) fn is_back(&self) -> bool {
        self.said_at.load(Ordering::Relaxed) != 0 && self.said_at.swap(0, Ordering::Relaxed) != 0
    }
}

/// Counts one queued acquisition, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Queued(Arc<Observer>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.counters.left_queue();
        export::queue_changed(self.0.backend, -1.0);
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
