//! Judges the server: what it is, what it forgets, and who stands in for it.

use crate::backend::redis::config::AckRule;
use crate::backend::redis::doctor::facts::Facts;
use crate::snapshot::Check;
use crate::snapshot::examination::size;

pub(crate) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        info(facts),
        mode(facts),
        role(facts),
        eviction(facts),
        persistence(facts),
        replicas(facts),
        saving(facts),
        memory(facts),
        connections(facts),
        version(facts),
    ];
    checks.extend(writes(facts));
    checks
}

/// What clients with `guarantee=strict` do about it, if this client is one.
fn refused(facts: &Facts) -> &'static str {
    if facts.strict { " Clients with guarantee=strict refuse to connect." } else { "" }
}

pub(crate) fn user(facts: &Facts) -> &str {
    facts.user.as_deref().unwrap_or("default")
}

fn info(facts: &Facts) -> Check {
    const ID: &str = "info";
    if facts.info.is_some() {
        return Check::ok(ID, "the server tells its state", "INFO is allowed");
    }
    let detail = format!("the user {} may not call INFO", user(facts));
    let check = if facts.strict {
        Check::problem(ID, "A restart of the server cannot be noticed", detail)
            .means(format!("The quarantine of guarantee=strict needs INFO.{}", refused(facts)))
    } else {
        Check::unknown(ID, "The server's state cannot be seen", detail)
            .means("Eviction, persistence and replicas are not known, so neither is what a restart does.")
    };
    check.fix(format!("redis-cli ACL SETUSER {} +info   # or examine as an administrator", user(facts)))
}

fn mode(facts: &Facts) -> Check {
    const ID: &str = "mode";
    match facts.other_mode() {
        None if facts.info.is_none() => {
            Check::unknown(ID, "Whether it belongs to a cluster cannot be seen", "INFO is not allowed")
        }
        None if facts.in_cluster => Check::ok(ID, "a primary of a cluster", "the URL names a cluster"),
        None if facts.sentinels.is_some() => {
            Check::ok(ID, "the primary that the Sentinels name", facts.field("redis_mode").unwrap_or("no cluster"))
        }
        None => Check::ok(ID, "single server", facts.field("redis_mode").unwrap_or("no cluster")),
        Some(mode) => Check::problem(ID, format!("This is a {mode} node, not a single server"), format!("redis_mode is {mode}"))
            .means("The URL names one server: locks whose keys live elsewhere fail, and moving slots is not followed.")
            .fix("Name the cluster: redis+cluster://HOST:PORT,HOST:PORT   # or a server outside of it: redis://HOST:PORT"),
    }
}

fn role(facts: &Facts) -> Check {
    const ID: &str = "role";
    if !facts.is_replica() {
        return match facts.field("role") {
            Some(_) => Check::ok(ID, "primary", "it accepts writes"),
            None if facts.wrote => Check::ok(ID, "accepts writes", "a throw-away key could be written"),
            None => Check::unknown(ID, "Whether it is a primary cannot be seen", "INFO is not allowed"),
        };
    }
    let of = match (facts.field("master_host"), facts.field("master_port")) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => "an unknown primary".into(),
    };
    let link = facts.field("master_link_status").unwrap_or("unknown");
    Check::problem(ID, "This server is a replica", format!("it replicates from {of}, link {link}"))
        .means("No lock can be taken here. Clients refuse to connect.")
        .fix(format!("Connect to the primary: redis://{of}"))
}

fn eviction(facts: &Facts) -> Check {
    const ID: &str = "eviction";
    let Some((limit, policy)) = facts.eviction() else {
        return Check::unknown(
            ID,
            "Eviction cannot be seen",
            "neither INFO nor CONFIG GET tells maxmemory-policy",
        )
        .means("If the server evicts keys, a held lock can vanish and get a second holder.")
        .fix("redis-cli CONFIG GET maxmemory-policy   # as an administrator; it must say noeviction");
    };
    if policy == "noeviction" {
        return Check::ok(ID, "nothing is evicted", "maxmemory-policy is noeviction");
    }
    let fix = "redis-cli CONFIG SET maxmemory-policy noeviction && redis-cli CONFIG REWRITE";
    if limit == 0 {
        return Check::notice(
            ID,
            "It would evict if it had a memory limit",
            format!("maxmemory-policy {policy}, maxmemory 0"),
        )
        .means("No risk now; once maxmemory is set, held locks can vanish.")
        .fix(fix);
    }
    let seen = format!("maxmemory-policy {policy} with maxmemory {}", size(limit));
    let evicted = facts.number("evicted_keys").unwrap_or(0);
    let seen = if evicted > 0 { format!("{seen}; {evicted} keys evicted so far") } else { seen };
    Check::problem(ID, "Held locks can be evicted", seen)
        .means(format!(
            "When memory is full, Redis deletes keys, held locks among them; the next contender then gets the \
             lock while its holder still works.{}",
            refused(facts)
        ))
        .fix(fix)
}

