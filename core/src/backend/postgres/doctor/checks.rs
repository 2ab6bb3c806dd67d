//! Facts become findings and promises.

use super::Facts;
use crate::backend::rows::server::doctor::{
    after_restart, clock, connections, own_connections, primary_key, tables,
};
use crate::snapshot::examination::{AFTER_FAILOVER, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH};
use crate::snapshot::{Check, Examination, Promise};

impl Facts {
    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    /// The setting under which this client commits.
    fn commits(&self) -> &str {
        self.commits.unwrap_or_else(|| self.setting("synchronous_commit"))
    }

    fn number(&self, name: &str) -> i64 {
        self.setting(name).parse().unwrap_or(0)
    }
}

pub(crate) fn judge(facts: &Facts) -> Examination {
    let mut findings = vec![
        writes(facts),
        durability(facts),
        isolation(facts),
        clock(facts.skew),
        connections(
            facts.connections,
            facts.number("max_connections") - facts.number("superuser_reserved_connections"),
            if facts.in_session { "three, with wake=poll two" } else { "two, with wake=poll one" },
            "Raise max_connections, or put a pooler before the server and use wake=poll.",
        ),
        tables(&facts.tables, "polylatch schema postgres", "there are none, and this user may create them"),
        primary_key(&facts.tables, &facts.scans, "polylatch schema postgres"),
        own_connections(facts.pooler.as_deref(), facts.in_session),
        replicas(facts),
    ];
    findings.extend(facts.is_heard.map(|is_heard| {
        if is_heard {
            return Check::ok("notifications", "Notifications arrive", "one that was sent was heard");
        }
        Check::notice(
            "notifications",
            "Notifications do not arrive",
            "one that was sent was not heard within 1 s, as behind a pooler in transaction mode",
        )
        .means("Locks work. Grants are not pushed, so waiters find them by polling.")
        .fix("Use wake=poll, which saves the connection that listens, or connect to the server itself.")
    }));
    let is_durable = !["fsync", "full_page_writes"].iter().any(|name| facts.setting(name) == "off")
        && facts.commits() != "off";
    let standby = facts.setting("synchronous_standby_names");
    let failover = if standby.is_empty() {
        Promise::no(AFTER_FAILOVER, "a standby that follows asynchronously may lack the last leases")
    } else {
        Promise::yes(AFTER_FAILOVER, format!("commits wait for the standbys {standby}"))
    };
    let push = match facts.is_heard {
        Some(true) => Promise::yes(PUSH, "a release notifies the next waiter"),
        Some(false) => Promise::no(PUSH, "notifications do not arrive, as behind a pooler"),
        None if facts.in_recovery => Promise::no(PUSH, "a standby takes no notifications"),
        None => Promise::no(PUSH, "the URL says wake=poll, so waiters poll"),
    };
    let promises = vec![
        Promise::yes(EXCLUSION, "every step locks the row of the lock first"),
        after_restart(is_durable),
        failover,
        Promise::no(AFTER_WIPE, "deleted rows are forgotten leases"),
        Promise::yes(FENCING_ORDER, "a counter in the row of the lock, never behind the server's clock"),
        push,
        Promise::yes(FIFO, "waiters are rows, in the order of their tickets"),
    ];
    Examination::new("postgres", Some(format!("PostgreSQL {}", facts.version)), findings, promises)
}

fn writes(facts: &Facts) -> Check {
    if facts.in_recovery {
        return Check::problem("read-only", "The server is a standby", "pg_is_in_recovery() is true")
            .means("No lock can be acquired.")
            .fix("Connect to the primary.");
    }
    if facts.setting("default_transaction_read_only") == "on" {
        return Check::problem(
            "read-only",
            "Transactions are read-only",
            "default_transaction_read_only is on for this user, database or server",
        )
        .means("No lock can be acquired.")
        .fix("ALTER ROLE ... SET default_transaction_read_only = off");
    }
    Check::ok("read-only", "The server takes writes", "it is no standby")
}

fn replicas(facts: &Facts) -> Check {
    let waits_for = facts.setting("synchronous_standby_names");
    match (facts.standbys, waits_for) {
        (0, "") => Check::ok("replicas", "No standby follows", "pg_stat_replication is empty"),
        (0, _) => Check::warning(
            "replicas",
            "No standby follows, and commits wait for some",
            format!("synchronous_standby_names is {waits_for:?}"),
        )
        .means("A request that changes a lock is not answered until one follows.")
        .fix("Start the standbys, or empty synchronous_standby_names."),
        (count, "") => Check::notice(
            "replicas",
            "Standbys follow asynchronously",
            format!("{count} in pg_stat_replication, and synchronous_standby_names is empty"),
        )
        .means("After a failover the last leases may be missing, and the same lock has two holders.")
        .fix("Set synchronous_standby_names to the standby that would take over."),
        (count, _) => Check::ok(
            "replicas",
            "Commits wait for standbys",
            format!("{count} follow; synchronous_standby_names is {waits_for:?}"),
        ),
    }
}

