//! The tables, and what a user has to be allowed to do with them.

/// Version of the tables that this version of Polylatch reads and writes.
pub(crate) const VERSION: i64 = 1;

/// A table, and the rights on it. This is the only list of rights: the grants that are printed and the check of a
/// connection both come from it.
#[derive(Debug)]
pub(crate) struct Table {
    pub name: &'static str,
    /// The rights that a client needs, as GRANT names them.
    pub client: &'static [&'static str],
    /// The columns that inspection reads; without the owner tokens, which a client proves its lease with.
    pub seen: &'static str,
    /// The columns that a new row needs; empty where a client makes none.
    pub inserted: &'static str,
    /// A column that a client may update.
    pub updated: &'static str,
}

const ROWS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

/// All of them; the last one says of which version they are.
pub(crate) const TABLES: [Table; 8] = [
    Table {
        name: "polylatch_locks",
        client: ROWS,
        seen: "name, digest, fence, client, label, mode, permits, capacity, lease_ms, first_ms, acquired_ms, ends_ms, \
               renewals, renewed_ms",
        inserted: "name, counter",
        updated: "counter",
    },
    Table {
        name: "polylatch_leases",
        client: ROWS,
        seen: "name, digest, fence, client, label, mode, permits, capacity, lease_ms, first_ms, acquired_ms, ends_ms, \
               renewals, renewed_ms",
        inserted: "name, owner, fence, client, label, mode, permits, lease_ms, first_ms, acquired_ms, ends_ms, renewals",
        updated: "ends_ms",
    },
    Table {
        name: "polylatch_waiters",
        client: ROWS,
        seen: "name, ticket, digest, client, label, mode, permits, capacity, since_ms, silent_ms",
        inserted: "name, ticket, owner, client, label, mode, permits, lease_ms, first_ms, since_ms, silent_ms",
        updated: "silent_ms",
    },
    Table {
        name: "polylatch_clients",
        client: ROWS,
        seen: "id, host, pid, process_started_ms, boot, pid_namespace, program, language, version, seen_ms",
        inserted: "id, host, pid, program, language, version, seen_ms",
        updated: "seen_ms",
    },
    Table {
        name: "polylatch_sessions",
        client: ROWS,
        seen: "client, over_ms",
        inserted: "client, session_key",
        updated: "over_ms",
    },
    // What was broken is not rewritten.
    Table {
        name: "polylatch_audit",
        client: &["SELECT", "INSERT", "DELETE"],
        seen: "id, at_ms, name, fence, client, broken_by, reason",
        inserted: "at_ms, name, owner, fence, client, broken_by, reason",
        updated: "",
    },
    Table {
        name: "polylatch_idempotency",
        client: ROWS,
        seen: "scope, seen_key, kind, version, state, fence, fingerprint, client, runs, lease_ms, renewals, ends_ms, \
               keep_until_ms, written_ms, result_bytes",
        inserted: "scope, record_key, kind, version, state, owner, fence, fingerprint, client, runs, lease_ms, renewals, \
                   ends_ms, written_ms, result",
        updated: "version",
    },
    Table {
        name: "polylatch_schema",
        client: &["SELECT", "UPDATE (floor)"],
        seen: "id, version, floor",
        inserted: "",
        updated: "floor",
    },
];

impl Table {
    /// A statement that needs this right and the columns, and changes nothing.
    pub(crate) fn probe(&self, right: &str) -> String {
        let Self { name, seen, inserted, updated, .. } = self;
        match right.split(' ').next() {
            Some("INSERT") => {
                format!("INSERT INTO {name} ({inserted}) SELECT {inserted} FROM {name} WHERE 1 = 0")
            }
            Some("UPDATE") => format!("UPDATE {name} SET {updated} = {updated} WHERE 1 = 0"),
            Some("DELETE") => format!("DELETE FROM {name} WHERE 1 = 0"),
            _ => format!("SELECT {seen} FROM {name} LIMIT 0"),
        }
    }
}

const TEXT: &str = include_str!("schema/1.sql");

/// The statements that make the tables, in order. Run again, they change nothing.
pub(crate) fn create() -> Vec<String> {
    let text: Vec<_> = TEXT.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let text = text.join("\n") + "\n";
    text.split(";\n").map(str::trim).filter(|text| !text.is_empty()).map(String::from).collect()
}

/// The same as a script for operators who make the tables themselves; run again, it changes nothing.
pub(crate) fn script() -> String {
    let list = |columns: &str| {
        let quoted: Vec<_> = columns.split(',').map(|column| format!("'{}'", column.trim())).collect();
        (quoted.join(", "), quoted.len())
    };
    let lacks = |table: &Table| {
        let (columns, count) = list(table.seen);
        format!(
            "(t.table_name = '{}' AND (SELECT COUNT(*) FROM information_schema.columns c WHERE c.table_schema = \
             DATABASE() AND c.table_name = t.table_name AND c.column_name IN ({columns})) < {count})",
            table.name
        )
    };
    let foreign: Vec<_> = TABLES.iter().map(lacks).collect();
    let guard =
        GUARD.replace("{foreign}", &foreign.join("\n    OR ")).replace("{version}", &VERSION.to_string());
    format!("{guard}\n{TEXT}")
}

/// These servers have no way to refuse in a script without a procedure, so a statement fails whose text says why.
const GUARD: &str = include_str!("schema/guard.sql");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_of_the_script_is_complete_and_its_refusals_fit_an_identifier() {
        let script = script();
        assert!(!script.contains('{'), "{script}");
        let refusals: Vec<_> = GUARD.split('`').skip(1).step_by(2).collect();
        assert_eq!(refusals.len(), 2);
        // A longer one would be refused for its length.
        assert!(refusals.iter().all(|text| text.len() <= 64), "{refusals:?}");
    }

    #[test]
    fn the_tables_are_made_one_statement_at_a_time_and_the_version_comes_last() {
        let statements = create();
        for (at, table) in TABLES.iter().enumerate() {
            let begin = format!("CREATE TABLE IF NOT EXISTS {} ", table.name);
            assert!(statements[at].starts_with(&begin), "{statements:#?}");
        }
        assert_eq!(statements.len(), TABLES.len() + 1);
        assert!(statements.last().unwrap().contains(&format!("VALUES (1, {VERSION}, 0)")), "{statements:#?}");
        assert!(statements.iter().all(|text| !text.contains(';')), "{statements:?}");
    }
}
