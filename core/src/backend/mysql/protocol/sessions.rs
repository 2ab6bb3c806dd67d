//! The statements of session mode: a lock of `GET_LOCK` per session. Its name is of the whole server, and has the random key
//! of the session in it.

use std::time::Duration;

use crate::backend::rows::server::sessions::SessionStatements;
use crate::backend::rows::server::value::Statement;
use crate::limits::MAX_LEASE;
use crate::token::ClientId;

use super::statements::{begin, clock_us, listed};

/// A holder that runs has asked by then, ten times if its host is idle, and knows that its connection has ended.
const KNOWN_AFTER_MS: i64 = 3_000;

const NOW: &str = concat!(clock_us!(), " DIV 1000");

/// The dialect.
pub(crate) struct BySessionLock;

/// 38 characters at most, of the 64 that a name can have.
macro_rules! lock_of {
    ($key:literal) => {
        concat!("CONCAT('polylatch.session.', ", $key, ")")
    };
}

impl SessionStatements for BySessionLock {
    /// The client library notices the end of a connection when it next asks.
    fn check_every(&self) -> Duration {
        Duration::from_millis(250)
    }

    /// A day, whatever the server is set to; the connection is asked much more often.
    fn settle(&self) -> Vec<Statement> {
        vec![Statement::new("SET SESSION wait_timeout = 86400", vec![])]
    }

    fn number(&self) -> Statement {
        Statement::new("SELECT CAST(CONNECTION_ID() AS SIGNED)", vec![])
    }

    fn take(&self, key: i64) -> Statement {
        Statement::new(concat!("SELECT CAST(GET_LOCK(", lock_of!("?"), ", 0) AS SIGNED)"), vec![key.into()])
    }

    fn has(&self, key: i64, number: i64) -> Statement {
        Statement::new(
            concat!("SELECT CAST(COALESCE(IS_USED_LOCK(", lock_of!("?"), ") = ?, 0) AS SIGNED)"),
            vec![key.into(), number.into()],
        )
    }

    fn record(&self, client: &ClientId, key: i64) -> Statement {
        Statement::new(
            "INSERT INTO polylatch_sessions (client, session_key) VALUES (?, ?) \
             ON DUPLICATE KEY UPDATE session_key = VALUES(session_key), over_ms = NULL",
            vec![client.as_str().into(), key.into()],
        )
    }

    fn orphans(&self, names: &[String]) -> Statement {
        let (marks, mut params) = listed(names);
        params.insert(0, KNOWN_AFTER_MS.into());
        params.extend(params.clone());
        let leases = |table: &str| {
            format!(
                "SELECT l.owner, s.client, s.session_key, CAST(s.over_ms IS NOT NULL AS SIGNED), \
                 CAST(COALESCE(s.over_ms <= {NOW} - ?, 0) AS SIGNED) \
                 FROM {table} l JOIN polylatch_sessions s ON s.client = l.client \
                 WHERE l.name IN ({marks}) AND l.owner IS NOT NULL AND IS_FREE_LOCK({}) = 1",
                lock_of!("s.session_key")
            )
        };
        Statement::new(
            format!("{} UNION ALL {}", leases("polylatch_locks"), leases("polylatch_leases")),
            params,
        )
    }

    fn over(&self) -> Statement {
        Statement::new(
            concat!(
                "SELECT client, session_key FROM polylatch_sessions WHERE over_ms IS NULL AND IS_FREE_LOCK(",
                lock_of!("session_key"),
                ") = 1 LIMIT 64"
            ),
            vec![],
        )
    }

    fn note_over(&self, client: &str, key: i64) -> Statement {
        Statement::new(
            concat!(
                "UPDATE polylatch_sessions SET over_ms = ",
                clock_us!(),
                " DIV 1000 WHERE client = ? AND session_key = ?"
            ),
            vec![client.into(), key.into()],
        )
    }

    fn forget(&self) -> Statement {
        let ms = i64::try_from(MAX_LEASE.as_millis()).unwrap_or(i64::MAX / 4);
        Statement::new(
            concat!("DELETE FROM polylatch_sessions WHERE over_ms < ", clock_us!(), " DIV 1000 - ?"),
            vec![ms.into()],
        )
    }

    fn begin(&self) -> Statement {
        begin()
    }
}
