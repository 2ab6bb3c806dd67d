//! HTTP requests to one server, for the stores that speak it.

#[cfg(not(target_family = "wasm"))]
pub(crate) mod native;
mod port;

use std::path::PathBuf;

use crate::address::{TlsFiles, bracketed};

pub(crate) use port::{Port, Request, Response};

/// What messages call the server.
#[derive(Debug)]
#[cfg_attr(target_family = "wasm", allow(dead_code, reason = "the host program connects"))]
pub(crate) struct Server {
    /// Such as `Consul`.
    pub name: &'static str,
    /// What listens, such as `an agent`.
    pub process: &'static str,
    /// The scheme of URLs without TLS and with TLS.
    pub plain_scheme: &'static str,
    pub tls_scheme: &'static str,
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
