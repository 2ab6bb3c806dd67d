//! What went wrong, as a plain object; `errors.ts` makes an error of it.

use js_sys::{Object, Reflect};
use polylatch_bridge::Failure;
use wasm_bindgen::JsValue;

/// The values of a failure, under the names that `errors.ts` reads.
pub fn fault(failure: &Failure) -> JsValue {
    let object = Object::new();
    let set = |name: &str, value: JsValue| {
        // Setting a property of a plain object cannot fail.
        let _ = Reflect::set(&object, &name.into(), &value);
    };
    set("code", failure.code.into());
    set("retry", failure.retry.into());
    set("effect", failure.effect.into());
    set("message", failure.message.as_str().into());
    set("hint", failure.hint.into());
    let context = &failure.context;
    let some = |name: &str, value: Option<JsValue>| {
        if let Some(value) = value {
            set(name, value);
        }
    };
    some("reason", failure.lost_reason.map(JsValue::from));
    some("backend", context.backend.map(JsValue::from));
    some("operation", context.operation.map(JsValue::from));
    some("lock", context.lock.as_deref().map(JsValue::from));
    some("attempt", context.attempt.map(JsValue::from));
    some("elapsed", context.elapsed.map(|elapsed| (elapsed.as_secs_f64() * 1e3).into()));
    object.into()
}
