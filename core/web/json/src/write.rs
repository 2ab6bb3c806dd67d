//! Writing JSON.

use std::fmt::Write;

use serde::ser::{self, Impossible, Serialize, Serializer};

use crate::{Error, Value};

pub(crate) fn value(value: &Value, to: &mut String) {
    match value {
        Value::Null | Value::Float(_) => to.push_str("null"),
        Value::Bool(flag) => to.push_str(if *flag { "true" } else { "false" }),
        Value::Whole(number) => display(number, to),
        Value::Negative(number) => display(number, to),
        Value::String(string) => text(string, to),
        Value::Array(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    to.push(',');
                }
                self::value(item, to);
            }
            to.push(']');
        }
        Value::Object(pairs) => {
            to.push('{');
            for (at, (key, value)) in pairs.iter().enumerate() {
                if at > 0 {
                    to.push(',');
                }
                text(key, to);
                to.push(':');
                self::value(value, to);
            }
            to.push('}');
        }
    }
}

fn display(number: &dyn std::fmt::Display, to: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(to, "{number}");
}

fn text(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                to.push('\\');
                to.push(c);
            }
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            '\0'..='\u{1f}' => {
                to.push_str("\\u00");
                for half in [u32::from(c) / 16, u32::from(c) % 16] {
                    to.push(char::from_digit(half, 16).unwrap_or('0'));
                }
            }
            _ => to.push(c),
        }
    }
    to.push('"');
}

/// Writes one value.
pub(crate) struct Writer<'a>(pub(crate) &'a mut String);

/// Writes what stands between brackets, and the brackets that close.
pub(crate) struct Inside<'a> {
    to: &'a mut String,
    is_first: bool,
    end: &'static str,
}

impl<'a> Writer<'a> {
    fn inside(self, begin: &str, end: &'static str) -> Inside<'a> {
        self.0.push_str(begin);
        Inside { to: self.0, is_first: true, end }
    }

    fn number(self, number: impl std::fmt::Display) -> Result<(), Error> {
        display(&number, self.0);
        Ok(())
    }
}

impl<'a> Inside<'a> {
    fn next(&mut self) -> Writer<'_> {
        if !std::mem::take(&mut self.is_first) {
            self.to.push(',');
        }
        Writer(self.to)
    }

    fn pair<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        let to = self.next().0;
        text(key, to);
        to.push(':');
        value.serialize(Writer(to))
    }

    fn close(self) -> Result<(), Error> {
        self.to.push_str(self.end);
        Ok(())
    }
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Inside<'a>;
    type SerializeTuple = Inside<'a>;
    type SerializeTupleStruct = Inside<'a>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Inside<'a>;
    type SerializeStruct = Inside<'a>;
    type SerializeStructVariant = Inside<'a>;

    fn serialize_bool(self, flag: bool) -> Result<(), Error> {
        self.0.push_str(if flag { "true" } else { "false" });
        Ok(())
    }
    fn serialize_i8(self, number: i8) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_i16(self, number: i16) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_i32(self, number: i32) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_i64(self, number: i64) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_u8(self, number: u8) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_u16(self, number: u16) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_u32(self, number: u32) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_u64(self, number: u64) -> Result<(), Error> {
        self.number(number)
    }
    fn serialize_f32(self, _: f32) -> Result<(), Error> {
        Err(Error(()))
    }
    fn serialize_f64(self, _: f64) -> Result<(), Error> {
        Err(Error(()))
    }
    fn serialize_char(self, c: char) -> Result<(), Error> {
        self.serialize_str(c.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, string: &str) -> Result<(), Error> {
        text(string, self.0);
        Ok(())
    }
    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Error> {
        bytes.serialize(self)
    }
    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Error> {
        self.0.push_str("null");
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<(), Error> {
        self.serialize_str(name)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut inside = self.inside("{", "}");
        inside.pair(name, value)?;
        inside.close()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'a>, Error> {
        Ok(self.inside("[", "]"))
    }
    fn serialize_tuple(self, _: usize) -> Result<Inside<'a>, Error> {
        Ok(self.inside("[", "]"))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, Error> {
        Ok(self.inside("[", "]"))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), Error>, Error> {
        Err(Error(()))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'a>, Error> {
        Ok(self.inside("{", "}"))
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, Error> {
        Ok(self.inside("{", "}"))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, Error> {
        self.0.push('{');
        text(name, self.0);
        Ok(self.inside(":{", "}}"))
    }
}

impl ser::SerializeSeq for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(self.next())
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeTuple for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(self.next())
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeTupleStruct for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(self.next())
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let to = self.next().0;
        let from = to.len();
        key.serialize(Writer(to))?;
        if to.as_bytes().get(from) == Some(&b'"') { Ok(()) } else { Err(Error(())) }
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.to.push(':');
        value.serialize(Writer(self.to))
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeStruct for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        self.pair(key, value)
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeStructVariant for Inside<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        self.pair(key, value)
    }
    fn end(self) -> Result<(), Error> {
        self.close()
    }
}
