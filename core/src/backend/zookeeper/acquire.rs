//! Entering, queueing, and finding out whose turn it is.

use std::sync::Arc;

use crate::backend::contenders::records::{Record, hint};
use crate::backend::{Answer, Ask, Contender, HolderHint};
use crate::clock::{BootInstant, Clock, SystemClock, wall_ms};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitAnswer;

use super::acquisitions::{Acquisition, Own, State};
use super::backend::Inner;
use super::protocol::answers::code;
use super::protocol::nodes::{self, Role};
use super::protocol::requests::{self, Lives};
use super::protocol::turns::{Turn, turn_behind};
use super::queue::Seen;
use super::transport::errors::{closed, refused, unreadable};
use super::transport::session::Session;

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
                    let is_over = match answer {
                        Answer::Wait { .. } => ask == Ask::Try,
                        _ => !matches!(answer, Answer::Held { .. }),
                    };
                    if is_over {
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
        if state.has_permits {
            return self.confirm_permits(&session, state, contender, begun).await;
        }
        let seen = match &state.node {
            Some(_) => self.seen_again(&session, contender, begun).await?,
            None => {
                if ask == Ask::Try
                    && let Some(answer) = self.look(&session, contender).await?
                {
                    return Ok(Some(answer));
                }
                let Some(seen) = self.enter(&session, state, contender).await? else { return Ok(None) };
                let own = state.node.as_ref().map(Own::name);
                if let Some(present) = self.other_kind(&session, contender, &seen, own).await? {
                    self.remove(&session, state).await?;
                    return Ok(Some(Answer::OtherKind { present }));
                }
                seen
            }
        };
        let Some(own) = state.node.clone() else { return Ok(None) };
        let queue = seen.queue.as_deref().unwrap_or_default();
        let Some(at) = queue.iter().position(|place| place.node == own.name()) else {
            // An operator has deleted it.
            state.node = None;
            return Ok(None);
        };
        let (behind, waiters) = match turn_behind(&queue[..at], Role::of(contender.mode)) {
            Turn::OtherKind(present) => {
                self.remove(&session, state).await?;
                return Ok(Some(Answer::OtherKind { present }));
            }
            Turn::Enters => match contender.mode {
                Mode::Permits { .. } => {
                    return self.take_permits(&session, state, contender, seen, begun, ask).await;
                }
                _ => return self.hold(&session, contender, &own, begun).await.map(Some),
            },
            // Those who have permits are not in the queue of a semaphore.
            Turn::Waits { behind, waiters } => match contender.mode {
                Mode::Permits { .. } => (behind, at),
                _ => (behind, waiters),
            },
        };
        if ask == Ask::Try {
            let holder = self.holder_of(&session, state, contender, &seen).await?;
            self.remove(&session, state).await?;
            return Ok(Some(wait(waiters, holder)));
        }
        if !std::mem::replace(&mut state.queued, true) {
            self.say_queued(&session, &own, contender);
        }
        let before =
            format!("{}/{}", self.config.nodes.queue(contender.name.as_str(), contender.mode), behind.node);
        if !session.watches(&before, contender.owner) {
            let answers = session.ask_for(vec![requests::watched(&before)], Some(contender.owner)).await?;
            match answers[0].code {
                code::OK => {
                    let (data, stat) = answers[0].data().ok_or_else(|| unreadable("a member"))?;
                    if stat.session == 0 {
                        return Err(self.not_a_lock(&session, state, &before).await);
                    }
                    if queue[0] == *behind && seen.leases.is_empty() {
                        let holder = (before, stat.created as u64, hint(&data, wall_ms()));
                        state.holder = Some(holder);
                    }
                }
                // Its turn may have come.
                code::NO_NODE => return Ok(None),
                code => return Err(refused(code, &before)),
            }
        }
        let holder = self.holder_of(&session, state, contender, &seen).await?;
        Ok(Some(wait(waiters, holder)))
    }

    /// The lock is this contender's by its node, as long as the session lives.
    pub(crate) async fn hold(
        &self,
        session: &Session,
        contender: &Arc<Contender>,
        own: &Own,
        begun: BootInstant,
    ) -> Result<Answer> {
        self.make_sure(session, begun, contender).await?;
        session.forget(contender.owner);
        session.holds(contender.owner, own.fence);
        self.leases.hold(contender, begun + contender.first_lease);
        Ok(Answer::Held { fence: FencingToken::new(own.fence) })
    }

    /// The queue as it is now.
    async fn seen_again(&self, session: &Session, contender: &Contender, now: BootInstant) -> Result<Seen> {
        let mut together = Vec::new();
        // One that was woken has no watch any more, and does not wait for this.
        if session.is_watching(contender.owner) && !session.lasts(now, contender.lease * READY.0 / READY.1) {
            together.push(session.probe());
        }
        let probes = together.len();
        together.extend(self.reads(contender));
        let answers = session.ask(together).await?;
        self.seen(contender, &answers[probes..])
    }

    /// What a contender that does not wait is answered while there are others; `None` if it may enter.
    async fn look(&self, session: &Session, contender: &Contender) -> Result<Option<Answer>> {
        let lock = self.config.nodes.lock(contender.name.as_str());
        // A member that lags would show a lock that was released.
        let together = [requests::sync(&lock)].into_iter().chain(self.reads(contender)).collect();
        let answers = session.ask(together).await?;
        let seen = self.seen(contender, &answers[1..])?;
        if let Some(present) = self.other_kind(session, contender, &seen, None).await? {
            return Ok(Some(Answer::OtherKind { present }));
        }
        let queue = seen.queue.as_deref().unwrap_or_default();
        let waiters = match (contender.mode, turn_behind(queue, Role::of(contender.mode))) {
            (_, Turn::OtherKind(present)) => return Ok(Some(Answer::OtherKind { present })),
            (Mode::Permits { .. }, Turn::Enters) if fits(contender.mode, seen.leases.len()) => {
                return Ok(None);
            }
            (Mode::Permits { .. }, _) => queue.len(),
            (_, Turn::Enters) => return Ok(None),
            (_, Turn::Waits { waiters, .. }) => waiters,
        };
        let holder = self.holder_of(session, &mut State::default(), contender, &seen).await?;
        Ok(holder.is_some().then(|| wait(waiters, holder)))
    }

    /// Creates its node, and reads the queue behind it in the same round trip. `None` if it has to be done again.
    async fn enter(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
    ) -> Result<Option<Seen>> {
        let folder = self.config.nodes.queue(contender.name.as_str(), contender.mode);
        let path = format!("{folder}/{}", nodes::without_number(state.id, Role::of(contender.mode)));
        let record = Record::of(contender, wall_ms(), false).bytes();
        let create = requests::create(&path, &record, Lives::WithSessionInOrder, self.own_rights());
        state.uncertain = true;
        let together = [create].into_iter().chain(self.reads(contender)).collect();
        let answered = session.ask(together).await;
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
            code => return Err(refused(code, &folder)),
        }
        let (path, stat) = answers[0].created().ok_or_else(|| unreadable("a member"))?;
        state.node = Some(Own::created([path], stat.created as u64));
        self.seen(contender, &answers[1..]).map(Some)
    }

    /// Writes into its node, in the background, that it was not granted when it came: only a waiter's node says so, and no
    /// acquisition of a free lock pays for it.
    pub(crate) fn say_queued(&self, session: &Arc<Session>, own: &Own, contender: &Contender) {
        let record = Record::of(contender, wall_ms(), true).bytes();
        let (session, write) = (Arc::clone(session), requests::write(own.path(), &record));
        self.runtime.spawn(async move { session.ask(vec![write]).await });
    }

    /// Sees to it that the session certainly lives for the contender's first lease from `begun` on.
    pub(crate) async fn make_sure(
        &self,
        session: &Session,
        begun: BootInstant,
        contender: &Contender,
    ) -> Result<()> {
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

    async fn holder_of(
        &self,
        session: &Session,
        state: &mut State,
        contender: &Contender,
        seen: &Seen,
    ) -> Result<Option<(u64, HolderHint)>> {
        match self.holder_path(contender, seen) {
            Some(path) => self.holder(session, state, path).await,
            None => Ok(None),
        }
    }

    /// Deletes its own nodes.
    pub(crate) async fn remove(&self, session: &Session, state: &mut State) -> Result<()> {
        let Some(own) = &state.node else { return Ok(()) };
        let answers = session.ask(own.paths.iter().map(|path| requests::delete(path)).collect()).await?;
        for (path, answer) in own.paths.iter().zip(&answers) {
            if !matches!(answer.code, code::OK | code::NO_NODE) {
                return Err(refused(answer.code, path));
            }
        }
        (state.node, state.has_permits) = (None, false);
        Ok(())
    }

    /// Creates the folders above a node. Those of a lock are removed by the servers some time after its last contender.
    pub(crate) async fn make_folders(&self, session: &Session, path: &str) -> Result<()> {
        let folders = self.config.nodes.folders_above(path);
        let is_container = |folder: &str| self.config.nodes.is_of_lock(folder);
        let creations = folders.iter().map(|&folder| {
            let lives = if is_container(folder) { Lives::WithChildren } else { Lives::On };
            requests::create(folder, b"", lives, self.own_rights())
        });
        let answers = session.ask(creations.collect()).await?;
        for (at, answer) in answers.iter().enumerate() {
            match answer.code {
                code::OK | code::NODE_EXISTS => {}
                code::NO_NODE if at == 0 => return Err(self.no_chroot()),
                // Servers before 3.5 have no containers; the folder then stays.
                code::UNIMPLEMENTED | code::BAD_ARGUMENTS if is_container(folders[at]) => {
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
}

pub(crate) fn unconfirmed() -> Error {
    Error::new(
        ErrorKind::BackendUnavailable,
        "ZooKeeper's leader has not confirmed for long enough yet that the session of this client lives; it is asked again",
    )
}

/// Whether as many permits as this are free beside those that are taken.
pub(crate) fn fits(mode: Mode, taken: usize) -> bool {
    match mode {
        Mode::Permits { count, capacity } => taken + count as usize <= capacity as usize,
        _ => taken == 0,
    }
}

/// `waiters`: how many there are before it.
pub(crate) fn wait(waiters: usize, holder: Option<(u64, HolderHint)>) -> Answer {
    let answer = WaitAnswer {
        fence: holder.as_ref().map_or(0, |(fence, _)| *fence),
        position: Some(waiters as u32),
        holder_left: None,
        poll_within: None,
    };
    Answer::Wait { answer, holder: holder.map(|(_, said)| said) }
}
