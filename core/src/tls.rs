//! TLS towards a store: certificates from files, and what a failed handshake means.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore, crypto};

use crate::address::TlsFiles;
use crate::error::{Error, ErrorKind, Result};

/// Reads certificates and keys for connections to `host`.
///
/// Errors: `invalid_config` that names the file.
pub(crate) fn connector(host: &str, files: &TlsFiles) -> Result<(TlsConnector, ServerName<'static>)> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::new(
            ErrorKind::InvalidConfig,
            format!("the host {host:?} is no name that a certificate can have"),
        )
    })?;
    Ok((TlsConnector::from(Arc::new(tls_config(files)?)), name))
}

/// What a failed handshake with `store` at `place` means. `scheme` is the one with TLS, `plain` the
/// one without.
pub(crate) fn refused(error: io::Error, store: &str, place: &str, scheme: &str, plain: &str) -> Error {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    let (kind, way_out) = match cause {
        Some(TlsError::InvalidCertificate(_)) => (
            ErrorKind::BackendRejected,
            "its certificate is not trusted; give the right CA file with ca=, and the name that the certificate has as host".to_owned(),
        ),
        Some(TlsError::AlertReceived(_)) => (
            ErrorKind::BackendRejected,
            "it refused this client's TLS; it may want a client certificate (cert= and key=)".to_owned(),
        ),
        Some(TlsError::InvalidMessage(_)) => (
            ErrorKind::BackendRejected,
            format!("it does not answer in TLS; if this is its plaintext port, write {plain}:// instead of {scheme}://, or use its TLS port"),
        ),
        _ => (
            ErrorKind::BackendUnavailable,
            "the connection ended during the TLS handshake; is this its TLS port?".to_owned(),
        ),
    };
    Error::new(kind, format!("no TLS with {store} at {place}: {way_out}")).with_source(error)
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
