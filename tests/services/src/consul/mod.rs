//! A real Consul agent per test, or three servers that elect a leader.
//!
//! The program is `consul` on PATH, or where `tests/provision.sh` puts it.

mod config;
mod intercept;

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::http::{self, Answer};
use crate::port::ReservedPort;
use crate::tls::TlsFiles;
use crate::wait::{poll, wait_for, wait_until};
use crate::{TempDir, proc};

pub use config::{AgentBuilder, program};
pub use intercept::{Fate, Interceptor};

/// How long an agent may take to answer with a leader, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token with all rights of an agent that was started with access control.
pub const MANAGEMENT_TOKEN: &str = "0b3f6a5c-7d1e-4c2b-9a8f-112233445566";

/// A running agent on 127.0.0.1, gone with its value.
///
/// Every method takes `&self`: one thread may hurt the agent while others use it.
#[derive(Debug)]
pub struct ConsulAgent {
    settings: AgentBuilder,
    http: ReservedPort,
    https: Option<ReservedPort>,
    server: ReservedPort,
    serf: [ReservedPort; 2],
    tls: Option<TlsFiles>,
    child: Mutex<Option<Child>>,
    dir: TempDir,
}

impl ConsulAgent {
    /// Starts a server of its own that keeps nothing on disk and takes sessions of any length.
    /// Panics with the agent's log.
    #[track_caller]
    pub fn start() -> ConsulAgent {
        ConsulAgent::builder().start()
    }

