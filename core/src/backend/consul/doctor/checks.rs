//! What the facts mean.

use std::time::Duration;

use crate::backend::consul::config::MAX_LOCK_DELAY;
use crate::backend::consul::doctor::facts::{Agent, Facts, Transport, Trial};
use crate::backend::consul::protocol::keys::is_plain;
use crate::backend::consul::transport::errors::PLAIN;
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH,
};
use crate::snapshot::{Check, Examination, Promise};

/// A round trip to an agent of the same host or network is well below this.
const SLOW: Duration = Duration::from_millis(50);

/// Every client keeps two connections, and tests, scripts and the UI want some too.
const FEW_CONNECTIONS: u64 = 200;

/// In the order in which a person would look.
pub(crate) fn judge(facts: &Facts) -> Examination {
    let findings = vec![
        leader(facts),
        servers(facts),
        agent(facts),
        session(facts),
        permissions(facts),
        lock_delay(facts),
        checks(facts),
        push(facts),
        latency(facts),
        connections(facts),
        encryption(facts),
        access(facts),
        storage(facts),
    ];
    let version = facts.agent.as_ref().map(|agent| format!("Consul {}", agent.version));
    Examination::new("consul", version, findings, promises(facts))
}

fn leader(facts: &Facts) -> Check {
    match &facts.leader {
        Some(leader) => Check::ok("leader", "the servers have a leader", leader.clone()),
        None => {
            Check::problem("leader", "The servers have no leader", format!("asked by way of {}", facts.place))
                .means("Nothing can be locked, renewed or released until a majority of the servers is up.")
                .fix("consul operator raft list-peers -stale")
        }
    }
}

fn servers(facts: &Facts) -> Check {
    const ID: &str = "servers";
    let list = facts.servers.join(", ");
    match facts.servers.len() {
        0 => Check::unknown(ID, "How many servers there are cannot be seen", "the list of servers is empty"),
        1 => Check::notice(ID, "There is one server", list)
            .means("While it is down nothing can be locked; if its disk is lost, so are the locks.")
            .fix("Run three or five servers"),
        2 => Check::warning(ID, "There are two servers", list)
            .means("If either is down there is no majority, so two are less available than one.")
            .fix("Run three or five servers"),
        count => Check::ok(ID, format!("{count} servers"), list),
    }
}

fn agent(facts: &Facts) -> Check {
    const ID: &str = "agent";
    match &facts.agent {
        Some(Agent { version, node, datacenter, is_server, .. }) => {
            let role = if *is_server { "server" } else { "client" };
            Check::ok(
                ID,
                "the agent tells its state",
                format!("{role} {node} in {datacenter}, Consul {version}"),
            )
        }
        None => Check::unknown(ID, "The agent's state cannot be seen", "the token may not read the agent")
            .means("Its version, session limits and access control are not known.")
            .fix("agent_prefix \"\" { policy = \"read\" }   # in the policy of the examining token"),
    }
}

fn session(facts: &Facts) -> Check {
    const ID: &str = "session-ttl";
    let least = facts.agent.as_ref().and_then(|agent| agent.session_ttl_min.clone());
    let least = least.map(|least| format!("; this agent's session_ttl_min is {least}")).unwrap_or_default();
    match &facts.session {
        Trial::Did(info) => Check::ok(
            ID,
            "sessions can be made and renewed",
            format!(
                "TTL {}, on node {}; the servers keep a dead session for up to twice its TTL{least}",
                info.ttl, info.node
            ),
        ),
        Trial::Refused(why) if facts.datacenter.is_some() && facts.node.is_none() => {
            Check::problem(ID, "No session can be made in this datacenter", why.clone())
                .means("Locks cannot be taken by way of this agent, whose node belongs to another datacenter.")
                .fix("node=NAME beside dc= in the URL, NAME being a node of that datacenter; or an agent of it")
        }
        Trial::Refused(why) => Check::problem(ID, "No session can be made", why.clone())
            .means("Locks cannot be taken.")
            .fix("session \"NODE\" { policy = \"write\" }   # NODE: the agent's node; and key_prefix for the locks"),
        Trial::NotTried => Check::unknown(ID, "Whether sessions can be made was not tried", "there is no leader"),
    }
}

fn permissions(facts: &Facts) -> Check {
    const ID: &str = "permissions";
    match &facts.write {
        Trial::Did(()) => Check::ok(
            ID,
            "keys of the prefix can be locked",
            format!("tried below {}/.client/", facts.prefix),
        ),
        Trial::Refused(why) => Check::problem(ID, "Keys of the prefix cannot be locked", why.clone())
            .means("Locks cannot be taken.")
            .fix(format!("key_prefix \"{}/\" {{ policy = \"write\" }}", facts.prefix)),
        Trial::NotTried => {
            Check::unknown(ID, "Whether keys can be locked was not tried", "there is no session")
        }
    }
}

