//! Looking, telling who a client is, and ending somebody's lease.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::consul::acquire::{Seen, TRIES};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::keys::Key;
use crate::backend::consul::protocol::records::{About, Broken, Delayed, OWN_FLAGS};
use crate::backend::consul::protocol::view::{Change, Holder, Use, View, Waiter, lock_op};
use crate::backend::consul::sessions::busy;
use crate::backend::consul::transport::api::{Entry, Op, Outcome, SessionInfo};
use crate::backend::{AUDIT_LENGTH, is_renewed};
use crate::client_info::ClientInfo;
use crate::clock::wall_ms;
use crate::clock::{BootInstant, Clock, SystemClock, seconds};
use crate::error::{Error, ErrorKind, Result};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{
    AuditEntry, BreakOutcome, BreakRequest, ClientView, Detail, HolderView, LockView, Query, Snapshot,
    UNREADABLE, WaiterView,
};
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::unpoisoned;

/// How often the record of a client is written. The session behind it says that the client lives, so
/// it need not be written with every sign of life.
const ABOUT_EVERY: Duration = Duration::from_secs(15);

/// When this client last said who it is, and with which session.
#[derive(Default)]
pub(crate) struct Announced(std::sync::Mutex<Option<(BootInstant, String)>>);

impl Inner {
    pub(crate) async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let now = SystemClock.now();
        let Some(session) = self.sessions.all().into_iter().find(|session| !session.has_ended()) else {
            // Whoever has no session has nothing at the store.
            return Ok(());
        };
        let said = unpoisoned(&self.announced.0).clone();
        if said.is_some_and(|(at, with)| with == session.id && now.since(at) < ABOUT_EVERY) {
            return Ok(());
        }
        let value = serde_json::to_vec(&About::of(&client, wall_ms())).unwrap_or_default();
        let about = self.keys.about(&self.client, &session.id);
        if let Outcome::Done(_) = self.api.transact(&[lock_op(about, value, OWN_FLAGS, &session.id)]).await? {
            *unpoisoned(&self.announced.0) = Some((now, session.id.clone()));
        }
        Ok(())
    }

    pub(crate) async fn snapshot(self: Arc<Self>, query: &Query) -> Result<Snapshot> {
        let (keys, mut requests) = (&self.keys, 1);
        let clients = Op::Tree(format!("{}/.client/", keys.prefix()));
        let mut ops = match (&query.name, &query.prefix) {
            (Some(name), _) => {
                let name = LockName::new(name)?;
                let lock = (!keys.lock_is_in_folder()).then(|| Op::Tree(keys.lock(&name)));
                [Op::Tree(keys.folder(&name)), clients, Op::Tree(keys.audit())]
                    .into_iter()
                    .chain(lock)
                    .collect()
            }
            (None, Some(prefix)) if !prefix.is_empty() => {
                vec![Op::Tree(keys.below(prefix)), clients, Op::Tree(keys.audit())]
            }
            _ => vec![Op::Tree(keys.all())],
        };
        if query.name.is_none() {
            ops.extend(
                keys.locks_elsewhere().filter(|start| !start.is_empty()).map(|start| Op::Tree(start.into())),
            );
        }
        let Outcome::Done(entries) = self.api.look(&ops).await? else { return Err(busy()) };
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        let mut snapshot = Snapshot::new("consul", wall_ms());
        for entry in entries {
            match keys.read(&entry.key) {
                Some(Key::Audit) => snapshot.audit = audit(&entry, query),
                Some(Key::OfClient(id, what)) if what.starts_with("about-") && !entry.session.is_empty() => {
                    snapshot.clients.extend(client_view(id, &entry));
                }
                Some(Key::OfClient(id, what)) if what.starts_with("delay-") && !entry.session.is_empty() => {
                    let all: Vec<Delayed> = serde_json::from_slice(&entry.value).unwrap_or_default();
                    refused.extend(all.into_iter().map(|one| (id.clone(), one)));
                }
                Some(Key::OfLock(name, _)) if query.wants(&name) => found.push((name, entry)),
                _ => {}
            }
        }
        let mut names = by_name(found);
        if let Some(name) = query.name.as_ref().filter(|_| names.is_empty()) {
            names.push((name.clone(), Vec::new()));
        }
        let mut views = Vec::new();
        for (name, entries) in names {
            let Ok(name) = LockName::new(&name) else { continue };
            let view = View::read(keys, &name, entries);
            let in_use = !view.holders.is_empty() || !view.line.is_empty() || view.used == Use::Foreign;
            if query.name.is_some() || in_use {
                if views.len() == query.limit() {
                    snapshot.truncated = true;
                    break;
                }
                views.push(view);
            }
        }
        let sessions = match views.iter().any(|view| !view.holders.is_empty()) {
            true => {
                requests += 1;
                self.known_sessions().await
            }
            false => Vec::new(),
        };
        snapshot.requests = requests;
        snapshot.locks = views.iter().map(|view| self.lock_view(view, &sessions, &refused)).collect();
        snapshot.clients.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        snapshot.clients.dedup_by(|one, other| one.id == other.id);
        Ok(snapshot)
    }

    /// What the servers say about sessions, in the order of their ids; nothing if the token may not ask.
    async fn known_sessions(&self) -> Vec<SessionInfo> {
        let found = self.api.get("/v1/session/list", "").await.ok();
        let mut found: Vec<SessionInfo> =
            found.and_then(|response| serde_json::from_slice(&response.body).ok()).unwrap_or_default();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    fn lock_view(&self, view: &View, sessions: &[SessionInfo], refused: &[(ClientId, Delayed)]) -> LockView {
        let mode = match view.used {
            Use::Foreign => "foreign",
            _ => view.kind().map_or("mutex", Kind::code),
        };
        let mut details = vec![Detail::new("key", self.keys.lock(&view.name))];
        if let Some(delay) = self.lock_delay(view, refused) {
            details.push(Detail::new("lock-delay", delay));
        }
        LockView {
            name: view.name.as_str().to_owned(),
            mode: mode.into(),
            capacity: view.kind().and_then(Kind::capacity),
            holders: view.holders.iter().map(|holder| holder_view(holder, sessions)).collect(),
            waiters: view
                .line
                .iter()
                .enumerate()
                .map(|(at, waiter)| waiter_view(waiter, at as u32))
                .collect(),
            votes: Vec::new(),
            details,
        }
    }

    /// What is known of the lock-delay of a free lock: by this client's own tries, or by what its waiters wrote down.
    fn lock_delay(&self, view: &View, refused: &[(ClientId, Delayed)]) -> Option<String> {
        if !view.holders.is_empty() {
            return None;
        }
        if let Some(left) = self.delays.seen(&view.name) {
            return Some(format!("at most {} left", seconds(left)));
        }
        let now_ms = wall_ms();
        let waits = |client: &ClientId| view.line.iter().any(|waiter| waiter.record.client() == *client);
        let lefts = refused
            .iter()
            .filter(|(client, one)| one.name == view.name.as_str() && waits(client))
            .filter_map(|(_, one)| one.left_ms(now_ms));
        // One that knows how long says more than one that does not.
        let left = lefts.min_by_key(|left| left.unwrap_or(u64::MAX))?;
        Some(match left {
            Some(left) => format!("at most {} left", seconds(Duration::from_millis(left))),
            None => "how long it lasts is not known (60 s at most)".to_owned(),
        })
    }

    pub(crate) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        for _ in 0..TRIES {
            let Seen { view, .. } = self.look_at(&name, false).await?;
            if view.used == Use::Foreign {
                return Err(not_ours(&name, "holds data that is no lock"));
            }
            let newest = view.holders.iter().map(|holder| holder.fence).max();
            let Some(newest) = newest else { return Ok(BreakOutcome::Free) };
            let Some(holder) = view.holders.iter().find(|holder| holder.fence == request.expected.get())
            else {
                return Ok(BreakOutcome::ChangedHands { present: FencingToken::new(newest) });
            };
            let Some(record) = &holder.record else {
                let session = &holder.session;
                return Err(not_ours(
                    &name,
                    &format!(
                        "is held by a program that is not Polylatch; to end its lease, end its session: consul's API \
                         PUT /v1/session/destroy/{session}"
                    ),
                ));
            };
            let leaves = holder.owner;
            let enter = view.who_enters(None, None, Some(holder), leaves);
            let next = enter.first().map(|entrant| entrant.record.client());
            let change = Change {
                ends: Some(holder),
                leaves,
                enter,
                revoked: true,
                at_ms: wall_ms(),
                ..Change::default()
            };
            let mut ops = view.transaction(&self.keys, &change);
            ops.extend(self.audit_with(&request, record.client().as_str()).await?);
            if let Outcome::Done(_) = self.api.transact(&ops).await? {
                return Ok(BreakOutcome::Broken { holder: record.client(), next });
            }
        }
        Err(busy())
    }

    /// The audit with one more entry, unless it has changed meanwhile.
    async fn audit_with(&self, request: &BreakRequest, holder: &str) -> Result<Vec<Op>> {
        let key = self.keys.audit();
        let Outcome::Done(found) = self.api.look(&[Op::Tree(key.clone())]).await? else { return Err(busy()) };
        let present = found.into_iter().find(|entry| entry.key == key);
        let mut all = present.as_ref().map_or_else(Vec::new, |entry| read_audit(&entry.value));
        let broken = Broken {
            at_ms: wall_ms(),
            name: request.name.clone(),
            fencing_token: request.expected.get(),
            holder: holder.to_owned(),
            by: request.by.clone(),
            reason: request.reason.clone(),
        };
        all.insert(0, serde_json::to_value(broken).unwrap_or_default());
        all.truncate(AUDIT_LENGTH);
        let unchanged = match present {
            Some(entry) => Op::CheckIndex(key.clone(), entry.modified),
            None => Op::CheckMissing(key.clone()),
        };
        let value = serde_json::to_vec(&all).unwrap_or_default();
        Ok(vec![unchanged, Op::Set { key, value, flags: OWN_FLAGS }])
    }

    /// Ends whatever lease an owner has.
    pub(crate) async fn end_lease_of(&self, name: &LockName, owner: OwnerToken) -> Result<()> {
        for _ in 0..TRIES {
            let view = self.look_at(name, false).await?.view;
            let Some(holder) = view.held_by(owner) else { return Ok(()) };
            let leaves = Some(owner);
            let enter = view.who_enters(None, None, Some(holder), leaves);
            let change = Change { ends: Some(holder), leaves, enter, at_ms: wall_ms(), ..Change::default() };
            if let Outcome::Done(_) = self.api.transact(&view.transaction(&self.keys, &change)).await? {
                return Ok(());
            }
        }
        Err(busy())
    }
}