/// What is left after the process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Every change is on the disk before it is answered.
    Always,
    /// The last second may be lost.
    EverySecond,
    /// The operating system decides.
    WhenItSuits,
    /// What has changed since the last snapshot is lost.
    Snapshots,
    Nothing,
    Unknown,
}

pub(crate) fn durability(facts: &Facts) -> Durability {
    let aof = match (facts.setting("appendonly"), facts.field("aof_enabled")) {
        (Some("yes"), _) | (None, Some("1")) => true,
        (None, None) => return Durability::Unknown,
        _ => false,
    };
    match (aof, facts.setting("appendfsync"), facts.setting("save")) {
        (true, Some("always"), _) => Durability::Always,
        (true, Some("everysec"), _) => Durability::EverySecond,
        (true, Some(_), _) => Durability::WhenItSuits,
        (true, None, _) | (false, _, None) => Durability::Unknown,
        (false, _, Some("")) => Durability::Nothing,
        (false, _, Some(_)) => Durability::Snapshots,
    }
}

fn persistence(facts: &Facts) -> Check {
    const ID: &str = "persistence";
    const ALWAYS: &str = "redis-cli CONFIG SET appendonly yes && redis-cli CONFIG SET appendfsync always && \
                          redis-cli CONFIG REWRITE   # or guarantee=strict in the URL of every client";
    if facts.is_replica() {
        return Check::ok(ID, "what a restart does is the primary's matter", "this server is a replica");
    }
    let save = facts.setting("save").unwrap_or_default();
    let (title, detail) = match durability(facts) {
        Durability::Always => {
            return Check::ok(
                ID,
                "every change is on disk before it counts",
                "appendonly yes, appendfsync always",
            );
        }
        Durability::Unknown => {
            return Check::unknown(ID, "Persistence cannot be seen", "CONFIG GET is not allowed")
                .means("After a restart of the server, locks that were held may be free.")
                .fix("redis-cli CONFIG GET append*   # as an administrator, or guarantee=strict in the URL");
        }
        Durability::EverySecond => {
            ("A restart can forget the last second", "appendonly yes, appendfsync everysec".into())
        }
        Durability::WhenItSuits => {
            ("A power cut can forget the last half minute", "appendonly yes, appendfsync no".into())
        }
        Durability::Snapshots => (
            "A restart forgets what is newer than the last snapshot",
            format!("appendonly no, save \"{save}\""),
        ),
        Durability::Nothing => ("A restart forgets all locks", "appendonly no, save \"\"".into()),
    };
    if facts.strict {
        let detail = format!("{detail}; after a restart nothing is granted for {:?}", facts.max_lease);
        return Check::ok(
            ID,
            "after a restart nothing is granted until earlier leases have expired (guarantee=strict)",
            detail,
        );
    }
    if durability(facts) == Durability::EverySecond {
        return Check::notice(ID, title, detail)
            .means("A lock that was granted in that second is free after the restart, while its holder still works.")
            .fix("redis-cli CONFIG SET appendfsync always   # or guarantee=strict in the URL of every client");
    }
    Check::warning(ID, title, detail)
        .means("Locks that were held are free after the restart, while their holders still work; they learn of it at their next renewal.")
        .fix(ALWAYS)
}

