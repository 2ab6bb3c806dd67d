//! Entering, queueing, and finding out whose turn it is.

use std::sync::Arc;

use crate::backend::contenders::records::{Record, hint};
use crate::backend::{Answer, Ask, Contender, HolderHint};
use crate::clock::{BootInstant, Clock, SystemClock, wall_ms};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitAnswer;

use super::acquisitions::{Acquisition, Own, State};
use super::backend::Inner;
use super::protocol::answers::{self, code};
use super::protocol::nodes::{self, Place};
use super::protocol::requests::{self, Lives};
use super::transport::errors::{closed, refused, unreadable};
use super::transport::session::{Session, is_probed};

/// How often one poll begins again because what it saw has changed meanwhile.
const TRIES: usize = 8;

/// The share of a lease for which a waiter's session is kept known to live, so that it enters without asking.
const READY: (u32, u32) = (3, 4);

impl Inner {
    pub(crate) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let acquisition = self.acquisitions.of(contender.owner);
        let mut state = acquisition.state.lock().await;
        for _ in 0..TRIES {
            match self.step(&acquisition, &mut state, &contender, ask).await {
                Ok(Some(answer)) => {
                    if matches!(answer, Answer::Wait { .. }) && ask == Ask::Try {
                        self.acquisitions.forget(contender.owner);
                    }
                    return Ok(answer);
                }
                Ok(None) => {}
                // What it had is gone with its session; another one is made.
                Err(error)
                    if error.kind() == ErrorKind::BackendUnavailable
                        && error.effect() == Effect::None
                        && state.session.as_ref().is_some_and(|session| session.is_ended()) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::BackendUnavailable, "too many concurrent updates to this lock; retrying"))
    }

    /// One attempt. `None` if it has to be made again.
    async fn step(
        &self,
        acquisition: &Acquisition,
        state: &mut State,
        contender: &Arc<Contender>,
        ask: Ask,
    ) -> Result<Option<Answer>> {
        if acquisition.is_ended() || self.is_closed() {
            return Err(closed());
        }
        let session = match &state.session {
            Some(session) if !session.is_ended() => Arc::clone(session),
            _ => {
                let session = self.pool.session(contender.lease.max(contender.first_lease))?;
                state.begin(Arc::clone(&session))?;
                session
            }
        };
        let begun = SystemClock.now();
        if state.uncertain {
            self.find_own(state, contender, &session).await?;
        }
        let queue = match &state.node {
            Some(_) => self.queue(&session, state, contender, begun).await?,
            None => {
                if ask == Ask::Try
                    && let Some(answer) = self.look(&session, contender).await?
                {
                    return Ok(Some(answer));
                }
                self.enter(&session, state, contender).await?
            }
        };
        let Some(queue) = queue else { return Ok(None) };
        let Some(own) = state.node.clone() else { return Ok(None) };
        let Some(at) = queue.iter().position(|place| place.node == own.name()) else {
            // An operator has deleted it.
            state.node = None;
            return Ok(None);
        };
        if at == 0 {
            self.make_sure(&session, begun, contender).await?;
            session.forget(contender.owner);
            session.holds(contender.owner, own.fence);
            self.leases.hold(contender, begun + contender.first_lease);
            return Ok(Some(Answer::Held { fence: FencingToken::new(own.fence) }));
        }
        if ask == Ask::Try {
            let holder = self.holder(&session, state, contender, &queue[0]).await?;
            self.remove(&session, state).await?;
            return Ok(Some(wait(at, holder)));
        }
        if !std::mem::replace(&mut state.queued, true) {
            self.say_queued(&session, &own, contender);
        }
        let before = self.path(contender, &queue[at - 1]);
        if !session.watches(&before, contender.owner) {
            let answers = session.ask_for(vec![requests::watched(&before)], Some(contender.owner)).await?;
            match answers[0].code {
                code::OK => {
                    let (data, stat) = answers[0].data().ok_or_else(|| unreadable("a member"))?;
                    if at == 1 {
                        if stat.session == 0 {
                            return Err(self.not_a_lock(&session, state, &before).await);
                        }
                        let holder = (before, stat.created as u64, hint(&data, wall_ms()));
                        state.holder = Some(holder);
                    }
                }
                // Its turn may have come.
                code::NO_NODE => return Ok(None),
                code => return Err(refused(code, &before)),
            }
        }
        let holder = self.holder(&session, state, contender, &queue[0]).await?;
        Ok(Some(wait(at, holder)))
    }

    /// The queue as it is now, or `None` without the lock's folder.
    async fn queue(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
        now: BootInstant,
    ) -> Result<Option<Vec<Place>>> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        let mut together = Vec::new();
        // One that was woken has no watch any more, and does not wait for this.
        if session.is_watching(contender.owner) && !session.lasts(now, contender.lease * READY.0 / READY.1) {
            together.push(session.probe());
        }
        together.push(requests::children(&lock));
        let answers = session.ask(together).await?;
        let last = answers.last().ok_or_else(|| unreadable("a member"))?;
        if last.code == code::NO_NODE {
            state.node = None;
            return Ok(None);
        }
        children(last, &lock).map(Some)
    }

    /// What a contender that does not wait is answered while there are others; `None` if there are none.
    async fn look(&self, session: &Session, contender: &Contender) -> Result<Option<Answer>> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        // A member that lags would show a lock that was released.
        let answers = session.ask(vec![requests::sync(&lock), requests::children(&lock)]).await?;
        if answers[1].code == code::NO_NODE {
            return Ok(None);
        }
        let queue = children(&answers[1], &lock)?;
        let Some(first) = queue.first() else { return Ok(None) };
        let holder = self.holder(session, &mut State::default(), contender, first).await?;
        Ok(holder.is_some().then(|| wait(queue.len(), holder)))
    }

    /// Creates its node, and reads the queue behind it in the same round trip.
    async fn enter(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
    ) -> Result<Option<Vec<Place>>> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        let path = self.config.nodes.contender(contender.name.as_str(), state.id);
        let record = Record::of(contender, wall_ms(), false).bytes();
        let create = requests::create(&path, &record, Lives::WithSessionInOrder, self.own_rights());
        state.uncertain = true;
        let answered = session.ask(vec![create, requests::children(&lock)]).await;
        if answered.as_ref().map_or_else(Error::effect, |_| Effect::None) == Effect::None {
            state.uncertain = false;
        }
        let answers = answered?;
        match answers[0].code {
            code::OK => {}
            code::NO_NODE => {
                self.make_folders(session, &path).await?;
                return Ok(None);
            }
            code => return Err(refused(code, &lock)),
        }
        let (path, stat) = answers[0].created().ok_or_else(|| unreadable("a member"))?;
        state.node = Some(Own { path, fence: stat.created as u64 });
        children(&answers[1], &lock).map(Some)
    }

    /// Writes into its node, in the background, that it was not granted when it came: only a waiter's node says so, and no
    /// acquisition of a free lock pays for it.
    fn say_queued(&self, session: &Arc<Session>, own: &Own, contender: &Contender) {
        let record = Record::of(contender, wall_ms(), true).bytes();
        let (session, write) = (Arc::clone(session), requests::write(&own.path, &record));
        self.runtime.spawn(async move { session.ask(vec![write]).await });
    }

    /// Finds out what came of a creation whose answer was lost. The probe goes first: what was accepted before it is there
    /// when the queue is read, and what is still on its way from a connection before is refused (`SessionMoved`), or was
    /// carried out before it by the same member.
    pub(crate) async fn find_own(
        &self,
        state: &mut State,
        contender: &Contender,
        session: &Session,
    ) -> Result<()> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        let answers = session.ask(vec![session.probe(), requests::children(&lock)]).await?;
        if !is_probed(&answers[0]) {
            return Err(refused(answers[0].code, &lock));
        }
        state.node = None;
        let queue = match answers[1].code {
            code::NO_NODE => Vec::new(),
            _ => children(&answers[1], &lock)?,
        };
        let own = nodes::own(state.id);
        for place in queue.iter().filter(|place| place.node.starts_with(&own)) {
            let path = self.path(contender, place);
            let answers = session.ask(vec![requests::exists(&path)]).await?;
            // A node of another session ends with that, whatever its name.
            if let Some(stat) =
                answers[0].stat().filter(|stat| answers[0].is_ok() && stat.session == session.id())
            {
                state.node = Some(Own { path, fence: stat.created as u64 });
            }
        }
        state.uncertain = false;
        Ok(())
    }

    /// Sees to it that the session certainly lives for the contender's first lease from `begun` on.
    async fn make_sure(&self, session: &Session, begun: BootInstant, contender: &Contender) -> Result<()> {
        for again in [true, false] {
            if session.lasts(begun, contender.first_lease) {
                return Ok(());
            }
            session.ask(vec![session.probe()]).await?;
            if again && !session.lasts(begun, contender.first_lease) {
                // What was exchanged just now has reached the leader a tick later.
                tokio::time::sleep(self.config.tick).await;
            }
        }
        match session.lasts(begun, contender.first_lease) {
            true => Ok(()),
            false => Err(unconfirmed()),
        }
    }

    /// Who holds the lock by this node, and its fence. `None` if it was released just now.
    async fn holder(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
        first: &Place,
    ) -> Result<Option<(u64, HolderHint)>> {
        let path = self.path(contender, first);
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

    /// The first node hangs on no session, so it is no contender's and would never end.
    async fn not_a_lock(&self, session: &Session, state: &mut State, path: &str) -> Error {
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

    /// Deletes its own node.
    async fn remove(&self, session: &Session, state: &mut State) -> Result<()> {
        let Some(own) = &state.node else { return Ok(()) };
        let answers = session.ask(vec![requests::delete(&own.path)]).await?;
        match answers[0].code {
            code::OK | code::NO_NODE => {
                state.node = None;
                Ok(())
            }
            code => Err(refused(code, &own.path)),
        }
    }

    /// Creates the folders above a node. That of a lock is removed by the servers some time after its last contender.
    pub(crate) async fn make_folders(&self, session: &Session, path: &str) -> Result<()> {
        let folders = self.config.nodes.folders_above(path);
        let last = folders.len() - 1;
        let creations = folders.iter().enumerate().map(|(at, folder)| {
            let lives = if at == last { Lives::WithChildren } else { Lives::On };
            requests::create(folder, b"", lives, self.own_rights())
        });
        let answers = session.ask(creations.collect()).await?;
        for (at, answer) in answers.iter().enumerate() {
            match answer.code {
                code::OK | code::NODE_EXISTS => {}
                code::NO_NODE if at == 0 => return Err(self.no_chroot()),
                // Servers before 3.5 have no containers; the folder then stays.
                code::UNIMPLEMENTED | code::BAD_ARGUMENTS if at == last => {
                    let create = requests::create(folders[at], b"", Lives::On, self.own_rights());
                    let answers = session.ask(vec![create]).await?;
                    if !matches!(answers[0].code, code::OK | code::NODE_EXISTS) {
                        return Err(refused(answers[0].code, folders[at]));
                    }
                }
                code => return Err(refused(code, folders[at])),
            }
        }
        Ok(())
    }

    /// Whether nodes are created so that only this user can change them.
    pub(crate) fn own_rights(&self) -> bool {
        self.config.login.is_some()
    }

    fn path(&self, contender: &Contender, place: &Place) -> String {
        format!("{}/{}", self.config.nodes.lock(contender.name.as_str()), place.node)
    }
}

pub(crate) fn unconfirmed() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "ZooKeeper's leader has not confirmed for long enough yet that the session of this client lives; it is asked again",
    )
}

fn children(answer: &answers::Answer, lock: &str) -> Result<Vec<Place>> {
    match answer.code {
        code::OK => {
            let children = answer.children().ok_or_else(|| unreadable("a member"))?;
            nodes::queue(children).ok_or_else(|| used_up(lock))
        }
        code => Err(refused(code, lock)),
    }
}

fn used_up(lock: &str) -> Error {
    let message = format!(
        "the 2^31 sequence numbers of ZooKeeper's node {lock:?} are used up; delete the node when no client uses the lock, \
         or use another name"
    );
    Error::new(ErrorKind::BackendRejected, message)
}

/// `at`: how many there are before it.
fn wait(at: usize, holder: Option<(u64, HolderHint)>) -> Answer {
    let answer = WaitAnswer {
        fence: holder.as_ref().map_or(0, |(fence, _)| *fence),
        position: Some(at.saturating_sub(1) as u32),
        holder_left: None,
        poll_within: None,
    };
    Answer::Wait { answer, holder: holder.map(|(_, said)| said) }
}
