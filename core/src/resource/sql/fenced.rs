//! A write that carries a fencing token.

use super::{Bound, Database, Placeholders, Table, check_columns};
use crate::error::Result;
use crate::policy::fencing::FencingToken;
use crate::resource::Refused;

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
///
/// MySQL and MariaDB count a row that was found with the same values only if the client asks for it
/// (`CLIENT_FOUND_ROWS`, often called `clientFoundRows` or `useAffectedRows=false`). Ask for it: without it, the
/// repetition of a write reports no changed row. The number that they report for an upsert says nothing of a refusal
/// ([`FencedUpdate::rows_tell`]): ask with the probe each time, and [`FencedUpdate::refused`] reads the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedUpdate {
    sql: String,
    probe: String,
    parameters: Vec<String>,
    keys: Vec<String>,
    rows_tell: bool,
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
        let parts = Parts::check(dialect, table, fence_column, set_columns, key_columns)?;
        let mut bound = Bound::new(dialect);
        let assignments = parts.assignments(&mut bound);
        let keys = parts.table.matches(key_columns, &mut bound);
        let condition = parts.condition(&bound.value(fence_column));
        let sql = format!("UPDATE {} SET {assignments} WHERE {keys} AND {condition}", parts.table.name);
        Ok(parts.statement(sql, bound, true))
    }

    /// Writes to a row, or inserts it if it is missing; the key columns need a unique index.
    ///
    /// No changed row then always means: refused, except where [`FencedUpdate::rows_tell`] is false.
    /// Errors: as [`FencedUpdate::update`].
    pub fn upsert(
        dialect: Placeholders,
        table: &str,
        fence_column: &str,
        set_columns: &[&str],
        key_columns: &[&str],
    ) -> Result<Self> {
        let parts = Parts::check(dialect, table, fence_column, set_columns, key_columns)?;
        let mut bound = Bound::new(dialect);
        let columns: Vec<&str> = parts.written().chain(key_columns.iter().copied()).collect();
        let values: Vec<String> = columns.iter().map(|name| bound.value(name)).collect();
        let list =
            |names: &[&str]| names.iter().map(|name| parts.table.quoted(name)).collect::<Vec<_>>().join(", ");
        let insert =
            format!("INSERT INTO {} ({}) VALUES ({})", parts.table.name, list(&columns), values.join(", "));
        let sql = match dialect.database() {
            // One assignment reads what those before it wrote, so the token comes last.
            Database::Mysql => {
                let given = |name: &str| format!("VALUES({})", parts.table.quoted(name));
                let condition = parts.condition(&given(fence_column));
                let one = |name: &str| {
                    let (quoted, own) = (parts.table.quoted(name), parts.table.qualified(name));
                    format!("{quoted} = IF({condition}, {}, {own})", given(name))
                };
                let assignments: Vec<String> = parts.written().map(one).collect();
                format!("{insert} ON DUPLICATE KEY UPDATE {}", assignments.join(", "))
            }
            Database::Sqlite | Database::Postgres => {
                let (assignments, token) = (parts.assignments(&mut bound), bound.value(fence_column));
                format!(
                    "{insert} ON CONFLICT ({}) DO UPDATE SET {assignments} WHERE {}",
                    list(key_columns),
                    parts.condition(&token)
                )
            }
        };
        Ok(parts.statement(sql, bound, dialect.database() != Database::Mysql))
    }

    /// Returns the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns which column's value each parameter is, in order: the columns to set, the fencing token (see
    /// [`token_value`](crate::resource::token_value)), the keys; where places have no numbers, values that the statement needs
    /// again once more.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Says whether the number of changed rows tells that the write was refused. The upsert of MySQL and MariaDB reports
    /// the same number for a row that stayed as it was.
    pub fn rows_tell(&self) -> bool {
        self.rows_tell
    }

    /// Reads what the probe found after a write: the row keeps a newer token than the writer's, so a newer holder was
    /// there before, or since.
    pub fn refused(token: FencingToken, found: Option<Option<i64>>) -> Option<Refused> {
        let largest = FencingToken::new(found??.try_into().unwrap_or(0));
        (largest > token).then_some(Refused { token, largest })
    }

    /// Returns a query for the row's token. Its parameters are the keys, in order.
    pub fn probe_sql(&self) -> &str {
        &self.probe
    }

    /// Returns which column's value each parameter of the probe is.
    pub fn probe_parameters(&self) -> &[String] {
        &self.keys
    }

    /// Explains a write that changed no row by what the probe found: `None` for no row, `Some(None)`
    /// for a row whose token is `NULL`.
    pub fn why_unchanged(token: FencingToken, found: Option<Option<i64>>) -> Unchanged {
        match (found, Self::refused(token, found)) {
            (None, _) => Unchanged::Missing,
            (_, Some(refused)) => Unchanged::Refused(refused),
            (Some(_), None) => Unchanged::ChangedMeanwhile,
        }
    }
}

/// Checked names.
struct Parts<'a> {
    table: Table,
    fence: &'a str,
    sets: &'a [&'a str],
    keys: &'a [&'a str],
}

