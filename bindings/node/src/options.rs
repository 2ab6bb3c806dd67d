//! Options as JavaScript has them: numbers are milliseconds.

use napi::bindgen_prelude::Either3;
use napi_derive::napi;
use polylatch_bridge::units::millis;
use polylatch_bridge::{ConnectOptions, Failure, LockOptions, OptionValue, Way};

/// Options of one acquisition; what is missing is the core's to say.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct Options {
    pub lease: Option<f64>,
    pub wait: Option<f64>,
    pub label: Option<String>,
    pub owner: Option<String>,
    pub max_hold: Option<f64>,
    pub beat_every: Option<f64>,
    pub fifo: Option<bool>,
    pub renew: Option<bool>,
}

impl Options {
    pub fn checked(self) -> Result<LockOptions, Failure> {
        let length = |option: &str, value: Option<f64>| value.map(|value| millis(option, value)).transpose();
        Ok(LockOptions {
            lease: length("lease", self.lease)?,
            wait: length("wait", self.wait)?,
            label: self.label,
            owner: self.owner,
            max_hold: length("maxHold", self.max_hold)?,
            beat_every: length("beatEvery", self.beat_every)?,
            fifo: self.fifo,
            renew: self.renew,
        })
    }
}

/// In which way a lock is wanted, as one number and two more for permits.
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
        Err(Failure::invalid_argument(format!("{what} is {value}; it must be a whole number, zero or more")))
    }
}

/// An option of a client: its name in the core, and its value.
#[napi(object, object_to_js = false)]
pub struct ClientOption {
    pub key: String,
    pub value: Either3<f64, bool, String>,
}

/// What to connect with.
pub fn connect(
    url: Option<String>,
    program: Option<String>,
    options: Vec<ClientOption>,
) -> Result<ConnectOptions, Failure> {
    let mut connect = ConnectOptions::default();
    for ClientOption { key, value } in options {
        let value = match value {
            Either3::A(number) if ConnectOptions::is_duration(&key) => {
                OptionValue::Duration(millis(&key, number).map_err(|failure| {
                    // The same mistake as in a URL, so the same code.
                    Failure::invalid_config(failure.message.clone())
                })?)
            }
            Either3::A(number) => OptionValue::Number(number),
            Either3::B(flag) => OptionValue::Flag(flag),
            Either3::C(text) => OptionValue::Text(text),
        };
        connect.set(&key, value)?;
    }
    connect.url = url;
    connect.program = program;
    connect.language = Some(("node".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(connect)
}
