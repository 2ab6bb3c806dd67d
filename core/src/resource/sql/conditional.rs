//! A write that happens only while the row fulfils a condition.

use std::str::FromStr;

use super::placeholders::not_one_of;
use super::{Bound, Placeholders, Table, check_columns, check_name, invalid};
use crate::error::{Error, Result};

/// What a write does to a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It becomes the value.
    Set,
    /// The value is added to it.
    Add,
    /// The value is subtracted from it.
    Subtract,
}

impl FromStr for Change {
    type Err = Error;

    /// Reads `=` (set), `+` or `-`. Errors: `invalid_argument`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "=" => Ok(Self::Set),
            "+" => Ok(Self::Add),
            "-" => Ok(Self::Subtract),
            other => Err(not_one_of("the change", other, &["=", "+", "-"])),
        }
    }
}

/// How a column is compared with a value. `NULL` fulfils no comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compare {
    /// `=`.
    Equal,
    /// `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    Greater,
    /// `>=`.
    AtLeast,
}

impl Compare {
    const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::AtMost, Self::Greater, Self::AtLeast];

    fn sql(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }
}

impl FromStr for Compare {
    type Err = Error;

    /// Reads `=`, `<>`, `<`, `<=`, `>` or `>=`. Errors: `invalid_argument`.
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.sql() == text);
        found.ok_or_else(|| not_one_of("the comparison", text, &Self::ALL.map(Self::sql)))
    }
}

/// A write to one row that happens only while the row fulfils conditions, such as `stock >= 3`. The database makes check
/// and write one step, so what is left cannot be sold twice. It needs no lock.
///
/// ```
/// use polylatch::resource::{Change, Compare, ConditionalUpdate, Placeholders};
/// let take = ConditionalUpdate::update(
///     Placeholders::Dollar,
///     "item",
///     &[("stock", Change::Subtract)],
///     &[("stock", Compare::AtLeast)],
///     &["id"],
/// )?;
/// assert_eq!(
///     take.sql(),
///     r#"UPDATE "item" SET "stock" = "item"."stock" - $1 WHERE "item"."id" = $2 AND "item"."stock" >= $3"#
/// );
/// assert_eq!(take.parameters(), ["stock -", "id", "stock >="]);
/// # Ok::<(), polylatch::Error>(())
/// ```
///
/// One changed row: done. No changed row: a condition is not fulfilled, or there is no such row, which
/// [`ConditionalUpdate::probe_sql`] tells. MySQL and MariaDB do not count a row that keeps its values, unless the client asks
/// for found rows (`CLIENT_FOUND_ROWS`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalUpdate {
    sql: String,
    probe: String,
    parameters: Vec<String>,
    keys: Vec<String>,
}

impl ConditionalUpdate {
    /// Writes to a row that exists.
    ///
    /// Errors: `invalid_argument` for a name that is not `[A-Za-z_][A-Za-z0-9_]{0,62}` (a table may have a schema before a
    /// dot), for a column that is changed twice or is a key too, for a condition that is named twice, and without changes,
    /// conditions or key columns.
    pub fn update(
        dialect: Placeholders,
        table: &str,
        changes: &[(&str, Change)],
        conditions: &[(&str, Compare)],
        key_columns: &[&str],
    ) -> Result<Self> {
        let table = Table::check(dialect, table)?;
        check_columns(changes.iter().map(|(name, _)| *name), key_columns)?;
        for (what, is_empty) in [("change", changes.is_empty()), ("condition", conditions.is_empty())] {
            if is_empty {
                return Err(invalid(format!("name at least one {what}")));
            }
        }
        let same = |(a, left): &(&str, Compare), (b, right): &(&str, Compare)| {
            left == right && a.eq_ignore_ascii_case(b)
        };
        for (at, condition) in conditions.iter().enumerate() {
            check_name(condition.0)?;
            if conditions[..at].iter().any(|other| same(other, condition)) {
                return Err(invalid(format!("the condition {:?} is named twice", label(condition))));
            }
        }
        let mut bound = Bound::new(dialect);
        let mut assign = |(name, change): &(&str, Change)| {
            let (quoted, own) = (table.quoted(name), table.qualified(name));
            match change {
                Change::Set => format!("{quoted} = {}", bound.value(name)),
                Change::Add => format!("{quoted} = {own} + {}", bound.value(&format!("{name} +"))),
                Change::Subtract => format!("{quoted} = {own} - {}", bound.value(&format!("{name} -"))),
            }
        };
        let assignments: Vec<String> = changes.iter().map(&mut assign).collect();
        let keys = table.matches(key_columns, &mut bound);
        let mut compare = |condition: &(&str, Compare)| {
            let own = table.qualified(condition.0);
            format!("{own} {} {}", condition.1.sql(), bound.value(&label(condition)))
        };
        let met: Vec<String> = conditions.iter().map(&mut compare).collect();
        let mut probed = Bound::new(dialect);
        let probed_keys = table.matches(key_columns, &mut probed);
        let columns: Vec<String> = conditions.iter().map(|(name, _)| table.qualified(name)).collect();
        Ok(Self {
            sql: format!(
                "UPDATE {} SET {} WHERE {keys} AND {}",
                table.name,
                assignments.join(", "),
                met.join(" AND ")
            ),
            probe: format!("SELECT {} FROM {} WHERE {probed_keys}", columns.join(", "), table.name),
            parameters: bound.names,
            keys: probed.names,
        })
    }