    /// Describes an agent to start.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    fn prepare(settings: AgentBuilder) -> io::Result<ConsulAgent> {
        let dir = TempDir::try_new()?;
        let tls = match &settings.tls {
            Some((ca, flaw)) => Some(TlsFiles::write(dir.path(), ca, *flaw)?),
            None => None,
        };
        let https = if tls.is_some() { Some(ReservedPort::new()?) } else { None };
        fs::create_dir_all(dir.join("data"))?;
        Ok(ConsulAgent {
            settings,
            http: ReservedPort::new()?,
            https,
            server: ReservedPort::new()?,
            serf: [ReservedPort::new()?, ReservedPort::new()?],
            tls,
            child: Mutex::new(None),
            dir,
        })
    }

    /// The address that a client dials, in plain HTTP.
    pub fn url(&self) -> String {
        self.url_through(self.address())
    }

    /// The same by way of `address`: that of a [`Proxy`](crate::proxy::Proxy) in front of it.
    pub fn url_through(&self, address: SocketAddr) -> String {
        format!("consul://{address}")
    }

    /// The address of the HTTPS port, by the name in the certificate.
    #[track_caller]
    pub fn tls_url(&self) -> String {
        match &self.https {
            Some(port) => format!("consul+https://localhost:{}", port.number()),
            None => panic!("this agent was started without TLS"),
        }
    }

    pub fn unix_url(&self) -> String {
        format!("consul+unix://{}", self.dir.join("http.sock").display())
    }

    /// The HTTP address; the same after every restart.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The certificates. Panics for an agent without TLS.
    #[track_caller]
    pub fn tls(&self) -> &TlsFiles {
        match &self.tls {
            Some(files) => files,
            None => panic!("this agent was started without TLS"),
        }
    }

    /// Where other servers of the cluster find it.
    fn serf_address(&self) -> SocketAddr {
        self.serf[0].address()
    }

    /// The address under which the servers name it as leader.
    pub fn server_address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The id of the running process. Panics while the agent is stopped.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &*self.child() {
            Some(child) => child.id(),
            None => panic!("the agent is stopped"),
        }
    }

    /// Sends one request with all rights. Panics if there is no answer.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        match self.try_ask(method, target, body) {
            Ok(answer) => answer,
            Err(error) => panic!("no answer from the agent: {error}\n{}", self.log_tail()),
        }
    }

    /// The same, for an agent that may be down or silent (gives up after ten seconds).
    pub fn try_ask(&self, method: &str, target: &str, body: &str) -> io::Result<Answer> {
        let token = match self.settings.acl {
            true => vec![format!("X-Consul-Token: {MANAGEMENT_TOKEN}")],
            false => Vec::new(),
        };
        http::request(self.address(), method, target, &token, body)
    }

    /// The `consul` program, pointed at this agent.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(words)
            .env("CONSUL_HTTP_ADDR", self.address().to_string())
            .env_remove("CONSUL_HTTP_TOKEN");
        if self.settings.acl {
            command.env("CONSUL_HTTP_TOKEN", MANAGEMENT_TOKEN);
        }
        command
    }

    /// Starts the `consul` program so that it cannot outlive the test process.
    pub fn spawn(&self, words: &[&str]) -> io::Result<Child> {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        crate::child::spawn(command)
    }

    /// Makes an ACL token with these rules; returns its secret.
    #[track_caller]
    pub fn token(&self, name: &str, rules: &str) -> String {
        let rules = rules.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ");
        let policy = format!("{{\"Name\":\"{name}\",\"Rules\":\"{rules}\"}}");
        let made = self.ask("PUT", "/v1/acl/policy", &policy);
        assert!(made.is_ok(), "no policy: {made:?}");
        let token = self.ask("PUT", "/v1/acl/token", &format!("{{\"Policies\":[{{\"Name\":\"{name}\"}}]}}"));
        assert!(token.is_ok(), "no token: {token:?}");
        field(&token.body, "SecretID").expect("a token has a secret")
    }

    /// Makes the datacenter of another server reachable by way of this one, and the other way round.
    #[track_caller]
    pub fn federate(&self, other: &ConsulAgent) {
        let joined = self.ask("PUT", &format!("/v1/agent/join/{}?wan=1", other.serf[1].address()), "");
        assert!(joined.is_ok(), "no way to the other datacenter: {joined:?}");
        let there = format!("/v1/status/leader?dc={}", other.settings.datacenter);
        wait_until("a way to the other datacenter", PATIENCE, || {
            self.try_ask("GET", &there, "").is_ok_and(|answer| answer.is_ok() && answer.body.contains(':'))
        });
    }

    /// The name of the agent's node.
    pub fn node(&self) -> String {
        self.settings.name.clone()
    }

    /// Kills the agent (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        end(&mut self.child());
    }

    /// Stops the process where it stands (SIGSTOP). Connections stay open and silent.
    #[track_caller]
    pub fn pause(&self) {
        proc::pause(self.pid());
    }

    /// Lets a paused agent continue (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        proc::resume(self.pid());
    }

    /// Starts a killed agent again, on the same ports, with what it had on disk. Does not wait.
    #[track_caller]
    pub fn start_again(&self) {
        let mut slot = self.child();
        assert!(slot.is_none(), "the agent is still running");
        if let Err(error) = self.run(&mut slot, &[]) {
            panic!("{error}");
        }
    }

    /// Waits until it answers, and knows a leader.
    #[track_caller]
    pub fn wait_for_leader(&self) {
        let ready = poll(PATIENCE, || {
            let session =
                self.try_ask("PUT", "/v1/session/create", "{\"TTL\":\"10s\",\"NodeChecks\":[]}").ok()?;
            let id = field(&session.body, "ID").filter(|_| session.is_ok())?;
            let _ = self.try_ask("PUT", &format!("/v1/session/destroy/{id}"), "");
            Some(())
        });
        assert!(ready.is_some(), "the agent has no leader:\n{}", self.log_tail());
    }

    /// Whether it says of itself that it leads.
    pub fn leads(&self) -> bool {
        self.try_ask("GET", "/v1/status/leader", "")
            .is_ok_and(|answer| answer.body.trim().trim_matches('"') == self.server_address().to_string())
    }

    /// The last lines the agent wrote, over all restarts.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.dir.join("consul.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn run(&self, slot: &mut Option<Child>, join: &[SocketAddr]) -> io::Result<()> {
        let file = self.dir.join("agent.json");
        if !file.exists() {
            fs::write(&file, self.config_text(join))?;
        }
        let log = File::options().create(true).append(true).open(self.dir.join("consul.log"))?;
        let mut command = Command::new(program());
        command.arg("agent");
        if self.settings.expect == 1 && !self.settings.on_disk && !self.settings.is_client {
            command.arg("-dev");
        } else {
            command.arg(format!("-data-dir={}", self.dir.join("data").display()));
        }
        command
            .arg(format!("-config-file={}", file.display()))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let _ = fs::remove_file(self.dir.join("http.sock"));
        let child = crate::child::spawn(command).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "there is no consul program: put one on PATH, or let tests/provision.sh fetch it (need_consul)",
            ),
            _ => error,
        })?;
        *slot = Some(child);
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A panicking assertion elsewhere must not keep the agent alive.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentBuilder {
    /// Starts the agent and waits until it has a leader. Panics with the agent's log.
    #[track_caller]
    pub fn start(self) -> ConsulAgent {
        let agent = ConsulAgent::prepare(self).unwrap_or_else(|error| panic!("{error}"));
        if let Err(error) = agent.run(&mut agent.child(), &[]) {
            panic!("{error}");
        }
        agent.wait_for_leader();
        agent
    }
}

