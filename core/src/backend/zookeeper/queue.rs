//! Reading who stands at a lock's name, and what of it is our own.

use crate::backend::Contender;
use crate::backend::HolderHint;
use crate::backend::contenders::records::{Record, hint};
use crate::clock::wall_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::mode::{Kind, Mode};

use super::acquisitions::{Own, State};
use super::backend::Inner;
use super::protocol::answers::{Answer, code};
use super::protocol::nodes::{self, LEASES, LOCKS, Place};
use super::protocol::requests::{self, Request};
use super::protocol::turns::kind_of;
use super::transport::errors::{refused, unreadable};
use super::transport::session::{Session, is_probed};

/// The children of a lock's folders.
pub(crate) struct Seen {
    /// Without the folder in which contenders of this mode queue there is none.
    pub queue: Option<Vec<Place>>,
    /// The permits of a semaphore, if it is one that is wanted.
    pub leases: Vec<Place>,
    /// Contenders of a mutex or a read-write lock at a name for which a semaphore is wanted.
    others: Vec<Place>,
    /// The name has the folders of a semaphore, whatever is wanted.
    has_permits: bool,
}

impl Inner {
    /// What has to be read together.
    pub(crate) fn reads(&self, contender: &Contender) -> Vec<Request> {
        let name = contender.name.as_str();
        let lock = self.config.nodes.lock(name);
        let mut all = vec![requests::children(&lock)];
        if let Mode::Permits { .. } = contender.mode {
            all.push(requests::children(&self.config.nodes.queue(name, contender.mode)));
            all.push(requests::children(&self.config.nodes.leases(name)));
        }
        all
    }

