//! Reading the store, saying who a client is, and breaking a lease.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::AUDIT_LENGTH;
use crate::backend::contenders::records::{About, Record, broken};
use crate::backend::contenders::{Seen, lock_view};
use crate::client_info::ClientInfo;
use crate::clock::{BootInstant, Clock, SystemClock, wall_ms};
use crate::error::{Error, ErrorKind, Result};
use crate::name::LockName;
use crate::policy::fencing::FencingToken;
use crate::snapshot::{AuditEntry, BreakOutcome, BreakRequest, Detail, Query, Snapshot};
use crate::token::ClientId;
use crate::wakeups::unpoisoned;

use super::backend::Inner;
use super::protocol::answers::{Stat, code};
use super::protocol::nodes::{self, LEASES, LOCKS};
use super::protocol::requests::{self, Lives, Request};
use super::protocol::standing::{Group, standing};
use super::transport::errors::{refused, unreadable};
use super::transport::session::Session;

/// How many nodes one round trip reads.
const TOGETHER: usize = 500;

/// How often the record of a client is written.
const ABOUT_EVERY: Duration = Duration::from_secs(15);

/// How often a break is tried while others change the lock.
const TRIES: usize = 5;

/// The session of this client's record, and when that was written.
pub(crate) struct Announced {
    session: i64,
    at: BootInstant,
}

/// A node that was read.
struct Node {
    path: String,
    data: Vec<u8>,
    stat: Stat,
}

impl Inner {
    /// The record ends with the session.
    pub(crate) async fn announce(self: Arc<Self>, client: Arc<ClientInfo>) -> Result<()> {
        let now = SystemClock.now();
        let session = self.pool.main()?;
        let is_fresh = |said: &Announced| said.session == session.id() && now.since(said.at) < ABOUT_EVERY;
        if unpoisoned(&self.announced).as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        let path = format!("{}/{}", self.config.nodes.clients(), client.id);
        let about = serde_json::to_vec(&About::of(&client, wall_ms())).unwrap_or_default();
        let create = requests::create(&path, &about, Lives::WithSession, self.own_rights());
        for _ in 0..TRIES {
            let answers = session.ask(vec![requests::write(&path, &about), create.clone()]).await?;
            match (answers[0].code, answers[1].code) {
                (code::OK, _) | (_, code::OK) => {
                    *unpoisoned(&self.announced) = Some(Announced { session: session.id(), at: now });
                    return Ok(());
                }
                (_, code::NO_NODE) => self.make_folders(&session, &path).await?,
                // A node of a session before, which is about to end.
                (_, code::NODE_EXISTS) => {}
                (_, code) => return Err(refused(code, &path)),
            }
        }
        Err(Error::new(
            ErrorKind::BackendUnavailable,
            "the record of this client changed meanwhile; retrying",
        ))
    }

    pub(crate) async fn snapshot(&self, query: &Query) -> Result<Snapshot> {
        let mut snapshot = Snapshot::new("zookeeper", wall_ms());
        let now_ms = snapshot.taken_at_ms;
        let session = self.pool.main()?;
        let places = &self.config.nodes;
        let folders = [places.root().to_owned(), places.clients(), places.broken()];
        // A member that lags is asked to catch up first.
        session.ask(vec![requests::sync(places.root())]).await?;
        let [locks, clients, audit] =
            self.list(&session, &folders, &mut snapshot.requests).await?.try_into().unwrap_or_default();
        let mut names: Vec<_> = match &query.name {
            Some(name) => vec![name.clone()],
            None => locks.iter().filter_map(|folder| nodes::name_of(folder)).collect(),
        };
        names.retain(|name| query.wants(name));
        names.sort_unstable();
        let folders: Vec<_> = names.iter().map(|name| places.lock(name)).collect();
        let queues = self.list(&session, &folders, &mut snapshot.requests).await?;
        let permits = self.permits(&session, &folders, &queues, &mut snapshot.requests).await?;
        for (((name, folder), children), [locks, leases]) in
            names.into_iter().zip(&folders).zip(queues).zip(permits)
        {
            let standing = standing(folder, children, locks, leases);
            // The folder of a lock outlives its last contender for a while.
            if standing.groups.is_empty() && query.name.is_none() {
                continue;
            }
            if snapshot.locks.len() == query.limit() {
                snapshot.truncated = true;
                break;
            }
            let entries = self.contenders(&session, &standing.groups, &mut snapshot.requests).await?;
            if entries.is_empty() && query.name.is_none() {
                continue;
            }
            let capacity = entries.iter().find_map(|(_, node)| Record::read(&node.data)?.capacity());
            snapshot.locks.push(lock_view(name, standing.kind, capacity, entries.iter().map(seen), now_ms));
        }
        let below = |folder: &str, children: Vec<String>| -> Vec<String> {
            children.iter().map(|child| format!("{folder}/{child}")).collect()
        };
        let paths = below(&places.clients(), clients);
        for node in self.read(&session, &paths, &mut snapshot.requests).await? {
            let about = serde_json::from_slice::<About>(&node.data).ok();
            snapshot.clients.extend(about.map(|about| about.view(now_ms)));
        }
        snapshot.clients.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        let mut paths = below(&places.broken(), audit);
        paths.sort_unstable_by(|one, other| other.cmp(one));
        for node in self.read(&session, &paths, &mut snapshot.requests).await? {
            let entry = serde_json::from_slice::<AuditEntry>(&node.data).ok();
            snapshot.audit.extend(entry.filter(|entry| query.wants(&entry.name)));
        }
        Ok(snapshot)
    }

