//! HTTP requests to one server, for the stores that speak it.

mod hosted;
#[cfg(not(target_family = "wasm"))]
mod native;
mod port;

use std::path::PathBuf;
use std::sync::Arc;

use crate::address::{TlsFiles, bracketed};
use crate::error::Result;
#[cfg(target_family = "wasm")]
use crate::error::{Error, ErrorKind};
use crate::host::HttpClient;

pub(crate) use port::{Port, Request, Response};

/// What messages call the server.
#[derive(Debug)]
pub(crate) struct Server {
    /// Such as `Consul`.
    pub name: &'static str,
    /// What listens, such as `an agent`.
    pub process: &'static str,
    /// The scheme of URLs without TLS and with TLS.
    pub plain_scheme: &'static str,
    pub tls_scheme: &'static str,
    /// The server's setting that lets pages of other origins ask it.
    pub lets_pages_ask: &'static str,
}

/// Connections of our own, or host-provided ones.
///
/// Errors: `invalid_config` for certificates that cannot be read, for what a host's client cannot do, and where there is neither.
pub(crate) fn port_to(
    server: &'static Server,
    address: &Address,
    hosted: Option<&Arc<dyn HttpClient>>,
) -> Result<Box<dyn Port>> {
    match hosted {
        Some(client) => Ok(Box::new(hosted::HostedPort::new(server, Arc::clone(client), address)?)),
        #[cfg(not(target_family = "wasm"))]
        None => Ok(Box::new(native::NativePort::new(server, address)?)),
        #[cfg(target_family = "wasm")]
        None => Err(Error::new(ErrorKind::InvalidConfig, "there is no `fetch` here; give one as `fetch`")),
    }
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, files: TlsFiles },
    Unix(PathBuf),
}

impl Address {
    /// Says where it leads: host and port as in a URL, or the socket's path.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => format!("{}:{port}", bracketed(host)),
            Self::Unix(path) => path.display().to_string(),
        }
    }
}
