//! The steps of a store in SQL: what each verb does inside one write transaction.
//!
//! The caller holds the write lock, has checked the boot, and read the time after it got the lock.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::rows::{Candidate, Holder};
use super::tidy::SweepMark;
use super::units::{ceil_ms, millis, signed, token, unsigned};
use crate::backend::sqlite::transport::host::Now;
use crate::backend::{
    AUDIT_LENGTH, Answer, AnswerAll, Ask, Contender, Conversion, REAPED_PER_STEP, Released, RenewItem,
    Renewal,
};
use crate::mode::{Kind, Mode};
use crate::policy::fencing::FencingToken;
use crate::policy::sharing::admits;
use crate::policy::waiting::{WaitAnswer, WaitTimes};
use crate::snapshot::{BreakOutcome, BreakRequest};
use crate::token::{ClientId, OwnerToken};

pub(crate) type Sql<T> = rusqlite::Result<T>;

/// How many waiters one step lets in together at most; the next ones enter by their own polls.
const GRANTED_PER_STEP: usize = 64;

/// What a step tells this client without being asked. Owners of other clients are ignored there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    Granted { owner: OwnerToken, fence: u64 },
    Revoked { owner: OwnerToken, fence: u64 },
}

/// The store inside one transaction.
pub(crate) struct Store<'c> {
    pub conn: &'c Connection,
    pub now: Now,
    /// The largest number given out; the caller writes it back before it commits.
    pub counter: i64,
    pub pushes: Vec<Push>,
    pub sweep_mark: &'c mut SweepMark,
    /// The latest step could not drop all silent waiters from the front.
    pub unswept: bool,
}

