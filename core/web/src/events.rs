//! The part of `tracing` that Polylatch's core uses: events with a name, for one listener. `tracing` itself would make a
//! page load a quarter more.
//!
//! An event is what has `target: "polylatch", event = "…"`. What has no name is for the log of a native program: here it
//! is nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The ordinary life of locks.
    Debug,
    /// Something is well again.
    Info,
    /// A lease or a promise is at risk.
    Warn,
    /// A fault.
    Error,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// How much it matters.
    pub level: Level,
    /// Its stable name.
    pub name: &'static str,
    /// What happened, for display; may be empty.
    pub message: String,
    /// Its fields.
    pub fields: Vec<(&'static str, Value)>,
}

/// The least level that is wanted; above the largest, none is.
static LEAST: AtomicU8 = AtomicU8::new(u8::MAX);
static LISTENER: OnceLock<fn(Event)> = OnceLock::new();

/// Has `listener` called with every event that is wanted. The first one stays.
pub fn listen(listener: fn(Event)) {
    let _ = LISTENER.set(listener);
}

/// Says from which level on events are wanted; at first, none is.
pub fn want(least: Option<Level>) {
    LEAST.store(least.map_or(u8::MAX, |least| least as u8), Ordering::Relaxed);
}

#[doc(hidden)]
pub fn is_wanted(level: Level) -> bool {
    level as u8 >= LEAST.load(Ordering::Relaxed)
}

#[doc(hidden)]
pub fn tell(event: Event) {
    if let Some(listener) = LISTENER.get() {
        listener(event);
    }
}

impl Event {
    #[doc(hidden)]
    pub fn put(&mut self, name: &'static str, value: &impl Field) {
        if let Some(value) = value.value() {
            self.fields.push((name, value));
        }
    }
}

/// What a field can be given as; as in `tracing`, nothing leaves it out.
#[doc(hidden)]
pub trait Field {
    fn value(&self) -> Option<Value>;
}

impl Field for &str {
    fn value(&self) -> Option<Value> {
        Some(Value::Text((*self).to_owned()))
    }
}

impl Field for String {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(self.clone()))
    }
}

impl Field for bool {
    fn value(&self) -> Option<Value> {
        Some(Value::Flag(*self))
    }
}

impl<T: Field> Field for Option<T> {
    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }
}

macro_rules! number {
    ($($kind:ty)*) => { $(
        impl Field for $kind {
            fn value(&self) -> Option<Value> {
                Some(Value::Number(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )* };
}
number!(u32 u64 usize);

/// As `tracing::debug!`.
#[macro_export]
macro_rules! debug { ($($event:tt)*) => { $crate::event!(Debug, $($event)*) } }

/// As `tracing::info!`.
#[macro_export]
macro_rules! info { ($($event:tt)*) => { $crate::event!(Info, $($event)*) } }

/// As `tracing::warn!`.
#[macro_export]
macro_rules! warn { ($($event:tt)*) => { $crate::event!(Warn, $($event)*) } }

/// As `tracing::error!`.
#[macro_export]
macro_rules! error { ($($event:tt)*) => { $crate::event!(Error, $($event)*) } }

#[doc(hidden)]
#[macro_export]
macro_rules! event {
    ($level:ident, target: "polylatch", event = $name:literal, $($rest:tt)*) => {
        if $crate::events::is_wanted($crate::events::Level::$level) {
            $crate::events::tell($crate::made!($level, $name, $($rest)*));
        }
    };
    ($level:ident, $($rest:tt)*) => {
        if false {
            $crate::events::tell($crate::made!($level, "", $($rest)*));
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! made {
    ($level:ident, $name:literal, $($rest:tt)*) => {{
        #[allow(unused_mut)]
        let mut event = $crate::events::Event {
            level: $crate::events::Level::$level,
            name: $name,
            message: ::std::string::String::new(),
            fields: ::std::vec::Vec::new(),
        };
        $crate::fields!(event, $($rest)*);
        event
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! fields {
    ($event:ident $(,)?) => {};
    ($event:ident, $message:literal $(,)?) => { $event.message = ::std::format!($message); };
    ($event:ident, $key:ident = % $value:expr $(, $($rest:tt)*)?) => {
        $event.put(::std::stringify!($key), &::std::format!("{}", $value));
        $crate::fields!($event, $($($rest)*)?);
    };
    ($event:ident, $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $event.put(::std::stringify!($key), &$value);
        $crate::fields!($event, $($($rest)*)?);
    };
    ($event:ident, % $key:ident $(, $($rest:tt)*)?) => {
        $event.put(::std::stringify!($key), &::std::format!("{}", $key));
        $crate::fields!($event, $($($rest)*)?);
    };
    ($event:ident, ? $key:ident $(, $($rest:tt)*)?) => {
        $event.put(::std::stringify!($key), &::std::format!("{:?}", $key));
        $crate::fields!($event, $($($rest)*)?);
    };
    ($event:ident, $key:ident $(, $($rest:tt)*)?) => {
        $event.put(::std::stringify!($key), &$key);
        $crate::fields!($event, $($($rest)*)?);
    };
}
