//! Looks at a Redis server as a careful operator would.
//!
//! [`facts`] asks the server and tries what locks need, [`server`] and [`access`] judge what was
//! seen, and [`promises`] draws the conclusion. Judging is pure.

mod access;
mod facts;
mod promises;
mod sentinels;
mod server;
mod sharers;
#[cfg(test)]
mod tests;
mod trials;

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::backend::redis::backend::Inner;
use crate::backend::redis::config::{Address, Place, RedisConfig};
use crate::error::Result;
use crate::snapshot::{Check, Examination};
use crate::token::OwnerToken;
use facts::Facts;

/// How bytes travel to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tls,
    Plain { host: String, loopback: bool },
}

/// What an examination needs of the client's own side.
pub(crate) struct Own {
    /// The last echo that came in over the client's inbox.
    pub(crate) echo: watch::Sender<Option<OwnerToken>>,
    transport: Transport,
    user: Option<String>,
    has_password: bool,
    /// How `redis-cli` is called for this server, without its secrets.
    cli: String,
}

impl Own {
    pub(crate) fn of(config: &RedisConfig) -> Self {
        let plain = |hosts: &mut dyn Iterator<Item = &String>| {
            let hosts: Vec<_> = hosts.map(String::as_str).collect();
            let is_loopback =
                |host: &&str| *host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            Transport::Plain { host: hosts.join(", "), loopback: hosts.iter().all(is_loopback) }
        };
        let transport = match &config.place {
            Place::At(Address::Unix(_)) => Transport::Unix,
            _ if config.is_tls() => Transport::Tls,
            Place::At(Address::Tcp { host, .. } | Address::Tls { host, .. }) => {
                plain(&mut std::iter::once(host))
            }
            Place::MasterOf(service) => plain(&mut service.sentinels.iter().map(|(host, _)| host)),
        };
        Self {
            cli: cli(&config.place),
            echo: watch::Sender::new(None),
            transport,
            user: config.user.clone(),
            has_password: config.password.is_some(),
        }
    }
}

pub(crate) fn cli(place: &Place) -> String {
    let at = |host: &str, port: u16| match (host, port) {
        ("localhost" | "127.0.0.1", 6379) => String::new(),
        ("localhost" | "127.0.0.1", port) => format!(" -p {port}"),
        (host, port) => format!(" -h {host} -p {port}"),
    };
    match place {
        Place::At(Address::Tcp { host, port }) => format!("redis-cli{}", at(host, *port)),
        Place::At(Address::Tls { host, port, .. }) => format!("redis-cli --tls{}", at(host, *port)),
        Place::At(Address::Unix(path)) => format!("redis-cli -s '{}'", path.display()),
        // Found out when it is asked; a person asks a Sentinel for the server of the day.
        Place::MasterOf(service) if service.tls.is_some() => "redis-cli --tls -h MASTER".into(),
        Place::MasterOf(_) => "redis-cli -h MASTER".into(),
    }
}

/// Errors: only if the server cannot be reached; what it refuses is a finding.
pub(crate) async fn examine(inner: Arc<Inner>) -> Result<Examination> {
    Ok(judge(&facts::gather(&inner).await?))
}

/// In the order in which a person would look.
fn judge(facts: &Facts) -> Examination {
    let mut findings: Vec<Check> = server::checks(facts)
        .into_iter()
        .chain(access::checks(facts))
        .chain(sharers::checks(facts))
        .collect();
    let cli = sentinels::cli(facts);
    for check in &mut findings {
        check.fix = check.fix.replace("redis-cli ", &format!("{cli} "));
    }
    // Their fixes are for other servers than the one that keeps the locks.
    findings.extend(sentinels::checks(facts));
    Examination::new("redis", facts.version(), findings, promises::promises(facts))
}
