//! An SQL statement that a late writer cannot get past.

use super::Refused;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::fencing::FencingToken;

/// How a database spells bound parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholders {
    /// `?1`, `?2`: SQLite.
    Question,
    /// `$1`, `$2`: PostgreSQL.
    Dollar,
}

/// A conditional write to one row of a table that keeps the largest fencing token seen.
///
/// The row changes only if its token is not larger than the writer's, and takes over the writer's
/// token in the same statement. The database makes that one step, whatever else goes on.
///
/// The table needs one more column, such as `fence BIGINT NOT NULL DEFAULT 0` (`NULL` counts as
/// "not held yet"). Do not delete rows that late writers may still want to write: the token goes with
/// the row. Names are checked and quoted, so they are case-sensitive in PostgreSQL; values are bound.
///
/// ```
/// use polylatch::resource::{FencedUpdate, Placeholders};
/// let write = FencedUpdate::update(Placeholders::Dollar, "account", "fence", &["balance"], &["id"])?;
/// assert_eq!(
///     write.sql(),
///     r#"UPDATE "account" SET "balance" = $1, "fence" = $2 WHERE "account"."id" = $3 AND ("account"."fence" IS NULL OR "account"."fence" <= $2)"#
/// );
/// assert_eq!(write.parameters(), ["balance", "fence", "id"]);
/// # Ok::<(), polylatch::Error>(())
/// ```
///
/// One changed row: done. No changed row: ask with [`FencedUpdate::probe_sql`] and
/// [`FencedUpdate::why_unchanged`] whether it was refused or is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedUpdate {
    sql: String,
    probe: String,
    parameters: Vec<String>,
    keys: usize,
}

/// Why a conditional write changed no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchanged {
    /// A newer holder wrote before. The lock is lost; stop.
    Refused(Refused),
    /// There is no row with these keys.
    Missing,
    /// The row came, or was replaced, after the write looked for it. Write again.
    ChangedMeanwhile,
}

impl FencedUpdate {
    /// Writes to a row that exists.
    ///
    /// With no column to set, only the token is raised: from then on older holders are refused, before
    /// the first real write.
    ///
    /// Errors: `invalid_argument` for a name that is not `[A-Za-z_][A-Za-z0-9_]{0,62}` (a table may
    /// have a schema before a dot), for a column that is named twice, and without key columns.
    pub fn update(
        dialect: Placeholders,
        table: &str,
        fence_column: &str,
        set_columns: &[&str],
        key_columns: &[&str],
    ) -> Result<Self> {
        let names = Names::check(dialect, table, fence_column, set_columns, key_columns)?;
        let sql = format!(
            "UPDATE {} SET {} WHERE {} AND {}",
            names.table,
            names.assignments(),
            names.matches(names.sets + 1),
            names.condition()
        );
        Ok(names.statement(sql))
    }

    /// Writes to a row, or inserts it if it is missing; the key columns need a unique index.
    ///
    /// No changed row then always means: refused.
    /// Errors: as [`FencedUpdate::update`].
    pub fn upsert(
        dialect: Placeholders,
        table: &str,
        fence_column: &str,
        set_columns: &[&str],
        key_columns: &[&str],
    ) -> Result<Self> {
        let names = Names::check(dialect, table, fence_column, set_columns, key_columns)?;
        let all: Vec<String> = (1..=names.columns.len()).map(|at| names.placeholder(at)).collect();
        let columns: Vec<String> = names.columns.iter().map(|name| quoted(name)).collect();
        let keys: Vec<String> = key_columns.iter().map(|name| quoted(name)).collect();
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {} WHERE {}",
            names.table,
            columns.join(", "),
            all.join(", "),
            keys.join(", "),
            names.assignments(),
            names.condition()
        );
        Ok(names.statement(sql))
    }

    /// Returns the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns which column's value each parameter is, in order: the columns to set, the fencing token
    /// (once, see [`token_value`](super::token_value)), the keys.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Returns a query for the row's token. Its parameters are the keys, in order.
    pub fn probe_sql(&self) -> &str {
        &self.probe
    }

    /// Returns which column's value each parameter of the probe is.
    pub fn probe_parameters(&self) -> &[String] {
        &self.parameters[self.parameters.len() - self.keys..]
    }

    /// Explains a write that changed no row by what the probe found: `None` for no row, `Some(None)`
    /// for a row whose token is `NULL`.
    pub fn why_unchanged(token: FencingToken, found: Option<Option<i64>>) -> Unchanged {
        let Some(kept) = found else { return Unchanged::Missing };
        let largest = FencingToken::new(kept.and_then(|kept| u64::try_from(kept).ok()).unwrap_or(0));
        if largest > token {
            return Unchanged::Refused(Refused { token, largest });
        }
        Unchanged::ChangedMeanwhile
    }
}

/// Checked names, in the order of the parameters, which is also the order of their first use: SQLite
/// numbers `$1` by that and not by the digit.
struct Names<'a> {
    dialect: Placeholders,
    table: String,
    /// What columns are qualified with: SQLite takes an unknown name in quotes for a text, unless a
    /// table stands before it.
    alias: String,
    columns: Vec<&'a str>,
    sets: usize,
}