fn durability(facts: &Facts) -> Check {
    for name in ["fsync", "full_page_writes"] {
        if facts.setting(name) == "off" {
            return Check::problem("durability", "A crash may damage the data", format!("{name} is off"))
                .means("After a power failure leases that are held may be gone, and the same lock has two holders.")
                .fix(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"));
        }
    }
    if facts.commits() == "off" {
        let (detail, fix) = match facts.commits {
            Some(_) => {
                ("the URL says durability=async", "Leave durability=async out, or write durability=sync.")
            }
            None => (
                "synchronous_commit is off",
                "Write durability=sync, or ALTER ROLE ... SET synchronous_commit = on",
            ),
        };
        return Check::warning("durability", "A crash may lose the last commits", detail)
            .means(
                "After a crash of the server a lease that was just granted may be gone, and the same lock has two holders. \
                 Fencing tokens go on growing.",
            )
            .fix(fix);
    }
    Check::ok(
        "durability",
        "Commits are on the disk before they are answered",
        "fsync and synchronous_commit are on",
    )
}

fn isolation(facts: &Facts) -> Check {
    let isolation = facts.setting("default_transaction_isolation");
    if isolation == "read committed" || isolation.is_empty() {
        return Check::ok("isolation", "Transactions are isolated as usual", "read committed");
    }
    Check::notice(
        "isolation",
        "Transactions are isolated more strictly than usual",
        format!("default_transaction_isolation is {isolation}"),
    )
    .means("Locks work; under contention an acquisition takes one request more.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::rows::server::doctor::{Skew, Tables};
    use crate::snapshot::examination::AFTER_RESTART;
    use crate::snapshot::{CheckSeverity, Holds};

    fn good() -> Facts {
        let settings = [
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("default_transaction_isolation", "read committed"),
            ("default_transaction_read_only", "off"),
            ("max_connections", "100"),
            ("superuser_reserved_connections", "3"),
        ];
        Facts {
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            connections: 5,
            skew: Skew { ms: 0, error_ms: 1 },
            is_heard: Some(true),
            ..Facts::default()
        }
    }

    fn with(name: &str, value: &str) -> Facts {
        let mut facts = good();
        facts.settings.insert(name.into(), value.into());
        facts
    }

    #[test]
    fn what_breaks_a_promise_is_found() {
        assert_eq!(judge(&good()).worst(), CheckSeverity::Ok);
        for (facts, id, severity) in [
            (with("fsync", "off"), "durability", CheckSeverity::Problem),
            (with("synchronous_commit", "off"), "durability", CheckSeverity::Warning),
            (Facts { commits: Some("off"), ..good() }, "durability", CheckSeverity::Warning),
            (
                Facts { commits: Some("on"), ..with("synchronous_commit", "off") },
                "durability",
                CheckSeverity::Ok,
            ),
            (with("default_transaction_read_only", "on"), "read-only", CheckSeverity::Problem),
            (with("default_transaction_isolation", "serializable"), "isolation", CheckSeverity::Notice),
            (Facts { in_recovery: true, ..good() }, "read-only", CheckSeverity::Problem),
            (Facts { skew: Skew { ms: -5_000, error_ms: 1 }, ..good() }, "clock", CheckSeverity::Warning),
            (Facts { standbys: 1, ..good() }, "replicas", CheckSeverity::Notice),
            (with("synchronous_standby_names", "one"), "replicas", CheckSeverity::Warning),
            (
                Facts { standbys: 1, ..with("synchronous_standby_names", "one") },
                "replicas",
                CheckSeverity::Ok,
            ),
            (Facts { pooler: Some("shared".into()), ..good() }, "pooler", CheckSeverity::Notice),
            (
                Facts { pooler: Some("shared".into()), in_session: true, ..good() },
                "pooler",
                CheckSeverity::Problem,
            ),
            (Facts { scans: vec!["SELECT".into()], ..good() }, "primary-key", CheckSeverity::Warning),
            (Facts { connections: 95, ..good() }, "connections", CheckSeverity::Warning),
            (Facts { is_heard: Some(false), ..good() }, "notifications", CheckSeverity::Notice),
            (Facts { tables: Tables::Refused("gone".into()), ..good() }, "tables", CheckSeverity::Problem),
        ] {
            let found = judge(&facts);
            assert_eq!(found.finding(id).map(|check| check.severity), Some(severity), "{facts:?}");
        }
        let restart = |facts: &Facts| {
            let promises = judge(facts).promises;
            promises.iter().find(|promise| promise.id == AFTER_RESTART).map(|promise| promise.holds)
        };
        assert_eq!(restart(&good()), Some(Holds::Yes));
        assert_eq!(restart(&with("synchronous_commit", "off")), Some(Holds::No));
    }
}
