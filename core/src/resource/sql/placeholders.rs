//! How a driver wants a statement: the dialect of its database, and its sign for a value.

use std::fmt;
use std::str::FromStr;

use super::invalid;
use crate::error::{Error, Result};

/// How a database spells names and upserts, and how its driver spells the places of values.
///
/// Where places are numbered, a value stands once among the parameters. Elsewhere a value that a statement needs twice is
/// bound twice, so `parameters()` may name a column more than once.
///
/// As text, which is what the other languages take, it is the database and the sign: `sqlite ?1`, `sqlite ?`,
/// `postgres $1`, `postgres ?`, `postgres %s`, `mysql ?`, `mysql %s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placeholders {
    /// `?1`, `?2`: SQLite.
    Question,
    /// `?` for each value, in the order of appearance: SQLite, by any driver.
    SqlitePlain,
    /// `$1`, `$2`: PostgreSQL.
    Dollar,
    /// `?` for each value, in the order of appearance: PostgreSQL by JDBC and its like.
    PostgresPlain,
    /// `%s` for each value, in the order of appearance: PostgreSQL by psycopg.
    PostgresFormat,
    /// `?` for each value, in the order of appearance, and names in backticks: MySQL and MariaDB.
    Mysql,
    /// `%s` for each value, in the order of appearance, and names in backticks: MySQL and MariaDB by PyMySQL or mysqlclient.
    MysqlFormat,
}

/// The dialect of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::resource) enum Database {
    Sqlite,
    Postgres,
    Mysql,
}

impl Placeholders {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Question,
        Self::SqlitePlain,
        Self::Dollar,
        Self::PostgresPlain,
        Self::PostgresFormat,
        Self::Mysql,
        Self::MysqlFormat,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Question => "sqlite ?1",
            Self::SqlitePlain => "sqlite ?",
            Self::Dollar => "postgres $1",
            Self::PostgresPlain => "postgres ?",
            Self::PostgresFormat => "postgres %s",
            Self::Mysql => "mysql ?",
            Self::MysqlFormat => "mysql %s",
        }
    }

    pub(in crate::resource) fn database(self) -> Database {
        match self {
            Self::Question | Self::SqlitePlain => Database::Sqlite,
            Self::Dollar | Self::PostgresPlain | Self::PostgresFormat => Database::Postgres,
            Self::Mysql | Self::MysqlFormat => Database::Mysql,
        }
    }

    /// Whether a statement may have the same place twice.
    pub(in crate::resource) fn is_numbered(self) -> bool {
        matches!(self, Self::Question | Self::Dollar)
    }

    /// The place of the value with this index, from 0.
    pub(in crate::resource) fn place(self, at: usize) -> String {
        match self {
            Self::Question => format!("?{}", at + 1),
            Self::Dollar => format!("${}", at + 1),
            Self::SqlitePlain | Self::PostgresPlain | Self::Mysql => "?".to_owned(),
            Self::PostgresFormat | Self::MysqlFormat => "%s".to_owned(),
        }
    }
}

impl fmt::Display for Placeholders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Placeholders {
    type Err = Error;

    /// Reads what `Display` writes. Errors: `invalid_argument` that names what there is.
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| not_one_of("the dialect", text, &Self::ALL.map(Self::word)))
    }
}

/// The error for a word that is none of those that there are.
pub(super) fn not_one_of(what: &str, text: &str, words: &[&str]) -> Error {
    let shown: String = text.chars().take(24).collect();
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    invalid(format!("{what} {shown:?} is not one of {}", words.join(", ")))
}

/// The parameters of a statement, in the order of their first use: SQLite numbers `$1` by that and not by the digit.
pub(super) struct Bound {
    dialect: Placeholders,
    pub(super) names: Vec<String>,
}

impl Bound {
    pub(super) fn new(dialect: Placeholders) -> Self {
        Self { dialect, names: Vec::new() }
    }

    /// The placeholder of a value. The same name is the same value.
    pub(super) fn value(&mut self, name: &str) -> String {
        let known =
            if self.dialect.is_numbered() { self.names.iter().position(|known| known == name) } else { None };
        let at = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.dialect.place(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_read_as_it_is_written_and_in_no_other_way() {
        for one in Placeholders::ALL {
            assert_eq!(one.to_string().parse::<Placeholders>().unwrap(), one);
        }
        for bad in ["", "?", "$", "sqlite", "mysql $1", "SQLITE ?", "oracle :1"] {
            let error = bad.parse::<Placeholders>().unwrap_err();
            assert_eq!(error.code(), "invalid_argument");
            assert!(error.to_string().contains("\"postgres %s\""), "{error}");
        }
    }
}
