//! Saved connections, filters and alert rules, as they are in a file. Never a secret.

use std::collections::HashSet;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::alert::{Alarms, AlertRule};
use super::connection::{Connection, ConnectionId, Environment};
use super::filter::Filter;
use super::text::{is_treacherous, shell_word};

/// Everything that is saved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Form of the file; 1.
    #[serde(default)]
    pub version: u32,
    /// In the order in which they are shown.
    #[serde(default)]
    pub connections: Vec<SavedConnection>,
    /// Filters with names, in order.
    #[serde(default)]
    pub filters: Vec<SavedFilter>,
    /// Alert rules.
    #[serde(default)]
    pub alerts: Vec<AlertRule>,
}

/// A filter with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFilter {
    /// What it is called.
    pub name: String,
    /// The filter, in the filter language.
    pub filter: String,
}

/// Where a connection's secret comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from", deny_unknown_fields)]
pub enum SecretSource {
    /// It needs none.
    #[default]
    None,
    /// An environment variable.
    Env {
        /// Its name.
        variable: String,
    },
    /// The platform's keyring, under the connection's name.
    Keyring,
    /// It is asked for.
    Prompt,
}

/// A connection as it is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedConnection {
    /// Its name; unique, not empty, without `/`.
    pub name: String,
    /// Its URL, without a secret.
    pub url: String,
    /// Where the secret comes from.
    #[serde(default)]
    pub secret: SecretSource,
    /// How careful one has to be.
    #[serde(default)]
    pub environment: Environment,
    /// Nothing may be changed through it. If it is not said: only in production.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// How often it is read, in milliseconds.
    #[serde(default = "default_every")]
    pub every_ms: u64,
    /// Only locks whose name starts with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Other libraries' locks whose keys match this pattern are shown too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

fn default_every() -> u64 {
    1_000
}

/// How often a connection may be read, in milliseconds.
pub const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=60_000;

/// The form of the file that this program writes.
const VERSION: u32 = 1;

/// Options of a URL whose values are secrets.
const SECRET_OPTIONS: [&str; 5] = ["token", "password", "sentinel_password", "secret", "passphrase"];

impl SavedConnection {
    /// Takes a URL that may have a secret apart. Returns the connection without it, and the secret.
    ///
    /// Errors: a sentence, if the name or the URL cannot be used. It never repeats the URL.
    pub fn from_url(name: &str, url: &str) -> Result<(Self, Option<String>), String> {
        check_name(name)?;
        let (url, secret) = take_secret(url)?;
        let connection = Self {
            name: name.into(),
            url,
            secret: if secret.is_some() { SecretSource::Prompt } else { SecretSource::None },
            environment: Environment::default(),
            read_only: None,
            every_ms: default_every(),
            prefix: String::new(),
            foreign: None,
        };
        Ok((connection, secret))
    }