impl<'a> Names<'a> {
    fn check(
        dialect: Placeholders,
        table: &'a str,
        fence: &'a str,
        sets: &[&'a str],
        keys: &[&'a str],
    ) -> Result<Self> {
        let (schema, bare) =
            table.split_once('.').map_or((None, table), |(schema, bare)| (Some(schema), bare));
        let columns: Vec<&str> = sets.iter().chain([&fence]).chain(keys).copied().collect();
        for name in columns.iter().copied().chain(schema).chain([bare]) {
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
        let alias = quoted(bare);
        let table = schema.map_or_else(|| alias.clone(), |schema| format!("{}.{alias}", quoted(schema)));
        Ok(Self { dialect, table, alias, columns, sets: sets.len() })
    }

    fn placeholder(&self, number: usize) -> String {
        match self.dialect {
            Placeholders::Question => format!("?{number}"),
            Placeholders::Dollar => format!("${number}"),
        }
    }

    /// The columns to set and the token, each with its parameter.
    fn assignments(&self) -> String {
        let parts: Vec<String> = (0..=self.sets)
            .map(|at| format!("{} = {}", quoted(self.columns[at]), self.placeholder(at + 1)))
            .collect();
        parts.join(", ")
    }

    /// The keys, numbered behind `before` other parameters.
    fn matches(&self, before: usize) -> String {
        let parts: Vec<String> = self.columns[self.sets + 1..]
            .iter()
            .enumerate()
            .map(|(at, key)| format!("{} = {}", self.qualified(key), self.placeholder(before + at + 1)))
            .collect();
        parts.join(" AND ")
    }

    fn condition(&self) -> String {
        let (fence, token) = (self.qualified(self.columns[self.sets]), self.placeholder(self.sets + 1));
        format!("({fence} IS NULL OR {fence} <= {token})")
    }

    fn qualified(&self, column: &str) -> String {
        format!("{}.{}", self.alias, quoted(column))
    }

    fn statement(&self, sql: String) -> FencedUpdate {
        let fence = self.qualified(self.columns[self.sets]);
        FencedUpdate {
            sql,
            probe: format!("SELECT {fence} FROM {} WHERE {}", self.table, self.matches(0)),
            parameters: self.columns.iter().map(|name| (*name).to_owned()).collect(),
            keys: self.columns.len() - 1 - self.sets,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_bind_every_value_and_quote_every_name() {
        let update =
            FencedUpdate::update(Placeholders::Question, "app.stock", "fence", &["a", "b"], &["k", "l"])
                .unwrap();
        assert_eq!(
            update.sql(),
            r#"UPDATE "app"."stock" SET "a" = ?1, "b" = ?2, "fence" = ?3 WHERE "stock"."k" = ?4 AND "stock"."l" = ?5 AND ("stock"."fence" IS NULL OR "stock"."fence" <= ?3)"#
        );
        assert_eq!(update.parameters(), ["a", "b", "fence", "k", "l"]);
        assert_eq!(
            update.probe_sql(),
            r#"SELECT "stock"."fence" FROM "app"."stock" WHERE "stock"."k" = ?1 AND "stock"."l" = ?2"#
        );
        assert_eq!(update.probe_parameters(), ["k", "l"]);
        let upsert = FencedUpdate::upsert(Placeholders::Dollar, "stock", "fence", &["a"], &["k"]).unwrap();
        assert_eq!(
            upsert.sql(),
            r#"INSERT INTO "stock" ("a", "fence", "k") VALUES ($1, $2, $3) ON CONFLICT ("k") DO UPDATE SET "a" = $1, "fence" = $2 WHERE ("stock"."fence" IS NULL OR "stock"."fence" <= $2)"#
        );
    }

    #[test]
    fn names_that_could_be_more_than_names_are_refused() {
        let long = "x".repeat(64);
        for bad in ["", "1a", "a-b", "a b", "a\"b", "a;--", "ä", "a.b.c", ".a", "a.", "a\0", &long] {
            let error =
                FencedUpdate::update(Placeholders::Question, bad, "fence", &["a"], &["k"]).unwrap_err();
            assert_eq!(error.code(), "invalid_argument", "{bad:?}");
            if !bad.contains('.') {
                FencedUpdate::upsert(Placeholders::Dollar, "t", bad, &["a"], &["k"]).unwrap_err();
                FencedUpdate::update(Placeholders::Dollar, "t", "fence", &[bad], &["k"]).unwrap_err();
                FencedUpdate::update(Placeholders::Dollar, "t", "fence", &["a"], &[bad]).unwrap_err();
            }
        }
        FencedUpdate::update(Placeholders::Dollar, &long[1..], "_", &[], &["Z9"]).unwrap();
        for (sets, keys) in
            [(&["a"][..], &[][..]), (&["a", "A"], &["k"]), (&["a"], &["a"]), (&["Fence"], &["k"])]
        {
            let error = FencedUpdate::update(Placeholders::Question, "t", "fence", sets, keys).unwrap_err();
            assert_eq!(error.code(), "invalid_argument", "{sets:?} {keys:?}");
        }
    }

    #[test]
    fn an_unchanged_row_is_refused_missing_or_too_new() {
        let [old, new] = [33, 34].map(FencingToken::new);
        let refused = Unchanged::Refused(Refused { token: old, largest: new });
        assert_eq!(FencedUpdate::why_unchanged(old, Some(Some(34))), refused);
        assert_eq!(FencedUpdate::why_unchanged(old, None), Unchanged::Missing);
        assert_eq!(FencedUpdate::why_unchanged(old, Some(Some(33))), Unchanged::ChangedMeanwhile);
        assert_eq!(FencedUpdate::why_unchanged(old, Some(None)), Unchanged::ChangedMeanwhile);
        assert_eq!(FencedUpdate::why_unchanged(old, Some(Some(-1))), Unchanged::ChangedMeanwhile);
    }
}
