//! Looks at a ZooKeeper as a careful operator would.

use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Instant;
use crate::error::{ErrorKind, Result};
use crate::snapshot::examination::{
    AFTER_FAILOVER, AFTER_RESTART, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH,
};
use crate::snapshot::{Check, Examination, Promise};

use super::backend::Inner;
use super::liveness::timeout_for;
use super::protocol::answers::code;
use super::protocol::requests::{self, Lives};
use super::transport::errors::refused;
use super::transport::words;

/// Round trips that are timed.
const TRIPS: u32 = 8;

/// A round trip to a member of the same network is well below this.
const SLOW: Duration = Duration::from_millis(50);

/// What one member says of itself.
struct Member {
    place: String,
    /// `srvr`; `None` if it does not answer.
    srvr: Option<String>,
    /// `conf`.
    conf: Option<String>,
}

/// Everything that the judgement rests on.
struct Facts {
    members: Vec<Member>,
    /// A node was created and deleted as a lock's is.
    trial: Result<()>,
    latency: Option<Duration>,
    has_login: bool,
    /// Hosts that are asked without TLS by way of a network.
    plain: Vec<String>,
    is_encrypted: bool,
    root: String,
    tick: Duration,
    lease: Duration,
}

/// Errors: only if no member can be reached; what they refuse is a finding.
pub(crate) async fn examine(inner: &Inner) -> Result<Examination> {
    let facts = gather(inner).await;
    match &facts.trial {
        Err(error)
            if error.kind() == ErrorKind::BackendUnavailable
                && facts.members.iter().all(|member| member.srvr.is_none()) =>
        {
            Err(error.twin())
        }
        _ => Ok(judge(&facts)),
    }
}

async fn gather(inner: &Inner) -> Facts {
    let config = &inner.config;
    let mut members = Vec::new();
    for member in &*inner.pool.members {
        let ask = |word| words::ask(member, word, config.timeout);
        let place = member.place.clone();
        members.push(Member { place, srvr: ask("srvr").await, conf: ask("conf").await });
    }
    let trial = try_all(inner).await;
    let mut latency = None;
    for _ in 0..TRIPS {
        let Ok(session) = inner.pool.main() else { break };
        let started = Instant::now();
        if session.ask(vec![requests::exists(config.nodes.chroot())]).await.is_ok() {
            latency = Some(latency.map_or(started.elapsed(), |least: Duration| least.min(started.elapsed())));
        }
    }
    let is_here = |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|at| at.is_loopback());
    let plain = inner.pool.members.iter().filter(|member| !member.is_encrypted());
    let hosts = plain.map(|member| member.host().to_owned());
    Facts {
        members,
        trial,
        latency,
        has_login: config.login.is_some(),
        plain: hosts.filter(|host| !is_here(host)).collect(),
        is_encrypted: config.tls.is_some(),
        root: config.nodes.root().to_owned(),
        tick: config.tick,
        lease: config.lease,
    }
}

/// Does what a lock does, in the folder of clients.
async fn try_all(inner: &Inner) -> Result<()> {
    let session = inner.pool.main()?;
    let chroot = inner.config.nodes.chroot();
    let answers = session.ask(vec![requests::exists(chroot)]).await?;
    match answers[0].code {
        code::OK => {}
        code::NO_NODE => return Err(inner.no_chroot()),
        code => return Err(refused(code, chroot)),
    }
    let path = format!("{}/examination-", inner.config.nodes.clients());
    inner.make_folders(&session, &path).await?;
    let create = requests::create(&path, b"", Lives::WithSessionInOrder, inner.own_rights());
    let answers = session.ask(vec![create]).await?;
    let Some((created, _)) = answers[0].created().filter(|_| answers[0].is_ok()) else {
        return Err(refused(answers[0].code, &path));
    };
    let answers = session.ask(vec![requests::delete(&created)]).await?;
    match answers[0].code {
        code::OK => Ok(()),
        code => Err(refused(code, &created)),
    }
}