/// The entries of each lock, in the order of the names.
fn by_name(mut found: Vec<(String, Entry)>) -> Vec<(String, Vec<Entry>)> {
    // Stable: an entry that was read twice keeps its order.
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut names: Vec<(String, Vec<Entry>)> = Vec::new();
    for (name, entry) in found {
        match names.last_mut() {
            Some((last, entries)) if *last == name => entries.push(entry),
            _ => names.push((name, vec![entry])),
        }
    }
    names
}

fn not_ours(name: &LockName, what: &str) -> Error {
    Error::new(ErrorKind::NameConflict, format!("{:?} {what}", name.as_str())).on_lock(name.as_str())
}

/// The breaks as they were written: those of another version are kept, though they cannot be read.
fn read_audit(value: &[u8]) -> Vec<serde_json::Value> {
    serde_json::from_slice(value).unwrap_or_default()
}

fn audit(entry: &Entry, query: &Query) -> Vec<AuditEntry> {
    let readable = read_audit(&entry.value).into_iter().filter_map(|one| serde_json::from_value(one).ok());
    readable
        .filter(|broken: &Broken| query.wants(&broken.name))
        .map(|broken| AuditEntry {
            at_ms: broken.at_ms,
            name: broken.name,
            fencing_token: FencingToken::new(broken.fencing_token),
            holder: ClientId::from_stored(&broken.holder),
            by: broken.by,
            reason: broken.reason,
        })
        .collect()
}

