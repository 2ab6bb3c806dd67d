//! Acquiring: the short way to a free lock, a place in line, and entering from there.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::consul::acquisition::{Acquisition, Place};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::records::{
    Beside, MUTEX_FLAGS, OWN_FLAGS, Record, SEMAPHORE_FLAGS, never_written,
};
use crate::backend::consul::protocol::view::{Change, Entrant, Use, View, lock_op};
use crate::backend::consul::sessions::{Session, busy, session_gone};
use crate::backend::consul::transport::api::{Entry, MOST_OPERATIONS, Op, Outcome, Refused};
use crate::backend::{Answer, Ask, Contender};
use crate::clock::wall_ms;
use crate::clock::{BootInstant, Clock, SystemClock, millis};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mode::{Kind, Mode};
use crate::name::LockName;
use crate::policy::backoff::Backoff;
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::WaitAnswer;

/// How often one verb looks again because others were faster.
pub(crate) const TRIES: usize = 24;

/// How many sessions of a semaphore are taken in one transaction with other things.
const PERMITS_AT_ONCE: usize = 40;

/// Polls of a waiter are answered without a request for this many heartbeat intervals at most.
const LONGEST_PATIENCE: u32 = 10;

/// What came of the short way.
enum Short {
    Taken(Answer),
    Delayed,
    Contended,
}

/// A lock, and up to which index it was seen.
pub(crate) struct Seen {
    pub view: View,
    pub index: u64,
}

impl Inner {
    pub(crate) async fn poll(self: Arc<Self>, contender: Arc<Contender>, ask: Ask) -> Result<Answer> {
        let acquisition = self.acquisitions.of(&contender);
        let _turn = acquisition.turn.lock().await;
        let mut answer = self.poll_in_turn(&acquisition, ask).await;
        if matches!(&answer, Err(error) if is_session_gone(error)) {
            // It ended before this acquisition had anything: one more try with a new one.
            answer = self.poll_in_turn(&acquisition, ask).await;
        }
        if let Ok(Answer::Wait { answer, .. }) = &mut answer
            && self.acquisitions.scouts(&contender.name, contender.owner, near(ask))
        {
            answer.poll_within = Some(near(ask));
        }
        match &answer {
            Err(error) if error.effect() == Effect::Maybe => acquisition.state().uncertain = true,
            Ok(Answer::Held { .. }) | Err(_) => {}
            Ok(_) if ask == Ask::Try => {
                self.finish(&acquisition).await;
            }
            Ok(_) => {}
        }
        answer
    }

    async fn poll_in_turn(self: &Arc<Self>, acquisition: &Arc<Acquisition>, ask: Ask) -> Result<Answer> {
        let contender = &acquisition.contender;
        let now = SystemClock.now();
        let session = self.session_for(acquisition).await?;
        self.freshen(acquisition, now).await?;
        if let Some(answer) = self.known_to_wait(acquisition, ask, now)
            && self.is_still_held(contender, ask).await?
        {
            return Ok(answer);
        }
        let (place, uncertain) = {
            let state = acquisition.state();
            (state.place.clone(), state.uncertain)
        };
        let is_new = place == Place::Nowhere && !uncertain;
        if is_new
            && contender.mode == Mode::Mutex
            && (contender.barge || !self.acquisitions.is_contended(&contender.name))
        {
            match self.take_free(acquisition, &session).await? {
                Short::Taken(answer) => return Ok(answer),
                Short::Delayed if ask == Ask::Try => return Ok(self.delayed(acquisition)),
                Short::Delayed | Short::Contended => {}
            }
        }
        let _alone = self.acquisitions.turn_at(contender, self.api.timeout / 4).await;
        let waits = ask != Ask::Try;
        // After a lost reply it may hold or stand in line already.
        let seen = match waits && place == Place::Nowhere && !uncertain {
            true => self.join(acquisition, &session).await?,
            false => self.look(contender).await?,
        };
        self.enter_or_wait(acquisition, &session, waits, seen).await
    }

