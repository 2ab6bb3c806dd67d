//! The rows of some locks as they were read: the decisions of a verb run on them, and leave what is to be written.
//!
//! Of a long queue only the first waiters are read, because most steps need no more. A step that does need more
//! ends with [`NeedsMore`], and is decided again on a larger window; nothing was written yet.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::backend::rows::{Candidate, Holder, Now, Push, Rows};
use crate::mode::Mode;

/// The step needs more waiters than were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeedsMore;

/// A lease, with what only its row says.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub holder: Holder,
    pub lease_ms: i64,
    pub first_ms: i64,
    pub renewals: i64,
    pub renewed_ms: Option<i64>,
}

/// A waiter as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub candidate: Candidate,
    pub ticket: i64,
    pub silent_ms: i64,
}

/// One lock as it was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lock {
    /// It has a row; without one there is nothing of it.
    pub exists: bool,
    pub counter: i64,
    /// The lease that stands in the row of the lock itself; an uncontended lock has no other.
    pub own: Option<Lease>,
    /// The leases beside it.
    pub beside: Vec<Lease>,
    /// The row says that there are leases beside it, or waiters.
    pub is_shared: bool,
    /// The first waiters.
    pub front: VecDeque<Waiter>,
    /// There may be waiters behind those.
    pub more: bool,
    /// The place of the contender that this step is about.
    pub ticket: Option<i64>,
    /// How many waiters were before that place, or in the queue if it has none.
    pub before: i64,
    /// Waiters that this step has removed from before that place.
    pub removed: i64,
    pub added: i64,
    pub touched: bool,
}

/// Something to write.
#[cfg_attr(
    not(feature = "mysql"),
    expect(dead_code, reason = "only the statements of MySQL name the ticket")
)]
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// The row of a lock.
    Lock {
        name: String,
        counter: i64,
        own: Option<Lease>,
        is_shared: bool,
    },
    AddLease {
        name: String,
        lease: Lease,
    },
    ChangeLease {
        name: String,
        owner: String,
        fence: i64,
        mode: Mode,
        ends_ms: i64,
    },
    EndLease {
        name: String,
        owner: String,
    },
    Queue {
        name: String,
        who: Candidate,
        ticket: i64,
        silent_ms: i64,
    },
    Heartbeat {
        name: String,
        owner: String,
        ticket: i64,
        silent_ms: i64,
    },
    Leave {
        name: String,
        owner: String,
        ticket: i64,
    },
    /// Deletes the waiters up to this place.
    Drop {
        name: String,
        ticket: i64,
    },
    Record {
        name: String,
        victim: Holder,
        by: String,
        reason: String,
    },
}

/// The locks of one step.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub now: Now,
    pub locks: BTreeMap<String, Lock>,
    writes: Vec<Write>,
    pub pushes: Vec<(String, Push)>,
    /// A lease was granted, changed or ended. Without it, only places in queues were written: if a crash of the
    /// server loses those, waiters queue up again.
    pub is_of_leases: bool,
    unswept: bool,
}

impl Window {
    pub(crate) fn new(now: Now, locks: BTreeMap<String, Lock>) -> Self {
        Self { now, locks, writes: Vec::new(), pushes: Vec::new(), is_of_leases: false, unswept: false }
    }

    fn lock(&mut self, name: &str) -> &mut Lock {
        self.locks.entry(name.to_owned()).or_default()
    }

    /// Ends the leases of these owners: their sessions are over.
    pub(crate) fn end_leases(&mut self, owners: &HashSet<String>) {
        let now_ms = self.now.clock_ms;
        for lease in self.locks.values_mut().flat_map(|lock| lock.own.iter_mut().chain(&mut lock.beside)) {
            if owners.contains(&lease.holder.owner) {
                lease.holder.ends_ms = lease.holder.ends_ms.min(now_ms);
            }
        }
    }

