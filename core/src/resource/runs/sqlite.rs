//! The statements for SQLite: a table of its own in the caller's file, by the wall clock of the host.

use super::statement::{SqlStatement, SqlValue};
use crate::policy::idempotency::Record;

/// Makes the table. Run again, it changes nothing.
pub(super) const TABLE: &str = "\
-- Idempotent work in the caller's transactions: one row per key. All times are milliseconds since 1970 by the clock of
-- the host. A claim ends at ends_ms; a row counts as absent from keep_until_ms on (NULL: never). Invariant: version grows
-- with every write of a row.
CREATE TABLE IF NOT EXISTS polylatch_idempotency (
    scope         TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    fence         INTEGER NOT NULL,
    fingerprint   TEXT    NOT NULL,
    client        TEXT    NOT NULL,
    runs          INTEGER NOT NULL,
    lease_ms      INTEGER NOT NULL,
    renewals      INTEGER NOT NULL,
    ends_ms       INTEGER NOT NULL,
    keep_until_ms INTEGER,
    written_ms    INTEGER NOT NULL,
    result        BLOB    NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS polylatch_idempotency_over ON polylatch_idempotency (keep_until_ms)
    WHERE keep_until_ms IS NOT NULL;
";

/// The wall clock in milliseconds since 1970, the same all through a statement.
macro_rules! now_ms {
    () => {
        "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"
    };
}

/// Writes a new row; leaves one that is there as it is. The first 11 values are those of [`write_values`].
pub(super) fn insert(
    scope: &str,
    key: &str,
    record: &Record,
    lease_ms: i64,
    keep_ms: Option<i64>,
) -> SqlStatement {
    let mut values = write_values(record, lease_ms, keep_ms);
    values.extend([SqlValue::Text(scope.into()), SqlValue::Text(key.into())]);
    SqlStatement::new(
        concat!(
            "INSERT INTO polylatch_idempotency (scope, key, version, state, owner, fence, fingerprint, client, runs, \
             lease_ms, renewals, ends_ms, keep_until_ms, written_ms, result) \
             SELECT ?12, ?13, n.ms * 1000, ?1, ?2, coalesce(?3, n.ms * 1000), ?4, ?5, ?6, ?7, ?8, n.ms + 1 + ?9, \
             n.ms + ?10, n.ms, ?11 FROM (SELECT ",
            now_ms!(),
            " AS ms) n WHERE 1 = 1 ON CONFLICT (scope, key) DO NOTHING"
        ),
        values,
    )
}

/// Writes over a row of this version.
pub(super) fn update(
    (scope, key): (&str, &str),
    version: i64,
    record: &Record,
    lease_ms: i64,
    keep_ms: Option<i64>,
) -> SqlStatement {
    let mut values = write_values(record, lease_ms, keep_ms);
    values.extend([SqlValue::Text(scope.into()), SqlValue::Text(key.into()), SqlValue::Int(version)]);
    SqlStatement::new(
        concat!(
            "UPDATE polylatch_idempotency SET version = max(version + 1, ",
            now_ms!(),
            " * 1000), state = ?1, owner = ?2, fence = coalesce(?3, max(version + 1, ",
            now_ms!(),
            " * 1000)), fingerprint = ?4, client = ?5, runs = ?6, lease_ms = ?7, renewals = ?8, ends_ms = ",
            now_ms!(),
            " + 1 + ?9, keep_until_ms = ",
            now_ms!(),
            " + ?10, written_ms = ",
            now_ms!(),
            ", result = ?11 WHERE scope = ?12 AND key = ?13 AND version = ?14"
        ),
        values,
    )
}

/// What to write: `state, owner, fence, fingerprint, client, runs, lease_ms, renewals`, how long claim and record live from
/// now on, and `result`.
fn write_values(record: &Record, lease_ms: i64, keep_ms: Option<i64>) -> Vec<SqlValue> {
    let int = |value: i64| SqlValue::Int(value);
    let optional = |value: Option<i64>| value.map_or(SqlValue::Null, SqlValue::Int);
    vec![
        SqlValue::Text(record.state.code().into()),
        SqlValue::Text(record.owner.to_hex()),
        optional(record.fence.map(|fence| i64::try_from(fence).unwrap_or(i64::MAX))),
        SqlValue::Text(record.fingerprint.clone()),
        SqlValue::Text(record.client.as_str().into()),
        int(record.runs.into()),
        int(super::place::ms(record.lease)),
        int(record.renewals.into()),
        int(lease_ms),
        optional(keep_ms),
        SqlValue::Bytes(record.result.clone()),
    ]
}

/// Reads a row, in the columns that [`super::place::seen`] reads.
pub(super) fn look(scope: &str, key: &str) -> SqlStatement {
    SqlStatement::new(
        concat!(
            "SELECT version, state, fence, fingerprint, client, runs, lease_ms, renewals, ends_ms - n.ms, \
             keep_until_ms - n.ms, written_ms, length(result), owner, result FROM polylatch_idempotency, (SELECT ",
            now_ms!(),
            " AS ms) n WHERE scope = ?1 AND key = ?2"
        ),
        vec![SqlValue::Text(scope.into()), SqlValue::Text(key.into())],
    )
}

/// Deletes rows whose retention is over. [`CHANGED`] says how many.
pub(super) fn purge(most: i64) -> SqlStatement {
    SqlStatement::new(
        concat!(
            "DELETE FROM polylatch_idempotency WHERE rowid IN (SELECT rowid FROM polylatch_idempotency \
             WHERE keep_until_ms <= ",
            now_ms!(),
            " ORDER BY keep_until_ms LIMIT ?1)"
        ),
        vec![SqlValue::Int(most)],
    )
}

pub(super) const CHANGED: &str = "SELECT changes()";
