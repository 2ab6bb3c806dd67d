//! The Consul part of a URL: which agent, who, where the keys are, and how sessions live.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::address::file_path;
use crate::address::{TlsFiles, host_and_port};
use crate::backend::consul::protocol::keys::Keys;
pub(crate) use crate::backend::http::Address;
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_LEASE;
use crate::options::Settings;
use crate::params::Params;

/// Shortest session TTL that servers accept unless they are told otherwise (`session_ttl_min`).
const SESSION_TTL_MIN: Duration = Duration::from_secs(10);

/// Lock-delay of the shorter leases where the URL has none; Consul's own default.
const MIN_DEFAULT_LOCK_DELAY: Duration = Duration::from_secs(15);

/// Longest lock-delay (Consul, "Sessions").
pub(crate) const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);

/// How the sessions of a client are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionOptions {
    /// How long the servers refuse new holders after a session has ended with locks on it; `None`: as
    /// long as the lease.
    pub lock_delay: Option<Duration>,
    /// Every acquisition gets a session of its own.
    pub per_lock: bool,
    /// The node that the session belongs to; the agent's own by default.
    pub node: Option<String>,
    /// Health checks of that node which end the session when they turn critical.
    pub checks: Vec<String>,
}

impl SessionOptions {
    /// The lock-delay of a session for leases of this length. A holder that nobody can notify relies on
    /// its lease for that long after its session was ended by force, so the default covers it as far as
    /// Consul allows.
    pub(crate) fn lock_delay_for(&self, lease: Duration) -> Duration {
        self.lock_delay.unwrap_or_else(|| lease.clamp(MIN_DEFAULT_LOCK_DELAY, MAX_LOCK_DELAY))
    }
}

/// Everything that a URL says about a Consul store.
#[derive(Debug, Clone)]
pub(crate) struct ConsulConfig {
    pub address: Address,
    pub token: Option<Credential>,
    /// Query parameters of every request: datacenter, namespace, partition.
    pub scope: String,
    pub keys: Keys,
    pub sessions: SessionOptions,
    /// Length of a lease unless an acquisition asks for another.
    #[cfg(not(target_family = "wasm"))]
    pub lease: Duration,
    /// Shortest lease: what the servers take as session TTL.
    pub min_lease: Duration,
    pub timeout: Duration,
}

impl ConsulConfig {
    /// Reads `consul://[host][:port]`, `consul+https://…` or `consul+unix:PATH`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
        let files = TlsFiles::from_params(params, scheme == "consul+https", "consul+https://")?;
        let address = if scheme == "consul+unix" {
            Address::Unix(file_path(target)?)
        } else {
            let authority = target
                .strip_prefix("//")
                .ok_or_else(|| invalid(format!("write {scheme}://HOST, with two slashes")))?;
            let authority = authority.strip_suffix('/').unwrap_or(authority);
            if authority.contains('@') {
                return Err(invalid(
                    "a Consul URL has no user and password; give an ACL token with token_env= or token_file="
                        .into(),
                ));
            }
            if authority.contains('/') {
                return Err(invalid(
                    "a Consul URL has no path; give the folder of the locks with prefix=".into(),
                ));
            }
            let default_port = if scheme == "consul+https" { 8501 } else { 8500 };
            let (host, port) = host_and_port(authority, default_port).map_err(invalid)?;
            match scheme {
                "consul+https" => Address::Tls { host, port, files },
                _ => Address::Tcp { host, port },
            }
        };
        let prefix = params.text("prefix").unwrap_or_else(|| "polylatch".into());
        let keys = Keys::new(&prefix, params.text("lock_key").as_deref())?;
        let mut scope = String::new();
        for (option, parameter) in [("dc", "dc"), ("ns", "ns"), ("partition", "partition")] {
            if let Some(value) = params.text(option) {
                if value.is_empty() {
                    return Err(invalid(format!("the option {option} is empty; name one or leave it out")));
                }
                let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
                scope.push_str(&format!("{}{parameter}={value}", if scope.is_empty() { "" } else { "&" }));
            }
        }
        let sessions = SessionOptions {
            lock_delay: match params.has("lock_delay") {
                true => {
                    Some(params.duration("lock_delay", Duration::ZERO, Duration::ZERO, MAX_LOCK_DELAY)?)
                }
                // Taken all the same, so that it counts as an option of this store.
                false => params.text("lock_delay").and(None),
            },
            per_lock: params.choice("session", &[("shared", false), ("per-lock", true)], false)?,
            node: params.text("node"),
            checks: match params.text("checks") {
                None => Vec::new(),
                Some(text) => text.split(',').map(|check| check.trim().to_owned()).collect(),
            },
        };
        if sessions.checks.iter().any(String::is_empty) {
            return Err(invalid(
                "the option checks has an empty name; write names with commas, such as checks=serfHealth"
                    .into(),
            ));
        }
        let min_lease = params.duration(
            "session_ttl_min",
            SESSION_TTL_MIN,
            Duration::from_millis(100),
            SESSION_TTL_MIN,
        )?;
        if settings.lease < min_lease {
            return Err(invalid(format!(
                "lease={:?} is shorter than {min_lease:?}, the shortest session TTL of Consul; use a longer lease, \
                 or say with session_ttl_min= what the servers are configured to take",
                settings.lease
            )));
        }
        Ok(Self {
            address,
            token: token(params)?,
            scope,
            keys,
            sessions,
            #[cfg(not(target_family = "wasm"))]
            lease: settings.lease,
            min_lease,
            timeout: settings.timeout,
        })
    }

    /// Longest lease: the longest session TTL.
    pub(crate) fn max_lease(&self) -> Duration {
        MAX_LEASE
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let scheme = match &self.address {
            Address::Tcp { .. } => "consul://",
            Address::Tls { .. } => "consul+https://",
            Address::Unix(_) => "consul+unix:",
        };
        format!("{scheme}{}", self.address.place())
    }
}