fn lock_delay(facts: &Facts) -> Check {
    const ID: &str = "lock-delay";
    let (delay, lease) = (facts.lock_delay, facts.lease);
    if delay.is_zero() {
        return Check::notice(ID, "There is no lock-delay", "lock_delay=0s")
            .means(
                "If an operator destroys a session, or a health check ends it, the next holder enters while the old \
                 one may still be at work, until it is notified.",
            )
            .fix("leave lock_delay= out: it is then as long as the lease, up to 60 s");
    }
    if delay < lease {
        let detail = format!("lock_delay={delay:?}, lease={lease:?}");
        let check = Check::warning(ID, "Lock-delay is shorter than the lease", detail).means(format!(
            "If a session is ended by force and its holder cannot be notified, the next one enters up to {:?} before \
             the old one notices.",
            lease - delay
        ));
        return match lease > MAX_LOCK_DELAY {
            true => check.fix("lease=60s or shorter: Consul allows no longer lock-delay"),
            false => check.fix("leave lock_delay= out: it is then as long as the lease"),
        };
    }
    match &facts.delayed {
        Trial::Did(true) => Check::ok(
            ID,
            "lock-delay works",
            format!(
                "after a session ended with a lock on it, the next one was refused (lock_delay={delay:?}, lease={lease:?})"
            ),
        ),
        Trial::Did(false) => Check::warning(
            ID,
            "Lock-delay does not work",
            "after a session ended with a lock on it, the next one got it at once",
        )
        .means("A destroyed session lets the next holder in while the old one may still be at work."),
        _ => Check::unknown(ID, "Whether lock-delay works was not tried", "no key could be locked"),
    }
}

fn checks(facts: &Facts) -> Check {
    const ID: &str = "health-checks";
    if facts.checks.is_empty() {
        return Check::ok(ID, "sessions hang on no health check", "only the TTL ends them");
    }
    let check = |detail: String| {
        Check::notice(ID, "Health checks end sessions", detail)
            .means("A false alarm of one of them takes all locks from the clients of that node.")
            .fix("Leave checks= out of the URL, or keep lock_delay at least as long as the lease")
    };
    check(facts.checks.join(", "))
}

fn push(facts: &Facts) -> Check {
    const ID: &str = "push";
    match &facts.push {
        Trial::Did(took) => {
            Check::ok(ID, "changes are reported at once", format!("after {:.1} ms", millis(*took)))
        }
        Trial::Refused(why) => Check::warning(ID, "Changes are not told", why.clone())
            .means("Waiters poll, so a hand-off takes up to a poll interval.")
            .fix(match is_plain(&facts.prefix) {
                true => "Let requests wait for minutes in proxies, and let X-Consul-Index pass".to_owned(),
                false => format!("prefix= with {PLAIN} only, the same for all clients"),
            }),
        Trial::NotTried => {
            Check::unknown(ID, "Whether changes are reported was not tried", "no key could be written")
        }
    }
}

fn latency(facts: &Facts) -> Check {
    const ID: &str = "latency";
    let mut trips = facts.trips.clone();
    trips.sort_unstable();
    let Some(median) = trips.get(trips.len() / 2) else {
        return Check::unknown(
            ID,
            "How long a consistent reading takes was not measured",
            "nothing could be read",
        );
    };
    let detail = format!("{:.1} ms for a consistent reading (median of {})", millis(*median), trips.len());
    if *median < SLOW {
        return Check::ok(ID, "the servers answer quickly", detail);
    }
    Check::notice(ID, "The servers answer slowly", detail)
        .means("Every lock takes two such round trips, every hand-off two or three.")
        .fix("Use an agent near the servers, or raft_multiplier 1 for servers of production size")
}

fn connections(facts: &Facts) -> Check {
    const ID: &str = "connections";
    match facts.agent.as_ref().and_then(|agent| agent.connections) {
        Some(most @ 1..=FEW_CONNECTIONS) => Check::notice(
            ID,
            format!("One host may have {most} connections to the agent"),
            "limits.http_max_conns_per_client",
        )
        .means(format!(
            "About {} processes that hold or wait: each keeps two, one of them waiting for changes.",
            most / 2
        ))
        .fix("limits { http_max_conns_per_client = 1000 }   # in the agent's configuration"),
        Some(most) => {
            Check::ok(ID, "one host may have many connections", format!("{most}; 0 is without limit"))
        }
        None => {
            Check::unknown(ID, "The limit of connections per host cannot be seen", "Consul's default is 200")
        }
    }
}

