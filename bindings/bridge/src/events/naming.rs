//! What events and their fields are called in every language.

use super::{Event, Level, Value};

/// Puts a field of the core's into its place.
pub(super) fn put(event: &mut Event, name: &'static str, value: Value) {
    match (name, value) {
        ("event", Value::Text(name)) => event.name = name,
        ("message", Value::Text(message)) => event.message = message,
        ("client", Value::Text(client)) => event.client = Some(client),
        // As guards and snapshots call it.
        ("token", value) => event.fields.push(("fencing_token", value)),
        (name, value) => event.fields.push((name, value)),
    }
}

/// Levels as programs want them, and texts for events that have none in the core.
pub(super) fn finished(mut event: Event) -> Event {
    let (level, message) = match event.name.as_str() {
        "waiting" => (Level::Debug, "waiting for the lock"),
        "acquired" => (Level::Debug, "acquired the lock"),
        "released" => (Level::Debug, "released the lock"),
        // Tried again; `endangered` says when it matters.
        "renewal_failed" => (Level::Debug, ""),
        "lost" => (Level::Error, ""),
        "" => {
            event.name = "notice".into();
            (event.level, "")
        }
        _ => (event.level, ""),
    };
    event.level = level;
    if event.message.is_empty() {
        event.message = if message.is_empty() { event.name.replace('_', " ") } else { message.to_owned() };
    }
    event
}
