//! The stores that scenarios are played on, real servers among them.

use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;

/// A kind of store, ready to give out places for runs.
pub struct Store {
    pub name: String,
    /// Whether all actors have to be in one process.
    pub one_process: bool,
    /// It may be missing in a build; then every language has to be without it.
    pub optional: bool,
    place: Place,
}

enum Place {
    Memory,
    Files(TempDir),
    Redis(Box<RedisServer>),
    Several(Vec<RedisServer>),
    Given(String),
}

impl Store {
    fn new(name: &str, place: Place) -> Self {
        let one_process = matches!(place, Place::Memory);
        let optional = matches!(place, Place::Several(_));
        Self { name: name.to_owned(), one_process, optional, place }
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
            "redlock" => Ok(Self::new(name, Place::Several((0..5).map(|_| RedisServer::start()).collect()))),
            _ => Err(format!(
                "there is no store {name:?}; there are memory, sqlite, redis, redlock, and NAME=URL"
            )),
        }
    }

    /// The URL for one run; a file of its own where that costs nothing.
    pub fn url(&self, run: &str) -> String {
        match &self.place {
            Place::Memory => format!("memory:{run}"),
            Place::Files(folder) => format!("sqlite:{}", folder.join(format!("{run}.db")).display()),
            Place::Redis(server) => server.url(),
            Place::Several(servers) => {
                let hosts: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
                format!("redlock://{}", hosts.join(","))
            }
            Place::Given(url) => url.clone(),
        }
    }
}
