//! The URL of a cluster.

use crate::backend::redis::config::{Address, Place, RedisConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Settings;
use crate::params::Params;

/// Everything that a URL says about a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterConfig {
    /// The nodes that are asked first where the slots are; at least one.
    pub seeds: Vec<Address>,
    /// What holds for every node, with the place of the first seed.
    pub node: RedisConfig,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message.into())
}

impl ClusterConfig {
    /// Reads `redis+cluster://[user:password@]host[:port],…` or `rediss+cluster://…`.
    pub(crate) fn from_url(
        scheme: &str,
        target: &str,
        params: &mut Params,
        settings: &Settings,
    ) -> Result<Self> {
        if params.text("lock_key").is_some() {
            return Err(invalid(
                "the keys of a lock have to share a slot, so a cluster has no lock_key=; leave it out",
            ));
        }
        let rest = target.strip_prefix("//").ok_or_else(|| invalid(format!("write {scheme}://HOST,HOST")))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() || params.text("db").is_some() {
            return Err(invalid("a cluster has no databases besides 0; leave the number out"));
        }
        let (login, places) = match authority.rsplit_once('@') {
            Some((login, places)) => (format!("{login}@"), places),
            None => (String::new(), authority),
        };
        let node_scheme = if scheme == "rediss+cluster" { "rediss" } else { "redis" };
        let mut nodes = Vec::new();
        for place in places.split(',') {
            if place.is_empty() && places.contains(',') {
                return Err(invalid(format!(
                    "a node in the {scheme}: URL is empty; write HOST or HOST:PORT"
                )));
            }
            let target = format!("//{login}{place}");
            nodes.push(RedisConfig::from_url(node_scheme, &target, &mut params.clone(), settings)?);
        }
        // Once more for all, so that the options count as taken.
        drop(RedisConfig::from_url(node_scheme, "//:-@localhost", params, settings)?);
        let seeds = nodes.iter().filter_map(|node| match &node.place {
            Place::At(address) => Some(address.clone()),
            Place::MasterOf(_) => None,
        });
        Ok(Self { seeds: seeds.collect(), node: nodes.swap_remove(0) })
    }

    /// The URL without its secrets.
    pub(crate) fn display(&self) -> String {
        let scheme = if self.node.is_tls() { "rediss+cluster" } else { "redis+cluster" };
        let login = self.node.login_for_display();
        let seeds: Vec<_> = self.seeds.iter().map(Address::to_string).collect();
        format!("{scheme}://{login}{}", seeds.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    fn read(url: &str) -> Result<ClusterConfig> {
        options::read(url, ClusterConfig::from_url)
    }

    #[test]
    fn every_seed_has_its_place_and_all_have_one_login() {
        let config = read("redis+cluster://bob:s3cret@a,b:7000,[::1]:7001?prefix=shop").unwrap();
        assert_eq!(config.display(), "redis+cluster://bob@a:6379,b:7000,[::1]:7001");
        assert_eq!(config.node.user.as_deref(), Some("bob"));
        assert!(!format!("{config:?}").contains("s3cret"));
        assert!(read("rediss+cluster://a,b?ca=/ca.pem").unwrap().node.is_tls());
    }

    #[test]
    fn bad_urls_are_told_with_the_rule() {
        let cases = [
            ("redis+cluster://a/1", "no databases besides 0"),
            ("redis+cluster://a?db=0", "no databases besides 0"),
            ("redis+cluster://a,,b", "is empty"),
            ("redis+cluster:a", "write redis+cluster://"),
            ("redis+cluster://a?lock_key=x:{name}", "share a slot"),
            ("redis+cluster://a?prefixx=a", "knows no option \"prefixx\""),
            ("redis+cluster://a:0", "must be a number from 1 to 65535"),
        ];
        options::assert_refused(read, &cases);
    }
}