    /// What the step leaves to be written: the rows of the locks last, since they sum up the others.
    pub(crate) fn into_writes(mut self) -> Vec<Write> {
        for (name, lock) in self.locks {
            let is_shared = !lock.beside.is_empty()
                || !lock.front.is_empty()
                || lock.more
                || lock.added > 0
                || lock.ticket.is_some();
            if lock.exists && (lock.touched || lock.is_shared != is_shared) {
                self.writes.push(Write::Lock { name, counter: lock.counter, own: lock.own, is_shared });
            }
        }
        self.writes
    }
}

impl Rows for Window {
    type Error = NeedsMore;

    fn now(&self) -> Now {
        self.now
    }

    fn counter(&self, name: &str) -> i64 {
        self.locks.get(name).map_or(0, |lock| lock.counter)
    }

    /// One counter for each lock, in its row: one for all would let steps on different locks wait for each other.
    fn next_number(&mut self, name: &str) -> i64 {
        let wall_us = self.now.wall_us;
        let lock = self.lock(name);
        lock.counter = (lock.counter + 1).max(wall_us);
        lock.touched = true;
        lock.counter
    }

    fn holders(&mut self, name: &str) -> Result<Vec<Holder>, NeedsMore> {
        let now_ms = self.now.clock_ms;
        let mut ended = Vec::new();
        let lock = self.lock(name);
        if lock.own.as_ref().is_some_and(|own| own.holder.ends_ms <= now_ms) {
            lock.own = None;
            lock.touched = true;
        }
        lock.beside.retain(|lease| {
            let lives = lease.holder.ends_ms > now_ms;
            if !lives {
                ended.push(lease.holder.owner.clone());
            }
            lives
        });
        let mut holders: Vec<_> =
            lock.own.iter().chain(&lock.beside).map(|lease| lease.holder.clone()).collect();
        holders.sort_by_key(|holder| holder.fence);
        self.writes.extend(ended.into_iter().map(|owner| Write::EndLease { name: name.to_owned(), owner }));
        Ok(holders)
    }

    fn add(&mut self, name: &str, holder: &Holder, lease_ms: i64, first_ms: i64) -> Result<(), NeedsMore> {
        let lease = Lease { holder: holder.clone(), lease_ms, first_ms, renewals: 0, renewed_ms: None };
        self.is_of_leases = true;
        let lock = self.lock(name);
        if lock.own.is_none() {
            lock.own = Some(lease);
            lock.touched = true;
        } else {
            lock.beside.push(lease.clone());
            self.writes.push(Write::AddLease { name: name.to_owned(), lease });
        }
        Ok(())
    }

    fn extend(&mut self, name: &str, owner: &str, ends_ms: i64) -> Result<(), NeedsMore> {
        let lock = self.lock(name);
        let found = lock.own.iter().chain(&lock.beside).find(|lease| lease.holder.owner == owner);
        let Some(Holder { fence, mode, .. }) = found.map(|lease| lease.holder.clone()) else { return Ok(()) };
        self.change(name, owner, fence, mode, ends_ms)
    }

    fn change(
        &mut self,
        name: &str,
        owner: &str,
        fence: i64,
        mode: Mode,
        ends_ms: i64,
    ) -> Result<(), NeedsMore> {
        self.is_of_leases = true;
        let lock = self.lock(name);
        let change = |holder: &mut Holder| {
            holder.fence = fence;
            holder.mode = mode;
            holder.ends_ms = holder.ends_ms.max(ends_ms);
            holder.ends_ms
        };
        if let Some(own) = lock.own.as_mut().filter(|own| own.holder.owner == owner) {
            change(&mut own.holder);
            lock.touched = true;
        } else if let Some(lease) = lock.beside.iter_mut().find(|lease| lease.holder.owner == owner) {
            let ends_ms = change(&mut lease.holder);
            self.writes.push(Write::ChangeLease {
                name: name.to_owned(),
                owner: owner.to_owned(),
                fence,
                mode,
                ends_ms,
            });
        }
        Ok(())
    }

    fn end(&mut self, name: &str, owner: &str) -> Result<(), NeedsMore> {
        self.is_of_leases = true;
        let lock = self.lock(name);
        if lock.own.as_ref().is_some_and(|own| own.holder.owner == owner) {
            lock.own = None;
            lock.touched = true;
        } else {
            lock.beside.retain(|lease| lease.holder.owner != owner);
            self.writes.push(Write::EndLease { name: name.to_owned(), owner: owner.to_owned() });
        }
        Ok(())
    }