fn replicas(facts: &Facts) -> Check {
    const ID: &str = "replicas";
    if facts.is_replica() {
        return Check::ok(ID, "replicas are looked at on the primary", "this server is a replica");
    }
    let Some(count) = facts.number("connected_slaves") else {
        return Check::unknown(ID, "Replicas cannot be seen", "INFO is not allowed")
            .means("If a replica is promoted that lags behind, a held lock may be free there.")
            .fix("redis-cli INFO replication   # as an administrator");
    };
    let least = facts.min_replicas().unwrap_or(0);
    if count < least {
        return Check::problem(
            ID,
            "Too few replicas: the server refuses writes",
            format!("{count} connected, min-replicas-to-write {least}"),
        )
        .means("No lock can be acquired or released until enough replicas are connected.")
        .fix("redis-cli CONFIG SET min-replicas-to-write 0   # or start the replicas");
    }
    if count == 0 {
        if let Some(rule) = facts.ack {
            return Check::problem(
                ID,
                "ack= waits for replicas that are not there",
                format!("{}, and no replica is connected", spelled(rule)),
            )
            .means("Every acquisition waits for the acknowledgement, fails and is undone.")
            .fix("Connect a replica, or remove ack= from the URL");
        }
        return Check::ok(ID, "no replica", "nothing is connected, so nothing can be promoted by mistake");
    }
    let replicas = facts.replicas();
    let list = replicas.iter().map(|(place, state, lag)| match state.as_str() {
        "online" => format!("{place} online, {lag} s behind"),
        state => format!("{place} {state}"),
    });
    let seen = format!("{} (min-replicas-to-write {least})", list.collect::<Vec<_>>().join("; "));
    if let Some(rule) = facts.ack {
        let needed = u64::from(rule.needed(u32::try_from(count).unwrap_or(u32::MAX)));
        if needed > count {
            return Check::problem(
                ID,
                "ack= wants more replicas than there are",
                format!("{}, {count} connected", spelled(rule)),
            )
            .means("Every acquisition waits for the acknowledgement, fails and is undone.")
            .fix("Connect more replicas, or use ack=majority in the URL");
        }
    } else {
        let check = if facts.strict { Check::problem } else { Check::warning };
        return check(ID, "Grants do not wait for the replicas", seen)
            .means(format!(
                "A replica that is promoted may not know a lock that is held, and grants it again.{}",
                refused(facts)
            ))
            .fix("redis-cli CONFIG SET min-replicas-to-write 1   # and add ack=majority to the URL of every client");
    }
    if let Some((place, state, lag)) = replicas.iter().find(|(_, state, lag)| state != "online" || *lag > 5) {
        return Check::warning(ID, "A replica is behind", format!("{place} is {state}, {lag} s behind"))
            .means("Acquisitions wait for its acknowledgement; a promotion of it would forget locks.")
            .fix("redis-cli INFO replication   # look at offset and link of that replica");
    }
    if least == 0 {
        return Check::notice(ID, "A primary without replicas goes on", seen)
            .means("Cut off from its replicas, it still accepts renewals and releases that they never see.")
            .fix("redis-cli CONFIG SET min-replicas-to-write 1 && redis-cli CONFIG REWRITE");
    }
    let needed = facts.replicas_needed();
    if least < needed {
        return Check::notice(ID, "A cut-off primary may keep enough replicas", seen)
            .means(format!(
                "Of {} replicas one is promoted, and with {least} of the others the former primary goes on.",
                facts.known_replicas()
            ))
            .fix(format!("redis-cli CONFIG SET min-replicas-to-write {needed} && redis-cli CONFIG REWRITE   # on every server"));
    }
    Check::ok(
        ID,
        "grants wait for replicas",
        format!("{}; {seen}", spelled(facts.ack.unwrap_or(AckRule::Any))),
    )
}

fn spelled(rule: AckRule) -> String {
    match rule {
        AckRule::Any => "ack=any".into(),
        AckRule::Majority => "ack=majority".into(),
        AckRule::All => "ack=all".into(),
        AckRule::Count(count) => format!("ack={count}"),
    }
}

/// A refusal of writes that no other check explains.
fn writes(facts: &Facts) -> Option<Check> {
    const ID: &str = "writes";
    match facts.write_refused.as_deref() {
        None if facts.wrote => Some(Check::ok(ID, "writes are accepted", "a throw-away key could be written")),
        None => Some(Check::unknown(ID, "Writing was not tried", "the user lacks permissions")),
        Some("READONLY" | "OOM" | "MISCONF" | "MOVED" | "CLUSTERDOWN") => None,
        Some("NOREPLICAS") if facts.info.is_some() && facts.min_replicas().is_some() => None,
        Some(code) => Some(
            Check::problem(ID, "The server refuses writes", format!("SET was refused with {code}"))
                .means("No lock can be granted.")
                .fix("redis-cli INFO replication   # NOREPLICAS: start replicas, or lower min-replicas-to-write"),
        ),
    }
}

