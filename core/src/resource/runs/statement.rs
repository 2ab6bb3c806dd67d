//! Statements as data, and the exchange of statements and rows with any driver.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::resource::Placeholders;

/// A value to bind, or a column of a row.
#[derive(Clone, PartialEq, Eq)]
pub enum SqlValue {
    /// `NULL`.
    Null,
    /// A 64-bit number.
    Int(i64),
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl fmt::Debug for SqlValue {
    /// Prints kinds and sizes: owner tokens and answers are among the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Int(number) => write!(f, "Int({number})"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
        }
    }
}

/// A row of an answer: its columns in order.
pub type SqlRow = Vec<SqlValue>;

/// A statement with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlStatement {
    sql: String,
    values: Vec<SqlValue>,
}

impl SqlStatement {
    pub(super) fn new(sql: impl Into<String>, values: Vec<SqlValue>) -> Self {
        Self { sql: sql.into(), values }
    }

    /// The same with more text behind it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn and(mut self, text: &str) -> Self {
        self.sql.push_str(text);
        self
    }

    /// Returns the text, with the parameters of its database: `?1` for SQLite, `$1` for PostgreSQL, `?` for MySQL and
    /// MariaDB.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the values of the parameters, in order.
    pub fn values(&self) -> &[SqlValue] {
        &self.values
    }

    /// The same as a driver of this database wants it.
    #[must_use]
    pub fn for_driver(&self, placeholders: Placeholders) -> Self {
        if placeholders.is_numbered() {
            return self.clone();
        }
        let mut values = Vec::new();
        let sql = self.rewritten(|at| {
            values.extend(self.values.get(at).cloned());
            placeholders.place(0)
        });
        Self { sql, values }
    }

    /// Replaces each parameter by what `write` makes of its number, from 0. None of the texts has a `?` or a `$` that is no
    /// parameter, and no percent sign.
    fn rewritten(&self, mut write: impl FnMut(usize) -> String) -> String {
        let (mut sql, mut rest, mut next) = (String::new(), self.sql.as_str(), 0);
        while let Some(at) = rest.find(['?', '$']) {
            sql.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = rest[..digits].parse::<usize>().map_or(next, |number| number.saturating_sub(1));
            sql.push_str(&write(number));
            (rest, next) = (&rest[digits..], number + 1);
        }
        sql + rest
    }
}

/// What an [`Exchange`] does next.
#[derive(Debug)]
pub enum Ask<T> {
    /// Execute this, and hand the rows that it returned to [`Exchange::next`]: none for a statement that returns none.
    Run(SqlStatement),
    /// It is over.
    Done(T),
}

type Talk<T> = Box<dyn FnMut(&[SqlRow]) -> Result<Ask<T>> + Send>;

/// Statements for the caller's connection, one after the other. What comes next depends on the rows of the one before.
///
/// If a statement fails, roll the transaction back and drop the exchange.
pub struct Exchange<T>(Talk<T>);

impl<T> fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

impl<T> Exchange<T> {
    pub(super) fn new(talk: impl FnMut(&[SqlRow]) -> Result<Ask<T>> + Send + 'static) -> Self {
        Self(Box::new(talk))
    }

    /// Returns the next statement, or what came of all. `rows`: what the statement before returned; empty at first.
    ///
    /// Errors: `backend_rejected` for rows in an unknown form, `backend_unavailable` if other clients changed the record
    /// again and again, `stale_token` if another client has taken the work over, `invalid_argument` for a key that belongs to
    /// work in steps, and for a call after the end. Roll back after each of them.
    pub fn next(&mut self, rows: &[SqlRow]) -> Result<Ask<T>> {
        (self.0)(rows)
    }

    /// Carries it out with a driver that blocks: `query` executes a statement and returns its rows.
    ///
    /// Errors: those of the driver, and of [`Exchange::next`].
    pub fn run<E: From<Error>>(
        mut self,
        mut query: impl FnMut(&SqlStatement) -> std::result::Result<Vec<SqlRow>, E>,
    ) -> std::result::Result<T, E> {
        let mut rows = Vec::new();
        loop {
            match self.next(&rows)? {
                Ask::Run(statement) => rows = query(&statement)?,
                Ask::Done(end) => return Ok(end),
            }
        }
    }

    /// As [`Exchange::run`], with an asynchronous driver. Cancellation: as of the driver; roll back.
    pub async fn run_async<E: From<Error>>(
        mut self,
        mut query: impl AsyncFnMut(&SqlStatement) -> std::result::Result<Vec<SqlRow>, E>,
    ) -> std::result::Result<T, E> {
        let mut rows = Vec::new();
        loop {
            match self.next(&rows)? {
                Ask::Run(statement) => rows = query(&statement).await?,
                Ask::Done(end) => return Ok(end),
            }
        }
    }
}

/// The error of an exchange that goes on after its end.
pub(super) fn is_over() -> Error {
    Error::new(ErrorKind::InvalidArgument, "this exchange of statements is over; begin another one")
}

/// Reads columns that drivers return in different types: text as bytes, numbers as digits.
pub(super) struct Columns<'a>(pub &'a [SqlValue]);

impl Columns<'_> {
    pub(super) fn is_null(&self, at: usize) -> bool {
        matches!(self.0.get(at), Some(SqlValue::Null))
    }

    pub(super) fn int(&self, at: usize) -> Option<i64> {
        match self.0.get(at)? {
            SqlValue::Int(number) => Some(*number),
            SqlValue::Text(text) => text.parse().ok(),
            SqlValue::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            SqlValue::Null => None,
        }
    }

    pub(super) fn text(&self, at: usize) -> Option<String> {
        match self.0.get(at)? {
            SqlValue::Text(text) => Some(text.clone()),
            SqlValue::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
            SqlValue::Null | SqlValue::Int(_) => None,
        }
    }

    pub(super) fn bytes(&self, at: usize) -> Option<Vec<u8>> {
        match self.0.get(at)? {
            SqlValue::Bytes(bytes) => Some(bytes.clone()),
            SqlValue::Text(text) => Some(text.clone().into_bytes()),
            SqlValue::Null | SqlValue::Int(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_rewritten_for_every_driver() {
        let values = vec![SqlValue::Int(1), SqlValue::Text("b".into())];
        for sql in ["a = $1 AND b = $2 AND c > $1", "a = ?1 AND b = ?2 AND c > ?1"] {
            let statement = SqlStatement::new(sql, values.clone());
            let positional = statement.for_driver(Placeholders::PostgresFormat);
            assert_eq!(positional.sql(), "a = %s AND b = %s AND c > %s");
            assert_eq!(positional.values(), [SqlValue::Int(1), SqlValue::Text("b".into()), SqlValue::Int(1)]);
            assert_eq!(statement.for_driver(Placeholders::Dollar), statement);
        }
        let statement = SqlStatement::new("a = ? AND b = ?", values);
        assert_eq!(statement.for_driver(Placeholders::Mysql), statement);
        assert_eq!(statement.for_driver(Placeholders::MysqlFormat).sql(), "a = %s AND b = %s");
    }

    #[test]
    fn values_are_not_printed() {
        let secret = SqlStatement::new("a = ?", vec![SqlValue::Text("secret".into())]);
        assert!(!format!("{secret:?}").contains("secret"));
    }
}