    fn front(&mut self, name: &str) -> Result<Option<(Candidate, i64)>, NeedsMore> {
        let lock = self.lock(name);
        match lock.front.front() {
            Some(first) => Ok(Some((first.candidate.clone(), first.silent_ms))),
            None if lock.more => Err(NeedsMore),
            None => Ok(None),
        }
    }

    /// The processes are on any host, so only heartbeats tell.
    fn lives(&mut self, _: &str, silent_ms: i64) -> Result<bool, NeedsMore> {
        Ok(self.now.clock_ms < silent_ms)
    }

    fn drop_silent(&mut self, name: &str, most: usize) -> Result<(), NeedsMore> {
        let now_ms = self.now.clock_ms;
        let lock = self.lock(name);
        let is_silent = |waiter: &&Waiter| waiter.silent_ms <= now_ms;
        let silent = lock.front.iter().take(most).take_while(is_silent).count();
        if silent == lock.front.len() && silent < most && lock.more {
            return Err(NeedsMore);
        }
        let mut last = None;
        for waiter in lock.front.drain(..silent) {
            last = Some(waiter.ticket);
            match lock.ticket {
                // The contender itself was stale.
                Some(ticket) if ticket == waiter.ticket => lock.ticket = None,
                Some(ticket) if ticket < waiter.ticket => {}
                _ => lock.removed += 1,
            }
        }
        if let Some(ticket) = last {
            self.writes.push(Write::Drop { name: name.to_owned(), ticket });
        }
        Ok(())
    }

    fn queue(&mut self, name: &str, who: &Candidate, ticket: i64, silent_ms: i64) -> Result<(), NeedsMore> {
        self.lock(name).added += 1;
        self.writes.push(Write::Queue { name: name.to_owned(), who: who.clone(), ticket, silent_ms });
        Ok(())
    }

    fn heartbeat(&mut self, name: &str, owner: &str, silent_ms: i64) -> Result<(), NeedsMore> {
        let Some(ticket) = self.lock(name).ticket else { return Ok(()) };
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.writes.push(Write::Heartbeat { name, owner, ticket, silent_ms });
        Ok(())
    }

    fn ticket(&mut self, name: &str, _: &str) -> Result<Option<i64>, NeedsMore> {
        Ok(self.lock(name).ticket)
    }

    fn before(&mut self, name: &str, ticket: i64) -> Result<u32, NeedsMore> {
        let lock = self.lock(name);
        let in_window = lock.front.iter().filter(|waiter| waiter.ticket < ticket).count();
        let counted = if lock.more { lock.before - lock.removed } else { in_window as i64 };
        Ok(u32::try_from(counted).unwrap_or(0))
    }

    fn leave(&mut self, name: &str, owner: &str) -> Result<bool, NeedsMore> {
        let lock = self.lock(name);
        let in_window = lock.front.iter().position(|waiter| waiter.candidate.owner == owner);
        let ticket = in_window.and_then(|at| lock.front.remove(at)).map(|waiter| waiter.ticket);
        // Behind the window only the contender itself is known.
        let Some(left) = ticket.or(lock.ticket) else { return Ok(false) };
        if lock.ticket == Some(left) {
            lock.ticket = None;
        } else {
            lock.removed += 1;
        }
        self.writes.push(Write::Leave { name: name.to_owned(), owner: owner.to_owned(), ticket: left });
        Ok(true)
    }

    fn record(&mut self, name: &str, victim: &Holder, by: &str, reason: &str) -> Result<(), NeedsMore> {
        self.writes.push(Write::Record {
            name: name.to_owned(),
            victim: victim.clone(),
            by: by.to_owned(),
            reason: reason.to_owned(),
        });
        Ok(())
    }

    fn push(&mut self, client: &str, push: Push) {
        self.pushes.push((client.to_owned(), push));
    }

    fn unswept(&mut self) -> &mut bool {
        &mut self.unswept
    }
}
