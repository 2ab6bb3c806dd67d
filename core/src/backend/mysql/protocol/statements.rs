//! The statements of the verbs. Time is the server's, at the start of the statement. A step reads it in a statement of
//! its own after it has locked the rows; a statement that is a step of its own may wait for a row, and then counts from
//! an earlier time: its lease ends earlier in the store, never later.
//!
//! A statement that changes one row answers with the fence of that row by `LAST_INSERT_ID(expression)`, because these
//! servers have no UPDATE ... RETURNING.

use crate::backend::rows::server::commit;
use crate::backend::rows::server::read::{lease_params, mode_params};
use crate::backend::rows::server::value::{Param, Statement};
use crate::backend::rows::server::window::{Lease, Write};
use crate::backend::rows::{Candidate, ceil_ms, signed};
use crate::backend::{AUDIT_LENGTH, Contender, RenewItem};
use crate::client_info::ClientInfo;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitTimes;

/// The server's clock in microseconds since 1970, whatever the time zone of the session is.
macro_rules! clock_us {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
    };
}
pub(super) use clock_us;

/// The columns of a lease, in the order in which `read::lease` reads them.
macro_rules! lease_columns {
    () => {
        "owner, fence, client, label, mode, permits, capacity, lease_ms, first_ms, acquired_ms, ends_ms, renewals, \
         renewed_ms"
    };
}

/// How many names a statement has place for: the next power of two, so that there are few statements to prepare.
fn places_for(count: usize) -> usize {
    count.max(1).next_power_of_two()
}

/// Placeholders for so many values.
fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// A list of values for `IN`, filled up by repeating the last one.
pub(super) fn listed(values: &[String]) -> (String, Vec<Param>) {
    let places = places_for(values.len());
    let last = values.last().cloned().unwrap_or_default();
    let padded = values.iter().cloned().chain(std::iter::repeat(last)).take(places);
    (marks(places), padded.map(Param::Text).collect())
}

pub(crate) fn begin() -> Statement {
    Statement::new("START TRANSACTION", vec![])
}

/// One moment for all that is read.
pub(crate) fn begin_reading() -> Vec<Statement> {
    vec![
        Statement::new("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", vec![]),
        Statement::new("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", vec![]),
    ]
}

pub(crate) fn clock() -> Statement {
    Statement::new(concat!("SELECT ", clock_us!()), vec![])
}

/// What a session is set to before it is used. Locks are waited for as long as a request may take, in whole seconds;
/// a client that stops in the middle of a transaction must not keep others from the lock for longer than a third of that,
/// so that their requests do not fail with it (MariaDB; MySQL has no such limit).
pub(crate) fn session(timeout_ms: i64) -> [String; 2] {
    let seconds = timeout_ms.div_euclid(1000).max(1);
    let idle = (timeout_ms / 3000).max(1);
    [
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        format!(
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, \
             innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds} \
             /*M!100300 , idle_transaction_timeout = {idle} */"
        ),
    ]
}

/// Acquires a lock that no client holds and no client waits for; answers with the fence, or no row. A name without a row
/// is left to a step.
pub(crate) fn acquire_free(contender: &Contender) -> Statement {
    let me = Candidate::from(contender);
    let mut params = vec![Param::from(me.first_ms), me.owner.into(), me.client.into(), me.label.into()];
    params.extend(mode_params(&me.mode));
    params.extend([Param::from(me.lease_ms), me.first_ms.into(), contender.name.as_str().into()]);
    Statement::new(
        concat!(
            "UPDATE polylatch_locks SET counter = LAST_INSERT_ID(GREATEST(counter + 1, ",
            clock_us!(),
            ")), fence = counter, acquired_ms = ",
            clock_us!(),
            " DIV 1000, ends_ms = (",
            clock_us!(),
            " + 999) DIV 1000 + ?, owner = ?, client = ?, label = ?, mode = ?, permits = ?, capacity = ?, \
             lease_ms = ?, first_ms = ?, renewals = 0, renewed_ms = NULL \
             WHERE name = ? AND is_shared = 0 AND (owner IS NULL OR ends_ms <= ",
            clock_us!(),
            " DIV 1000)"
        ),
        params,
    )
}

