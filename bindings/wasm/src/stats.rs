//! What a client has done, as plain objects. The names and the shape are those of `polylatch_bridge::stats::json`.

use js_sys::{Array, Object, Reflect};
use polylatch::{Histogram, Stats};
use polylatch_bridge::stats::counts;
use wasm_bindgen::JsValue;

pub fn stats(stats: &Stats) -> JsValue {
    let histograms = [("wait", &stats.wait), ("hold", &stats.hold), ("renewal_lag", &stats.renewal_lag)];
    let now = [("waiting", stats.waiting), ("held", stats.held)];
    let losses = stats.losses_by_reason().map(|(reason, count)| (reason.code(), number(count)));
    let errors = stats.errors_by_kind().map(|(kind, count)| (kind.code(), number(count)));
    let counts = stats.outcomes().into_iter().chain(now).map(|(name, count)| (name, number(count)));
    object(
        [("backend", stats.backend.into()), ("losses", object(losses)), ("errors", object(errors))]
            .into_iter()
            .chain(histograms.map(|(name, one)| (name, histogram(one))))
            .chain(counts),
    )
}

fn histogram(one: &Histogram) -> JsValue {
    let bounds: Array = Histogram::BOUNDS.iter().copied().map(JsValue::from_f64).collect();
    let counts: Array = counts(one).into_iter().map(number).collect();
    object([
        ("bounds", bounds.into()),
        ("counts", counts.into()),
        ("sum", JsValue::from_f64(one.sum())),
        ("count", number(one.count())),
    ])
}

/// Counts stay below 2^53 for longer than anything runs.
fn number(count: u64) -> JsValue {
    JsValue::from_f64(count as f64)
}

pub fn object(fields: impl IntoIterator<Item = (&'static str, JsValue)>) -> JsValue {
    let made = Object::new();
    for (name, value) in fields {
        // It is a fresh object, which takes everything.
        let _ = Reflect::set(&made, &name.into(), &value);
    }
    made.into()
}
