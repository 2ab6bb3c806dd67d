//! The steps of a store in SQL: what each verb does inside one write transaction.
//!
//! The caller holds the write lock, has checked the boot, and read the time after it got the lock.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::host::Now;
use super::tidy::SweepMark;
use super::units::{ceil_ms, millis, signed, token, unsigned};
use crate::backend::{AUDIT_LENGTH, Answer, Ask, Contender, HolderHint, Released, RenewItem, Renewal};
use crate::inspect::{BreakOutcome, BreakRequest};
use crate::policy::fencing::FencingToken;
use crate::policy::waiting::{WaitAnswer, WaitTimes};
use crate::token::{ClientId, OwnerToken};

pub(super) type Sql<T> = rusqlite::Result<T>;

/// How many silent waiters one step drops at most, so that no step is long.
const REAPED_PER_STEP: usize = 64;

/// What a step tells this client without being asked. Owners of other clients are ignored there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Push {
    Granted { owner: OwnerToken, fence: u64 },
    Revoked { owner: OwnerToken, fence: u64 },
}

/// The store inside one transaction.
pub(super) struct Store<'c> {
    pub conn: &'c Connection,
    pub now: Now,
    /// The largest number given out; the caller writes it back before it commits.
    pub counter: i64,
    pub pushes: Vec<Push>,
    pub sweep_mark: &'c mut SweepMark,
}

/// Who gets a lock: a contender that asks, or a waiter as it was written down.
struct Candidate {
    owner: String,
    client: String,
    label: String,
    lease_ms: i64,
    first_ms: i64,
}

struct Holder {
    owner: String,
    fence: i64,
    client: String,
    label: String,
    acquired_ms: i64,
    ends_ms: i64,
}

