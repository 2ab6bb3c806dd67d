//! The Redis part of a URL: where, who, how, and with which promise.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::address::file_path;
use crate::address::{TlsFiles, bracketed, host_and_port};
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::keys::Keys;
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::options::Settings;
use crate::params::Params;

/// What a service's name cannot keep as it is in the path of a URL.
const IN_A_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'?').add(b'#').add(b'%').add(b'@');

/// What a user's name cannot keep as it is before the host of a URL.
const IN_A_LOGIN: &AsciiSet = &IN_A_PATH.add(b':').add(b',');

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, files: TlsFiles },
    Unix(PathBuf),
}

impl Address {
    /// The name of the host; that of this one for a socket.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } | Self::Tls { host, .. } => host,
            Self::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => {
                write!(f, "{}:{port}", bracketed(host))
            }
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The master of a service, whichever server that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    /// As the Sentinels call it.
    pub name: String,
    /// Host and port of each Sentinel.
    pub sentinels: Vec<(String, u16)>,
    /// Sentinels and servers speak TLS.
    pub tls: Option<TlsFiles>,
    /// Who asks the Sentinels; the servers have users of their own.
    pub user: Option<String>,
    pub password: Option<Credential>,
}

/// How the server is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    At(Address),
    MasterOf(Service),
}

/// Everything that a URL says about a Redis store.
#[derive(Debug, Clone)]
pub(crate) struct RedisConfig {
    pub place: Place,
    pub user: Option<String>,
    pub password: Option<Credential>,
    pub database: u32,
    pub keys: Keys,
    pub guarantee: Guarantee,
    /// Longest lease that any client of this prefix uses; under `strict` also the quarantine.
    pub max_lease: Duration,
    pub acknowledge: Option<Acknowledge>,
    pub timeout: Duration,
}

impl RedisConfig {
    /// Reads `redis://[user:password@]host[:port][/database]`, `rediss://…`, `redis+unix:PATH`, or
    /// `redis+sentinel://[user:password@]host[:port],…/service[/database]`, `rediss+sentinel://…`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        let mut login = Login {
            user: params.text("user"),
            password: Credential::from_params(params, "password_env", "password_file")?,
        };
        let mut database = match params.text("db") {
            Some(text) => Some(
                text.parse::<u32>()
                    .map_err(|_| invalid(format!("the option db={text:?} must be a number from 0")))?,
            ),
            None => None,
        };
        let with_tls = if scheme.ends_with("+sentinel") { "rediss+sentinel://" } else { "rediss://" };
        let files = TlsFiles::from_params(params, scheme.starts_with("rediss"), with_tls)?;
        let place = if scheme == "redis+unix" {
            Place::At(Address::Unix(file_path(target)?))
        } else {
            let authority_and_path = target
                .strip_prefix("//")
                .ok_or_else(|| invalid(format!("write {scheme}://HOST, with two slashes")))?;
            let (authority, mut path) =
                authority_and_path.split_once('/').unwrap_or((authority_and_path, ""));
            let place = match authority.rsplit_once('@') {
                Some((text, place)) => {
                    login.read(text)?;
                    place
                }
                None => authority,
            };
            let place = if scheme.ends_with("+sentinel") {
                let (service, rest) = path.split_once('/').unwrap_or((path, ""));
                path = rest;
                Place::MasterOf(Service::read(scheme, service, place, files, params)?)
            } else {
                let (host, port) = host_and_port(place, 6379).map_err(invalid)?;
                let is_tls = scheme == "rediss";
                Place::At(if is_tls {
                    Address::Tls { host, port, files }
                } else {
                    Address::Tcp { host, port }
                })
            };
            if !path.is_empty() {
                // It is not repeated: a password that is not percent-encoded can get here.
                let number = path
                    .parse::<u32>()
                    .map_err(|_| invalid("the path of the URL must be a database number, for example /0"))?;
                if database.replace(number).is_some_and(|other| other != number) {
                    return Err(invalid("the database is given twice, as path and as db; give it once"));
                }
            }
            place
        };
        let Login { user, password } = login;
        if user.is_some() && password.is_none() {
            return Err(invalid(
                "the user needs a password; write USER:PASSWORD@HOST or use password_env= (any text will do for a \
                 user that Redis knows as nopass)",
            ));
        }

        let prefix = params.text("prefix").unwrap_or_else(|| "polylatch".into());
        let keys = Keys::new(&prefix, params.text("lock_key").as_deref())?;
        let guarantee = Guarantee::from_params(params)?;
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
            place,
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
        let login = self.login_for_display();
        let database = if self.database == 0 { String::new() } else { format!("/{}", self.database) };
        match &self.place {
            Place::At(Address::Tcp { host, port }) => {
                format!("redis://{login}{}:{port}{database}", bracketed(host))
            }
            Place::At(Address::Tls { host, port, .. }) => {
                format!("rediss://{login}{}:{port}{database}", bracketed(host))
            }
            Place::At(Address::Unix(path)) => format!("redis+unix:{}", path.display()),
            Place::MasterOf(service) => {
                let scheme = if service.tls.is_some() { "rediss+sentinel" } else { "redis+sentinel" };
                let sentinels: Vec<_> = service
                    .sentinels
                    .iter()
                    .map(|(host, port)| format!("{}:{port}", bracketed(host)))
                    .collect();
                let name = utf8_percent_encode(&service.name, IN_A_PATH);
                format!("{scheme}://{login}{}/{name}{database}", sentinels.join(","))
            }
        }
    }

    /// The user as it stands before the host in a URL, with its `@`, or nothing.
    pub(crate) fn login_for_display(&self) -> String {
        let user = self.user.as_ref().map(|user| utf8_percent_encode(user, IN_A_LOGIN));
        user.map(|user| format!("{user}@")).unwrap_or_default()
    }

    /// Whether nobody on the way can read along.
    pub(crate) fn is_tls(&self) -> bool {
        match &self.place {
            Place::At(address) => matches!(address, Address::Tls { .. }),
            Place::MasterOf(service) => service.tls.is_some(),
        }
    }
}

