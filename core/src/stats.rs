//! What one client has done since it was made, in numbers.

use std::time::Duration;

use crate::error::{ErrorKind, LostReason, Result};
use crate::prometheus::{MetricType, PrometheusText, check_labels};

pub(crate) mod counters;

/// Numbers about one client since it was made; see [`crate::Polylatch::stats`].
///
/// Counts only grow. They are read one after another while the client works, so two of them may differ by what
/// happened in between.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The kind of store, such as `redis`.
    pub backend: &'static str,
    /// From the call of acquire until the lock was held, of the calls that got it.
    pub wait: Histogram,
    /// Calls that acquired their lock. For a set of locks, this and the next four count each lock.
    pub acquired: u64,
    /// Calls of `try_acquire` that found the lock held.
    pub refused: u64,
    /// Calls whose wait was over before the lock was free.
    pub timed_out: u64,
    /// Calls that ended with another error.
    pub failed: u64,
    /// Calls that the caller gave up, or that closing the client ended.
    pub cancelled: u64,
    /// From the grant of a lease to its release or loss.
    pub hold: Histogram,
    /// From when a renewal was due until the store confirmed it, with all its tries; for an extension, from its
    /// call. Close to one round trip in a healthy fleet; a lease is lost at about two thirds of its length.
    pub renewal_lag: Histogram,
    /// Acquisitions that are queued now.
    pub waiting: u64,
    /// Leases that are held now.
    pub held: u64,
    losses: [u64; LostReason::ALL.len()],
    errors: [u64; ErrorKind::ALL.len()],
}

impl Stats {
    /// Returns how many leases were lost.
    pub fn losses(&self) -> u64 {
        self.losses.iter().sum()
    }

    /// Returns how many leases were lost for each reason, in the order of [`LostReason::ALL`].
    pub fn losses_by_reason(&self) -> impl Iterator<Item = (LostReason, u64)> + '_ {
        LostReason::ALL.iter().copied().zip(self.losses.iter().copied())
    }

    /// Returns how many operations failed: calls of acquire, release, extend, upgrade and downgrade that returned
    /// an error, releases in the background, and requests to renew, which are tried again.
    pub fn errors(&self) -> u64 {
        self.errors.iter().sum()
    }

    /// Returns how many operations failed with each kind of error, in the order of [`ErrorKind::ALL`].
    pub fn errors_by_kind(&self) -> impl Iterator<Item = (ErrorKind, u64)> + '_ {
        ErrorKind::ALL.iter().copied().zip(self.errors.iter().copied())
    }

    /// Returns how many acquisitions ended in each way, by its stable code.
    pub fn outcomes(&self) -> [(&'static str, u64); 5] {
        [
            ("acquired", self.acquired),
            ("refused", self.refused),
            ("timed_out", self.timed_out),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
        ]
    }

    /// Writes these numbers as text that Prometheus reads, with these labels on every line. The label `backend` is
    /// there already. For several clients of one process see [`Stats::prometheus_of`].
    ///
    /// Metrics: `polylatch_wait_seconds`, `polylatch_acquisitions_total`, `polylatch_held_seconds`,
    /// `polylatch_renewal_lag_seconds`, `polylatch_losses_total`, `polylatch_errors_total`, `polylatch_waiting`,
    /// `polylatch_held`, as in [`crate::observe`].
    ///
    /// Errors: `invalid_argument` for a label that is no name for Prometheus, is given twice, or is one of
    /// `backend`, `outcome`, `reason`, `code` and `le`.
    pub fn prometheus(&self, labels: &[(&str, &str)]) -> Result<String> {
        Self::prometheus_of(&[(self, labels)])
    }

    /// Writes the numbers of several clients as one text; the labels must tell the clients apart.
    ///
    /// Errors: as [`Stats::prometheus`].
    pub fn prometheus_of(clients: &[(&Self, &[(&str, &str)])]) -> Result<String> {
        let mut all = Vec::with_capacity(clients.len());
        for (stats, labels) in clients {
            check_labels(labels, &["backend", "outcome", "reason", "code", "le"])?;
            let labels = [labels, &[("backend", stats.backend)][..]].concat();
            all.push((*stats, labels));
        }
        Ok(written(&all))
    }
}

fn written(clients: &[(&Stats, Vec<(&str, &str)>)]) -> String {
    let mut text = PrometheusText::default();
    let mut histogram = |name, help, labels: &[_], read: fn(&Stats) -> Histogram| {
        text.family(name, MetricType::Histogram, help);
        for (stats, own) in clients {
            let read = read(stats);
            text.histogram(name, &[own, labels].concat(), read.buckets(), read.sum);
        }
    };
    histogram(
        "polylatch_wait_seconds",
        "Time from the call of acquire until the lock was held.",
        &[("outcome", "acquired")],
        |stats| stats.wait.clone(),
    );
    histogram(
        "polylatch_held_seconds",
        "Time from the grant of a lease to its release or loss.",
        &[],
        |stats| stats.hold.clone(),
    );
    histogram(
        "polylatch_renewal_lag_seconds",
        "Time from when a renewal was due until the store confirmed it.",
        &[],
        |stats| stats.renewal_lag.clone(),
    );
    let mut counter = |name, help, label, read: fn(&Stats) -> Vec<(&'static str, u64)>| {
        text.family(name, MetricType::Counter, help);
        for (stats, own) in clients {
            for (code, count) in read(stats) {
                text.sample(name, &[own.as_slice(), &[(label, code)]].concat(), count as f64);
            }
        }
    };
    counter("polylatch_acquisitions_total", "Ended acquisitions, by outcome.", "outcome", |stats| {
        stats.outcomes().to_vec()
    });
    counter("polylatch_losses_total", "Leases that were lost, by reason.", "reason", |stats| {
        stats.losses_by_reason().map(|(reason, count)| (reason.code(), count)).collect()
    });
    counter("polylatch_errors_total", "Operations that failed, by error code.", "code", |stats| {
        stats.errors_by_kind().map(|(kind, count)| (kind.code(), count)).collect()
    });
    let mut gauge = |name, help, read: fn(&Stats) -> u64| {
        text.family(name, MetricType::Gauge, help);
        for (stats, own) in clients {
            text.sample(name, own, read(stats) as f64);
        }
    };
    gauge("polylatch_waiting", "Acquisitions that are queued.", |stats| stats.waiting);
    gauge("polylatch_held", "Leases that are held.", |stats| stats.held);
    text.into_string()
}

/// How many durations fell into which range. The ranges are the same for every histogram and version of one major
/// number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    counts: [u64; Self::BOUNDS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// The largest duration of each range, in seconds; a last range has everything above.
    pub const BOUNDS: [f64; 18] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
        300.0, 1800.0,
    ];

    /// Returns how many durations there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations, in seconds.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns for each range its upper bound in seconds, inclusive, and how many durations fell into it alone
    /// (not cumulative). The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = Self::BOUNDS.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied())
    }

    /// Into which range a duration falls.
    fn range_of(duration: Duration) -> usize {
        const NANOS: [u64; Histogram::BOUNDS.len()] = {
            let mut nanos = [0; Histogram::BOUNDS.len()];
            let mut index = 0;
            while index < nanos.len() {
                // Rounded: a bound such as 0.0025 has no exact binary form.
                nanos[index] = (Histogram::BOUNDS[index] * 1e9 + 0.5) as u64;
                index += 1;
            }
            nanos
        };
        let duration = nanos(duration);
        NANOS.iter().position(|bound| duration <= *bound).unwrap_or(NANOS.len())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
