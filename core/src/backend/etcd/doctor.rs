//! Looks at an etcd as a careful operator would.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::json;

use crate::backend::http::Address;
use crate::clock::Instant;
use crate::error::{Error, Result};
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH, size,
};
use crate::snapshot::{Check, Examination, Promise};

use super::backend::Inner;
use super::protocol::answers::{Alarms, Members, Status};
use super::protocol::requests;

/// Round trips that are timed.
const TRIPS: u32 = 8;

/// A round trip to a member of the same network is well below this.
const SLOW: Duration = Duration::from_millis(50);

/// Everything that the judgement rests on.
struct Facts {
    place: String,
    members_named: usize,
    statuses: Vec<(String, Result<Status>)>,
    /// Name and client URLs of each member; `None` if it may not be asked.
    members: Option<Vec<String>>,
    alarms: Option<Vec<String>>,
    /// The TTL that the server granted for a lease of one second, after a key was written and removed.
    trial: Result<u64>,
    latency: Option<Duration>,
    has_login: bool,
    /// Hosts that are asked without TLS by way of a network.
    plain: Vec<String>,
    prefix: String,
}

/// Errors: only if no member can be reached; what they refuse is a finding.
pub(crate) async fn examine(inner: &Inner) -> Result<Examination> {
    let facts = gather(inner).await;
    match facts.statuses.iter().all(|(_, status)| status.is_err()) {
        true => match facts.statuses.into_iter().find_map(|(_, status)| status.err()) {
            Some(error) if error.kind() == crate::error::ErrorKind::BackendUnavailable => Err(error),
            _ => Ok(judge(&gather(inner).await)),
        },
        false => Ok(judge(&facts)),
    }
}

async fn gather(inner: &Inner) -> Facts {
    let (api, config) = (&inner.api, &inner.config);
    let members = api.query::<Members>("/v3/cluster/member/list", &json!({})).await.ok();
    let alarms = api.query::<Alarms>("/v3/maintenance/alarm", &json!({"action": "GET"})).await.ok();
    let mut latency = None;
    for _ in 0..TRIPS {
        let started = Instant::now();
        if api.range(&requests::front(&inner.keys.all())).await.is_ok() {
            latency = Some(latency.map_or(started.elapsed(), |least: Duration| least.min(started.elapsed())));
        }
    }
    Facts {
        place: config.display(),
        members_named: config.members.len(),
        statuses: api.statuses().await,
        members: members.map(|list| {
            list.members.iter().map(|one| format!("{} {}", one.name, one.client_urls.join(" "))).collect()
        }),
        alarms: alarms.map(|list| list.alarms.into_iter().map(|one| one.alarm).collect()),
        trial: try_all(inner).await,
        latency,
        has_login: config.login.is_some(),
        plain: config.members.iter().filter_map(plain_host).collect(),
        prefix: inner.keys.all(),
    }
}

fn plain_host(address: &Address) -> Option<String> {
    let Address::Tcp { host, .. } = address else { return None };
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    (!is_here).then(|| host.clone())
}

/// Does what a lock does, below the folder of clients.
async fn try_all(inner: &Inner) -> Result<u64> {
    let lease = inner.sessions.lease(&inner.api, Duration::from_secs(1), Duration::ZERO).await?.id;
    let key = format!("{}examination-{lease:x}", inner.keys.clients());
    let tried = async {
        inner.api.transact(&requests::write(&key, b"", lease)).await?;
        let renewed = inner.api.keep_alive(&[lease]).await?;
        Ok(renewed.first().map_or(0, |renewed| renewed.ttl))
    };
    let tried = tried.await;
    inner.api.revoke(lease).await?;
    tried
}

/// In the order in which a person would look.
fn judge(facts: &Facts) -> Examination {
    let findings = vec![
        leader(facts),
        members(facts),
        alarms(facts),
        version(facts),
        permissions(facts),
        latency(facts),
        encryption(facts),
        access(facts),
    ];
    let version = present(facts).map(|status| format!("etcd {}", status.version)).next();
    Examination::new("etcd", version, findings, promises(facts))
}

fn present(facts: &Facts) -> impl Iterator<Item = &Status> {
    facts.statuses.iter().filter_map(|(_, status)| status.as_ref().ok())
}

fn leader(facts: &Facts) -> Check {
    const ID: &str = "leader";
    match present(facts).find(|status| status.leader != 0) {
        Some(status) => {
            let detail = format!("{:x} in term {}", status.leader, status.header.raft_term);
            Check::ok(ID, "the members have a leader", detail)
        }
        None => Check::problem(ID, "The members have no leader", format!("asked at {}", facts.place))
            .means("Nothing can be locked, renewed or released until a majority of the members is up.")
            .fix("etcdctl endpoint status --cluster"),
    }
}

fn members(facts: &Facts) -> Check {
    const ID: &str = "members";
    let silent: Vec<_> = facts
        .statuses
        .iter()
        .filter_map(|(place, status)| status.as_ref().err().map(|error| format!("{place}: {error}")))
        .collect();
    if !silent.is_empty() {
        return Check::warning(ID, "Not every member of the URL answers", silent.join("; "))
            .means("The others are asked after half of the time limit; another failure may end the majority.")
            .fix("etcdctl endpoint health");
    }
    let Some(members) = &facts.members else {
        return Check::unknown(ID, "How many members there are cannot be seen", "the list may not be read");
    };
    let list = members.join(", ");
    match members.len() {
        1 => Check::notice(ID, "There is one member", list)
            .means("While it is down nothing can be locked; if its disk is lost, so are the locks.")
            .fix("Run three or five members"),
        2 => Check::warning(ID, "There are two members", list)
            .means("If either is down there is no majority, so two are less available than one.")
            .fix("Run three or five members"),
        count if facts.members_named == 1 => {
            Check::notice(ID, "The URL names one of several members", format!("{count} members: {list}"))
                .means("While that one is down, this client reaches none.")
                .fix("etcd://HOST,HOST,HOST")
        }
        count => Check::ok(ID, format!("{count} members"), list),
    }
}

