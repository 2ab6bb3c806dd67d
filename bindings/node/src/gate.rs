//! What a protected resource puts fencing tokens through.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::{FencingToken, TokenGate};

use crate::failure::Fault;

#[napi]
pub struct NativeGate {
    gate: TokenGate,
}

#[napi]
impl NativeGate {
    /// Numbers come as decimal text: a token from elsewhere may be larger than a double keeps.
    #[napi(constructor)]
    pub fn new(largest: Option<String>) -> Self {
        let largest = largest.and_then(|text| text.parse().ok()).map(FencingToken::new);
        Self { gate: largest.map_or_else(TokenGate::new, TokenGate::resumed_at) }
    }

    /// Nothing, or why the token is refused. `js/` passes only what fits 64 bits.
    #[napi(catch_unwind)]
    pub fn admit(&mut self, token: String) -> Either<Fault, ()> {
        let token = FencingToken::new(token.parse().unwrap_or(u64::MAX));
        match self.gate.admit(token) {
            Ok(()) => Either::B(()),
            Err(error) => Either::A(error.into()),
        }
    }

    #[napi(catch_unwind)]
    pub fn largest(&self) -> Option<String> {
        self.gate.largest().map(|token| token.to_string())
    }
}
