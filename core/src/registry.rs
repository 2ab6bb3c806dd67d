//! From a URL to a store: schemes, options, and what a person may see of a URL.

use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

#[cfg(any(not(target_family = "wasm"), feature = "memory"))]
use crate::backend::memory;
use crate::backend::{Backend, OpenContext, Purpose};
use crate::error::{Error, ErrorKind, Result};
use crate::host::Hosted;
use crate::options::{Params, Settings};
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
    all(target_family = "wasm", not(feature = "redis"), not(feature = "consul")),
    allow(unused_variables, reason = "a page's memory is opened for nothing else, and over nothing")
)]
pub(crate) async fn open(
    url: &str,
    service: &Service,
    wakeups: &Arc<Wakeups>,
    client: &ClientId,
    purpose: Purpose,
    hosted: Hosted,
) -> Result<Opened> {
    let (scheme, target, mut params) = take_apart(url)?;
    #[cfg(feature = "consul")]
    let own_provisional = params.has("provisional");
    let settings = Settings::from_params(&mut params)?;
    let context = OpenContext {
        wakeups: Arc::clone(wakeups),
        runtime: service.handle().clone(),
        client: client.clone(),
        timeout: settings.timeout,
    };
    match scheme {
        #[cfg(any(not(target_family = "wasm"), feature = "memory"))]
        "memory" => {
            params.finish()?;
            let backend = memory::open(target, &context);
            Ok(Opened { backend, settings, display: url.to_owned() })
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
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
                "a cluster needs a connection to each of its masters, which Polylatch opens itself; where the program \
                 brings its connection along, write redis:// with a server that belongs to no cluster",
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
            let settings = if own_provisional { settings } else { consul::half_of_the_lease(settings) };
            let display = config.display();
            let backend = consul::open(config, context, purpose, hosted.http)
                .await
                .map_err(|error| error.during("consul", "connect"))?;
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

/// A URL's scheme, what it leads to, and its options.
fn take_apart(url: &str) -> Result<(&str, &str, Params)> {
    let Some((scheme, rest)) = url_check::split_scheme(url) else {
        return Err(unknown_scheme(url));
    };
    // A URL may hold a password, so no message repeats more of it than its scheme.
    let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, message);
    if url.chars().any(char::is_control) {
        return Err(invalid(format!("the {scheme}: URL has a control character (a line break?); remove it")));
    }
    url_check::refuse_misplaced_at(scheme, rest).map_err(invalid)?;
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = url::form_urlencoded::parse(query.as_bytes())
        .map(|(key, value)| (key.into_owned(), value.into_owned()));
    Ok((scheme, target, Params::new(scheme, pairs)?))
}

/// Reads a URL by the rules of one store alone, without opening it.
#[cfg(all(test, any(feature = "redis", feature = "consul")))]
pub(crate) fn read<C>(
    url: &str,
    from_url: impl FnOnce(&str, &str, &mut Params, &Settings) -> Result<C>,
) -> Result<C> {
    let (scheme, target, mut params) = take_apart(url)?;
    let settings = Settings::from_params(&mut params)?;
    let config = from_url(scheme, target, &mut params, &settings)?;
    params.finish()?;
    Ok(config)
}

/// Each URL is refused with a message that says this.
#[cfg(all(test, any(feature = "redis", feature = "consul")))]
#[track_caller]
pub(crate) fn assert_refused<C: std::fmt::Debug>(read: fn(&str) -> Result<C>, cases: &[(&str, &str)]) {
    for (url, part) in cases {
        let error = read(url).expect_err(url);
        assert_eq!(error.code(), "invalid_config", "{url}");
        assert!(error.to_string().contains(part), "{url}: {error}");
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
    let scheme = match url_check::split_scheme(url) {
        Some((scheme, _)) => format!("the URL scheme {scheme:?} is unknown"),
        None => "the URL has no scheme".to_owned(),
    };
    Error::new(ErrorKind::InvalidConfig, format!("{scheme}; use one of {}", known.join(", ")))
}

/// The path in `sqlite:PATH`, `sqlite:///PATH` or `redis+unix:///PATH`, percent-decoded.
pub(crate) fn file_path(target: &str) -> Result<PathBuf> {
    let path = target.strip_prefix("//").unwrap_or(target);
    let path = percent_decode_str(path).decode_utf8().map_err(|_| {
        Error::new(ErrorKind::InvalidConfig, "the path in the URL is not UTF-8 after percent-decoding")
    })?;
    if path.is_empty() {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            "the URL has no path; write for example sqlite:/var/lib/myapp/locks.db",
        ));
    }
    Ok(PathBuf::from(path.into_owned()))
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
