//! Options as JavaScript has them: numbers are milliseconds.

use napi::bindgen_prelude::Either3;
use napi_derive::napi;
use polylatch_bridge::{ConnectOptions, Failure, LockOptions, Numbers, OptionValue};

pub const NUMBERS: Numbers = Numbers(|number| number.to_string());

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
    pub keep_idle: Option<f64>,
}

impl Options {
    pub fn checked(self) -> Result<LockOptions, Failure> {
        Ok(LockOptions {
            lease: NUMBERS.length("lease", self.lease)?,
            wait: NUMBERS.length("wait", self.wait)?,
            label: self.label,
            owner: self.owner,
            max_hold: NUMBERS.length("maxHold", self.max_hold)?,
            beat_every: NUMBERS.length("beatEvery", self.beat_every)?,
            fifo: self.fifo,
            renew: self.renew,
            keep_idle: NUMBERS.length("keepIdle", self.keep_idle)?,
            ..LockOptions::default()
        })
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
            Either3::A(number) => NUMBERS.option(&key, number)?,
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
