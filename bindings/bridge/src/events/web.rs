//! What a JavaScript host hears of the core: there its events come from `polylatch-web-runtime`.

use polylatch_web_runtime::events as web;

use super::naming::{finished, put};
use super::{Event, Level, Takers, Value, wanted};

/// Begins to hear the core.
pub(super) fn install() {
    web::listen(|event| {
        let level = match event.level {
            web::Level::Error => Level::Error,
            web::Level::Warn => Level::Warn,
            web::Level::Info => Level::Info,
            web::Level::Debug => Level::Debug,
        };
        let (name, message, fields) = (event.name.to_owned(), event.message, Vec::new());
        let mut made = Event { level, name, message, client: None, fields };
        for (name, value) in event.fields {
            let value = match value {
                web::Value::Text(text) => Value::Text(text),
                web::Value::Number(number) => Value::Number(number),
                web::Value::Flag(flag) => Value::Flag(flag),
            };
            put(&mut made, name, value);
        }
        let made = finished(made);
        Takers::of(made.client.as_deref()).take(made);
    });
}

/// To be called when it may have changed what is wanted.
pub(super) fn wants_changed() {
    web::want(wanted().map(|level| match level {
        Level::Debug => web::Level::Debug,
        Level::Info => web::Level::Info,
        Level::Warn => web::Level::Warn,
        Level::Error => web::Level::Error,
    }));
}
