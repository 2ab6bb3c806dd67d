//! The readable specification: what each verb does to a store, with time as an argument.
//!
//! The scripts and statements of the other backends are compared with this one, step by step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    ANNOUNCE_TTL, Answer, AnswerAll, Ask, Contender, Conversion, Kept, REAPED_PER_STEP, Released, RenewItem,
    Renewal,
};
use crate::client_info::ClientInfo;
use crate::clock::{BootInstant, millis};
use crate::mode::{Kind, Mode};
use crate::policy::fencing::FencingToken;
use crate::policy::keeping::set_aside;
use crate::policy::sharing::admits;
use crate::policy::waiting::WaitAnswer;
use crate::snapshot::{AuditEntry, ClientView, Query, Snapshot};
use crate::token::OwnerToken;

mod breaking;
mod view;

/// How many waiters one step lets in together at most; the next ones enter by their own polls.
const GRANTED_PER_STEP: usize = 64;

/// The time at which a step is carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Decides what has expired.
    pub boot: BootInstant,
    /// Floors the fence counter and is shown to people; decides nothing else.
    pub wall_us: u64,
}

/// What a step tells a client without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Push {
    Granted {
        owner: OwnerToken,
        fence: u64,
    },
    Revoked {
        owner: OwnerToken,
        fence: u64,
    },
    /// Another client wants a lock whose lease is kept.
    Wanted {
        owner: OwnerToken,
        fence: u64,
    },
}

#[derive(Debug, Clone)]
struct Holder {
    contender: Arc<Contender>,
    fence: u64,
    acquired: Now,
    ends_at: BootInstant,
    renewals: u32,
    renewed_at: Option<BootInstant>,
    /// When it was last free for its client's next caller, and until when its client wants to know of others who want the
    /// lock.
    kept: Option<(BootInstant, BootInstant)>,
}

#[derive(Debug, Clone)]
struct Waiter {
    contender: Arc<Contender>,
    since: Now,
    /// Without a heartbeat until then it is skipped.
    silent_at: BootInstant,
    /// When it gives up, by the wall clock; for display.
    gives_up_at_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Lock {
    /// More than one only if they can hold it together.
    holders: Vec<Holder>,
    /// In the order in which they came.
    line: VecDeque<Waiter>,
    /// The latest step could not drop all silent waiters from the front.
    unswept: bool,
}

/// All locks of one store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    locks: BTreeMap<String, Lock>,
    /// The largest number given out, as fence or as ticket. Outlives every lock.
    counter: u64,
    clients: Vec<(Arc<ClientInfo>, BootInstant)>,
    audit: VecDeque<AuditEntry>,
}

