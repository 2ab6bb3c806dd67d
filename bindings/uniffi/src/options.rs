//! What a caller says, checked. A value that was not given stays with the core, which alone has defaults.

use std::fmt;
use std::time::Duration;

use polylatch::FencingToken;
use polylatch_bridge::units::seconds;
use polylatch_bridge::{self as bridge, ConnectOptions, Failure, LockOptions, LockSpec, OptionValue, Way};

use crate::view::whole;

/// How to connect.
#[derive(uniffi::Record)]
pub struct ConnectWith {
    pub url: Option<String>,
    pub program: Option<String>,
    /// The calling language, for display.
    pub language: String,
    pub options: Vec<OptionEntry>,
}

/// An option under the core's name for it.
#[derive(uniffi::Record)]
pub struct OptionEntry {
    pub key: String,
    pub word: OptionWord,
}

/// The value of a client's option, as a language has it.
#[derive(uniffi::Enum)]
pub enum OptionWord {
    Text {
        text: String,
    },
    Number {
        number: f64,
    },
    /// A number without a type for its unit: seconds where the option is a length of time.
    Bare {
        number: f64,
    },
    Flag {
        yes: bool,
    },
    Seconds {
        seconds: f64,
    },
}

impl fmt::Debug for ConnectWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL and the options may hold secrets.
        f.debug_struct("ConnectWith").field("program", &self.program).finish_non_exhaustive()
    }
}

impl fmt::Debug for OptionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionEntry").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for OptionWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionWord").finish_non_exhaustive()
    }
}

impl ConnectWith {
    pub(crate) fn checked(self) -> Result<ConnectOptions, Failure> {
        let mut connect = ConnectOptions {
            url: self.url,
            program: self.program,
            language: Some((self.language, env!("CARGO_PKG_VERSION").to_owned())),
            ..ConnectOptions::default()
        };
        for OptionEntry { key, word } in self.options {
            let length = |value: f64| {
                // The same mistake as in a URL, so the same code.
                seconds(&key, value)
                    .map(OptionValue::Duration)
                    .map_err(|f| Failure::invalid_config(f.message.clone()))
            };
            let value = match word {
                OptionWord::Text { text } => OptionValue::Text(text),
                OptionWord::Bare { number } if ConnectOptions::is_duration(&key) => length(number)?,
                OptionWord::Number { number } | OptionWord::Bare { number } => OptionValue::Number(number),
                OptionWord::Flag { yes } => OptionValue::Flag(yes),
                OptionWord::Seconds { seconds } => length(seconds)?,
            };
            connect.set(&key, value)?;
        }
        Ok(connect)
    }
}

/// The mode that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum WantedWay {
    Mutex,
    Read,
    Write,
    Permits,
}

/// How to acquire; see [`LockOptions`]. Lengths of time are seconds. What is missing is the core's to say.
#[derive(Debug, Clone, Default, PartialEq, uniffi::Record)]
pub struct WantedOptions {
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

/// What is to be acquired: one lock, or several.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Wanted {
    pub names: Vec<String>,
    /// All or none of `names`, also if there is one; otherwise there is exactly one.
    pub together: bool,
    pub way: WantedWay,
    /// With `Permits`.
    pub count: i64,
    pub capacity: i64,
    pub options: WantedOptions,
}

impl WantedOptions {
    fn checked(self) -> Result<LockOptions, Failure> {
        let length = |option: &str, value: Option<f64>| -> Result<Option<Duration>, Failure> {
            value.map(|value| seconds(option, value)).transpose()
        };
        Ok(LockOptions {
            lease: length("lease", self.lease)?,
            wait: length("wait", self.wait)?,
            label: self.label,
            owner: self.owner,
            max_hold: length("max_hold", self.max_hold)?,
            beat_every: length("beat_every", self.beat_every)?,
            fifo: self.fifo,
            renew: self.renew,
            keep_idle: length("keep_idle", self.keep_idle)?,
            ..LockOptions::default()
        })
    }
}

impl Wanted {
    pub(crate) fn checked(mut self) -> Result<bridge::Wanted, Failure> {
        let options = self.options.checked()?;
        if self.together {
            return Ok(bridge::Wanted::All { names: self.names, options });
        }
        let way = match self.way {
            WantedWay::Mutex => Way::Mutex,
            WantedWay::Read => Way::Read,
            WantedWay::Write => Way::Write,
            WantedWay::Permits => Way::Permits {
                count: count("count", self.count)?,
                capacity: count("permits", self.capacity)?,
            },
        };
        let name = self.names.pop().ok_or_else(|| Failure::invalid_argument("there is no name of a lock"))?;
        Ok(bridge::Wanted::One(LockSpec { name, way, options }))
    }
}

/// Reads a count. The core checks its own range; this refuses what is no count.
pub(crate) fn count(what: &str, value: i64) -> Result<u32, Failure> {
    u32::try_from(value).map_err(|_| {
        Failure::invalid_argument(format!("{what} is {value}; it must be zero or more, and below 2^32"))
    })
}

/// Reads a fencing token.
pub(crate) fn token(value: i64) -> Result<FencingToken, Failure> {
    u64::try_from(value).map(FencingToken::new).map_err(|_| {
        Failure::invalid_argument(format!("the fencing token is {value}; there are none below zero"))
    })
}

/// What a store can do; see [`polylatch::Capability`].
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Capability {
    pub backend: String,
    pub fifo: bool,
    pub push: bool,
    pub expiry: bool,
    pub sharing: bool,
    pub atomic_sets: bool,
    pub fencing: String,
    pub min_lease_ms: i64,
    pub max_lease_ms: i64,
}

impl From<&polylatch::Capability> for Capability {
    fn from(can: &polylatch::Capability) -> Self {
        let millis = |length: Duration| whole(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        Self {
            backend: can.backend.to_owned(),
            fifo: can.fifo,
            push: can.push,
            expiry: can.expiry,
            sharing: can.sharing,
            atomic_sets: can.atomic_sets,
            fencing: can.fencing.code().to_owned(),
            min_lease_ms: millis(can.min_lease),
            max_lease_ms: millis(can.max_lease),
        }
    }
}
