//! The port over hyper: HTTP/1.1 with connections that are used again.
//!
//! A connection belongs to one request at a time, and the caller that waits for the answer does its I/O
//! ([`crate::caller_driven`]).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::backend::Reply;
use crate::backend::http::{Address, Port, Request, Response, Server};
use crate::caller_driven::ExclusiveIo;
use crate::caller_driven::socket::{Socket, notice_loss, waitable};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::tls::{self, Tls};
use crate::wakeups::unpoisoned;

/// How many unused connections are kept for later.
const IDLE_CONNECTIONS: usize = 16;

/// Largest answer: a hundred thousand locks with their records.
const LARGEST_ANSWER: usize = 64 << 20;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection that is not in use.
struct Wire {
    sender: SendRequest<Full<Bytes>>,
    io: ExclusiveIo,
}

struct Shared {
    server: &'static Server,
    address: Address,
    tls: Option<Tls>,
    idle: Mutex<Vec<Wire>>,
    closed: AtomicBool,
}

/// A port over the network. Its requests have to be polled in the context of the client's own runtime.
pub(crate) struct NativePort(Arc<Shared>);

impl NativePort {
    /// Reads what the configuration names (certificates). Connects later, when first needed.
    pub(crate) fn new(server: &'static Server, address: &Address) -> Result<Self> {
        let tls = match address {
            Address::Tls { host, files, .. } => Some(Tls::new(host, files)?),
            Address::Tcp { .. } | Address::Unix(_) => None,
        };
        Ok(Self(Arc::new(Shared {
            server,
            address: address.clone(),
            tls,
            idle: Mutex::default(),
            closed: AtomicBool::new(false),
        })))
    }
}

impl Port for NativePort {
    fn request(&self, request: Request) -> Reply<Response> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let limit = request.limit;
            // Without the budget for cooperation of the task that happens to wait: with one that is used
            // up, a connection would only wake itself.
            let sent = tokio::task::unconstrained(shared.send(request));
            match tokio::time::timeout(limit, sent).await {
                Ok(answer) => answer,
                Err(_) => {
                    // The request's own connection has ended with it. Those of the same age may be as dead, and each
                    // would cost another time limit.
                    unpoisoned(&shared.idle).clear();
                    Err(Error::new(
                        ErrorKind::BackendUnavailable,
                        format!(
                            "{} at {} did not answer within {limit:?}",
                            shared.server.name,
                            shared.place()
                        ),
                    )
                    .with_effect(Effect::Maybe))
                }
            }
        })
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        unpoisoned(&self.0.idle).clear();
    }
}

