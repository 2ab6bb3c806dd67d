//! Events on their way to JavaScript.

use polylatch_bridge::events::Value;
use polylatch_bridge::{Event, Heard};
use serde_json::{Map, json};

/// Makes JSON of what was heard: pairs of an event or `null`, and a number or `null`.
pub fn json(heard: Vec<Heard>) -> String {
    let pairs = heard.into_iter().map(|one| match one {
        Heard::Event(event, number) => json!([fields(event), number]),
        Heard::Ended(number) => json!([null, number]),
    });
    serde_json::Value::Array(pairs.collect()).to_string()
}

fn fields(event: Event) -> Map<String, serde_json::Value> {
    let mut made = Map::new();
    made.insert("event".into(), event.name.into());
    made.insert("level".into(), event.level.word().into());
    made.insert("message".into(), event.message.into());
    made.insert("client".into(), event.client.into());
    for (name, value) in event.fields {
        let value = match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => number.into(),
            Value::Flag(flag) => flag.into(),
        };
        made.insert(name.into(), value);
    }
    made
}
