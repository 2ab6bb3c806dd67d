//! Options as JavaScript has them: numbers are milliseconds. `options.ts` has checked names and types.

use std::time::Duration;

use js_sys::{Array, Reflect};
use polylatch_bridge::units::millis_shown;
use polylatch_bridge::{ConnectOptions, Failure, LockOptions, OptionValue, Way};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = String)]
    fn shown(number: f64) -> String;
}

pub fn millis(option: &str, value: f64) -> Result<Duration, Failure> {
    millis_shown(option, value, shown)
}

/// Reads the options of one acquisition; what is missing is the core's to say.
pub fn lock_options(given: &JsValue) -> Result<LockOptions, Failure> {
    if given.is_undefined() {
        return Ok(LockOptions::default());
    }
    // A property that is not there reads as undefined.
    let get = |name: &str| Reflect::get(given, &name.into()).unwrap_or(JsValue::UNDEFINED);
    let length = |name: &str| get(name).as_f64().map(|value| millis(name, value)).transpose();
    Ok(LockOptions {
        lease: length("lease")?,
        wait: length("wait")?,
        label: get("label").as_string(),
        owner: get("owner").as_string(),
        max_hold: length("maxHold")?,
        beat_every: length("beatEvery")?,
        fifo: get("fifo").as_bool(),
        renew: get("renew").as_bool(),
    })
}

/// Reads why the leases of the holders are to be ended, if they are. Only `locks.mjs` says so.
pub fn steal_reason(given: &JsValue) -> Option<String> {
    Reflect::get(given, &"steal".into()).ok()?.as_string()
}

/// In which way a lock is wanted, as one number and two more for permits; see `lock.ts`.
pub fn way(way: u32, count: f64, capacity: f64) -> Result<Way, Failure> {
    Ok(match way {
        0 => Way::Mutex,
        1 => Way::Read,
        2 => Way::Write,
        _ => Way::Permits { count: whole("count", count)?, capacity: whole("permits", capacity)? },
    })
}

/// Reads a count. The core checks its own range; this refuses what is no count.
pub fn whole(what: &str, value: f64) -> Result<u32, Failure> {
    // Compared as a double, so that NaN and infinities fall out.
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        Ok(value as u32)
    } else {
        Err(Failure::invalid_argument(format!(
            "{what} is {}; it must be a whole number, zero or more",
            shown(value)
        )))
    }
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
            (Some(number), _) if ConnectOptions::is_duration(&key) => {
                OptionValue::Duration(millis(&key, number).map_err(|failure| {
                    // The same mistake as in a URL, so the same code.
                    Failure::invalid_config(failure.message.clone())
                })?)
            }
            (Some(number), _) if number.is_finite() => OptionValue::Text(shown(number)),
            (Some(number), _) => {
                let number = shown(number);
                let rule = format!("the option {key} is {number}; it must be a finite number");
                return Err(Failure::invalid_config(rule));
            }
            (_, Some(flag)) => OptionValue::Flag(flag),
            _ => OptionValue::Text(value.as_string().unwrap_or_default()),
        };
        connect.set(&key, value)?;
    }
    connect.language = Some(("wasm".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(connect)
}
