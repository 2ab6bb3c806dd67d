//! Opens a byte stream to a server: TCP, TLS or a unix socket.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::backend::redis::config::Address;
use crate::caller_driven::socket::{Heard, Socket, notice_loss, waitable};
use crate::error::{Error, ErrorKind, Result};
use crate::tls::{self, Tls};

/// A byte stream in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open stream, with the socket below it where a thread can wait for an answer.
pub(crate) struct Opened {
    pub stream: Box<dyn Stream>,
    pub socket: Option<Arc<Socket>>,
    /// Counts what comes in.
    pub heard: Arc<Heard>,
}

/// The way to one address.
pub(crate) struct Opener {
    /// What listens there, for people.
    what: &'static str,
    address: Address,
    tls: Option<Tls>,
}

impl Opener {
    /// Reads certificates and keys.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(what: &'static str, address: Address) -> Result<Self> {
        let tls = match &address {
            Address::Tls { host, files, .. } => Some(Tls::new(host, files)?),
            Address::Tcp { .. } | Address::Unix(_) => None,
        };
        Ok(Self { what, address, tls })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Says where it leads, without secrets.
    pub(crate) fn place(&self) -> String {
        self.address.to_string()
    }

    /// Connects. Needs the I/O of a running tokio runtime.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let refused = |error: io::Error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "cannot connect to {} at {}; is it running, and is this its address?",
                    self.what,
                    self.place()
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
                let heard = stream.heard();
                let Some(tls) = &self.tls else {
                    return Ok(Opened { stream: Box::new(stream), socket, heard });
                };
                let (connector, name) = tls.now();
                match connector.connect(name, stream).await {
                    Ok(stream) => Ok(Opened { stream: Box::new(stream), socket, heard }),
                    Err(error) => Err(tls::refused(error, self.what, &self.place(), "rediss", "redis")),
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(refused)?;
                let (stream, socket) = waitable(stream);
                let heard = stream.heard();
                Ok(Opened { stream: Box::new(stream), socket, heard })
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(Error::new(ErrorKind::Unsupported, "unix sockets need a unix-like system"))
            }
        }
    }
}
