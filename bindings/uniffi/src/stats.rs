//! What a client has done, in numbers.

#![deny(missing_docs)]

use std::collections::HashMap;

use polylatch_bridge::stats::counts;

use crate::view::whole;

/// What one client has done since it was made. Counts only grow; `waiting` and `held` are of now.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Stats {
    /// Kind of store, such as `redis`.
    pub backend: String,
    /// From the call of acquire until the lock was held, of the calls that got it.
    pub wait: Histogram,
    /// From the grant of a lease to its release or loss.
    pub hold: Histogram,
    /// From when a renewal was due until the store confirmed it.
    pub renewal_lag: Histogram,
    /// Acquisitions by how they ended. For a set of locks, each lock counts.
    pub acquired: i64,
    /// Those that did not wait, and another client held the lock.
    pub refused: i64,
    /// Those whose wait was over.
    pub timed_out: i64,
    /// Those that ended with another error.
    pub failed: i64,
    /// Those that the caller ended.
    pub cancelled: i64,
    /// Acquisitions that are queued now.
    pub waiting: i64,
    /// Leases that are held now.
    pub held: i64,
    /// Lost leases by reason, such as `expired`; all reasons are there.
    pub losses: HashMap<String, i64>,
    /// Failed operations by the code of their error; all codes are there.
    pub errors: HashMap<String, i64>,
}

/// How many durations fell into which range.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Histogram {
    /// The largest duration of each range, in seconds.
    pub bounds: Vec<f64>,
    /// How many fell into each range alone; one more than there are bounds, for all above.
    pub counts: Vec<i64>,
    /// Seconds in all.
    pub sum: f64,
    /// How many in all.
    pub count: i64,
}

impl From<&polylatch::Histogram> for Histogram {
    fn from(histogram: &polylatch::Histogram) -> Self {
        Self {
            bounds: polylatch::Histogram::BOUNDS.to_vec(),
            counts: counts(histogram).into_iter().map(whole).collect(),
            sum: histogram.sum(),
            count: whole(histogram.count()),
        }
    }
}

impl From<polylatch::Stats> for Stats {
    fn from(stats: polylatch::Stats) -> Self {
        let losses = stats.losses_by_reason().map(|(reason, count)| (reason.code().to_owned(), whole(count)));
        let errors = stats.errors_by_kind().map(|(kind, count)| (kind.code().to_owned(), whole(count)));
        Self {
            backend: stats.backend.to_owned(),
            wait: (&stats.wait).into(),
            hold: (&stats.hold).into(),
            renewal_lag: (&stats.renewal_lag).into(),
            acquired: whole(stats.acquired),
            refused: whole(stats.refused),
            timed_out: whole(stats.timed_out),
            failed: whole(stats.failed),
            cancelled: whole(stats.cancelled),
            waiting: whole(stats.waiting),
            held: whole(stats.held),
            losses: losses.collect(),
            errors: errors.collect(),
        }
    }
}
