//! Options as JavaScript has them: numbers are milliseconds. `options.ts` has checked names and types.

use js_sys::{Array, Reflect};
use polylatch_bridge::{ConnectOptions, Failure, LockOptions, Numbers, OptionValue};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = String)]
    fn shown(number: f64) -> String;
}

/// The host writes numbers: code for that would be a part of what a page loads.
pub const NUMBERS: Numbers = Numbers(shown);

/// Reads the options of one acquisition; what is missing is the core's to say.
pub fn lock_options(given: &JsValue) -> Result<LockOptions, Failure> {
    if given.is_undefined() {
        return Ok(LockOptions::default());
    }
    // A property that is not there reads as undefined.
    let get = |name: &str| Reflect::get(given, &name.into()).unwrap_or(JsValue::UNDEFINED);
    let length = |name: &str| NUMBERS.length(name, get(name).as_f64());
    Ok(LockOptions {
        lease: length("lease")?,
        wait: length("wait")?,
        label: get("label").as_string(),
        owner: get("owner").as_string(),
        max_hold: length("maxHold")?,
        beat_every: length("beatEvery")?,
        fifo: get("fifo").as_bool(),
        renew: get("renew").as_bool(),
        keep_idle: length("keepIdle")?,
        // Only `locks.mjs` says why the leases of the holders are to be ended.
        steal: get("steal").as_string(),
    })
}

/// Reads what to connect with: a list of objects with `key` and `value`.
pub fn connect_options(
    url: String,
    program: Option<String>,
    given: &Array,
) -> Result<ConnectOptions, Failure> {
    let mut connect = ConnectOptions { url: Some(url), program, ..ConnectOptions::default() };
    for option in given.iter() {
        let get = |name: &str| Reflect::get(&option, &name.into()).unwrap_or(JsValue::UNDEFINED);
        let (key, value) = (get("key").as_string().unwrap_or_default(), get("value"));
        let value = match (value.as_f64(), value.as_bool()) {
            (Some(number), _) => NUMBERS.option(&key, number)?,
            (_, Some(flag)) => OptionValue::Flag(flag),
            _ => OptionValue::Text(value.as_string().unwrap_or_default()),
        };
        connect.set(&key, value)?;
    }
    connect.language = Some(("wasm".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(connect)
}
