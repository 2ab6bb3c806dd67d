//! What a Rust program hears of its locks: through `tracing`, from level `info` on.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::unpoisoned;

/// Level and name of the events of all clients, with client and lock.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Vec<Heard>>>);

#[derive(Debug)]
struct Heard {
    client: String,
    lock: String,
    told: String,
}

impl Events {
    /// Keeps every event from now on.
    pub fn listen(&self) {
        tracing::subscriber::set_global_default(self.clone()).expect("nothing else listens here");
    }

    /// Returns level and name of the events of one client and lock so far.
    pub fn of(&self, client: &str, lock: &str) -> Vec<String> {
        let heard = unpoisoned(&self.0);
        let of_both = heard.iter().filter(|one| one.client == client && one.lock == lock);
        of_both.map(|one| one.told.clone()).collect()
    }
}

#[derive(Default)]
struct Fields(HashMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    // With `%` in the core: as it is displayed.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "polylatch" && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut take = |name| fields.0.remove(name).unwrap_or_default();
        let (client, lock, name) = (take("client"), take("lock"), take("event"));
        let told = format!("{} {name}", event.metadata().level().as_str().to_lowercase());
        unpoisoned(&self.0).push(Heard { client, lock, told });
    }

    // There are no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
