//! A lock that is taken inside the caller's own transaction, and freed by its commit or rollback.

use crate::error::Result;
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
    prepare: Option<&'static str>,
    take: String,
    fence: Option<&'static str>,
}

impl TransactionLock {
    /// For a lock of the store `postgres://…?schema=SCHEMA`; the usual schema is `polylatch`.
    ///
    /// Errors: `invalid_config` for an impossible schema, `invalid_argument` for an impossible name.
    #[cfg(feature = "postgres")]
    pub fn postgres(schema: &str, name: &str) -> Result<Self> {
        let take = crate::backend::postgres::take_in_transaction(schema)?;
        Ok(Self { name: LockName::new(name)?.as_str().to_owned(), prepare: None, take, fence: None })
    }

    /// For a lock of the store `mysql://…/DATABASE` or `mariadb://…`, on a connection that uses that database.
    ///
    /// Errors: `invalid_argument` for an impossible name.
    #[cfg(feature = "mysql")]
    pub fn mysql(name: &str) -> Result<Self> {
        use crate::backend::mysql::transaction::{FENCE, MAKE, TAKE};
        Ok(Self {
            name: LockName::new(name)?.as_str().to_owned(),
            prepare: Some(MAKE),
            take: TAKE.to_owned(),
            fence: Some(FENCE),
        })
    }

    /// Returns the name of the lock: the value of the only parameter of each statement.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what to run before the transaction; `None` where nothing is needed.
    pub fn prepare_sql(&self) -> Option<&str> {
        self.prepare
    }

    /// Returns the statement that takes the lock.
    pub fn take_sql(&self) -> &str {
        &self.take
    }

    /// Returns the query for the fencing token, without parameters; `None` where [`TransactionLock::take_sql`] returns it.
    pub fn fence_sql(&self) -> Option<&str> {
        self.fence
    }
}