    /// Says whether nothing may be changed through it.
    pub fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or(self.environment == Environment::Production)
    }

    /// Returns the URL to connect with: the secret becomes the password, or the token of a Consul agent.
    pub fn url_with(&self, secret: Option<&str>) -> String {
        let Some(secret) = secret.filter(|secret| !secret.is_empty()) else { return self.url.clone() };
        let secret = utf8_percent_encode(secret, NON_ALPHANUMERIC);
        if self.url.starts_with("consul") {
            let sign = if self.url.contains('?') { '&' } else { '?' };
            return format!("{}{sign}token={secret}", self.url);
        }
        let Some((scheme, rest)) = self.url.split_once("://") else { return self.url.clone() };
        let authority = rest.find(['/', '?']).unwrap_or(rest.len());
        match rest[..authority].rsplit_once('@') {
            Some((user, _)) => format!("{scheme}://{user}:{secret}@{}", &rest[user.len() + 1..]),
            None => format!("{scheme}://:{secret}@{rest}"),
        }
    }

    /// Returns what the model needs to know.
    pub fn connection(&self) -> Connection {
        // A URL with a secret cannot be typed from what is shown; the environment variable holds it.
        let command = match &self.secret {
            SecretSource::None => format!("polylatch --url {}", shell_word(&self.url)),
            _ => "polylatch --url \"$POLYLATCH_URL\"".into(),
        };
        Connection {
            id: ConnectionId::new(&self.name),
            shown_url: self.url.clone(),
            command,
            environment: self.environment,
            read_only: self.is_read_only(),
        }
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        let name = &self.name;
        match take_secret(&self.url) {
            Err(error) => return Err(format!("connection {name:?}: {error}")),
            Ok((_, Some(_))) => {
                return Err(format!(
                    "connection {name:?}: its URL has a secret in it, and this file is no place for one; take it \
                     out and set \"secret\" to {{\"from\": \"env\", \"variable\": …}}, keyring or prompt"
                ));
            }
            Ok((_, None)) => {}
        }
        if !EVERY_MS.contains(&self.every_ms) {
            let (from, to) = (EVERY_MS.start(), EVERY_MS.end());
            return Err(format!(
                "connection {name:?}: every_ms must be {from} to {to}, not {}",
                self.every_ms
            ));
        }
        match &self.secret {
            SecretSource::Env { variable }
                if variable.is_empty()
                    || variable.contains(['=', '\0'])
                    || variable.contains(char::is_whitespace) =>
            {
                Err(format!(
                    "connection {name:?}: {variable:?} cannot be the name of an environment variable"
                ))
            }
            _ => Ok(()),
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() || name.len() > 128 || name.chars().any(is_treacherous) {
        return Err("the name of a connection has 1 to 128 bytes and no invisible characters".into());
    }
    Ok(())
}

/// Returns what a connection to a URL may be called: its hosts with the database and the prefix, or its file; and a
/// longer name for the second one of the same file name. The URL is taken apart by the same rules as one that is saved,
/// so no piece of a secret is in the names.
pub fn names_for(url: &str) -> [String; 2] {
    let url = take_secret(url).map(|(url, _)| url).unwrap_or_default();
    let rest = url.split_once(':').map_or("", |(_, rest)| rest);
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    let option = |name: &str| {
        let is = |option: &&str| option.split_once('=').is_some_and(|(key, _)| key == name);
        query.split('&').find(is).and_then(|option| option.split_once('=')).map_or("", |(_, value)| value)
    };
    let (name, folder) = match target.strip_prefix("//") {
        Some(server) => {
            let (host, path) = server.split_once('/').unwrap_or((server, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            let database = if path.is_empty() { option("db") } else { path };
            let database =
                if matches!(database, "" | "0") { String::new() } else { format!(" db {database}") };
            let prefix = option("prefix");
            let prefix = if prefix.is_empty() { String::new() } else { format!(" {prefix}") };
            (format!("{host}{database}{prefix}"), "")
        }
        None => {
            let mut parts = target.rsplit(['/', '\\']);
            (parts.next().unwrap_or_default().to_owned(), parts.next().unwrap_or_default())
        }
    };
    let clean = |name: &str| -> String {
        let name: String = name.chars().filter(|c| !c.is_control() && *c != '/').take(60).collect();
        if name.is_empty() { "store".to_owned() } else { name }
    };
    let longer = if folder.is_empty() { name.clone() } else { format!("{name} in {folder}") };
    [clean(&name), clean(&longer)]
}

/// Takes the password or the token out of a URL.
fn take_secret(url: &str) -> Result<(String, Option<String>), String> {
    let bad = || "the URL has no scheme; write for example redis://cache:6379 or sqlite:/var/lib/locks.db";
    let (scheme, rest) = url.split_once(':').ok_or_else(bad)?;
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c)) {
        return Err(bad().into());
    }
    if url.chars().any(char::is_control) {
        return Err(format!("the {scheme}: URL has a control character (a line break?); remove it"));
    }
    refuse_what_may_be_a_secret(scheme, rest)?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (target, query) = match rest.split_once('?') {
        Some((target, query)) => (target, Some(query)),
        None => (rest, None),
    };
    let mut secret = None;
    let mut target = target.to_owned();
    // A path has no password, though it may have an @.
    if let Some(hosts) = target.strip_prefix("//").filter(|_| scheme != "sqlite") {
        let authority = hosts.find('/').unwrap_or(hosts.len());
        if let Some((user, host)) = hosts[..authority].rsplit_once('@')
            && let Some((user, password)) = user.split_once(':')
        {
            secret = Some(decoded(password)).filter(|password| !password.is_empty());
            let user = if user.is_empty() { String::new() } else { format!("{user}@") };
            target = format!("//{user}{host}{}", &hosts[authority..]);
        }
    }
    let mut options = Vec::new();
    for option in query.unwrap_or_default().split('&').filter(|option| !option.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if key.chars().any(|c| !c.is_ascii_lowercase() && c != '_') {
            return Err(format!("the {scheme}: URL has an option with a name that no option has; {ENCODE}"));
        } else if !SECRET_OPTIONS.contains(&key) {
            options.push(option);
        } else if scheme.starts_with("consul") && key == "token" && secret.is_none() {
            secret = Some(decoded(value)).filter(|token| !token.is_empty());
        } else {
            return Err(format!("the option {key}= holds a secret, which is not saved; leave it out"));
        }
    }
    let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
    Ok((format!("{scheme}:{target}{query}"), secret))
}

const ENCODE: &str = "if that is part of a secret, percent-encode it (/ as %2F, ? as %3F, @ as %40, & as %26, a \
                      comma as %2C), or name an environment variable with password_env=";

/// Refuses a URL in which a piece of a secret may stand where none is looked for, because the secret is
/// not percent-encoded. Errors: a sentence that repeats no more of the URL than its scheme.
fn refuse_what_may_be_a_secret(scheme: &str, rest: &str) -> Result<(), String> {
    let misplaced =
        || Err(format!("the {scheme}: URL has an @ where no user and password can stand; {ENCODE}"));
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    if query.contains('@') || scheme == "memory" && target.contains('@') {
        return misplaced();
    }
    if matches!(scheme, "sqlite" | "redis+unix" | "consul+unix") {
        let path = target.strip_prefix("//").unwrap_or(target);
        let on_a_drive = cfg!(windows) && path.get(1..2) == Some(":");
        let is_path = path.starts_with(['/', '.']) || on_a_drive;
        return if path.contains('@') && !is_path { misplaced() } else { Ok(()) };
    }
    let Some(hosts) = target.strip_prefix("//") else {
        return if target.contains('@') { misplaced() } else { Ok(()) };
    };
    let (authority, path) = hosts.split_once('/').unwrap_or((hosts, ""));
    if path.contains('@') {
        return misplaced();
    }
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme.starts_with("redlock") && login.contains([',', '@']) {
        return Err(format!(
            "the {scheme}: URL has an @ or a comma before its last @; write one login, before the first node; {ENCODE}"
        ));
    }
    let ports = hosts.split(',').filter_map(|host| host.rsplit(']').next()?.split_once(':'));
    if ports.into_iter().any(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(format!("the {scheme}: URL has a port that is no number from 1 to 65535; {ENCODE}"));
    }
    Ok(())
}

impl Saved {
    /// Reads the file's text. Errors: a sentence with the place in the text, or with what [`Saved::check`] finds.
    pub fn parse(text: &str) -> Result<Self, String> {
        let saved: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if saved.version > VERSION {
            return Err(format!(
                "it has version {}, and this program knows only up to {VERSION}; update this program",
                saved.version
            ));
        }
        saved.check()?;
        Ok(saved)
    }

    /// Returns the file's text.
    pub fn text(&self) -> String {
        let saved = Self { version: VERSION, ..self.clone() };
        serde_json::to_string_pretty(&saved).unwrap_or_default() + "\n"
    }

    /// Checks what the form alone does not: names that are there once, filters that can be read, URLs
    /// without a secret. Errors: a sentence.
    pub fn check(&self) -> Result<(), String> {
        for connection in &self.connections {
            connection.check()?;
        }
        once("connection", self.connections.iter().map(|connection| &*connection.name))?;
        once("filter", self.filters.iter().map(|filter| &*filter.name))?;
        for saved in &self.filters {
            Filter::parse(&saved.filter).map_err(|error| format!("filter {:?}: {error}", saved.name))?;
        }
        Alarms::new(self.alerts.clone()).map(drop)
    }
}

fn once<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("there are two {what}s of the name {name:?}; rename one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_stands_in_what_is_saved() {
        for (url, without, secret) in [
            ("redis://:pa%40ss@cache:6379/2", "redis://cache:6379/2", Some("pa@ss")),
            ("rediss://ann:s3cret@cache?prefix=x", "rediss://ann@cache?prefix=x", Some("s3cret")),
            ("redis://cache", "redis://cache", None),
            ("redis://ann@cache", "redis://ann@cache", None),
            ("sqlite:/var/a@b:c/locks.db", "sqlite:/var/a@b:c/locks.db", None),
            ("consul://agent?token=s3cret&dc=east", "consul://agent?dc=east", Some("s3cret")),
        ] {
            let (connection, found) = SavedConnection::from_url("x", url).unwrap();
            assert_eq!((connection.url.as_str(), found.as_deref()), (without, secret), "{url}");
            let saved = Saved { connections: vec![connection.clone()], ..Saved::default() };
            for secret in ["s3cret", "pa@ss", "pa%40ss"] {
                assert!(!saved.text().contains(secret));
                assert!(!connection.connection().command.contains(secret));
            }
            assert_eq!(Saved::parse(&saved.text()).unwrap().connections, saved.connections);
            // And it goes back to where it was.
            let whole = connection.url_with(found.as_deref());
            assert_eq!(SavedConnection::from_url("x", &whole).unwrap(), (connection, found), "{url}");
        }
    }

    #[test]
    fn no_piece_of_a_secret_is_saved_or_told_however_it_is_written() {
        for secret in [
            "Zq7xWv/Kj9pLm",
            "Zq7xWv?Kj9pLm",
            "Zq7xWv#Kj9pLm",
            "Zq7xWv@Kj9pLm",
            "Zq7xWv:Kj9pLm",
            "Zq7xWv,Kj9pLm",
            "Zq7xWv&Kj9pLm=Xw8vQz",
            "Zq7x/Kj9p?Xw8v#Yt5r@Bh3n",
            "/Zq7xWvKj9pLm",
            "?Zq7xWvKj9pLm",
            "40917/Kj9pLm",
            "40917@Kj9pLm/0",
            "Zq7xWv%zzKj9pLm",
            "Zq7xWv\nKj9pLm",
        ] {
            for url in [
                "redis://:SECRET@cache",
                "redis://bob:SECRET@cache:6379/0",
                "redis+sentinel://bob:SECRET@a,b/main",
                "redis+cluster://bob:SECRET@a,b",
                "redis+unix://bob:SECRET@/run/r.sock",
                "redlock://bob:SECRET@a,b,c",
                "redlock://a:1,bob:SECRET@b,c",
                "redlocks://bob:SECRET@a,bob:SECRET@b",
                "consul://bob:SECRET@agent",
                "consul://agent?token=SECRET",
                "sqlite://bob:SECRET@h/locks.db",
                "sqlite::SECRET@h/locks.db",
                "memory:SECRET@h",
                "bob:SECRET@cache",
                ":SECRET@cache",
            ] {
                let whole = url.replace("SECRET", secret);
                let shown = match SavedConnection::from_url("x", &whole) {
                    Ok((connection, _)) => {
                        let saved = Saved { connections: vec![connection.clone()], ..Saved::default() };
                        saved.text() + &connection.connection().command
                    }
                    Err(error) => error,
                } + &names_for(&whole).join(" ");
                let pieces = secret.as_bytes().windows(4).map(|piece| std::str::from_utf8(piece).unwrap());
                let leaked: Vec<&str> = pieces.filter(|piece| shown.contains(piece)).collect();
                assert_eq!(leaked, [""; 0], "{whole:?}: {shown}");
            }
        }
    }

    #[test]
    fn a_connection_is_called_after_its_hosts_or_its_file() {
        for (url, name) in [
            ("redis://cache", "cache"),
            ("redis://cache:6379/0", "cache:6379"),
            ("redis://bob:s3c#ret@cache:6379/2?prefix=x", "cache:6379 db 2 x"),
            ("redis://cache?db=3", "cache db 3"),
            ("consul://agent?prefix=shop", "agent shop"),
            ("redis+cluster://a,b", "a,b"),
            ("sqlite:/var/lib/locks.db", "locks.db"),
            ("redis://:s3c/ret@cache", "store"),
            ("nonsense", "store"),
        ] {
            assert_eq!(names_for(url)[0], name, "{url}");
        }
        assert_eq!(names_for("sqlite:/var/lib/shop/locks.db")[1], "locks.db in shop");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_why() {
        let one = |rest: &str| format!(r#"{{"version":1,"connections":[{{"name":"a",{rest}}}]}}"#);
        for (text, part) in [
            (one(r#""url":"redis://:s3cret@h""#), "no place for one"),
            (one(r#""url":"redis://h?password=s3cret""#), "holds a secret"),
            (one(r#""url":"nonsense""#), "no scheme"),
            (one(r#""url":"redis://h","every_ms":1"#), "100 to 60000"),
            (one(r#""url":"redis://h","colour":"red""#), "unknown field `colour`"),
            (one(r#""url":"redis://h","secret":{"from":"env","variable":"a b"}"#), "environment variable"),
            (r#"{"version":9}"#.into(), "update this program"),
            (r#"{"filters":[{"name":"f","filter":"state:x"}]}"#.into(), "there is no state"),
            (r#"{"filters":[{"name":"f","filter":""},{"name":"f","filter":""}]}"#.into(), "two filters"),
            ("{".into(), "line 1"),
        ] {
            let error = Saved::parse(&text).unwrap_err();
            assert!(error.contains(part) && !error.contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn production_is_read_only_until_it_is_said_otherwise() {
        let (mut connection, _) = SavedConnection::from_url("p", "redis://h").unwrap();
        assert!(!connection.is_read_only());
        connection.environment = Environment::Production;
        assert!(connection.is_read_only() && connection.connection().read_only);
        connection.read_only = Some(false);
        assert!(!connection.is_read_only());
    }
}
