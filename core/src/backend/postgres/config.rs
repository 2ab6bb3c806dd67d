//! The PostgreSQL part of a URL: where, who, how, and in which schema.

use crate::address::{TlsFiles, bracketed};
use crate::backend::rows::server::login::{Login, SslMode, in_session, invalid, is_strict};
use crate::credential::Credential;
use crate::error::Result;
use crate::params::Params;

use super::protocol::schema::Schema;

/// The schema of a URL that names none.
pub(crate) const DEFAULT_SCHEMA: &str = "polylatch";

const MODES: [(&str, SslMode); 4] = [
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-full", SslMode::Require),
];

/// Whether a commit is on the disk before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// As the server, the database or the user is set.
    Server,
    Sync,
    Async,
}

impl Durability {
    /// The value of `synchronous_commit` in our transactions.
    pub(crate) fn setting(self) -> Option<&'static str> {
        match self {
            Self::Server => None,
            Self::Sync => Some("on"),
            Self::Async => Some("off"),
        }
    }
}

const DURABILITY: [(&str, Durability); 3] =
    [("server", Durability::Server), ("sync", Durability::Sync), ("async", Durability::Async)];

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
    /// Leases hang on a connection of their own.
    pub in_session: bool,
    pub durability: Durability,
    /// A server that may forget a lease in a crash is refused.
    pub is_strict: bool,
}

impl PostgresConfig {
    /// Reads `postgres://[user[:password]@]host[:port][/database]`.
    pub(crate) fn from_url(scheme: &str, target: &str, params: &mut Params) -> Result<Self> {
        let Login { host, port, user, password, database, ssl_mode, files } =
            Login::from_url("PostgreSQL", 5432, &MODES, scheme, target, params)?;
        let user = user.unwrap_or_else(|| "postgres".into());
        let database = if database.is_empty() { user.clone() } else { database };
        let schema =
            Schema::new(&params.text("schema").unwrap_or_else(|| DEFAULT_SCHEMA.into())).map_err(invalid)?;
        let listens = params.choice("wake", &[("notify", true), ("poll", false)], true)?;
        let in_session = in_session(params)?;
        let is_strict = is_strict(params)?;
        let usual = if is_strict { Durability::Sync } else { Durability::Server };
        let durability = params.choice("durability", &DURABILITY, usual)?;
        if is_strict && durability != Durability::Sync {
            return Err(invalid(
                "guarantee=strict needs durability=sync: otherwise a crash of the server may forget a lease that is held; \
                 leave durability= out, or guarantee=strict",
            ));
        }
        Ok(Self {
            host,
            port,
            user,
            password,
            database,
            ssl_mode,
            files,
            schema,
            listens,
            in_session,
            durability,
            is_strict,
        })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        format!("postgres://{}:{}/{}", bracketed(&self.host), self.port, self.database)
    }
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
        let config =
            read("postgres://app:s3%40cret@db.example:5433/shop?schema=locks&wake=poll&mode=session")
                .unwrap();
        assert_eq!(config.display(), "postgres://db.example:5433/shop");
        assert_eq!((config.user.as_str(), config.schema.name()), ("app", "locks"));
        assert_eq!(config.password, Some(Credential::given("s3@cret".into())));
        assert_eq!((config.ssl_mode, config.listens, config.in_session), (SslMode::Require, false, true));
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
    fn commits_are_as_the_server_is_set_unless_the_url_says_more() {
        let durability = |url| read(url).unwrap().durability;
        assert_eq!(durability("postgres://h"), Durability::Server);
        assert_eq!(durability("postgres://h?durability=async"), Durability::Async);
        assert_eq!(durability("postgres://h?guarantee=strict"), Durability::Sync);
        assert_eq!(durability("postgres://h?guarantee=strict&durability=sync"), Durability::Sync);
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
            ("postgres://h?wake=doorbell", "one of notify, poll"),
            ("postgres://h?mode=advisory", "one of lease, session"),
            ("postgres://h?durability=some", "one of server, sync, async"),
            ("postgres://h?guarantee=sure", "one of best-effort, strict"),
            ("postgres://h?guarantee=strict&durability=async", "needs durability=sync"),
            ("postgres://h?guarantee=strict&durability=server", "needs durability=sync"),
            ("postgres://h?password_env=POLYLATCH_NO_SUCH_VARIABLE", "is not set"),
        ] {
            let error = read(url).unwrap_err();
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