impl Store<'_> {
    /// Acquires, confirms, gives a sign of life and polls: see `Backend::poll`.
    pub(crate) fn poll(&mut self, contender: &Contender, ask: Ask) -> Sql<Answer> {
        let name = contender.name.as_str();
        let me = Candidate::from(contender);
        let mut holders = self.holders(name)?;
        let my_turn = self.is_turn_of(contender, &me)?;
        if let Some(present) = self.other_kind(name, &holders, &me)? {
            return Ok(Answer::OtherKind { present });
        }
        if let Some(held) = find(&holders, &me.owner) {
            self.confirm(name, &me)?;
            return Ok(Answer::Held { fence: token(held.fence) });
        }
        if my_turn && admits(modes(&holders), me.mode) {
            self.leave_line(name, &me.owner)?;
            let fence = self.grant(name, &mut holders, me)?;
            // Those behind it may share the lock with it.
            self.grant_next(name, &mut holders)?;
            return Ok(Answer::Held { fence: token(fence) });
        }
        // Helping: whoever finds that somebody can have the lock grants it to the one whose turn it is.
        self.grant_next(name, &mut holders)?;
        if let Some(held) = find(&holders, &me.owner) {
            return Ok(Answer::Held { fence: token(held.fence) });
        }
        let unswept = self.unswept;
        let position = match ask {
            Ask::Wait { near_heartbeat, far_heartbeat } => {
                self.stand_in_line(name, &me, near_heartbeat, far_heartbeat)?
            }
            Ask::Try => match self.ticket(name, &me.owner)? {
                Some(ticket) => self.standing_before(name, ticket)?,
                None => self.standing_before(name, i64::MAX)?,
            },
        };
        // The first that may make room.
        let ends_ms = holders.iter().map(|holder| holder.ends_ms).min();
        Ok(Answer::Wait {
            answer: WaitAnswer {
                fence: unsigned(self.counter),
                position: Some(position),
                holder_left: ends_ms.map(|ends_ms| millis(ends_ms - self.now.boot_ms)),
                poll_within: unswept.then_some(Duration::ZERO),
            },
            holder: holders.first().map(|holder| holder.hint(self.now.boot_ms)),
        })
    }

    /// Extends a lease that is still exactly (owner, fence). Never creates one.
    pub(crate) fn renew(&mut self, item: &RenewItem) -> Sql<Renewal> {
        let owner = item.contender.owner.to_hex();
        let fence = signed(item.fence.get());
        // max() never shortens: a renewal that arrives late must not undo a later one.
        let extended = self.run(
            // The length on record is never less than what is left.
            "UPDATE lease SET ends_ms = max(ends_ms, ?4), renewals = ?5, renewed_ms = ?6, \
             first_ms = iif(?5 = 0 AND lease_ms <> ?7, max(?7, ends_ms - ?8, ?4 - ?8), first_ms), \
             lease_ms = iif(lease_ms <> ?7, max(?7, ends_ms - ?8, ?4 - ?8), lease_ms) \
             WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND ends_ms > ?6",
            params![
                item.contender.name.as_str(),
                owner,
                fence,
                self.now.begun_ms + ceil_ms(item.lease),
                item.renewals,
                self.now.boot_ms,
                ceil_ms(item.length),
                self.now.begun_ms
            ],
        )?;
        if extended > 0 {
            return Ok(Renewal::Extended);
        }
        // Told before the answer, so that the holder learns "broken" and not just "not yours".
        let broken = self
            .conn
            .prepare_cached("SELECT 1 FROM audit WHERE fence = ?1 AND owner = ?2")?
            .exists(params![fence, owner])?;
        if broken {
            self.pushes.push(Push::Revoked { owner: item.contender.owner, fence: item.fence.get() });
        }
        Ok(Renewal::NotYours)
    }

    /// Takes several locks of different names, or none: see `Backend::take_all`.
    pub(crate) fn take_all(&mut self, contenders: &[Arc<Contender>]) -> Sql<AnswerAll> {
        let mut locks = Vec::with_capacity(contenders.len());
        // All are looked at before the first one is touched.
        for (at, contender) in contenders.iter().enumerate() {
            let name = contender.name.as_str();
            let me = Candidate::from(&**contender);
            let holders = self.holders(name)?;
            let my_turn = self.is_turn_of(contender, &me)?;
            if let Some(present) = self.other_kind(name, &holders, &me)? {
                return Ok(AnswerAll::OtherKind { at, present });
            }
            let is_held = find(&holders, &me.owner).is_some();
            let can_be_had = is_held || (my_turn && admits(modes(&holders), me.mode));
            if !can_be_had {
                return Ok(AnswerAll::Refused);
            }
            locks.push((name, holders, me));
        }
        let mut fences = Vec::with_capacity(locks.len());
        let mut taken = Vec::with_capacity(locks.len());
        for (name, mut holders, me) in locks {
            let held = find(&holders, &me.owner).map(|held| held.fence);
            fences.push(token(match held {
                Some(fence) => {
                    self.confirm(name, &me)?;
                    fence
                }
                None => {
                    self.leave_line(name, &me.owner)?;
                    self.grant(name, &mut holders, me)?
                }
            }));
            taken.push((name, holders));
        }
        // Those whom one of them overtook may share its lock with it.
        for (name, mut holders) in taken {
            self.grant_next(name, &mut holders)?;
        }
        Ok(AnswerAll::Held { fences })
    }

    /// Extends the lease that this contender has to at least a first lease.
    fn confirm(&mut self, name: &str, me: &Candidate) -> Sql<usize> {
        // max() never shortens: a poll that arrives late must not undo a renewal.
        self.run(
            "UPDATE lease SET ends_ms = max(ends_ms, ?3) WHERE name = ?1 AND owner = ?2",
            params![name, me.owner, self.now.begun_ms + me.first_ms],
        )
    }

    /// As which other kind of lock somebody holds or waits for this name, if anybody does.
    fn other_kind(&self, name: &str, holders: &[Holder], me: &Candidate) -> Sql<Option<Kind>> {
        let present = match holders.iter().find(|holder| holder.is_known) {
            Some(holder) => Some(holder.mode),
            None => self.front(name)?.map(|(waiter, _)| waiter.mode),
        };
        Ok(present.map(Mode::kind).filter(|kind| *kind != me.mode.kind()))
    }

    /// Says whether nobody live stands before a contender, or it does not mind. Drops silent waiters from
    /// the front; of those whom one step leaves there nobody knows, so they count as live.
    fn is_turn_of(&mut self, contender: &Contender, me: &Candidate) -> Sql<bool> {
        let name = contender.name.as_str();
        Ok(match self.live_head(name)? {
            _ if contender.barge => true,
            Some(head) => head.owner == me.owner,
            None => self.front(name)?.is_none(),
        })
    }

    /// Changes the way in which a lease is held, between reading and writing.
    pub(crate) fn convert(
        &mut self,
        contender: &Contender,
        fence: FencingToken,
        to: Mode,
    ) -> Sql<Conversion> {
        let name = contender.name.as_str();
        let owner = contender.owner.to_hex();
        let mut holders = self.holders(name)?;
        let others = holders.iter().any(|holder| holder.owner != owner);
        let Some(held) = holders.iter_mut().find(|holder| holder.is(&owner, fence)) else {
            return Ok(Conversion::NotHeld);
        };
        if to == Mode::Write && others {
            return Ok(Conversion::Refused);
        }
        if to == Mode::Write {
            // Newer than every reader that was let in beside it.
            held.fence = self.next_number();
        }
        held.mode = to;
        let fence = held.fence;
        self.run(
            "UPDATE lease SET fence = ?3, ends_ms = max(ends_ms, ?4), mode = ?5, permits = ?6, capacity = ?7 \
             WHERE name = ?1 AND owner = ?2",
            params![
                name,
                owner,
                fence,
                self.now.begun_ms + ceil_ms(contender.first_lease),
                to.code(),
                to.permits(),
                to.kind().capacity()
            ],
        )?;
        self.grant_next(name, &mut holders)?;
        Ok(Conversion::Done { fence: token(fence) })
    }

    /// Frees a lock that is still exactly (owner, fence), and grants it to the next.
    pub(crate) fn release(&mut self, contender: &Contender, fence: FencingToken) -> Sql<Released> {
        let owner = contender.owner.to_hex();
        let ended = self.end_first(contender.name.as_str(), |holder| holder.is(&owner, fence))?;
        Ok(if ended { Released::Released } else { Released::NotHeld })
    }

    /// Leaves the line, and releases what the contender owns after all.
    pub(crate) fn cancel(&mut self, contender: &Contender) -> Sql<()> {
        let name = contender.name.as_str();
        let owner = contender.owner.to_hex();
        let waited = self.leave_line(name, &owner)? > 0;
        let held = self.end_first(name, |holder| holder.owner == owner)?;
        // A writer that leaves the line may have been all that kept the readers behind it out.
        if waited && !held {
            let mut holders = self.holders(name)?;
            self.grant_next(name, &mut holders)?;
        }
        Ok(())
    }

    /// Ends a lease that still has the expected fence.
    pub(crate) fn break_lease(&mut self, request: &BreakRequest) -> Sql<BreakOutcome> {
        let mut holders = self.holders(&request.name)?;
        let Some(at) = holders.iter().position(|holder| unsigned(holder.fence) == request.expected.get())
        else {
            return Ok(match holders.last() {
                None => BreakOutcome::Free,
                Some(newest) => BreakOutcome::ChangedHands { present: token(newest.fence) },
            });
        };
        let victim = holders.remove(at);
        self.broken(&request.name, &victim, &request.by, &request.reason)?;
        let left = holders.len();
        self.grant_next(&request.name, &mut holders)?;
        Ok(BreakOutcome::Broken {
            holder: ClientId::from_stored(&victim.client),
            next: holders.get(left).map(|next| ClientId::from_stored(&next.client)),
        })
    }

    /// Ends every lease of a lock and grants it to the contender, before all waiters: see `Backend::steal`.
    pub(crate) fn steal(&mut self, contender: &Contender, reason: &str) -> Sql<Answer> {
        let name = contender.name.as_str();
        let me = Candidate::from(contender);
        let mut holders = self.holders(name)?;
        self.live_head(name)?;
        if let Some(present) = self.other_kind(name, &holders, &me)? {
            return Ok(Answer::OtherKind { present });
        }
        if let Some(held) = find(&holders, &me.owner) {
            self.confirm(name, &me)?;
            return Ok(Answer::Held { fence: token(held.fence) });
        }
        holders.sort_by_key(|victim| victim.fence);
        for victim in holders.drain(..) {
            self.broken(name, &victim, contender.client.as_str(), reason)?;
        }
        self.leave_line(name, &me.owner)?;
        Ok(Answer::Held { fence: token(self.grant(name, &mut holders, me)?) })
    }

    /// Ends a lease that its holder did not release, records that and notifies its client.
    fn broken(&mut self, name: &str, victim: &Holder, by: &str, reason: &str) -> Sql<()> {
        self.end(name, victim)?;
        self.push(&victim.owner, |owner| Push::Revoked { owner, fence: unsigned(victim.fence) });
        self.run(
            "INSERT INTO audit (wall_ms, name, owner, fence, client, by, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![self.now.wall_us / 1000, name, victim.owner, victim.fence, victim.client, by, reason],
        )?;
        self.run(
            "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1",
            params![AUDIT_LENGTH as i64],
        )?;
        Ok(())
    }

    /// Ends the first lease of which this is so, and grants the lock to the next. Says if there was one.
    fn end_first(&mut self, name: &str, so: impl Fn(&Holder) -> bool) -> Sql<bool> {
        let mut holders = self.holders(name)?;
        let Some(at) = holders.iter().position(so) else { return Ok(false) };
        let ended = holders.remove(at);
        self.end(name, &ended)?;
        self.grant_next(name, &mut holders)?;
        Ok(true)
    }

    /// Drops silent waiters from the front of the line, at most [`REAPED_PER_STEP`], and returns the first
    /// live one.
    fn live_head(&mut self, name: &str) -> Sql<Option<Candidate>> {
        self.unswept = false;
        match self.front(name)? {
            None => return Ok(None),
            Some((first, silent_ms)) if self.lives(&first.client, silent_ms)? => return Ok(Some(first)),
            Some(_) => {}
        }
        self.drop_silent(name, REAPED_PER_STEP)?;
        let Some((first, silent_ms)) = self.front(name)? else { return Ok(None) };
        self.unswept = !self.lives(&first.client, silent_ms)?;
        Ok((!self.unswept).then_some(first))
    }

    /// Grants the lock to those at the head of the line who can have it now: one, or several who share
    /// it. Stops at the first who cannot, so that nobody overtakes.
    fn grant_next(&mut self, name: &str, holders: &mut Vec<Holder>) -> Sql<()> {
        for _ in 0..GRANTED_PER_STEP {
            let Some(candidate) = self.live_head(name)? else { break };
            if !admits(modes(holders), candidate.mode) {
                break;
            }
            self.leave_line(name, &candidate.owner)?;
            let owner = candidate.owner.clone();
            let fence = unsigned(self.grant(name, holders, candidate)?);
            self.push(&owner, |owner| Push::Granted { owner, fence });
        }
        Ok(())
    }

    /// Stands in line once, keeping the place, and gives a sign of life there.
    fn stand_in_line(&mut self, name: &str, me: &Candidate, near: Duration, far: Duration) -> Sql<u32> {
        let place = self.ticket(name, &me.owner)?;
        let ticket = place.unwrap_or_else(|| self.next_number());
        let position = self.standing_before(name, ticket)?;
        let heartbeat = if position < WaitTimes::NEAR_POSITIONS { near } else { far };
        let silent_ms = self.now.begun_ms + ceil_ms(heartbeat);
        if place.is_some() {
            self.run("UPDATE waiter SET silent_ms = ?2 WHERE owner = ?1", params![me.owner, silent_ms])?;
        } else {
            self.queue(name, me, ticket, silent_ms)?;
        }
        Ok(position)
    }

    /// Gives out the next number: never one that was given out before, and at least the wall clock in
    /// microseconds, so that numbers go on growing if the file is lost.
    pub(crate) fn next_number(&mut self) -> i64 {
        self.counter = (self.counter + 1).max(self.now.wall_us);
        self.counter
    }

    /// A row whose owner is not one of our tokens was written by hand; nobody waits for its push.
    fn push(&mut self, owner: &str, push: impl FnOnce(OwnerToken) -> Push) {
        self.pushes.extend(OwnerToken::from_hex(owner).map(push));
    }
}

fn modes(holders: &[Holder]) -> impl Iterator<Item = Mode> {
    holders.iter().map(|holder| holder.mode)
}

fn find<'h>(holders: &'h [Holder], owner: &str) -> Option<&'h Holder> {
    holders.iter().find(|holder| holder.owner == owner)
}
