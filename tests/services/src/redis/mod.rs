//! A real `redis-server` per test.

mod cluster;
mod config;
mod service;

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::port::ReservedPort;
use crate::resp::{Client, Reply};
use crate::tls::TlsFiles;
use crate::wait::poll;
use crate::{TempDir, proc};

pub use cluster::Cluster;
pub use config::{RedisBuilder, StartError, Tls};
pub use service::{Service, ServiceBuilder};

/// How long a server may take to answer PING, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(15);
/// The user behind [`RedisServer::command`] where the default user needs a password.
const CONTROL_USER: &str = "test-control";

/// A running server on 127.0.0.1, gone with its value.
///
/// Every method takes `&self`: one thread may hurt the server while others use it.
#[derive(Debug)]
pub struct RedisServer {
    settings: RedisBuilder,
    control_password: Option<String>,
    port: ReservedPort,
    tls: Option<TlsFiles>,
    child: Mutex<Option<Child>>,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a plain server: no password, nothing kept on disk. Panics with the server's log.
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// Describes a server to start.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    fn launch(settings: RedisBuilder) -> Result<RedisServer, StartError> {
        let dir = TempDir::try_new()?;
        let tls = match &settings.tls {
            Some(tls) => Some(tls.write(dir.path())?),
            None => None,
        };
        let control_password = match settings.needs_control_user() {
            true => Some(config::random_hex()?),
            false => None,
        };
        let server = RedisServer {
            port: ReservedPort::new()?,
            settings,
            control_password,
            tls,
            child: Mutex::new(None),
            dir,
        };
        fs::create_dir_all(server.data_dir())?;
        fs::write(server.dir.join("redis.conf"), server.config_text())?;
        server.run(&mut server.child())?;
        Ok(server)
    }

    /// The address a client of the settings chosen dials: `redis://`, `rediss://` or
    /// `redis+unix://`, with the password if one is set. For ACL users see [`url_as`](Self::url_as).
    pub fn url(&self) -> String {
        match self.settings.unix_only {
            true => self.unix_url(),
            false => self.url_through(self.address()),
        }
    }

    /// The same by way of `address`: that of a [`Proxy`](crate::proxy::Proxy) in front of it.
    pub fn url_through(&self, address: SocketAddr) -> String {
        let password = self.settings.password.as_deref().map(config::percent);
        let userinfo = password.map_or(String::new(), |password| format!(":{password}@"));
        format!("{}://{userinfo}{address}", self.scheme())
    }

    /// The TCP address for a named user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (user, password) = (config::percent(user), config::percent(password));
        format!("{}://{user}:{password}@{}", self.scheme(), self.address())
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "rediss" } else { "redis" }
    }

    /// The unix socket as URL. The socket exists whatever the settings.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket_path().display())
    }

    /// The unix socket, there whatever the settings.
    pub fn socket_path(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    /// The TCP port (the TLS port of a TLS server); the same after every restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The TCP address; what a [`Proxy`](crate::proxy::Proxy) forwards to.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The certificates of a TLS server. Panics for a server without TLS.
    #[track_caller]
    pub fn tls(&self) -> &TlsFiles {
        match &self.tls {
            Some(files) => files,
            None => panic!("this server was started without TLS"),
        }
    }

    /// Where the server keeps its files.
    pub fn data_dir(&self) -> PathBuf {
        match &self.settings.data_dir {
            Some(dir) => dir.clone(),
            None => self.dir.join("data"),
        }
    }

    /// The id of the running process. Panics while the server is stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &*self.child() {
            Some(child) => child.id(),
            None => panic!("the server is stopped"),
        }
    }

    /// Whether the process runs; a paused one does.
    pub fn is_running(&self) -> bool {
        match &mut *self.child() {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// Sends one command over the unix socket, with all rights, on a connection of its own.
    ///
    /// The answer may be an error from the server; a failure to talk to it panics.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> Reply {
        match self.try_command(words) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply from the server: {error}\n{}", self.log_tail()),
        }
    }

    /// The same, for a server that may be down or silent (gives up after five seconds).
    pub fn try_command<A: AsRef<[u8]>>(&self, words: &[A]) -> io::Result<Reply> {
        self.connect()?.command(words)
    }

    /// A connection over the unix socket, with all rights.
    pub fn connect(&self) -> io::Result<Client> {
        let mut client = Client::unix(&self.socket_path())?;
        if let Some(password) = &self.control_password {
            let reply = client.command(&["AUTH", CONTROL_USER, password])?;
            if let Some(error) = reply.error() {
                return Err(io::Error::other(error.to_owned()));
            }
        }
        Ok(client)
    }

    /// Stops the server in good order (SIGTERM) and waits for its end.
    pub fn stop(&self) {
        let mut slot = self.child();
        let Some(child) = &mut *slot else { return };
        if matches!(child.try_wait(), Ok(None)) {
            proc::resume(child.id());
            proc::terminate(child.id());
        }
        if poll(PATIENCE, || child.try_wait().transpose()).is_none() {
            eprintln!("redis-server {} ignored SIGTERM, killing it", child.id());
        }
        end(&mut slot);
    }

    /// Kills the server (SIGKILL) and waits for its end; what was not on disk is lost.
    pub fn kill(&self) {
        end(&mut self.child());
    }

    /// Stops the process where it stands (SIGSTOP). Connections stay open and silent.
    #[track_caller]
    pub fn pause(&self) {
        proc::pause(self.pid());
    }

    /// Lets a paused server continue (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    /// Kills the server if it runs, and starts it again on the same port with its data.
    ///
    /// With an append-only file that is what a crash leaves behind. A server without persistence
    /// writes a snapshot first, if it is still able to answer; one that was stopped or killed
    /// before comes back empty.
    #[track_caller]
    pub fn restart_with_data(&self) {
        if !self.settings.append_only && self.is_running() {
            let saved = self.command(&["SAVE"]);
            assert!(saved.is_ok(), "no snapshot before the restart: {saved:?}");
        }
        self.kill();
        self.start_again();
    }

    /// Kills the server if it runs, removes its data and starts it again on the same port.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        // The folder itself stays: it may be a mount point.
        let entries = fs::read_dir(self.data_dir()).expect("the data folder is ours");
        for path in entries.flatten().map(|entry| entry.path()) {
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.unwrap_or_else(|error| panic!("{} stays: {error}", path.display()));
        }
        self.start_again();
    }

    /// Starts a stopped or killed server on its port, with the data it left. Panics with the
    /// server's log if it does not come up.
    #[track_caller]
    pub fn start_again(&self) {
        let running = self.is_running();
        let mut slot = self.child();
        if !running {
            // It may have ended by itself; then it still has to be waited for.
            end(&mut slot);
        }
        assert!(slot.is_none(), "the server is still running");
        if let Err(error) = self.run(&mut slot) {
            drop(slot);
            panic!("{error}");
        }
    }

    /// The last lines the server wrote, over all restarts.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("redis.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Starts the process and waits until it answers PING.
    fn run(&self, slot: &mut Option<Child>) -> Result<(), StartError> {
        let log = File::options().create(true).append(true).open(self.dir.join("redis.log"))?;
        let program = config::program();
        let mut command = Command::new(&program);
        command
            .arg(self.dir.join("redis.conf"))
            .args(self.settings.is_sentinel.then_some("--sentinel"))
            .envs(self.settings.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // A socket left by a killed server would be taken for the new one's.
        let _ = fs::remove_file(self.socket_path());
        let child = crate::child::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StartError::not_installed(&program),
            _ => error.into(),
        })?;
        let child = slot.insert(child);
        let mut last = String::from("it never accepted a connection");
        let ready = poll(PATIENCE, || {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(Err(format!("it ended: {status}")));
            }
            match self.try_command(&["PING"]) {
                Ok(Reply::Simple(pong)) if pong == "PONG" => Some(Ok(())),
                // LOADING, or a failed handshake: the reason counts if it never gets better.
                Ok(other) => {
                    last = format!("it answers PING with {other:?}");
                    None
                }
                Err(error) => {
                    last = format!("it does not answer PING: {error}");
                    None
                }
            }
        });
        match ready.unwrap_or(Err(last)) {
            Ok(()) => Ok(()),
            Err(reason) => {
                end(slot);
                Err(StartError::not_ready(&reason, &self.log_tail()))
            }
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A panicking assertion elsewhere must not keep the server alive.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills and reaps; a process that is gone already is fine.
fn end(slot: &mut Option<Child>) {
    if let Some(mut child) = slot.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder under `dir`, made if it is missing.
fn folder(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let path = dir.join(name);
    fs::create_dir_all(&path)?;
    Ok(path)
}