impl Service {
    fn read(scheme: &str, name: &str, places: &str, files: TlsFiles, params: &mut Params) -> Result<Self> {
        if name.is_empty() {
            return Err(invalid(format!(
                "write {scheme}://HOST,HOST,HOST/SERVICE, with the name under which the Sentinels watch the primary"
            )));
        }
        let mut sentinels = Vec::new();
        for place in places.split(',') {
            if place.is_empty() {
                return Err(invalid(format!(
                    "a Sentinel in the {scheme}: URL is empty; write HOST or HOST:PORT between commas"
                )));
            }
            let sentinel = host_and_port(place, 26379).map_err(invalid)?;
            if let Some(first) = sentinels.iter().position(|other| *other == sentinel) {
                let (first, second) = (first + 1, sentinels.len() + 1);
                return Err(invalid(format!(
                    "Sentinels {first} and {second} of the URL are the same server; name each once"
                )));
            }
            sentinels.push(sentinel);
        }
        let user = params.text("sentinel_user");
        let elsewhere = Credential::from_params(params, "sentinel_password_env", "sentinel_password_file")?;
        let password = match (params.text("sentinel_password"), elsewhere) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "give one of sentinel_password, sentinel_password_env and sentinel_password_file, not several",
                ));
            }
            (text, elsewhere) => text.map(Credential::given).or(elsewhere),
        };
        if user.is_some() && password.is_none() {
            return Err(invalid("sentinel_user needs a password; give it with sentinel_password_env="));
        }
        let tls = scheme.starts_with("rediss").then_some(files);
        Ok(Self { name: decoded(name)?, sentinels, tls, user, password })
    }
}

/// Who asks.
struct Login {
    user: Option<String>,
    password: Option<Credential>,
}

impl Login {
    /// Takes `user:password` from the URL; what stands there wins over options.
    fn read(&mut self, text: &str) -> Result<()> {
        let (name, secret) = text.split_once(':').unwrap_or((text, ""));
        if !name.is_empty() {
            self.user = Some(decoded(name)?);
        }
        if !secret.is_empty() {
            self.password = Some(Credential::given(decoded(secret)?));
        }
        Ok(())
    }
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8().map(|text| text.into_owned());
    decoded.map_err(|_| invalid("user, password or path of the URL is not UTF-8 after percent-decoding"))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

/// How many replicas have to confirm what a call wrote, and within which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledge {
    pub rule: AckRule,
    pub within: Duration,
}