/// In the order in which a person would look.
fn judge(facts: &Facts) -> Examination {
    let findings = vec![
        leader(facts),
        members(facts),
        permissions(facts),
        tick(facts),
        latency(facts),
        encryption(facts),
        access(facts),
    ];
    let version = told(facts, "Zookeeper version: ").next();
    let version =
        version.map(|text| format!("ZooKeeper {}", text.split(['-', ',']).next().unwrap_or_default()));
    Examination::new("zookeeper", version, findings, promises(facts))
}

/// What the members that answer say behind this word of `srvr`.
fn told<'f>(facts: &'f Facts, name: &'static str) -> impl Iterator<Item = &'f str> {
    facts.members.iter().filter_map(move |member| words::field(member.srvr.as_deref()?, name))
}

fn is_hidden(facts: &Facts) -> bool {
    facts.members.iter().any(|member| member.srvr.as_deref().is_some_and(words::is_refused))
}

fn leader(facts: &Facts) -> Check {
    const ID: &str = "leader";
    let modes: Vec<_> = told(facts, "Mode: ").collect();
    match modes.as_slice() {
        [] if is_hidden(facts) => {
            Check::unknown(ID, "Whether there is a leader cannot be seen", "the command srvr is not allowed")
                .fix("4lw.commands.whitelist=srvr, conf")
        }
        [] => Check::problem(ID, "No member of the URL serves clients", "none says its mode")
            .means("Nothing can be locked without a majority of the members.")
            .fix("zkServer.sh status"),
        modes if modes.contains(&"read-only") => {
            Check::problem(ID, "A member is read-only", modes.join(", "))
                .means("It reaches no majority, so nothing can be locked there.")
                .fix("zkServer.sh status")
        }
        modes => Check::ok(ID, "the members serve clients", modes.join(", ")),
    }
}

fn members(facts: &Facts) -> Check {
    const ID: &str = "members";
    let silent: Vec<_> = facts
        .members
        .iter()
        .filter(|member| {
            let srvr = member.srvr.as_deref();
            srvr.is_none_or(|srvr| !words::is_refused(srvr) && words::field(srvr, "Mode: ").is_none())
        })
        .map(|member| member.place.clone())
        .collect();
    if !silent.is_empty() {
        return Check::warning(ID, "Not every member of the URL serves clients", silent.join(", "))
            .means("The others are asked after half of the time limit; another failure may end the majority.")
            .fix("zkServer.sh status");
    }
    let count = facts.members.len();
    match (ensemble(facts), count) {
        (None, _) => {
            Check::unknown(ID, "How many members there are cannot be seen", "their configuration is hidden")
        }
        (Some(1), _) => Check::notice(ID, "There is one server", "it is no ensemble")
            .means("While it is down nothing can be locked; if its disk is lost, so are the locks.")
            .fix("Run three or five members"),
        (Some(2), _) => Check::warning(ID, "There are two members", "of which both are the majority")
            .means("If either is down there is no majority, so two are less available than one.")
            .fix("Run three or five members"),
        (Some(all), 1) => Check::notice(ID, "The URL names one of several members", format!("{all} members"))
            .means("While that one is down, this client reaches none.")
            .fix("zookeeper://HOST,HOST,HOST"),
        (Some(all), _) => Check::ok(ID, format!("{all} members"), format!("the URL names {count}")),
    }
}

/// How many members decide, if the configuration or the modes tell.
fn ensemble(facts: &Facts) -> Option<usize> {
    if told(facts, "Mode: ").any(|mode| mode == "standalone") {
        return Some(1);
    }
    let conf = facts.members.iter().find_map(|member| {
        let conf = member.conf.as_deref()?;
        Some(conf.lines().filter(|line| line.starts_with("server.") && !line.contains("observer")).count())
    });
    conf.filter(|count| *count > 0)
}

fn permissions(facts: &Facts) -> Check {
    const ID: &str = "permissions";
    match &facts.trial {
        Ok(()) => Check::ok(
            ID,
            "nodes of the prefix can be created and deleted",
            format!("tried below {}/.clients", facts.root),
        ),
        Err(error) => {
            Check::problem(ID, "Nodes of the prefix cannot be created and deleted", error.to_string())
                .means("Locks cannot be acquired.")
                .fix(format!("getAcl {}", facts.root))
        }
    }
}

