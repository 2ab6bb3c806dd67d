//! A member of the servers, and connections to it: plain or with TLS.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::Result;
use crate::tls::{self, Tls};

use super::super::config::{ZooKeeperConfig, shown};
use super::errors;

/// One connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

pub(crate) type Stream = Box<dyn Duplex>;

pub(crate) struct Member {
    host: String,
    port: u16,
    /// Both, for display.
    pub place: String,
    tls: Option<Tls>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

impl Member {
    /// All members that a URL names.
    ///
    /// Errors: `invalid_config` that names the file of a certificate.
    pub(crate) fn all(config: &ZooKeeperConfig) -> Result<Vec<Self>> {
        let member = |member: &(String, u16)| {
            let tls = config.tls.as_ref().map(|files| Tls::new(&member.0, files)).transpose()?;
            Ok(Self { host: member.0.clone(), port: member.1, place: shown(member), tls })
        };
        config.members.iter().map(member).collect()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) async fn connect(&self) -> Result<Stream> {
        let failed = |error: io::Error| errors::cannot_connect(&self.place, error);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let (connector, name) = tls.now();
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(tls::refused(error, "ZooKeeper", &self.place, "zookeepers", "zookeeper")),
        }
    }
}
