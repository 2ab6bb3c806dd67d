//! A write that is refused if the row was written since it was read.

use super::{Bound, Placeholders, Table, check_columns};
use crate::error::Result;

/// A write to one row that keeps a version: it changes the row only if its version is still the one that was read, and
/// raises it by one in the same statement (optimistic locking). It needs no lock.
///
/// The table needs one more column, such as `version BIGINT NOT NULL DEFAULT 0`. Names are checked and quoted, values are
/// bound.
///
/// ```
/// use polylatch::resource::{Placeholders, VersionedUpdate};
/// let write = VersionedUpdate::update(Placeholders::Dollar, "orders", "version", &["state"], &["id"])?;
/// assert_eq!(
///     write.sql(),
///     r#"UPDATE "orders" SET "state" = $1, "version" = "orders"."version" + 1 WHERE "orders"."id" = $2 AND "orders"."version" = $3"#
/// );
/// assert_eq!(write.parameters(), ["state", "id", "version"]);
/// # Ok::<(), polylatch::Error>(())
/// ```
///
/// One changed row: done, and the version is one larger than the one that was read. No changed row: ask with
/// [`VersionedUpdate::probe_sql`] and [`VersionedUpdate::why_unchanged`]; then read the row again and decide what to
/// write now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedUpdate {
    sql: String,
    probe: String,
    parameters: Vec<String>,
    keys: Vec<String>,
}

/// Why a versioned write changed no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The row has another version than the one that was read; `None` for a version that is `NULL`, which no write
    /// matches.
    Changed {
        /// The version that it has.
        found: Option<i64>,
    },
    /// There is no row with these keys.
    Missing,
}

impl VersionedUpdate {
    /// Writes to a row that exists. With no column to set, only the version is raised.
    ///
    /// Errors: `invalid_argument` for a name that is not `[A-Za-z_][A-Za-z0-9_]{0,62}` (a table may have a schema before a
    /// dot), for a column that is named twice, and without key columns.
    pub fn update(
        dialect: Placeholders,
        table: &str,
        version_column: &str,
        set_columns: &[&str],
        key_columns: &[&str],
    ) -> Result<Self> {
        let table = Table::check(dialect, table)?;
        check_columns(set_columns.iter().copied().chain([version_column]), key_columns)?;
        let mut bound = Bound::new(dialect);
        let version = table.qualified(version_column);
        let mut assignments: Vec<String> = set_columns
            .iter()
            .map(|name| format!("{} = {}", table.quoted(name), bound.value(name)))
            .collect();
        assignments.push(format!("{} = {version} + 1", table.quoted(version_column)));
        let keys = table.matches(key_columns, &mut bound);
        let expected = bound.value(version_column);
        let mut probed = Bound::new(dialect);
        let probed_keys = table.matches(key_columns, &mut probed);
        Ok(Self {
            sql: format!(
                "UPDATE {} SET {} WHERE {keys} AND {version} = {expected}",
                table.name,
                assignments.join(", ")
            ),
            probe: format!("SELECT {version} FROM {} WHERE {probed_keys}", table.name),
            parameters: bound.names,
            keys: probed.names,
        })
    }

    /// Returns the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns which column's value each parameter is, in order: the columns to set, the keys, the version that was read.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Returns a query for the row's version. Its parameters are the keys, in order.
    pub fn probe_sql(&self) -> &str {
        &self.probe
    }

    /// Returns which column's value each parameter of the probe is.
    pub fn probe_parameters(&self) -> &[String] {
        &self.keys
    }

    /// Explains a write that changed no row by what the probe found: `None` for no row, `Some(None)` for a row whose version
    /// is `NULL`.
    pub fn why_unchanged(found: Option<Option<i64>>) -> Conflict {
        found.map_or(Conflict::Missing, |found| Conflict::Changed { found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_raised_where_it_is_compared() {
        let write =
            VersionedUpdate::update(Placeholders::Mysql, "a.t", "version", &["x", "y"], &["k"]).unwrap();
        assert_eq!(
            write.sql(),
            "UPDATE `a`.`t` SET `x` = ?, `y` = ?, `version` = `t`.`version` + 1 WHERE `t`.`k` = ? \
             AND `t`.`version` = ?"
        );
        assert_eq!(write.parameters(), ["x", "y", "k", "version"]);
        assert_eq!(write.probe_sql(), "SELECT `t`.`version` FROM `a`.`t` WHERE `t`.`k` = ?");
        assert_eq!(write.probe_parameters(), ["k"]);
    }

    #[test]
    fn bad_names_are_refused_in_every_dialect() {
        for dialect in Placeholders::ALL {
            for (table, version, sets, keys) in [
                ("t;", "v", &["a"][..], &["k"][..]),
                ("t", "v--", &["a"], &["k"]),
                ("t", "v", &["a`"], &["k"]),
                ("t", "v", &["a"], &["k\""]),
                ("t", "v", &["V"], &["k"]),
                ("t", "v", &["a"], &[]),
            ] {
                let error = VersionedUpdate::update(dialect, table, version, sets, keys).unwrap_err();
                assert_eq!(error.code(), "invalid_argument", "{table} {version} {sets:?} {keys:?}");
            }
        }
    }
}
