//! The URL of several nodes: where they are, who asks, and with which promise.

use std::time::Duration;

use crate::backend::redis::RedisConfig;
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::keys::Keys;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::options::Settings;
use crate::params::Params;
use crate::policy::quorum::MAX_NODES;

/// The longest lease unless the URL says otherwise: so long a restarted node sits out.
const LONGEST: Duration = Duration::from_secs(60);

/// Everything that a URL says about a store of several nodes.
#[derive(Debug, Clone)]
pub(crate) struct RedlockConfig {
    pub nodes: Vec<RedisConfig>,
    pub keys: Keys,
    pub guarantee: Guarantee,
    /// Longest lease that any client of this prefix uses, and how long a restarted node does not vote.
    pub max_lease: Duration,
    /// Time limit of one request to one node.
    pub node_timeout: Duration,
    /// Time limit of one question to the nodes together.
    pub timeout: Duration,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message.into())
}

impl RedlockConfig {
    /// Reads `redlock://[user:password@]host[:port],…[/database]` or `redlocks://…`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        for option in ["ack", "ack_timeout"] {
            if params.text(option).is_some() {
                return Err(invalid(format!(
                    "the option {option} is about replicas, and the nodes of a {scheme}: URL are independent; leave it out"
                )));
            }
        }
        if params.peek("prefix").is_some_and(|prefix| prefix.contains(',')) {
            return Err(invalid(
                "options stand once, behind the last node, and hold for all nodes: one prefix, or they would count \
                 votes for different locks",
            ));
        }
        let guarantee = Guarantee::from_params(params)?;
        let max_lease = params.duration("max_lease", LONGEST, MIN_LEASE, MAX_LEASE)?;
        if settings.lease > max_lease {
            return Err(invalid(format!(
                "the lease of {:?} is longer than max_lease, {max_lease:?}, which is how long a restarted node does \
                 not vote; raise max_lease for all clients of this prefix, or shorten the lease",
                settings.lease
            )));
        }
        let node_timeout = params.duration(
            "node_timeout",
            Duration::from_millis(150).min(settings.provisional / 4),
            Duration::from_millis(5),
            Duration::from_secs(10),
        )?;
        if node_timeout > settings.provisional / 4 || node_timeout > settings.timeout {
            return Err(invalid(format!(
                "node_timeout={node_timeout:?} is too long for provisional={:?} and timeout={:?}: a silent node must \
                 leave most of the first lease; it can be a quarter of provisional at most",
                settings.provisional, settings.timeout
            )));
        }
        let nodes = read_nodes(scheme, target, params, settings)?;
        let keys = nodes[0].keys.clone().of_a_node();
        Ok(Self { nodes, keys, guarantee, max_lease, node_timeout, timeout: settings.timeout })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let all_tls = self.nodes.iter().all(RedisConfig::is_tls);
        let scheme = if all_tls { "redlocks" } else { "redlock" };
        let shown: Vec<_> = self.nodes.iter().map(RedisConfig::display).collect();
        let (mut places, mut database) = (Vec::new(), "");
        for node in &shown {
            let rest = node.split_once("://").map_or(node.as_str(), |(_, rest)| rest);
            let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            places.push(place);
            database = path;
        }
        format!("{scheme}://{}{database}", places.join(","))
    }
}

