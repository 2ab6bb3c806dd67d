//! What a protected resource puts fencing tokens through.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::resource::{FencedUpdate, Placeholders, Unchanged};
use polylatch::{FencingToken, TokenGate};
use polylatch_bridge::Failure;

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

/// The texts of a conditional write.
#[napi(object, object_from_js = false)]
pub struct FencedStatement {
    pub sql: String,
    pub parameters: Vec<String>,
    pub probe_sql: String,
    pub probe_parameters: Vec<String>,
}

/// A conditional write to one row of an SQL table, or why there is none.
#[napi(catch_unwind)]
pub fn fenced_update(
    inserts: bool,
    dollar: bool,
    table: String,
    fence: String,
    set: Vec<String>,
    keys: Vec<String>,
) -> Either<FencedStatement, Fault> {
    let dialect = if dollar { Placeholders::Dollar } else { Placeholders::Question };
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let make = if inserts { FencedUpdate::upsert } else { FencedUpdate::update };
    match make(dialect, &table, &fence, &set, &keys) {
        Ok(write) => Either::A(FencedStatement {
            sql: write.sql().to_owned(),
            parameters: write.parameters().to_vec(),
            probe_sql: write.probe_sql().to_owned(),
            probe_parameters: write.probe_parameters().to_vec(),
        }),
        Err(error) => Either::B(error.into()),
    }
}

/// Why a conditional write changed nothing: refused, missing (`false`), or changed meanwhile (`true`).
/// `kept` is the row's token, as decimal text; with `there` unset there is no row.
#[napi(catch_unwind)]
pub fn why_unchanged(token: String, there: bool, kept: Option<String>) -> Either<Fault, bool> {
    let token = FencingToken::new(token.parse().unwrap_or(u64::MAX));
    let kept = match kept.map(|kept| kept.parse::<i64>().map_err(|_| kept)).transpose() {
        Ok(kept) => kept,
        Err(kept) => {
            let text = format!("the row's fencing token is {kept}; it must be below 2^63, as in a BIGINT");
            return Either::A(Failure::invalid_argument(text).into());
        }
    };
    let found = there.then_some(kept);
    match FencedUpdate::why_unchanged(token, found) {
        Unchanged::Refused(refused) => Either::A(polylatch::Error::from(refused).into()),
        Unchanged::Missing => Either::B(false),
        Unchanged::ChangedMeanwhile => Either::B(true),
    }
}
