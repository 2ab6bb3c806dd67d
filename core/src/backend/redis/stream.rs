//! Opens a byte stream to a server: TCP, TLS or a unix socket.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::backend::redis::config::{Address, TlsFiles};
use crate::backend::redis::socket::{Socket, waitable};
use crate::error::{Error, ErrorKind, Result};

/// A byte stream in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open stream, with the socket below it where a thread can wait for an answer.
pub(crate) struct Opened {
    pub stream: Box<dyn Stream>,
    pub socket: Option<Arc<Socket>>,
}

/// What is read once, before the first connection.
pub(crate) struct Opener {
    address: Address,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Opener {
    /// Reads certificates and keys.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(address: Address) -> Result<Self> {
        let tls = match &address {
            Address::Tls { host, files, .. } => {
                let name = ServerName::try_from(host.clone()).map_err(|_| {
                    Error::new(
                        ErrorKind::InvalidConfig,
                        format!("the host {host:?} is no name that a certificate can have"),
                    )
                })?;
                Some((TlsConnector::from(Arc::new(tls_config(files)?)), name))
            }
            Address::Tcp { .. } | Address::Unix(_) => None,
        };
        Ok(Self { address, tls })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Says where it leads, without secrets.
    pub(crate) fn place(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }

    /// Connects. Needs the I/O of a running tokio runtime.
    pub(crate) async fn open(&self) -> Result<Opened> {
        let refused = |error: io::Error| {
            Error::new(
                ErrorKind::BackendUnavailable,
                format!(
                    "cannot connect to Redis at {}; is it running, and is this its address?",
                    self.place()
                ),
            )
            .with_source(error)
        };
        match &self.address {
            Address::Tcp { host, port } | Address::Tls { host, port, .. } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(refused)?;
                // A lock is all small messages that somebody waits for.
                stream.set_nodelay(true).map_err(refused)?;
                let (stream, socket) = waitable(stream);
                let Some((connector, name)) = &self.tls else {
                    return Ok(Opened { stream: Box::new(stream), socket });
                };
                match connector.connect(name.clone(), stream).await {
                    Ok(stream) => Ok(Opened { stream: Box::new(stream), socket }),
                    Err(error) => Err(self.tls_refused(error)),
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await.map_err(refused)?;
                let (stream, socket) = waitable(stream);
                Ok(Opened { stream: Box::new(stream), socket })
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(Error::new(ErrorKind::Unsupported, "unix sockets need a unix-like system"))
            }
        }
    }

    fn tls_refused(&self, error: io::Error) -> Error {
        use tokio_rustls::rustls::Error as TlsError;
        let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        let (kind, way_out) = match cause {
            Some(TlsError::InvalidCertificate(_)) => (
                ErrorKind::BackendRejected,
                "its certificate is not trusted; give the right CA file with ca=, and the name that the certificate has as host",
            ),
            Some(TlsError::AlertReceived(_)) => (
                ErrorKind::BackendRejected,
                "it refused this client's TLS; it may want a client certificate (cert= and key=)",
            ),
            Some(TlsError::InvalidMessage(_)) => (
                ErrorKind::BackendRejected,
                "it does not answer in TLS; if this is its plaintext port, write redis:// instead of rediss://, or use its TLS port",
            ),
            _ => (
                ErrorKind::BackendUnavailable,
                "the connection ended during the TLS handshake; is this its TLS port?",
            ),
        };
        Error::new(kind, format!("no TLS with Redis at {}: {way_out}", self.place())).with_source(error)
    }
}

fn tls_config(files: &TlsFiles) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(path) => {
            for certificate in certificates("ca", path)? {
                roots
                    .add(certificate)
                    .map_err(|error| bad_file("ca", path, "no CA certificate").with_source(error))?;
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(system.certs);
            if added == 0 {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    "this system has no CA certificates; give a file with ca=",
                ));
            }
        }
    }
    // The provider is named, not taken from the process: another library may have installed one.
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, "TLS could not be set up").with_source(error))?
        .with_root_certificates(roots);
    match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates("cert", certificate)?;
            let text = read("key", key)?;
            let secret = PrivateKeyDer::from_pem_slice(&text)
                .map_err(|_| bad_file("key", key, "no private key in PEM form"))?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| bad_file("key", key, "no key that fits the certificate").with_source(error))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(option, path)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad_file(option, path, "no certificate in PEM form")),
    }
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        Error::new(
            ErrorKind::InvalidConfig,
            format!("the file of {option}={} cannot be read", path.display()),
        )
        .with_source(error)
    })
}

fn bad_file(option: &str, path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("the file of {option}={} has {what}", path.display()))
}
