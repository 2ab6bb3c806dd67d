//! Reading the whole store for inspection, inside one read transaction: changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, Row, params};

use crate::backend::rows::{Now, ceil_ms, millis, token, unsigned};
use crate::backend::sqlite::deadlines;
use crate::backend::sqlite::store::Sql;
use crate::backend::sqlite::units::mode;
use crate::backend::{ANNOUNCE_TTL, is_renewed};
use crate::mode::Mode;
use crate::snapshot::{
    AuditEntry, ClientView, Detail, Followed, HolderView, LockView, Query, Snapshot, UNREADABLE, WaiterView,
};
use crate::token::{ClientId, OwnerToken};

/// Reads everything that the query asks for. The caller has checked the boot and the time.
pub(crate) fn snapshot(conn: &Connection, now: Now, query: &Query) -> Sql<Snapshot> {
    let (locks, truncated) = locks(conn, now, query)?;
    Ok(Snapshot {
        backend: "sqlite".into(),
        taken_at_ms: unsigned(now.wall_us / 1000),
        round_trip: Duration::ZERO,
        requests: 4,
        locks,
        clients: clients(conn, now)?,
        audit: audit(conn, query)?,
        truncated,
        troubles: Vec::new(),
    })
}

/// What a snapshot leaves for the next.
struct Kept {
    /// Another pair if anything was written, by others or by this connection (SQLite, "PRAGMA data_version",
    /// "sqlite3_total_changes").
    version: (i64, u64),
    /// When it was taken, in milliseconds on the clock by which leases end.
    at_ms: u64,
}

/// As [`snapshot`], but only if anything was written since the snapshot before, or has expired.
pub(crate) fn follow(conn: &Connection, now: Now, query: &Query, before: Option<&Followed>) -> Sql<Followed> {
    // Before the rows: what is written in between is found by the next one.
    let written = conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
    let version = (written, conn.total_changes());
    let at_ms = unsigned(now.clock_ms);
    let same = before.and_then(|before| {
        let kept = before.kept::<Kept>().filter(|kept| kept.version == version)?;
        let later = before.snapshot.later(at_ms.checked_sub(kept.at_ms)?, ANNOUNCE_TTL)?;
        Some(Snapshot { taken_at_ms: unsigned(now.wall_us / 1000), requests: 1, ..later })
    });
    let snapshot = match same {
        Some(same) => same,
        None => snapshot(conn, now, query)?,
    };
    Ok(Followed::keeping(snapshot, Kept { version, at_ms }))
}

/// Merges two scans in name order. Each stops behind the limit, so that a large store costs no more
/// than what is shown: the first names of the union are among the first names of both.
fn locks(conn: &Connection, now: Now, query: &Query) -> Sql<(Vec<LockView>, bool)> {
    let limit = query.limit();
    let from = query.name.as_deref().or(query.prefix.as_deref()).unwrap_or_default();
    let mut found: BTreeMap<String, LockView> = BTreeMap::new();

    let mut statement = conn.prepare_cached(
        "SELECT name, owner, fence, client, label, lease_ms, acquired_wall_ms, acquired_ms, ends_ms, \
         renewals, renewed_ms, mode, permits, capacity, first_ms FROM lease \
         WHERE name >= ?1 AND ends_ms > ?2 ORDER BY name, fence",
    )?;
    let mut rows = statement.query(params![from, now.clock_ms])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if !query.wants(&name) || found.len() > limit {
            break;
        }
        let Some(held) = mode(row, 11)? else {
            let mut holder = holder(row, Mode::Mutex, now)?;
            holder.details.push(unreadable("lease"));
            found.entry(name).or_insert_with_key(|name| unused(name, Mode::Mutex)).holders.push(holder);
            continue;
        };
        found.entry(name).or_insert_with_key(|name| unused(name, held)).holders.push(holder(row, held, now)?);
    }

    let has_limits = deadlines::is_kept(conn)?;
    let mut statement = conn.prepare_cached(
        "SELECT name, owner, client, label, since_wall_ms, since_ms, silent_ms, mode, permits, capacity \
         FROM waiter WHERE name >= ?1 ORDER BY name, ticket",
    )?;
    let mut rows = statement.query(params![from])?;
    let mut names = 0;
    let mut last = String::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if name != last {
            names += 1;
            last.clone_from(&name);
        }
        if !query.wants(&name) || names > limit + 1 {
            break;
        }
        let Some(wanted) = mode(row, 7)? else {
            let lock = found.entry(name).or_insert_with_key(|name| unused(name, Mode::Mutex));
            lock.details.push(unreadable("waiter"));
            continue;
        };
        let lock = found.entry(name).or_insert_with_key(|name| unused(name, wanted));
        let position = u32::try_from(lock.waiters.len()).unwrap_or(u32::MAX);
        let mut waiter = waiter(row, wanted, position, now)?;
        if has_limits {
            waiter.gives_up_at_ms = deadlines::gives_up_at_ms(conn, row.get_ref(1)?.as_str()?)?;
        }
        lock.waiters.push(waiter);
    }

    if let Some(name) = &query.name {
        found.entry(name.clone()).or_insert_with_key(|name| unused(name, Mode::Mutex));
    }
    let truncated = found.len() > limit;
    Ok((found.into_values().take(limit).collect(), truncated))
}

