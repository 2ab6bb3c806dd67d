//! The etcd part of a URL: which members, who, and below which prefix.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::address::{TlsFiles, host_and_port};
use crate::backend::http::Address;
use crate::credential::Credential;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Settings;
use crate::params::Params;

use super::protocol::keys::Keys;

/// Port of clients (etcd, "Configuration flags", `--listen-client-urls`).
const DEFAULT_PORT: u16 = 2379;

/// Who this client is.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub user: String,
    pub password: Credential,
}

/// Everything that a URL says about an etcd store.
#[derive(Debug, Clone)]
pub(crate) struct EtcdConfig {
    /// At least one.
    pub members: Vec<Address>,
    pub login: Option<Login>,
    pub keys: Keys,
    pub timeout: std::time::Duration,
}

impl EtcdConfig {
    /// Reads `etcd://[user:password@]host[:port][,host[:port]…][/prefix]`, or `etcd+https://…`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        let is_tls = scheme == "etcd+https";
        let files = TlsFiles::from_params(params, is_tls, "etcd+https://")?;
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
            (Some(user), Some(password)) => Some(Login { user, password }),
            _ => return Err(invalid("a user needs a password, and a password a user; give both or neither")),
        };
        let mut members = Vec::new();
        for place in hosts.split(',') {
            let (host, port) = host_and_port(place, DEFAULT_PORT).map_err(invalid)?;
            let member = match is_tls {
                true => Address::Tls { host, port, files: files.clone() },
                false => Address::Tcp { host, port },
            };
            if members.contains(&member) {
                return Err(invalid(format!("the member {} is named twice", member.place())));
            }
            members.push(member);
        }
        let path = decoded(path.strip_suffix('/').unwrap_or(path))?;
        let prefix = match (path.is_empty(), params.text("prefix")) {
            (true, None) => "polylatch".to_owned(),
            (true, Some(prefix)) => prefix,
            (false, None) => path,
            (false, Some(_)) => return Err(invalid("give the prefix as the path or with prefix=, not both")),
        };
        Ok(Self { members, login, keys: Keys::new(&prefix).map_err(invalid)?, timeout: settings.timeout })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let scheme = if matches!(self.members[0], Address::Tls { .. }) { "etcd+https" } else { "etcd" };
        let places: Vec<_> = self.members.iter().map(Address::place).collect();
        format!("{scheme}://{}", places.join(","))
    }
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

    fn read(url: &str) -> Result<EtcdConfig> {
        options::read(url, EtcdConfig::from_url)
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("etcd://app:s3%40cret@a,b:2380/apps/locks").unwrap();
        assert_eq!(config.display(), "etcd://a:2379,b:2380");
        assert_eq!(config.keys.all(), "apps/locks/");
        let login = config.login.as_ref().unwrap();
        assert_eq!((&*login.user, &*login.password.latest().0), ("app", "s3@cret"));
        assert!(!format!("{config:?}").contains("cret"));
        assert_eq!(read("etcd://h").unwrap().keys.all(), "polylatch/");
        assert_eq!(read("etcd://h?prefix=x").unwrap().keys.all(), "x/");
        assert_eq!(read("etcd+https://[::1]").unwrap().display(), "etcd+https://[::1]:2379");
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
            ("etcd:h", "with two slashes"),
            ("etcd://h:0", "must be a number from 1 to 65535"),
            ("etcd://a,a:2379", "named twice"),
            ("etcd://bob@h", "both or neither"),
            ("etcd://h?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
            ("etcd://h?ca=/x", "need TLS"),
            ("etcd+https://h?cert=/x", "belong together"),
            ("etcd://h/a?prefix=b", "not both"),
            ("etcd://h?prefix=a//b", "empty part"),
            ("etcd://h?leader=1", "knows no option \"leader\""),
        ];
        options::assert_refused(read, &cases);
    }
}