/// The body until it ends, or until there is enough of it; and whether it has ended.
async fn body_of(
    body: Incoming,
    enough: Option<fn(&[u8]) -> bool>,
) -> std::result::Result<(Vec<u8>, bool), Box<dyn std::error::Error + Send + Sync>> {
    let mut body = Limited::new(body, LARGEST_ANSWER);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if enough.is_some_and(|enough| enough(&bytes)) {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

impl Shared {
    fn place(&self) -> String {
        self.address.place()
    }

    fn host_header(&self) -> String {
        match &self.address {
            Address::Tcp { .. } | Address::Tls { .. } => self.place(),
            Address::Unix(_) => "localhost".into(),
        }
    }

    async fn send(&self, request: Request) -> Result<Response> {
        let (reads_only, enough) = (request.method == "GET", request.enough);
        let mut message = self.message(request)?;
        // A kept connection may have been closed by the agent meanwhile: go on to the next.
        loop {
            let kept = self.take_idle();
            let is_kept = kept.is_some();
            let Wire { mut sender, mut io } = match kept {
                Some(wire) => wire,
                None => self.connect().await?,
            };
            let again = (is_kept && reads_only).then(|| message.clone());
            let answer = io.during(async {
                let response = sender.try_send_request(message).await?;
                let status = response.status().as_u16();
                let index = response
                    .headers()
                    .get("x-consul-index")
                    .and_then(|value| value.to_str().ok())
                    .and_then(|text| text.parse().ok());
                Ok::<_, TrySendError<_>>((status, index, body_of(response.into_body(), enough).await))
            });
            match answer.await {
                Ok((status, index, body)) => {
                    let (body, is_whole) = body.map_err(|error| self.broke_off().with_source(error))?;
                    // The rest of an answer that was enough would be read as the next answer.
                    if is_whole {
                        self.keep(Wire { sender, io });
                    }
                    return Ok(Response { status, index, body });
                }
                Err(mut failed) => match (failed.take_message(), again) {
                    // It has not left.
                    (Some(unsent), _) if is_kept => message = unsent,
                    (None, Some(copy)) => message = copy,
                    (unsent, _) => {
                        let error = self.broke_off().with_source(failed.into_error());
                        return Err(match unsent {
                            Some(_) => error.with_effect(Effect::None),
                            None => error,
                        });
                    }
                },
            }
        }
    }

    fn message(&self, request: Request) -> Result<hyper::Request<Full<Bytes>>> {
        let mut message = hyper::Request::builder()
            .method(request.method)
            .uri(request.target)
            .header(HOST, self.host_header());
        if !request.body.is_empty() {
            message = message.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in &request.headers {
            message = message.header(*name, value.0.as_str());
        }
        message.body(Full::new(Bytes::from(request.body))).map_err(|_| {
            Error::new(
                ErrorKind::InvalidConfig,
                "the token has characters that an HTTP header cannot carry, such as a line break",
            )
        })
    }

    fn take_idle(&self) -> Option<Wire> {
        loop {
            // The latest first: it is the least likely to have been closed.
            let mut wire = unpoisoned(&self.idle).pop()?;
            // Nobody has read from it since: now it sees whether the agent has closed it.
            let mut context = Context::from_waker(Waker::noop());
            wire.io.read_and_write(&mut context);
            if let Poll::Ready(Ok(())) = wire.sender.poll_ready(&mut context) {
                return Some(wire);
            }
        }
    }

    fn keep(&self, wire: Wire) {
        let mut idle = unpoisoned(&self.idle);
        if idle.len() < IDLE_CONNECTIONS && !wire.sender.is_closed() && !self.closed.load(Ordering::SeqCst) {
            idle.push(wire);
        }
    }

    fn broke_off(&self) -> Error {
        Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "{name} at {} broke the connection off; does it want TLS ({}://), or is it no {name}?",
                self.place(),
                self.server.tls_scheme,
                name = self.server.name
            ),
        )
        .with_effect(Effect::Maybe)
    }

    async fn connect(&self) -> Result<Wire> {
        let (stream, socket) = self.open().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broke_off().with_source(error))?;
        let name = self.server.name;
        let connection = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to {name} ended");
            }
        };
        Ok(Wire { sender, io: ExclusiveIo::new(connection, socket) })
    }

    async fn open(&self) -> Result<(Box<dyn Stream>, Option<Arc<Socket>>)> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Canceled, "this client was closed"));
        }
        let refused = |error: io::Error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "cannot connect to {} at {}; does {} listen there?",
                    self.server.name,
                    self.place(),
                    self.server.process
                ),
            )
            .with_source(error)
        };
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
                // Locks are small messages with a caller waiting for each.
                stream.set_nodelay(true).map_err(refused)?;
                notice_loss(&stream);
                let (stream, socket) = waitable(stream);
                let Some(tls) = &self.tls else { return Ok((Box::new(stream), socket)) };
                let (connector, name) = tls.now();
                match connector.connect(name, stream).await {
                    Ok(stream) => Ok((Box::new(stream), socket)),
                    Err(error) => {
                        let Server { name, tls_scheme, plain_scheme, .. } = self.server;
                        Err(tls::refused(error, name, &self.place(), tls_scheme, plain_scheme))
                    }
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let (stream, socket) =
                    waitable(tokio::net::UnixStream::connect(path).await.map_err(refused)?);
                Ok((Box::new(stream), socket))
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(Error::new(ErrorKind::Unsupported, "unix sockets need a unix-like system"))
            }
        }
    }
}
