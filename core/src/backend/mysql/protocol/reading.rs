//! The statements of inspection and of opening a store.

use crate::backend::rows::server::value::{Param, Statement};

use super::schema::TABLES;

/// Which of the tables there are, as far as this user may see them.
pub(crate) fn tables() -> Statement {
    let names: Vec<_> = TABLES.iter().map(|table| format!("'{}'", table.name)).collect();
    Statement::new(
        format!(
            "SELECT CAST(table_name AS BINARY) FROM information_schema.tables WHERE table_schema = DATABASE() \
             AND table_name IN ({})",
            names.join(", ")
        ),
        vec![],
    )
}

/// The version of the tables, and 1 if the server has `INSERT ... RETURNING`: a comment to others than MariaDB 10.5 and later.
pub(crate) fn version() -> Statement {
    Statement::new("SELECT version, /*M!100500 1 + */ 0 FROM polylatch_schema WHERE id = 1", vec![])
}

/// No two clients make the tables of a database at once. Answers 1, or 0 after so many seconds.
pub(crate) fn alone(seconds: i64) -> Statement {
    Statement::new(
        "SELECT CAST(GET_LOCK(CONCAT('polylatch.', LEFT(SHA2(DATABASE(), 256), 32)), ?) AS SIGNED)",
        vec![seconds.into()],
    )
}

pub(crate) fn no_longer_alone() -> Statement {
    Statement::new(
        "SELECT CAST(RELEASE_LOCK(CONCAT('polylatch.', LEFT(SHA2(DATABASE(), 256), 32))) AS SIGNED)",
        vec![],
    )
}

/// Live leases, waiters, clients and breaks, as far as a query wants them, with digests of owner tokens. Of locks that
/// share leases or have waiters, those of the first names.
pub(crate) fn read(exact: Option<&str>, prefix: Option<&str>, limit: i64) -> [Statement; 5] {
    const LIVE: &str =
        "ends_ms > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 1000";
    const LEASE: &str = "l.name, l.digest, l.fence, l.client, l.label, l.mode, l.permits, l.capacity, l.lease_ms, \
                         l.first_ms, l.acquired_ms, l.ends_ms, l.renewals, l.renewed_ms";
    // No UTF-8 text has the byte FF, so what is between begins with the prefix.
    let (wanted, mut params): (&str, Vec<Param>) = match (exact, prefix) {
        (Some(name), _) => ("name = ?", vec![name.into()]),
        (None, Some(prefix)) => {
            ("name >= ? AND name < CONCAT(CAST(? AS BINARY), x'FF')", vec![prefix.into(), prefix.into()])
        }
        (None, None) => ("1 = 1", vec![]),
    };
    params.push(limit.into());
    let sql = |text: String| Statement::new(text, params.clone());
    [
        sql(format!(
            "SELECT {LEASE} FROM polylatch_locks l WHERE {wanted} AND fence IS NOT NULL AND digest IS NOT NULL AND {LIVE} \
             ORDER BY name LIMIT ?"
        )),
        sql(format!(
            "SELECT {LEASE} FROM (SELECT DISTINCT name FROM polylatch_leases WHERE {wanted} AND {LIVE} \
             ORDER BY name LIMIT ?) n JOIN polylatch_leases l ON l.name = n.name WHERE l.{LIVE} \
             ORDER BY l.name, l.fence"
        )),
        sql(format!(
            "SELECT w.name, w.digest, w.ticket, w.client, w.label, w.mode, w.permits, w.capacity, w.since_ms, \
             w.silent_ms FROM (SELECT DISTINCT name FROM polylatch_waiters WHERE {wanted} ORDER BY name LIMIT ?) n \
             JOIN polylatch_waiters w ON w.name = n.name ORDER BY w.name, w.ticket"
        )),
        Statement::new(
            "SELECT id, host, pid, process_started_ms, boot, pid_namespace, program, language, version, seen_ms \
             FROM polylatch_clients ORDER BY id",
            vec![],
        ),
        Statement::new(
            "SELECT at_ms, name, fence, client, broken_by, reason FROM polylatch_audit ORDER BY id DESC LIMIT 200",
            vec![],
        ),
    ]
}
