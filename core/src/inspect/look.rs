//! Looking again: what one reading leaves for the next, and what time alone does to it.

use std::sync::Arc;
#[cfg(any(feature = "redis", all(feature = "consul", not(target_family = "wasm"))))]
use std::time::Duration;

use super::{ClientView, LockView, Snapshot};
#[cfg(feature = "sqlite")]
use crate::backend::ANNOUNCE_TTL;
#[cfg(all(feature = "consul", not(target_family = "wasm")))]
use crate::backend::consul::Following;
use crate::clock::Instant;

/// A reading that was put together from an older one is made anew after this time: what a store cannot
/// tell cheaply is late by no more than that.
#[cfg(any(feature = "redis", all(feature = "consul", not(target_family = "wasm"))))]
const WHOLE_EVERY: Duration = Duration::from_secs(30);

/// A reading, and what tells the next one whether something has changed since. Each store uses what it can
/// tell.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(all(feature = "redis", feature = "sqlite")),
    allow(dead_code, reason = "only these stores look at what was kept")
)]
pub(crate) struct Look {
    /// What was seen.
    pub snapshot: Arc<Snapshot>,
    /// When that was, in milliseconds on the clock by which leases end.
    pub at_ms: u64,
    /// When all of it was last read.
    pub whole_at: Instant,
    /// The store as a whole: other numbers if anything was written.
    pub version: Option<(i64, u64)>,
    /// What was seen on each of several independent nodes; `None` where one did not answer.
    #[cfg(feature = "redis")]
    pub nodes: Vec<Option<Look>>,
    /// What is told when something is written.
    #[cfg(all(feature = "consul", not(target_family = "wasm")))]
    pub following: Option<Arc<Following>>,
}

impl Look {
    /// A reading of everything, of which nothing is known for the next.
    pub fn of(snapshot: Snapshot) -> Self {
        Self {
            at_ms: snapshot.taken_at_ms,
            snapshot: Arc::new(snapshot),
            whole_at: Instant::now(),
            version: None,
            #[cfg(feature = "redis")]
            nodes: Vec::new(),
            #[cfg(all(feature = "consul", not(target_family = "wasm")))]
            following: None,
        }
    }

    /// Says whether the next look may build on this one.
    #[cfg(any(feature = "redis", all(feature = "consul", not(target_family = "wasm"))))]
    pub fn is_recent(&self) -> bool {
        self.whole_at.elapsed() < WHOLE_EVERY
    }
}

impl Snapshot {
    /// Returns the same after a time in which nothing was written; `None` if in that time something
    /// ends by itself, or may.
    #[cfg(feature = "sqlite")]
    pub(crate) fn later(&self, passed_ms: u64) -> Option<Self> {
        // When a waiter falls silent is not part of what was read.
        if self.locks.iter().any(|lock| !lock.waiters.is_empty()) {
            return None;
        }
        let most_ms = crate::clock::millis(ANNOUNCE_TTL);
        self.older(passed_ms).filter(|later| later.clients.iter().all(|client| client.seen_ago_ms < most_ms))
    }

    /// Returns the same with all ages grown; `None` if a lease ends in that time.
    #[cfg(any(all(feature = "consul", not(target_family = "wasm")), feature = "sqlite"))]
    pub(crate) fn older(&self, passed_ms: u64) -> Option<Self> {
        let mut older = self.clone();
        older.taken_at_ms = self.taken_at_ms.saturating_add(passed_ms);
        let run = older.locks.iter_mut().all(|lock| lock.grow_older(passed_ms));
        for client in &mut older.clients {
            client.seen_ago_ms = client.seen_ago_ms.saturating_add(passed_ms);
        }
        run.then_some(older)
    }
}

impl LockView {
    /// Visits every age that is known and says whether it grows with time, always in the same order.
    pub fn ages(&mut self, visit: &mut dyn FnMut(&mut u64, bool)) {
        for holder in &mut self.holders {
            for (age, grows) in [
                (&mut holder.held_for_ms, true),
                (&mut holder.remaining_ms, false),
                (&mut holder.renewed_ago_ms, true),
            ] {
                if let Some(age) = age {
                    visit(age, grows);
                }
            }
        }
        for waiter in &mut self.waiters {
            visit(&mut waiter.waited_ms, true);
        }
        for left in self.votes.iter_mut().filter_map(|vote| vote.remaining_ms.as_mut()) {
            visit(left, false);
        }
    }

    /// Lets time pass. Says whether every lease still runs.
    #[cfg(any(all(feature = "consul", not(target_family = "wasm")), feature = "redis", feature = "sqlite"))]
    pub(crate) fn grow_older(&mut self, passed_ms: u64) -> bool {
        let mut runs = true;
        self.ages(&mut |age, grows| {
            runs &= grows || *age > passed_ms;
            *age = if grows { age.saturating_add(passed_ms) } else { age.saturating_sub(passed_ms) };
        });
        runs
    }
}

impl ClientView {
    /// Visits every age, as [`LockView::ages`] does.
    pub fn ages(&mut self, visit: &mut dyn FnMut(&mut u64, bool)) {
        visit(&mut self.seen_ago_ms, true);
    }
}