/// Three servers, one of which leads.
#[derive(Debug)]
pub struct Cluster {
    pub servers: Vec<ConsulAgent>,
}

impl Cluster {
    /// Starts them and waits for an election.
    #[track_caller]
    pub fn start() -> Cluster {
        let servers: Vec<_> = (0..3)
            .map(|number| {
                let settings = ConsulAgent::builder().named(&format!("server-{number}")).expecting(3);
                ConsulAgent::prepare(settings).unwrap_or_else(|error| panic!("{error}"))
            })
            .collect();
        let all: Vec<_> = servers.iter().map(ConsulAgent::serf_address).collect();
        for server in &servers {
            server.run(&mut server.child(), &all).unwrap_or_else(|error| panic!("{error}"));
        }
        let cluster = Cluster { servers };
        for server in &cluster.servers {
            server.wait_for_leader();
        }
        cluster
    }

    /// Starts an agent that passes requests on to whichever server leads, as on the hosts of applications.
    #[track_caller]
    pub fn client_agent(&self) -> ConsulAgent {
        let settings = ConsulAgent::builder().named("client").client();
        let agent = ConsulAgent::prepare(settings).unwrap_or_else(|error| panic!("{error}"));
        let all: Vec<_> = self.servers.iter().map(ConsulAgent::serf_address).collect();
        agent.run(&mut agent.child(), &all).unwrap_or_else(|error| panic!("{error}"));
        agent.wait_for_leader();
        agent
    }

    /// The server that leads. Waits for an election.
    #[track_caller]
    pub fn leader(&self) -> &ConsulAgent {
        wait_for("a leader", PATIENCE, || self.servers.iter().find(|server| server.leads()))
    }

    /// A server that does not lead.
    #[track_caller]
    pub fn follower(&self) -> &ConsulAgent {
        let leader = self.leader().server_address();
        self.servers.iter().find(|server| server.server_address() != leader).expect("two follow")
    }

    /// Kills the leader and waits until the others have elected another. Returns the killed one.
    #[track_caller]
    pub fn kill_leader(&self) -> &ConsulAgent {
        let leader = self.leader();
        leader.kill();
        let others =
            || self.servers.iter().filter(|server| server.server_address() != leader.server_address());
        wait_until("another leader", PATIENCE, || others().any(ConsulAgent::leads));
        leader
    }
}

/// Kills and reaps; a process that is gone already is fine.
fn end(slot: &mut Option<Child>) {
    if let Some(mut child) = slot.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for ConsulAgent {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A text field of a flat JSON answer.
pub fn field(json: &str, name: &str) -> Option<String> {
    let (_, after) = json.split_once(&format!("\"{name}\""))?;
    let after = after.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Some(after.split('"').next()?.to_owned())
}

/// Where the program is when it is not on PATH.
fn cached_program() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("polylatch-tests/consul")).filter(|path| path.exists())
}
