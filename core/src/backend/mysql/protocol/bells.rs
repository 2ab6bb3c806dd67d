//! Session locks and `KILL QUERY` as bells: see `mysql::doorbell`. The names of session locks are of the whole server, so they
//! have the database in them; and the user, because a connection may only wake those of its own user.

use std::time::Duration;

use crate::backend::rows::server::value::{Cells, Param, Statement};
use crate::token::{ClientId, OwnerToken};

use super::statements::{clock_us, listed};

/// How long a request waits before it looks for whom to listen. As long a change of the tables waits for it.
pub(crate) const LISTEN_FOR: Duration = Duration::from_secs(2);

/// The name of a session lock of a client; takes the user and the client.
macro_rules! lock_of {
    ($what:literal, $client:expr) => {
        concat!(
            "CONCAT('polylatch.",
            $what,
            ".', LEFT(SHA2(CONCAT(DATABASE(), '/', ?, '/', ",
            $client,
            "), 256), 32))"
        )
    };
}

/// What a client is called by those of the same user.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub user: String,
    pub client: ClientId,
}

impl Name {
    fn params(&self) -> Vec<Param> {
        vec![self.user.as_str().into(), self.client.as_str().into()]
    }
}

/// Says on the connection for the verbs that this client wakes others. What it listens on waits for the same lock.
pub(crate) fn introduce(me: &Name) -> Statement {
    Statement::new(concat!("SELECT CAST(GET_LOCK(", lock_of!("rings", "?"), ", 0) AS SIGNED)"), me.params())
}

/// Gives up what [`introduce`] takes.
pub(crate) fn withdraw(me: &Name) -> Statement {
    Statement::new(concat!("SELECT CAST(RELEASE_LOCK(", lock_of!("rings", "?"), ") AS SIGNED)"), me.params())
}

/// 1 if this client wakes those of the same user.
pub(crate) fn rings(other: &Name) -> Statement {
    Statement::new(
        concat!("SELECT CAST(IS_USED_LOCK(", lock_of!("rings", "?"), ") IS NOT NULL AS SIGNED)"),
        other.params(),
    )
}

/// Names the connection that is to be woken: 1 if it is the only one.
pub(crate) fn hear(me: &Name) -> Statement {
    Statement::new(concat!("SELECT CAST(GET_LOCK(", lock_of!("hears", "?"), ", 1) AS SIGNED)"), me.params())
}

/// How many connections the server has, and how many it takes.
pub(crate) fn crowd() -> [Statement; 2] {
    [
        Statement::new("SHOW GLOBAL STATUS LIKE 'Threads_connected'", vec![]),
        Statement::new("SELECT @@GLOBAL.max_connections", vec![]),
    ]
}

/// Owner and fence of those of these waiters that have their lock. In one plain SELECT, which locks no row.
pub(crate) fn granted(names: &[String], owners: &[OwnerToken]) -> Statement {
    let ([own, beside], values) = granted_in_each(names, owners);
    Statement::new(format!("{own} UNION ALL {beside}"), values.iter().chain(&values).cloned().collect())
}

/// The same from the rows of locks, and from the leases beside them; and the values for each.
fn granted_in_each(names: &[String], owners: &[OwnerToken]) -> ([String; 2], Vec<Param>) {
    let owners: Vec<_> = owners.iter().map(|owner| owner.to_hex()).collect();
    let (name_marks, names) = listed(names);
    let (owner_marks, owners) = listed(&owners);
    let granted = |table: &str| {
        format!(
            concat!(
                "SELECT owner, fence FROM {} FORCE INDEX (PRIMARY) WHERE name IN ({}) AND owner IN ({}) AND ends_ms > ",
                clock_us!(),
                " DIV 1000"
            ),
            table, name_marks, owner_marks
        )
    };
    (["polylatch_locks", "polylatch_leases"].map(granted), names.into_iter().chain(owners).collect())
}

/// Answers as [`granted`] does, and waits until a ring if no waiter has its lock: a ring ends the statement, with an error or
/// as [`was_rung`] says. A grant is committed before it rings, so none is missed in between. In one statement: a ring that
/// comes between two of one request makes a MariaDB server announce an answer that it then does not send (10.11).
///
/// It waits for a session lock that this client has on its other connection, not in `SLEEP`: all sleepers of a MariaDB
/// server share one mutex, and a `KILL QUERY` that meets one of them while another has it stops all for 2 s (10.11, one in 200
/// with two sleepers). Got, the lock is the row without an owner whose number is 1: see [`is_alone`].
pub(crate) fn listen(me: &Name, names: &[String], owners: &[OwnerToken]) -> Statement {
    let ([own, beside], values) = granted_in_each(names, owners);
    let twice = || values.iter().chain(&values).cloned();
    let seconds = i64::try_from(LISTEN_FOR.as_secs()).unwrap_or(1);
    Statement::new(
        format!(
            concat!(
                "{own} UNION ALL {beside} UNION ALL SELECT NULL, CAST(GET_LOCK(",
                lock_of!("rings", "?"),
                ", ?) AS SIGNED) FROM DUAL WHERE NOT EXISTS ({own}) AND NOT EXISTS ({beside})"
            ),
            own = own,
            beside = beside
        ),
        twice().chain(me.params()).chain([seconds.into()]).chain(twice()).collect(),
    )
}

/// Whether a request that listened got the lock it waited for: the other connection of this client has ended.
pub(crate) fn is_alone(answer: &[Cells]) -> bool {
    answer.iter().any(|row| row.text(0).is_empty() && row.optional_int(1) == Some(1))
}

/// Whether a request that listened was ended by a ring: no lock was got, and no time passed.
pub(crate) fn was_rung(answer: &[Cells]) -> bool {
    answer.iter().any(|row| row.text(0).is_empty() && row.optional_int(1).is_none())
}

/// Wakes the connection of a client that listens; fails if there is none, or if it is another user's.
pub(crate) fn ring(other: &Name) -> Statement {
    Statement::new(concat!("KILL QUERY IS_USED_LOCK(", lock_of!("hears", "?"), ")"), other.params())
}

/// The connection of the client in the column `client` of a row, unless it is this client's, as a value for
/// `@polylatch_next`: it is looked up before the commit, because another client may have the lock afterwards.
pub(crate) fn next(me: &Name) -> (&'static str, Vec<Param>) {
    let hears = concat!("IF(client <> ?, IS_USED_LOCK(", lock_of!("hears", "client"), "), NULL)");
    (hears, vec![me.client.as_str().into(), me.user.as_str().into()])
}

/// Wakes the connection that [`next`] found; fails if there was none.
pub(crate) fn ring_next() -> Statement {
    Statement::new("KILL QUERY @polylatch_next", vec![])
}
