//! The ZooKeeper part of a URL: which members, who, and below which node.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::address::{TlsFiles, bracketed, host_and_port};
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Settings;
use crate::params::Params;

use super::protocol::nodes::Nodes;

/// Port of clients (ZooKeeper, "Administrator's Guide", `clientPort`).
const DEFAULT_PORT: u16 = 2181;

/// The same with TLS (ZooKeeper, "SSL User Guide", `secureClientPort`).
const DEFAULT_SECURE_PORT: u16 = 2281;

/// ZooKeeper's own default for `tickTime` is 3 s; the configuration that it is delivered with says 2 s.
const DEFAULT_TICK: Duration = Duration::from_secs(2);

/// Who this client is (the scheme `digest`).
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub user: String,
    pub password: Credential,
}

/// Everything that a URL says about a ZooKeeper store.
#[derive(Debug, Clone)]
pub(crate) struct ZooKeeperConfig {
    /// Hosts and ports; at least one.
    pub members: Vec<(String, u16)>,
    /// Members speak TLS.
    pub tls: Option<TlsFiles>,
    pub login: Option<Login>,
    pub nodes: Nodes,
    /// The servers' `tickTime`, or more.
    pub tick: Duration,
    pub lease: Duration,
    pub timeout: Duration,
}

impl ZooKeeperConfig {
    /// Reads `zookeeper://[user:password@]host[:port][,host[:port]…][/chroot]`, or `zookeepers://…`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        let is_tls = scheme == "zookeepers";
        let files = TlsFiles::from_params(params, is_tls, "zookeepers://")?;
        let mut user = params.text("user");
        let mut password = Credential::from_params(params, "password_env", "password_file")?;
        let rest = target
            .strip_prefix("//")
            .ok_or_else(|| invalid(format!("write {scheme}://HOST, with two slashes")))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = match authority.rsplit_once('@') {
            None => authority,
            Some((login, hosts)) => {
                let (name, secret) = login.split_once(':').unwrap_or((login, ""));
                if !name.is_empty() {
                    user = Some(decoded(name)?);
                }
                if !secret.is_empty() {
                    password = Some(Credential::given(decoded(secret)?));
                }
                hosts
            }
        };
        let login = match (user, password) {
            (None, None) => None,
            (Some(user), Some(_)) if user.contains(':') => {
                return Err(invalid("a user of ZooKeeper's scheme digest cannot have a colon in its name"));
            }
            (Some(user), Some(password)) => Some(Login { user, password }),
            _ => return Err(invalid("a user needs a password, and a password a user; give both or neither")),
        };
        let mut members = Vec::new();
        for place in hosts.split(',') {
            let port = if is_tls { DEFAULT_SECURE_PORT } else { DEFAULT_PORT };
            let member = host_and_port(place, port).map_err(invalid)?;
            if members.contains(&member) {
                return Err(invalid(format!("the member {} is named twice", shown(&member))));
            }
            members.push(member);
        }
        let chroot = decoded(path.strip_suffix('/').unwrap_or(path))?;
        let prefix = params.text("prefix").unwrap_or_else(|| "polylatch".into());
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(60));
        Ok(Self {
            members,
            tls: is_tls.then_some(files),
            login,
            nodes: Nodes::new(&chroot, &prefix).map_err(invalid)?,
            tick: params.duration("tick", DEFAULT_TICK, least, most)?,
            lease: settings.lease,
            timeout: settings.timeout,
        })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let places: Vec<_> = self.members.iter().map(shown).collect();
        let scheme = if self.tls.is_some() { "zookeepers" } else { "zookeeper" };
        format!("{scheme}://{}", places.join(","))
    }
}

pub(crate) fn shown((host, port): &(String, u16)) -> String {
    format!("{}:{port}", bracketed(host))
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| invalid("user, password or path of the URL is not UTF-8 after percent-decoding"))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<ZooKeeperConfig> {
        options::read(url, ZooKeeperConfig::from_url)
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("zookeeper://app:s3%40cret@a,b:2182/apps/shop?tick=3s").unwrap();
        assert_eq!(config.display(), "zookeeper://a:2181,b:2182");
        assert_eq!((config.nodes.chroot(), config.nodes.root()), ("/apps/shop", "/apps/shop/polylatch"));
        assert_eq!(config.tick, Duration::from_secs(3));
        let login = config.login.as_ref().unwrap();
        assert_eq!((&*login.user, &*login.password.latest().0), ("app", "s3@cret"));
        assert!(!format!("{config:?}").contains("cret"));
        let plain = read("zookeeper://h?prefix=x/y").unwrap();
        assert_eq!((plain.nodes.chroot(), plain.nodes.root(), plain.tick), ("/", "/x/y", DEFAULT_TICK));
        assert_eq!(read("zookeeper://[::1]").unwrap().display(), "zookeeper://[::1]:2181");
        assert_eq!(read("zookeepers://a,b:9?ca=/x").unwrap().display(), "zookeepers://a:2281,b:9");
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
            ("zookeeper:h", "with two slashes"),
            ("zookeeper://h:0", "must be a number from 1 to 65535"),
            ("zookeeper://a,a:2181", "named twice"),
            ("zookeeper://bob@h", "both or neither"),
            ("zookeeper://h?user=a:b&password_env=PATH", "colon"),
            ("zookeeper://h?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
            ("zookeeper://h/a//b", "one slash between them"),
            ("zookeeper://h?prefix=zookeeper", "belongs to ZooKeeper itself"),
            ("zookeeper://h?tick=2m", "must be between"),
            ("zookeeper://h?ca=/x", "ca, cert and key need TLS; write zookeepers://"),
            ("zookeepers://h?cert=/x", "belong together"),
        ];
        options::assert_refused(read, &cases);
    }
}
