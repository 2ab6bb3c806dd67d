//! The statements of inspection and of opening a store.

use super::grants::has_rights;
use super::schema::{Schema, TABLES, Table};
use crate::backend::rows::server::value::{Param, Statement};

/// One moment for all that is read.
pub(crate) fn begin_reading() -> Statement {
    Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", vec![])
}

pub(crate) fn clock() -> Statement {
    Statement::new("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", vec![])
}

/// Which of the tables there are, whether this user may read them as inspection does, and whether it may use them as a
/// client does; and the same of the schema, without a name.
pub(crate) fn tables(schema: &Schema) -> Statement {
    let case = |rights: &dyn Fn(&Table) -> String| {
        let of = |table: &Table| {
            format!("WHEN '{}' THEN c.relkind = '{}' AND {}", table.name, table.kind(), rights(table))
        };
        format!("(CASE c.relname {} END)::int::bigint", TABLES.iter().map(of).collect::<Vec<_>>().join(" "))
    };
    let reads = case(&|table| if table.is_read { has_rights(&["SELECT"]) } else { "true".into() });
    let uses = case(&|table| has_rights(table.client));
    Statement::new(
        format!(
            "SELECT c.relname::text, {reads}, {uses} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1 AND c.relname = ANY ($2) \
             UNION ALL SELECT '', has_schema_privilege(oid, 'USAGE')::int::bigint, \
             has_schema_privilege(oid, 'USAGE')::int::bigint FROM pg_namespace WHERE nspname = $1"
        ),
        vec![
            schema.name().into(),
            TABLES.iter().map(|table| table.name.to_owned()).collect::<Vec<_>>().into(),
        ],
    )
}

/// Whether this user may make the schema, or the tables in it.
pub(crate) fn may_create(schema: &Schema) -> Statement {
    Statement::new(
        "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1), \
         has_database_privilege(current_database(), 'CREATE'))::int::bigint",
        vec![schema.name().into()],
    )
}

impl Schema {
    pub(crate) fn version(&self) -> Statement {
        Statement::new(self.sql("SELECT version FROM {s}.polylatch_schema WHERE id = 1"), vec![])
    }

    /// No two clients create the tables at once.
    pub(crate) fn alone(&self) -> Statement {
        Statement::new(
            "SELECT pg_advisory_xact_lock(hashtext('polylatch'), hashtext($1))::text",
            vec![self.name().into()],
        )
    }

    /// Live leases, waiters, clients and breaks, as far as a query wants them, with digests of owner tokens. Of locks that
    /// share leases or have waiters, those of the first names.
    pub(crate) fn read(&self, exact: Option<&str>, prefix: Option<&str>, limit: i64) -> [Statement; 5] {
        const WANTED: &str = "($1::text IS NULL OR name = $1) AND ($2::text IS NULL OR starts_with(name, $2)) \
                              AND name >= $3";
        const LIVE: &str = "ends_ms > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint / 1000";
        const LEASE: &str = "name, digest, fence, client, label, mode, permits, capacity, lease_ms, first_ms, \
                             acquired_ms, ends_ms, renewals, renewed_ms";
        let from = exact.or(prefix).unwrap_or_default();
        let params = || {
            let text = |text: Option<&str>| Param::OptionalText(text.map(String::from));
            vec![text(exact), text(prefix), from.into(), limit.into()]
        };
        let sql = |text: String, params| Statement::new(self.sql(&text), params);
        [
            sql(
                format!(
                    "SELECT {LEASE} FROM {{s}}.seen_locks WHERE {WANTED} AND {LIVE} \
                     ORDER BY name LIMIT $4"
                ),
                params(),
            ),
            sql(
                format!(
                    "SELECT {LEASE} FROM {{s}}.seen_leases WHERE {LIVE} AND name IN (SELECT DISTINCT name FROM {{s}}.seen_leases \
                     WHERE {WANTED} AND {LIVE} ORDER BY name LIMIT $4) ORDER BY name, fence"
                ),
                params(),
            ),
            sql(
                format!(
                    "SELECT name, digest, ticket, client, label, mode, permits, capacity, since_ms, silent_ms \
                     FROM {{s}}.seen_waiters WHERE name IN (SELECT DISTINCT name FROM {{s}}.seen_waiters \
                     WHERE {WANTED} ORDER BY name LIMIT $4) ORDER BY name, ticket"
                ),
                params(),
            ),
            sql(
                "SELECT id, host, pid, process_started_ms, boot, pid_namespace, program, language, version, seen_ms \
                 FROM {s}.clients ORDER BY id COLLATE \"C\""
                    .into(),
                vec![],
            ),
            sql(
                "SELECT at_ms, name, fence, client, by, reason FROM {s}.seen_breaks ORDER BY id DESC LIMIT 200".into(),
                vec![],
            ),
        ]
    }
}
