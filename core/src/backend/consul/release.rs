//! Releasing, giving up, converting and renewing.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::consul::acquire::{TRIES, index_of};
use crate::backend::consul::acquisition::{Acquisition, Lease, Place};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::keys::written;
use crate::backend::consul::protocol::records::{Follower, Record};
use crate::backend::consul::protocol::view::{Change, Holder, Use, View};
use crate::backend::consul::sessions::busy;
use crate::backend::consul::transport::api::{MOST_OPERATIONS, Op, Outcome};
use crate::backend::{Contender, Conversion, Released};
use crate::clock::wall_ms;
use crate::clock::{Clock, SystemClock};
use crate::error::{Effect, Result};
use crate::mode::Mode;
use crate::policy::backoff::Backoff;
use crate::policy::fencing::FencingToken;
use crate::token::OwnerToken;

impl Inner {
    pub(crate) async fn release(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
    ) -> Result<Released> {
        let acquisition = self.acquisitions.of(&contender);
        let _turn = acquisition.turn.lock().await;
        let released = self.release_in_turn(&acquisition, &contender, fence.get()).await?;
        self.finish(&acquisition).await;
        Ok(released)
    }

    pub(crate) async fn release_in_turn(
        self: &Arc<Self>,
        acquisition: &Acquisition,
        contender: &Contender,
        fence: u64,
    ) -> Result<Released> {
        let name = &contender.name;
        let uncertain = self.stop_late_requests(acquisition).await?;
        let known = acquisition
            .lease()
            .filter(|lease| contender.mode == Mode::Mutex && !uncertain && lease.fence == fence);
        let next = acquisition.take_next();
        if let Some(lease) = &known
            && !next.is_empty()
        {
            // Who comes next was known when it entered; whoever came since stands behind that one.
            if self.hand_on(acquisition, lease, &next).await? {
                return Ok(Released::Released);
            }
        } else if let Some(lease) = known
            && (!self.acquisitions.is_contended(name) || acquisition.state().alone)
        {
            // The usual case: nobody waits. The index stands for owner and session.
            let mut ops = vec![
                Op::CheckIndex(lease.key.clone(), lease.index),
                Op::CheckMissing(self.keys.line_open(name)),
                Op::Delete(lease.key.clone()),
            ];
            ops.extend(self.letter_gone(acquisition));
            match self.transact(acquisition, &ops).await? {
                Outcome::Done(_) => return Ok(Released::Released),
                Outcome::Refused(refused) if refused.concerns(&ops, &self.keys.line_open(name)) => {
                    self.acquisitions.note_contended(name, None);
                }
                Outcome::Refused(_) => {}
            }
        }
        let _alone = self.acquisitions.turn_at(contender, self.api.timeout / 4).await;
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(50), fence);
        for attempt in 0..TRIES {
            let view = self.look(contender).await?.view;
            let Some(holder) = view.held_by(contender.owner).filter(|holder| holder.fence == fence) else {
                return Ok(Released::NotHeld);
            };
            // A request whose reply was lost may have left a place in line behind.
            let leaves = Some(contender.owner);
            let enter = view.who_enters(None, None, Some(holder), leaves);
            if !enter.is_empty() {
                self.acquisitions.note_contended(name, Some(view.line.len()));
            }
            let change = Change { ends: Some(holder), leaves, enter, at_ms: wall_ms(), ..Change::default() };
            let ops = view.transaction(&self.keys, &change);
            if let Outcome::Done(_) = self.transact(acquisition, &ops).await? {
                return Ok(Released::Released);
            }
            if attempt > 0 {
                tokio::time::sleep(backoff.delay()).await;
            }
        }
        Err(busy())
    }

    /// Lets the next one into a mutex without a look. `false` if it, or the lock, is no longer there.
    async fn hand_on(&self, acquisition: &Acquisition, lease: &Lease, next: &[Follower]) -> Result<bool> {
        let contender = &acquisition.contender;
        let Some(session) = acquisition.state().session.clone() else { return Ok(false) };
        let me = Holder {
            record: Some(self.record(acquisition)),
            owner: Some(contender.owner),
            mode: contender.mode,
            fence: lease.fence,
            key: lease.key.clone(),
            index: lease.index,
            session: session.id.clone(),
        };
        let view = View::of_holder(&self.keys, &contender.name, me, next);
        let ends = view.holders.first();
        let enter = view.who_enters(None, None, ends, None);
        if enter.is_empty() {
            return Ok(false);
        }
        let change = Change { ends, enter, keeps_letter: true, at_ms: wall_ms(), ..Change::default() };
        let ops = view.transaction(&self.keys, &change);
        self.acquisitions.note_contended(&contender.name, Some(next.len()));
        let Outcome::Done(_) = self.transact(acquisition, &ops).await? else { return Ok(false) };
        if let Some(letter) = self.letter(acquisition) {
            self.old_letters.add(letter);
        }
        Ok(true)
    }

    /// If a request is still under way whose answer nobody has seen: it must not arrive after this.
    /// Returns whether there was one.
    async fn stop_late_requests(&self, acquisition: &Acquisition) -> Result<bool> {
        if !acquisition.state().uncertain {
            return Ok(false);
        }
        for session in acquisition.sessions() {
            self.sessions.end_epoch(&session).await?;
        }
        Ok(true)
    }

    /// Forgets an acquisition that has nothing at the store any more.
    pub(crate) async fn finish(&self, acquisition: &Acquisition) {
        self.clear_up(acquisition).await;
        self.forget(acquisition.contender.owner);
    }

    /// The same where the store has been told already.
    pub(crate) fn forget(&self, owner: OwnerToken) {
        self.acquisitions.forget(owner);
        for session in self.sessions.take_own(owner) {
            let sessions = Arc::clone(&self.sessions);
            self.runtime.spawn(async move { sessions.destroy(&session).await });
        }
    }

    /// Removes the contender keys of a semaphore, which mean nothing by themselves.
    pub(crate) async fn clear_up(&self, acquisition: &Acquisition) {
        let contender = &acquisition.contender;
        if !matches!(contender.mode, Mode::Permits { .. }) {
            return;
        }
        let sessions = acquisition.sessions();
        let ops: Vec<_> =
            sessions.iter().map(|one| Op::Delete(self.keys.permit(&contender.name, &one.id))).collect();
        for ops in ops.chunks(MOST_OPERATIONS) {
            // What cannot be removed now goes with its session.
            let _ = self.api.transact(ops).await;
        }
        acquisition.state().permits.clear();
    }

    fn letter_gone(&self, acquisition: &Acquisition) -> Option<Op> {
        self.letter(acquisition).map(Op::Delete)
    }

    /// The letter of its grant, if there may be one.
    fn letter(&self, acquisition: &Acquisition) -> Option<String> {
        let contender = &acquisition.contender;
        let state = acquisition.state();
        if !state.stood_in_line {
            return None;
        }
        let session = state.session.as_ref()?;
        Some(self.keys.letter(&written(&contender.client), contender.owner, &session.id))
    }

    pub(crate) async fn cancel(self: Arc<Self>, contender: Arc<Contender>) -> Result<()> {
        let Some(acquisition) = self.acquisitions.get(contender.owner) else { return Ok(()) };
        let _turn = acquisition.turn.lock().await;
        let place = acquisition.state().place.clone();
        let sessions = acquisition.sessions();
        if sessions.iter().all(|session| session.has_ended()) {
            self.finish(&acquisition).await;
            return Ok(());
        }
        let uncertain = self.stop_late_requests(&acquisition).await?;
        if !uncertain && place == Place::Nowhere {
            self.finish(&acquisition).await;
            return Ok(());
        }
        if let (Place::InLine { .. }, Mode::Mutex, false, Some(session)) =
            (&place, contender.mode, uncertain, sessions.first())
        {
            let key = self.keys.contender(&contender.name, contender.owner, &session.id);
            let ops = [Op::CheckSession(key.clone(), session.id.clone()), Op::Delete(key)];
            if let Outcome::Done(_) = self.transact(&acquisition, &ops).await? {
                self.finish(&acquisition).await;
                return Ok(());
            }
        }
        self.withdraw(&acquisition, &contender).await?;
        self.finish(&acquisition).await;
        Ok(())
    }

    /// Leaves the line or ends the lease, whichever there is, and lets in who can enter then.
    async fn withdraw(self: &Arc<Self>, acquisition: &Acquisition, contender: &Contender) -> Result<()> {
        let owner = contender.owner;
        let _alone = self.acquisitions.turn_at(contender, self.api.timeout / 4).await;
        let mut backoff =
            Backoff::new(Duration::from_millis(2), Duration::from_millis(50), owner.jitter_seed());
        for _ in 0..TRIES {
            let view = self.look(contender).await?.view;
            let holder = view.held_by(owner);
            let waits = view.position(owner).map(|_| owner);
            if holder.is_none() && waits.is_none() {
                if let Some(letter) = self.letter_gone(acquisition) {
                    self.transact(acquisition, &[letter]).await?;
                }
                return Ok(());
            }
            let enter = match view.used {
                Use::Foreign => Vec::new(),
                _ => view.who_enters(None, None, holder, waits),
            };
            let change = Change { leaves: waits, ends: holder, enter, at_ms: wall_ms(), ..Change::default() };
            let mut ops = view.transaction(&self.keys, &change);
            if holder.is_none() {
                ops.extend(self.letter_gone(acquisition));
            }
            match self.transact(acquisition, &ops).await? {
                Outcome::Done(_) => return Ok(()),
                // Nobody can be let in for now, but the place in line can go.
                Outcome::Refused(refused) if refused.lock_delay() && holder.is_none() => {
                    let place = view.line.iter().find(|waiter| waiter.owner == owner);
                    let ops: Vec<_> =
                        place.map(|waiter| Op::Delete(waiter.key.clone())).into_iter().collect();
                    self.transact(acquisition, &ops).await?;
                }
                Outcome::Refused(_) => tokio::time::sleep(backoff.delay()).await,
            }
        }
        Err(busy())
    }

    pub(crate) async fn convert(
        self: Arc<Self>,
        contender: Arc<Contender>,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion> {
        let acquisition = self.acquisitions.of(&contender);
        let _turn = acquisition.turn.lock().await;
        let owner = contender.owner;
        let now = SystemClock.now();
        for session in acquisition.sessions() {
            self.sessions.fresh(&session, now, contender.first_lease).await?;
        }
        for _ in 0..TRIES {
            let view = self.look(&contender).await?.view;
            let holder = view.held_by(owner).filter(|holder| holder.fence == fence.get());
            let Some((holder, record)) = holder.and_then(|holder| Some((holder, holder.record.as_ref()?)))
            else {
                return Ok(Conversion::NotHeld);
            };
            if to == Mode::Write && view.holders.len() > 1 {
                return Ok(Conversion::Refused);
            }
            // Newer than every reader that was let in beside it; a step down keeps its token.
            let kept = (to != Mode::Write).then_some(fence.get());
            let mode = if to == Mode::Write { "w" } else { "r" };
            let record = Record { mode: mode.into(), fence: kept, ..record.clone() };
            let enter = match to {
                Mode::Read => as_read(&view, holder).who_enters(None, None, None, None),
                _ => Vec::new(),
            };
            let change =
                Change { converts: Some((holder, record)), enter, at_ms: wall_ms(), ..Change::default() };
            let ops = view.transaction(&self.keys, &change);
            if let Outcome::Done(written) = self.transact(&acquisition, &ops).await? {
                let index = index_of(&written, &holder.key);
                let fence = kept.unwrap_or(index);
                acquisition.granted(fence, holder.key.clone(), index);
                return Ok(Conversion::Done { fence: FencingToken::new(fence) });
            }
        }
        Err(busy().with_effect(Effect::None))
    }
}

/// The lock as it is when this writer only reads.
fn as_read(view: &View, holder: &Holder) -> View {
    let mut view = view.clone();
    for other in &mut view.holders {
        if other.key == holder.key {
            other.mode = Mode::Read;
        }
    }
    view
}
