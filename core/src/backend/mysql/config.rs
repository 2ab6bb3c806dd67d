//! The MySQL part of a URL: where, who, how, and in which database.

use crate::address::bracketed;
use crate::backend::rows::server::login::{Login, SslMode, in_session, invalid, is_strict};
use crate::error::Result;
use crate::params::Params;

const MODES: [(&str, SslMode); 3] =
    [("disable", SslMode::Disable), ("require", SslMode::Require), ("verify-full", SslMode::Require)];

/// Everything that a URL says about a MySQL or MariaDB store.
#[derive(Debug, Clone)]
pub(crate) struct MysqlConfig {
    pub login: Login,
    /// The next waiter of another client is woken by a session lock, for connections of their own; otherwise waiters poll.
    pub listens: bool,
    /// Leases hang on a connection of their own.
    pub in_session: bool,
    /// A server that may forget a lease in a crash is refused.
    pub is_strict: bool,
    scheme: &'static str,
}

impl MysqlConfig {
    /// Reads `mysql://[user[:password]@]host[:port]/database`, or the same with `mariadb://`. Both name the same
    /// store.
    pub(crate) fn from_url(scheme: &str, target: &str, params: &mut Params) -> Result<Self> {
        let login = Login::from_url("MySQL", 3306, &MODES, scheme, target, params)?;
        if login.database.is_empty() {
            return Err(invalid(format!(
                "the URL names no database; write {scheme}://USER@HOST/DATABASE with an existing one"
            )));
        }
        let is_strict = is_strict(params)?;
        let listens = params.choice("wake", &[("doorbell", true), ("poll", false)], true)?;
        let in_session = in_session(params)?;
        Ok(Self {
            login,
            listens,
            in_session,
            is_strict,
            scheme: if scheme == "mariadb" { "mariadb" } else { "mysql" },
        })
    }

    pub(crate) fn user(&self) -> &str {
        self.login.user.as_deref().unwrap_or("root")
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let Login { host, port, database, .. } = &self.login;
        format!("{}://{}:{port}/{database}", self.scheme, bracketed(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::Credential;
    use crate::options;

    fn read(url: &str) -> Result<MysqlConfig> {
        options::read(url, |scheme, target, params, _| MysqlConfig::from_url(scheme, target, params))
    }

    #[test]
    fn urls_say_where_and_who_and_hide_the_password() {
        let config = read("mysql://app:s3%40cret@db.example:3307/shop").unwrap();
        assert_eq!((config.display().as_str(), config.user()), ("mysql://db.example:3307/shop", "app"));
        assert_eq!(config.login.password, Some(Credential::given("s3@cret".into())));
        assert_eq!(config.login.ssl_mode, SslMode::Require);
        assert!(!format!("{config:?}").contains("cret"));
        let config = read("mariadb:///locks").unwrap();
        assert_eq!((config.display().as_str(), config.user()), ("mariadb://localhost:3306/locks", "root"));
        assert_eq!(config.login.ssl_mode, SslMode::Disable);
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        for (url, part) in [
            ("mysql:h/d", "with two slashes"),
            ("mysql://h", "names no database"),
            ("mysql://h:0/d", "must be a number from 1 to 65535"),
            ("mysql://a,b/d", "one host"),
            ("mysql://h/a/b", "one database"),
            ("mysql://h/d?sslmode=prefer", "one of disable, require, verify-full"),
            ("mariadb://localhost/d?ca=/x", "need TLS"),
            ("mysql://h/d?cert=/x", "belong together"),
            ("mysql://h/d?wake=notify", "one of doorbell, poll"),
            ("mysql://h/d?mode=advisory", "one of lease, session"),
            ("mysql://h/d?guarantee=sure", "one of best-effort, strict"),
            ("mysql://h/d?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