impl Store<'_> {
    /// Acquires, confirms, gives a sign of life and polls: see `Backend::poll`.
    pub(super) fn poll(&mut self, contender: &Contender, ask: Ask) -> Sql<Answer> {
        let name = contender.name.as_str();
        let me = Candidate::from(contender);
        let mut holder = self.live_holder(name)?;
        if let Some(held) = &holder
            && held.owner == me.owner
        {
            // max() never shortens: a poll that arrives late must not undo a renewal.
            self.run(
                "UPDATE lease SET ends_ms = max(ends_ms, ?2) WHERE name = ?1",
                params![name, self.now.begun_ms + me.first_ms],
            )?;
            return Ok(Answer::Held { fence: token(held.fence) });
        }
        if holder.is_none() {
            let head = self.live_head(name)?;
            if contender.barge || head.as_ref().is_none_or(|head| head.owner == me.owner) {
                self.leave_line(name, &me.owner)?;
                let held = self.grant(name, me)?;
                return Ok(Answer::Held { fence: token(held.fence) });
            }
            // Helping: whoever finds the lock free grants it to the one whose turn it is.
            holder = self.grant_next(name)?;
        }
        let position = match ask {
            Ask::Wait { near_heartbeat, far_heartbeat } => {
                self.stand_in_line(name, &me, near_heartbeat, far_heartbeat)?
            }
            Ask::Try => match self.ticket(name, &me.owner)? {
                Some(ticket) => self.standing_before(name, ticket)?,
                None => self.standing_before(name, i64::MAX)?,
            },
        };
        Ok(Answer::Wait {
            answer: WaitAnswer {
                fence: unsigned(self.counter),
                position: Some(position),
                holder_left: holder.as_ref().map(|holder| millis(holder.ends_ms - self.now.boot_ms)),
                poll_within: None,
            },
            holder: holder.map(|holder| HolderHint {
                client: Some(ClientId::from_stored(&holder.client)),
                label: holder.label,
                held_for: Some(millis(self.now.boot_ms - holder.acquired_ms)),
                left: Some(millis(holder.ends_ms - self.now.boot_ms)),
            }),
        })
    }

    /// Extends a lease that is still exactly (owner, fence). Never creates one.
    pub(super) fn renew(&mut self, item: &RenewItem) -> Sql<Renewal> {
        let owner = item.contender.owner.to_hex();
        let fence = signed(item.fence.get());
        let extended = self.run(
            "UPDATE lease SET ends_ms = ?4, renewals = ?5, renewed_ms = ?6 \
             WHERE name = ?1 AND owner = ?2 AND fence = ?3 AND ends_ms > ?6",
            params![
                item.contender.name.as_str(),
                owner,
                fence,
                self.now.begun_ms + ceil_ms(item.lease),
                item.renewals,
                self.now.boot_ms
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

    /// Frees a lock that is still exactly (owner, fence), and grants it to the next.
    pub(super) fn release(&mut self, contender: &Contender, fence: FencingToken) -> Sql<Released> {
        let name = contender.name.as_str();
        let ended: Option<i64> = self
            .conn
            .prepare_cached(
                "DELETE FROM lease WHERE name = ?1 AND owner = ?2 AND fence = ?3 RETURNING ends_ms",
            )?
            .query_row(params![name, contender.owner.to_hex(), signed(fence.get())], |row| row.get(0))
            .optional()?;
        if ended.is_none_or(|ends_ms| ends_ms <= self.now.boot_ms) {
            return Ok(Released::NotHeld);
        }
        self.grant_next(name)?;
        Ok(Released::Released)
    }

    /// Leaves the line, and releases what the contender owns after all.
    pub(super) fn cancel(&mut self, contender: &Contender) -> Sql<()> {
        let name = contender.name.as_str();
        let owner = contender.owner.to_hex();
        self.leave_line(name, &owner)?;
        let ended: Option<i64> = self
            .conn
            .prepare_cached("DELETE FROM lease WHERE name = ?1 AND owner = ?2 RETURNING ends_ms")?
            .query_row(params![name, owner], |row| row.get(0))
            .optional()?;
        if ended.is_some_and(|ends_ms| ends_ms > self.now.boot_ms) {
            self.grant_next(name)?;
        }
        Ok(())
    }

    /// Ends a lease that still has the expected fence.
    pub(super) fn break_lease(&mut self, request: &BreakRequest) -> Sql<BreakOutcome> {
        let Some(victim) = self.live_holder(&request.name)? else { return Ok(BreakOutcome::Free) };
        if unsigned(victim.fence) != request.expected.get() {
            return Ok(BreakOutcome::ChangedHands { present: token(victim.fence) });
        }
        self.run("DELETE FROM lease WHERE name = ?1", params![request.name])?;
        self.push(&victim.owner, |owner| Push::Revoked { owner, fence: request.expected.get() });
        let next = self.grant_next(&request.name)?;
        self.run(
            "INSERT INTO audit (wall_ms, name, owner, fence, client, by, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                self.now.wall_us / 1000,
                request.name,
                victim.owner,
                victim.fence,
                victim.client,
                request.by,
                request.reason
            ],
        )?;
        self.run(
            "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?1",
            params![AUDIT_LENGTH as i64],
        )?;
        Ok(BreakOutcome::Broken {
            holder: ClientId::from_stored(&victim.client),
            next: next.map(|next| ClientId::from_stored(&next.client)),
        })
    }

    fn live_holder(&self, name: &str) -> Sql<Option<Holder>> {
        self.conn
            .prepare_cached(
                "SELECT owner, fence, client, label, acquired_ms, ends_ms FROM lease \
                 WHERE name = ?1 AND ends_ms > ?2",
            )?
            .query_row(params![name, self.now.boot_ms], Holder::from_row)
            .optional()
    }

    /// Drops silent waiters from the front of the line and returns the first live one.
    fn live_head(&mut self, name: &str) -> Sql<Option<Candidate>> {
        for _ in 0..REAPED_PER_STEP {
            let first: Option<(Candidate, i64)> = self
                .conn
                .prepare_cached(
                    "SELECT owner, client, label, lease_ms, first_ms, silent_ms FROM waiter \
                     WHERE name = ?1 ORDER BY ticket LIMIT 1",
                )?
                .query_row(params![name], |row| Ok((Candidate::from_row(row)?, row.get(5)?)))
                .optional()?;
            let Some((candidate, silent_ms)) = first else { return Ok(None) };
            if self.now.boot_ms < silent_ms {
                return Ok(Some(candidate));
            }
            self.leave_line(name, &candidate.owner)?;
        }
        Ok(None)
    }

    fn grant_next(&mut self, name: &str) -> Sql<Option<Holder>> {
        let Some(candidate) = self.live_head(name)? else { return Ok(None) };
        self.leave_line(name, &candidate.owner)?;
        let held = self.grant(name, candidate)?;
        let fence = unsigned(held.fence);
        self.push(&held.owner, |owner| Push::Granted { owner, fence });
        Ok(Some(held))
    }

    /// Makes a candidate the holder. Only where no live lease is; an ended one is overwritten.
    fn grant(&mut self, name: &str, to: Candidate) -> Sql<Holder> {
        let fence = self.next_number();
        let now = self.now.boot_ms;
        self.run(
            "INSERT OR REPLACE INTO lease \
             (name, owner, fence, client, label, lease_ms, acquired_wall_ms, acquired_ms, ends_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                name,
                to.owner,
                fence,
                to.client,
                to.label,
                to.lease_ms,
                self.now.wall_us / 1000,
                now,
                self.now.begun_ms + to.first_ms
            ],
        )?;
        Ok(Holder {
            owner: to.owner,
            fence,
            client: to.client,
            label: to.label,
            acquired_ms: now,
            ends_ms: self.now.begun_ms + to.first_ms,
        })
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
            self.run(
                "INSERT INTO waiter (owner, name, ticket, client, label, lease_ms, first_ms, since_wall_ms, \
                 since_ms, silent_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    me.owner,
                    name,
                    ticket,
                    me.client,
                    me.label,
                    me.lease_ms,
                    me.first_ms,
                    self.now.wall_us / 1000,
                    self.now.boot_ms,
                    silent_ms
                ],
            )?;
        }
        Ok(position)
    }

    fn ticket(&self, name: &str, owner: &str) -> Sql<Option<i64>> {
        self.conn
            .prepare_cached("SELECT ticket FROM waiter WHERE owner = ?1 AND name = ?2")?
            .query_row(params![owner, name], |row| row.get(0))
            .optional()
    }

    fn standing_before(&self, name: &str, ticket: i64) -> Sql<u32> {
        self.conn
            .prepare_cached("SELECT count(*) FROM waiter WHERE name = ?1 AND ticket < ?2")?
            .query_row(params![name, ticket], |row| row.get(0))
    }

    fn leave_line(&mut self, name: &str, owner: &str) -> Sql<usize> {
        self.run("DELETE FROM waiter WHERE owner = ?1 AND name = ?2", params![owner, name])
    }

    /// Gives out the next number: never one that was given out before, and at least the wall clock in
    /// microseconds, so that numbers go on growing if the file is lost.
    fn next_number(&mut self) -> i64 {
        self.counter = (self.counter + 1).max(self.now.wall_us);
        self.counter
    }

    /// A row whose owner is not one of our tokens was written by hand; nobody waits for its push.
    fn push(&mut self, owner: &str, push: impl FnOnce(OwnerToken) -> Push) {
        self.pushes.extend(OwnerToken::from_hex(owner).map(push));
    }

    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Sql<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }
}

impl From<&Contender> for Candidate {
    fn from(contender: &Contender) -> Self {
        Self {
            owner: contender.owner.to_hex(),
            client: contender.client.as_str().to_owned(),
            label: contender.label.clone(),
            lease_ms: ceil_ms(contender.lease),
            first_ms: ceil_ms(contender.first_lease),
        }
    }
}

impl Candidate {
    fn from_row(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            owner: row.get(0)?,
            client: row.get(1)?,
            label: row.get(2)?,
            lease_ms: row.get(3)?,
            first_ms: row.get(4)?,
        })
    }
}

impl Holder {
    fn from_row(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            owner: row.get(0)?,
            fence: row.get(1)?,
            client: row.get(2)?,
            label: row.get(3)?,
            acquired_ms: row.get(4)?,
            ends_ms: row.get(5)?,
        })
    }
}