    /// The queue and the permits of those locks that are semaphores.
    async fn permits(
        &self,
        session: &Session,
        locks: &[String],
        children: &[Vec<String>],
        asked: &mut u32,
    ) -> Result<Vec<[Vec<String>; 2]>> {
        let is_semaphore =
            |children: &[String]| children.iter().any(|child| child == LOCKS || child == LEASES);
        let mut folders = Vec::new();
        for (lock, _) in locks.iter().zip(children).filter(|(_, children)| is_semaphore(children)) {
            folders.extend([format!("{lock}/{LOCKS}"), format!("{lock}/{LEASES}")]);
        }
        let mut found = self.list(session, &folders, asked).await?.into_iter();
        let of_each = children.iter().map(|children| match is_semaphore(children) {
            true => [found.next().unwrap_or_default(), found.next().unwrap_or_default()],
            false => <[Vec<String>; 2]>::default(),
        });
        Ok(of_each.collect())
    }

    /// The contenders that are still there, each by its first node.
    async fn contenders<'g>(
        &self,
        session: &Session,
        groups: &'g [Group],
        asked: &mut u32,
    ) -> Result<Vec<(&'g Group, Node)>> {
        let first = |group: &Group| group.paths.first().cloned().unwrap_or_default();
        let paths: Vec<_> = groups.iter().map(first).collect();
        let mut nodes = self.read(session, &paths, asked).await?.into_iter().peekable();
        let still = |group: &'g Group| {
            let node = nodes.next_if(|node| Some(&node.path) == group.paths.first())?;
            Some((group, node))
        };
        Ok(groups.iter().filter_map(still).collect())
    }

    /// The children of each folder; none of one that is not there.
    async fn list(&self, session: &Session, folders: &[String], asked: &mut u32) -> Result<Vec<Vec<String>>> {
        let mut found = Vec::with_capacity(folders.len());
        self.each(session, folders, requests::children, asked, |folder, answer| {
            found.push(match answer.code {
                code::OK => answer.children().ok_or_else(|| unreadable("a member"))?,
                code::NO_NODE => Vec::new(),
                code => return Err(refused(code, folder)),
            });
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// The nodes that are still there, in this order.
    async fn read(&self, session: &Session, paths: &[String], asked: &mut u32) -> Result<Vec<Node>> {
        let mut found = Vec::with_capacity(paths.len());
        self.each(session, paths, requests::data, asked, |path, answer| {
            match answer.code {
                code::OK => {
                    let (data, stat) = answer.data().ok_or_else(|| unreadable("a member"))?;
                    found.push(Node { path: path.to_owned(), data, stat });
                }
                code::NO_NODE => {}
                code => return Err(refused(code, path)),
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    async fn each(
        &self,
        session: &Session,
        paths: &[String],
        request: fn(&str) -> Request,
        asked: &mut u32,
        mut with: impl FnMut(&str, &super::protocol::answers::Answer) -> Result<()>,
    ) -> Result<()> {
        for some in paths.chunks(TOGETHER) {
            *asked += some.len() as u32;
            let answers = session.ask(some.iter().map(|path| request(path)).collect()).await?;
            for (path, answer) in some.iter().zip(&answers) {
                with(path, answer)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn break_lease(self: Arc<Self>, request: BreakRequest) -> Result<BreakOutcome> {
        let name = LockName::new(&request.name)?;
        let session = self.pool.main()?;
        let folder = self.config.nodes.lock(name.as_str());
        session.ask(vec![requests::sync(&folder)]).await?;
        for _ in 0..TRIES {
            let mut asked = 0;
            let children = self.list(&session, std::slice::from_ref(&folder), &mut asked).await?;
            let permits =
                self.permits(&session, std::slice::from_ref(&folder), &children, &mut asked).await?;
            let ([locks, leases], children) =
                (permits.into_iter().next().unwrap_or_default(), children.concat());
            let standing = standing(&folder, children, locks, leases);
            if standing.groups.is_empty() {
                return Ok(BreakOutcome::Free);
            }
            let entries = self.contenders(&session, &standing.groups, &mut asked).await?;
            let holders: Vec<_> = entries.iter().filter(|(group, _)| group.holds).collect();
            let Some(present) = holders.first().map(|(_, node)| node.fence()) else {
                // A semaphore whose permits are all free has no holder.
                if standing.groups.iter().any(|group| group.holds) {
                    continue;
                }
                return Ok(BreakOutcome::Free);
            };
            let Some((group, holder)) =
                holders.into_iter().find(|(_, node)| node.fence() == request.expected)
            else {
                return Ok(BreakOutcome::ChangedHands { present });
            };
            let Some(record) = Record::read(&holder.data) else {
                return Err(Error::new(
                    ErrorKind::NameConflict,
                    format!(
                        "lock {:?} is held by a program that is not Polylatch; to end its lease, delete its node {}",
                        name.as_str(),
                        holder.path
                    ),
                ));
            };
            let at_ms = wall_ms();
            let entry = serde_json::to_vec(&broken(&request, &record.client, at_ms)).unwrap_or_default();
            let path = self.config.nodes.broken_at(at_ms, request.expected.get());
            let end = requests::replace(&group.paths, &path, Lives::On, [&entry[..]], self.own_rights());
            let answers = session.ask(vec![end]).await?;
            let failed = match answers[0].code {
                code::OK => answers[0].together().ok_or_else(|| unreadable("a member"))?.err(),
                code => Some(code),
            };
            match failed {
                None => {
                    self.trim_audit();
                    return Ok(BreakOutcome::Broken { next: next(&entries, group), holder: record.client });
                }
                // The holder's node, or the folder of breaks.
                Some(code::NO_NODE) => self.make_folders(&session, &path).await?,
                Some(code) => return Err(refused(code, &path)),
            }
        }
        Err(Error::new(ErrorKind::BackendUnavailable, "too many concurrent updates to this lock; retrying"))
    }

    /// Removes the oldest breaks, in the background: nobody waits for that.
    fn trim_audit(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            let (session, folder) = (inner.pool.main()?, inner.config.nodes.broken());
            let mut all = inner.list(&session, std::slice::from_ref(&folder), &mut 0).await?.remove(0);
            all.sort_unstable_by(|one, other| other.cmp(one));
            let old = all.get(AUDIT_LENGTH..).unwrap_or_default();
            let delete =
                old.iter().map(|node| requests::delete(&format!("{folder}/{node}"))).collect::<Vec<_>>();
            if !delete.is_empty() {
                session.ask(delete).await?;
            }
            Result::<()>::Ok(())
        });
    }
}

impl Node {
    fn fence(&self) -> FencingToken {
        let kept = Record::read(&self.data).and_then(|record| record.fence);
        FencingToken::new(kept.unwrap_or(self.stat.created as u64))
    }
}

/// The first waiter, if it enters when this holder is gone.
fn next(entries: &[(&Group, Node)], gone: &Group) -> Option<ClientId> {
    let others = entries.iter().filter(|(group, _)| group.holds && *group != gone);
    let held: usize = others.map(|(group, _)| group.paths.len()).sum();
    let (_, node) = entries.iter().find(|(group, _)| !group.holds)?;
    let record = Record::read(&node.data)?;
    let is_free = match record.capacity() {
        Some(capacity) => held + record.permits() as usize <= capacity as usize,
        None => held == 0,
    };
    is_free.then_some(record.client)
}

fn seen<'e>((group, node): &'e (&Group, Node)) -> Seen<'e> {
    Seen {
        holds: group.holds,
        mode: group.mode,
        permits: group.paths.len() as u32,
        value: &node.data,
        fence: node.fence(),
        details: vec![
            Detail::new("node", node.path.clone()),
            Detail::new("session", format!("{:#x}", node.stat.session)),
        ],
    }
}
