//! TLS towards a store: certificates from files, and what a failed handshake means.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore, crypto};

use crate::address::TlsFiles;
use crate::error::{Error, ErrorKind, Result};
use crate::wakeups::unpoisoned;

/// TLS towards one host. Its files are read again for each connection, so that certificates can be
/// renewed while the program runs.
pub(crate) struct Tls {
    name: ServerName<'static>,
    files: TlsFiles,
    /// Made of files with this content.
    present: Mutex<(Option<u64>, TlsConnector)>,
}

impl Tls {
    /// Reads certificates and keys for connections to `host`.
    ///
    /// Errors: `invalid_config` that names the file.
    pub(crate) fn new(host: &str, files: &TlsFiles) -> Result<Self> {
        let (connector, name) = connector(host, files)?;
        Ok(Self { name, files: files.clone(), present: Mutex::new((fingerprint(files), connector)) })
    }

    /// For a connection that is opened now. Files that cannot be used, perhaps because they are just being
    /// written, leave what was read before.
    pub(crate) fn now(&self) -> (TlsConnector, ServerName<'static>) {
        let mut present = unpoisoned(&self.present);
        if let Some(fresh) = fingerprint(&self.files).filter(|fresh| present.0 != Some(*fresh))
            && let Ok(config) = tls_config(&self.files)
        {
            *present = (Some(fresh), TlsConnector::from(Arc::new(config)));
        }
        (present.1.clone(), self.name.clone())
    }
}

/// Tells the contents of the files apart; `None` if there are none, or one cannot be read.
fn fingerprint(files: &TlsFiles) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut any = false;
    for path in [&files.ca, &files.certificate, &files.key].into_iter().flatten() {
        fs::read(path).ok()?.hash(&mut hasher);
        any = true;
    }
    any.then(|| hasher.finish())
}

/// Reads certificates and keys for connections to `host`.
fn connector(host: &str, files: &TlsFiles) -> Result<(TlsConnector, ServerName<'static>)> {
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

#[cfg(test)]
mod tests {
    use polylatch_test_services::tls::{Flaw, TestCa, TlsFiles as Written};

    use super::*;

    #[test]
    fn renewed_certificates_count_from_the_next_connection() {
        let dir = tempfile::tempdir().unwrap();
        let write = || Written::write(dir.path(), &TestCa::new(), Flaw::None).unwrap();
        let written = write();
        let files = TlsFiles {
            ca: Some(written.ca.clone()),
            certificate: Some(written.client_cert.clone()),
            key: Some(written.client_key.clone()),
        };
        let tls = Tls::new("localhost", &files).unwrap();
        let config = || Arc::clone(tls.now().0.config());
        let first = config();
        assert!(Arc::ptr_eq(&first, &config()), "what has not changed is not read into a new one");
        std::fs::write(&written.client_cert, "half of a certif").unwrap();
        assert!(Arc::ptr_eq(&first, &config()), "a file that is just being written changes nothing");
        write();
        let second = config();
        assert!(!Arc::ptr_eq(&first, &second));
        std::fs::remove_file(&written.ca).unwrap();
        assert!(Arc::ptr_eq(&second, &config()));
    }
}
