//! What an agent is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ConsulAgent, MANAGEMENT_TOKEN, cached_program};
use crate::tls::{Flaw, TestCa};

/// Settings of an agent; every method adds one, [`start`](AgentBuilder::start) starts it.
#[derive(Debug, Clone)]
pub struct AgentBuilder {
    pub(super) name: String,
    pub(super) acl: bool,
    pub(super) tls: Option<(Arc<TestCa>, Flaw)>,
    pub(super) expect: u32,
    pub(super) on_disk: bool,
    pub(super) is_client: bool,
    pub(super) datacenter: String,
    needs_client_certificate: bool,
    session_ttl_min: Duration,
    connections: u32,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        Self {
            name: "test-node".into(),
            acl: false,
            tls: None,
            expect: 1,
            on_disk: false,
            is_client: false,
            datacenter: "dc1".into(),
            needs_client_certificate: false,
            session_ttl_min: Duration::from_millis(20),
            connections: 4_000,
        }
    }
}

impl AgentBuilder {
    /// Names the node.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Puts it into a datacenter of this name.
    #[must_use]
    pub fn datacenter(mut self, name: &str) -> Self {
        self.datacenter = name.into();
        self
    }

    /// Denies what no token allows; [`MANAGEMENT_TOKEN`] allows everything.
    #[must_use]
    pub fn access_control(mut self) -> Self {
        self.acl = true;
        self
    }

    /// Also speaks HTTPS, on a port of its own.
    #[must_use]
    pub fn tls(mut self, ca: &Arc<TestCa>, flaw: Flaw) -> Self {
        self.tls = Some((Arc::clone(ca), flaw));
        self
    }

    /// Refuses HTTPS clients without a certificate of the CA.
    #[must_use]
    pub fn needs_client_certificate(mut self) -> Self {
        self.needs_client_certificate = true;
        self
    }

    /// The shortest session TTL that the server takes; 20 ms unless this says otherwise.
    #[must_use]
    pub fn session_ttl_min(mut self, least: Duration) -> Self {
        self.session_ttl_min = least;
        self
    }

    /// How many connections one host may have; Consul's own default is 200.
    #[must_use]
    pub fn connections(mut self, most: u32) -> Self {
        self.connections = most;
        self
    }

    /// Keeps its data on disk, so that it can be started again with them.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// An agent that is no server: as on the hosts of applications, it passes requests on.
    pub(super) fn client(mut self) -> Self {
        self.is_client = true;
        self
    }

    /// One of this many servers.
    pub(super) fn expecting(mut self, servers: u32) -> Self {
        self.expect = servers;
        self
    }
}

impl ConsulAgent {
    pub(super) fn config_text(&self, join: &[SocketAddr]) -> String {
        let settings = &self.settings;
        let socket = self.dir.join("http.sock");
        let mut lines = vec![
            format!("\"node_name\":\"{}\",\"datacenter\":\"{}\"", settings.name, settings.datacenter),
            format!(
                "\"server\":{},\"bind_addr\":\"127.0.0.1\",\"client_addr\":\"127.0.0.1\"",
                !settings.is_client
            ),
            format!("\"addresses\":{{\"http\":\"127.0.0.1 unix://{}\"}}", socket.display()),
            format!(
                "\"ports\":{{\"http\":{},\"https\":{},\"server\":{},\"serf_lan\":{},\"serf_wan\":{},\"dns\":-1,\"grpc\":-1}}",
                self.http.number(),
                self.https.as_ref().map_or(-1, |port| i32::from(port.number())),
                self.server.number(),
                self.serf[0].number(),
                self.serf[1].number()
            ),
            format!("\"session_ttl_min\":\"{}ms\"", settings.session_ttl_min.as_millis()),
            format!("\"limits\":{{\"http_max_conns_per_client\":{}}}", settings.connections),
            // Timing as for production servers of Consul's own default would elect slowly.
            "\"performance\":{\"raft_multiplier\":1},\"disable_update_check\":true,\"log_level\":\"warn\""
                .to_owned(),
        ];
        if !settings.is_client && (settings.expect > 1 || settings.on_disk) {
            lines.push(format!("\"bootstrap_expect\":{}", settings.expect));
        }
        if !join.is_empty() {
            let all: Vec<_> = join.iter().map(|address| format!("\"{address}\"")).collect();
            lines.push(format!("\"retry_join\":[{}],\"retry_interval\":\"1s\"", all.join(",")));
        }
        if settings.acl {
            lines.push(format!(
                "\"acl\":{{\"enabled\":true,\"default_policy\":\"deny\",\"tokens\":{{\"master\":\"{MANAGEMENT_TOKEN}\",\"agent\":\"{MANAGEMENT_TOKEN}\"}}}}"
            ));
        }
        if let Some(files) = &self.tls {
            lines.push(format!(
                "\"ca_file\":\"{}\",\"cert_file\":\"{}\",\"key_file\":\"{}\",\"verify_incoming_https\":{}",
                files.ca.display(),
                files.cert.display(),
                files.key.display(),
                settings.needs_client_certificate
            ));
        }
        format!("{{{}}}", lines.join(","))
    }
}

/// The `consul` program: the one that `POLYLATCH_TEST_CONSUL` names, on PATH, or in the tests' cache.
pub fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("POLYLATCH_TEST_CONSUL").filter(|named| !named.is_empty()) {
        return PathBuf::from(named);
    }
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("consul").is_file()));
    match cached_program() {
        Some(cached) if !on_path => cached,
        _ => PathBuf::from("consul"),
    }
}
