//! Facts become findings and promises.

use super::Facts;
use crate::backend::rows::server::doctor::{
    Tables, after_restart, clock, connections, own_connections, primary_key, tables,
};
use crate::snapshot::examination::{AFTER_FAILOVER, AFTER_WIPE, EXCLUSION, FENCING_ORDER, FIFO, PUSH};
use crate::snapshot::{Check, Examination, Promise};

impl Facts {
    fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        ["ON", "1", "YES"].contains(&self.setting(name).to_ascii_uppercase().as_str())
    }

    fn product(&self) -> &'static str {
        if self.version.contains("MariaDB") { "MariaDB" } else { "MySQL" }
    }

    fn is_durable(&self) -> bool {
        self.setting("innodb_flush_log_at_trx_commit") == "1"
    }
}

pub(crate) fn judge(facts: &Facts) -> Examination {
    let findings = vec![
        writes(facts),
        durability(facts),
        isolation(facts),
        clock(facts.skew),
        connections(
            facts.connections,
            facts.setting("max_connections").parse().unwrap_or(0),
            if facts.in_session {
                "two, a third one while it waits, and with wake=poll two"
            } else {
                "one, a second one while it waits, and with wake=poll one"
            },
            "Raise max_connections, or use wake=poll.",
        ),
        tables(
            &facts.tables,
            "polylatch schema mysql",
            "there are none that this user may see; it needs the right to create them",
        ),
        primary_key(&facts.tables, &facts.scans, "polylatch schema mysql"),
        own_connections(facts.pooler.as_deref(), facts.in_session),
        replicas(facts),
    ];
    let push = match facts.bell_works {
        Some(true) => {
            Promise::yes(PUSH, "a release wakes the next waiter, if both are the same user of the server")
        }
        Some(false) => Promise::no(PUSH, "session locks do not work here (GET_LOCK), so waiters poll"),
        None => Promise::no(PUSH, "the URL says wake=poll, so waiters poll"),
    };
    let promises = vec![
        Promise::yes(EXCLUSION, "every step locks the row of the lock first"),
        after_restart(facts.is_durable()),
        Promise::no(AFTER_FAILOVER, "a replica that follows asynchronously may lack the last leases"),
        Promise::no(AFTER_WIPE, "deleted rows are forgotten leases"),
        Promise::yes(FENCING_ORDER, "a counter in the row of the lock, never behind the server's clock"),
        push,
        Promise::yes(FIFO, "waiters are rows, in the order of their tickets"),
    ];
    let server = format!("{} {}", facts.product(), facts.version);
    Examination::new("mysql", Some(server), findings, promises)
}

fn writes(facts: &Facts) -> Check {
    for name in ["super_read_only", "innodb_read_only", "read_only"] {
        if facts.is_on(name) {
            let check = if name == "read_only" && facts.tables == Tables::Usable {
                Check::notice(
                    "read-only",
                    "The server is read-only, and this user may write all the same",
                    "read_only is on",
                )
                .means("Clients of other users cannot acquire a lock.")
            } else {
                Check::problem("read-only", "The server is read-only", format!("{name} is on"))
                    .means("No lock can be acquired.")
            };
            return check.fix("Connect to the primary.");
        }
    }
    Check::ok("read-only", "The server takes writes", "read_only is off")
}

fn replicas(facts: &Facts) -> Check {
    if facts.is_on("wsrep_on") {
        return Check::warning("replicas", "The server is a node of a Galera cluster", "wsrep_on is on")
            .means(
                "Row locks and session locks are of one node, and a commit that meets one of another node is refused. It was \
                 not tried.",
            )
            .fix("Connect all clients to the same node.");
    }
    if !facts.is_on("log_bin") {
        return Check::ok("replicas", "No replica follows", "there is no binary log");
    }
    let waits = facts.is_on("rpl_semi_sync_master_enabled") || facts.is_on("rpl_semi_sync_source_enabled");
    let (title, detail) = match facts.replicas {
        Some(0) => return Check::ok("replicas", "No replica follows", "Slaves_connected is 0"),
        Some(count) if waits => {
            return Check::ok(
                "replicas",
                "Commits wait for a replica",
                format!("{count} follow, semi-synchronously"),
            );
        }
        Some(count) => ("Replicas follow asynchronously", format!("Slaves_connected is {count}")),
        None if waits => return Check::ok("replicas", "Commits wait for a replica", "semi-synchronously"),
        None => (
            "Replicas may follow asynchronously",
            "there is a binary log, and the server does not say whether replicas follow".to_owned(),
        ),
    };
    Check::notice("replicas", title, detail)
        .means("After a failover the last leases may be missing, and the same lock has two holders.")
        .fix("Use semi-synchronous replication, if leases must survive a failover.")
}

