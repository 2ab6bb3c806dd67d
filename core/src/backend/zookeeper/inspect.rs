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
use crate::wakeups::unpoisoned;

use super::backend::Inner;
use super::protocol::answers::{Stat, code};
use super::protocol::nodes;
use super::protocol::requests::{self, Lives, Request};
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
        let mut snapshot = Snapshot {
            backend: "zookeeper".into(),
            taken_at_ms: wall_ms(),
            round_trip: Duration::ZERO,
            requests: 0,
            locks: Vec::new(),
            clients: Vec::new(),
            audit: Vec::new(),
            truncated: false,
            troubles: Vec::new(),
        };
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
        for ((name, folder), children) in names.into_iter().zip(&folders).zip(queues) {
            let queue = nodes::queue(children).unwrap_or_default();
            // The folder of a lock outlives its last contender for a while.
            if queue.is_empty() && query.name.is_none() {
                continue;
            }
            if snapshot.locks.len() == query.limit() {
                snapshot.truncated = true;
                break;
            }
            let paths: Vec<_> = queue.iter().map(|place| format!("{folder}/{}", place.node)).collect();
            let entries = self.read(&session, &paths, &mut snapshot.requests).await?;
            if entries.is_empty() && query.name.is_none() {
                continue;
            }
            snapshot.locks.push(lock_view(name, entries.iter().map(seen), now_ms));
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
            let children = self.list(&session, std::slice::from_ref(&folder), &mut asked).await?.remove(0);
            let front: Vec<_> = nodes::queue(children)
                .unwrap_or_default()
                .iter()
                .take(2)
                .map(|place| format!("{folder}/{}", place.node))
                .collect();
            let mut entries = self.read(&session, &front, &mut asked).await?.into_iter();
            let Some(holder) = entries.next() else {
                if front.is_empty() {
                    return Ok(BreakOutcome::Free);
                }
                continue;
            };
            if holder.stat.created as u64 != request.expected.get() {
                let present = FencingToken::new(holder.stat.created as u64);
                return Ok(BreakOutcome::ChangedHands { present });
            }
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
            let end = requests::replace(&holder.path, &path, &entry, self.own_rights());
            let answers = session.ask(vec![end]).await?;
            let failed = match answers[0].code {
                code::OK => answers[0].failed_part().ok_or_else(|| unreadable("a member"))?,
                code => code,
            };
            match failed {
                code::OK => {
                    self.trim_audit();
                    let next =
                        entries.next().and_then(|next| Record::read(&next.data)).map(|next| next.client);
                    return Ok(BreakOutcome::Broken { holder: record.client, next });
                }
                // The holder's node, or the folder of breaks.
                code::NO_NODE => self.make_folders(&session, &path).await?,
                code => return Err(refused(code, &path)),
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

fn seen(node: &Node) -> Seen<'_> {
    Seen {
        value: &node.data,
        fence: FencingToken::new(node.stat.created as u64),
        details: vec![
            Detail::new("node", node.path.clone()),
            Detail::new("session", format!("{:#x}", node.stat.session)),
        ],
    }
}