fn alarms(facts: &Facts) -> Check {
    const ID: &str = "alarms";
    let size = present(facts).map(|status| status.size).max().map(size).unwrap_or_default();
    match facts.alarms.as_deref() {
        Some([]) => Check::ok(ID, "no alarm is raised", format!("database of {size}")),
        Some(raised) => Check::problem(ID, "An alarm is raised", format!("{}; database of {size}", raised.join(", ")))
            .means("With NOSPACE nothing can be locked until the database was compacted; with CORRUPT members disagree.")
            .fix("etcdctl alarm list"),
        None => Check::unknown(ID, "Alarms cannot be seen", "they may not be read"),
    }
}

fn version(facts: &Facts) -> Check {
    const ID: &str = "version";
    let mut versions: Vec<_> = present(facts).map(|status| status.version.as_str()).collect();
    versions.dedup();
    let list = versions.join(", ");
    if present(facts).any(|status| status.is_learner) {
        return Check::warning(ID, "A member of the URL is a learner", list)
            .means("It carries out no requests of clients until it is promoted.")
            .fix("etcdctl member promote ID");
    }
    match versions.is_empty() {
        true => Check::unknown(ID, "The version cannot be seen", "no member told it"),
        false => Check::ok(ID, "the members tell their version", list),
    }
}

fn permissions(facts: &Facts) -> Check {
    const ID: &str = "permissions";
    match &facts.trial {
        Ok(ttl) => Check::ok(
            ID,
            "keys of the prefix can be written on a lease",
            format!(
                "tried below {}.client/; the shortest TTL is {ttl} s, by the election timeout",
                facts.prefix
            ),
        ),
        Err(error) => Check::problem(ID, "Keys of the prefix cannot be written on a lease", words(error))
            .means("Locks cannot be taken.")
            .fix(format!("etcdctl role grant-permission ROLE readwrite --prefix=true {}", facts.prefix)),
    }
}

fn latency(facts: &Facts) -> Check {
    const ID: &str = "latency";
    let told = facts
        .latency
        .map(|least| format!("the fastest of {TRIPS} reads took {:.1} ms", least.as_secs_f64() * 1e3));
    match (facts.latency, told) {
        (Some(least), Some(told)) if least > SLOW => Check::warning(ID, "The members answer slowly", told)
            .means("Every acquisition, renewal and hand-off takes that long or more.")
            .fix("Name members that are near"),
        (_, Some(told)) => Check::ok(ID, "the members answer fast", told),
        _ => Check::unknown(ID, "How fast the members answer cannot be seen", "no read was answered"),
    }
}

fn encryption(facts: &Facts) -> Check {
    const ID: &str = "encryption";
    match facts.plain.as_slice() {
        [] => Check::ok(ID, "no one can listen in between", "TLS with a checked certificate, or loopback"),
        hosts => {
            let what = if facts.has_login { "The password and all records" } else { "All records" };
            Check::warning(
                ID,
                "The connection is not encrypted",
                format!("plain HTTP to {}", hosts.join(", ")),
            )
            .means(format!("{what} can be read and changed on the way."))
            .fix("etcd+https:// with ca=")
        }
    }
}

fn access(facts: &Facts) -> Check {
    const ID: &str = "access-control";
    match facts.has_login {
        true => Check::ok(ID, "authentication is on", "this client has a user"),
        false => Check::notice(ID, "Authentication is off", "this client has no user, and is not refused")
            .means("Anyone who reaches a member can revoke leases and change locks.")
            .fix("etcdctl auth enable"),
    }
}

fn promises(facts: &Facts) -> Vec<Promise> {
    let all = [EXCLUSION, AFTER_RESTART, AFTER_FAILOVER, AFTER_WIPE, FENCING_ORDER, PUSH, FIFO];
    if let Err(error) = &facts.trial {
        let why = format!("no lock can be taken here: {}", words(error));
        return all.map(|id| Promise::no(id, why.clone())).to_vec();
    }
    let failover = match facts.members.as_ref().map(Vec::len) {
        None => Promise::unknown(AFTER_FAILOVER, "how many members there are cannot be seen"),
        Some(1 | 2) => Promise::no(AFTER_FAILOVER, "no other member could take over"),
        Some(_) => Promise::yes(
            AFTER_FAILOVER,
            "a new leader has every grant, and lets every lease last for its whole TTL",
        ),
    };
    vec![
        Promise::yes(
            EXCLUSION,
            "one log decides, and a lease ends no sooner than its holder's own clock says",
        ),
        Promise::yes(AFTER_RESTART, "every grant is on the disks of a majority before it is answered"),
        failover,
        Promise::no(
            AFTER_WIPE,
            "members that lost all data, or were restored from a snapshot, grant at once",
        ),
        Promise::yes(FENCING_ORDER, "create revisions, which only grow while the data are kept"),
        Promise::yes(PUSH, "each waiter watches the key before its own"),
        Promise::yes(FIFO, "contenders queue in the order of their create revisions"),
    ]
}

fn words(error: &Error) -> String {
    error.to_string()
}
