//! Held locks, and the client that they belong to.

use std::rc::Rc;
use std::sync::Arc;

use js_sys::Array;
use polylatch::Guard;
use polylatch_bridge::{Client, Failure, Handle, ops};
use wasm_bindgen::prelude::*;

use crate::events::Listening;
use crate::failure::fault;
use crate::options::NUMBERS;

/// A connected client. Every guard holds it too, so that it can be closed as long as one is left.
#[wasm_bindgen]
pub struct NativeClient {
    pub(crate) client: Rc<Client>,
    /// Calls JavaScript with its events.
    pub(crate) listening: Rc<Option<Listening>>,
}

#[wasm_bindgen]
impl NativeClient {
    /// The store's URL without its secrets.
    pub fn url(&self) -> String {
        self.client.read(ops::url).unwrap_or_default()
    }

    /// The id of this client in the store.
    pub fn id(&self) -> String {
        self.client.read(ops::id).unwrap_or_default()
    }

    /// What it has done, in numbers.
    pub fn stats(&self) -> JsValue {
        self.client.read(|client| crate::stats::stats(&client.stats())).unwrap_or_default()
    }

    /// The same as text that Prometheus reads, with labels as names and values in turn; or why not.
    pub fn prometheus(&self, labels: Vec<String>) -> JsValue {
        let labels: Vec<_> = labels.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        match self.client.read(|client| ops::prometheus(client, &labels)).flatten() {
            Ok(text) => text.into(),
            Err(failure) => fault(&failure),
        }
    }

    /// Nothing, or which of a lock's lengths of time, in milliseconds, is no such length.
    #[wasm_bindgen(js_name = checkLengths)]
    pub fn check_lengths(
        &self,
        lease: Option<f64>,
        wait: Option<f64>,
        max_hold: Option<f64>,
        beat_every: Option<f64>,
        keep_idle: Option<f64>,
    ) -> JsValue {
        let given = [
            ("lease", lease),
            ("wait", wait),
            ("maxHold", max_hold),
            ("beatEvery", beat_every),
            ("keepIdle", keep_idle),
        ];
        checked(given.into_iter().try_for_each(|(option, value)| NUMBERS.length(option, value).map(drop)))
    }

    /// Nothing, or why a number of permits is no count.
    #[wasm_bindgen(js_name = checkCount)]
    pub fn check_count(&self, what: &str, count: f64) -> JsValue {
        checked(NUMBERS.count(what, count).map(drop))
    }

    /// What this store can do, as JSON.
    pub fn capability(&self) -> String {
        // It has only plain fields, so it can be written.
        self.client.read(ops::capability_json).flatten().unwrap_or_default()
    }
}

fn checked(result: Result<(), Failure>) -> JsValue {
    result.map_or_else(|failure| fault(&failure), |()| JsValue::UNDEFINED)
}

/// One held lock. When JavaScript forgets it, it is released in the background.
#[wasm_bindgen]
pub struct NativeGuard {
    /// Shared with what an upgrade or a downgrade makes of it.
    pub(crate) handle: Arc<Handle>,
    pub(crate) client: Rc<Client>,
}

impl NativeGuard {
    fn ask<T>(&self, ask: impl FnOnce(&Guard) -> T) -> Option<T> {
        self.handle.with(ask).ok()
    }
}

#[wasm_bindgen]
impl NativeGuard {
    pub fn name(&self) -> Option<String> {
        self.ask(|guard| guard.name().to_owned())
    }

    /// The fencing token; below 2^53, so a double keeps it exactly.
    pub fn token(&self) -> Option<f64> {
        self.ask(|guard| guard.fencing_token().get() as f64)
    }

    #[wasm_bindgen(js_name = fenceQuality)]
    pub fn fence_quality(&self) -> Option<String> {
        self.ask(|guard| guard.fence_quality().code().to_owned())
    }

    pub fn mode(&self) -> Option<String> {
        self.ask(|guard| guard.mode().code().to_owned())
    }

    pub fn permits(&self) -> Option<u32> {
        self.ask(|guard| guard.mode().permits())
    }

    /// Milliseconds.
    pub fn remaining(&self) -> f64 {
        self.handle.remaining().as_secs_f64() * 1e3
    }

    #[wasm_bindgen(js_name = isHeld)]
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    pub fn renewals(&self) -> u32 {
        self.ask(Guard::renewals).unwrap_or(0)
    }

    pub fn beat(&self) {
        // What is not held needs no beat.
        let _ = self.handle.beat();
    }

    /// Nothing, or why it is not held.
    pub fn check(&self) -> JsValue {
        checked(self.handle.check())
    }
}

/// Several held locks.
#[wasm_bindgen]
pub struct NativeSet {
    pub(crate) handle: Arc<Handle>,
    /// Only to be held: see [`NativeClient`].
    pub(crate) _client: Rc<Client>,
}

#[wasm_bindgen]
impl NativeSet {
    pub fn names(&self) -> Array {
        self.handle.held().into_iter().map(|(name, _)| JsValue::from(name)).collect()
    }

    pub fn tokens(&self) -> Array {
        self.handle.held().into_iter().map(|(_, token)| JsValue::from(token as f64)).collect()
    }

    /// Milliseconds that all of them have left.
    pub fn remaining(&self) -> f64 {
        self.handle.remaining().as_secs_f64() * 1e3
    }

    #[wasm_bindgen(js_name = isHeld)]
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    pub fn check(&self) -> JsValue {
        checked(self.handle.check())
    }
}
