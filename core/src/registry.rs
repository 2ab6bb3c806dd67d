//! From a URL to a store: schemes, options, and what a person may see of a URL.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(any(not(target_family = "wasm"), feature = "memory"))]
use crate::backend::memory;
use crate::backend::{Backend, OpenContext, Purpose};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Hosted;
use crate::options::Settings;
use crate::params::take_apart;
use crate::service::Service;
use crate::token::ClientId;
use crate::url_check;
use crate::wakeups::Wakeups;

/// An opened store.
pub(crate) struct Opened {
    pub backend: Arc<dyn Backend>,
    pub settings: Settings,
    /// The URL without its secrets.
    pub display: String,
}

/// Opens the store that a URL names.
#[cfg_attr(
    all(target_family = "wasm", not(feature = "redis"), not(feature = "http")),
    allow(unused_variables, reason = "a page's memory is opened for nothing else, and over nothing")
)]
pub(crate) async fn open(
    url: &str,
    service: &Service,
    wakeups: &Arc<Wakeups>,
    client: &ClientId,
    purpose: Purpose,
    hosted: Hosted,
    clock: &Arc<dyn Clock>,
) -> Result<Opened> {
    let Some((scheme, target, mut params)) = take_apart(url)? else { return Err(unknown_scheme(url)) };
    #[cfg(any(feature = "http", feature = "zookeeper"))]
    let own_provisional = params.has("provisional");
    let settings = Settings::from_params(&mut params)?;
    let context = OpenContext {
        wakeups: Arc::clone(wakeups),
        runtime: service.handle().clone(),
        client: client.clone(),
        timeout: settings.timeout,
        clock: Arc::clone(clock),
    };
    // The clocks of servers and of other processes go on.
    #[cfg(not(target_family = "wasm"))]
    if scheme != "memory" && clock.reached(clock.now()).is_some() {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the store {scheme}: has a clock of its own, which goes on; a clock that is moved by hand is for memory:"
            ),
        ));
    }
    match scheme {
        #[cfg(any(not(target_family = "wasm"), feature = "memory"))]
        "memory" => {
            params.finish()?;
            let backend = memory::open(target, &context);
            Ok(Opened { backend, settings, display: url.to_owned() })
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            use crate::address::file_path;
            use crate::backend::sqlite;
            let options = sqlite::SqliteOptions::from_params(&mut params)?;
            params.finish()?;
            let path = file_path(target)?;
            let display = format!("sqlite:{}", path.display());
            let backend = service
                .within(settings.timeout + options.busy_timeout, sqlite::open(path, options, context))
                .await
                .map_err(|error| error.during("sqlite", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" => {
            use crate::backend::redis;
            let config = redis::RedisConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let display = config.display();
            let backend = redis::open(config, context, purpose, hosted.redis)
                .await
                .map_err(|error| error.during("redis", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "redis")]
        "redis+cluster" | "rediss+cluster" if hosted.redis.is_some() || cfg!(target_family = "wasm") => {
            Err(Error::new(
                ErrorKind::InvalidConfig,
                "a cluster needs a connection to each of its primaries, which Polylatch opens; where the program \
                 opens the connection, write redis:// with a server that belongs to no cluster",
            ))
        }
        #[cfg(all(feature = "redis", not(target_family = "wasm")))]
        "redis+cluster" | "rediss+cluster" => {
            use crate::backend::redis::cluster;
            let config = cluster::ClusterConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let display = config.display();
            let backend = cluster::open(config, context, purpose)
                .await
                .map_err(|error| error.during("redis", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "consul")]
        "consul" | "consul+https" | "consul+unix" => {
            use crate::backend::consul;
            let config = consul::ConsulConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let settings = if own_provisional { settings } else { settings.half_of_the_lease() };
            let display = config.display();
            let backend = consul::open(config, context, purpose, hosted.http)
                .await
                .map_err(|error| error.during("consul", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcd+https" => {
            use crate::backend::etcd;
            let config = etcd::EtcdConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let settings = if own_provisional { settings } else { settings.half_of_the_lease() };
            let display = config.display();
            let backend = etcd::open(config, context, purpose, hosted.http)
                .await
                .map_err(|error| error.during("etcd", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(all(feature = "zookeeper", not(target_family = "wasm")))]
        "zookeeper" | "zookeepers" => {
            use crate::backend::zookeeper;
            let config = zookeeper::ZooKeeperConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let settings = if own_provisional { settings } else { settings.half_of_the_lease() };
            let display = config.display();
            let backend = zookeeper::open(config, context, purpose)
                .await
                .map_err(|error| error.during("zookeeper", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            use crate::backend::postgres;
            let config = postgres::PostgresConfig::from_url(scheme, target, &mut params)?;
            params.finish()?;
            let display = config.display();
            let backend = postgres::open(config, context, purpose)
                .await
                .map_err(|error| error.during("postgres", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            use crate::backend::mysql;
            let config = mysql::MysqlConfig::from_url(scheme, target, &mut params)?;
            params.finish()?;
            let display = config.display();
            let backend = mysql::open(config, context, purpose)
                .await
                .map_err(|error| error.during("mysql", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        #[cfg(all(feature = "redis", not(target_family = "wasm")))]
        "redlock" | "redlocks" => {
            use crate::backend::redlock;
            let config = redlock::RedlockConfig::from_url(scheme, target, &mut params, &settings)?;
            params.finish()?;
            let display = config.display();
            let backend = redlock::open(config, context, purpose)
                .await
                .map_err(|error| error.during("redlock", "connect"))?;
            Ok(Opened { backend, settings, display })
        }
        _ => Err(unknown_scheme(url)),
    }
}

fn unknown_scheme(url: &str) -> Error {
    let mut known = vec!["memory:NAME"];
    if cfg!(feature = "sqlite") {
        known.push("sqlite:PATH");
    }
    // A JavaScript host has a module for each of these, and loads it by the scheme.
    let elsewhere = cfg!(target_family = "wasm");
    if cfg!(feature = "redis") || elsewhere {
        known.extend([
            "redis://HOST:PORT",
            "rediss://HOST:PORT",
            "redis+unix:PATH",
            "redis+sentinel://HOST,HOST,HOST/SERVICE",
            "redis+cluster://HOST,HOST,HOST",
            "redlock://HOST,HOST,HOST",
        ]);
    }
    if cfg!(feature = "consul") || elsewhere {
        known.extend(["consul://HOST:PORT", "consul+https://HOST:PORT", "consul+unix:PATH"]);
    }
    if cfg!(feature = "etcd") || elsewhere {
        known.extend(["etcd://HOST:PORT", "etcd+https://HOST:PORT"]);
    }
    if cfg!(all(feature = "zookeeper", not(target_family = "wasm"))) {
        known.extend(["zookeeper://HOST,HOST,HOST", "zookeepers://HOST,HOST,HOST"]);
    }
    if cfg!(feature = "postgres") {
        known.push("postgres://HOST:PORT/DATABASE");
    }
    if cfg!(feature = "mysql") {
        known.extend(["mysql://HOST:PORT/DATABASE", "mariadb://HOST:PORT/DATABASE"]);
    }
    let scheme = match url_check::split_scheme(url) {
        Some((scheme, _)) => format!("the URL scheme {scheme:?} is unknown"),
        None => "the URL has no scheme".to_owned(),
    };
    Error::new(ErrorKind::InvalidConfig, format!("{scheme}; use one of {}", known.join(", ")))
}

/// `POLYLATCH_URL`, or the embedded SQLite file in the user's state directory.
pub(crate) fn default_url() -> Result<String> {
    match std::env::var("POLYLATCH_URL") {
        Ok(url) if !url.is_empty() => return Ok(url),
        Ok(_) | Err(std::env::VarError::NotPresent) => {}
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Error::new(ErrorKind::InvalidConfig, "POLYLATCH_URL is not UTF-8"));
        }
    }
    #[cfg(feature = "sqlite")]
    {
        let directory = state_directory().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidConfig,
                "there is no home directory for the embedded store; set POLYLATCH_URL, for example to \
                 sqlite:/var/lib/myapp/locks.db",
            )
        })?;
        crate::backend::sqlite::make_state_directory(&directory)?;
        let path = directory.join("locks.db");
        Ok(format!("sqlite:{}", path.display()))
    }
    #[cfg(not(feature = "sqlite"))]
    Err(Error::new(ErrorKind::InvalidConfig, "no URL was given and POLYLATCH_URL is not set"))
}

/// Where programs keep a user's state: `$XDG_STATE_HOME` (freedesktop.org base directory
/// specification), `Library/Application Support` on macOS, `%LOCALAPPDATA%` on Windows.
#[cfg(feature = "sqlite")]
fn state_directory() -> Option<PathBuf> {
    let from_env = |key| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        from_env("LOCALAPPDATA")?
    } else if cfg!(target_os = "macos") {
        from_env("HOME")?.join("Library/Application Support")
    } else {
        from_env("XDG_STATE_HOME").or_else(|| Some(from_env("HOME")?.join(".local/state")))?
    };
    Some(base.join("polylatch"))
}
