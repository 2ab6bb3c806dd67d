//! Reading the store, saying who a client is, and breaking a lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::contenders::records::{About, Record, broken};
use crate::backend::contenders::{Seen, lock_view};
use crate::backend::{ANNOUNCE_TTL, AUDIT_LENGTH};
use crate::client_info::ClientInfo;
use crate::clock::{BootInstant, Clock, SystemClock, wall_ms};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{AuditEntry, BreakOutcome, BreakRequest, Detail, Query, Snapshot};
use crate::wakeups::unpoisoned;

use super::backend::Inner;
use super::protocol::answers::Entry;
use super::protocol::keys::Key;
use super::protocol::requests;

/// How many keys one request reads.
const PAGE: usize = 1_000;

/// How often the record of a client is written. In between its lease is renewed, which writes nothing.
const ABOUT_EVERY: Duration = Duration::from_secs(15);

/// How often a break is tried while others change the lock.
const TRIES: usize = 5;

/// The lease of this client's record, and when that was written.
pub(crate) struct Announced {
    pub lease: i64,
    pub at: BootInstant,
}

impl Inner {
    pub(crate) async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let now = SystemClock.now();
        let said = unpoisoned(&self.announced).as_ref().map(|said| (said.lease, said.at));
        let mut lease = None;
        if let Some((id, at)) = said
            && self.api.keep_alive(&[id]).await?.iter().all(|renewed| renewed.ttl > 0)
        {
            if now.since(at) < ABOUT_EVERY {
                return Ok(());
            }
            lease = Some(id);
        }
        let lease = match lease {
            Some(lease) => lease,
            None => self.sessions.lease(&self.api, ANNOUNCE_TTL, ANNOUNCE_TTL / 2).await?.id,
        };
        let key = format!("{}{}", self.keys.clients(), client.id);
        let about = serde_json::to_vec(&About::of(&client, wall_ms())).unwrap_or_default();
        self.api.transact(&requests::write(&key, &about, lease)).await?;
        *unpoisoned(&self.announced) = Some(Announced { lease, at: now });
        Ok(())
    }

    pub(crate) async fn snapshot(&self, query: &Query) -> Result<Snapshot> {
        let mut snapshot = Snapshot::new("etcd", wall_ms());
        let folders = match (&query.name, &query.prefix) {
            (Some(name), _) => vec![self.keys.folder(name), self.keys.clients(), self.keys.broken()],
            (None, Some(prefix)) if !prefix.is_empty() => {
                vec![self.keys.below(prefix), self.keys.clients(), self.keys.broken()]
            }
            _ => vec![self.keys.all()],
        };
        let mut found: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        if let Some(name) = &query.name {
            found.entry(name.clone()).or_default();
        }
        // All of one moment.
        let mut revision = 0;
        for folder in folders {
            let mut from = folder.clone().into_bytes();
            loop {
                let page = self.api.range(&requests::page(&from, &folder, PAGE, revision)).await?;
                snapshot.requests += 1;
                revision = if revision == 0 { page.header.revision } else { revision };
                let last = page.kvs.last().map(|entry| entry.key.clone());
                for entry in page.kvs {
                    match self.keys.read(&entry.key) {
                        Some(Key::Contender { name }) if query.wants(&name) => {
                            found.entry(name).or_default().push(entry);
                        }
                        Some(Key::Client) => {
                            let about = serde_json::from_slice::<About>(&entry.value).ok();
                            snapshot.clients.extend(about.map(|about| about.view(snapshot.taken_at_ms)));
                        }
                        Some(Key::Broken) => {
                            let entry = serde_json::from_slice::<AuditEntry>(&entry.value).ok();
                            snapshot.audit.extend(entry.filter(|entry| query.wants(&entry.name)));
                        }
                        _ => {}
                    }
                }
                match last {
                    // The key behind the last one.
                    Some(last) if page.more => from = [last.as_bytes(), &[0]].concat(),
                    _ => break,
                }
            }
        }
        snapshot.truncated = found.len() > query.limit();
        snapshot.locks = found
            .into_iter()
            .take(query.limit())
            .map(|(name, mut entries)| {
                entries.sort_by_key(|entry| entry.created);
                let contenders = entries.iter().enumerate().map(|(at, entry)| seen(entry, at == 0));
                lock_view(name, "mutex", None, contenders, snapshot.taken_at_ms)
            })
            .collect();
        snapshot.clients.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        // They are read in the order in which they were written.
        snapshot.audit.reverse();
        Ok(snapshot)
    }

    pub(crate) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        for _ in 0..TRIES {
            let front = self.api.range(&requests::front(&self.keys.folder(name.as_str()))).await?.kvs;
            let Some(holder) = front.first() else { return Ok(BreakOutcome::Free) };
            if holder.created != request.expected.get() {
                return Ok(BreakOutcome::ChangedHands { present: FencingToken::new(holder.created) });
            }
            let Some(record) = Record::read(&holder.value) else {
                return Err(Error::new(
                    ErrorKind::NameConflict,
                    format!(
                        "lock {:?} is held by a program that is not Polylatch; to end its lease, run etcdctl lease revoke \
                         {:x}",
                        name.as_str(),
                        holder.lease
                    ),
                ));
            };
            let at_ms = wall_ms();
            let entry = serde_json::to_vec(&broken(&request, &record.client, at_ms)).unwrap_or_default();
            let key = self.keys.broken_at(at_ms, holder.created);
            let end = requests::end(&holder.key, holder.created, (&key, &entry));
            if self.api.transact_once(&end).await?.succeeded {
                self.trim_audit();
                let next = front.get(1).and_then(|next| Record::read(&next.value));
                let next = next.map(|next| next.client);
                return Ok(BreakOutcome::Broken { holder: record.client, next });
            }
        }
        Err(Error::new(ErrorKind::BackendUnavailable, "too many concurrent updates to this lock; retrying"))
    }

    /// Removes the oldest breaks, in the background: nobody waits for that.
    fn trim_audit(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            let folder = inner.keys.broken();
            let all =
                inner.api.range(&requests::page(folder.as_bytes(), &folder, AUDIT_LENGTH * 2, 0)).await?;
            if let Some(kept) = all.kvs.len().checked_sub(AUDIT_LENGTH).and_then(|at| all.kvs.get(at)) {
                let clear = requests::clear(&folder, &kept.key);
                inner.api.query::<serde_json::Value>("/v3/kv/deleterange", &clear).await?;
            }
            Result::<()>::Ok(())
        });
    }
}

fn seen(entry: &Entry, holds: bool) -> Seen<'_> {
    Seen {
        holds,
        mode: "mutex",
        permits: 1,
        value: &entry.value,
        fence: FencingToken::new(entry.created),
        details: vec![
            Detail::new("key", entry.key.clone()),
            Detail::new("session", format!("lease {:x}", entry.lease)),
        ],
    }
}