fn unreadable(what: &str) -> Detail {
    Detail::new(UNREADABLE, format!("{what}: written by another version of Polylatch (mode unknown)"))
}

/// A lock of the kind that can be held in this way, as yet without holders and waiters.
fn unused(name: &str, mode: Mode) -> LockView {
    let kind = mode.kind();
    LockView {
        name: name.to_owned(),
        mode: kind.code().into(),
        capacity: kind.capacity(),
        holders: Vec::new(),
        waiters: Vec::new(),
        votes: Vec::new(),
        details: Vec::new(),
    }
}

fn holder(row: &Row<'_>, mode: Mode, now: Now) -> Sql<HolderView> {
    let ago = |at_ms: i64| unsigned(now.clock_ms - at_ms);
    let renewed_ms: Option<i64> = row.get(10)?;
    let (renewals, lease_ms, first_ms): (u32, i64, Option<i64>) = (row.get(9)?, row.get(5)?, row.get(14)?);
    // A program of the first version did not say.
    let first_ms = first_ms.unwrap_or(lease_ms);
    Ok(HolderView {
        client: Some(ClientId::from_stored(&row.get::<_, String>(3)?)),
        label: row.get(4)?,
        mode: mode.code().into(),
        permits: mode.permits(),
        owner_digest: digest(&row.get::<_, String>(1)?),
        fencing_token: Some(token(row.get(2)?)),
        acquired_at_ms: Some(unsigned(row.get(6)?)),
        held_for_ms: Some(ago(row.get(7)?)),
        lease_ms: Some(unsigned(lease_ms)),
        remaining_ms: Some(unsigned(row.get::<_, i64>(8)? - now.clock_ms)),
        renewals: Some(renewals),
        renewed_ago_ms: renewed_ms.map(ago),
        renewed: is_renewed(renewals, millis(first_ms), millis(lease_ms)),
        idle_ago_ms: None,
        details: Vec::new(),
    })
}

fn waiter(row: &Row<'_>, mode: Mode, position: u32, now: Now) -> Sql<WaiterView> {
    Ok(WaiterView {
        client: ClientId::from_stored(&row.get::<_, String>(2)?),
        label: row.get(3)?,
        mode: mode.code().into(),
        permits: mode.permits(),
        owner_digest: digest(&row.get::<_, String>(1)?),
        position,
        since_ms: unsigned(row.get(4)?),
        waited_ms: unsigned(now.clock_ms - row.get::<_, i64>(5)?),
        silent: now.clock_ms >= row.get::<_, i64>(6)?,
        gives_up_at_ms: None,
    })
}

fn digest(owner: &str) -> String {
    OwnerToken::from_hex(owner).map(OwnerToken::digest).unwrap_or_default()
}

fn clients(conn: &Connection, now: Now) -> Sql<Vec<ClientView>> {
    conn.prepare_cached(
        "SELECT id, host, pid, process_started_wall_ms, program, language, version, seen_ms, \
         pid_namespace, (SELECT boot FROM store) FROM client \
         WHERE seen_ms > ?1 ORDER BY id",
    )?
    .query_map(params![now.clock_ms - ceil_ms(ANNOUNCE_TTL)], |row| {
        Ok(ClientView {
            id: ClientId::from_stored(&row.get::<_, String>(0)?),
            host: row.get(1)?,
            pid: row.get(2)?,
            process_started_at_ms: row.get::<_, Option<i64>>(3)?.map(unsigned),
            // Clients of another boot are deleted when the file is taken over.
            boot: row.get(9)?,
            pid_namespace: row.get(8)?,
            program: row.get(4)?,
            language: row.get(5)?,
            version: row.get(6)?,
            seen_ago_ms: unsigned(now.clock_ms - row.get::<_, i64>(7)?),
        })
    })?
    .collect()
}

fn audit(conn: &Connection, query: &Query) -> Sql<Vec<AuditEntry>> {
    let entries = conn
        .prepare_cached("SELECT wall_ms, name, fence, client, by, reason FROM audit ORDER BY id DESC")?
        .query_map([], |row| {
            Ok(AuditEntry {
                at_ms: unsigned(row.get(0)?),
                name: row.get(1)?,
                fencing_token: token(row.get(2)?),
                holder: ClientId::from_stored(&row.get::<_, String>(3)?),
                by: row.get(4)?,
                reason: row.get(5)?,
            })
        })?
        .collect::<Sql<Vec<_>>>()?;
    Ok(entries.into_iter().filter(|entry| query.wants(&entry.name)).collect())
}