/// Which share of the replicas has to confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckRule {
    /// One replica.
    Any,
    /// So many that, with the master, more than half of the servers have it.
    Majority,
    /// Every replica that the server has had since this client knows it.
    All,
    /// This many.
    Count(u32),
}

impl AckRule {
    pub(crate) fn needed(self, replicas: u32) -> u32 {
        match self {
            Self::Any => 1,
            Self::Majority => replicas.div_ceil(2).max(1),
            Self::All => replicas.max(1),
            Self::Count(count) => count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<RedisConfig> {
        options::read(url, RedisConfig::from_url)
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("redis://bob:p%40ss@db.example:6380/2?prefix=shop").unwrap();
        assert_eq!(config.place, Place::At(Address::Tcp { host: "db.example".into(), port: 6380 }));
        assert_eq!(config.password, Some(Credential::given("p@ss".into())));
        assert_eq!((config.user.as_deref(), config.database), (Some("bob"), 2));
        assert_eq!(config.display(), "redis://bob@db.example:6380/2");
        assert!(!format!("{config:?}").contains("p@ss"));
        assert_eq!(read("redis://").unwrap().display(), "redis://localhost:6379");
        assert_eq!(read("redis://[::1]:7000").unwrap().display(), "redis://[::1]:7000");
        assert_eq!(
            read("redis+unix:/run/r.sock?db=3").unwrap().place,
            Place::At(Address::Unix("/run/r.sock".into()))
        );
        assert!(read("rediss://h?ca=/ca.pem").unwrap().is_tls());
    }

    #[test]
    fn a_service_is_named_by_its_sentinels() {
        let config =
            read("redis+sentinel://bob:p%40ss@a,[::1]:7001/my%2Fmaster/2?sentinel_user=eve&sentinel_password=s3cret")
                .unwrap();
        let Place::MasterOf(service) = &config.place else { panic!("{config:?}") };
        assert_eq!(service.sentinels, [("a".to_owned(), 26379), ("::1".to_owned(), 7001)]);
        assert_eq!((service.name.as_str(), service.user.as_deref()), ("my/master", Some("eve")));
        assert_eq!((config.database, config.user.as_deref()), (2, Some("bob")));
        assert_eq!(config.display(), "redis+sentinel://bob@a:26379,[::1]:7001/my%2Fmaster/2");
        assert!(!format!("{config:?}").contains("s3cret") && !format!("{config:?}").contains("p@ss"));
        assert!(read("rediss+sentinel://a/m?ca=/ca.pem").unwrap().is_tls());
        assert!(!read("redis+sentinel://a/m").unwrap().is_tls());
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
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
            ("redis://h?password_file=/no/such/file", "cannot be read"),
            ("redis://h?password_env=HOME&password_file=/no/such/file", "not both"),
            ("redis://h/1?db=2", "given twice"),
            ("redis+sentinel://a,b", "the name under which the Sentinels watch"),
            ("redis+sentinel://a,,b/m", "is empty"),
            ("redis+sentinel://a,a:26379/m", "Sentinels 1 and 2 of the URL are the same"),
            ("redis+sentinel://a/m/two", "must be a database number"),
            ("redis+sentinel://a/m?ca=/x", "write rediss+sentinel://"),
            ("redis+sentinel://a/m?sentinel_user=eve", "sentinel_password_env="),
            ("redis+sentinel://a/m?sentinel_password=x&sentinel_password_env=HOME", "not several"),
            ("redis://h?sentinel_user=eve", "knows no option \"sentinel_user\""),
        ];
        options::assert_refused(read, &cases);
    }

    #[test]
    fn an_acknowledgement_rule_counts_replicas_and_never_zero() {
        for (rule, replicas, needed) in [
            (AckRule::Any, 3, 1),
            (AckRule::Majority, 2, 1),
            (AckRule::Majority, 3, 2),
            (AckRule::Majority, 4, 2),
            (AckRule::All, 3, 3),
            (AckRule::All, 0, 1),
            (AckRule::Majority, 0, 1),
            (AckRule::Count(2), 5, 2),
        ] {
            assert_eq!(rule.needed(replicas), needed, "{rule:?} of {replicas}");
        }
    }
}