    /// Returns the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns what each parameter is, in order: the changes, the keys, the conditions. A value to set and a key are named
    /// by their column; a value to add or subtract, and one to compare with, by column and operator, such as `stock >=`.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Returns a query for the columns of the conditions, in their order. Its parameters are the keys. No row: there is
    /// none with these keys.
    pub fn probe_sql(&self) -> &str {
        &self.probe
    }

    /// Returns which column's value each parameter of the probe is.
    pub fn probe_parameters(&self) -> &[String] {
        &self.keys
    }
}

fn label((name, compare): &(&str, Compare)) -> String {
    format!("{name} {}", compare.sql())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKE: &[(&str, Change)] = &[("stock", Change::Subtract)];
    const LEFT: &[(&str, Compare)] = &[("stock", Compare::AtLeast)];

    #[test]
    fn every_operator_is_spelled_and_every_value_is_bound() {
        let changes = [("state", Change::Set), ("sold", Change::Add), ("stock", Change::Subtract)];
        let conditions = [
            ("state", Compare::Equal),
            ("state", Compare::NotEqual),
            ("a", Compare::Less),
            ("a", Compare::AtMost),
            ("b", Compare::Greater),
            ("stock", Compare::AtLeast),
        ];
        let write =
            ConditionalUpdate::update(Placeholders::Mysql, "t", &changes, &conditions, &["id"]).unwrap();
        assert_eq!(
            write.sql(),
            "UPDATE `t` SET `state` = ?, `sold` = `t`.`sold` + ?, `stock` = `t`.`stock` - ? WHERE `t`.`id` = ? \
             AND `t`.`state` = ? AND `t`.`state` <> ? AND `t`.`a` < ? AND `t`.`a` <= ? AND `t`.`b` > ? \
             AND `t`.`stock` >= ?"
        );
        assert_eq!(
            write.parameters(),
            ["state", "sold +", "stock -", "id", "state =", "state <>", "a <", "a <=", "b >", "stock >="]
        );
    }

    #[test]
    fn operators_are_read_as_statements_spell_them() {
        for (text, change) in [("=", Change::Set), ("+", Change::Add), ("-", Change::Subtract)] {
            assert_eq!(text.parse::<Change>().unwrap(), change);
        }
        for compare in Compare::ALL {
            assert_eq!(compare.sql().parse::<Compare>().unwrap(), compare);
        }
        for bad in ["", "==", "!=", "like", "= 1 or 1 ="] {
            assert_eq!(bad.parse::<Change>().unwrap_err().code(), "invalid_argument");
            assert!(bad.parse::<Compare>().unwrap_err().to_string().contains("\">=\""));
        }
    }

    #[test]
    fn what_would_write_too_much_or_is_no_name_is_refused() {
        for dialect in Placeholders::ALL {
            for (table, changes, conditions, keys) in [
                ("t t", TAKE, LEFT, &["id"][..]),
                ("t", &[][..], LEFT, &["id"]),
                ("t", TAKE, &[][..], &["id"]),
                ("t", TAKE, LEFT, &[]),
                ("t", TAKE, LEFT, &["stock"]),
                ("t", &[("a", Change::Set), ("A", Change::Add)], LEFT, &["id"]),
                ("t", TAKE, &[("a", Compare::Less), ("A", Compare::Less)], &["id"]),
                ("t", TAKE, &[("a or 1", Compare::Less)], &["id"]),
            ] {
                let error = ConditionalUpdate::update(dialect, table, changes, conditions, keys).unwrap_err();
                assert_eq!(error.code(), "invalid_argument", "{changes:?} {conditions:?} {keys:?}");
            }
        }
    }
}
