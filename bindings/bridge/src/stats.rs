//! What a client has done, in numbers, as every language shows them.

use polylatch::{Histogram, Stats};
use serde_json::{Map, Value, json};

/// Returns the numbers as a JSON object. A histogram is an object of `bounds` (the largest duration of each range, in
/// seconds), `counts` (how many durations fell into each range; one more, for all above), `sum` (seconds) and `count`.
/// `losses` and `errors` are objects of counts by their stable codes; all codes are there.
pub fn json(stats: &Stats) -> Value {
    let mut made = json!({
        "backend": stats.backend,
        "wait": histogram(&stats.wait),
        "hold": histogram(&stats.hold),
        "renewal_lag": histogram(&stats.renewal_lag),
        "waiting": stats.waiting,
        "held": stats.held,
        "losses": losses(stats).collect::<Map<_, _>>(),
        "errors": errors(stats).collect::<Map<_, _>>(),
    });
    for (outcome, count) in stats.outcomes() {
        made[outcome] = count.into();
    }
    made
}

/// Returns how many durations fell into each range, and into the last one above all bounds.
pub fn counts(histogram: &Histogram) -> Vec<u64> {
    histogram.buckets().map(|(_, count)| count).collect()
}

fn histogram(histogram: &Histogram) -> Value {
    json!({
        "bounds": Histogram::BOUNDS,
        "counts": counts(histogram),
        "sum": histogram.sum(),
        "count": histogram.count(),
    })
}

fn losses(stats: &Stats) -> impl Iterator<Item = (String, Value)> + '_ {
    stats.losses_by_reason().map(|(reason, count)| (reason.code().to_owned(), count.into()))
}

fn errors(stats: &Stats) -> impl Iterator<Item = (String, Value)> + '_ {
    stats.errors_by_kind().map(|(kind, count)| (kind.code().to_owned(), count.into()))
}

/// Writes the numbers as text that Prometheus reads; see [`Stats::prometheus`].
///
/// Errors: as there.
pub fn prometheus(stats: &Stats, labels: &[(String, String)]) -> polylatch::Result<String> {
    let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    stats.prometheus(&labels)
}