fn saving(facts: &Facts) -> Check {
    const ID: &str = "saving";
    if facts.info.is_none() {
        return Check::unknown(ID, "Errors of saving cannot be seen", "INFO is not allowed");
    }
    let failed: Vec<&str> = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"]
        .into_iter()
        .filter(|name| facts.field(name).is_some_and(|status| status != "ok"))
        .collect();
    if !failed.is_empty() || facts.write_refused.as_deref() == Some("MISCONF") {
        let seen = if failed.is_empty() {
            "writes are refused with MISCONF".into()
        } else {
            format!("{}: err", failed.join(", "))
        };
        return Check::problem(ID, "The server cannot save its data", seen)
            .means("Redis soon refuses all writes (MISCONF), and what a restart brings back is old.")
            .fix("Free the disk or fix its permissions, then: redis-cli BGSAVE, and look again");
    }
    Check::ok(ID, "no error while saving", "last snapshot and last append went well")
}

fn memory(facts: &Facts) -> Check {
    const ID: &str = "memory";
    let means =
        "When it is full, Redis grants nothing (OOM); what is held can still be renewed and released.";
    let fix = "redis-cli CONFIG SET maxmemory BIGGER   # or give locks a server of their own";
    if facts.write_refused.as_deref() == Some("OOM") {
        return Check::problem(ID, "Memory is full", "a write of a few bytes was refused (OOM)")
            .means(means)
            .fix(fix);
    }
    let (Some(used), Some((limit, _))) = (facts.number("used_memory"), facts.eviction()) else {
        return Check::unknown(ID, "Memory cannot be seen", "INFO is not allowed").means(means);
    };
    // Without a limit the machine's memory is the limit.
    let (room, which) = match (limit, facts.number("total_system_memory")) {
        (1.., _) => (limit, "maxmemory"),
        (0, Some(system @ 1..)) => (system, "the machine's memory"),
        _ => return Check::ok(ID, "no memory limit", format!("{} used", size(used))),
    };
    let percent = used.saturating_mul(100) / room;
    let seen = format!("{} of {} ({which}) used, {percent} %", size(used), size(room));
    if percent >= 90 {
        return Check::warning(ID, "Memory is nearly full", seen).means(means).fix(fix);
    }
    Check::ok(ID, "memory to spare", seen)
}

fn connections(facts: &Facts) -> Check {
    const ID: &str = "connections";
    let (Some(now), Some(most)) = (facts.number("connected_clients"), facts.number("maxclients")) else {
        return Check::unknown(ID, "The number of connections cannot be seen", "INFO is not allowed");
    };
    let seen = format!("{now} of {most} connections in use");
    if now.saturating_mul(10) >= most.saturating_mul(9) {
        return Check::warning(ID, "Connections are running out", seen)
            .means("A client that has to reconnect is refused, cannot renew, and loses its locks.")
            .fix("redis-cli CONFIG SET maxclients MORE   # and find who keeps connections: redis-cli CLIENT LIST");
    }
    Check::ok(ID, "connections to spare", seen)
}

fn version(facts: &Facts) -> Check {
    const ID: &str = "version";
    let Some(named) = facts.version() else {
        return Check::unknown(ID, "The version cannot be seen", "INFO is not allowed");
    };
    if !named.starts_with("Redis ") {
        return Check::ok(ID, named.clone(), "speaks the protocol of Redis");
    }
    let mut numbers = named["Redis ".len()..].split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let fix = "Upgrade to a release that Redis or your distribution maintains (redis-server --version)";
    match version {
        (..5, _) => {
            Check::problem(ID, format!("{named} is too old"), "before 5.0 scripts are replicated as text")
                .means("The scripts of locks read the clock before they write, which this version refuses.")
                .fix(fix)
        }
        (5, _) | (6, ..2) => Check::warning(ID, format!("{named} is not maintained any more"), named)
            .means("Known security holes stay open, also in the script engine that locks use.")
            .fix(fix),
        // Redis ended 6.2 and 7.0 in 2024 and 2025; some distributions still mend them.
        (6, _) | (7, ..2) => Check::notice(
            ID,
            format!("{named} is no longer maintained upstream"),
            "only some distributions still fix it",
        )
        .means("Locks work. Security fixes come only if your distribution backports them.")
        .fix(fix),
        _ => Check::ok(ID, named, "maintained"),
    }
}
