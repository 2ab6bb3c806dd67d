//! One client of one store.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch_bridge::{Client, Failure, ops};

use crate::failure::Fault;
use crate::options::{NUMBERS, Options};

/// A connected client. Every guard holds it too, so that it can be closed as long as one is left.
///
/// Node does not fork, so its client is always connected where it is asked.
#[napi]
pub struct NativeClient {
    pub(crate) client: Arc<Client>,
    pub(crate) number: u32,
}

#[napi]
impl NativeClient {
    /// By which the functions of `at_once` know it.
    #[napi(catch_unwind)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The store's URL without its secrets.
    #[napi(catch_unwind)]
    pub fn url(&self) -> String {
        self.client.read(ops::url).unwrap_or_default()
    }

    /// The id of this client in the store.
    #[napi(catch_unwind)]
    pub fn id(&self) -> String {
        self.client.read(ops::id).unwrap_or_default()
    }

    /// What it has done, in numbers, as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        self.client.read(ops::stats_json).unwrap_or_default()
    }

    /// The same as text that Prometheus reads, with labels as names and values in turn.
    #[napi(catch_unwind)]
    pub fn prometheus(&self, labels: Vec<String>) -> Either<String, Fault> {
        let labels: Vec<_> = labels.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        match self.client.read(|client| ops::prometheus(client, &labels)).flatten() {
            Ok(text) => Either::A(text),
            Err(failure) => Either::B(failure.into()),
        }
    }

    /// Nothing, or which of a lock's lengths of time, in milliseconds, is no such length.
    #[napi(catch_unwind)]
    pub fn check_lengths(
        &self,
        lease: Option<f64>,
        wait: Option<f64>,
        max_hold: Option<f64>,
        beat_every: Option<f64>,
        keep_idle: Option<f64>,
    ) -> Either<Fault, ()> {
        let options = Options { lease, wait, max_hold, beat_every, keep_idle, ..Options::default() };
        checked(options.checked())
    }

    /// Nothing, or why a number of permits is no count.
    #[napi(catch_unwind)]
    pub fn check_count(&self, what: String, count: f64) -> Either<Fault, ()> {
        checked(NUMBERS.count(&what, count))
    }

    /// What this store can do, as JSON.
    #[napi(catch_unwind)]
    pub fn capability(&self) -> napi::Result<String> {
        let json = self.client.read(ops::capability_json).flatten();
        json.map_err(|failure| napi::Error::from_reason(failure.message.clone()))
    }
}

fn checked<T>(checked: Result<T, Failure>) -> Either<Fault, ()> {
    match checked {
        Ok(_) => Either::B(()),
        Err(failure) => Either::A(failure.into()),
    }
}
