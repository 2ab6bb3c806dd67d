//! The Redis part of a URL: where, who, how, and with which promise.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::address::{Secret, TlsFiles, bracketed, host_and_port};
use crate::backend::redis::port::{AckRule, Acknowledge};
use crate::backend::redis::records::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{MAX_LEASE, MIN_LEASE, Params, Settings};
use crate::registry::file_path;

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, files: TlsFiles },
    Unix(PathBuf),
}

/// What the user declares to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// For efficiency: doing work twice is a nuisance.
    BestEffort,
    /// For correctness: what cannot keep the promise is refused.
    Strict,
}

/// Everything that a URL says about a Redis store.
#[derive(Debug, Clone)]
pub(crate) struct RedisConfig {
    pub address: Address,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub database: u32,
    pub keys: Keys,
    pub guarantee: Guarantee,
    /// Longest lease that any client of this prefix uses; under `strict` also the quarantine.
    pub max_lease: Duration,
    pub acknowledge: Option<Acknowledge>,
    pub timeout: Duration,
}

impl RedisConfig {
    /// Reads `redis://[user:password@]host[:port][/database]`, `rediss://…` or `redis+unix:PATH`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        let mut user = params.text("user");
        let mut password = None;
        if let Some(variable) = params.text("password_env") {
            let value = std::env::var(&variable).map_err(|_| {
                invalid(format!("password_env names the variable {variable}, which is not set"))
            })?;
            password = Some(Secret(value));
        }
        let mut database = match params.text("db") {
            Some(text) => Some(
                text.parse::<u32>()
                    .map_err(|_| invalid(format!("the option db={text:?} must be a number from 0")))?,
            ),
            None => None,
        };
        let files = TlsFiles {
            ca: params.text("ca").map(PathBuf::from),
            certificate: params.text("cert").map(PathBuf::from),
            key: params.text("key").map(PathBuf::from),
        };
        let address = if scheme == "redis+unix" {
            Address::Unix(file_path(target)?)
        } else {
            let authority_and_path = target
                .strip_prefix("//")
                .ok_or_else(|| invalid(format!("write {scheme}://HOST, with two slashes")))?;
            let (authority, path) = authority_and_path.split_once('/').unwrap_or((authority_and_path, ""));
            if !path.is_empty() {
                let number = path.parse::<u32>().map_err(|_| {
                    invalid(format!("the path /{path} must be a database number, for example /0"))
                })?;
                if database.replace(number).is_some_and(|other| other != number) {
                    return Err(invalid(
                        "the database is given twice, as path and as db; give it once".into(),
                    ));
                }
            }
            let (login, place) = match authority.rsplit_once('@') {
                Some((login, place)) => (Some(login), place),
                None => (None, authority),
            };
            if let Some(login) = login {
                let (name, secret) = login.split_once(':').unwrap_or((login, ""));
                let decode = |text: &str| {
                    percent_decode_str(text).decode_utf8().map(|text| text.into_owned()).map_err(|_| {
                        invalid("user or password in the URL is not UTF-8 after percent-decoding".into())
                    })
                };
                if !name.is_empty() {
                    user = Some(decode(name)?);
                }
                if !secret.is_empty() {
                    password = Some(Secret(decode(secret)?));
                }
            }
            let (host, port) = host_and_port(place, 6379).map_err(invalid)?;
            if scheme == "rediss" {
                Address::Tls { host, port, files: files.clone() }
            } else {
                Address::Tcp { host, port }
            }
        };
        if user.is_some() && password.is_none() {
            return Err(invalid(
                "the user needs a password; write USER:PASSWORD@HOST or use password_env= (any text will do for a \
                 user that Redis knows as nopass)"
                    .into(),
            ));
        }
        if scheme != "rediss" && files != TlsFiles::default() {
            return Err(invalid(format!("ca, cert and key need TLS; write rediss:// instead of {scheme}:")));
        }
        if files.certificate.is_some() != files.key.is_some() {
            return Err(invalid("cert and key belong together; give both or neither".into()));
        }

