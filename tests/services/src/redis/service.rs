//! A primary, its replicas, and three Sentinels that promote one of them.

use std::time::{Duration, Instant};

use super::RedisServer;
use super::config::{Tls, percent};
use crate::Reply;
use crate::proxy::Proxy;
use crate::wait::{poll, wait_until};

/// How the Sentinels call it.
const NAME: &str = "locks";
const SENTINELS: usize = 3;
/// For how long a primary usually has to be silent.
const SILENCE: Duration = Duration::from_millis(500);
/// They elect who promotes by chance, and begin anew when that led to nothing.
const PATIENCE: Duration = Duration::from_secs(90);
/// Longer than most tests: by then the Sentinels correct where a replica replicates from. Half of the
/// time after which they try a failed promotion again.
const FAILOVER: Duration = Duration::from_secs(180);
/// What Sentinels do every ten or two seconds is done more often, and an election that nobody won, or a
/// machine that was busy for two seconds (`TILT`), costs less.
const FASTER: [&str; 8] =
    ["info-period", "500", "publish-period", "500", "election-timeout", "3000", "tilt-period", "1000"];

/// Settings of a service.
#[derive(Debug, Clone, Default)]
pub struct ServiceBuilder {
    replicas: usize,
    password: Option<String>,
    sentinel_password: Option<String>,
    lines: Vec<String>,
    failover: Option<Duration>,
    silence: Option<Duration>,
    tls: Option<Tls>,
}

impl ServiceBuilder {
    /// The servers need this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The Sentinels need this password.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Adds a line to the configuration of every server.
    #[must_use]
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.into());
        self
    }

    /// How long the Sentinels give a promotion (`failover-timeout`), half of the time after which they try
    /// a failed one again, and for how long they let a replica replicate from where they did not send it.
    #[must_use]
    pub fn failover_timeout(mut self, limit: Duration) -> Self {
        self.failover = Some(limit);
        self
    }

    /// For how long a primary has to be silent before it is replaced (`down-after-milliseconds`).
    #[must_use]
    pub fn silence(mut self, least: Duration) -> Self {
        self.silence = Some(least);
        self
    }

    /// Servers and Sentinels speak TLS, also to each other; all have certificates of one authority.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts everything, and waits until the Sentinels know each other and the replicas.
    #[track_caller]
    pub fn start(self) -> Service {
        let server = || {
            let mut builder = RedisServer::builder();
            if let Some(password) = &self.password {
                builder = builder.password(password).config(&format!("masterauth {password}"));
            }
            if let Some(tls) = &self.tls {
                builder = builder.tls(tls.clone()).config("tls-replication yes");
            }
            self.lines.iter().fold(builder, |builder, line| builder.config(line))
        };
        let primary = server().start();
        let mut links = Vec::new();
        let mut servers = Vec::new();
        for _ in 0..self.replicas {
            let link = Proxy::start_raw(primary.address());
            servers.push(server().replica_of(link.address()).start());
            links.push(link);
        }
        let at = primary.address();
        servers.insert(0, primary);
        let sentinels = (0..SENTINELS).map(|_| {
            let failover = self.failover.unwrap_or(FAILOVER).as_millis();
            let mut builder = RedisServer::builder()
                .sentinel(NAME, at, SENTINELS / 2 + 1, self.silence.unwrap_or(SILENCE))
                .config(&format!("sentinel failover-timeout {NAME} {failover}"));
            if let Some(tls) = &self.tls {
                builder = builder.tls(tls.clone()).config("tls-replication yes");
            }
            if let Some(password) = &self.password {
                builder = builder.config(&format!("sentinel auth-pass {NAME} {password}"));
            }
            if let Some(password) = &self.sentinel_password {
                builder = builder.password(password).config(&format!("sentinel sentinel-pass {password}"));
            }
            let sentinel = builder.start();
            // Before Redis 7.0 these times are fixed, and all takes longer.
            let _ = sentinel.command(&[&["SENTINEL", "DEBUG"][..], &FASTER].concat());
            sentinel
        });
        let service = Service { sentinels: sentinels.collect(), servers, links, settings: self };
        service.wait_until_known();
        service
    }
}

/// A service that is up; gone with its value.
#[derive(Debug)]
pub struct Service {
    /// The servers; the first one was started as primary.
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<RedisServer>,
    /// What each replica's data passes on its way from the first primary.
    pub links: Vec<Proxy>,
    settings: ServiceBuilder,
}

impl Service {
    /// Describes a service with so many replicas.
    pub fn with_replicas(replicas: usize) -> ServiceBuilder {
        ServiceBuilder { replicas, ..ServiceBuilder::default() }
    }

    /// The address that a client dials, without options.
    pub fn url(&self) -> String {
        let login = self.settings.password.as_deref().map(percent);
        self.url_as(&login.map_or(String::new(), |password| format!(":{password}@")))
    }

    /// The same with another `user:password@`.
    pub fn url_as(&self, login: &str) -> String {
        let places: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        let scheme = if self.settings.tls.is_some() { "rediss+sentinel" } else { "redis+sentinel" };
        format!("{scheme}://{login}{}/{NAME}", places.join(","))
    }

    /// The server that is primary by its own word.
    #[track_caller]
    pub fn primary(&self) -> &RedisServer {
        let named = self.named().expect("a Sentinel that answers");
        self.servers.iter().find(|server| server.port() == named).expect("one of our servers")
    }

