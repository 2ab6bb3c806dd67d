//! The HTTP side: three paths, read only.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{Known, text, unpoisoned};
use host::poll::ViewerClock;

/// Connections at once; more wait for their turn.
const MOST_CONNECTIONS: usize = 64;

/// How long a client may take to send its request.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// How long one connection may last; scrapers open another one.
const CONNECTION_WITHIN: Duration = Duration::from_secs(300);

/// After a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers until it is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    known: Arc<Mutex<Known>>,
    clock: ViewerClock,
    per_lock: Option<String>,
) -> Infallible {
    let per_lock: Option<Arc<str>> = per_lock.map(Into::into);
    let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        // It is never closed, so the turn always comes.
        let turn = Arc::clone(&connections).acquire_owned().await.ok();
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (known, per_lock) = (Arc::clone(&known), per_lock.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = respond(&request, &known, clock, per_lock.as_deref());
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
            let connection = http.serve_connection(TokioIo::new(stream), answer);
            // What a client does wrong concerns only itself.
            let _ = tokio::time::timeout(CONNECTION_WITHIN, connection).await;
            drop(turn);
        });
    }
}

fn respond(
    request: &Request<Incoming>,
    known: &Mutex<Known>,
    clock: ViewerClock,
    per_lock: Option<&str>,
) -> Response<Full<Bytes>> {
    let read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, body) = match request.uri().path() {
        _ if !read => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        "/metrics" => (StatusCode::OK, text::write(&mut unpoisoned(known), clock.now_ms(), per_lock)),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/" => (StatusCode::OK, "polylatch exporter: /metrics, /healthz\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    if !read {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
