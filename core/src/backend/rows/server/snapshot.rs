//! Reads everything that a query asks for, at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::rows::{ceil_ms, millis, token, unsigned};
use crate::backend::{ANNOUNCE_TTL, is_renewed};
use crate::error::Result;
use crate::mode::Mode;
use crate::snapshot::{
    AuditEntry, ClientView, Detail, HolderView, LockView, Query, Snapshot, UNREADABLE, WaiterView,
};
use crate::token::ClientId;

use super::read::{lease, mode};
use super::store::Store;
use super::value::Cells;
use super::window::Lease;
use super::{Server, commit};

pub(crate) async fn read<S: Server>(store: &Store<S>, query: &Query) -> Result<Snapshot> {
    let limit = query.limit();
    let most = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
    let mut statements = store.server().begin_reading();
    let at = statements.len();
    statements.push(store.server().clock());
    statements.extend(store.server().read(query.name.as_deref(), query.prefix.as_deref(), most));
    statements.push(commit());
    let (answers, requests) = match store.read(&statements).await? {
        Some(answers) => (answers, statements.len()),
        // Without tables nothing was ever locked here.
        None => {
            let mut answers = vec![Vec::new(); statements.len()];
            answers[at] = store.ask(&[store.server().clock()], true).await?.swap_remove(0);
            (answers, statements.len() + 2)
        }
    };
    let now_us = answers[at].first().map_or(0, |row| row.int(0));
    let now_ms = now_us / 1000;
    let [own, beside, waiting, clients, audit] = &answers[at + 1..at + 6] else {
        unreachable!("as many as were asked")
    };
    let mut found: BTreeMap<String, LockView> = BTreeMap::new();
    for row in own.iter().chain(beside) {
        let Some(lease) = lease(row, 1).filter(|lease| lease.holder.ends_ms > now_ms) else { continue };
        let mode = lease.holder.is_known.then_some(lease.holder.mode);
        let mut holder = holder(&lease, now_ms);
        if mode.is_none() {
            holder.details.push(unreadable("lease"));
        }
        let lock =
            found.entry(row.text(0)).or_insert_with_key(|name| unused(name, mode.unwrap_or(Mode::Mutex)));
        lock.holders.push(holder);
    }
    for lock in found.values_mut() {
        lock.holders.sort_by_key(|holder| holder.fencing_token);
    }
    for row in waiting {
        let wanted = mode(row, 5);
        let lock =
            found.entry(row.text(0)).or_insert_with_key(|name| unused(name, wanted.unwrap_or(Mode::Mutex)));
        match wanted {
            Some(wanted) => {
                let position = u32::try_from(lock.waiters.len()).unwrap_or(u32::MAX);
                lock.waiters.push(waiter(row, wanted, position, now_ms));
            }
            None => lock.details.push(unreadable("waiter")),
        }
    }
    if let Some(name) = &query.name {
        found.entry(name.clone()).or_insert_with_key(|name| unused(name, Mode::Mutex));
    }
    Ok(Snapshot {
        backend: S::STORE.into(),
        taken_at_ms: unsigned(now_ms),
        round_trip: Duration::ZERO,
        requests: u32::try_from(requests).unwrap_or(u32::MAX),
        truncated: found.len() > limit,
        locks: found.into_values().take(limit).collect(),
        clients: clients.iter().filter_map(|row| client(row, now_ms)).collect(),
        audit: audit.iter().map(audited).filter(|entry| query.wants(&entry.name)).collect(),
        troubles: Vec::new(),
    })
}

fn unreadable(what: &str) -> Detail {
    Detail::new(UNREADABLE, format!("{what}: written by another version of Polylatch (mode unknown)"))
}

/// A lock of the kind that can be held in this mode, as yet without holders and waiters.
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

fn holder(lease: &Lease, now_ms: i64) -> HolderView {
    let holder = &lease.holder;
    let mode = if holder.is_known { holder.mode } else { Mode::Mutex };
    let renewals = u32::try_from(lease.renewals).unwrap_or(u32::MAX);
    HolderView {
        client: Some(ClientId::from_stored(&holder.client)),
        label: holder.label.clone(),
        mode: mode.code().into(),
        permits: mode.permits(),
        owner_digest: holder.owner.clone(),
        fencing_token: Some(token(holder.fence)),
        acquired_at_ms: Some(unsigned(holder.acquired_ms)),
        held_for_ms: Some(unsigned(now_ms - holder.acquired_ms)),
        lease_ms: Some(unsigned(lease.lease_ms)),
        remaining_ms: Some(unsigned(holder.ends_ms - now_ms)),
        renewals: Some(renewals),
        renewed_ago_ms: lease.renewed_ms.map(|at_ms| unsigned(now_ms - at_ms)),
        renewed: is_renewed(renewals, millis(lease.first_ms), millis(lease.lease_ms)),
        idle_ago_ms: None,
        details: Vec::new(),
    }
}

fn waiter(row: &Cells, mode: Mode, position: u32, now_ms: i64) -> WaiterView {
    WaiterView {
        client: ClientId::from_stored(&row.text(3)),
        label: row.text(4),
        mode: mode.code().into(),
        permits: mode.permits(),
        owner_digest: row.text(1),
        position,
        since_ms: unsigned(row.int(8)),
        waited_ms: unsigned(now_ms - row.int(8)),
        silent: now_ms >= row.int(9),
        gives_up_at_ms: None,
    }
}

/// A client, unless it has announced nothing for long.
fn client(row: &Cells, now_ms: i64) -> Option<ClientView> {
    let seen_ago_ms = now_ms - row.int(9);
    (seen_ago_ms < ceil_ms(ANNOUNCE_TTL)).then(|| ClientView {
        id: ClientId::from_stored(&row.text(0)),
        host: row.text(1),
        pid: u32::try_from(row.int(2)).unwrap_or(0),
        process_started_at_ms: row.optional_int(3).map(unsigned),
        boot: row.optional_text(4),
        pid_namespace: row.optional_text(5),
        program: row.text(6),
        language: row.text(7),
        version: row.text(8),
        seen_ago_ms: unsigned(seen_ago_ms),
    })
}

fn audited(row: &Cells) -> AuditEntry {
    AuditEntry {
        at_ms: unsigned(row.int(0)),
        name: row.text(1),
        fencing_token: token(row.int(2)),
        holder: ClientId::from_stored(&row.text(3)),
        by: row.text(4),
        reason: row.text(5),
    }
}
