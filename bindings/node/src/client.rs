//! One client of one store.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::Polylatch;
use polylatch_bridge::{Failure, Route, stats};

use crate::failure::Fault;
use crate::options::{Options, whole};

/// A connected client. Every guard holds it too, so that it can be closed as long as one is left.
#[napi]
pub struct NativeClient {
    pub(crate) client: Arc<Polylatch>,
    /// Brings its events to JavaScript, until it is closed or this is gone.
    pub(crate) route: Arc<Option<Route>>,
}

#[napi]
impl NativeClient {
    /// The store's URL without its secrets.
    #[napi(catch_unwind)]
    pub fn url(&self) -> String {
        self.client.url_for_display().to_owned()
    }

    /// The id under which this client stands in the store.
    #[napi(catch_unwind)]
    pub fn id(&self) -> String {
        self.client.id().as_str().to_owned()
    }

    /// What it has done, in numbers, as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> String {
        stats::json(&self.client.stats()).to_string()
    }

    /// The same as text that Prometheus reads, with labels as names and values in turn.
    #[napi(catch_unwind)]
    pub fn prometheus(&self, labels: Vec<String>) -> Either<String, Fault> {
        let labels: Vec<_> = labels.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        match stats::prometheus(&self.client.stats(), &labels) {
            Ok(text) => Either::A(text),
            Err(error) => Either::B(error.into()),
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
    ) -> Either<Fault, ()> {
        let options = Options { lease, wait, max_hold, beat_every, ..Options::default() };
        checked(options.checked())
    }

    /// Nothing, or why a number of permits is no count.
    #[napi(catch_unwind)]
    pub fn check_count(&self, what: String, count: f64) -> Either<Fault, ()> {
        checked(whole(&what, count))
    }

    /// What this store can do, as JSON.
    #[napi(catch_unwind)]
    pub fn capability(&self) -> napi::Result<String> {
        serde_json::to_string(self.client.capability())
            .map_err(|error| napi::Error::from_reason(format!("the capability is no JSON: {error}")))
    }
}

fn checked<T>(checked: Result<T, Failure>) -> Either<Fault, ()> {
    match checked {
        Ok(_) => Either::B(()),
        Err(failure) => Either::A(failure.into()),
    }
}
