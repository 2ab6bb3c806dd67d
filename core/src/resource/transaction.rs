//! A lock that is taken inside the caller's own transaction, and freed by its commit or rollback.

use super::Placeholders;
use super::sql::Database;
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;

/// Statements that take a lock for as long as a transaction of the caller lasts, on the caller's own connection to the
/// database that keeps the locks. The transaction excludes every holder of a lease on that name, and other such
/// transactions. The server frees it at the commit, at the rollback, and when the connection ends.
///
/// Take it with the first statements of the transaction:
///
/// 1. MySQL and MariaDB only: run [`TransactionLock::prepare_sql`] before the transaction, each time. It makes the row of the
///    lock where there is none, and commits by itself.
/// 2. Begin the transaction and run [`TransactionLock::take_sql`]. It waits while another transaction has the lock. One row
///    (PostgreSQL: returned, MySQL and MariaDB: changed) means taken. No row means that a client holds a lease on the lock
///    or waits for one: roll back at once, because the row may stay locked, and with it the holder's renewals.
/// 3. The fencing token is in the row; on MySQL and MariaDB [`TransactionLock::fence_sql`] reads it. It is larger than every
///    token before it, and every lease that follows has a larger one.
///
/// Keep the transaction short, well below `timeout`: clients that acquire the lock meanwhile wait at its row, and after their
/// time limit they fail with `backend_unavailable`. Several locks are taken in the order of their names, or two
/// transactions may deadlock. The rights are those of a client.
///
/// ```
/// # #[cfg(feature = "postgres")] {
/// use polylatch::resource::TransactionLock;
/// let lock = TransactionLock::postgres("polylatch", "orders/42")?;
/// assert!(lock.take_sql().contains(r#"INTO "polylatch".locks"#));
/// assert_eq!(lock.name(), "orders/42"); // the value of every parameter
/// # }
/// # Ok::<(), polylatch::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionLock {
    name: String,
    written: Placeholders,
    prepare: Option<String>,
    take: String,
    fence: Option<&'static str>,
}

impl TransactionLock {
    /// The schema of a store `postgres://…` whose URL names none.
    #[cfg(feature = "postgres")]
    pub const SCHEMA: &str = crate::backend::postgres::DEFAULT_SCHEMA;

    /// For a lock of the store `postgres://…?schema=SCHEMA`; the usual one is [`TransactionLock::SCHEMA`].
    ///
    /// Errors: `invalid_config` for an impossible schema, `invalid_argument` for an impossible name.
    #[cfg(feature = "postgres")]
    pub fn postgres(schema: &str, name: &str) -> Result<Self> {
        let take = crate::backend::postgres::take_in_transaction(schema)?;
        let name = LockName::new(name)?.as_str().to_owned();
        Ok(Self { name, written: Placeholders::Dollar, prepare: None, take, fence: None })
    }

    /// For a lock of the store `mysql://…/DATABASE` or `mariadb://…`, on a connection that uses that database.
    ///
    /// Errors: `invalid_argument` for an impossible name.
    #[cfg(feature = "mysql")]
    pub fn mysql(name: &str) -> Result<Self> {
        use crate::backend::mysql::transaction::{FENCE, MAKE, TAKE};
        Ok(Self {
            name: LockName::new(name)?.as_str().to_owned(),
            written: Placeholders::Mysql,
            prepare: Some(MAKE.to_owned()),
            take: TAKE.to_owned(),
            fence: Some(FENCE),
        })
    }

    /// Returns the same statements as another driver of the same database wants them.
    ///
    /// Errors: `invalid_argument` for a driver of another database.
    pub fn for_driver(&self, placeholders: Placeholders) -> Result<Self> {
        if placeholders.database() != self.written.database() {
            let rule = match self.written.database() {
                Database::Mysql => "a lock in a MySQL or MariaDB database",
                Database::Postgres | Database::Sqlite => "a lock in a PostgreSQL database",
            };
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{:?} is not a dialect for {rule}", placeholders.to_string()),
            ));
        }
        let sign = self.written.place(0);
        let spell = |text: &str| match placeholders {
            same if same == self.written => text.to_owned(),
            other => text.replace(&sign, &other.place(0)),
        };
        Ok(Self {
            name: self.name.clone(),
            written: placeholders,
            prepare: self.prepare.as_deref().map(spell),
            take: spell(&self.take),
            fence: self.fence,
        })
    }

    /// Returns the name of the lock: the value of every parameter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what to run before the transaction; `None` where nothing is needed.
    pub fn prepare_sql(&self) -> Option<&str> {
        self.prepare.as_deref()
    }

    /// Returns the statement that takes the lock.
    pub fn take_sql(&self) -> &str {
        &self.take
    }

    /// Returns how many parameters [`TransactionLock::take_sql`] has: one where places are numbered. The others have one
    /// ([`TransactionLock::prepare_sql`]) and none ([`TransactionLock::fence_sql`]).
    pub fn take_parameters(&self) -> usize {
        if self.written.is_numbered() { 1 } else { self.take.matches(&self.written.place(0)).count() }
    }

    /// Returns the query for the fencing token, without parameters; `None` where [`TransactionLock::take_sql`] returns it.
    pub fn fence_sql(&self) -> Option<&str> {
        self.fence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn a_postgres_driver_without_numbers_binds_the_name_at_each_place() {
        let lock = TransactionLock::postgres("polylatch", "a").unwrap();
        assert_eq!(lock.take_parameters(), 1);
        for (placeholders, sign) in [(Placeholders::PostgresPlain, "?"), (Placeholders::PostgresFormat, "%s")]
        {
            let other = lock.for_driver(placeholders).unwrap();
            let parts: Vec<&str> = other.take_sql().split(sign).collect();
            assert_eq!(
                (other.take_parameters(), parts.join("$1").as_str()),
                (parts.len() - 1, lock.take_sql())
            );
            assert!(parts.len() > 2 && !other.take_sql().contains('$'), "{}", other.take_sql());
            // A driver with `%s` reads every other percent sign as the start of one.
            assert!(!parts.concat().contains(['%', '?']), "{}", other.take_sql());
            assert_eq!(other.for_driver(Placeholders::Dollar).unwrap(), lock);
        }
        assert_eq!(lock.for_driver(Placeholders::Mysql).unwrap_err().code(), "invalid_argument");
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_mysql_driver_has_its_own_sign() {
        let lock = TransactionLock::mysql("a").unwrap();
        let other = lock.for_driver(Placeholders::MysqlFormat).unwrap();
        for (text, was) in
            [(other.take_sql(), lock.take_sql()), (other.prepare_sql().unwrap(), lock.prepare_sql().unwrap())]
        {
            assert_eq!((text.replace("%s", "?").as_str(), text.matches("%s").count()), (was, 1));
            assert!(!text.replace("%s", "").contains(['%', '?']), "{text}");
        }
        assert_eq!(other.take_parameters(), 1);
        assert_eq!(lock.for_driver(Placeholders::Dollar).unwrap_err().code(), "invalid_argument");
    }
}