fn durability(facts: &Facts) -> Check {
    let flush = facts.setting("innodb_flush_log_at_trx_commit");
    if !facts.is_durable() {
        return Check::warning(
            "durability",
            "A crash may lose the last commits",
            format!("innodb_flush_log_at_trx_commit is {flush}"),
        )
        .means(
            "After a power failure (with 0 also after a crash of the server) a lease that was just granted may be gone, \
             and the same lock has two holders.",
        )
        .fix("SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration");
    }
    if facts.is_on("log_bin") && facts.setting("sync_binlog") != "1" {
        return Check::notice(
            "durability",
            "The binary log is not synced at each commit",
            format!("sync_binlog is {}", facts.setting("sync_binlog")),
        )
        .means("After a crash a replica may have leases that this server lost, or the other way around.")
        .fix("SET GLOBAL sync_binlog = 1, and in the server's configuration");
    }
    Check::ok(
        "durability",
        "Commits are on the disk before they are answered",
        "innodb_flush_log_at_trx_commit is 1",
    )
}

fn isolation(facts: &Facts) -> Check {
    let isolation = facts.setting("session_isolation");
    if facts.is_on("log_bin") && facts.setting("binlog_format").eq_ignore_ascii_case("STATEMENT") {
        return Check::problem(
            "isolation",
            "The binary log does not take READ COMMITTED",
            "binlog_format is STATEMENT",
        )
        .means("The server refuses every write of a lock.")
        .fix("SET GLOBAL binlog_format = 'MIXED' (or ROW), and in the server's configuration");
    }
    if isolation == "READ-COMMITTED" {
        return Check::ok(
            "isolation",
            "Sessions of Polylatch do not lock gaps",
            "each of them runs in READ COMMITTED, whatever the server's default is",
        );
    }
    Check::warning(
        "isolation",
        "Sessions are not isolated as they were set",
        format!("transaction_isolation of this session is {isolation:?}"),
    )
    .means("Clients may meet in gaps between rows and lose time in deadlocks.")
    .fix("Connect to the server itself, or let the proxy in between keep the session's settings.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::rows::server::doctor::Skew;
    use crate::snapshot::examination::AFTER_RESTART;
    use crate::snapshot::{CheckSeverity, Holds};

    fn good() -> Facts {
        let settings = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("sync_binlog", "0"),
            ("log_bin", "OFF"),
            ("binlog_format", "MIXED"),
            ("read_only", "OFF"),
            ("session_isolation", "READ-COMMITTED"),
            ("max_connections", "151"),
        ];
        Facts {
            version: "10.11.19-MariaDB".into(),
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            connections: 5,
            skew: Skew { ms: 0, error_ms: 1 },
            ..Facts::default()
        }
    }

    fn with(settings: &[(&str, &str)]) -> Facts {
        let mut facts = good();
        facts.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        facts
    }

    #[test]
    fn what_breaks_a_promise_is_found() {
        assert_eq!(judge(&good()).worst(), CheckSeverity::Ok);
        for (facts, id, severity) in [
            (with(&[("innodb_flush_log_at_trx_commit", "2")]), "durability", CheckSeverity::Warning),
            (with(&[("log_bin", "ON")]), "durability", CheckSeverity::Notice),
            (with(&[("log_bin", "ON"), ("binlog_format", "STATEMENT")]), "isolation", CheckSeverity::Problem),
            (with(&[("session_isolation", "REPEATABLE-READ")]), "isolation", CheckSeverity::Warning),
            (with(&[("super_read_only", "ON")]), "read-only", CheckSeverity::Problem),
            (with(&[("read_only", "ON")]), "read-only", CheckSeverity::Notice),
            (
                Facts { tables: Tables::Refused("gone".into()), ..with(&[("read_only", "ON")]) },
                "read-only",
                CheckSeverity::Problem,
            ),
            (Facts { skew: Skew { ms: -5_000, error_ms: 1 }, ..good() }, "clock", CheckSeverity::Warning),
            (with(&[("log_bin", "ON"), ("sync_binlog", "1")]), "replicas", CheckSeverity::Notice),
            (
                Facts { replicas: Some(0), ..with(&[("log_bin", "ON"), ("sync_binlog", "1")]) },
                "replicas",
                CheckSeverity::Ok,
            ),
            (
                Facts {
                    replicas: Some(1),
                    ..with(&[("log_bin", "ON"), ("sync_binlog", "1"), ("rpl_semi_sync_master_enabled", "ON")])
                },
                "replicas",
                CheckSeverity::Ok,
            ),
            (with(&[("wsrep_on", "ON")]), "replicas", CheckSeverity::Warning),
            (
                Facts { pooler: Some("shared".into()), in_session: true, ..good() },
                "pooler",
                CheckSeverity::Problem,
            ),
            (Facts { connections: 145, ..good() }, "connections", CheckSeverity::Warning),
            (Facts { tables: Tables::Refused("gone".into()), ..good() }, "tables", CheckSeverity::Problem),
            (Facts { scans: vec!["SELECT".into()], ..good() }, "primary-key", CheckSeverity::Warning),
        ] {
            let found = judge(&facts);
            assert_eq!(found.finding(id).map(|check| check.severity), Some(severity), "{facts:?}");
        }
        let restart = |facts: &Facts| {
            let promises = judge(facts).promises;
            promises.iter().find(|promise| promise.id == AFTER_RESTART).map(|promise| promise.holds)
        };
        assert_eq!(restart(&good()), Some(Holds::Yes));
        assert_eq!(restart(&with(&[("innodb_flush_log_at_trx_commit", "0")])), Some(Holds::No));
    }
}