impl<'a> Parts<'a> {
    fn check(
        dialect: Placeholders,
        table: &str,
        fence: &'a str,
        sets: &'a [&'a str],
        keys: &'a [&'a str],
    ) -> Result<Self> {
        let table = Table::check(dialect, table)?;
        check_columns(sets.iter().copied().chain([fence]), keys)?;
        Ok(Self { table, fence, sets, keys })
    }

    /// The columns to set, and the token.
    fn written(&self) -> impl Iterator<Item = &'a str> {
        self.sets.iter().copied().chain([self.fence])
    }

    fn assignments(&self, bound: &mut Bound) -> String {
        let one = |name: &str| format!("{} = {}", self.table.quoted(name), bound.value(name));
        self.written().map(one).collect::<Vec<_>>().join(", ")
    }

    fn condition(&self, token: &str) -> String {
        let fence = self.table.qualified(self.fence);
        format!("({fence} IS NULL OR {fence} <= {token})")
    }

    fn statement(&self, sql: String, bound: Bound, rows_tell: bool) -> FencedUpdate {
        let mut probed = Bound::new(self.table.dialect);
        let keys = self.table.matches(self.keys, &mut probed);
        let fence = self.table.qualified(self.fence);
        FencedUpdate {
            sql,
            probe: format!("SELECT {fence} FROM {} WHERE {keys}", self.table.name),
            parameters: bound.names,
            keys: probed.names,
            rows_tell,
        }
    }
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
    fn mysql_binds_a_value_each_time_and_quotes_in_its_own_way() {
        let mysql = Placeholders::Mysql;
        let update = FencedUpdate::update(mysql, "app.stock", "fence", &["a"], &["k", "l"]).unwrap();
        assert_eq!(
            update.sql(),
            "UPDATE `app`.`stock` SET `a` = ?, `fence` = ? WHERE `stock`.`k` = ? AND `stock`.`l` = ? \
             AND (`stock`.`fence` IS NULL OR `stock`.`fence` <= ?)"
        );
        assert_eq!(update.parameters(), ["a", "fence", "k", "l", "fence"]);
        assert_eq!(
            update.probe_sql(),
            "SELECT `stock`.`fence` FROM `app`.`stock` WHERE `stock`.`k` = ? AND `stock`.`l` = ?"
        );
        assert_eq!(update.probe_parameters(), ["k", "l"]);
        assert!(update.rows_tell());
        let upsert = FencedUpdate::upsert(mysql, "stock", "fence", &["a"], &["k"]).unwrap();
        assert_eq!(
            upsert.sql(),
            "INSERT INTO `stock` (`a`, `fence`, `k`) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE \
             `a` = IF((`stock`.`fence` IS NULL OR `stock`.`fence` <= VALUES(`fence`)), VALUES(`a`), `stock`.`a`), \
             `fence` = IF((`stock`.`fence` IS NULL OR `stock`.`fence` <= VALUES(`fence`)), VALUES(`fence`), \
             `stock`.`fence`)"
        );
        assert_eq!(upsert.parameters(), ["a", "fence", "k"]);
        assert!(!upsert.rows_tell());
    }

    #[test]
    fn without_numbers_each_place_has_its_value() {
        let update =
            FencedUpdate::update(Placeholders::PostgresFormat, "stock", "fence", &["a"], &["k"]).unwrap();
        assert_eq!(
            update.sql(),
            r#"UPDATE "stock" SET "a" = %s, "fence" = %s WHERE "stock"."k" = %s AND ("stock"."fence" IS NULL OR "stock"."fence" <= %s)"#
        );
        assert_eq!(update.parameters(), ["a", "fence", "k", "fence"]);
        let upsert =
            FencedUpdate::upsert(Placeholders::SqlitePlain, "stock", "fence", &["a"], &["k"]).unwrap();
        assert_eq!(
            upsert.sql(),
            r#"INSERT INTO "stock" ("a", "fence", "k") VALUES (?, ?, ?) ON CONFLICT ("k") DO UPDATE SET "a" = ?, "fence" = ? WHERE ("stock"."fence" IS NULL OR "stock"."fence" <= ?)"#
        );
        assert_eq!(upsert.parameters(), ["a", "fence", "k", "a", "fence", "fence"]);
        assert!(upsert.rows_tell());
        let mysql = FencedUpdate::upsert(Placeholders::MysqlFormat, "stock", "fence", &[], &["k"]).unwrap();
        assert!(
            mysql.sql().starts_with("INSERT INTO `stock` (`fence`, `k`) VALUES (%s, %s) ON DUPLICATE KEY")
        );
        assert!(!mysql.rows_tell());
    }

    #[test]
    fn names_that_could_be_more_than_names_are_refused() {
        let long = "x".repeat(64);
        for bad in ["", "1a", "a-b", "a b", "a\"b", "a`b", "a;--", "ä", "a.b.c", ".a", "a.", "a\0", &long] {
            for dialect in Placeholders::ALL {
                let error = FencedUpdate::update(dialect, bad, "fence", &["a"], &["k"]).unwrap_err();
                assert_eq!(error.code(), "invalid_argument", "{bad:?}");
            }
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