/// What sessions rest on: the option `tick`, and the longest session of the servers.
fn tick(facts: &Facts) -> Check {
    const ID: &str = "tick-time";
    let number = |name: &str| {
        facts
            .members
            .iter()
            .filter_map(|member| words::field(member.conf.as_deref()?, name)?.parse::<u64>().ok())
            .max()
    };
    let Some(tick) = number("tickTime=").map(Duration::from_millis) else {
        return Check::unknown(ID, "The servers' tickTime cannot be seen", "the command conf is not allowed")
            .means("The option tick must be more than half of it.")
            .fix("4lw.commands.whitelist=srvr, conf");
    };
    let most = number("maxSessionTimeout=").map(Duration::from_millis);
    let session = timeout_for(facts.lease, facts.tick);
    let detail =
        format!("tickTime {tick:?}, tick={:?}, a lease of {:?} needs {session:?}", facts.tick, facts.lease);
    if facts.tick * 2 <= tick {
        return Check::problem(ID, "The option tick is too short for these servers", detail)
            .means("A holder may count on a session that the leader has ended.")
            .fix(format!("tick={}ms", tick.as_millis()));
    }
    match most {
        Some(most) if most < session => Check::problem(
            ID,
            "The default lease is too long for these servers",
            format!("{detail}, of at most {most:?}"),
        )
        .means("Locks of this lease cannot be acquired.")
        .fix(format!("maxSessionTimeout={}", session.as_millis())),
        _ => Check::ok(ID, "sessions last for the default lease", detail),
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
        [] if facts.is_encrypted => {
            Check::ok(ID, "no one can listen in between", "TLS, with the members' certificates verified")
        }
        [] => Check::ok(ID, "no one can listen in between", "loopback"),
        hosts => {
            let what = if facts.has_login { "The password and all records" } else { "All records" };
            Check::warning(
                ID,
                "The connection is not encrypted",
                format!("plain TCP to {}", hosts.join(", ")),
            )
            .means(format!("{what} can be read and changed on the way."))
            .fix("zookeepers:// and the members' secureClientPort")
        }
    }
}

fn access(facts: &Facts) -> Check {
    const ID: &str = "access-control";
    match facts.has_login {
        true => Check::ok(ID, "nodes belong to this user", "only it can change them"),
        false => Check::notice(ID, "Nodes belong to everyone", "this client has no user")
            .means("Anyone who reaches a member can delete the node of a holder.")
            .fix("zookeeper://USER@HOST?password_env=VARIABLE"),
    }
}

fn promises(facts: &Facts) -> Vec<Promise> {
    let all = [EXCLUSION, AFTER_RESTART, AFTER_FAILOVER, AFTER_WIPE, FENCING_ORDER, PUSH, FIFO];
    if let Err(error) = &facts.trial {
        let why = format!("no lock can be acquired here: {error}");
        return all.map(|id| Promise::no(id, why.clone())).to_vec();
    }
    let ticks = tick(facts);
    let exclusion = match ticks.severity.needs_action() {
        true => Promise::no(EXCLUSION, ticks.title),
        false => Promise::yes(
            EXCLUSION,
            "one log decides, and a session ends no sooner than its holder's own clock says",
        ),
    };
    let failover = match ensemble(facts) {
        None => Promise::unknown(AFTER_FAILOVER, "how many members there are cannot be seen"),
        Some(1 | 2) => Promise::no(AFTER_FAILOVER, "no other member could take over"),
        Some(_) => Promise::yes(
            AFTER_FAILOVER,
            "a new leader has every grant, and lets every session last for its whole timeout",
        ),
    };
    vec![
        exclusion,
        Promise::yes(AFTER_RESTART, "every grant is in the logs of a majority before it is answered"),
        failover,
        Promise::no(AFTER_WIPE, "members that lost all data grant at once"),
        Promise::yes(FENCING_ORDER, "transaction numbers, which only grow while the data are kept"),
        Promise::yes(PUSH, "each waiter watches the node before its own"),
        Promise::yes(FIFO, "contenders queue in the order of their nodes' numbers"),
    ]
}
