//! The port over hyper: HTTP/1.1 with connections that are used again.

use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::address::bracketed;
use crate::backend::Reply;
use crate::backend::consul::config::Address;
use crate::backend::consul::port::{Port, Request, Response};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::tls;
use crate::wakeups::unpoisoned;

/// How many unused connections are kept for later.
const IDLE_CONNECTIONS: usize = 16;

/// Largest answer: a hundred thousand locks with their records.
const LARGEST_ANSWER: usize = 64 << 20;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

type Sender = SendRequest<Full<Bytes>>;

struct Shared {
    address: Address,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
    closed: AtomicBool,
}

/// A port over the network. Its requests have to be awaited on the client's own runtime.
pub(crate) struct NativePort(Arc<Shared>);

impl NativePort {
    /// Reads what the configuration names (certificates). Connects later, when first needed.
    pub(crate) fn new(address: &Address) -> Result<Self> {
        let tls = match address {
            Address::Tls { host, files, .. } => Some(tls::connector(host, files)?),
            Address::Tcp { .. } | Address::Unix(_) => None,
        };
        Ok(Self(Arc::new(Shared {
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
            match tokio::time::timeout(limit, shared.send(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::new(
                    ErrorKind::BackendUnavailable,
                    format!("Consul at {} did not answer within {limit:?}", shared.place()),
                )
                .with_effect(Effect::Maybe)),
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

impl Shared {
    fn place(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }

    fn host_header(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => {
                format!("{}:{port}", bracketed(host))
            }
            Address::Unix(_) => "localhost".into(),
        }
    }

    async fn send(&self, request: Request) -> Result<Response> {
        let reads_only = request.method == "GET";
        let mut message = self.message(request)?;
        // A kept connection may have been closed by the agent meanwhile: go on to the next.
        loop {
            let kept = self.take_idle();
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            let again = (is_kept && reads_only).then(|| message.clone());
            match sender.try_send_request(message).await {
                Ok(response) => {
                    let status = response.status().as_u16();
                    let index = response
                        .headers()
                        .get("x-consul-index")
                        .and_then(|value| value.to_str().ok())
                        .and_then(|text| text.parse().ok());
                    let body = Limited::new(response.into_body(), LARGEST_ANSWER)
                        .collect()
                        .await
                        .map_err(|error| self.broke_off().with_source(error))?;
                    self.keep(sender);
                    return Ok(Response { status, index, body: body.to_bytes().into() });
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

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = unpoisoned(&self.idle);
        // The latest first: it is the least likely to have been closed.
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Sender) {
        let mut idle = unpoisoned(&self.idle);
        if idle.len() < IDLE_CONNECTIONS && !sender.is_closed() && !self.closed.load(Ordering::SeqCst) {
            idle.push(sender);
        }
    }

    fn broke_off(&self) -> Error {
        Error::new(
            ErrorKind::BackendUnavailable,
            format!(
                "Consul at {} broke the connection off; does it want TLS (consul+https://), or is it no Consul?",
                self.place()
            ),
        )
        .with_effect(Effect::Maybe)
    }

    async fn connect(&self) -> Result<Sender> {
        let stream = self.open().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broke_off().with_source(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to Consul ended");
            }
        });
        Ok(sender)
    }

    async fn open(&self) -> Result<Box<dyn Stream>> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Canceled, "this client was closed"));
        }
        let refused = |error: io::Error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!("cannot connect to Consul at {}; does an agent listen there?", self.place()),
            )
            .with_source(error)
        };
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
                // A lock is all small messages that somebody waits for.
                stream.set_nodelay(true).map_err(refused)?;
                let Some((connector, name)) = &self.tls else { return Ok(Box::new(stream)) };
                match connector.connect(name.clone(), stream).await {
                    Ok(stream) => Ok(Box::new(stream)),
                    Err(error) => Err(tls::refused(error, "Consul", &self.place(), "consul+https", "consul")),
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                Ok(Box::new(tokio::net::UnixStream::connect(path).await.map_err(refused)?))
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(Error::new(ErrorKind::Unsupported, "unix sockets need a unix-like system"))
            }
        }
    }
}
