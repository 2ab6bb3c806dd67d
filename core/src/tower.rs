//! Idempotent requests of HTTP services: a layer for `tower`, and so for axum, tonic's transport and hyper.
//!
//! ```
//! # async fn story() -> polylatch::Result<()> {
//! use polylatch::tower::IdempotencyLayer;
//!
//! #[derive(Clone)]
//! struct User(String);
//!
//! let client = polylatch::Polylatch::connect("memory:").await?;
//! // Put it inside of what checks who sent the request: Router::new().route(…).layer(layer).layer(authentication)
//! let layer = IdempotencyLayer::new(client, |request| request.extensions.get::<User>().map(|user| user.0.clone()));
//! # drop(layer);
//! # Ok(())
//! # }
//! # pollster::block_on(story()).unwrap();
//! ```
//!
//! A client makes a key, such as a UUID, and sends it as the header `Idempotency-Key` with every repetition of one request.
//! The service handles the request once, and every repetition gets the stored response, marked with the header
//! `Idempotency-Replayed: true`. The header is that of the IETF draft draft-ietf-httpapi-idempotency-key-header.
//!
//! | response | when |
//! | --- | --- |
//! | 400 | the key breaks a rule, or is missing where it is required; the body could not be read |
//! | 409 | the request with this key is being handled, or its response was too large to be stored |
//! | 413 | the body is larger than [`IdempotencyLayer::max_body`] |
//! | 422 | the key was used for another request |
//! | 503 | the store failed before the request was handled |
//!
//! Of a response, the status, the body and the headers are stored, except `Set-Cookie`, `Date` and those of one connection; at
//! most 1 MiB in all. The response is sent when it is stored, so bodies of requests with a key are not streamed.
//!
//! A response of 500 or more, and an error of the service, free the key: the next repetition is handled again. That is right
//! only if what failed had no effect; see [`IdempotencyLayer::store_server_errors`]. A request whose handling is cancelled
//! or panics blocks its key until the lease ends, because what it did is not known.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower_layer::Layer;
use tower_service::Service;

use crate::Polylatch;
use crate::error::ErrorKind;
use crate::idempotency::{Begun, Failure, Outcome, RunError, RunOptions};

const DEFAULT_MAX_BODY: usize = 1024 * 1024;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Of one connection (RFC 9110, 7.6.1), of one moment, or of one browser.
const NOT_STORED: [&str; 9] = [
    "connection",
    "date",
    "keep-alive",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Who sent a request.
type Caller = dyn Fn(&Parts) -> Option<String> + Send + Sync;

#[derive(Clone)]
struct Settings {
    client: Polylatch,
    caller: Arc<Caller>,
    methods: BTreeSet<String>,
    header: HeaderName,
    is_required: bool,
    run: RunOptions,
    max_body: usize,
    stores_server_errors: bool,
}

/// Makes a service handle each request that has a key once; see the module.
#[derive(Clone)]
pub struct IdempotencyLayer(Settings);

impl std::fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyLayer").field("methods", &self.0.methods).finish_non_exhaustive()
    }
}

