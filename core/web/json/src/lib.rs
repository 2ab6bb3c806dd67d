//! The part of serde_json's interface that Polylatch's core uses, under the same names, for JavaScript hosts:
//! every kilobyte is loaded there, and serde_json brings tables of powers of ten, algorithms that print
//! floating-point numbers, and sentences for every mistake.
//!
//! What differs: an error says only that it is one, a fraction is read but never written, and what JSON calls
//! a number too large for a double is an error.

mod read;
mod tell;
mod value;
mod write;

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Serialize, de, ser};

pub use read::float;
pub use value::{ToValue, Value};

/// It is no JSON, or not of the wanted form. Which of the two, and where, nobody is told here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(());

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is no JSON of the wanted form")
    }
}

impl std::error::Error for Error {}

// The words that serde has for mistakes are never asked for, so they are not in the program.
impl de::Error for Error {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(())
    }
    fn invalid_type(_: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self(())
    }
    fn invalid_value(_: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self(())
    }
    fn invalid_length(_: usize, _: &dyn de::Expected) -> Self {
        Self(())
    }
    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self(())
    }
    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self(())
    }
    fn missing_field(_: &'static str) -> Self {
        Self(())
    }
    fn duplicate_field(_: &'static str) -> Self {
        Self(())
    }
}

impl ser::Error for Error {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(())
    }
}

/// Reads a value from JSON. Nothing but white space may follow.
///
/// Errors: what is no JSON in UTF-8, is nested deeper than 128 levels, or does not fit the type.
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    from_str(std::str::from_utf8(json).map_err(|_| Error(()))?)
}

/// As [`from_slice`], of a text.
pub fn from_str<T: DeserializeOwned>(json: &str) -> Result<T, Error> {
    T::deserialize(read::read(json)?)
}

/// Writes a value as JSON without white space.
///
/// Errors: fractions, and keys that are no texts.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    let mut text = String::new();
    value.serialize(write::Writer(&mut text))?;
    Ok(text)
}

/// As [`to_string`], in UTF-8.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    to_string(value).map(String::into_bytes)
}

/// Makes an object: `json!({"key": value, …})`, of what is [`ToValue`].
#[macro_export]
macro_rules! json {
    ({ $($key:literal : $value:expr),* $(,)? }) => {
        $crate::Value::Object(vec![$(($key.to_owned(), $crate::ToValue::to_value(&$value))),*])
    };
}
