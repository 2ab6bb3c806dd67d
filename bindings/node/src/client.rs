//! One client of one store.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use polylatch::Polylatch;
use polylatch_bridge::{Route, stats};

use crate::failure::Fault;

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

    /// What this store can do, as JSON.
    #[napi(catch_unwind)]
    pub fn capability(&self) -> napi::Result<String> {
        serde_json::to_string(self.client.capability())
            .map_err(|error| napi::Error::from_reason(format!("the capability is no JSON: {error}")))
    }
}