/// Waits for a step on this lock, and keeps the next one out until the end of the transaction.
pub(crate) fn share(name: &str) -> Statement {
    Statement::new("SELECT name FROM polylatch_locks WHERE name = ? LOCK IN SHARE MODE", vec![name.into()])
}

/// Answers as `read::waits` reads it while another client certainly holds the lock alone, the head of the queue is
/// alive, and the heartbeat of this waiter was recorded less than two sevenths of its length ago, one poll interval: then
/// a step would do nothing that has to be done.
///
/// It follows [`share`]: a step that grants the lock to this waiter has read the time before, and a waiter that is
/// answered in between would count its lease from a later moment than the store does.
pub(crate) fn still_waits(contender: &Contender, near_ms: i64, far_ms: i64) -> Statement {
    let name = contender.name.as_str();
    Statement::new(
        concat!(
            "SELECT l.counter, (SELECT COUNT(*) FROM polylatch_waiters q WHERE q.name = ? AND q.ticket < me.ticket), \
             l.ends_ms - ",
            clock_us!(),
            " DIV 1000, ",
            clock_us!(),
            " DIV 1000 - l.acquired_ms, l.client, l.label \
             FROM polylatch_locks l JOIN polylatch_waiters me ON me.name = l.name AND me.owner = ? \
             WHERE l.name = ? AND l.owner IS NOT NULL AND l.mode IN ('mutex', 'write') AND l.ends_ms > ",
            clock_us!(),
            " DIV 1000 AND me.silent_ms > ",
            clock_us!(),
            " DIV 1000 + CASE WHEN (SELECT COUNT(*) FROM polylatch_waiters b WHERE b.name = ? \
             AND b.ticket < me.ticket) < ? THEN ? ELSE ? END AND (SELECT h.silent_ms FROM polylatch_waiters h WHERE h.name = ? \
             ORDER BY h.ticket LIMIT 1) > ",
            clock_us!(),
            " DIV 1000"
        ),
        vec![
            name.into(),
            contender.owner.to_hex().into(),
            name.into(),
            name.into(),
            i64::from(WaitTimes::NEAR_POSITIONS).into(),
            (near_ms * 5 / 7).into(),
            (far_ms * 5 / 7).into(),
            name.into(),
        ],
    )
}

/// Releases a lock that no other client holds or waits for; answers with a row if it did.
pub(crate) fn release_alone(contender: &Contender, fence: FencingToken) -> Statement {
    Statement::new(
        concat!(
            "UPDATE polylatch_locks SET fence = LAST_INSERT_ID(fence), owner = NULL WHERE name = ? AND owner = ? \
             AND fence = ? AND is_shared = 0 AND ends_ms > ",
            clock_us!(),
            " DIV 1000"
        ),
        vec![contender.name.as_str().into(), contender.owner.to_hex().into(), signed(fence.get()).into()],
    )
}