fn encryption(facts: &Facts) -> Check {
    const ID: &str = "encryption";
    match &facts.transport {
        Transport::Unix => Check::ok(ID, "bytes stay on this host", "a unix socket"),
        Transport::Tls => Check::ok(ID, "the connection is encrypted", "TLS with a checked certificate"),
        Transport::Plain { loopback: true, .. } => Check::ok(ID, "bytes stay on this host", "loopback"),
        Transport::Plain { host, .. } => {
            let what = if facts.has_token { "The token and all records" } else { "All records" };
            Check::warning(ID, "The connection is not encrypted", format!("plain HTTP to {host}"))
                .means(format!("{what} can be read and changed on the way."))
                .fix("consul+https:// with ca=, or an agent on this host")
        }
    }
}

fn access(facts: &Facts) -> Check {
    const ID: &str = "access-control";
    match facts.agent.as_ref().and_then(|agent| agent.acls) {
        Some(true) => Check::ok(ID, "access control is on", "acl.enabled"),
        Some(false) => Check::notice(ID, "Access control is off", "acl.enabled is false")
            .means("Anyone who reaches the agent can end sessions and change locks.")
            .fix("acl { enabled = true, default_policy = \"deny\" }   # in the configuration of agents and servers"),
        None => Check::unknown(ID, "Whether access control is on cannot be seen", "the agent may not be read"),
    }
}

fn storage(facts: &Facts) -> Check {
    const ID: &str = "storage";
    match facts.agent.as_ref().map(|agent| agent.dev_mode) {
        Some(true) => Check::warning(ID, "The server keeps nothing on disk", "a -dev agent")
            .means("With its restart all locks are forgotten, and fencing tokens begin again.")
            .fix("Start servers with -data-dir"),
        Some(false) => {
            Check::ok(ID, "every change is on the disks of a majority before it is answered", "raft log")
        }
        None => Check::unknown(ID, "What is kept on disk cannot be seen", "the agent may not be read"),
    }
}

fn promises(facts: &Facts) -> Vec<Promise> {
    let unusable = match (&facts.leader, &facts.session, &facts.write) {
        (None, ..) => Some("there is no leader"),
        (_, Trial::Refused(_), _) => Some("no session can be made"),
        (_, _, Trial::Refused(_)) => Some("keys of the prefix cannot be locked"),
        _ => None,
    };
    if let Some(why) = unusable {
        let none = [EXCLUSION, AFTER_RESTART, AFTER_FAILOVER, AFTER_WIPE, FENCING_ORDER, PUSH, FIFO];
        return none.map(|id| Promise::no(id, format!("no lock can be taken here: {why}"))).to_vec();
    }
    let exclusion = match &facts.delayed {
        _ if facts.lock_delay.is_zero() => {
            Promise::no(EXCLUSION, "without lock-delay a session ended by force lets the next one in at once")
        }
        _ if facts.lock_delay < facts.lease => Promise::no(
            EXCLUSION,
            "lock-delay is shorter than the lease: after a session was ended by force, a holder that cannot be \
             notified overlaps with the next one",
        ),
        Trial::Did(false) => Promise::no(EXCLUSION, "lock-delay was tried and did not keep the next one out"),
        _ => Promise::yes(
            EXCLUSION,
            "one log decides; a session that is ended by force leaves its mutexes closed for the lock-delay, which \
             covers the lease",
        ),
    };
    let restart = match facts.agent.as_ref().map(|agent| agent.dev_mode) {
        Some(true) => Promise::no(AFTER_RESTART, "a -dev agent forgets everything"),
        Some(false) => Promise::yes(AFTER_RESTART, "every grant is in the log before it is answered"),
        None => Promise::unknown(AFTER_RESTART, "what is kept on disk cannot be seen"),
    };
    let failover = match facts.servers.len() {
        0 => Promise::unknown(AFTER_FAILOVER, "how many servers there are cannot be seen"),
        1 | 2 => Promise::no(AFTER_FAILOVER, "no other server could take over"),
        _ => Promise::yes(AFTER_FAILOVER, "a new leader has every grant, and renews all sessions"),
    };
    let push = match &facts.push {
        Trial::Did(_) => Promise::yes(PUSH, "a waiting request told of a change"),
        _ => Promise::no(PUSH, "changes were not told, so waiters poll"),
    };
    vec![
        exclusion,
        restart,
        failover,
        Promise::no(AFTER_WIPE, "servers that lost all data grant at once, and begin their index again"),
        Promise::yes(FENCING_ORDER, "the index of the log, which only grows while its data are kept"),
        push,
        Promise::yes(FIFO, "waiters queue as keys, in the order of the log"),
    ]
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
