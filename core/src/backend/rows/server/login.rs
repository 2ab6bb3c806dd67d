//! The part of a URL that all database servers share: where, who, and whether encrypted.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::address::{TlsFiles, host_and_port};
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::params::Params;

/// Whether the connection is encrypted. With TLS the server's certificate is always verified, by its issuer and by
/// its name: there is no mode that encrypts for any server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    /// With TLS if the server offers it, else without.
    Prefer,
    Require,
}

/// Reads `guarantee=`: whether a server is refused that may forget a lease in a crash.
pub(crate) fn is_strict(params: &mut Params) -> Result<bool> {
    params.choice("guarantee", &[("best-effort", false), ("strict", true)], false)
}

/// Reads `mode=`: whether leases hang on a connection of their own.
pub(crate) fn in_session(params: &mut Params) -> Result<bool> {
    params.choice("mode", &[("lease", false), ("session", true)], false)
}

/// `//[user[:password]@]host[:port][/path]`, and the options beside it.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<Credential>,
    /// Percent-decoded, without the slash before and after it.
    pub database: String,
    pub ssl_mode: SslMode,
    pub files: TlsFiles,
}

impl Login {
    /// Reads it for the server called `name`. `modes` are the values that `sslmode` can have; the default is no TLS
    /// for this host, and TLS for any other.
    pub(crate) fn from_url(
        name: &str,
        default_port: u16,
        modes: &[(&'static str, SslMode)],
        scheme: &str,
        target: &str,
        params: &mut Params,
    ) -> Result<Self> {
        let mut user = params.text("user");
        let mut password = Credential::from_params(params, "password_env", "password_file")?;
        let rest = target
            .strip_prefix("//")
            .ok_or_else(|| invalid(format!("write {scheme}://HOST, with two slashes")))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let place = match authority.rsplit_once('@') {
            None => authority,
            Some((login, place)) => {
                let (name, secret) = login.split_once(':').unwrap_or((login, ""));
                if !name.is_empty() {
                    user = Some(decoded(name)?);
                }
                if !secret.is_empty() {
                    password = Some(Credential::given(decoded(secret)?));
                }
                place
            }
        };
        if place.contains(',') {
            return Err(invalid(format!(
                "a {name} URL has one host; name the primary, or an address that follows it"
            )));
        }
        let (host, port) = host_and_port(place, default_port).map_err(invalid)?;
        let database = decoded(path.strip_suffix('/').unwrap_or(path))?;
        if database.contains('/') {
            return Err(invalid(format!("the path of a {name} URL is one database; write /DATABASE")));
        }
        let ssl_mode = params.choice(
            "sslmode",
            modes,
            if is_loopback(&host) { SslMode::Disable } else { SslMode::Require },
        )?;
        let files = TlsFiles::from_params(
            params,
            ssl_mode != SslMode::Disable,
            "sslmode=verify-full, the default for hosts other than this one",
        )?;
        Ok(Self { host, port, user, password, database, ssl_mode, files })
    }
}

/// Whether a host is this one, so that no other host can listen in between.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| invalid("user, password or database of the URL is not UTF-8 after percent-decoding"))
}

pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}
