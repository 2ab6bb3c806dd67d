//! Telling a read value to the type that wants it.

use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

use crate::{Error, Value};

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(flag) => visitor.visit_bool(flag),
            Self::Whole(number) => visitor.visit_u64(number),
            Self::Negative(number) => visitor.visit_i64(number),
            Self::Float(number) => visitor.visit_f64(number),
            Self::String(text) => visitor.visit_string(text),
            Self::Array(items) => {
                let mut items = Items(items.into_iter());
                let told = visitor.visit_seq(&mut items)?;
                // What nobody took was one too many.
                if items.0.len() == 0 { Ok(told) } else { Err(Error(())) }
            }
            Self::Object(pairs) => visitor.visit_map(Pairs { pairs: pairs.into_iter(), value: Self::Null }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self == Self::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::String(name) => visitor.visit_enum(Variant { name, content: None }),
            Self::Object(mut pairs) if pairs.len() == 1 => {
                let (name, content) = pairs.remove(0);
                visitor.visit_enum(Variant { name, content: Some(content) })
            }
            _ => Err(Error(())),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("any JSON")
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
                Ok(Value::Bool(flag))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Whole(number))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Negative(number))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Value::Float(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::String(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<Value, E> {
                Ok(Value::String(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    all.push(item);
                }
                Ok(Value::Array(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    all.push(pair);
                }
                Ok(Value::Object(all))
            }
        }
        from.deserialize_any(Any)
    }
}

struct Items(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(item)).transpose()
    }
}

struct Pairs {
    pairs: std::vec::IntoIter<(String, Value)>,
    /// Of the key that was told last.
    value: Value,
}

impl<'de> MapAccess<'de> for Pairs {
    type Error = Error;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.pairs.next() else { return Ok(None) };
        self.value = value;
        seed.deserialize(Value::String(key)).map(Some)
    }
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(std::mem::take(&mut self.value))
    }
}

struct Variant {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Error> {
        let name = std::mem::take(&mut self.name);
        Ok((seed.deserialize(name.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Error;
    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Error(())),
        }
    }
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content.ok_or(Error(()))?)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content.ok_or(Error(()))?.deserialize_any(visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content.ok_or(Error(()))?.deserialize_any(visitor)
    }
}
