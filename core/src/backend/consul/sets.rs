//! Several locks in one transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::consul::acquire::{TRIES, index_of, is_session_gone, other_use};
use crate::backend::consul::acquisition::Acquisition;
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::view::{Change, Entrant, View};
use crate::backend::consul::sessions::{Session, busy};
use crate::backend::consul::transport::api::{MOST_OPERATIONS, Op, Outcome};
use crate::backend::{Answer, AnswerAll, Contender};
use crate::clock::wall_ms;
use crate::clock::{Clock, SystemClock};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::mode::Mode;
use crate::policy::backoff::Backoff;
use crate::policy::fencing::FencingToken;

/// Somebody who can have its lock now, with the lock as it was seen.
struct Turn<'a> {
    acquisition: &'a Arc<Acquisition>,
    session: &'a Arc<Session>,
    view: View,
    /// This one first, and who shares with it.
    enter: Vec<Entrant>,
}

/// How the locks of a set stand.
enum Seen<'a> {
    /// All can be had, or are held already with the fence in their place.
    Free(Vec<Turn<'a>>),
    Answer(AnswerAll),
}

impl Inner {
    pub(super) async fn take_all(self: Arc<Self>, contenders: Vec<Arc<Contender>>) -> Result<AnswerAll> {
        let all: Vec<_> = contenders.iter().map(|contender| self.acquisitions.of(contender)).collect();
        let mut turns = Vec::with_capacity(all.len());
        for acquisition in &all {
            turns.push(acquisition.turn.lock().await);
        }
        let mut answer = self.take_all_in_turn(&all).await;
        if matches!(&answer, Err(error) if is_session_gone(error)) {
            // It ended before this set had anything: one more try with a new one.
            answer = self.take_all_in_turn(&all).await;
        }
        match &answer {
            Ok(AnswerAll::Held { .. }) => {}
            Err(error) if error.effect() == Effect::Maybe => {
                all.iter().for_each(|acquisition| acquisition.state().uncertain = true);
            }
            Err(_) => {}
            Ok(_) => {
                for acquisition in all.iter().filter(|acquisition| acquisition.lease().is_none()) {
                    self.finish(acquisition).await;
                }
            }
        }
        answer
    }

