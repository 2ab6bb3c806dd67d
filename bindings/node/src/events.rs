//! Events on their way to JavaScript.

use polylatch_bridge::Heard;
use serde_json::json;

/// Makes JSON of what was heard: pairs of an event or `null`, and a number or `null`.
pub fn json(heard: Vec<Heard>) -> String {
    let pairs = heard.into_iter().map(|one| match one {
        Heard::Event(event, number) => json!([event.json(), number]),
        Heard::Ended(number) => json!([null, number]),
    });
    serde_json::Value::Array(pairs.collect()).to_string()
}
