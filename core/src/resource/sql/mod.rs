//! SQL statements that a late writer cannot get past: names checked and quoted, values bound, in the dialect of the
//! database.

mod conditional;
mod fenced;
mod placeholders;
mod versioned;

pub use conditional::{Change, Compare, ConditionalUpdate};
pub use fenced::{FencedUpdate, Unchanged};
pub use placeholders::Placeholders;
pub use versioned::{Conflict, VersionedUpdate};

use placeholders::Bound;
pub(super) use placeholders::Database;

use crate::error::{Error, ErrorKind, Result};

/// The checked name of a table, in the spelling of its database.
struct Table {
    dialect: Placeholders,
    /// With its schema.
    name: String,
    /// What columns are qualified with: SQLite takes an unknown name in quotes for a text, unless a table stands before it.
    alias: String,
}

impl Table {
    fn check(dialect: Placeholders, table: &str) -> Result<Self> {
        let (schema, bare) =
            table.split_once('.').map_or((None, table), |(schema, bare)| (Some(schema), bare));
        for name in schema.into_iter().chain([bare]) {
            check_name(name)?;
        }
        let alias = quoted(dialect, bare);
        let name =
            schema.map_or_else(|| alias.clone(), |schema| format!("{}.{alias}", quoted(dialect, schema)));
        Ok(Self { dialect, name, alias })
    }

    fn quoted(&self, column: &str) -> String {
        quoted(self.dialect, column)
    }

    fn qualified(&self, column: &str) -> String {
        format!("{}.{}", self.alias, self.quoted(column))
    }

    /// `table.key = value`, for each key.
    fn matches(&self, keys: &[&str], bound: &mut Bound) -> String {
        let one = |key: &&str| format!("{} = {}", self.qualified(key), bound.value(key));
        keys.iter().map(one).collect::<Vec<_>>().join(" AND ")
    }
}

/// Checks columns of which no two may be the same one, and that there are keys among them.
fn check_columns<'a>(columns: impl IntoIterator<Item = &'a str>, keys: &[&'a str]) -> Result<()> {
    let columns: Vec<&str> = columns.into_iter().chain(keys.iter().copied()).collect();
    for name in &columns {
        check_name(name)?;
    }
    if keys.is_empty() {
        return Err(invalid("name at least one key column, or every row would be written".into()));
    }
    for (at, name) in columns.iter().enumerate() {
        if columns[..at].iter().any(|other| other.eq_ignore_ascii_case(name)) {
            return Err(invalid(format!("the column {name:?} is named twice")));
        }
    }
    Ok(())
}

fn quoted(dialect: Placeholders, name: &str) -> String {
    match dialect.database() {
        Database::Mysql => format!("`{name}`"),
        Database::Sqlite | Database::Postgres => format!("\"{name}\""),
    }
}

fn check_name(name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.len() <= 63 && name.starts_with(first) && name.chars().all(rest) {
        return Ok(());
    }
    let shown: String = name.chars().take(24).collect();
    Err(invalid(format!("{shown:?} is not a table or column name of the form [A-Za-z_][A-Za-z0-9_]{{0,62}}")))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
