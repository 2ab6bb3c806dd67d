//! The end of `tracing` in this library: turns the core's events into values.

use std::fmt::{Debug, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Metadata, Subscriber};

use super::naming::{finished, level_of, put};
use super::{Event, Level, Takers, Value, wanted};

/// The least level that is wanted: 0 debug, 1 info, 2 warnings, 3 errors, 4 nothing.
static LEAST: AtomicU8 = AtomicU8::new(4);

/// Begins to hear the core.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    // Refused where the program, as a test may, has a subscriber of its own: then that one hears the core.
    ONCE.call_once(|| drop(set_global_default(Ear)));
}

/// To be called when it may have changed what is wanted.
pub(super) fn wants_changed() {
    let least = match wanted() {
        Some(Level::Debug) => 0,
        Some(Level::Info) => 1,
        Some(Level::Warn) => 2,
        Some(Level::Error) => 3,
        None => 4,
    };
    if LEAST.swap(least, Ordering::SeqCst) != least {
        tracing::callsite::rebuild_interest_cache();
    }
}

struct Ear;

impl Ear {
    fn wants(metadata: &Metadata<'_>) -> bool {
        let least = match LEAST.load(Ordering::Relaxed) {
            0 => LevelFilter::DEBUG,
            1 => LevelFilter::INFO,
            2 => LevelFilter::WARN,
            3 => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        };
        metadata.is_event() && *metadata.level() <= least && metadata.target().starts_with("polylatch")
    }
}

impl Subscriber for Ear {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let mut about = About::default();
        event.record(&mut about);
        let takers = Takers::of(about.client.as_deref());
        if !takers.want(level_of(about.name.as_deref().unwrap_or(""), level)) {
            return;
        }
        let mut made =
            Event { level, name: String::new(), message: String::new(), client: None, fields: Vec::new() };
        event.record(&mut Fields(&mut made));
        takers.take(finished(made));
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

/// What decides whether anyone gets the event. Fields that have to be written out to be read are not.
#[derive(Default)]
struct About {
    name: Option<String>,
    client: Option<String>,
}

impl Visit for About {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => self.name = Some(value.to_owned()),
            "client" => self.client = Some(value.to_owned()),
            _ => {}
        }
    }
}

struct Fields<'event>(&'event mut Event);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        put(self.0, field.name(), value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.put(field, Value::Text(text));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Flag(value));
    }
}
