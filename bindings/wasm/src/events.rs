//! Events on their way to JavaScript.

use std::sync::{Arc, OnceLock, Weak};

use js_sys::Function;
use polylatch_bridge::events::{Listener, Value};
use polylatch_bridge::{Event, Events, Failure, Heard, Level, Route};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;

use crate::stats::object;

/// Calls a function with the events of one client; in microtasks of their own, not amid a call.
pub struct Listening {
    events: Arc<Events>,
    on_event: Function,
}

impl Listening {
    /// Returns also what brings the events, once it is open.
    pub fn new(on_event: Function, level: Option<Level>) -> Result<(Self, Route), Failure> {
        let place = Arc::<OnceLock<Weak<Events>>>::default();
        let (rung, listener) = (Arc::clone(&place), on_event.clone());
        let events = Events::of_clients(move || {
            let (place, on_event) = (Arc::clone(&rung), listener.clone());
            spawn_local(async move {
                if let Some(events) = place.get().and_then(Weak::upgrade) {
                    tell(&events, &on_event);
                }
            });
        });
        let _ = place.set(Arc::downgrade(&events));
        let queue = Arc::clone(&events);
        let queue = move || Ok(Arc::clone(&queue));
        let listener = Listener { events: Arc::new(queue), number: 0, level: Some(Level::default()) };
        let route = Route::prepare(&listener, level)?;
        Ok((Self { events, on_event }, route))
    }

    /// Tells what has come up so far.
    pub fn tell(&self) {
        tell(&self.events, &self.on_event);
    }
}

fn tell(events: &Events, on_event: &Function) {
    for heard in events.take() {
        if let Heard::Event(event, _) = heard {
            // It does not throw: see `connect.mjs`.
            let _ = on_event.call1(&JsValue::UNDEFINED, &plain(event));
        }
    }
}

/// Not by way of JSON: what writes numbers as JSON is several kilobytes.
fn plain(event: Event) -> JsValue {
    let fields = event.fields.into_iter().map(|(name, value)| {
        let value = match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => JsValue::from_f64(number as f64),
            Value::Flag(flag) => flag.into(),
        };
        (name, value)
    });
    let client = event.client.map_or(JsValue::NULL, JsValue::from);
    let level = event.level.word();
    let common = [("event", event.name.into()), ("level", level.into()), ("message", event.message.into())];
    object(common.into_iter().chain([("client", client)]).chain(fields))
}