        let prefix = params.text("prefix").unwrap_or_else(|| "polylatch".into());
        let keys = Keys::new(&prefix, params.text("lock_key").as_deref())?;
        let guarantee = params.choice(
            "guarantee",
            &[("best-effort", Guarantee::BestEffort), ("strict", Guarantee::Strict)],
            Guarantee::BestEffort,
        )?;
        let longest = if guarantee == Guarantee::Strict { Duration::from_secs(60) } else { MAX_LEASE };
        let max_lease = params.duration("max_lease", longest, MIN_LEASE, MAX_LEASE)?;
        if settings.lease > max_lease {
            return Err(invalid(format!(
                "the lease of {:?} is longer than max_lease, {max_lease:?}, which is how long the store stays \
                 closed after a restart under guarantee=strict; raise max_lease for all clients of this prefix, \
                 or shorten the lease",
                settings.lease
            )));
        }
        let within = params.duration(
            "ack_timeout",
            Duration::from_millis(500),
            Duration::from_millis(1),
            Duration::from_secs(10),
        )?;
        let acknowledge = match params.text("ack").as_deref() {
            None | Some("none") => None,
            Some("any") => Some(AckRule::Any),
            Some("majority") => Some(AckRule::Majority),
            Some("all") => Some(AckRule::All),
            Some(text) => match text.parse() {
                Ok(count @ 1..=100) => Some(AckRule::Count(count)),
                _ => {
                    return Err(invalid(format!(
                        "the option ack={text:?} must be one of none, any, majority, all, or a number from 1 to 100"
                    )));
                }
            },
        }
        .map(|rule| Acknowledge { rule, within });
        Ok(Self {
            address,
            user,
            password,
            database: database.unwrap_or(0),
            keys,
            guarantee,
            max_lease,
            acknowledge,
            timeout: settings.timeout,
        })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let login = match (&self.user, &self.password) {
            (Some(user), _) => format!("{user}@"),
            (None, _) => String::new(),
        };
        let database = if self.database == 0 { String::new() } else { format!("/{}", self.database) };
        match &self.address {
            Address::Tcp { host, port } => format!("redis://{login}{}:{port}{database}", bracketed(host)),
            Address::Tls { host, port, .. } => {
                format!("rediss://{login}{}:{port}{database}", bracketed(host))
            }
            Address::Unix(path) => format!("redis+unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<RedisConfig> {
        let (scheme, rest) = url.split_once(':').unwrap();
        let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
        let pairs =
            url::form_urlencoded::parse(query.as_bytes()).map(|(k, v)| (k.into_owned(), v.into_owned()));
        let mut params = Params::new(scheme, pairs)?;
        let settings = Settings::from_params(&mut params)?;
        let config = RedisConfig::from_url(scheme, target, &mut params, &settings)?;
        params.finish()?;
        Ok(config)
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("redis://bob:p%40ss@db.example:6380/2?prefix=shop").unwrap();
        assert_eq!(config.address, Address::Tcp { host: "db.example".into(), port: 6380 });
        assert_eq!(config.password, Some(Secret("p@ss".into())));
        assert_eq!((config.user.as_deref(), config.database), (Some("bob"), 2));
        assert_eq!(config.display(), "redis://bob@db.example:6380/2");
        assert!(!format!("{config:?}").contains("p@ss"));
        assert_eq!(read("redis://").unwrap().display(), "redis://localhost:6379");
        assert_eq!(read("redis://[::1]:7000").unwrap().display(), "redis://[::1]:7000");
        assert_eq!(read("redis+unix:/run/r.sock?db=3").unwrap().address, Address::Unix("/run/r.sock".into()));
        assert!(matches!(read("rediss://h?ca=/ca.pem").unwrap().address, Address::Tls { .. }));
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        for (url, part) in [
            ("redis://h:0", "must be a number from 1 to 65535"),
            ("redis://h:x", "must be a number from 1 to 65535"),
            ("redis://h/two", "must be a database number"),
            ("redis:h", "with two slashes"),
            ("redis://h?ca=/x", "need TLS"),
            ("rediss://h?cert=/x", "belong together"),
            ("redis://h?ack=some", "none, any, majority, all"),
            ("redis://h?guarantee=sure", "one of best-effort, strict"),
            ("redis://h?guarantee=strict&lease=5m", "longer than max_lease"),
            ("redis://h?prefixx=a", "knows no option \"prefixx\""),
            ("redis://h?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
            ("redis://h/1?db=2", "given twice"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.code(), "invalid_config", "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
