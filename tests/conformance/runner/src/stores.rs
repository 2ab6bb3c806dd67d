//! The stores that scenarios are played on, real servers among them.

use std::time::Duration;

use polylatch_test_services::TempDir;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::etcd::EtcdMember;
use polylatch_test_services::mariadb::MariadbServer;
use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::redis::{Cluster, RedisServer, Service};
use polylatch_test_services::zookeeper::ZooKeeper;

/// Played without being asked for.
pub const BY_DEFAULT: [&str; 5] = ["memory", "sqlite", "redis", "redlock", "consul"];

/// Played where they are asked for: the same scripts as on a single Redis, found in another way, and stores of which some
/// scenarios tell whether a package has them.
const BY_NAME: [&str; 6] = ["sentinel", "cluster", "postgres", "mariadb", "etcd", "zookeeper"];

/// Scenarios are about locks; a machine that is busy should not cause promotions.
const UNDISTURBED: Duration = Duration::from_secs(10);

/// Nor should it cost a lock or a request: a first lease lasts until its holder gets to run, and a server may answer late,
/// however many processes start meanwhile.
const PATIENT: &str = "provisional=10s&timeout=30s";

/// A kind of store, ready to give out places for runs.
pub struct Store {
    pub name: String,
    /// Whether all actors have to be in one process.
    pub one_process: bool,
    place: Place,
}

enum Place {
    Memory,
    Files(TempDir),
    Redis(Box<RedisServer>),
    Several(Vec<RedisServer>),
    Service(Box<Service>),
    Cluster(Box<Cluster>),
    Consul(Box<ConsulAgent>),
    Postgres(Box<PostgresServer>),
    Mariadb(Box<MariadbServer>),
    Etcd(Box<EtcdMember>),
    ZooKeeper(Box<ZooKeeper>),
    Given(String),
}

impl Store {
    fn new(name: &str, place: Place) -> Self {
        let one_process = matches!(place, Place::Memory);
        Self { name: name.to_owned(), one_process, place }
    }

    /// Starts what the named store needs; `NAME=URL` is a store that runs already.
    pub fn start(name: &str) -> Result<Self, String> {
        if let Some((name, url)) = name.split_once('=') {
            return Ok(Self::new(name, Place::Given(url.to_owned())));
        }
        match name {
            "memory" => Ok(Self::new(name, Place::Memory)),
            "sqlite" => {
                let folder = TempDir::try_new().map_err(|error| error.to_string())?;
                Ok(Self::new(name, Place::Files(folder)))
            }
            "redis" => Ok(Self::new(name, Place::Redis(Box::new(RedisServer::start())))),
            "redlock" => Ok(Self::new(name, Place::Several((0..3).map(|_| RedisServer::start()).collect()))),
            "sentinel" => {
                let service = Service::with_replicas(1).silence(UNDISTURBED).start();
                Ok(Self::new(name, Place::Service(Box::new(service))))
            }
            "cluster" => Ok(Self::new(name, Place::Cluster(Box::new(Cluster::start())))),
            "consul" => Ok(Self::new(name, Place::Consul(Box::new(ConsulAgent::start())))),
            "postgres" => Ok(Self::new(name, Place::Postgres(Box::new(PostgresServer::start())))),
            "mariadb" => Ok(Self::new(name, Place::Mariadb(Box::new(MariadbServer::start())))),
            "etcd" => Ok(Self::new(name, Place::Etcd(Box::new(EtcdMember::start())))),
            "zookeeper" => Ok(Self::new(name, Place::ZooKeeper(Box::new(ZooKeeper::start())))),
            _ => {
                let all = [&BY_DEFAULT[..], &BY_NAME].concat();
                Err(format!("there is no store {name:?}; there are {}, and NAME=URL", all.join(", ")))
            }
        }
    }

    /// The URL for one run; a file of its own where that costs nothing.
    pub fn url(&self, run: &str) -> String {
        let url = match &self.place {
            Place::Memory => format!("memory:{run}"),
            Place::Files(folder) => format!("sqlite:{}", folder.join(format!("{run}.db")).display()),
            Place::Redis(server) => server.url(),
            Place::Several(servers) => {
                let hosts: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
                format!("redlock://{}", hosts.join(","))
            }
            Place::Service(service) => service.url(),
            Place::Cluster(cluster) => cluster.url(),
            // The agent takes sessions of any length, so that scenarios with short leases can be played.
            Place::Consul(agent) => format!("{}?session_ttl_min=100ms&lock_delay=1s", agent.url()),
            Place::Postgres(server) => server.url(),
            Place::Mariadb(server) => server.url(),
            Place::Etcd(server) => server.url(),
            Place::ZooKeeper(server) => server.url(),
            Place::Given(url) => return url.clone(),
        };
        format!("{url}{}{PATIENT}", if url.contains('?') { '&' } else { '?' })
    }
}