fn read_nodes(
    scheme: &str,
    target: &str,
    params: &mut Params,
    settings: &Settings,
) -> Result<Vec<RedisConfig>> {
    let rest =
        target.strip_prefix("//").ok_or_else(|| invalid(format!("write {scheme}://HOST,HOST,HOST")))?;
    let (authorities, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authorities: Vec<_> = authorities.split(',').collect();
    if authorities.len() > MAX_NODES {
        return Err(invalid(format!(
            "the URL names {} nodes; 1 to {MAX_NODES} are allowed, and 3 or 5 are usual",
            authorities.len()
        )));
    }
    if authorities.iter().any(|authority| authority.is_empty()) {
        return Err(invalid(format!(
            "a node in the {scheme}: URL is empty; write HOST or HOST:PORT between commas"
        )));
    }
    let with_tls: Vec<String> = match params.text("tls") {
        Some(_) if scheme == "redlocks" => {
            return Err(invalid(
                "redlocks: means TLS to every node, so tls= has nothing to say; leave it out",
            ));
        }
        Some(list) => list.split(',').map(str::to_owned).collect(),
        None => Vec::new(),
    };
    if scheme == "redlock"
        && with_tls.is_empty()
        && ["ca", "cert", "key"].iter().any(|file| params.peek(file).is_some())
    {
        return Err(invalid(
            "ca, cert and key need TLS; write redlocks:// for TLS to every node, or name the nodes in tls=",
        ));
    }
    let mut nodes: Vec<RedisConfig> = Vec::new();
    let mut wanted = with_tls.clone();
    for authority in &authorities {
        let place = authority.rsplit_once('@').map_or(*authority, |(_, place)| place);
        let is_tls = scheme == "redlocks" || with_tls.iter().any(|named| named == place);
        wanted.retain(|named| named != place);
        let mut options = params.clone();
        if !is_tls {
            // The certificates are for the nodes that speak TLS.
            ["ca", "cert", "key"].into_iter().for_each(|option| drop(options.text(option)));
        }
        let node_scheme = if is_tls { "rediss" } else { "redis" };
        let node =
            RedisConfig::from_url(node_scheme, &format!("//{authority}{path}"), &mut options, settings)?;
        if let Some(first) = nodes.iter().position(|other| place_of(other) == place_of(&node)) {
            let (first, second) = (first + 1, nodes.len() + 1);
            return Err(invalid(format!(
                "nodes {first} and {second} of the URL are the same server; every vote has to come from another one"
            )));
        }
        nodes.push(node);
    }
    if let Some(unknown) = wanted.first() {
        return Err(invalid(format!(
            "tls= names {unknown:?}, which is no node of the URL; write it as it stands there"
        )));
    }
    // Once more for all, so that they count as taken.
    drop(RedisConfig::from_url("rediss", "//:-@localhost", params, settings)?);
    Ok(nodes)
}

/// Where a node is, without secrets.
pub(super) fn place_of(config: &RedisConfig) -> String {
    let shown = config.display();
    let rest = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or(rest);
    place.rsplit_once('@').map_or(place, |(_, place)| place).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<RedlockConfig> {
        options::read(url, RedlockConfig::from_url)
    }

    #[test]
    fn every_node_has_its_place_and_credentials_and_no_secret_is_shown() {
        let config = read("redlock://ann:p%2Css@a,b:7000,:s3cret@[::1]:7001/2?prefix=shop").unwrap();
        assert_eq!(config.display(), "redlock://ann@a:6379,b:7000,[::1]:7001/2");
        assert!(!format!("{config:?}").contains("s3cret") && !format!("{config:?}").contains("p,ss"));
        assert_eq!(config.nodes.iter().map(|node| node.database).collect::<Vec<_>>(), [2, 2, 2]);
        assert!(config.nodes[0].password.is_some() && config.nodes[1].password.is_none());
        assert_eq!(config.max_lease, LONGEST);
    }

    #[test]
    fn tls_is_for_all_nodes_or_for_those_that_are_named() {
        let tls = |url: &str| -> Vec<bool> {
            let config = read(url).unwrap();
            config.nodes.iter().map(RedisConfig::is_tls).collect()
        };
        assert_eq!(tls("redlocks://a,b?ca=/ca.pem"), [true, true]);
        assert_eq!(tls("redlock://a,b:7000,c?tls=b:7000,c&ca=/ca.pem"), [false, true, true]);
        assert_eq!(tls("redlock://a,b"), [false, false]);
        assert_eq!(read("redlocks://a,b").unwrap().display(), "redlocks://a:6379,b:6379");
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
            ("redlock://a,a:6379,b", "nodes 1 and 2 of the URL are the same"),
            ("redlock://a,,b", "is empty"),
            ("redlock://a,b,c,d,e,f,g,h,i,j", "names 10 nodes; 1 to 9"),
            ("redlock:a,b", "write redlock://"),
            ("redlock://a,b?prefix=x,c?prefix=y", "options stand once"),
            ("redlock://a,b?ca=/x", "need TLS"),
            ("redlock://a,b?tls=c", "is no node of the URL"),
            ("redlocks://a,b?tls=a", "leave it out"),
            ("redlock://a,b?ack=any", "about replicas"),
            ("redlock://a,b?lease=5m", "longer than max_lease"),
            ("redlock://a,b?node_timeout=2s", "too long for provisional"),
            ("redlock://a,b:0", "must be a number from 1 to 65535"),
            ("redlock://a,b?prefixx=a", "knows no option \"prefixx\""),
        ];
        options::assert_refused(read, &cases);
    }
}
