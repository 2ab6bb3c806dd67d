//! What each verb does to the rows of a lock.

use std::sync::Arc;
use std::time::Duration;

use super::{Candidate, Holder, Push, Rows, ceil_ms, millis, token, unsigned};
use crate::backend::{Answer, AnswerAll, Ask, Contender, Conversion, REAPED_PER_STEP, Released};
use crate::mode::{Kind, Mode};
use crate::policy::fencing::FencingToken;
use crate::policy::sharing::admits;
use crate::policy::waiting::{WaitAnswer, WaitTimes};
use crate::snapshot::{BreakOutcome, BreakRequest};
use crate::token::{ClientId, OwnerToken};

/// How many waiters one step lets in together at most; the next ones enter by their own polls.
const GRANTED_PER_STEP: usize = 64;

/// The verbs, step by step; each as `Backend` describes it.
pub(crate) trait Steps: Rows {
    /// Acquires, confirms, records a heartbeat and polls: see `Backend::poll`.
    fn poll(&mut self, contender: &Contender, ask: Ask) -> Result<Answer, Self::Error> {
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
            self.leave(name, &me.owner)?;
            let fence = self.grant(name, &mut holders, me)?;
            // Those behind it may share the lock with it.
            self.grant_next(name, &mut holders)?;
            return Ok(Answer::Held { fence: token(fence) });
        }
        // Helping: a client that finds the lock available to a waiter grants it to the next one.
        self.grant_next(name, &mut holders)?;
        if let Some(held) = find(&holders, &me.owner) {
            return Ok(Answer::Held { fence: token(held.fence) });
        }
        let unswept = *self.unswept();
        let position = match ask {
            Ask::Wait { near_heartbeat, far_heartbeat, .. } => {
                self.stand_in_line(name, &me, near_heartbeat, far_heartbeat)?
            }
            Ask::Try => match self.ticket(name, &me.owner)? {
                Some(ticket) => self.before(name, ticket)?,
                None => self.before(name, i64::MAX)?,
            },
        };
        // The first that may make room.
        let ends_ms = holders.iter().map(|holder| holder.ends_ms).min();
        Ok(Answer::Wait {
            answer: WaitAnswer {
                fence: unsigned(self.counter(name)),
                position: Some(position),
                holder_left: ends_ms.map(|ends_ms| millis(ends_ms - self.now().clock_ms)),
                poll_within: unswept.then_some(Duration::ZERO),
            },
            holder: holders.first().map(|holder| holder.hint(self.now().clock_ms)),
        })
    }

    /// Takes several locks of different names, or none: see `Backend::take_all`.
    fn take_all(&mut self, contenders: &[Arc<Contender>]) -> Result<AnswerAll, Self::Error> {
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
                    self.leave(name, &me.owner)?;
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
    fn confirm(&mut self, name: &str, me: &Candidate) -> Result<(), Self::Error> {
        // Never shortens: a poll that arrives late must not undo a renewal.
        let ends_ms = self.now().begun_ms + me.first_ms;
        self.extend(name, &me.owner, ends_ms)
    }

    /// As which other kind of lock this name is held or waited for, if it is.
    fn other_kind(
        &mut self,
        name: &str,
        holders: &[Holder],
        me: &Candidate,
    ) -> Result<Option<Kind>, Self::Error> {
        let present = match holders.iter().find(|holder| holder.is_known) {
            Some(holder) => Some(holder.mode),
            None => self.front(name)?.map(|(waiter, _)| waiter.mode),
        };
        Ok(present.map(Mode::kind).filter(|kind| *kind != me.mode.kind()))
    }

    /// Says whether nobody live stands before a contender, or it does not mind. Drops silent waiters from
    /// the front; of those whom one step leaves there nobody knows, so they count as live.
    fn is_turn_of(&mut self, contender: &Contender, me: &Candidate) -> Result<bool, Self::Error> {
        let name = contender.name.as_str();
        Ok(match self.live_head(name)? {
            _ if contender.barge => true,
            Some(head) => head.owner == me.owner,
            None => self.front(name)?.is_none(),
        })
    }

    /// Changes the way in which a lease is held, between reading and writing.
    fn convert(
        &mut self,
        contender: &Contender,
        fence: FencingToken,
        to: Mode,
    ) -> Result<Conversion, Self::Error> {
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
            held.fence = self.next_number(name);
        }
        held.mode = to;
        let fence = held.fence;
        let ends_ms = self.now().begun_ms + ceil_ms(contender.first_lease);
        self.change(name, &owner, fence, to, ends_ms)?;
        self.grant_next(name, &mut holders)?;
        Ok(Conversion::Done { fence: token(fence) })
    }

    /// Frees a lock that is still exactly (owner, fence), and grants it to the next.
    fn release(&mut self, contender: &Contender, fence: FencingToken) -> Result<Released, Self::Error> {
        let owner = contender.owner.to_hex();
        let ended = self.end_first(contender.name.as_str(), |holder| holder.is(&owner, fence))?;
        Ok(if ended { Released::Released } else { Released::NotHeld })
    }

    /// Leaves the line, and releases what the contender owns after all.
    fn cancel(&mut self, contender: &Contender) -> Result<(), Self::Error> {
        let name = contender.name.as_str();
        let owner = contender.owner.to_hex();
        let waited = self.leave(name, &owner)?;
        let held = self.end_first(name, |holder| holder.owner == owner)?;
        // A writer that leaves the line may have been all that kept the readers behind it out.
        if waited && !held {
            let mut holders = self.holders(name)?;
            self.grant_next(name, &mut holders)?;
        }
        Ok(())
    }

    /// Ends a lease that still has the expected fence.
    fn break_lease(&mut self, request: &BreakRequest) -> Result<BreakOutcome, Self::Error> {
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
    fn steal(&mut self, contender: &Contender, reason: &str) -> Result<Answer, Self::Error> {
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
        self.leave(name, &me.owner)?;
        Ok(Answer::Held { fence: token(self.grant(name, &mut holders, me)?) })
    }

    /// Ends a lease that its holder did not release, records that and notifies its client.
    fn broken(&mut self, name: &str, victim: &Holder, by: &str, reason: &str) -> Result<(), Self::Error> {
        self.end(name, &victim.owner)?;
        self.tell(&victim.client, &victim.owner, |owner| Push::Revoked {
            owner,
            fence: unsigned(victim.fence),
        });
        self.record(name, victim, by, reason)
    }

    /// Ends the first lease of which this is so, and grants the lock to the next. Says if there was one.
    fn end_first(&mut self, name: &str, so: impl Fn(&Holder) -> bool) -> Result<bool, Self::Error> {
        let mut holders = self.holders(name)?;
        let Some(at) = holders.iter().position(so) else { return Ok(false) };
        let ended = holders.remove(at);
        self.end(name, &ended.owner)?;
        self.grant_next(name, &mut holders)?;
        Ok(true)
    }

    /// Drops silent waiters from the front of the line, at most [`REAPED_PER_STEP`], and returns the first
    /// live one.
    fn live_head(&mut self, name: &str) -> Result<Option<Candidate>, Self::Error> {
        *self.unswept() = false;
        match self.front(name)? {
            None => return Ok(None),
            Some((first, silent_ms)) if self.lives(&first.client, silent_ms)? => return Ok(Some(first)),
            Some(_) => {}
        }
        self.drop_silent(name, REAPED_PER_STEP)?;
        let Some((first, silent_ms)) = self.front(name)? else { return Ok(None) };
        let lives = self.lives(&first.client, silent_ms)?;
        *self.unswept() = !lives;
        Ok(lives.then_some(first))
    }

    /// Grants the lock to those at the head of the line who can have it now: one, or several who share
    /// it. Stops at the first who cannot, so that nobody overtakes.
    fn grant_next(&mut self, name: &str, holders: &mut Vec<Holder>) -> Result<(), Self::Error> {
        for _ in 0..GRANTED_PER_STEP {
            let Some(candidate) = self.live_head(name)? else { break };
            if !admits(modes(holders), candidate.mode) {
                break;
            }
            self.leave(name, &candidate.owner)?;
            let (client, owner) = (candidate.client.clone(), candidate.owner.clone());
            let fence = unsigned(self.grant(name, holders, candidate)?);
            self.tell(&client, &owner, |owner| Push::Granted { owner, fence });
        }
        Ok(())
    }

    /// Queues once, keeps the position, and records a heartbeat.
    fn stand_in_line(
        &mut self,
        name: &str,
        me: &Candidate,
        near: Duration,
        far: Duration,
    ) -> Result<u32, Self::Error> {
        let place = self.ticket(name, &me.owner)?;
        let ticket = place.unwrap_or_else(|| self.next_number(name));
        let position = self.before(name, ticket)?;
        let heartbeat = if position < WaitTimes::NEAR_POSITIONS { near } else { far };
        let silent_ms = self.now().begun_ms + ceil_ms(heartbeat);
        if place.is_some() {
            self.heartbeat(name, &me.owner, silent_ms)?;
        } else {
            self.queue(name, me, ticket, silent_ms)?;
        }
        Ok(position)
    }

    /// Makes a candidate one of the holders.
    fn grant(&mut self, name: &str, holders: &mut Vec<Holder>, to: Candidate) -> Result<i64, Self::Error> {
        let fence = self.next_number(name);
        let now = self.now();
        let held = Holder {
            owner: to.owner,
            fence,
            client: to.client,
            label: to.label,
            acquired_ms: now.clock_ms,
            ends_ms: now.begun_ms + to.first_ms,
            mode: to.mode,
            is_known: true,
        };
        self.add(name, &held, to.lease_ms, to.first_ms)?;
        holders.push(held);
        Ok(fence)
    }

    /// A row whose owner is not one of our tokens was written by hand; nobody waits for its push.
    fn tell(&mut self, client: &str, owner: &str, push: impl FnOnce(OwnerToken) -> Push) {
        if let Some(owner) = OwnerToken::from_hex(owner) {
            self.push(client, push(owner));
        }
    }
}

impl<R: Rows> Steps for R {}

fn modes(holders: &[Holder]) -> impl Iterator<Item = Mode> {
    holders.iter().map(|holder| holder.mode)
}

fn find<'h>(holders: &'h [Holder], owner: &str) -> Option<&'h Holder> {
    holders.iter().find(|holder| holder.owner == owner)
}
