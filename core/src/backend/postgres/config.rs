//! The PostgreSQL part of a URL: where, who, how, and in which schema.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::address::{TlsFiles, bracketed, host_and_port};
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::params::Params;

use super::protocol::schema::Schema;

/// Whether the connection is encrypted. With TLS the server's certificate is always verified, by its issuer and by
/// its name: there is no mode that encrypts for any server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    /// With TLS if the server offers it, else without.
    Prefer,
    Require,
}

/// Everything that a URL says about a PostgreSQL store.
#[derive(Debug, Clone)]
pub(crate) struct PostgresConfig {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<Credential>,
    pub database: String,
    pub ssl_mode: SslMode,
    pub files: TlsFiles,
    pub schema: Schema,
    /// Grants are heard by LISTEN, on a connection of its own; otherwise waiters ask again.
    pub listens: bool,
}

impl PostgresConfig {
    /// Reads `postgres://[user[:password]@]host[:port][/database]`.
    pub(crate) fn from_url(scheme: &str, target: &str, params: &mut Params) -> Result<Self> {
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
            return Err(invalid(
                "a PostgreSQL URL has one host; name the primary, or an address that follows it",
            ));
        }
        let (host, port) = host_and_port(place, 5432).map_err(invalid)?;
        let database = decoded(path.strip_suffix('/').unwrap_or(path))?;
        if database.contains('/') {
            return Err(invalid("the path of a PostgreSQL URL is one database; write /DATABASE"));
        }
        let user = user.unwrap_or_else(|| "postgres".into());
        let database = if database.is_empty() { user.clone() } else { database };
        let ssl_mode = params.choice(
            "sslmode",
            &[
                ("disable", SslMode::Disable),
                ("prefer", SslMode::Prefer),
                ("require", SslMode::Require),
                ("verify-full", SslMode::Require),
            ],
            if is_loopback(&host) { SslMode::Disable } else { SslMode::Require },
        )?;
        let files = TlsFiles::from_params(
            params,
            ssl_mode != SslMode::Disable,
            "sslmode=verify-full, the default for hosts other than this one",
        )?;
        let schema =
            Schema::new(&params.text("schema").unwrap_or_else(|| "polylatch".into())).map_err(invalid)?;
        let listens = params.choice("listen", &[("yes", true), ("no", false)], true)?;
        Ok(Self { host, port, user, password, database, ssl_mode, files, schema, listens })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        format!("postgres://{}:{}/{}", bracketed(&self.host), self.port, self.database)
    }
}

/// Whether a host is this one, so that nobody can listen in between.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| invalid("user, password or database of the URL is not UTF-8 after percent-decoding"))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<PostgresConfig> {
        options::read(url, |scheme, target, params, _| PostgresConfig::from_url(scheme, target, params))
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("postgres://app:s3%40cret@db.example:5433/shop?schema=locks&listen=no").unwrap();
        assert_eq!(config.display(), "postgres://db.example:5433/shop");
        assert_eq!((config.user.as_str(), config.schema.name()), ("app", "locks"));
        assert_eq!(config.password, Some(Credential::given("s3@cret".into())));
        assert_eq!((config.ssl_mode, config.listens), (SslMode::Require, false));
        assert!(!format!("{config:?}").contains("cret"));
        assert_eq!(read("postgresql://").unwrap().display(), "postgres://localhost:5432/postgres");
    }

    #[test]
    fn other_hosts_are_verified_unless_the_url_says_otherwise() {
        let mode = |url| read(url).unwrap().ssl_mode;
        for url in ["postgres://localhost", "postgres://127.0.0.2", "postgres://[::1]"] {
            assert_eq!(mode(url), SslMode::Disable, "{url}");
        }
        assert_eq!(mode("postgres://db"), SslMode::Require);
        assert_eq!(mode("postgres://db?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://localhost?sslmode=prefer"), SslMode::Prefer);
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        for (url, part) in [
            ("postgres:h", "with two slashes"),
            ("postgres://h:0", "must be a number from 1 to 65535"),
            ("postgres://a,b", "one host"),
            ("postgres://h/a/b", "one database"),
            ("postgres://h?sslmode=allow", "one of disable, prefer, require, verify-full"),
            ("postgres://localhost?ca=/x", "need TLS"),
            ("postgres://h?cert=/x", "belong together"),
            ("postgres://h?schema=a-b", "underscores"),
            ("postgres://h?listen=maybe", "one of yes, no"),
            ("postgres://h?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