    /// The answers to [`Inner::reads`].
    pub(crate) fn seen(&self, contender: &Contender, answers: &[Answer]) -> Result<Seen> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        let list = |at: usize| names(answers.get(at).ok_or_else(|| unreadable("a member"))?, &lock);
        let all = list(0)?;
        let has_permits = all.iter().flatten().any(|child| child == LOCKS || child == LEASES);
        let places = |names: Option<Vec<String>>| {
            names.map(|names| nodes::queue(names).ok_or_else(|| used_up(&lock))).transpose()
        };
        if let Mode::Permits { .. } = contender.mode {
            let others = places(all)?.unwrap_or_default();
            let leases = places(list(2)?)?.unwrap_or_default();
            return Ok(Seen { queue: places(list(1)?)?, leases, others, has_permits: false });
        }
        Ok(Seen { queue: places(all)?, leases: Vec::new(), others: Vec::new(), has_permits })
    }

    /// Whether the name is in use as another kind of lock by those who came before this node, or by anyone.
    pub(crate) async fn other_kind(
        &self,
        session: &Session,
        contender: &Contender,
        seen: &Seen,
        own: Option<&str>,
    ) -> Result<Option<Kind>> {
        let name = contender.name.as_str();
        let queue = seen.queue.as_deref().unwrap_or_default();
        if let Mode::Permits { capacity, .. } = contender.mode {
            if let Some(other) = seen.others.first() {
                return Ok(Some(kind_of(other.role())));
            }
            let waiter = queue.first().filter(|first| Some(first.node.as_str()) != own);
            let present = self.capacity(session, name, seen.leases.first(), waiter).await?;
            return Ok(present
                .filter(|present| *present != capacity)
                .map(|capacity| Kind::Semaphore { capacity }));
        }
        if !seen.has_permits {
            return Ok(None);
        }
        let folders = [format!("{}/{LOCKS}", self.config.nodes.lock(name)), self.config.nodes.leases(name)];
        let answers = session.ask(folders.iter().map(|folder| requests::children(folder)).collect()).await?;
        let mut places = Vec::new();
        for (answer, folder) in answers.iter().zip(&folders) {
            places.push(
                nodes::queue(names(answer, folder)?.unwrap_or_default()).ok_or_else(|| used_up(folder))?,
            );
        }
        if places.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let capacity = self.capacity(session, name, places[1].first(), places[0].first()).await?;
        // Curator's nodes do not say it.
        let least = places[1].len().max(1) as u32;
        Ok(Some(Kind::Semaphore { capacity: capacity.unwrap_or(least) }))
    }

    /// How many permits a semaphore has, by what its first holder or waiter says, if it is one of ours.
    async fn capacity(
        &self,
        session: &Session,
        name: &str,
        holder: Option<&Place>,
        waiter: Option<&Place>,
    ) -> Result<Option<u32>> {
        let nodes = &self.config.nodes;
        let holder = holder.map(|place| format!("{}/{}", nodes.leases(name), place.node));
        let waiter = waiter.map(|place| format!("{}/{LOCKS}/{}", nodes.lock(name), place.node));
        let paths: Vec<_> = [holder, waiter].into_iter().flatten().collect();
        if paths.is_empty() {
            return Ok(None);
        }
        let answers = session.ask(paths.iter().map(|path| requests::data(path)).collect()).await?;
        let mut said = answers.iter().filter(|answer| answer.is_ok()).filter_map(Answer::data);
        Ok(said.find_map(|(data, _)| Record::read(&data)?.capacity()))
    }

    /// Finds out what came of a request whose answer was lost. The probe goes first: what was accepted before it is there
    /// when the queue is read, and what is still on its way from a connection before is refused (`SessionMoved`), or was
    /// carried out before it by the same member.
    pub(crate) async fn find_own(
        &self,
        state: &mut State,
        contender: &Contender,
        session: &Session,
    ) -> Result<()> {
        let name = contender.name.as_str();
        let queue = self.config.nodes.queue(name, contender.mode);
        let mut folders = vec![queue];
        if let Mode::Permits { .. } = contender.mode {
            folders.push(self.config.nodes.leases(name));
        }
        let lists = folders.iter().map(|folder| requests::children(folder));
        let answers = session.ask([session.probe()].into_iter().chain(lists).collect()).await?;
        if !is_probed(&answers[0]) {
            return Err(refused(answers[0].code, &folders[0]));
        }
        (state.node, state.has_permits) = (None, false);
        let own = nodes::own(state.id);
        for (at, (folder, answer)) in folders.iter().zip(&answers[1..]).enumerate() {
            let found = names(answer, folder)?.unwrap_or_default();
            let found = found.into_iter().filter(|node| node.starts_with(&own));
            let paths: Vec<_> = found.map(|node| format!("{folder}/{node}")).collect();
            if paths.is_empty() {
                continue;
            }
            let answers = session.ask(paths.iter().map(|path| requests::exists(path)).collect()).await?;
            let mut present = Own::default();
            for (path, answer) in paths.into_iter().zip(&answers) {
                // A node of another session ends with that, whatever its name.
                if let Some(stat) =
                    answer.stat().filter(|stat| answer.is_ok() && stat.session == session.id())
                {
                    present.add(path, stat.created as u64);
                }
            }
            if !present.paths.is_empty() {
                (state.node, state.has_permits) = (Some(present), at == 1);
            }
        }
        state.uncertain = false;
        Ok(())
    }

    /// Who holds the lock by this node, and its fence. `None` if it was released just now.
    pub(crate) async fn holder(
        &self,
        session: &Session,
        state: &mut State,
        path: String,
    ) -> Result<Option<(u64, HolderHint)>> {
        if let Some((known, fence, said)) = &state.holder
            && *known == path
        {
            return Ok(Some((*fence, said.clone())));
        }
        let answers = session.ask(vec![requests::data(&path)]).await?;
        match answers[0].code {
            code::OK => {
                let (data, stat) = answers[0].data().ok_or_else(|| unreadable("a member"))?;
                if stat.session == 0 {
                    return Err(self.not_a_lock(session, state, &path).await);
                }
                let said = hint(&data, wall_ms());
                state.holder = Some((path, stat.created as u64, said.clone()));
                Ok(Some((stat.created as u64, said)))
            }
            code::NO_NODE => Ok(None),
            // Who it is may be hidden; that the lock is held is seen.
            code::NO_AUTH => Ok(Some((0, hint(b"", wall_ms())))),
            code => Err(refused(code, &path)),
        }
    }

    /// The node of a holder of the lock.
    pub(crate) fn holder_path(&self, contender: &Contender, seen: &Seen) -> Option<String> {
        let name = contender.name.as_str();
        if let Some(permit) = seen.leases.first() {
            return Some(format!("{}/{}", self.config.nodes.leases(name), permit.node));
        }
        let first = seen.queue.as_deref().unwrap_or_default().first()?;
        Some(format!("{}/{}", self.config.nodes.queue(name, contender.mode), first.node))
    }

    /// A node before ours hangs on no session, so it is no contender's and would never end.
    pub(crate) async fn not_a_lock(&self, session: &Session, state: &mut State, path: &str) -> Error {
        // What cannot be deleted now ends with the session.
        let _ = self.remove(session, state).await;
        Error::new(
            ErrorKind::NameConflict,
            format!(
                "node {path:?} was not created by a lock: it hangs on no session, so it would never end; it was not \
                 modified; use another name or prefix"
            ),
        )
    }
}

/// The children of a folder. `None` if it is not there.
pub(crate) fn names(answer: &Answer, folder: &str) -> Result<Option<Vec<String>>> {
    match answer.code {
        code::OK => answer.children().ok_or_else(|| unreadable("a member")).map(Some),
        code::NO_NODE => Ok(None),
        code => Err(refused(code, folder)),
    }
}

pub(crate) fn used_up(lock: &str) -> Error {
    let message = format!(
        "the 2^31 sequence numbers of ZooKeeper's node {lock:?} are used up; delete the node when no client uses the lock, \
         or use another name"
    );
    Error::new(ErrorKind::BackendRejected, message)
}
