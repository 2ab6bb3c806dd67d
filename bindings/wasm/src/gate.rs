//! The gate that a protected resource puts fencing tokens through.

use polylatch::{FencingToken, TokenGate};
use polylatch_bridge::Failure;
use wasm_bindgen::prelude::*;

use crate::failure::fault;

#[wasm_bindgen]
pub struct NativeGate(TokenGate);

#[wasm_bindgen]
impl NativeGate {
    /// The largest token seen so far, in decimal digits: `gate.mjs` passes only what fits 64 bits.
    #[wasm_bindgen(constructor)]
    pub fn new(largest: Option<String>) -> Self {
        Self(largest.map_or_else(TokenGate::new, |largest| TokenGate::resumed_at(token(&largest))))
    }

    /// Nothing, or why it is refused.
    pub fn admit(&mut self, given: String) -> JsValue {
        match self.0.admit(token(&given)) {
            Ok(()) => JsValue::UNDEFINED,
            Err(error) => fault(&Failure::from(error)),
        }
    }

    pub fn largest(&self) -> JsValue {
        self.0.largest().map_or(JsValue::NULL, |largest| largest.get().to_string().into())
    }
}

fn token(digits: &str) -> FencingToken {
    FencingToken::new(digits.parse().unwrap_or(u64::MAX))
}
