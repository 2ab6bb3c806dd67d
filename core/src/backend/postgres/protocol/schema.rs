//! The tables, and what may stand where they should be.

/// Version of the tables that this version of Polylatch reads and writes.
pub(crate) const VERSION: i64 = 1;

/// A table or a view, and what a role has to be allowed to do with it. This is the only list of rights: the grants that are
/// printed and the check of a connection both come from it.
#[derive(Debug)]
pub(crate) struct Table {
    pub name: &'static str,
    pub is_view: bool,
    /// The rights that a client needs, as GRANT names them.
    pub client: &'static [&'static str],
    /// Whether inspection reads it.
    pub is_read: bool,
}

const ROWS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

/// All of them; the first one says of which version they are.
pub(crate) const TABLES: [Table; 13] = [
    Table { name: "polylatch_schema", is_view: false, client: &["SELECT", "UPDATE (floor)"], is_read: true },
    Table { name: "locks", is_view: false, client: ROWS, is_read: false },
    Table { name: "leases", is_view: false, client: ROWS, is_read: false },
    Table { name: "waiters", is_view: false, client: ROWS, is_read: false },
    Table { name: "clients", is_view: false, client: ROWS, is_read: true },
    Table { name: "sessions", is_view: false, client: ROWS, is_read: false },
    // What was broken is not rewritten. The oldest rows are locked to be deleted, which takes a right to update: the id is
    // generated, so with this one nothing can be changed.
    Table {
        name: "audit",
        is_view: false,
        client: &["SELECT", "INSERT", "UPDATE (id)", "DELETE"],
        is_read: false,
    },
    Table { name: "idempotency", is_view: false, client: ROWS, is_read: false },
    Table { name: "seen_locks", is_view: true, client: &["SELECT"], is_read: true },
    Table { name: "seen_leases", is_view: true, client: &["SELECT"], is_read: true },
    Table { name: "seen_waiters", is_view: true, client: &["SELECT"], is_read: true },
    Table { name: "seen_breaks", is_view: true, client: &["SELECT"], is_read: true },
    Table { name: "seen_idempotency", is_view: true, client: &["SELECT"], is_read: true },
];

/// Longest identifier of a server with the usual settings, in bytes.
const MAX_IDENTIFIER_BYTES: usize = 63;

/// A schema of the database, by a name that needs no escaping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// Checks a name: letters, digits and underscores, not beginning with a digit, 1 to 63 bytes.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let first = name.bytes().next();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if first.is_none_or(|first| first.is_ascii_digit()) || !is_plain || name.len() > MAX_IDENTIFIER_BYTES
        {
            return Err(format!(
                "the option schema={name:?} must have 1 to {MAX_IDENTIFIER_BYTES} letters (a-z, A-Z), digits and \
                 underscores, and begin with no digit"
            ));
        }
        if name.starts_with("pg_") {
            return Err(format!(
                "the option schema={name:?} begins with pg_, which PostgreSQL keeps for itself; use another name"
            ));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Puts the name in the place of `{s}`.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace("{s}", &format!("\"{}\"", self.0))
    }

    /// The statements that make the tables, in order.
    pub(crate) fn create(&self, schema_exists: bool) -> Vec<String> {
        let mut statements = Vec::new();
        if !schema_exists {
            statements.push(self.sql("CREATE SCHEMA {s}"));
        }
        let text = self.sql(TEXT);
        let text: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let text = text.join("\n") + "\n";
        statements.extend(text.split(";\n").map(str::trim).filter(|text| !text.is_empty()).map(String::from));
        statements
    }

    /// The same as a script for operators who make the tables themselves; run again, it changes nothing.
    pub(crate) fn script(&self) -> String {
        let guard = self.sql(GUARD).replace("{version}", &VERSION.to_string());
        // What is there already is no news.
        let quiet = "SET LOCAL client_min_messages = warning;\n";
        let schema = self.sql("CREATE SCHEMA IF NOT EXISTS {s};\n");
        format!("BEGIN;\n{quiet}\n{schema}\n{guard}\n{}\nCOMMIT;\n", self.sql(TEXT))
    }
}

const TEXT: &str = include_str!("schema/1.sql");

const GUARD: &str = include_str!("schema/guard.sql");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_need_escaping_is_refused() {
        for name in ["", "1a", "a-b", "a\"b", "a;drop", "größe", "pg_locks", &"a".repeat(64)] {
            let error = Schema::new(name).unwrap_err();
            assert!(error.contains("schema="), "{error}");
        }
        for name in ["polylatch", "_a1", "Locks", &"a".repeat(63)] {
            assert_eq!(Schema::new(name).unwrap().sql("{s}.locks"), format!("\"{name}\".locks"));
        }
    }

    #[test]
    fn the_tables_are_made_one_statement_at_a_time() {
        let statements = Schema::new("x").unwrap().create(false);
        assert_eq!(statements[0], "CREATE SCHEMA \"x\"");
        let made = |table: &Table| {
            let kind = if table.is_view { "OR REPLACE VIEW" } else { "TABLE IF NOT EXISTS" };
            let begin = format!("CREATE {kind} \"x\".{} ", table.name);
            statements.iter().filter(|text| text.starts_with(&begin)).count()
        };
        assert!(TABLES.iter().all(|table| made(table) == 1), "{statements:#?}");
        assert!(statements.iter().all(|text| !text.contains(';') && !text.contains("{s}")), "{statements:?}");
    }
}