/// Releases a mutex and grants it to the first waiter, in a transaction that is still to be committed. The last statement
/// answers with client, owner and fence of the new holder, or no row. `next` says which connection is to be woken, from the
/// row of that waiter: see [`super::bells::next`].
///
/// Only where a step would do the same: the first waiter wants a mutex and lives, and so does the one behind it, which
/// a step would drop otherwise. Who queues or leaves locks the row first, so nothing changes once it is locked.
///
/// The waiter is read once, into variables: a subquery for each column takes longer than everything else here, and a join,
/// as the table that it is read into, takes a millisecond.
pub(crate) fn hand_over(
    contender: &Contender,
    fence: FencingToken,
    next: Option<(&'static str, Vec<Param>)>,
) -> [Statement; 6] {
    let name = || Param::from(contender.name.as_str());
    let (next, next_params) = next.unwrap_or(("NULL", Vec::new()));
    let read_params = [name(), name()].into_iter().chain(next_params).chain([name()]).collect();
    [
        begin(),
        // A read that finds no waiter leaves the variables as they are.
        Statement::new(
            "SELECT NULL, NULL INTO @polylatch_ticket, @polylatch_next FROM polylatch_locks WHERE name = ? FOR UPDATE",
            vec![name()],
        ),
        Statement::new(
            format!(
                "SELECT ticket, owner, client, label, mode, permits, capacity, lease_ms, first_ms, silent_ms, \
                 (SELECT s.silent_ms FROM polylatch_waiters s WHERE s.name = ? ORDER BY s.ticket LIMIT 1, 1), \
                 EXISTS (SELECT 1 FROM polylatch_leases WHERE name = ?), {next} \
                 INTO @polylatch_ticket, @polylatch_owner, @polylatch_client, @polylatch_label, @polylatch_mode, \
                 @polylatch_permits, @polylatch_capacity, @polylatch_lease_ms, @polylatch_first_ms, @polylatch_silent_ms, \
                 @polylatch_second_ms, @polylatch_beside, @polylatch_next \
                 FROM polylatch_waiters FORCE INDEX (PRIMARY) WHERE name = ? ORDER BY ticket LIMIT 1"
            ),
            read_params,
        ),
        Statement::new(
            concat!(
                "UPDATE polylatch_locks SET counter = LAST_INSERT_ID(GREATEST(counter + 1, ",
                clock_us!(),
                ")), fence = counter, owner = @polylatch_owner, client = @polylatch_client, label = @polylatch_label, \
                 permits = @polylatch_permits, capacity = @polylatch_capacity, lease_ms = @polylatch_lease_ms, \
                 first_ms = @polylatch_first_ms, acquired_ms = ",
                clock_us!(),
                " DIV 1000, ends_ms = (",
                clock_us!(),
                " + 999) DIV 1000 + first_ms, renewals = 0, renewed_ms = NULL, \
                 is_shared = @polylatch_second_ms IS NOT NULL OR @polylatch_beside \
                 WHERE name = ? AND owner = ? AND fence = ? AND mode = 'mutex' AND ends_ms > ",
                clock_us!(),
                " DIV 1000 AND @polylatch_ticket IS NOT NULL AND @polylatch_mode = 'mutex' AND @polylatch_silent_ms > ",
                clock_us!(),
                " DIV 1000 AND COALESCE(@polylatch_second_ms > ",
                clock_us!(),
                " DIV 1000, TRUE)"
            ),
            vec![name(), contender.owner.to_hex().into(), signed(fence.get()).into()],
        ),
        Statement::new(
            "DELETE FROM polylatch_waiters WHERE name = ? AND ticket = IF(ROW_COUNT() > 0, @polylatch_ticket, -1)",
            vec![name()],
        ),
        Statement::new(
            "SELECT @polylatch_client, @polylatch_owner, LAST_INSERT_ID() FROM DUAL WHERE ROW_COUNT() > 0",
            vec![],
        ),
    ]
}

/// Queues behind the holder of a mutex; the last statement but one answers as [`still_waits`] does, or with no row.
///
/// Only where a step would do no more: the lease has not ended, there is none beside it, the contender is not queued, and the
/// first waiter lives. The number is made once the row is locked, and by the statement that locks it: so it is the same in
/// the queue and in the row.
pub(crate) fn queue_behind(contender: &Contender, near_ms: i64, far_ms: i64) -> [Statement; 7] {
    let me = Candidate::from(contender);
    let name = || Param::from(contender.name.as_str());
    let owner = || Param::from(me.owner.as_str());
    let mut queued = vec![owner(), me.client.as_str().into(), me.label.as_str().into()];
    queued.extend(mode_params(&me.mode));
    queued.extend(
        [me.lease_ms, me.first_ms, i64::from(WaitTimes::NEAR_POSITIONS), near_ms, far_ms].map(Param::from),
    );
    queued.extend([name(), owner(), name()]);
    [
        begin(),
        Statement::new(
            concat!(
                "SELECT GREATEST(counter + 1, ",
                clock_us!(),
                ") INTO @polylatch_ticket FROM polylatch_locks WHERE name = ? FOR UPDATE"
            ),
            vec![name()],
        ),
        Statement::new(
            "SELECT COUNT(*), COUNT(IF(owner = ?, 1, NULL)), \
             (SELECT IF(h.mode = 'mutex', h.silent_ms, 0) FROM polylatch_waiters h WHERE h.name = ? ORDER BY h.ticket LIMIT 1) \
             INTO @polylatch_before, @polylatch_mine, @polylatch_head_ms \
             FROM polylatch_waiters FORCE INDEX (PRIMARY) WHERE name = ?",
            vec![owner(), name(), name()],
        ),
        Statement::new(
            concat!(
                "INSERT INTO polylatch_waiters (name, ticket, owner, client, label, mode, permits, capacity, lease_ms, \
                 first_ms, since_ms, silent_ms) SELECT name, @polylatch_ticket, ?, ?, ?, ?, ?, ?, ?, ?, ",
                clock_us!(),
                " DIV 1000, (",
                clock_us!(),
                " + 999) DIV 1000 + IF(@polylatch_before < ?, ?, ?) FROM polylatch_locks \
                 WHERE name = ? AND owner <> ? AND mode = 'mutex' AND ends_ms > ",
                clock_us!(),
                " DIV 1000 AND @polylatch_mine = 0 AND COALESCE(@polylatch_head_ms > ",
                clock_us!(),
                " DIV 1000, TRUE) AND NOT EXISTS (SELECT 1 FROM polylatch_leases WHERE name = ?)"
            ),
            queued,
        ),
        Statement::new(
            "UPDATE polylatch_locks SET counter = @polylatch_ticket, is_shared = 1 WHERE name = ? AND ROW_COUNT() > 0",
            vec![name()],
        ),
        Statement::new(
            concat!(
                "SELECT counter, @polylatch_before, ends_ms - ",
                clock_us!(),
                " DIV 1000, ",
                clock_us!(),
                " DIV 1000 - acquired_ms, client, label FROM polylatch_locks WHERE name = ? AND ROW_COUNT() > 0"
            ),
            vec![name()],
        ),
        commit(),
    ]
}

/// Extends a lease in the row of its lock; answers with a row if it did. The later assignments do not change what the
/// earlier ones read.
pub(crate) fn renew_alone(item: &RenewItem) -> Statement {
    const LENGTH: &str = concat!("GREATEST(?, ends_ms - (", clock_us!(), " + 999) DIV 1000, ?)");
    let (lease, length) = (ceil_ms(item.lease), ceil_ms(item.length));
    let renewals = i64::from(item.renewals);
    let mut params = vec![Param::from(renewals), length.into(), length.into(), lease.into()];
    params.extend([length, length, lease, lease, renewals].map(Param::from));
    params.extend([Param::from(item.contender.name.as_str()), item.contender.owner.to_hex().into()]);
    params.push(signed(item.fence.get()).into());
    Statement::new(
        format!(
            concat!(
                "UPDATE polylatch_locks SET \
                 first_ms = CASE WHEN ? = 0 AND lease_ms <> ? THEN {length} ELSE first_ms END, \
                 lease_ms = CASE WHEN lease_ms <> ? THEN {length} ELSE lease_ms END, \
                 ends_ms = GREATEST(ends_ms, (",
                clock_us!(),
                " + 999) DIV 1000 + ?), renewals = ?, renewed_ms = ",
                clock_us!(),
                " DIV 1000, fence = LAST_INSERT_ID(fence) \
                 WHERE name = ? AND owner = ? AND fence = ? AND ends_ms > ",
                clock_us!(),
                " DIV 1000"
            ),
            length = LENGTH
        ),
        params,
    )
}

/// Makes the rows of these names where there are none, each in a transaction of its own: no two of them are locked at a
/// time. A row that is there is not changed.
pub(crate) fn make(names: &[String]) -> Vec<Statement> {
    let one = |name: &String| {
        Statement::new(
            "INSERT INTO polylatch_locks (name, counter) SELECT ?, p.floor FROM polylatch_schema p WHERE p.id = 1 \
             ON DUPLICATE KEY UPDATE counter = polylatch_locks.counter",
            vec![name.as_str().into()],
        )
    };
    names.iter().map(one).collect()
}

/// Locks the rows of these names in their order, and reads them. The primary key is forced: a scan would wait for rows
/// of other names.
pub(crate) fn lock(names: &[String]) -> Statement {
    let (list, params) = listed(names);
    Statement::new(
        format!(
            concat!(
                "SELECT name, counter, is_shared, ",
                lease_columns!(),
                " FROM polylatch_locks FORCE INDEX (PRIMARY) WHERE name IN ({}) ORDER BY name FOR UPDATE"
            ),
            list
        ),
        params,
    )
}

pub(crate) fn leases(names: &[String]) -> Statement {
    let (list, params) = listed(names);
    Statement::new(
        format!(
            concat!(
                "SELECT name, ",
                lease_columns!(),
                " FROM polylatch_leases FORCE INDEX (PRIMARY) WHERE name IN ({}) ORDER BY name, fence"
            ),
            list
        ),
        params,
    )
}

/// Reads the first waiters of a name.
pub(crate) fn front(name: &str, most: i64) -> Statement {
    Statement::new(
        "SELECT name, owner, ticket, client, label, mode, permits, capacity, lease_ms, first_ms, silent_ms \
         FROM polylatch_waiters FORCE INDEX (PRIMARY) WHERE name = ? \
         AND mode IN ('mutex', 'read', 'write', 'permits') ORDER BY ticket LIMIT ?",
        vec![name.into(), most.into()],
    )
}

/// The time, and the place of an owner at a name, and how many are before it or in the queue.
pub(crate) fn place(name: &str, owner: &str) -> Statement {
    Statement::new(
        concat!(
            "SELECT ",
            clock_us!(),
            ", CAST(? AS BINARY), own.ticket, (SELECT COUNT(*) FROM polylatch_waiters w WHERE w.name = ? \
             AND (own.ticket IS NULL OR w.ticket < own.ticket)) FROM (SELECT 1 AS one) o \
             LEFT JOIN polylatch_waiters own ON own.name = ? AND own.owner = ?"
        ),
        vec![name.into(), name.into(), name.into(), owner.into()],
    )
}

/// Carries out what a step has decided.
pub(crate) fn write(write: &Write, now_ms: i64) -> Vec<Statement> {
    match write {
        Write::Lock { name, counter, own, is_shared } => {
            vec![write_lock(name, *counter, own.as_ref(), *is_shared)]
        }
        Write::AddLease { name, lease } => {
            let mut params = vec![Param::from(name.as_str())];
            params.extend(lease_params(lease));
            let sql = concat!(
                "INSERT INTO polylatch_leases (name, ",
                lease_columns!(),
                ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            );
            vec![Statement::new(sql, params)]
        }
        Write::ChangeLease { name, owner, fence, mode, ends_ms } => {
            let mut params = vec![Param::from(*fence), (*ends_ms).into()];
            params.extend(mode_params(mode));
            params.extend([Param::from(name.as_str()), owner.as_str().into()]);
            vec![Statement::new(
                "UPDATE polylatch_leases SET fence = ?, ends_ms = GREATEST(ends_ms, ?), mode = ?, permits = ?, \
                 capacity = ? WHERE name = ? AND owner = ?",
                params,
            )]
        }
        Write::EndLease { name, owner } => vec![Statement::new(
            "DELETE FROM polylatch_leases WHERE name = ? AND owner = ?",
            vec![name.as_str().into(), owner.as_str().into()],
        )],
        Write::Queue { name, who, ticket, silent_ms } => {
            let mut params = vec![Param::from(name.as_str()), (*ticket).into(), who.owner.as_str().into()];
            params.extend([Param::from(who.client.as_str()), who.label.as_str().into()]);
            params.extend(mode_params(&who.mode));
            params.extend([who.lease_ms, who.first_ms, now_ms, *silent_ms].map(Param::from));
            vec![Statement::new(
                "INSERT INTO polylatch_waiters (name, ticket, owner, client, label, mode, permits, capacity, lease_ms, \
                 first_ms, since_ms, silent_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                params,
            )]
        }
        Write::Heartbeat { name, owner, ticket, silent_ms } => vec![Statement::new(
            "UPDATE polylatch_waiters SET silent_ms = ? WHERE name = ? AND ticket = ? AND owner = ?",
            vec![(*silent_ms).into(), name.as_str().into(), (*ticket).into(), owner.as_str().into()],
        )],
        Write::Leave { name, owner, ticket } => vec![Statement::new(
            "DELETE FROM polylatch_waiters WHERE name = ? AND ticket = ? AND owner = ?",
            vec![name.as_str().into(), (*ticket).into(), owner.as_str().into()],
        )],
        Write::Drop { name, ticket } => vec![Statement::new(
            "DELETE FROM polylatch_waiters WHERE name = ? AND ticket <= ?",
            vec![name.as_str().into(), (*ticket).into()],
        )],
        Write::Record { name, victim, by, reason } => vec![
            Statement::new(
                "INSERT INTO polylatch_audit (at_ms, name, owner, fence, client, broken_by, reason) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
                vec![
                    now_ms.into(),
                    name.as_str().into(),
                    victim.owner.as_str().into(),
                    victim.fence.into(),
                    victim.client.as_str().into(),
                    by.as_str().into(),
                    reason.as_str().into(),
                ],
            ),
            // The subquery is a table of its own, because a table cannot be read by the statement that deletes from it.
            Statement::new(
                "DELETE FROM polylatch_audit WHERE id <= (SELECT id FROM (SELECT id FROM polylatch_audit \
                 ORDER BY id DESC LIMIT 1 OFFSET ?) oldest)",
                vec![(AUDIT_LENGTH as i64).into()],
            ),
        ],
    }
}

fn write_lock(name: &str, counter: i64, own: Option<&Lease>, is_shared: bool) -> Statement {
    let mut params = vec![Param::from(counter), i64::from(is_shared).into()];
    let Some(own) = own else {
        params.push(name.into());
        return Statement::new(
            "UPDATE polylatch_locks SET counter = ?, is_shared = ?, owner = NULL WHERE name = ?",
            params,
        );
    };
    params.extend(lease_params(own));
    params.push(name.into());
    Statement::new(
        "UPDATE polylatch_locks SET counter = ?, is_shared = ?, owner = ?, fence = ?, client = ?, label = ?, mode = ?, \
         permits = ?, capacity = ?, lease_ms = ?, first_ms = ?, acquired_ms = ?, ends_ms = ?, renewals = ?, \
         renewed_ms = ? WHERE name = ?",
        params,
    )
}

/// A lease as a renewal leaves it.
#[derive(Debug, Clone)]
pub(crate) struct Renewed {
    pub name: String,
    pub owner: String,
    pub lease_ms: i64,
    pub first_ms: i64,
    pub ends_ms: i64,
    pub renewals: i64,
    pub renewed_ms: i64,
}

/// Writes renewed leases into the rows of their locks, which exist and are locked, in one statement.
pub(crate) fn write_renewed(renewed: &[Renewed]) -> Statement {
    let places = places_for(renewed.len());
    let padded = renewed.iter().chain(std::iter::repeat_n(renewed.last(), places).flatten()).take(places);
    let mut params = Vec::with_capacity(places * 6);
    for one in padded {
        params.push(Param::from(one.name.as_str()));
        let numbers = [one.lease_ms, one.first_ms, one.ends_ms, one.renewals, one.renewed_ms];
        params.extend(numbers.map(Param::from));
    }
    let rows = vec!["(?, 0, ?, ?, ?, ?, ?)"; places].join(", ");
    Statement::new(
        format!(
            "INSERT INTO polylatch_locks (name, counter, lease_ms, first_ms, ends_ms, renewals, renewed_ms) VALUES \
             {rows} ON DUPLICATE KEY UPDATE lease_ms = VALUES(lease_ms), first_ms = VALUES(first_ms), \
             ends_ms = VALUES(ends_ms), renewals = VALUES(renewals), renewed_ms = VALUES(renewed_ms)"
        ),
        params,
    )
}

/// The same of a lease that shares its lock.
pub(crate) fn write_renewed_beside(renewed: &Renewed) -> Statement {
    let Renewed { name, owner, lease_ms, first_ms, ends_ms, renewals, renewed_ms } = renewed;
    let mut params: Vec<_> =
        [lease_ms, first_ms, ends_ms, renewals, renewed_ms].map(|number| Param::from(*number)).into();
    params.extend([Param::from(name.as_str()), owner.as_str().into()]);
    Statement::new(
        "UPDATE polylatch_leases SET lease_ms = ?, first_ms = ?, ends_ms = ?, renewals = ?, renewed_ms = ? \
         WHERE name = ? AND owner = ?",
        params,
    )
}

/// Which of these owners had their lease broken.
pub(crate) fn broken(owners: &[String]) -> Statement {
    let (list, params) = listed(owners);
    Statement::new(format!("SELECT owner, fence FROM polylatch_audit WHERE owner IN ({list})"), params)
}

pub(crate) fn announce(client: &ClientInfo) -> Statement {
    Statement::new(
        concat!(
            "INSERT INTO polylatch_clients (id, host, pid, process_started_ms, boot, pid_namespace, program, \
             language, version, seen_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ",
            clock_us!(),
            " DIV 1000) ON DUPLICATE KEY UPDATE program = VALUES(program), language = VALUES(language), \
             version = VALUES(version), seen_ms = VALUES(seen_ms)"
        ),
        vec![
            client.id.as_str().into(),
            client.host.clone().into(),
            i64::from(client.pid).into(),
            client.process_started_at_ms.map(signed).into(),
            Param::OptionalText(client.boot.clone()),
            Param::OptionalText(client.pid_namespace.clone()),
            client.program.clone().into(),
            client.language.to_string().into(),
            client.version.to_string().into(),
        ],
    )
}

/// What a sweep deletes: the rows that it may delete are looked up without locking any, and deleted one by one, each
/// in a transaction of its own, by their primary keys and only if they are still the same. So a sweep waits for
/// no step while it has a lock.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub find: Statement,
    /// Takes the columns that were found, and the same limit again.
    pub delete: &'static str,
    pub limit_ms: i64,
}

