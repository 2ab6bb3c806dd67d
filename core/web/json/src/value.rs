//! Any JSON value.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::write;

/// A JSON value. Objects keep the order of their keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, zero or more.
    Whole(u64),
    /// A whole number below zero.
    Negative(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The value under a key, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(pairs) = self else { return None };
        // The last one counts, as for most readers of JSON.
        pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The number, if this is one; above 2^53 the nearest that a double can say.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Negative(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }
}

/// JSON. A fraction, which nothing here ever makes, reads as `null`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write::value(self, &mut text);
        f.write_str(&text)
    }
}

impl Index<&str> for Value {
    type Output = Self;
    fn index(&self, key: &str) -> &Self {
        self.get(key).unwrap_or(&Self::Null)
    }
}

/// Adds the key if it is missing.
impl IndexMut<&str> for Value {
    fn index_mut(&mut self, key: &str) -> &mut Self {
        if !matches!(self, Self::Object(_)) {
            *self = Self::Object(Vec::new());
        }
        let Self::Object(pairs) = self else { unreachable!("it was made one above") };
        let at = pairs.iter().rposition(|(name, _)| name == key).unwrap_or_else(|| {
            pairs.push((key.to_owned(), Self::Null));
            pairs.len() - 1
        });
        &mut pairs[at].1
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// What `json!` makes a value of.
pub trait ToValue {
    /// Makes it.
    fn to_value(&self) -> Value;
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value {
        (*self).to_value()
    }
}

impl ToValue for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value {
        Value::String(self.to_owned())
    }
}

impl ToValue for String {
    fn to_value(&self) -> Value {
        Value::String(self.clone())
    }
}

impl ToValue for u64 {
    fn to_value(&self) -> Value {
        Value::Whole(*self)
    }
}

impl ToValue for Vec<String> {
    fn to_value(&self) -> Value {
        Value::Array(self.iter().map(ToValue::to_value).collect())
    }
}
