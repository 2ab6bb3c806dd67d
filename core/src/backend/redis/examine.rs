//! Looks at a Redis server as a careful operator would.
//!
//! [`facts`] asks the server and tries what locks need, [`server`] and [`access`] judge what was
//! seen, and [`promises`] draws the conclusion. Judging is pure.

mod access;
mod facts;
mod promises;
mod server;
#[cfg(test)]
mod tests;
mod trials;

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::backend::redis::Inner;
use crate::backend::redis::config::{Address, RedisConfig};
use crate::error::Result;
use crate::inspect::{Check, Examination};
use crate::token::OwnerToken;
use facts::Facts;

/// How bytes travel to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Transport {
    Unix,
    Tls,
    Plain { host: String, loopback: bool },
}

/// What an examination needs of the client's own side.
pub(super) struct Own {
    /// The last echo that came in over the client's inbox.
    pub(super) echo: watch::Sender<Option<OwnerToken>>,
    transport: Transport,
    user: Option<String>,
    has_password: bool,
    /// How `redis-cli` is called for this server, without its secrets.
    cli: String,
}

impl Own {
    pub(super) fn of(config: &RedisConfig) -> Self {
        let transport = match &config.address {
            Address::Unix(_) => Transport::Unix,
            Address::Tls { .. } => Transport::Tls,
            Address::Tcp { host, .. } => {
                let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
                Transport::Plain { host: host.clone(), loopback }
            }
        };
        Self {
            cli: cli(&config.address),
            echo: watch::Sender::new(None),
            transport,
            user: config.user.clone(),
            has_password: config.password.is_some(),
        }
    }
}

fn cli(address: &Address) -> String {
    let at = |host: &str, port: u16| match (host, port) {
        ("localhost" | "127.0.0.1", 6379) => String::new(),
        ("localhost" | "127.0.0.1", port) => format!(" -p {port}"),
        (host, port) => format!(" -h {host} -p {port}"),
    };
    match address {
        Address::Tcp { host, port } => format!("redis-cli{}", at(host, *port)),
        Address::Tls { host, port, .. } => format!("redis-cli --tls{}", at(host, *port)),
        Address::Unix(path) => format!("redis-cli -s '{}'", path.display()),
    }
}

/// Errors: only if the server cannot be reached; what it refuses is a finding.
pub(super) async fn examine(inner: Arc<Inner>) -> Result<Examination> {
    Ok(judge(&facts::gather(&inner).await?))
}

/// In the order in which a person would look.
fn judge(facts: &Facts) -> Examination {
    let mut findings: Vec<Check> = server::checks(facts).into_iter().chain(access::checks(facts)).collect();
    for check in &mut findings {
        check.fix = check.fix.replace("redis-cli ", &format!("{} ", facts.cli));
    }
    Examination::new("redis", facts.version(), findings, promises::promises(facts))
}
