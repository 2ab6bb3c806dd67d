//! Host-provided connections, for places where the core opens none itself: a browser, an
//! edge runtime, or a program that must go through a client it already has.
//!
//! The core speaks its own protocol over them, the same as over its own connections; see
//! [`crate::ClientBuilder::redis`] and [`crate::ClientBuilder::http`]. A connection that fails, never
//! answers or answers nonsense makes calls fail with an error that says so, after the client's time limit
//! at the latest; what such a call may have done at the store is undone, or ends with its first lease.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// An answer on its way. It borrows nothing and may be polled on any executor.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'static>>;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The connection failed: whether the request arrived is not known. With the cause, for display.
    Broken(String),
    /// It answered with something that is no answer; what it was, such as `an object`.
    Nonsense(String),
    /// It cannot do that at all.
    Unsupported,
}

/// A reply of a Redis server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// A string, also a simple one such as `OK`.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<RedisReply>),
    /// An error reply, such as `NOSCRIPT No matching script.`
    Error(String),
}

/// Hears the messages of a channel.
pub type Listener = Arc<dyn Fn(Vec<u8>) + Send + Sync>;

/// A connection to one Redis server.
pub trait RedisConnection: Send + Sync + 'static {
    /// Sends one command. It leaves when this is called, not when the answer is polled, and commands reach
    /// the server in the order in which they were given.
    fn command(&self, words: Vec<String>) -> Answer<RedisReply>;

    /// Hears a channel until [`RedisConnection::close`], also after interruptions. Answers when the server
    /// has confirmed it. Messages may be lost: every wait also asks by itself.
    fn subscribe(&self, channel: String, listener: Listener) -> Answer<()>;

    /// Nothing is asked or heard any more. The connection itself stays its owner's.
    fn close(&self);
}

/// One HTTP request.
#[derive(Clone)]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: &'static str,
    /// The whole URL.
    pub url: String,
    /// Names and values. They may hold secrets.
    pub headers: Vec<(&'static str, String)>,
    /// Empty for none.
    pub body: Vec<u8>,
    /// Until when the whole answer has to be there.
    pub limit: Duration,
    /// Says of the first part of a body whether it is enough: then the rest is not awaited. `None`: the whole body. A client
    /// that cannot read an answer in parts answers such a request with [`Failure::Unsupported`], and waiters poll.
    pub enough: Option<fn(&[u8]) -> bool>,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The value of the header `X-Consul-Index`, if there is one that can be read.
    pub consul_index: Option<String>,
    /// The body, whole or as much of it as was enough.
    pub body: Vec<u8>,
}

/// A way to send HTTP requests, such as `fetch`.
pub trait HttpClient: Send + Sync + 'static {
    /// Sends one request. Dropping the answer ends the request.
    fn request(&self, request: HttpRequest) -> Answer<HttpResponse>;
}

/// What the host provides.
#[derive(Clone, Default)]
pub(crate) struct Hosted {
    pub redis: Option<Arc<dyn RedisConnection>>,
    pub http: Option<Arc<dyn HttpClient>>,
}

impl Hosted {
    /// Whether the host provides anything.
    pub(crate) fn is_any(&self) -> bool {
        self.redis.is_some() || self.http.is_some()
    }
}