impl Store {
    /// Acquires, confirms, gives a sign of life and polls: see `Backend::poll`.
    pub(crate) fn poll(&mut self, now: Now, contender: &Arc<Contender>, ask: Ask) -> (Answer, Vec<Push>) {
        let mut pushes = Vec::new();
        let name = contender.name.as_str().to_owned();
        let mut lock = self.take(&name, now);

        let answer = 'answer: {
            let my_turn = lock.is_turn_of(contender, now);
            if let Some(present) = lock.kind(now).filter(|kind| *kind != contender.mode.kind()) {
                break 'answer Answer::OtherKind { present };
            }
            if let Some(fence) = lock.confirm(contender, now) {
                break 'answer Answer::Held { fence };
            }
            if my_turn && lock.admits(contender.mode) {
                lock.leave_line(contender.owner);
                let fence = self.grant(&mut lock, contender, now);
                // Those behind it may share the lock with it.
                pushes.extend(self.grant_next(&mut lock, now));
                break 'answer Answer::Held { fence: FencingToken::new(fence) };
            }
            // Helping: whoever finds that somebody can have the lock grants it to the one whose turn it is.
            pushes.extend(self.grant_next(&mut lock, now));
            if let Some(holder) = lock.held_by(contender.owner) {
                break 'answer Answer::Held { fence: FencingToken::new(holder.fence) };
            }
            pushes.extend(lock.wanted(now));
            let unswept = lock.unswept;
            if let Ask::Wait { near_heartbeat, far_heartbeat, left } = ask {
                let gives_up_at_ms = left.map(|left| now.wall_us / 1000 + millis(left));
                self.stand_in_line(
                    &mut lock,
                    contender,
                    now,
                    [near_heartbeat, far_heartbeat],
                    gives_up_at_ms,
                );
            }
            let position = lock.position(contender.owner).unwrap_or(lock.line.len());
            Answer::Wait {
                answer: WaitAnswer {
                    fence: self.counter,
                    position: Some(position as u32),
                    // The first that may make room.
                    holder_left: lock.holders.iter().map(|holder| holder.ends_at.since(now.boot)).min(),
                    poll_within: unswept.then_some(Duration::ZERO),
                },
                holder: lock.holders.first().map(|holder| holder.hint(now)),
            }
        };
        self.put(name, lock);
        (answer, pushes)
    }

    /// Takes several locks of different names, or none: see `Backend::take_all`.
    pub(crate) fn take_all(&mut self, now: Now, contenders: &[Arc<Contender>]) -> (AnswerAll, Vec<Push>) {
        let mut pushes = Vec::new();
        let mut locks: Vec<_> =
            contenders.iter().map(|contender| self.take(contender.name.as_str(), now)).collect();

        let answer = 'answer: {
            // All are looked at before the first one is touched. Who holds the one that cannot be had is told.
            for (at, (lock, contender)) in locks.iter_mut().zip(contenders).enumerate() {
                let my_turn = lock.is_turn_of(contender, now);
                if let Some(present) = lock.kind(now).filter(|kind| *kind != contender.mode.kind()) {
                    break 'answer AnswerAll::OtherKind { at, present };
                }
                let is_held = lock.held_by(contender.owner).is_some();
                let can_be_had = is_held || (my_turn && lock.admits(contender.mode));
                if !can_be_had {
                    pushes.extend(lock.wanted(now));
                    break 'answer AnswerAll::Refused;
                }
            }
            let mut fences = Vec::with_capacity(locks.len());
            for (lock, contender) in locks.iter_mut().zip(contenders) {
                fences.push(match lock.confirm(contender, now) {
                    Some(fence) => fence,
                    None => {
                        lock.leave_line(contender.owner);
                        FencingToken::new(self.grant(lock, contender, now))
                    }
                });
            }
            // Those whom one of them overtook may share its lock with it.
            for lock in &mut locks {
                pushes.extend(self.grant_next(lock, now));
            }
            AnswerAll::Held { fences }
        };
        for (lock, contender) in locks.into_iter().zip(contenders) {
            self.put(contender.name.as_str().to_owned(), lock);
        }
        (answer, pushes)
    }

    /// Extends a lease that is still exactly (owner, fence). Never creates one.
    pub(crate) fn renew(&mut self, now: Now, item: &RenewItem) -> Renewal {
        let name = item.contender.name.as_str();
        let mut lock = self.take(name, now);
        let renewal = match lock.held_by(item.contender.owner) {
            Some(holder) if holder.fence == item.fence.get() => {
                // Never shorten: a renewal that arrives late must not undo a later one.
                holder.ends_at = holder.ends_at.max(now.boot + item.lease);
                holder.record(item, now);
                holder.renewals = item.renewals;
                holder.renewed_at = Some(now.boot);
                Renewal::Extended
            }
            _ => Renewal::NotYours,
        };
        self.put(name.to_owned(), lock);
        renewal
    }

    /// Changes the way in which a lease is held, between reading and writing.
    pub(crate) fn convert(
        &mut self,
        now: Now,
        contender: &Contender,
        fence: u64,
        to: Mode,
    ) -> (Conversion, Vec<Push>) {
        let name = contender.name.as_str();
        let mut lock = self.take(name, now);
        let others = lock.holders.iter().any(|holder| holder.contender.owner != contender.owner);
        let mut pushes = Vec::new();
        let conversion = match lock.held_by(contender.owner) {
            Some(holder) if holder.fence == fence => {
                if to == Mode::Write && others {
                    Conversion::Refused
                } else {
                    if to == Mode::Write {
                        // Newer than every reader that was let in beside it.
                        let newer = self.next_number(now);
                        holder.fence = newer;
                    }
                    holder.contender = Arc::new(Contender { mode: to, ..(*holder.contender).clone() });
                    holder.ends_at = holder.ends_at.max(now.boot + contender.first_lease);
                    let fence = FencingToken::new(holder.fence);
                    pushes.extend(self.grant_next(&mut lock, now));
                    Conversion::Done { fence }
                }
            }
            _ => Conversion::NotHeld,
        };
        self.put(name.to_owned(), lock);
        (conversion, pushes)
    }

    /// Frees a lock that is still exactly (owner, fence), and grants it to the next.
    pub(crate) fn release(&mut self, now: Now, contender: &Contender, fence: u64) -> (Released, Vec<Push>) {
        let name = contender.name.as_str();
        let mut lock = self.take(name, now);
        let mut pushes = Vec::new();
        let released = if lock.end(|holder| holder.is(contender.owner, fence)).is_some() {
            pushes.extend(self.grant_next(&mut lock, now));
            Released::Released
        } else {
            Released::NotHeld
        };
        self.put(name.to_owned(), lock);
        (released, pushes)
    }

    /// Keeps a lease that is not in use, or hands the lock on: see `Backend::keep`.
    pub(crate) fn keep(&mut self, now: Now, item: &RenewItem, tokens: u64) -> (Kept, Vec<Push>) {
        let (name, owner, fence) = (item.contender.name.as_str(), item.contender.owner, item.fence.get());
        let mut lock = self.take(name, now);
        let mut pushes = Vec::new();
        let is_held = lock.held_by(owner).is_some_and(|holder| holder.fence == fence);
        let waits = is_held && (lock.live_head(now).is_some() || lock.unswept);
        let kept = match lock.held_by(owner).filter(|_| is_held) {
            None => Kept::NotHeld,
            Some(_) if waits => {
                lock.end(|holder| holder.is(owner, fence));
                pushes.extend(self.grant_next(&mut lock, now));
                Kept::Released
            }
            Some(holder) => {
                let ends_at = now.boot + item.lease;
                holder.ends_at = holder.ends_at.max(ends_at);
                holder.renewals = holder.renewals.max(item.renewals);
                holder.renewed_at = Some(now.boot);
                holder.kept = Some((now.boot, ends_at));
                let tokens = set_aside(self.counter, now.wall_us, tokens);
                self.counter = tokens.map_or(self.counter, |(_, last)| last);
                Kept::Extended { tokens }
            }
        };
        self.put(name.to_owned(), lock);
        (kept, pushes)
    }

    /// Leaves the line, and releases what the contender owns after all.
    pub(crate) fn cancel(&mut self, now: Now, contender: &Contender) -> Vec<Push> {
        let name = contender.name.as_str();
        let mut lock = self.take(name, now);
        let mut pushes = Vec::new();
        let waited = lock.leave_line(contender.owner).is_some();
        let held = lock.end(|holder| holder.contender.owner == contender.owner).is_some();
        // A writer that leaves the line may have been all that kept the readers behind it out.
        if held || waited {
            pushes.extend(self.grant_next(&mut lock, now));
        }
        self.put(name.to_owned(), lock);
        pushes
    }

    /// Records who a client is.
    pub(crate) fn announce(&mut self, now: Now, client: &Arc<ClientInfo>) {
        self.clients.retain(|(other, seen)| other.id != client.id && now.boot.since(*seen) < ANNOUNCE_TTL);
        self.clients.push((Arc::clone(client), now.boot));
    }

    /// Reads everything that the query asks for.
    pub(crate) fn snapshot(&self, now: Now, query: &Query) -> Snapshot {
        let wanted = || {
            self.locks.iter().filter(|(name, lock)| {
                query.wants(name)
                    && (query.name.is_some()
                        || !lock.line.is_empty()
                        || lock.live_holders(now).next().is_some())
            })
        };
        let mut locks: Vec<_> =
            wanted().take(query.limit()).map(|(name, lock)| lock.view(name, now)).collect();
        if let Some(name) = &query.name
            && locks.is_empty()
        {
            locks.push(Lock::default().view(name, now));
        }
        let present = self.clients.iter().filter(|(_, seen)| now.boot.since(*seen) < ANNOUNCE_TTL);
        let mut clients: Vec<_> = present
            .map(|(client, seen)| ClientView {
                id: client.id.clone(),
                host: client.host.clone(),
                pid: client.pid,
                process_started_at_ms: client.process_started_at_ms,
                boot: client.boot.clone(),
                pid_namespace: client.pid_namespace.clone(),
                program: client.program.clone(),
                language: client.language.clone(),
                version: client.version.clone(),
                seen_ago_ms: millis(now.boot.since(*seen)),
            })
            .collect();
        clients.sort_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
        Snapshot {
            backend: "memory".into(),
            taken_at_ms: now.wall_us / 1000,
            round_trip: Duration::ZERO,
            requests: 0,
            truncated: wanted().count() > query.limit(),
            troubles: Vec::new(),
            locks,
            clients,
            audit: self.audit.iter().filter(|entry| query.wants(&entry.name)).cloned().collect(),
        }
    }

    /// Takes a lock out, without holders whose lease has ended.
    fn take(&mut self, name: &str, now: Now) -> Lock {
        let mut lock = self.locks.remove(name).unwrap_or_default();
        lock.holders.retain(|holder| now.boot < holder.ends_at);
        lock
    }

    /// Puts a lock back, unless nothing is left of it.
    fn put(&mut self, name: String, lock: Lock) {
        if !lock.holders.is_empty() || !lock.line.is_empty() {
            self.locks.insert(name, lock);
        }
    }

    /// Gives out the next number: never one that was given out before, and at least the wall clock
    /// in microseconds, so that numbers go on growing after a store has lost its data.
    fn next_number(&mut self, now: Now) -> u64 {
        self.counter = (self.counter + 1).max(now.wall_us);
        self.counter
    }

    fn grant(&mut self, lock: &mut Lock, contender: &Arc<Contender>, now: Now) -> u64 {
        let fence = self.next_number(now);
        lock.holders.push(Holder {
            contender: Arc::clone(contender),
            fence,
            acquired: now,
            ends_at: now.boot + contender.first_lease,
            renewals: 0,
            renewed_at: None,
            kept: None,
        });
        fence
    }

    /// Grants the lock to those at the head of the line who can have it now: one, or several who share
    /// it. Stops at the first who cannot, so that nobody overtakes.
    fn grant_next(&mut self, lock: &mut Lock, now: Now) -> Vec<Push> {
        let mut pushes = Vec::new();
        while pushes.len() < GRANTED_PER_STEP
            && let Some(owner) = lock.live_head(now)
            && let Some(mode) = lock.line.front().map(|waiter| waiter.contender.mode)
            && lock.admits(mode)
            && let Some(waiter) = lock.leave_line(owner)
        {
            let fence = self.grant(lock, &waiter.contender, now);
            pushes.push(Push::Granted { owner, fence });
        }
        pushes
    }

    fn stand_in_line(
        &mut self,
        lock: &mut Lock,
        contender: &Arc<Contender>,
        now: Now,
        [near, far]: [Duration; 2],
        gives_up_at_ms: Option<u64>,
    ) {
        let position = lock.position(contender.owner).unwrap_or_else(|| {
            // A place in line takes a number, as it does in stores that sort the line by it: a grant
            // that follows is then certainly newer than the answer that this waiter gets.
            self.next_number(now);
            let contender = Arc::clone(contender);
            lock.line.push_back(Waiter { contender, since: now, silent_at: now.boot, gives_up_at_ms });
            lock.line.len() - 1
        });
        let is_near = (position as u32) < crate::policy::waiting::WaitTimes::NEAR_POSITIONS;
        lock.line[position].silent_at = now.boot + if is_near { near } else { far };
    }
}

