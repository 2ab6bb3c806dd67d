//! Promises of the host as futures that the core takes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

/// A future that stays in this thread, as everything does here.
pub struct Here<T>(Pin<Box<dyn Future<Output = T>>>);

// SAFETY: there is one thread: the runtime that the core uses here does not compile with threads
// (`target_feature = "atomics"`), so nothing is ever sent to another.
unsafe impl<T> Send for Here<T> {}

impl<T> Here<T> {
    pub fn new(work: impl Future<Output = T> + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl<T> Future for Here<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(context)
    }
}

/// Awaits what a function of the program returned, be it a promise or a plain value.
pub async fn settled(returned: Result<JsValue, JsValue>) -> Result<JsValue, JsValue> {
    JsFuture::from(Promise::resolve(&returned?)).await
}

/// What was thrown, for display.
pub fn text_of(thrown: &JsValue) -> String {
    let message =
        js_sys::Reflect::get(thrown, &"message".into()).ok().and_then(|message| message.as_string());
    let text = message.or_else(|| thrown.as_string()).unwrap_or_else(|| "no reason was given".into());
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// What kind of value it is, for a complaint.
pub fn kind_of(value: &JsValue) -> String {
    if value.is_undefined() {
        "undefined".into()
    } else if js_sys::Array::is_array(value) {
        "an array".into()
    } else if value.is_object() {
        "an object".into()
    } else {
        format!("a {}", value.js_typeof().as_string().unwrap_or_default())
    }
}
