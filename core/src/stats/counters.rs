//! The numbers while they are counted.
//!
//! Only relaxed additions, and no number that follows from others: an acquisition and its release cost five.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::{ErrorKind, LostReason};
use crate::stats::{Histogram, Stats, nanos};

/// What became of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Acquired,
    Refused,
    TimedOut,
    Failed,
    Cancelled,
}

/// The numbers of one client.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    wait: Durations,
    hold: Durations,
    renewal_lag: Durations,
    /// Leases that began; those that ended are in `hold`.
    began: AtomicU64,
    refused: AtomicU64,
    timed_out: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    queued: AtomicU64,
    losses: [AtomicU64; LostReason::ALL.len()],
    errors: [AtomicU64; ErrorKind::ALL.len()],
}

impl Counters {
    pub(crate) fn waited(&self, outcome: WaitOutcome, waited: Duration) {
        let counter = match outcome {
            WaitOutcome::Acquired => return self.wait.add(waited),
            WaitOutcome::Refused => &self.refused,
            WaitOutcome::TimedOut => &self.timed_out,
            WaitOutcome::Failed => &self.failed,
            WaitOutcome::Cancelled => &self.cancelled,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn queued(&self) {
        self.queued.fetch_add(1, Relaxed);
    }

    pub(crate) fn left_queue(&self) {
        self.queued.fetch_sub(1, Relaxed);
    }

    pub(crate) fn began(&self) {
        self.began.fetch_add(1, Relaxed);
    }

    pub(crate) fn ended(&self, held: Duration, lost: Option<LostReason>) {
        self.hold.add(held);
        if let Some(reason) = lost {
            self.losses[reason as usize].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn renewed(&self, lag: Duration) {
        self.renewal_lag.add(lag);
    }

    pub(crate) fn failed(&self, kind: ErrorKind) {
        self.errors[kind as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self, backend: &'static str) -> Stats {
        let wait = self.wait.read();
        // Before those that began, so that a lease that ends meanwhile is at worst still held.
        let hold = self.hold.read();
        let ended = hold.count();
        Stats {
            backend,
            acquired: wait.count(),
            wait,
            refused: self.refused.load(Relaxed),
            timed_out: self.timed_out.load(Relaxed),
            failed: self.failed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            hold,
            renewal_lag: self.renewal_lag.read(),
            waiting: self.queued.load(Relaxed),
            held: self.began.load(Relaxed).saturating_sub(ended),
            losses: read_all(&self.losses),
            errors: read_all(&self.errors),
        }
    }
}

#[derive(Debug, Default)]
struct Durations {
    counts: [AtomicU64; Histogram::BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Durations {
    fn add(&self, duration: Duration) {
        self.counts[Histogram::range_of(duration)].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos(duration), Relaxed);
    }

    fn read(&self) -> Histogram {
        let sum = Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64();
        Histogram { counts: read_all(&self.counts), sum }
    }
}

fn read_all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|index| counters[index].load(Relaxed))
}