fn client_view(id: ClientId, entry: &Entry) -> Option<ClientView> {
    let about: About = serde_json::from_slice(&entry.value).ok()?;
    Some(ClientView {
        id,
        host: about.host,
        pid: about.pid,
        process_started_at_ms: about.started_ms,
        boot: about.boot,
        pid_namespace: about.pid_namespace,
        program: about.program,
        language: about.language,
        version: about.version,
        seen_ago_ms: wall_ms().saturating_sub(about.seen_ms),
    })
}

fn holder_view(holder: &Holder, sessions: &[SessionInfo]) -> HolderView {
    let record = holder.record.as_ref();
    let mut details = Vec::new();
    // Read-write locks are kept by no other program.
    if record.is_none() && holder.mode == Mode::Write {
        details
            .push(Detail::new(UNREADABLE, "lease: written by another version of Polylatch (form unknown)"));
    }
    let session = sessions.binary_search_by(|session| session.id.cmp(&holder.session)).ok();
    let now = wall_ms();
    details.extend(session_details(&holder.session, session.map(|at| &sessions[at])));
    let renewed = record.and_then(|record| {
        is_renewed(0, Duration::from_millis(record.first_ms), Duration::from_millis(record.lease_ms))
    });
    HolderView {
        client: record.map(|record| record.client()),
        label: record.map(|record| record.label.clone()).unwrap_or_default(),
        mode: holder.mode.code().into(),
        permits: holder.mode.permits(),
        owner_digest: holder.owner.map(OwnerToken::digest).unwrap_or_default(),
        fencing_token: Some(FencingToken::new(holder.fence)),
        acquired_at_ms: record.map(|record| record.at_ms),
        held_for_ms: record.map(|record| now.saturating_sub(record.at_ms)),
        lease_ms: record.map(|record| record.lease_ms),
        // Consul tells neither when a session was renewed nor what is left of it.
        remaining_ms: None,
        renewals: None,
        renewed_ago_ms: None,
        renewed,
        idle_ago_ms: None,
        details,
    }
}

