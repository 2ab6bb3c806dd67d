//! The rights of a role, as statements and as questions.

use super::schema::{Schema, TABLES, Table};

/// Longest name of a role, in bytes.
const MAX_ROLE_BYTES: usize = 63;

/// What a role does with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostgresRole {
    /// Acquires, waits, renews, releases and breaks.
    Client,
    /// Reads what is held and waited for, and sees no owner token.
    Inspector,
}

impl Schema {
    /// The statements that give a role what it needs and no more.
    pub(crate) fn grants(&self, kind: PostgresRole, role: &str) -> Result<String, String> {
        if role.is_empty() || role.len() > MAX_ROLE_BYTES || role.chars().any(char::is_control) {
            return Err(format!(
                "the role {role:?} must be a name of 1 to {MAX_ROLE_BYTES} bytes without control characters"
            ));
        }
        let role = role.replace('"', "\"\"");
        let mut text = self.sql(&format!("GRANT USAGE ON SCHEMA {{s}} TO \"{role}\";\n"));
        for table in &TABLES {
            let rights = match kind {
                PostgresRole::Client => table.client.join(", "),
                PostgresRole::Inspector if table.is_read => "SELECT".to_owned(),
                PostgresRole::Inspector => continue,
            };
            text += &self.sql(&format!("GRANT {rights} ON {{s}}.{} TO \"{role}\";\n", table.name));
        }
        Ok(text)
    }
}

/// An SQL expression over `pg_class c`: whether this user has these rights.
pub(crate) fn has_rights(rights: &[&str]) -> String {
    let has = |right: &&str| match right.split_once(" (") {
        // Of one column, which a table of another program may lack.
        Some((right, _)) => format!("has_any_column_privilege(c.oid, '{right}')"),
        None => format!("has_table_privilege(c.oid, '{right}')"),
    };
    rights.iter().map(has).collect::<Vec<_>>().join(" AND ")
}

impl Table {
    /// The kind that `pg_class` names.
    pub(crate) fn kind(&self) -> char {
        if self.is_view { 'v' } else { 'r' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_gets_what_it_needs_under_its_own_name() {
        let schema = Schema::new("x").unwrap();
        let client = schema.grants(PostgresRole::Client, "shop-\"app").unwrap();
        assert!(
            client.contains("GRANT SELECT, UPDATE (floor) ON \"x\".polylatch_schema TO \"shop-\"\"app\";"),
            "{client}"
        );
        assert!(!client.contains("UPDATE, DELETE ON \"x\".audit"), "{client}");
        let inspector = schema.grants(PostgresRole::Inspector, "eyes").unwrap();
        for table in ["locks", "leases", "waiters", "audit"] {
            assert!(!inspector.contains(&format!("\"x\".{table} ")), "it has owner tokens: {inspector}");
        }
        assert!(!["INSERT", "UPDATE", "DELETE"].iter().any(|right| inspector.contains(right)), "{inspector}");
        for role in ["", "a\nb", &"r".repeat(64)] {
            assert!(schema.grants(PostgresRole::Client, role).unwrap_err().contains("role"));
        }
    }
}
