//! The gate that a protected resource puts fencing tokens through.

use std::sync::{Mutex, PoisonError};

use polylatch::{FencingToken, TokenGate};

use crate::fault::NativeError;
use crate::handed::at_once;
use crate::options::token;

/// Lets the holders of a lock through in the order of their tokens; see [`TokenGate`].
#[derive(Debug, uniffi::Object)]
pub struct NativeGate(Mutex<TokenGate>);

#[uniffi::export]
impl NativeGate {
    /// Errors: `invalid_argument` for a negative token.
    #[uniffi::constructor]
    pub fn new(largest: Option<i64>) -> Result<Self, NativeError> {
        at_once(|| {
            let largest = largest.map(token).transpose()?;
            Ok(Self(Mutex::new(largest.map_or_else(TokenGate::new, TokenGate::resumed_at))))
        })
    }

    /// Errors: `stale_token` if a larger one came before; `invalid_argument` for a negative one.
    pub fn admit(&self, number: i64) -> Result<(), NativeError> {
        at_once(|| {
            let mut gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(gate.admit(token(number)?)?)
        })
    }

    /// The largest that came, if any did.
    pub fn largest(&self) -> Option<i64> {
        let gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.largest().map(|token: FencingToken| crate::view::whole(token.get()))
    }
}