    /// Sees to it that its sessions last: whatever is granted before the next poll is to hold for the
    /// first lease from now on.
    pub(crate) async fn freshen(&self, acquisition: &Acquisition, now: BootInstant) -> Result<()> {
        for session in acquisition.sessions() {
            if let Err(error) = self.sessions.fresh(&session, now, acquisition.contender.first_lease).await {
                if is_session_gone(&error) {
                    self.session_ended(&session);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The answer to a waiter whose turn is far away: it stands in line as long as its session lives,
    /// and a letter comes when it is its turn.
    fn known_to_wait(&self, acquisition: &Acquisition, ask: Ask, now: BootInstant) -> Option<Answer> {
        let Ask::Wait { .. } = ask else { return None };
        let state = acquisition.state();
        let Place::InLine { asked_at, position: position @ 1.., seen } = state.place else { return None };
        let patience = near(ask) * position.min(LONGEST_PATIENCE);
        if state.uncertain || !self.inbox.hears() || now.since(asked_at) >= patience {
            return None;
        }
        Some(wait(seen, Some(position), None))
    }

    /// Whether a lock has a holder, as far as this poll is to know: one waiter of each client asks at
    /// every interval. No message tells that a lock became free by the end of a session.
    async fn is_still_held(&self, contender: &Contender, ask: Ask) -> Result<bool> {
        if !self.acquisitions.scouts(&contender.name, contender.owner, near(ask)) {
            return Ok(true);
        }
        // Who holds a share stands in other keys than the held one: it reads all of them.
        if contender.mode != Mode::Mutex {
            return Ok(false);
        }
        let key = self.keys.lock(&contender.name);
        let Outcome::Done(found) = self.api.look(&[Op::Tree(key.clone())]).await? else { return Ok(false) };
        Ok(found.iter().any(|entry| entry.key == key && !entry.session.is_empty()))
    }

    /// The session, and those of the permits; after the loss of one, new ones.
    pub(crate) async fn session_for(self: &Arc<Self>, acquisition: &Acquisition) -> Result<Arc<Session>> {
        let present = acquisition.sessions();
        if let Some(session) = present.first()
            && present.iter().all(|session| !session.has_ended())
        {
            return Ok(Arc::clone(session));
        }
        {
            let mut state = acquisition.state();
            state.session = None;
            state.permits.clear();
            state.place = Place::Nowhere;
        }
        let contender = &acquisition.contender;
        let session = match contender.mode {
            Mode::Permits { count, .. } => {
                let permits =
                    self.sessions.permits(&contender.name, contender.lease, contender.owner, count).await?;
                let session = permits.first().map(|permit| Arc::clone(&permit.session));
                acquisition.state().permits = permits;
                session.ok_or_else(busy)?
            }
            _ => self.sessions.of(contender.lease, contender.owner).await?,
        };
        acquisition.state().session = Some(Arc::clone(&session));
        self.listen();
        Ok(session)
    }

    pub(crate) fn record(&self, acquisition: &Acquisition) -> Record {
        let delay = millis(self.sessions.lock_delay(acquisition.contender.lease));
        let permits = acquisition.state().permits.iter().map(|permit| permit.session.id.clone()).collect();
        Record::of(&acquisition.contender, delay, permits, wall_ms())
    }

    /// A free mutex for which nobody waits, in one transaction.
    async fn take_free(&self, acquisition: &Acquisition, session: &Arc<Session>) -> Result<Short> {
        let contender = &acquisition.contender;
        let (lock, line) = (self.keys.lock(&contender.name), self.keys.line_open(&contender.name));
        let record = self.record(acquisition).bytes();
        let mut ops = vec![session.in_epoch(), Op::CheckMissing(lock.clone())];
        if !contender.barge {
            ops.push(Op::CheckMissing(line));
        }
        ops.push(lock_op(lock.clone(), record, MUTEX_FLAGS, &session.id));
        match self.transact(acquisition, &ops).await? {
            Outcome::Done(written) => {
                let fence = index_of(&written, &lock);
                acquisition.granted(fence, lock, fence);
                Ok(Short::Taken(Answer::Held { fence: FencingToken::new(fence) }))
            }
            Outcome::Refused(refused) => {
                self.explain(session, &ops, &refused).await?;
                match refused.lock_delay() {
                    true => Ok(Short::Delayed),
                    false => {
                        self.acquisitions.note_contended(&contender.name, None);
                        Ok(Short::Contended)
                    }
                }
            }
        }
    }

    /// Carries out a transaction for an acquisition, and notes if nobody knows what came of it.
    pub(crate) async fn transact(&self, acquisition: &Acquisition, ops: &[Op]) -> Result<Outcome> {
        let outcome = self.api.transact(ops).await;
        if matches!(&outcome, Err(error) if error.effect() == Effect::Maybe) {
            acquisition.state().uncertain = true;
        }
        outcome
    }

    /// Looks into a refusal that is not about the lock: the session is gone, or its epoch has ended.
    pub(crate) async fn explain(&self, session: &Arc<Session>, ops: &[Op], refused: &Refused) -> Result<()> {
        let gone = refused.session_is_gone(&session.id)
            || (refused.concerns(ops, session.marker()) && !self.sessions.learn_epoch(session).await?);
        if gone {
            self.session_ended(session);
            return Err(session_gone());
        }
        Ok(())
    }

    pub(crate) fn trees(&self, name: &LockName, whole_folder: bool) -> Vec<Op> {
        let folder = if whole_folder { self.keys.folder(name) } else { self.keys.own(name) };
        let mut ops = vec![Op::Tree(folder)];
        if !self.keys.lock_is_in_folder() {
            ops.push(Op::Tree(self.keys.lock(name)));
        }
        ops
    }

    /// Reads one lock.
    pub(crate) async fn look(&self, contender: &Contender) -> Result<Seen> {
        self.look_at(&contender.name, matches!(contender.mode, Mode::Permits { .. })).await
    }

    pub(crate) async fn look_at(&self, name: &LockName, whole_folder: bool) -> Result<Seen> {
        match self.api.look(&self.trees(name, whole_folder)).await? {
            Outcome::Done(entries) => self.seen(name, whole_folder, entries).await,
            Outcome::Refused(refused) => Err(Error::new(
                ErrorKind::BackendRejected,
                format!("Consul refused to read {name:?}: {:?}", refused.causes),
            )),
        }
    }

    pub(crate) async fn seen(
        &self,
        name: &LockName,
        whole_folder: bool,
        entries: Vec<Entry>,
    ) -> Result<Seen> {
        let is_semaphore =
            entries.iter().any(|entry| entry.flags == SEMAPHORE_FLAGS && entry.key == self.keys.lock(name));
        if is_semaphore && !whole_folder {
            // Whether anybody holds a semaphore stands in keys of other names.
            return Box::pin(self.look_at(name, true)).await;
        }
        let index = entries.iter().map(|entry| entry.modified).max().unwrap_or(0);
        Ok(Seen { view: View::read(&self.keys, name, entries), index })
    }

    /// Stands in line, and reads the lock in the same step; where a long line waits for a mutex that is
    /// held, without the line: it says nothing that matters then.
    async fn join(&self, acquisition: &Acquisition, session: &Arc<Session>) -> Result<Seen> {
        let contender = &acquisition.contender;
        let name = &contender.name;
        let whole_folder = matches!(contender.mode, Mode::Permits { .. });
        self.claim_permits(acquisition, session).await?;
        let lock_alone = contender.mode == Mode::Mutex && self.acquisitions.line_is_long(name);
        let mut old = self.old_letters.due();
        for _ in 0..TRIES {
            acquisition.state().stood_in_line = true;
            let record = self.record(acquisition).bytes();
            let place = self.keys.contender(name, contender.owner, &session.id);
            let mut ops = vec![
                session.in_epoch(),
                Op::Set { key: self.keys.line_open(name), value: never_written(), flags: OWN_FLAGS },
                lock_op(place, record, OWN_FLAGS, &session.id),
            ];
            ops.extend(old.removal());
            match lock_alone {
                true => ops.push(Op::Tree(self.keys.lock(name))),
                false => ops.extend(self.trees(name, whole_folder)),
            }
            match self.transact(acquisition, &ops).await? {
                Outcome::Done(mut entries) => {
                    old.are_removed();
                    self.acquisitions.note_contended(name, None);
                    // The two writes answer first, without values.
                    let written = entries.drain(..2.min(entries.len())).map(|entry| entry.modified).max();
                    if !lock_alone {
                        let seen = self.seen(name, whole_folder, entries).await?;
                        self.acquisitions.note_contended(name, Some(seen.view.line.len()));
                        return Ok(seen);
                    }
                    let mut view = View::read(&self.keys, name, entries);
                    if view.used != Use::As(Kind::Mutex) || view.is_held_by_others() {
                        return self.look(contender).await;
                    }
                    view.line_is_partial = true;
                    return Ok(Seen { view, index: written.unwrap_or(0) });
                }
                Outcome::Refused(refused) => self.explain(session, &ops, &refused).await?,
            }
        }
        Err(busy())
    }

    /// Takes the contender keys of a semaphore's sessions, which alone mean nothing.
    pub(crate) async fn claim_permits(
        &self,
        acquisition: &Acquisition,
        session: &Arc<Session>,
    ) -> Result<()> {
        let contender = &acquisition.contender;
        let sessions = acquisition.sessions();
        let Mode::Permits { .. } = contender.mode else { return Ok(()) };
        let value = serde_json::to_vec(&Beside { beside: contender.owner.to_hex() }).unwrap_or_default();
        for some in sessions.chunks(PERMITS_AT_ONCE) {
            for attempt in 0.. {
                let mut ops = vec![session.in_epoch()];
                ops.extend(some.iter().map(|one| {
                    let key = self.keys.permit(&contender.name, &one.id);
                    lock_op(key, value.clone(), SEMAPHORE_FLAGS, &one.id)
                }));
                let Outcome::Refused(refused) = self.transact(acquisition, &ops).await? else { break };
                for one in some {
                    self.explain(one, &ops, &refused).await?;
                }
                if attempt >= TRIES {
                    return Err(busy());
                }
            }
        }
        Ok(())
    }

    /// Lets in whoever can enter, this acquisition if it is its turn, and says how it stands.
    async fn enter_or_wait(
        self: &Arc<Self>,
        acquisition: &Arc<Acquisition>,
        session: &Arc<Session>,
        waits: bool,
        mut seen: Seen,
    ) -> Result<Answer> {
        let contender = &acquisition.contender;
        let owner = contender.owner;
        let mut backoff =
            Backoff::new(Duration::from_millis(2), Duration::from_millis(50), owner.jitter_seed());
        for attempt in 0..TRIES {
            let Seen { view, index } = &seen;
            if let Some(holder) = view.held_by(owner) {
                let fence = holder.fence;
                acquisition.granted(fence, holder.key.clone(), holder.index);
                return Ok(Answer::Held { fence: FencingToken::new(fence) });
            }
            if let Some(refusal) = other_use(view, contender) {
                self.leave_line(acquisition, view).await?;
                return refusal;
            }
            self.note_delay(acquisition, view);
            if view.line_is_partial {
                return Ok(self.told_to_wait(acquisition, &seen, waits));
            }
            let position = view.position(owner);
            if waits && position.is_none() {
                seen = self.join(acquisition, session).await?;
                continue;
            }
            let enter = self.who_enters(acquisition, session, view);
            if enter.is_empty() {
                return Ok(self.told_to_wait(acquisition, &seen, waits));
            }
            let me = enter.iter().any(|entrant| entrant.owner == owner);
            if me && position.is_none() {
                self.claim_permits(acquisition, session).await?;
            }
            let change = Change { enter, at_ms: wall_ms(), ..Change::default() };
            let mut ops = vec![session.in_epoch()];
            ops.extend(view.transaction(&self.keys, &change));
            debug_assert!(ops.len() <= MOST_OPERATIONS, "{} operations", ops.len());
            match self.transact(acquisition, &ops).await? {
                Outcome::Done(written) if me => {
                    let key = self.lease_key(contender, session);
                    let fence = index_of(&written, &key);
                    acquisition.granted(fence, key, fence);
                    if contender.mode == Mode::Mutex {
                        {
                            let mut state = acquisition.state();
                            state.next = seen.view.followers(owner);
                            state.alone = seen.view.is_alone(owner);
                        }
                        self.look_out(acquisition);
                    }
                    return Ok(Answer::Held { fence: FencingToken::new(fence) });
                }
                Outcome::Done(_) if !waits => return Ok(wait(*index, None, view.hint(wall_ms()))),
                Outcome::Done(_) => {}
                Outcome::Refused(refused) => {
                    self.explain(session, &ops, &refused).await?;
                    if refused.lock_delay() {
                        acquisition.waits(position.map_or(0, |at| at as u32), *index);
                        let answer = self.delayed(acquisition);
                        if waits && let Answer::LockDelay { left } = &answer {
                            self.tell_delay(contender, session, *left).await;
                        }
                        return Ok(answer);
                    }
                    if attempt > 0 {
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
            seen = self.look(contender).await?;
        }
        Err(busy())
    }

    /// Those who can enter now: this acquisition if it may go first, and whoever shares with it; or
    /// those at the head of the line.
    pub(crate) fn who_enters(
        &self,
        acquisition: &Acquisition,
        session: &Arc<Session>,
        view: &View,
    ) -> Vec<Entrant> {
        let contender = &acquisition.contender;
        let owner = contender.owner;
        let position = view.position(owner);
        let overtakes = contender.barge && position != Some(0);
        if overtakes || (position.is_none() && view.line.is_empty()) {
            let waits = position.map(|at| view.line[at].key.clone());
            let me = Entrant {
                owner,
                record: self.record(acquisition),
                mode: contender.mode,
                session: session.id.clone(),
                waits,
                asks: true,
            };
            let enter = view.who_enters(Some(me), Some(owner), None, None);
            if !enter.is_empty() {
                return enter;
            }
        }
        view.who_enters(None, Some(owner), None, None)
    }

    fn told_to_wait(self: &Arc<Self>, acquisition: &Arc<Acquisition>, seen: &Seen, waits: bool) -> Answer {
        let Seen { view, index } = seen;
        let position = view.position(acquisition.contender.owner).map(|at| at as u32);
        if waits {
            acquisition.waits(position.unwrap_or(0), *index);
            if position == Some(0) && view.is_held_by_others() {
                self.watch_lock(acquisition, view);
            }
        }
        let behind_all = (!view.line_is_partial).then_some(view.line.len() as u32);
        wait(*index, position.or(behind_all), view.hint(wall_ms()))
    }

    /// The key that stands for a lease of this contender.
    pub(crate) fn lease_key(&self, contender: &Contender, session: &Session) -> String {
        match contender.mode {
            Mode::Mutex => self.keys.lock(&contender.name),
            Mode::Read | Mode::Write => self.keys.lease(&contender.name, contender.owner, &session.id),
            Mode::Permits { .. } => self.keys.permit(&contender.name, &session.id),
        }
    }

    /// Takes back a place in line that another kind of lock has no use for.
    async fn leave_line(&self, acquisition: &Acquisition, view: &View) -> Result<()> {
        let owner = acquisition.contender.owner;
        let Some(at) = view.position(owner) else { return Ok(()) };
        let place = view.line[at].key.clone();
        self.transact(acquisition, &[Op::Delete(place)]).await?;
        acquisition.state().place = Place::Nowhere;
        Ok(())
    }

    pub(crate) fn note_delay(&self, acquisition: &Acquisition, view: &View) {
        if let Some(record) = view.holders.first().and_then(|holder| holder.record.as_ref()) {
            acquisition.state().delay = Some(Duration::from_millis(record.delay_ms));
            self.delays.forget(&acquisition.contender.name);
        }
    }

    /// Writes down that a waiter is refused, beside what else says who this client is: the store tells of a lock-delay
    /// only to those who try. Nothing depends on it.
    async fn tell_delay(&self, contender: &Contender, session: &Session, left: Option<Duration>) {
        let Some(refused) = self.delays.refused(&contender.name, left) else { return };
        let value = serde_json::to_vec(&refused).unwrap_or_default();
        let key = self.keys.refused(&self.client, &session.id);
        let _ = self.api.transact(&[lock_op(key, value, OWN_FLAGS, &session.id)]).await;
    }

    /// The lock is free, but its last session ended a moment ago.
    pub(crate) fn delayed(&self, acquisition: &Acquisition) -> Answer {
        let known = acquisition.state().delay;
        Answer::LockDelay { left: self.delays.left(&acquisition.contender.name, known) }
    }
}

/// Whether the name is in use as something else than this contender wants.
pub(crate) fn other_use(view: &View, contender: &Contender) -> Option<Result<Answer>> {
    if view.used == Use::Foreign {
        return Some(Err(Error::new(
            ErrorKind::NameConflict,
            format!(
                "the key of {:?} holds data that is no lock (its flags are another program's); use another name or \
                 prefix, or delete the key",
                contender.name.as_str()
            ),
        )));
    }
    let present = view.kind().filter(|kind| *kind != contender.mode.kind())?;
    // Who waits behind others of its own kind has no say in what the lock is.
    let only_me = view.used == Use::Free && view.line.iter().all(|waiter| waiter.owner == contender.owner);
    (!only_me).then_some(Ok(Answer::OtherKind { present }))
}

/// The poll interval of a waiter near the head of the line; the heartbeat allows for 3.5 of them.
fn near(ask: Ask) -> Duration {
    match ask {
        Ask::Wait { near_heartbeat, .. } => near_heartbeat * 2 / 7,
        Ask::Try => Duration::ZERO,
    }
}

fn wait(seen: u64, position: Option<u32>, holder: Option<crate::backend::HolderHint>) -> Answer {
    let answer = WaitAnswer { fence: seen, position, holder_left: None, poll_within: None };
    Answer::Wait { answer, holder }
}

/// The index at which a transaction wrote this key.
pub(crate) fn index_of(written: &[Entry], key: &str) -> u64 {
    written.iter().rev().find(|entry| entry.key == key).map_or(0, |entry| entry.modified)
}

pub(crate) fn is_session_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::BackendUnavailable && error.message() == session_gone().message()
}