    async fn take_all_in_turn(self: &Arc<Self>, all: &[Arc<Acquisition>]) -> Result<AnswerAll> {
        let now = SystemClock.now();
        let mut sessions = Vec::with_capacity(all.len());
        for acquisition in all {
            sessions.push(self.session_for(acquisition).await?);
            self.freshen(acquisition, now).await?;
        }
        let mut alone = Vec::new();
        for acquisition in all {
            // In the order of the names, as everybody does.
            alone.extend(self.acquisitions.turn_at(&acquisition.contender, self.api.timeout / 4).await);
        }
        let seed = all.first().map_or(0, |first| first.contender.owner.jitter_seed());
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(50), seed);
        for attempt in 0..TRIES {
            let turns = match self.look_at_all(all, &sessions).await? {
                Seen::Answer(answer) => return Ok(answer),
                Seen::Free(turns) => turns,
            };
            let ops = self.all_at_once(&turns)?;
            if ops.is_empty() {
                return Ok(held(all));
            }
            for turn in &turns {
                self.claim_permits(turn.acquisition, turn.session).await?;
            }
            let outcome = self.api.transact(&ops).await;
            if matches!(&outcome, Err(error) if error.effect() == Effect::Maybe) {
                all.iter().for_each(|acquisition| acquisition.state().uncertain = true);
            }
            match outcome? {
                Outcome::Done(written) => {
                    for turn in &turns {
                        let contender = &turn.acquisition.contender;
                        let key = self.lease_key(contender, turn.session);
                        let index = index_of(&written, &key);
                        turn.acquisition.granted(index, key, index);
                        if contender.mode == Mode::Mutex {
                            turn.acquisition.state().next = turn.view.followers(contender.owner);
                        }
                    }
                    return Ok(held(all));
                }
                Outcome::Refused(refused) => {
                    for session in &sessions {
                        self.explain(session, &ops, &refused).await?;
                    }
                    let delayed = turns.iter().find(|turn| {
                        refused.lock_delay()
                            && refused.concerns(&ops, &self.keys.lock(&turn.acquisition.contender.name))
                    });
                    if let Some(turn) = delayed
                        && let Answer::LockDelay { left } = self.delayed(turn.acquisition)
                    {
                        return Ok(AnswerAll::LockDelay { left });
                    }
                    if attempt > 0 {
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        }
        Err(busy())
    }

    /// Reads all locks of a set, and says whether they can be had together.
    async fn look_at_all<'a>(
        &self,
        all: &'a [Arc<Acquisition>],
        sessions: &'a [Arc<Session>],
    ) -> Result<Seen<'a>> {
        let mut turns = Vec::with_capacity(all.len());
        let mut at = 0;
        // Two readings of one lock at most.
        for (some, sessions) in all.chunks(MOST_OPERATIONS / 2).zip(sessions.chunks(MOST_OPERATIONS / 2)) {
            let whole = |one: &Acquisition| matches!(one.contender.mode, Mode::Permits { .. });
            let ops: Vec<_> =
                some.iter().flat_map(|one| self.trees(&one.contender.name, whole(one))).collect();
            let Outcome::Done(mut entries) = self.api.look(&ops).await? else { return Err(busy()) };
            // One name may be below another.
            entries.sort_by(|one, other| one.key.cmp(&other.key));
            entries.dedup_by(|one, other| one.key == other.key);
            for (acquisition, session) in some.iter().zip(sessions) {
                let contender = &acquisition.contender;
                let view = self.seen(&contender.name, whole(acquisition), entries.clone()).await?.view;
                if let Some(holder) = view.held_by(contender.owner) {
                    acquisition.granted(holder.fence, holder.key.clone(), holder.index);
                } else {
                    match other_use(&view, contender) {
                        Some(Ok(Answer::OtherKind { present })) => {
                            return Ok(Seen::Answer(AnswerAll::OtherKind { at, present }));
                        }
                        Some(refusal) => refusal.map(drop)?,
                        None => {}
                    }
                    self.note_delay(acquisition, &view);
                    let enter = self.who_enters(acquisition, session, &view);
                    if enter.first().is_none_or(|first| first.owner != contender.owner) {
                        return Ok(Seen::Answer(AnswerAll::Refused));
                    }
                    turns.push(Turn { acquisition, session, view, enter });
                }
                at += 1;
            }
        }
        Ok(Seen::Free(turns))
    }

    /// The transaction that takes them all.
    ///
    /// Errors: `unsupported` if it would have more operations than Consul carries out at once.
    fn all_at_once(&self, turns: &[Turn<'_>]) -> Result<Vec<Op>> {
        let transaction = |with_others: bool| {
            let mut ops: Vec<Op> = Vec::new();
            for turn in turns {
                let epoch = turn.session.in_epoch();
                if !ops.contains(&epoch) {
                    ops.push(epoch);
                }
            }
            for turn in turns {
                let enter = turn.enter.iter().take(if with_others { usize::MAX } else { 1 });
                let change =
                    Change { enter: enter.cloned().collect(), at_ms: wall_ms(), ..Change::default() };
                ops.extend(turn.view.transaction(&self.keys, &change));
            }
            ops
        };
        let mut ops = transaction(true);
        if ops.len() > MOST_OPERATIONS {
            // Who shares with one of them enters at its own next poll.
            ops = transaction(false);
        }
        if ops.len() > MOST_OPERATIONS {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "these {} locks need {} operations in one step, and Consul carries out {MOST_OPERATIONS}; take at \
                     most {ALWAYS_FIT} in one step, or wait for them with acquire, which takes one after the other",
                    turns.len(),
                    ops.len()
                ),
            ));
        }
        Ok(ops)
    }
}

/// So many locks fit into one transaction whatever there is of them: six operations each (the check of
/// the held key, one to free it of what is left, three to take it and end its line), and one for a session.
const ALWAYS_FIT: usize = MOST_OPERATIONS / 7;

/// The fences of those that hold, all of them.
fn held(all: &[Arc<Acquisition>]) -> AnswerAll {
    let fence = |one: &Arc<Acquisition>| FencingToken::new(one.lease().map_or(0, |lease| lease.fence));
    AnswerAll::Held { fences: all.iter().map(fence).collect() }
}