    /// Waits until the Sentinels name another primary than `before`, and it accepts writes.
    #[track_caller]
    pub fn wait_for_promotion(&self, before: &RedisServer) -> &RedisServer {
        let port = poll(PATIENCE, || self.named().filter(|port| *port != before.port()));
        let port = port.unwrap_or_else(|| {
            panic!("the Sentinels promote nobody; {:?}:\n{}", self.last_words(), self.views())
        });
        let promoted = self.servers.iter().find(|server| server.port() == port).expect("one of our servers");
        wait_until("the promoted server to accept writes", PATIENCE, || is_primary(promoted));
        promoted
    }

    /// Lets the other of two servers replicate from the present primary, by way of the first link, and waits
    /// until all Sentinels would promote it. A server that was killed is started again, empty; a paused one
    /// has to be resumed before. Returns the primary, which may have changed once more meanwhile: on a busy
    /// machine, a server is easily silent for too long.
    #[track_caller]
    pub fn rejoin(&self) -> &RedisServer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let present = self.primary();
            let other = self.servers.iter().find(|server| server.port() != present.port());
            let other = other.expect("a service of two servers");
            if !other.is_running() {
                other.start_again();
            }
            self.follow(other, present);
            let settled = || {
                let taken = self.sentinels.iter().all(|sentinel| takes_for_replica(sentinel, other.port()));
                let changed = self.named() != Some(present.port());
                (changed || (taken && is_primary(present))).then_some(!changed)
            };
            match poll(deadline.saturating_duration_since(Instant::now()), settled) {
                Some(true) => return present,
                Some(false) => {}
                None => panic!("the Sentinels do not settle:\n{}", self.views()),
            }
        }
    }

    fn follow(&self, other: &RedisServer, present: &RedisServer) {
        let link = &self.links[0];
        link.heal();
        link.reset_all();
        link.set_target(present.address());
        for (server, words) in [
            (present, ["REPLICAOF", "NO", "ONE"]),
            (other, ["REPLICAOF", "127.0.0.1", &link.port().to_string()]),
        ] {
            let reply = server.command(&words);
            assert!(reply.is_ok(), "{reply:?}");
        }
    }

    /// The last line that each Sentinel has logged.
    fn last_words(&self) -> Vec<String> {
        let last = |log: String| log.lines().last().unwrap_or_default().to_owned();
        self.sentinels.iter().map(|sentinel| last(sentinel.log_tail())).collect()
    }

    /// What each Sentinel thinks and has done, for people.
    fn views(&self) -> String {
        let views = self.sentinels.iter().map(|sentinel| {
            let master = sentinel.command(&["SENTINEL", "MASTER", NAME]);
            let replicas = sentinel.command(&["SENTINEL", "REPLICAS", NAME]);
            let replicas: Vec<_> = replicas.items().iter().map(Reply::texts).collect();
            format!("{:?}\n{replicas:?}\n{}", master.texts(), sentinel.log_tail())
        });
        views.collect::<Vec<_>>().join("\n\n")
    }

    /// How many promotions the Sentinels have begun; `None` if none of them answers.
    pub fn epoch(&self) -> Option<u64> {
        self.latest().map(|(epoch, _)| epoch)
    }

    /// The port of the primary that the most recent configuration names.
    fn named(&self) -> Option<u16> {
        self.latest().map(|(_, port)| port)
    }

    fn latest(&self) -> Option<(u64, u16)> {
        let words = self.sentinels.iter().filter(|sentinel| sentinel.is_running()).filter_map(|sentinel| {
            let master = sentinel.try_command(&["SENTINEL", "MASTER", NAME]).ok()?;
            let field = |name: &str| {
                let texts = master.texts();
                let at = texts.iter().position(|text| *text == name)?;
                texts.get(at + 1)?.parse::<u64>().ok()
            };
            Some((field("config-epoch")?, u16::try_from(field("port")?).ok()?))
        });
        words.max()
    }

    #[track_caller]
    fn wait_until_known(&self) {
        let knows = |sentinel: &RedisServer, field: &str, wanted: usize| {
            let master = sentinel.command(&["SENTINEL", "MASTER", NAME]);
            let texts = master.texts();
            let at = texts.iter().position(|text| *text == field);
            at.and_then(|at| texts.get(at + 1)).is_some_and(|text| *text == wanted.to_string())
        };
        let all =
            |field: &str, wanted: usize| self.sentinels.iter().all(|sentinel| knows(sentinel, field, wanted));
        wait_until("the Sentinels to know each other", PATIENCE, || {
            all("num-other-sentinels", SENTINELS - 1)
        });
        wait_until("the Sentinels to know the replicas", PATIENCE, || {
            all("num-slaves", self.servers.len() - 1)
        });
        wait_until("the replicas to have the data", PATIENCE, || {
            self.servers[1..].iter().all(|replica| {
                let info = replica.command(&["INFO", "replication"]);
                info.text().is_some_and(|text| text.contains("master_link_status:up"))
            })
        });
    }
}

fn takes_for_replica(sentinel: &RedisServer, port: u16) -> bool {
    let replicas = sentinel.command(&["SENTINEL", "REPLICAS", NAME]);
    replicas.items().iter().any(|replica| {
        let texts = replica.texts();
        let field = |name: &str| {
            let at = texts.iter().step_by(2).position(|text| *text == name)?;
            texts.get(2 * at + 1).copied()
        };
        field("port") == Some(port.to_string().as_str())
            && field("flags") == Some("slave")
            && field("role-reported") == Some("slave")
            && field("master-link-status") == Some("ok")
    })
}

fn is_primary(server: &RedisServer) -> bool {
    server.try_command(&["ROLE"]).is_ok_and(|role| role.texts().first() == Some(&"master"))
}
