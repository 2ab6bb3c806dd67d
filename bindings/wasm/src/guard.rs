//! Held locks, and the client that they belong to.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::Array;
use polylatch::{Guard, GuardSet, Polylatch};
use polylatch_bridge::{Failure, Place, stats};
use wasm_bindgen::prelude::*;

use crate::events::Listening;
use crate::failure::fault;
use crate::options::{millis, whole};

/// A connected client. Every guard holds it too, so that it can be closed as long as one is left.
#[wasm_bindgen]
pub struct NativeClient {
    pub(crate) client: Rc<Polylatch>,
    /// Brings its events to JavaScript, until it is closed or this is gone.
    pub(crate) listening: Rc<Option<Listening>>,
}

#[wasm_bindgen]
impl NativeClient {
    /// The store's URL without its secrets.
    pub fn url(&self) -> String {
        self.client.url_for_display().to_owned()
    }

    /// The id under which this client stands in the store.
    pub fn id(&self) -> String {
        self.client.id().as_str().to_owned()
    }

    /// What it has done, in numbers.
    pub fn stats(&self) -> JsValue {
        crate::stats::stats(&self.client.stats())
    }

    /// The same as text that Prometheus reads, with labels as names and values in turn; or why not.
    pub fn prometheus(&self, labels: Vec<String>) -> JsValue {
        let labels: Vec<_> = labels.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        match stats::prometheus(&self.client.stats(), &labels) {
            Ok(text) => text.into(),
            Err(error) => fault(&error.into()),
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
    ) -> JsValue {
        let given = [("lease", lease), ("wait", wait), ("maxHold", max_hold), ("beatEvery", beat_every)];
        let checked = given.into_iter().try_for_each(|(option, value)| match value {
            Some(value) => millis(option, value).map(drop),
            None => Ok(()),
        });
        match checked {
            Ok(()) => JsValue::UNDEFINED,
            Err(failure) => fault(&failure),
        }
    }

    /// Nothing, or why a number of permits is no count.
    #[wasm_bindgen(js_name = checkCount)]
    pub fn check_count(&self, what: &str, count: f64) -> JsValue {
        match whole(what, count) {
            Ok(_) => JsValue::UNDEFINED,
            Err(failure) => fault(&failure),
        }
    }

    /// What this store can do, as JSON.
    pub fn capability(&self) -> String {
        // It has only plain fields, so it can be written.
        serde_json::to_string(self.client.capability()).unwrap_or_default()
    }
}

/// One held lock. When JavaScript forgets it, it is released in the background.
#[wasm_bindgen]
pub struct NativeGuard {
    name: String,
    /// Shared with a step between reading and writing, which makes another guard of it.
    place: Rc<RefCell<Place>>,
    pub(crate) client: Rc<Polylatch>,
}

impl NativeGuard {
    pub(crate) fn new(guard: Guard, client: Rc<Polylatch>) -> Self {
        Self { name: guard.name().to_owned(), place: Rc::new(RefCell::new(Place::of(guard))), client }
    }

    pub(crate) fn get(&self) -> Result<Arc<Guard>, Failure> {
        self.place.borrow().guard(&self.name).cloned()
    }

    /// A step of it failed: there is nothing to give back.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(*self.place.borrow(), Place::Gone)
    }

    /// Takes the guard out for a step that consumes it.
    pub(crate) fn take(&self, up: bool) -> Result<(Guard, Rc<RefCell<Place>>), Failure> {
        let guard = self.place.borrow_mut().take(&self.name, up)?;
        Ok((guard, Rc::clone(&self.place)))
    }
}

#[wasm_bindgen]
impl NativeGuard {
    pub fn name(&self) -> Option<String> {
        self.get().ok().map(|guard| guard.name().to_owned())
    }

    /// The fencing token; below 2^53, so a double keeps it exactly.
    pub fn token(&self) -> Option<f64> {
        self.get().ok().map(|guard| guard.fencing_token().get() as f64)
    }

    #[wasm_bindgen(js_name = fenceQuality)]
    pub fn fence_quality(&self) -> Option<String> {
        self.get().ok().map(|guard| guard.fence_quality().code().to_owned())
    }

    pub fn mode(&self) -> Option<String> {
        self.get().ok().map(|guard| guard.mode().code().to_owned())
    }

    pub fn permits(&self) -> Option<u32> {
        self.get().ok().map(|guard| guard.mode().permits())
    }

    /// Milliseconds.
    pub fn remaining(&self) -> f64 {
        self.get().map_or(0.0, |guard| guard.remaining().as_secs_f64() * 1e3)
    }

    #[wasm_bindgen(js_name = isHeld)]
    pub fn is_held(&self) -> bool {
        self.get().is_ok_and(|guard| guard.is_held())
    }

    pub fn renewals(&self) -> u32 {
        self.get().map_or(0, |guard| guard.renewals())
    }

    pub fn beat(&self) {
        if let Ok(guard) = self.get() {
            guard.beat();
        }
    }

    /// Nothing, or why it is not held.
    pub fn check(&self) -> JsValue {
        match self.get().and_then(|guard| guard.check().map_err(Failure::from)) {
            Ok(()) => JsValue::UNDEFINED,
            Err(failure) => fault(&failure),
        }
    }
}

/// Several held locks.
#[wasm_bindgen]
pub struct NativeSet {
    pub(crate) set: Rc<GuardSet>,
    /// Only to be held: see [`NativeClient`].
    pub(crate) _client: Rc<Polylatch>,
}

#[wasm_bindgen]
impl NativeSet {
    pub fn names(&self) -> Array {
        self.set.guards().iter().map(|guard| JsValue::from(guard.name())).collect()
    }

    pub fn tokens(&self) -> Array {
        self.set.guards().iter().map(|guard| JsValue::from(guard.fencing_token().get() as f64)).collect()
    }

    /// Milliseconds that all of them have left.
    pub fn remaining(&self) -> f64 {
        let remaining = self.set.guards().iter().map(Guard::remaining).min();
        remaining.unwrap_or_default().as_secs_f64() * 1e3
    }

    #[wasm_bindgen(js_name = isHeld)]
    pub fn is_held(&self) -> bool {
        self.set.guards().iter().all(Guard::is_held)
    }

    pub fn check(&self) -> JsValue {
        match self.set.check() {
            Ok(()) => JsValue::UNDEFINED,
            Err(error) => fault(&error.into()),
        }
    }
}
