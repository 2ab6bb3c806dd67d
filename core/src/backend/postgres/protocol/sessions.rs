//! The statements of session mode: an advisory lock per session. Its keys are of the database.

use std::time::Duration;

use crate::backend::rows::server::sessions::SessionStatements;
use crate::backend::rows::server::value::Statement;
use crate::limits::MAX_LEASE;
use crate::token::ClientId;

use super::schema::Schema;
use super::statements::{begin, clock_us};

/// A holder that runs has been told by then that its connection has ended: the end arrives within milliseconds.
const KNOWN_AFTER_MS: i64 = 1_000;

const NOW: &str = concat!(clock_us!(), " / 1000");

/// Sessions that are noted to be over in one go.
const NOTED: i64 = 64;

impl SessionStatements for Schema {
    /// An end is reported by the connection itself; this asks whether the lock is still there.
    fn check_every(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// A client that is cut off counts by its own clock, and must not lose its session before: the server keeps a silent
    /// connection for as long as operating systems do by default.
    fn settle(&self) -> Vec<Statement> {
        vec![Statement::new(
            "SELECT set_config(name, CASE name WHEN 'tcp_keepalives_idle' THEN '7200' ELSE '0' END, false) \
             FROM pg_settings WHERE name IN ('tcp_keepalives_idle', 'tcp_keepalives_interval', \
             'tcp_keepalives_count', 'tcp_user_timeout', 'idle_session_timeout')",
            vec![],
        )]
    }

    fn number(&self) -> Statement {
        Statement::new("SELECT pg_backend_pid()::bigint", vec![])
    }

    fn take(&self, key: i64) -> Statement {
        Statement::new("SELECT pg_try_advisory_lock($1)::int::bigint", vec![key.into()])
    }

    fn has(&self, key: i64, number: i64) -> Statement {
        Statement::new(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $2 AND granted \
             AND mode = 'ExclusiveLock' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $1 \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            vec![key.into(), number.into()],
        )
    }

    fn record(&self, client: &ClientId, key: i64) -> Statement {
        Statement::new(
            self.sql(
                "INSERT INTO {s}.sessions (client, key) VALUES ($1, $2) \
                 ON CONFLICT (client) DO UPDATE SET key = $2, over_ms = NULL",
            ),
            vec![client.as_str().into(), key.into()],
        )
    }

    /// A lock that can be shared is held by no connection. It is shared until the end of the transaction.
    fn orphans(&self, names: &[String]) -> Statement {
        let leases = |table: &str| {
            self.sql(&format!(
                "SELECT l.owner, s.client, s.key, (s.over_ms IS NOT NULL)::int::bigint, \
                 (s.over_ms <= {NOW} - $2 IS TRUE)::int::bigint \
                 FROM (SELECT l.owner, l.client FROM {{s}}.{table} l WHERE l.name = ANY ($1) AND l.owner IS NOT NULL \
                 OFFSET 0) l JOIN {{s}}.sessions s ON s.client = l.client \
                 WHERE pg_try_advisory_xact_lock_shared((SELECT key FROM {{s}}.sessions k WHERE k.client = l.client))"
            ))
        };
        Statement::new(
            format!("{} UNION ALL {}", leases("locks"), leases("leases")),
            vec![names.to_vec().into(), KNOWN_AFTER_MS.into()],
        )
    }

    fn over(&self) -> Statement {
        Statement::new(
            self.sql(
                "SELECT client, key FROM (SELECT client, key FROM {s}.sessions WHERE over_ms IS NULL OFFSET 0) s \
                 WHERE pg_try_advisory_xact_lock_shared(key) LIMIT $1",
            ),
            vec![NOTED.into()],
        )
    }

    fn note_over(&self, client: &str, key: i64) -> Statement {
        Statement::new(
            self.sql(concat!(
                "UPDATE {s}.sessions SET over_ms = ",
                clock_us!(),
                " / 1000 WHERE client = $1 AND key = $2"
            )),
            vec![client.into(), key.into()],
        )
    }

    fn forget(&self) -> Statement {
        let ms = i64::try_from(MAX_LEASE.as_millis()).unwrap_or(i64::MAX / 4);
        Statement::new(
            self.sql(concat!("DELETE FROM {s}.sessions WHERE over_ms < ", clock_us!(), " / 1000 - $1")),
            vec![ms.into()],
        )
    }

    fn begin(&self) -> Statement {
        begin()
    }
}