fn session_details(id: &str, info: Option<&SessionInfo>) -> Vec<Detail> {
    let mut details = vec![Detail::new("session", id)];
    if let Some(info) = info {
        details.push(Detail::new("session name", info.name.clone()));
        details.push(Detail::new("session TTL", if info.ttl.is_empty() { "none" } else { &info.ttl }));
        details.push(Detail::new("lock-delay", format!("{:?}", Duration::from_nanos(info.lock_delay))));
        details.push(Detail::new("behavior", info.behavior.clone()));
        details.push(Detail::new("node", info.node.clone()));
        details.extend(
            info.checks
                .iter()
                .filter(|checks| !checks.is_empty())
                .map(|checks| Detail::new("checks", checks.join(", "))),
        );
    }
    details
}

fn waiter_view(waiter: &Waiter, position: u32) -> WaiterView {
    let record = &waiter.record;
    WaiterView {
        client: record.client(),
        label: record.label.clone(),
        mode: waiter.mode.code().into(),
        permits: waiter.mode.permits(),
        owner_digest: waiter.owner.digest(),
        position,
        since_ms: record.at_ms,
        waited_ms: wall_ms().saturating_sub(record.at_ms),
        // The servers remove a waiter whose session has ended.
        silent: false,
        gives_up_at_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_of_another_version_hides_no_other_and_is_kept() {
        let known = r#"{"at_ms":1763680000000,"name":"a","fencing_token":35,"holder":"web-1:42:0a0b0c0d","by":"ann@desk","reason":"holder is stuck"}"#;
        let value = format!(r#"[{{"v":2,"later":true}},{known}]"#);
        let entry = Entry { value: value.clone().into_bytes(), ..Entry::default() };
        let seen = audit(&entry, &Query::default());
        assert_eq!((seen.len(), seen[0].reason.as_str()), (1, "holder is stuck"));
        assert_eq!(read_audit(value.as_bytes()).len(), 2);
    }
}