/// The ACL token, from one of three places.
fn token(params: &mut Params) -> Result<Option<Credential>> {
    let invalid = |message: &'static str| Error::new(ErrorKind::InvalidConfig, message);
    if ["token", "token_env", "token_file"].into_iter().filter(|option| params.has(option)).count() > 1 {
        return Err(invalid("give one of token, token_env and token_file, not several"));
    }
    let given = params.text("token").map(Credential::given);
    let token = given.or(Credential::from_params(params, "token_env", "token_file")?);
    if token.as_ref().is_some_and(|token| !is_token(&token.latest().0)) {
        return Err(invalid("the ACL token is empty or has spaces or control characters"));
    }
    Ok(token)
}

/// Whether a text can stand in the header that carries the token; spaces around it are not sent.
pub(crate) fn is_token(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<ConsulConfig> {
        options::read(url, ConsulConfig::from_url)
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_token() {
        let config = read("consul://agent.example?token=s3cret&dc=east&prefix=apps/locks").unwrap();
        assert_eq!(config.address, Address::Tcp { host: "agent.example".into(), port: 8500 });
        assert_eq!(config.token, Some(Credential::given("s3cret".into())));
        assert_eq!(config.scope, "dc=east");
        assert_eq!(config.display(), "consul://agent.example:8500");
        assert!(!format!("{config:?}").contains("s3cret"));
        assert_eq!(read("consul://").unwrap().display(), "consul://localhost:8500");
        assert_eq!(read("consul+https://[::1]").unwrap().display(), "consul+https://[::1]:8501");
        assert_eq!(read("consul+unix:/run/c.sock").unwrap().address, Address::Unix("/run/c.sock".into()));
        assert_eq!(read("consul://h?checks=serfHealth,web").unwrap().sessions.checks, ["serfHealth", "web"]);
    }

    #[test]
    fn lock_delay_covers_the_lease_unless_the_url_says_otherwise() {
        let seconds = Duration::from_secs;
        let delay = |url: &str, lease| read(url).unwrap().sessions.lock_delay_for(seconds(lease)).as_secs();
        assert_eq!(
            [10, 15, 16, 40, 60, 61, 3600].map(|lease| delay("consul://h", lease)),
            [15, 15, 16, 40, 60, 60, 60]
        );
        assert_eq!(delay("consul://h?lock_delay=7s", 40), 7);
        assert_eq!(delay("consul://h?lock_delay=0s", 40), 0);
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
            ("consul://h:0", "must be a number from 1 to 65535"),
            ("consul:h", "with two slashes"),
            ("consul://h/locks", "prefix="),
            ("consul://tok@h", "token_env="),
            ("consul://h?ca=/x", "need TLS"),
            ("consul+https://h?cert=/x", "belong together"),
            ("consul://h?lock_delay=61s", "between 0ns and 60s"),
            ("consul://h?lock_delay=-1s", "number"),
            ("consul://h?lease=5s", "shorter than 10s"),
            ("consul://h?lease=25h", "between 100ms and 86400s"),
            ("consul://h?session_ttl_min=11s", "between 100ms and 10s"),
            ("consul://h?session=mine", "one of shared, per-lock"),
            ("consul://h?prefix=/a", "must not begin or end with"),
            ("consul://h?prefix=", "1 to 128"),
            ("consul://h?lock_key=all", "{name}"),
            ("consul://h?checks=a,,b", "empty name"),
            ("consul://h?token=a&token_env=b", "not several"),
            ("consul://h?token_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
            ("consul://h?token_file=/no/such/file", "cannot be read"),
            ("consul://h?token=", "empty"),
            ("consul://h?dc=", "dc is empty"),
            ("consul://h?leader=1", "knows no option \"leader\""),
        ];
        options::assert_refused(read, &cases);
    }
}