impl IdempotencyLayer {
    /// Requests with the methods POST and PATCH may have a key, and a repetition does not wait for the first request.
    ///
    /// `caller` returns who sent the request, by an identity that was checked before. Two callers never get each other's
    /// responses. If it returns `None`, the request is anonymous: the service gets it as if it had no key.
    pub fn new(client: Polylatch, caller: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Settings {
            client,
            caller: Arc::new(caller),
            methods: [Method::POST, Method::PATCH].iter().map(Method::to_string).collect(),
            header: HeaderName::from_static("idempotency-key"),
            is_required: false,
            run: RunOptions::new().no_wait(),
            max_body: DEFAULT_MAX_BODY,
            stores_server_errors: false,
        })
    }

    /// Sets which requests may have a key.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.0.methods = methods.into_iter().map(|method| method.to_string()).collect();
        self
    }

    /// Sets the header that has the key.
    #[must_use]
    pub fn header(mut self, header: HeaderName) -> Self {
        self.0.header = header;
        self
    }

    /// Refuses requests of the chosen methods that have no key.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.is_required = true;
        self
    }

    /// Sets retention, lease, and how long a repetition waits for the response of the first request before it gets 409. The
    /// fingerprint is made of the request, and what failures do is [`IdempotencyLayer::store_server_errors`].
    #[must_use]
    pub fn run_options(mut self, options: RunOptions) -> Self {
        self.0.run = options;
        self
    }

    /// Sets the largest body of a request with a key, in bytes; 1 MiB by default. It is read before it is handled.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.0.max_body = bytes;
        self
    }

    /// Stores responses of 500 or more, too, and an error of the service as an empty response of 500.
    #[must_use]
    pub fn store_server_errors(mut self) -> Self {
        self.0.stores_server_errors = true;
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, settings: Arc::new(self.0.clone()) }
    }
}

/// What [`IdempotencyLayer`] makes of a service.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S: std::fmt::Debug> std::fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    R: Body + From<Bytes> + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled to be ready, and another one for the next request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let settings = Arc::clone(&self.settings);
        let key = settings.key_of(&request);
        if !settings.methods.contains(request.method().as_str()) || (key.is_none() && !settings.is_required) {
            return Box::pin(inner.call(request));
        }
        let Some(key) = key else {
            let text = format!("this request needs the header {}, a key made by its client", settings.header);
            let refused = refused(StatusCode::BAD_REQUEST, &text);
            return Box::pin(std::future::ready(Ok(refused)));
        };
        let (parts, body) = request.into_parts();
        match (settings.caller)(&parts) {
            None => Box::pin(inner.call(Request::from_parts(parts, body))),
            Some(caller) => Box::pin(async move { settings.handle(inner, &key, &caller, parts, body).await }),
        }
    }
}

impl Settings {
    fn key_of<B>(&self, request: &Request<B>) -> Option<String> {
        let value = request.headers().get(&self.header)?;
        let text: String = value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        let text = text.trim();
        // A string of structured fields (RFC 9651), or as most clients send it.
        let unquoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        Some(unquoted.unwrap_or(text).to_owned())
    }

    async fn handle<S, B, R>(
        &self,
        mut inner: S,
        key: &str,
        caller: &str,
        parts: Parts,
        body: B,
    ) -> Result<Response<R>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>>,
        B: Body + From<Bytes>,
        B::Error: Into<BoxError>,
        R: Body + From<Bytes>,
        R::Error: Into<BoxError>,
    {
        let body = match Limited::new(body, self.max_body).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let text = format!("the body of a request with a key has at most {} bytes", self.max_body);
                return Ok(refused(StatusCode::PAYLOAD_TOO_LARGE, &text));
            }
            Err(error) => {
                let text = format!("the body of the request could not be read: {error}");
                return Ok(refused(StatusCode::BAD_REQUEST, &text));
            }
        };
        let asked = [parts.method.as_str(), parts.uri.path(), parts.uri.query().unwrap_or_default()];
        let payload = [serde_json::json!(asked).to_string().as_bytes(), b"\0", &body].concat();
        let options = self.run.clone().payload(&payload);
        let run = match self.client.idempotency(format!("http/{caller}")).begin(key, &options).await {
            Ok(Begun::Mine(run)) => run,
            Ok(Begun::Replayed(stored)) => return Ok(replayed(&stored)),
            Err(error) => return Ok(refusal(&error)),
        };
        let answered = inner.call(Request::from_parts(parts, B::from(body))).await;
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                let worked = match self.stores_server_errors {
                    true => Ok(stored(StatusCode::INTERNAL_SERVER_ERROR, &HeaderMap::new(), b"")),
                    false => Err(Failure::freed("the service failed")),
                };
                noted(run.finish(worked).await);
                return Err(error);
            }
        };
        let (parts, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                let text = format!("the response could not be read: {}", error.into());
                noted(run.finish(Err(Failure::freed("the response could not be read"))).await);
                return Ok(refused(StatusCode::INTERNAL_SERVER_ERROR, &text));
            }
        };
        let worked = if parts.status.is_server_error() && !self.stores_server_errors {
            Err(Failure::freed(format!("status {}", parts.status.as_u16())))
        } else {
            Ok(stored(parts.status, &parts.headers, &body))
        };
        // It is sent whether it is stored or not: the work is done. But not before: a client that got a response and repeats
        // the request gets the same one.
        noted(run.finish(worked).await);
        Ok(Response::from_parts(parts, R::from(body)))
    }
}

