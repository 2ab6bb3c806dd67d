//! What a caller may say about a client and about a lock. A value that was not given stays with the
//! core, which alone has defaults.

use std::fmt;
use std::time::Duration;

use polylatch::{ClientBuilder, Lock, LockAll, Polylatch};

use crate::events::Level;
use crate::failure::Failure;

/// The client's options that are lengths of time, in every store.
const DURATIONS: &[&str] = &[
    "ack_timeout",
    "busy_timeout",
    "lease",
    "lock_delay",
    "max_lease",
    "node_timeout",
    "poll",
    "provisional",
    "session_ttl_min",
    "timeout",
];

/// The value of a client's option, as a language has it.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A text, exactly as it would stand in a URL before escaping.
    Text(String),
    /// A number without a unit.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A length of time.
    Duration(Duration),
}

/// How to connect.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// The store's URL; the core's default if there is none.
    pub url: Option<String>,
    /// The program's name, for display.
    pub program: Option<String>,
    /// Language and version of the binding.
    pub language: Option<(String, String)>,
    /// Where the client's events go; nowhere if there is nothing here.
    pub listener: Option<crate::events::Listener>,
    /// From which level on the listener gets events; [`Level::Info`] if there is nothing here.
    pub level: Option<Level>,
    /// Options under the core's names for them, as texts; [`ConnectOptions::set`] writes them.
    pub options: Vec<(String, String)>,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL and the options may hold secrets.
        f.debug_struct("ConnectOptions").field("program", &self.program).finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Says whether an option is a length of time, so that a bare number has the language's unit.
    pub fn is_duration(key: &str) -> bool {
        DURATIONS.contains(&key)
    }

    /// Adds an option under the core's name for it. The core checks it when connecting. `level`, which is about
    /// listeners, is checked here.
    ///
    /// Errors: `invalid_config` for a number that cannot be written down, and for a `level` that there is not.
    pub fn set(&mut self, key: &str, value: OptionValue) -> Result<(), Failure> {
        let text = match value {
            OptionValue::Text(text) => text,
            OptionValue::Number(number) if number.is_finite() => format!("{number}"),
            OptionValue::Number(number) => {
                return Err(Failure::invalid_config(format!(
                    "the option {key} is {number}; it must be a finite number"
                )));
            }
            OptionValue::Flag(true) => "yes".into(),
            OptionValue::Flag(false) => "no".into(),
            // Whole nanoseconds as a decimal fraction: nothing is rounded.
            OptionValue::Duration(length) => {
                let exact = format!("{}.{:09}", length.as_secs(), length.subsec_nanos());
                format!("{}s", exact.trim_end_matches('0').trim_end_matches('.'))
            }
        };
        if key == "level" {
            self.level = Some(Level::of_option(&text)?);
            return Ok(());
        }
        self.options.push((key.to_owned(), text));
        Ok(())
    }

    /// Returns what the core connects with.
    pub fn builder(&self) -> ClientBuilder {
        let mut builder = Polylatch::builder();
        if let Some(url) = &self.url {
            builder = builder.url(url);
        }
        if let Some(program) = &self.program {
            builder = builder.program(program);
        }
        if let Some((language, version)) = &self.language {
            builder = builder.language(language, version);
        }
        for (key, value) in &self.options {
            builder = builder.option(key, value);
        }
        builder
    }

    /// Connects. The client's events come as long as what is returned beside it lives.
    ///
    /// Errors: as [`Polylatch::connect`].
    #[cfg(not(target_family = "wasm"))]
    pub async fn connect(&self) -> Result<(Polylatch, Option<crate::events::Route>), Failure> {
        let Some(listener) = &self.listener else { return Ok((self.builder().connect().await?, None)) };
        let route = crate::events::Route::prepare(listener, self.level)?;
        let client = self.builder().on_id(route.opener()).connect().await?;
        Ok((client, Some(route)))
    }
}

/// What a caller says about one acquisition. See [`Lock`] for what each means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockOptions {
    /// See [`Lock::lease`].
    pub lease: Option<Duration>,
    /// See [`Lock::wait`].
    pub wait: Option<Duration>,
    /// See [`Lock::label`].
    pub label: Option<String>,
    /// See [`Lock::owner`].
    pub owner: Option<String>,
    /// See [`Lock::max_hold`].
    pub max_hold: Option<Duration>,
    /// See [`Lock::beat_every`].
    pub beat_every: Option<Duration>,
    /// See [`Lock::fifo`].
    pub fifo: Option<bool>,
    /// See [`Lock::renew`].
    pub renew: Option<bool>,
    /// See [`Lock::keep_idle`].
    pub keep_idle: Option<Duration>,
    /// See [`Lock::steal`].
    pub steal: Option<String>,
}

