//! The small door to a server: one HTTP request, one answer.
//!
//! A store knows nothing else of its transport, so the same code runs over the native client,
//! over a `fetch` that a host program supplies, and over a simulated one.

use std::time::Duration;

use crate::address::Secret;
use crate::backend::Reply;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub method: &'static str,
    /// Path and query, percent-encoded.
    pub target: String,
    pub headers: Vec<(&'static str, Secret)>,
    pub body: Vec<u8>,
    /// Until when the whole answer has to be there.
    pub limit: Duration,
    /// Says of the first part of a body whether it is enough: then the rest is not awaited. `None`: the whole body.
    pub enough: Option<fn(&[u8]) -> bool>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub status: u16,
    /// `X-Consul-Index`: up to where the answer saw the store. Only Consul sends it.
    pub index: Option<u64>,
    pub body: Vec<u8>,
}

/// A way to a server.
///
/// Errors: `backend_unavailable` with effect `none` only if the request certainly did not arrive;
/// `backend_rejected` if TLS is refused. Any answer with a status is no error here.
pub(crate) trait Port: Send + Sync + 'static {
    /// Sends one request. Many may be under way at once, some of them for minutes.
    fn request(&self, request: Request) -> Reply<Response>;

    /// Says where it leads, without secrets.
    fn place(&self) -> String;

    /// Lets go of connections. Nothing is sent afterwards.
    fn close(&self);
}