/// Logs that a response is not stored, unless that is what was wanted.
fn noted(finished: Result<Outcome, RunError>) {
    match finished {
        Ok(_) | Err(RunError::Failed { .. }) => {}
        Err(error) => tracing::warn!(
            target: "polylatch", event = "response_not_stored", %error, "the response to a request with a key is not stored"
        ),
    }
}

fn stored(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    let kept = headers.iter().filter(|(name, _)| !NOT_STORED.contains(&name.as_str()));
    let latin = |value: &HeaderValue| value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    let headers: Vec<[String; 2]> = kept.map(|(name, value)| [name.to_string(), latin(value)]).collect();
    let response = serde_json::json!({
        "status": status.as_u16(),
        "headers": headers,
        "body": STANDARD.encode(body),
    });
    response.to_string().into_bytes()
}

#[derive(serde::Deserialize)]
struct Stored {
    status: u16,
    headers: Vec<[String; 2]>,
    body: String,
}

fn replayed<R: From<Bytes>>(stored: &[u8]) -> Response<R> {
    let parsed = serde_json::from_slice::<Stored>(stored).ok().and_then(|stored| {
        let status = StatusCode::from_u16(stored.status).ok()?;
        let mut response = Response::new(R::from(Bytes::from(STANDARD.decode(stored.body).ok()?)));
        *response.status_mut() = status;
        for [name, value] in stored.headers {
            let value: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
            let value = HeaderValue::from_bytes(&value?).ok()?;
            response.headers_mut().append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        }
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    });
    let text = "what is stored for this key is no response of this program; the key belongs to other work";
    parsed.unwrap_or_else(|| refused(StatusCode::CONFLICT, text))
}

fn refusal<R: From<Bytes>>(error: &RunError) -> Response<R> {
    let text = error.to_string();
    match error {
        RunError::InProgress { .. } | RunError::InTransaction { .. } => {
            again_later(refused(StatusCode::CONFLICT, &text))
        }
        RunError::PayloadMismatch { .. } => refused(StatusCode::UNPROCESSABLE_ENTITY, &text),
        RunError::Store(error) if error.kind() == ErrorKind::InvalidArgument => {
            refused(StatusCode::BAD_REQUEST, &text)
        }
        // An address of the store is none of the client's business.
        RunError::Store(error) => {
            tracing::warn!(target: "polylatch", event = "request_not_handled", %error, "a request with a key is not handled");
            let text = format!("requests with a key cannot be handled now: {}", error.code());
            again_later(refused(StatusCode::SERVICE_UNAVAILABLE, &text))
        }
        RunError::Failed { .. } | RunError::ResultTooLarge { .. } | RunError::NotRecorded { .. } => {
            refused(StatusCode::CONFLICT, &text)
        }
    }
}

fn again_later<R>(mut response: Response<R>) -> Response<R> {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Answers with problem details (RFC 9457).
fn refused<R: From<Bytes>>(status: StatusCode, detail: &str) -> Response<R> {
    let problem = serde_json::json!({ "type": "about:blank", "status": status.as_u16(), "detail": detail });
    let mut response = Response::new(R::from(Bytes::from(problem.to_string())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