impl Lock {
    fn live_holders(&self, now: Now) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| now.boot < holder.ends_at)
    }

    fn held_by(&mut self, owner: OwnerToken) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.contender.owner == owner)
    }

    /// Extends the lease that this contender has, if it has one, to at least a first lease.
    fn confirm(&mut self, contender: &Contender, now: Now) -> Option<FencingToken> {
        let holder = self.held_by(contender.owner)?;
        // Never shorten: a poll that arrives late must not undo a renewal.
        holder.ends_at = holder.ends_at.max(now.boot + contender.first_lease);
        Some(FencingToken::new(holder.fence))
    }

    /// Says whether nobody live stands before a contender, or it does not mind. Drops silent waiters from
    /// the front; of those whom one step leaves there nobody knows, so they count as live.
    fn is_turn_of(&mut self, contender: &Contender, now: Now) -> bool {
        match self.live_head(now) {
            _ if contender.barge => true,
            Some(owner) => owner == contender.owner,
            None => self.line.is_empty(),
        }
    }

    /// Tells a holder who keeps its lease that another client wants the lock.
    fn wanted(&self, now: Now) -> Option<Push> {
        let holder = self.live_holders(now).find(|holder| holder.idle_at(now).is_some())?;
        Some(Push::Wanted { owner: holder.contender.owner, fence: holder.fence })
    }

    /// Takes out the first lease of which this is so.
    fn end(&mut self, so: impl Fn(&Holder) -> bool) -> Option<Holder> {
        let at = self.holders.iter().position(so)?;
        Some(self.holders.remove(at))
    }

    fn admits(&self, mode: Mode) -> bool {
        admits(self.holders.iter().map(|holder| holder.contender.mode), mode)
    }

    /// What kind of lock this is, as long as anybody holds or waits.
    fn kind(&self, now: Now) -> Option<Kind> {
        let held = self.live_holders(now).next().map(|holder| holder.contender.mode);
        let wanted = self.line.front().map(|waiter| waiter.contender.mode);
        held.or(wanted).map(Mode::kind)
    }

    /// Drops silent waiters from the front, at most [`REAPED_PER_STEP`], and returns the first live one.
    fn live_head(&mut self, now: Now) -> Option<OwnerToken> {
        let is_silent = |waiter: &Waiter| waiter.silent_at <= now.boot;
        let silent = self.line.iter().take(REAPED_PER_STEP).take_while(|waiter| is_silent(waiter)).count();
        self.line.drain(..silent);
        let first = self.line.front();
        self.unswept = first.is_some_and(is_silent);
        first.filter(|first| !is_silent(first)).map(|first| first.contender.owner)
    }

    fn position(&self, owner: OwnerToken) -> Option<usize> {
        self.line.iter().position(|waiter| waiter.contender.owner == owner)
    }

    fn leave_line(&mut self, owner: OwnerToken) -> Option<Waiter> {
        self.line.remove(self.position(owner)?)
    }
}

impl Holder {
    fn is(&self, owner: OwnerToken, fence: u64) -> bool {
        self.contender.owner == owner && self.fence == fence
    }

    /// Records the length that a renewal brings, but never less than what is left: readers of the record take
    /// it for the longest that the lease can last.
    fn record(&mut self, item: &RenewItem, now: Now) {
        if item.length != self.contender.lease {
            let lease = item.length.max(self.ends_at.since(now.boot));
            let first_lease = if item.renewals == 0 { lease } else { self.contender.first_lease };
            self.contender = Arc::new(Contender { lease, first_lease, ..(*self.contender).clone() });
        }
    }
}
