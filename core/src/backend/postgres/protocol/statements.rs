//! The statements of the verbs. Time is the server's, read after the row of the lock is locked.

use crate::backend::rows::{Candidate, ceil_ms, signed};
use crate::backend::{AUDIT_LENGTH, Contender, RenewItem};
use crate::client_info::ClientInfo;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitTimes;

use super::messages::{channel_of_client, notifies, pg_notify};
use super::schema::Schema;
use crate::backend::rows::server::commit;
use crate::backend::rows::server::read::{lease_params, mode_params};
use crate::backend::rows::server::value::{Param, Statement};
use crate::backend::rows::server::window::{Lease, Write};

/// The server's clock in microseconds since 1970, exact.
macro_rules! clock_us {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
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

pub(crate) fn begin() -> Statement {
    Statement::new("BEGIN ISOLATION LEVEL READ COMMITTED", vec![])
}

/// A client that stops in the middle of a transaction must not keep others from the lock. It is waited for a third of the
/// time that their requests have, so that these do not fail with it.
pub(crate) fn limits(timeout_ms: i64) -> Statement {
    Statement::new(
        "SELECT set_config('statement_timeout', $1, true), \
         set_config('idle_in_transaction_session_timeout', $2, true)",
        vec![Param::Text(timeout_ms.to_string()), Param::Text((timeout_ms / 3).max(1).to_string())],
    )
}

/// This transaction is committed without waiting for the disk.
pub(crate) fn relaxed() -> Statement {
    commits("off")
}

/// The same within a statement that is a transaction of its own.
macro_rules! relaxed {
    () => {
        "(SELECT set_config('synchronous_commit', 'off', true) AS commits OFFSET 0)"
    };
}

/// Whether the commit of this transaction waits for the disk.
fn commits(setting: &str) -> Statement {
    Statement::new("SELECT set_config('synchronous_commit', $1, true)", vec![setting.into()])
}

/// Statements with this setting for their commit, and which answers belong to them. It is set in the transaction, not in
/// the session: behind a pooler the next transaction of this connection may be another client's. What is no transaction
/// becomes one, and messages follow after it: one that notifies keeps all others of the server that notify waiting. The rest
/// of one that has begun stays as it is.
pub(crate) fn with_commits(
    statements: &[Statement],
    changes: bool,
    setting: &str,
) -> Option<(Vec<Statement>, Vec<usize>)> {
    let begins = statements.first().is_some_and(|first| first.sql.starts_with("BEGIN"));
    let ends = statements.last().is_some_and(|last| ["COMMIT", "ROLLBACK"].contains(&last.sql.as_str()));
    let mut all = vec![begin(), commits(setting)];
    if begins {
        // Reading commits nothing.
        if statements[0] != begin() {
            return None;
        }
        all.extend(statements[1..].iter().cloned());
        // The answer to the setting stands for that to the begin; neither is read.
        let answers = (1..all.len()).collect();
        return Some((all, answers));
    }
    if !changes || ends || statements.iter().all(notifies) {
        return None;
    }
    let (messages, others) = statements.iter().cloned().partition::<Vec<_>, _>(notifies);
    let mut answers: Vec<_> = (2..2 + others.len()).collect();
    all.extend(others);
    all.push(commit());
    answers.extend(all.len()..all.len() + messages.len());
    all.extend(messages);
    Some((all, answers))
}

impl Schema {
    fn with(&self, sql: &str, params: Vec<Param>) -> Statement {
        Statement::new(self.sql(sql), params)
    }

    /// Acquires a lock that no client holds and no client waits for; returns the fence, or no row.
    ///
    /// It looks twice: at first without locking the row, which would be a write, and then at the row itself.
    pub(crate) fn acquire_free(&self, contender: &Contender) -> Statement {
        let me = Candidate::from(contender);
        let mut params = vec![Param::from(contender.name.as_str()), me.owner.into()];
        params.extend([Param::from(me.client), me.label.into()]);
        params.extend(mode_params(&me.mode));
        params.extend([Param::from(me.lease_ms), me.first_ms.into()]);
        self.with(
            concat!(
                "INSERT INTO {s}.locks AS l (name, counter, owner, fence, client, label, mode, permits, capacity, \
                 lease_ms, first_ms, acquired_ms, ends_ms, renewals, renewed_ms) \
                 SELECT $1, n.fence, $2, n.fence, $3, $4, $5, $6, $7, $8, $9, n.us / 1000, (n.us + 999) / 1000 + $9, \
                 0, NULL FROM (SELECT c.us, greatest(p.floor + 1, c.us) AS fence FROM (SELECT ",
                clock_us!(),
                " AS us OFFSET 0) c, {s}.polylatch_schema p) n \
                 WHERE NOT EXISTS (SELECT FROM {s}.locks h WHERE h.name = $1 AND (h.is_shared OR \
                 h.owner IS NOT NULL AND h.ends_ms > n.us / 1000)) \
                 ON CONFLICT (name) DO UPDATE SET (counter, fence, acquired_ms, ends_ms) = (SELECT \
                 greatest(l.counter + 1, n.us), greatest(l.counter + 1, n.us), n.us / 1000, (n.us + 999) / 1000 + $9 \
                 FROM (SELECT ",
                clock_us!(),
                " AS us OFFSET 0) n), owner = $2, client = $3, label = $4, mode = $5, permits = $6, capacity = $7, \
                 lease_ms = $8, first_ms = $9, renewals = 0, renewed_ms = NULL \
                 WHERE NOT l.is_shared AND (l.owner IS NULL OR l.ends_ms <= ",
                clock_us!(),
                " / 1000) RETURNING l.fence"
            ),
            params,
        )
    }

    /// Records the heartbeat of a waiter while another client certainly holds the lock alone and the head of the
    /// queue is alive: then a step would do no more. Returns the answer, or no row. Does not wait for the disk.
    ///
    /// It locks the row of the lock, as a step does, though it changes nothing there: a step that grants the lock to this
    /// waiter has read the time before, and a heartbeat that was answered in between would let the waiter count its lease
    /// from a later moment than the store does.
    pub(crate) fn heartbeat(&self, contender: &Contender, near_ms: i64, far_ms: i64) -> Statement {
        self.with(
            concat!(
                "WITH c AS MATERIALIZED (SELECT ",
                clock_us!(),
                " AS us), r AS MATERIALIZED ",
                relaxed!(),
                ", l AS MATERIALIZED (SELECT name, counter, owner, mode, client, label, acquired_ms, ends_ms \
                 FROM {s}.locks WHERE name = $1 FOR KEY SHARE), \
                 p AS (SELECT count(*) AS before FROM {s}.waiters q, {s}.waiters me \
                 WHERE me.owner = $2 AND q.name = $1 AND q.ticket < me.ticket), \
                 head AS (SELECT silent_ms FROM {s}.waiters WHERE name = $1 ORDER BY ticket LIMIT 1) \
                 UPDATE {s}.waiters w \
                 SET silent_ms = (c.us + 999) / 1000 + CASE WHEN p.before < $5 THEN $3 ELSE $4 END \
                 FROM c, r, p, head, l WHERE r.commits = 'off' AND w.owner = $2 AND w.name = $1 \
                 AND l.owner IS NOT NULL AND l.ends_ms > c.us / 1000 AND l.mode IN ('mutex', 'write') \
                 AND head.silent_ms > c.us / 1000 \
                 RETURNING l.counter, p.before, l.ends_ms - c.us / 1000, c.us / 1000 - l.acquired_ms, l.client, l.label"
            ),
            vec![
                contender.name.as_str().into(),
                contender.owner.to_hex().into(),
                near_ms.into(),
                far_ms.into(),
                i64::from(WaitTimes::NEAR_POSITIONS).into(),
            ],
        )
    }

    /// Releases a lock that no other client holds or waits for; returns a row if it did.
    pub(crate) fn release_alone(&self, contender: &Contender, fence: FencingToken) -> Statement {
        self.with(
            concat!(
                "UPDATE {s}.locks SET owner = NULL WHERE name = $1 AND owner = $2 AND fence = $3 AND NOT is_shared \
                 AND ends_ms > ",
                clock_us!(),
                " / 1000 RETURNING fence"
            ),
            vec![
                contender.name.as_str().into(),
                contender.owner.to_hex().into(),
                signed(fence.get()).into(),
            ],
        )
    }

    /// Releases a mutex and grants it to the first waiter; returns client, owner and fence of the new holder, or no row.
    ///
    /// Only where a step would do the same: the first waiter wants a mutex and lives, and so does the one behind it, which
    /// a step would drop otherwise. What stands beside the row is seen as it was when the statement began. Who queues
    /// draws a number from the row, so if that has the same counter once it is locked, nobody has come; and if the first
    /// waiter has gone, there is nothing to delete.
    pub(crate) fn hand_over(&self, contender: &Contender, fence: FencingToken) -> Statement {
        self.with(
            concat!(
                "WITH mine AS MATERIALIZED (SELECT counter, ends_ms FROM {s}.locks WHERE name = $1 AND owner = $2 \
                 AND fence = $3 AND mode = 'mutex' FOR UPDATE), \
                 n AS MATERIALIZED (SELECT ",
                clock_us!(),
                " AS us, counter, ends_ms FROM mine), \
                 line AS MATERIALIZED (SELECT ticket, mode, silent_ms, owner FROM {s}.waiters WHERE name = $1 \
                 ORDER BY ticket LIMIT 2), \
                 gone AS (DELETE FROM {s}.waiters w USING n, line f WHERE w.name = $1 AND w.ticket = f.ticket \
                 AND f.ticket = (SELECT min(ticket) FROM line) AND f.mode = 'mutex' AND f.owner ~ '^[0-9a-f]{32}$' \
                 AND w.silent_ms > n.us / 1000 AND n.ends_ms > n.us / 1000 \
                 AND n.counter = (SELECT counter FROM {s}.locks WHERE name = $1) \
                 AND NOT EXISTS (SELECT FROM line WHERE silent_ms <= n.us / 1000) RETURNING w.*) \
                 UPDATE {s}.locks l SET counter = greatest(n.counter + 1, n.us), fence = greatest(n.counter + 1, n.us), \
                 owner = g.owner, client = g.client, label = g.label, permits = g.permits, capacity = g.capacity, \
                 lease_ms = g.lease_ms, first_ms = g.first_ms, acquired_ms = n.us / 1000, \
                 ends_ms = (n.us + 999) / 1000 + g.first_ms, renewals = 0, renewed_ms = NULL, \
                 is_shared = (SELECT count(*) > 1 FROM line) OR EXISTS (SELECT FROM {s}.leases b WHERE b.name = $1) \
                 FROM gone g, n WHERE l.name = $1 RETURNING l.client, l.owner, l.fence"
            ),
            vec![
                contender.name.as_str().into(),
                contender.owner.to_hex().into(),
                signed(fence.get()).into(),
            ],
        )
    }

    /// Notifies the client that has the lock of its grant, unless that is this one. What it says is so when it is carried
    /// out.
    pub(crate) fn notify_holder(&self, contender: &Contender) -> Statement {
        self.with(
            concat!(
                pg_notify!(),
                channel_of_client!(),
                ", 'granted ' || owner || ' ' || fence)::text FROM {s}.locks \
                 WHERE name = $1 AND owner <> $2 AND client <> $3"
            ),
            vec![
                contender.name.as_str().into(),
                contender.owner.to_hex().into(),
                contender.client.as_str().into(),
            ],
        )
    }

    /// Queues a contender for a mutex behind its holder, in one statement that does not wait for the disk; answers as a
    /// heartbeat does, or with no row.
    ///
    /// Only where a step would do no more: another owner holds the mutex alone, and the head of the queue lives. As in
    /// [`Schema::hand_over`], the row has the same counter once it is locked if nobody has queued since the statement began.
    /// Waiters that left meanwhile are counted once more. A statement that had to wait for the row beyond the time limit of its
    /// request queues nobody, because its client has given up.
    pub(crate) fn queue_behind(
        &self,
        contender: &Contender,
        near_ms: i64,
        far_ms: i64,
        timeout_ms: i64,
    ) -> Statement {
        let me = Candidate::from(contender);
        let mut params = vec![Param::from(contender.name.as_str()), me.owner.into()];
        params.extend([Param::from(me.client), me.label.into()]);
        params.extend(mode_params(&me.mode));
        params.extend([Param::from(me.lease_ms), me.first_ms.into()]);
        params.extend([i64::from(WaitTimes::NEAR_POSITIONS), near_ms, far_ms, timeout_ms].map(Param::from));
        self.with(
            concat!(
                "WITH l AS MATERIALIZED (SELECT counter, owner, mode, ends_ms FROM {s}.locks WHERE name = $1 FOR UPDATE), \
                 n AS MATERIALIZED (SELECT ",
                clock_us!(),
                " AS us, l.* FROM l), \
                 line AS MATERIALIZED (SELECT count(*) AS before FROM {s}.waiters WHERE name = $1), \
                 queued AS (INSERT INTO {s}.waiters (owner, name, ticket, client, label, mode, permits, capacity, \
                 lease_ms, first_ms, since_ms, silent_ms) SELECT $2, $1, greatest(n.counter + 1, n.us), $3, $4, $5, $6, \
                 $7, $8, $9, n.us / 1000, (n.us + 999) / 1000 + CASE WHEN line.before < $10 THEN $11 ELSE $12 END \
                 FROM n, line, ",
                relaxed!(),
                " r WHERE r.commits = 'off' \
                 AND n.us / 1000 < (extract(epoch FROM statement_timestamp()) * 1000)::bigint + $13 \
                 AND n.owner <> $2 AND n.mode = 'mutex' AND n.ends_ms > n.us / 1000 \
                 AND n.counter = (SELECT counter FROM {s}.locks WHERE name = $1) \
                 AND NOT EXISTS (SELECT FROM {s}.waiters WHERE owner = $2) \
                 AND NOT EXISTS (SELECT FROM {s}.leases WHERE name = $1) \
                 AND coalesce((SELECT h.mode = 'mutex' AND h.silent_ms > n.us / 1000 FROM {s}.waiters h \
                 WHERE h.name = $1 ORDER BY h.ticket LIMIT 1), true) RETURNING ticket) \
                 UPDATE {s}.locks l SET counter = q.ticket, is_shared = true FROM queued q, n, line WHERE l.name = $1 \
                 RETURNING l.counter, line.before, l.ends_ms - n.us / 1000, n.us / 1000 - l.acquired_ms, l.client, l.label"
            ),
            params,
        )
    }

    /// Makes the rows of these names where there are none, in their order.
    pub(crate) fn ensure(&self, names: &[String]) -> Statement {
        self.with(
            "INSERT INTO {s}.locks (name, counter) SELECT n.name, p.floor FROM unnest($1) AS n (name), \
             {s}.polylatch_schema p ORDER BY n.name COLLATE \"C\" ON CONFLICT (name) DO NOTHING",
            vec![names.to_vec().into()],
        )
    }

    /// Locks the rows of these names in their order, and reads them.
    pub(crate) fn lock(&self, names: &[String]) -> Statement {
        self.with(
            concat!(
                "SELECT name, counter, is_shared::int::bigint, ",
                lease_columns!(),
                " FROM {s}.locks WHERE name = ANY ($1) ORDER BY name FOR UPDATE"
            ),
            vec![names.to_vec().into()],
        )
    }

    pub(crate) fn leases(&self, names: &[String]) -> Statement {
        self.with(
            concat!(
                "SELECT name, ",
                lease_columns!(),
                " FROM {s}.leases WHERE name = ANY ($1) ORDER BY name, fence"
            ),
            vec![names.to_vec().into()],
        )
    }

    /// Reads the first waiters of each name.
    pub(crate) fn front(&self, names: &[String], most: i64) -> Statement {
        self.with(
            "SELECT w.name, w.owner, w.ticket, w.client, w.label, w.mode, w.permits, w.capacity, w.lease_ms, \
             w.first_ms, w.silent_ms FROM unnest($1) AS n (name), LATERAL (SELECT * FROM {s}.waiters q \
             WHERE q.name = n.name AND q.mode IN ('mutex', 'read', 'write', 'permits') ORDER BY q.ticket LIMIT $2) w \
             ORDER BY w.name, w.ticket",
            vec![names.to_vec().into(), most.into()],
        )
    }

    /// The time, and for each name and owner its place, and how many are before it or in the queue.
    pub(crate) fn places(&self, names: &[String], owners: &[String]) -> Statement {
        self.with(
            concat!(
                "SELECT ",
                clock_us!(),
                ", n.name, own.ticket, (SELECT count(*) FROM {s}.waiters w WHERE w.name = n.name AND \
                 (own.ticket IS NULL OR w.ticket < own.ticket)) \
                 FROM unnest($1, $2) AS n (name, owner) \
                 LEFT JOIN {s}.waiters own ON own.owner = n.owner AND own.name = n.name"
            ),
            vec![names.to_vec().into(), owners.to_vec().into()],
        )
    }

    /// Carries out what a step has decided.
    pub(crate) fn write(&self, write: &Write, now_ms: i64) -> Vec<Statement> {
        match write {
            Write::Lock { name, counter, own, is_shared } => {
                vec![self.write_lock(name, *counter, own.as_ref(), *is_shared)]
            }
            Write::AddLease { name, lease } => {
                let mut params = vec![Param::from(name.as_str())];
                params.extend(lease_params(lease));
                vec![self.with(
                    concat!(
                        "INSERT INTO {s}.leases (name, ",
                        lease_columns!(),
                        ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
                    ),
                    params,
                )]
            }
            Write::ChangeLease { name, owner, fence, mode, ends_ms } => {
                let mut params = vec![Param::from(name.as_str()), owner.as_str().into()];
                params.extend([Param::from(*fence), (*ends_ms).into()]);
                params.extend(mode_params(mode));
                vec![self.with(
                    "UPDATE {s}.leases SET fence = $3, ends_ms = greatest(ends_ms, $4), mode = $5, permits = $6, \
                     capacity = $7 WHERE name = $1 AND owner = $2",
                    params,
                )]
            }
            Write::EndLease { name, owner } => vec![self.with(
                "DELETE FROM {s}.leases WHERE name = $1 AND owner = $2",
                vec![name.as_str().into(), owner.as_str().into()],
            )],
            Write::Queue { name, who, ticket, silent_ms } => {
                let mut params =
                    vec![Param::from(who.owner.as_str()), name.as_str().into(), (*ticket).into()];
                params.extend([Param::from(who.client.as_str()), who.label.as_str().into()]);
                params.extend(mode_params(&who.mode));
                params.extend([Param::from(who.lease_ms), who.first_ms.into(), now_ms.into()]);
                params.push((*silent_ms).into());
                vec![self.with(
                    "INSERT INTO {s}.waiters (owner, name, ticket, client, label, mode, permits, capacity, lease_ms, \
                     first_ms, since_ms, silent_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                    params,
                )]
            }
            Write::Heartbeat { owner, silent_ms, .. } => vec![self.with(
                "UPDATE {s}.waiters SET silent_ms = $2 WHERE owner = $1",
                vec![owner.as_str().into(), (*silent_ms).into()],
            )],
            Write::Leave { name, owner, .. } => vec![self.with(
                "DELETE FROM {s}.waiters WHERE owner = $1 AND name = $2",
                vec![owner.as_str().into(), name.as_str().into()],
            )],
            Write::Drop { name, ticket } => vec![self.with(
                "DELETE FROM {s}.waiters WHERE name = $1 AND ticket <= $2",
                vec![name.as_str().into(), (*ticket).into()],
            )],
            Write::Record { name, victim, by, reason } => vec![
                self.with(
                    "INSERT INTO {s}.audit (at_ms, name, owner, fence, client, by, reason) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7)",
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
                // Two breaks at a time must not wait for each other here.
                self.with(
                    "DELETE FROM {s}.audit WHERE id IN (SELECT id FROM {s}.audit WHERE id <= (SELECT id FROM \
                     {s}.audit ORDER BY id DESC OFFSET $1 LIMIT 1) FOR UPDATE SKIP LOCKED)",
                    vec![(AUDIT_LENGTH as i64).into()],
                ),
            ],
        }
    }

    fn write_lock(&self, name: &str, counter: i64, own: Option<&Lease>, is_shared: bool) -> Statement {
        let mut params = vec![Param::from(name), counter.into(), i64::from(is_shared).into()];
        let Some(own) = own else {
            return self.with(
                "UPDATE {s}.locks SET counter = $2, is_shared = $3 <> 0, owner = NULL WHERE name = $1",
                params,
            );
        };
        params.extend(lease_params(own));
        self.with(
            concat!(
                "UPDATE {s}.locks SET counter = $2, is_shared = $3 <> 0, (",
                lease_columns!(),
                ") = ($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) WHERE name = $1"
            ),
            params,
        )
    }

    /// Extends leases, those in the rows of locks and those beside them; returns the owners of the extended ones.
    pub(crate) fn renew(&self, items: &[RenewItem]) -> [Statement; 3] {
        let texts = |text: &dyn Fn(&RenewItem) -> String| Param::Texts(items.iter().map(text).collect());
        let ints = |int: &dyn Fn(&RenewItem) -> i64| Param::Ints(items.iter().map(int).collect());
        let params = vec![
            texts(&|item| item.contender.name.as_str().to_owned()),
            texts(&|item| item.contender.owner.to_hex()),
            ints(&|item| signed(item.fence.get())),
            ints(&|item| ceil_ms(item.lease)),
            ints(&|item| ceil_ms(item.length)),
            ints(&|item| i64::from(item.renewals)),
        ];
        let update = |table: &str| {
            let sql = concat!(
                "UPDATE {s}.{table} l SET ends_ms = greatest(l.ends_ms, c.begun_ms + i.lease), \
                 renewals = i.renewals, renewed_ms = c.ms, \
                 first_ms = CASE WHEN i.renewals = 0 AND l.lease_ms <> i.length \
                 THEN greatest(i.length, l.ends_ms - c.begun_ms, i.lease) ELSE l.first_ms END, \
                 lease_ms = CASE WHEN l.lease_ms <> i.length \
                 THEN greatest(i.length, l.ends_ms - c.begun_ms, i.lease) ELSE l.lease_ms END \
                 FROM (SELECT n.us / 1000 AS ms, (n.us + 999) / 1000 AS begun_ms FROM (SELECT ",
                clock_us!(),
                " AS us OFFSET 0) n) c, unnest($1, $2, $3, $4, $5, $6) \
                 AS i (name, owner, fence, lease, length, renewals) \
                 WHERE l.name = i.name AND l.owner = i.owner AND l.fence = i.fence AND l.ends_ms > c.ms \
                 RETURNING l.owner, l.fence"
            );
            self.with(&sql.replace("{table}", table), params.clone())
        };
        let names = params[0].clone();
        let lock = self
            .with("SELECT name FROM {s}.locks WHERE name = ANY ($1) ORDER BY name FOR UPDATE", vec![names]);
        [lock, update("locks"), update("leases")]
    }

    /// Which of these owners had their lease broken.
    pub(crate) fn broken(&self, owners: Vec<String>) -> Statement {
        self.with("SELECT owner, fence FROM {s}.audit WHERE owner = ANY ($1)", vec![owners.into()])
    }

    pub(crate) fn announce(&self, client: &ClientInfo, ttl_ms: i64) -> [Statement; 2] {
        let forget = self.with(
            concat!(
                "DELETE FROM {s}.clients WHERE id IN (SELECT id FROM {s}.clients WHERE seen_ms <= ",
                clock_us!(),
                " / 1000 - $1 LIMIT 512 FOR UPDATE SKIP LOCKED)"
            ),
            vec![ttl_ms.into()],
        );
        let announce = self.with(
            concat!(
                "INSERT INTO {s}.clients AS c (id, host, pid, process_started_ms, boot, pid_namespace, program, \
                 language, version, seen_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, ",
                clock_us!(),
                " / 1000) ON CONFLICT (id) DO UPDATE SET program = $7, language = $8, version = $9, \
                 seen_ms = EXCLUDED.seen_ms"
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
        );
        [forget, announce]
    }

    /// Statements that find rows as those of the verbs do.
    pub(crate) fn explained(&self) -> [Statement; 4] {
        let names = ["a".to_owned(), "b".to_owned()];
        let update = self.with("UPDATE {s}.locks SET counter = counter WHERE name = $1", vec!["a".into()]);
        [update, self.lock(&names), self.leases(&names), self.front(&names, 1)]
    }

    /// Deletes what no client asks for any more, a bounded number of rows: leases and waiters of crashed clients,
    /// and rows of locks that were not used for a day. Their numbers stay below the floor, which an earlier sweep
    /// has raised: a new row begins above it.
    pub(crate) fn sweep(&self, forgotten_ms: i64, unused_ms: i64) -> [Statement; 4] {
        const NOW: &str = concat!(clock_us!(), " / 1000");
        let sweep = |sql: &str, after_ms: i64| self.with(&sql.replace("{now}", NOW), vec![after_ms.into()]);
        [
            sweep(
                "DELETE FROM {s}.leases WHERE (name, owner) IN (SELECT name, owner FROM {s}.leases \
                 WHERE ends_ms <= {now} - $1 LIMIT 512 FOR UPDATE SKIP LOCKED)",
                forgotten_ms,
            ),
            sweep(
                "DELETE FROM {s}.waiters WHERE owner IN (SELECT owner FROM {s}.waiters \
                 WHERE silent_ms <= {now} - $1 LIMIT 512 FOR UPDATE SKIP LOCKED)",
                forgotten_ms,
            ),
            sweep(
                "DELETE FROM {s}.locks WHERE name IN (SELECT l.name FROM {s}.locks l, {s}.polylatch_schema p \
                 WHERE NOT l.is_shared AND (l.owner IS NULL OR l.ends_ms <= {now} - $1) \
                 AND l.counter <= p.floor AND l.counter / 1000 <= {now} - $1 \
                 LIMIT 512 FOR UPDATE OF l SKIP LOCKED)",
                unused_ms,
            ),
            sweep(
                "UPDATE {s}.polylatch_schema p SET floor = n.counter FROM (SELECT max(counter) AS counter \
                 FROM {s}.locks WHERE counter / 1000 <= {now} - $1) n WHERE n.counter > p.floor",
                unused_ms,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_commit_has_the_setting_and_every_statement_its_answer() {
        let statement = |sql: &str| Statement::new(sql, vec![]);
        let shown = |statements: &[Statement], changes| {
            with_commits(statements, changes, "off").map(|(all, answers)| {
                let own = answers.iter().map(|at| all[*at].sql.clone()).collect::<Vec<_>>();
                (all.iter().filter(|one| one.params == ["off".into()]).count(), all.len(), own)
            })
        };
        let one = [statement("UPDATE"), statement("SELECT")];
        let wrapped = shown(&one, true).unwrap();
        assert_eq!(wrapped, (1, 5, vec!["UPDATE".to_owned(), "SELECT".to_owned()]));
        let whole = [begin(), statement("UPDATE"), commit()];
        let (set, count, own) = shown(&whole, true).unwrap();
        assert_eq!((set, count, own.len()), (1, 4, 3));
        assert_eq!(own[1..], ["UPDATE", "COMMIT"]);
        // A message does not wait for the disk within the transaction.
        let told = [statement("UPDATE"), statement("SELECT pg_notify($1, $2)")];
        let (all, answers) = with_commits(&told, true, "on").unwrap();
        let texts: Vec<_> = all.iter().map(|one| one.sql.as_str()).collect();
        assert_eq!(texts[2..], ["UPDATE", "COMMIT", "SELECT pg_notify($1, $2)"]);
        assert_eq!(answers, [2, 4]);
        // The rest of a transaction that was begun so, and what only reads.
        assert_eq!(shown(&[statement("UPDATE"), commit()], true), None);
        assert_eq!(shown(&[statement("SELECT")], false), None);
        assert_eq!(shown(&[statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")], false), None);
    }
}