/// How many rows of a table a sweep deletes at most.
const SWEPT: i64 = 128;

/// Rows of crashed clients, and of locks that were not used for long. The numbers of the latter stay below the floor,
/// which an earlier sweep has raised: a new row begins above it.
pub(crate) fn sweeps(client_ms: i64, forgotten_ms: i64, unused_ms: i64) -> [Sweep; 4] {
    let sweep = |find: &str, delete, limit_ms: i64| Sweep {
        find: Statement::new(format!("{find} LIMIT {SWEPT}"), vec![limit_ms.into()]),
        delete,
        limit_ms,
    };
    [
        sweep(
            concat!("SELECT id FROM polylatch_clients WHERE seen_ms <= ", clock_us!(), " DIV 1000 - ?"),
            concat!(
                "DELETE FROM polylatch_clients WHERE id = ? AND seen_ms <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            client_ms,
        ),
        sweep(
            concat!(
                "SELECT name, owner FROM polylatch_leases WHERE ends_ms <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            concat!(
                "DELETE FROM polylatch_leases WHERE name = ? AND owner = ? AND ends_ms <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            forgotten_ms,
        ),
        sweep(
            concat!(
                "SELECT name, ticket FROM polylatch_waiters WHERE silent_ms <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            concat!(
                "DELETE FROM polylatch_waiters WHERE name = ? AND ticket = ? AND silent_ms <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            forgotten_ms,
        ),
        sweep(
            concat!(
                "SELECT l.name, p.floor FROM polylatch_locks l, polylatch_schema p WHERE p.id = 1 AND l.is_shared = 0 \
                 AND l.counter <= p.floor \
                 AND GREATEST(IF(l.owner IS NULL, 0, l.ends_ms), l.counter DIV 1000) <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            concat!(
                "DELETE FROM polylatch_locks WHERE name = ? AND is_shared = 0 AND counter <= ? \
                 AND GREATEST(IF(owner IS NULL, 0, ends_ms), counter DIV 1000) <= ",
                clock_us!(),
                " DIV 1000 - ?"
            ),
            unused_ms,
        ),
    ]
}

/// The largest number of the rows that were not used for long, for [`raise_floor`].
pub(crate) fn old_counter(unused_ms: i64) -> Statement {
    Statement::new(
        concat!(
            "SELECT MAX(counter) FROM polylatch_locks WHERE counter DIV 1000 <= ",
            clock_us!(),
            " DIV 1000 - ?"
        ),
        vec![unused_ms.into()],
    )
}

pub(crate) fn raise_floor(counter: i64) -> Statement {
    Statement::new(
        "UPDATE polylatch_schema SET floor = GREATEST(floor, ?) WHERE id = 1",
        vec![counter.into()],
    )
}

/// Statements that find rows as those of the verbs do, for the server to explain.
pub(crate) fn explained() -> [Statement; 4] {
    let names = ["a".to_owned(), "b".to_owned()];
    let update = "UPDATE polylatch_locks SET counter = counter WHERE name = ?";
    [Statement::new(update, vec!["a".into()]), lock(&names), leases(&names), front("a", 1)]
}