impl LockOptions {
    /// Says it to the core.
    pub fn apply(&self, mut lock: Lock) -> Lock {
        if let Some(lease) = self.lease {
            lock = lock.lease(lease);
        }
        if let Some(wait) = self.wait {
            lock = lock.wait(wait);
        }
        if let Some(label) = &self.label {
            lock = lock.label(label);
        }
        if let Some(owner) = &self.owner {
            lock = lock.owner(owner);
        }
        if let Some(max_hold) = self.max_hold {
            lock = lock.max_hold(max_hold);
        }
        if let Some(beat_every) = self.beat_every {
            lock = lock.beat_every(beat_every);
        }
        if let Some(keep_idle) = self.keep_idle {
            lock = lock.keep_idle(keep_idle);
        }
        if let Some(fifo) = self.fifo {
            lock = lock.fifo(fifo);
        }
        if let Some(renew) = self.renew {
            lock = lock.renew(renew);
        }
        if let Some(reason) = &self.steal {
            lock = lock.steal(reason);
        }
        lock
    }

    /// Makes the core's set of locks: the wait is for all of them together, the rest for each.
    pub fn all(&self, client: &Polylatch, names: impl IntoIterator<Item = impl Into<String>>) -> LockAll {
        let locks = client.lock_all(names).each(|lock| self.apply(lock));
        match self.wait {
            Some(wait) => locks.wait(wait),
            None => locks,
        }
    }
}

/// The mode that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Alone.
    Mutex,
    /// Beside other readers.
    Read,
    /// As the only writer.
    Write,
    /// Some of a semaphore's permits.
    Permits {
        /// How many.
        count: u32,
        /// How many there are.
        capacity: u32,
    },
}

/// A lock that may be acquired: everything but the client.
#[derive(Debug, Clone)]
pub struct LockSpec {
    /// The lock's name.
    pub name: String,
    /// In which way.
    pub way: Way,
    /// How.
    pub options: LockOptions,
}

impl LockSpec {
    /// Makes the core's lock. Nothing is checked or sent before it is acquired.
    pub fn of(&self, client: &Polylatch) -> Lock {
        let name = self.name.as_str();
        self.options.apply(match self.way {
            Way::Mutex => client.lock(name),
            Way::Read => client.rw_lock(name).read(),
            Way::Write => client.rw_lock(name).write(),
            Way::Permits { count, capacity } => client.semaphore(name, capacity).permits(count),
        })
    }
}

/// What one acquisition is to hold.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// One lock.
    One(LockSpec),
    /// Several, all or none. The wait is for all of them together, the rest for each.
    All {
        /// The locks' names.
        names: Vec<String>,
        /// How.
        options: LockOptions,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::run_interruptible;

    fn connect(options: &ConnectOptions) -> Result<Polylatch, Failure> {
        let never = || Ok::<(), ()>(());
        run_interruptible(options.builder().connect(), never).expect("not interrupted").map_err(Failure::from)
    }

    #[test]
    fn options_reach_the_core_whatever_their_characters() {
        let mut options = ConnectOptions { url: Some("memory:a".into()), ..Default::default() };
        options.set("lease", OptionValue::Duration(Duration::from_millis(2_500))).unwrap();
        options.set("push", OptionValue::Text("hint".into())).unwrap();
        connect(&options).unwrap();
        options.set("no&such=option", OptionValue::Flag(true)).unwrap();
        let failure = connect(&options).unwrap_err();
        assert_eq!(failure.code, "invalid_config");
        assert!(failure.message.contains("no&such=option"), "{}", failure.message);
    }

    #[test]
    fn every_length_of_time_that_the_core_knows_is_listed() {
        // A bare number is refused for what is a length of time and is not in the list.
        for url in ["memory:", "sqlite:x", "redis://localhost", "redlock://a,b,c", "consul://localhost"] {
            let mut options = ConnectOptions { url: Some(url.into()), ..Default::default() };
            options.set("nope", OptionValue::Flag(true)).unwrap();
            let failure = connect(&options).unwrap_err();
            let known = failure.message.split("its options are ").nth(1).expect("the known options");
            for key in known.split(", ").map(|key| key.trim_end_matches(|c: char| !c.is_ascii_lowercase())) {
                let mut options = ConnectOptions { url: Some(url.into()), ..Default::default() };
                options.set(key, OptionValue::Number(-1.0)).unwrap();
                let is_duration =
                    connect(&options).is_err_and(|failure| failure.message.contains("is not a duration"));
                assert!(!is_duration || ConnectOptions::is_duration(key), "{key} of {url}");
            }
        }
    }
}
