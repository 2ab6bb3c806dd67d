//! A throw-away certificate authority, and certificates that are right or wrong on purpose.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate authority that exists for one test.
#[derive(Debug)]
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct CertKey {
    pub cert_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for CertKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertKey").finish_non_exhaustive()
    }
}

/// What is right or wrong about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing: valid now, for 127.0.0.1 and localhost.
    None,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// Issued for `elsewhere.invalid` only.
    WrongName,
    /// Issued for `localhost` only, not for the address 127.0.0.1.
    NameOnly,
    /// Signed by itself, not by the authority.
    SelfSigned,
}

#[derive(Clone, Copy)]
enum Side {
    Server,
    Client,
}

impl TestCa {
    /// Makes a new authority: another key, so nothing issued by one is trusted through another.
    pub fn new() -> TestCa {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Polylatch throw-away test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, new_key()).expect("fixed parameters are valid");
        TestCa { issuer }
    }

    /// The authority's own certificate: what a client has to trust.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for a server on the loopback address.
    pub fn server(&self, flaw: Flaw) -> CertKey {
        self.issue(Side::Server, flaw)
    }

    /// Issues a certificate for a client.
    pub fn client(&self, flaw: Flaw) -> CertKey {
        self.issue(Side::Client, flaw)
    }

    fn issue(&self, side: Side, flaw: Flaw) -> CertKey {
        let names: &[&str] = match (side, flaw) {
            (Side::Client, _) => &["client.invalid"],
            (Side::Server, Flaw::WrongName) => &["elsewhere.invalid"],
            (Side::Server, Flaw::NameOnly) => &["localhost"],
            (Side::Server, _) => &["localhost", "127.0.0.1"],
        };
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let mut params = CertificateParams::new(names).expect("fixed names are valid");
        params.distinguished_name.push(DnType::CommonName, "Polylatch test");
        params.use_authority_key_identifier_extension = flaw != Flaw::SelfSigned;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match side {
            Side::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Side::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        match flaw {
            Flaw::Expired => {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
            }
            Flaw::NotYetValid => {
                params.not_before = date_time_ymd(3001, 1, 1);
                params.not_after = date_time_ymd(3002, 1, 1);
            }
            _ => {}
        }
        let key = new_key();
        let certificate = match flaw {
            Flaw::SelfSigned => params.self_signed(&key),
            _ => params.signed_by(&key, &self.issuer),
        }
        .expect("fixed parameters are valid");
        CertKey { cert_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }
}

impl Default for TestCa {
    fn default() -> Self {
        TestCa::new()
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}

/// Where the files lie that a client of a TLS server, or a test that is to be refused, needs.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The authority that issued the server's certificate.
    pub ca: PathBuf,
    /// The server's certificate and key.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// A client certificate the server accepts.
    pub client_cert: PathBuf,
    pub client_key: PathBuf,
    /// From the right authority, but expired.
    pub expired_client_cert: PathBuf,
    pub expired_client_key: PathBuf,
    /// An authority that has nothing to do with the server.
    pub wrong_ca: PathBuf,
    /// A client certificate from that other authority.
    pub foreign_client_cert: PathBuf,
    pub foreign_client_key: PathBuf,
}

impl TlsFiles {
    /// Issues everything anew and writes it into the existing folder `dir`.
    pub fn write(dir: &Path, ca: &TestCa, server: Flaw) -> io::Result<TlsFiles> {
        let foreign = TestCa::new();
        let pair = |name: &str, issued: CertKey| -> io::Result<(PathBuf, PathBuf)> {
            Ok((
                write(dir, &format!("{name}.crt"), &issued.cert_pem)?,
                write(dir, &format!("{name}.key"), &issued.key_pem)?,
            ))
        };
        let (cert, key) = pair("server", ca.server(server))?;
        let (client_cert, client_key) = pair("client", ca.client(Flaw::None))?;
        let (expired_client_cert, expired_client_key) = pair("client-expired", ca.client(Flaw::Expired))?;
        let (foreign_client_cert, foreign_client_key) = pair("client-foreign", foreign.client(Flaw::None))?;
        Ok(TlsFiles {
            ca: write(dir, "ca.crt", &ca.pem())?,
            cert,
            key,
            client_cert,
            client_key,
            expired_client_cert,
            expired_client_key,
            wrong_ca: write(dir, "ca-wrong.crt", &foreign.pem())?,
            foreign_client_cert,
            foreign_client_key,
        })
    }
}

fn write(dir: &Path, name: &str, pem: &str) -> io::Result<PathBuf> {
    let path = dir.join(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    io::Write::write_all(&mut options.open(&path)?, pem.as_bytes())?;
    Ok(path)
}
