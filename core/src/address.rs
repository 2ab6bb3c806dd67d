//! Where a store is, and with which secret: parts of URLs that several stores share.
#![cfg_attr(
    not(any(
        feature = "redis",
        feature = "http",
        feature = "postgres",
        feature = "mysql",
        feature = "zookeeper"
    )),
    allow(dead_code, reason = "a file needs a path, and no host or secret")
)]

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result};
use crate::params::Params;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// PEM files for TLS; without a CA file, the system's certificates count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TlsFiles {
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads the options `ca`, `cert` and `key`, which only a URL of the scheme `with_tls` can have.
    pub(crate) fn from_params(params: &mut Params, is_tls: bool, with_tls: &str) -> Result<Self> {
        let mut path = |option| params.text(option).map(PathBuf::from);
        let files = Self { ca: path("ca"), certificate: path("cert"), key: path("key") };
        if !is_tls && [&files.ca, &files.certificate, &files.key].into_iter().any(Option::is_some) {
            let message = format!("ca, cert and key need TLS; write {with_tls}");
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        if files.certificate.is_some() != files.key.is_some() {
            let message = "cert and key belong together; give both or neither";
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        Ok(files)
    }
}

/// The path in `sqlite:PATH`, `sqlite:///PATH` or `redis+unix:///PATH`, percent-decoded.
pub(crate) fn file_path(target: &str) -> Result<PathBuf> {
    let path = target.strip_prefix("//").unwrap_or(target);
    let path = percent_decode_str(path).decode_utf8().map_err(|_| {
        Error::new(ErrorKind::InvalidConfig, "the path in the URL is not UTF-8 after percent-decoding")
    })?;
    if path.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            "the URL has no path; write for example sqlite:/var/lib/myapp/locks.db",
        ));
    }
    Ok(PathBuf::from(path.into_owned()))
}

/// A host as it is in a URL.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

const MAYBE_A_PASSWORD: &str = "if that is part of a password, percent-encode it, or use password_env=";

/// Takes `host[:port]` or `[address][:port]` apart. Errors: a sentence with the rule, which repeats
/// nothing: a password that is not percent-encoded can get here.
pub(crate) fn host_and_port(place: &str, default_port: u16) -> std::result::Result<(String, u16), String> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or("an IPv6 address in the URL needs a closing bracket")?;
        match after {
            "" => (host, None),
            _ => (host, Some(after.strip_prefix(':').ok_or("after an IPv6 address only :PORT may stand")?)),
        }
    } else {
        match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        }
    };
    let host = if host.is_empty() { "localhost" } else { host };
    let port = match port {
        None => default_port,
        Some(text) => match text.parse::<u16>() {
            Ok(port @ 1..) => port,
            _ => {
                return Err(format!(
                    "the port in the URL must be a number from 1 to 65535; {MAYBE_A_PASSWORD}"
                ));
            }
        },
    };
    if host.chars().any(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._:%".contains(c)) {
        return Err(format!("the host in the URL has a character that no host has; {MAYBE_A_PASSWORD}"));
    }
    Ok((host.to_owned(), port))
}
