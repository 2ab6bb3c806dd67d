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

/// The level of an event for programs, where the core has another for those who write to a log alone.
pub(super) fn level_of(name: &str, level: Level) -> Level {
    match name {
        // Tried again; `endangered` says when it matters.
        "renewal_failed" => Level::Debug,
        _ => level,
    }
}

/// Levels as programs want them, and texts for events that have none in the core.
pub(super) fn finished(mut event: Event) -> Event {
    event.level = level_of(&event.name, event.level);
    let message = match event.name.as_str() {
        "waiting" => "waiting for the lock",
        "acquired" => "acquired the lock",
        "released" => "released the lock",
        "" => {
            event.name = "notice".into();
            ""
        }
        _ => "",
    };
    if event.message.is_empty() {
        event.message = if message.is_empty() { event.name.replace('_', " ") } else { message.to_owned() };
    }
    event
}
