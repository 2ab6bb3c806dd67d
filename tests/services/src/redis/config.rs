//! What a server is started with.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{CONTROL_USER, RedisServer, folder};
use crate::tls::{Flaw, TestCa, TlsFiles};

/// Settings of a server; every method adds one, [`start`](RedisBuilder::start) starts it.
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    pub(super) password: Option<String>,
    pub(super) acl_lines: Vec<String>,
    pub(super) tls: Option<Tls>,
    pub(super) unix_only: bool,
    pub(super) append_only: bool,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) is_sentinel: bool,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
    lines: Vec<String>,
}

impl RedisBuilder {
    /// The default user needs this password (`requirepass`).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds an ACL user, written as after `ACL SETUSER`: `alice on >secret ~app:* +@all`.
    /// A line for `default` changes the default user.
    #[must_use]
    pub fn acl_user(mut self, line: &str) -> Self {
        self.acl_lines.push(line.into());
        self
    }

    /// Speaks TLS on its port, and nothing else there.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Listens on the unix socket only; `url()` names it.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_only = true;
        self
    }

    /// Writes and syncs every change before it is answered (`appendonly`, `appendfsync always`).
    /// Without this nothing is kept on disk.
    #[must_use]
    pub fn append_only(mut self) -> Self {
        self.append_only = true;
        self
    }

    /// Has a wall clock that the test moves.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn clock(mut self, clock: &crate::clock::MovableClock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    /// Limits the memory: `max_memory("8mb", "allkeys-lru")`.
    #[must_use]
    pub fn max_memory(self, limit: &str, policy: &str) -> Self {
        self.config(&format!("maxmemory {limit}")).config(&format!("maxmemory-policy {policy}"))
    }

    /// Replicates from the server (or the proxy in front of it) at `primary`.
    #[must_use]
    pub fn replica_of(self, primary: SocketAddr) -> Self {
        self.config(&format!("replicaof {} {}", primary.ip(), primary.port()))
    }

    /// Is a Sentinel, which says who keeps the data of `service` and promotes a replica when half of the
    /// Sentinels that it needs (`quorum`) find its primary silent for `silence`.
    #[must_use]
    pub fn sentinel(mut self, service: &str, primary: SocketAddr, quorum: usize, silence: Duration) -> Self {
        self.is_sentinel = true;
        let (host, port, silence) = (primary.ip(), primary.port(), silence.as_millis());
        self.config(&format!("sentinel monitor {service} {host} {port} {quorum}"))
            .config(&format!("sentinel down-after-milliseconds {service} {silence}"))
    }

    /// Keeps the server's files in this existing folder instead of a temporary one.
    #[must_use]
    pub fn data_dir(mut self, dir: &Path) -> Self {
        self.data_dir = Some(dir.to_owned());
        self
    }

    /// Adds any line of `redis.conf`; it wins over what was set before.
    #[must_use]
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts the server and waits until it answers. Panics with the end of its log.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        match self.try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts the server and waits until it answers.
    pub fn try_start(self) -> Result<RedisServer, StartError> {
        const ATTEMPTS: usize = 5;
        for _ in 1..ATTEMPTS {
            match RedisServer::launch(self.clone()) {
                // Someone was faster at the port: take another one.
                Err(error) if error.port_taken => {}
                other => return other,
            }
        }
        RedisServer::launch(self)
    }

    pub(super) fn needs_control_user(&self) -> bool {
        self.password.is_some() || !self.acl_lines.is_empty()
    }
}

impl RedisServer {
    pub(super) fn config_text(&self) -> String {
        let settings = &self.settings;
        let mut text = String::new();
        let mut line = |directive: &str, value: &str| {
            writeln!(text, "{directive} {value}").expect("a String takes every write");
        };
        let path = |path: &Path| quote(&path.to_string_lossy());
        line("bind", "127.0.0.1");
        line("daemonize", "no");
        line("save", "\"\"");
        // By default a primary waits five seconds for more replicas to join the first transfer.
        line("repl-diskless-sync-delay", "0");
        line("dir", &path(&self.data_dir()));
        line("unixsocket", &path(&self.socket_path()));
        line("unixsocketperm", "700");
        let port = self.port().to_string();
        match (&self.tls, settings.unix_only) {
            (_, true) => line("port", "0"),
            (None, false) => line("port", &port),
            (Some(files), false) => {
                let client_certificate = settings.tls.as_ref().is_some_and(|tls| tls.mutual);
                line("port", "0");
                line("tls-port", &port);
                line("tls-cert-file", &path(&files.cert));
                line("tls-key-file", &path(&files.key));
                line("tls-ca-cert-file", &path(&files.ca));
                line("tls-auth-clients", if client_certificate { "yes" } else { "no" });
            }
        }
        if settings.append_only {
            line("appendonly", "yes");
            line("appendfsync", "always");
        }
        if let Some(password) = &settings.password {
            line("requirepass", &quote(password));
        }
        for acl in &settings.acl_lines {
            line("user", acl);
        }
        if let Some(password) = &self.control_password {
            line("user", &format!("{CONTROL_USER} on >{password} ~* &* +@all"));
        }
        for extra in &settings.lines {
            line(extra, "");
        }
        text
    }
}

/// How a TLS server behaves. Clones share one authority, so that several servers can have one.
#[derive(Debug, Clone)]
pub struct Tls {
    ca: Arc<TestCa>,
    server: Flaw,
    mutual: bool,
}

impl Tls {
    /// A right certificate; clients need none.
    pub fn new() -> Tls {
        Tls { ca: Arc::new(TestCa::new()), server: Flaw::None, mutual: false }
    }

    /// Refuses clients without a certificate from the authority.
    #[must_use]
    pub fn require_client_cert(mut self) -> Tls {
        self.mutual = true;
        self
    }

    /// Presents a certificate with this flaw.
    #[must_use]
    pub fn server_cert(mut self, flaw: Flaw) -> Tls {
        self.server = flaw;
        self
    }

    pub(super) fn write(&self, dir: &Path) -> io::Result<TlsFiles> {
        TlsFiles::write(&folder(dir, "tls")?, &self.ca, self.server)
    }
}

impl Default for Tls {
    fn default() -> Self {
        Tls::new()
    }
}

/// The server did not come up; the text carries the end of its log.
#[derive(Debug)]
pub struct StartError {
    text: String,
    port_taken: bool,
}

impl StartError {
    pub(super) fn not_installed(program: &str) -> StartError {
        StartError {
            text: format!("there is no `{program}` on PATH; `tests/run` installs it"),
            port_taken: false,
        }
    }

    pub(super) fn not_ready(reason: &str, log: &str) -> StartError {
        StartError {
            text: format!("redis-server did not come up: {reason}. Its log ends with:\n{log}"),
            port_taken: log.contains("Address already in use"),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        StartError { text: format!("redis-server could not be started: {error}"), port_taken: false }
    }
}

/// The server program: `redis-server`, or what POLYLATCH_TEST_REDIS_SERVER names.
pub(super) fn program() -> String {
    std::env::var("POLYLATCH_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

pub(super) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Percent-encodes what has a meaning in a URL's user part.
pub(super) fn percent(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// A value of `redis.conf` in double quotes.
fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_with_reserved_characters_survives_the_url() {
        assert_eq!(percent("a:b@c/d é"), "a%3Ab%40c%2Fd%20%C3%A9");
    }

    #[test]
    fn a_missing_server_program_says_how_to_get_it() {
        let error = StartError::not_installed("redis-server").to_string();
        assert!(error.contains("tests/run"), "{error}");
    }
}
