//! Following a store: what one snapshot leaves for the next, and what time alone does to it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientView, LockView, Snapshot};

/// A snapshot that was put together from an older one is read whole again after this time: what a store cannot
/// tell cheaply is late by no more than that.
#[cfg_attr(
    not(any(feature = "redis", feature = "consul")),
    allow(dead_code, reason = "the other stores know of every change")
)]
pub(crate) const WHOLE_EVERY: Duration = Duration::from_secs(30);

/// A snapshot, and what its store keeps to tell whether something has changed since.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub snapshot: Arc<Snapshot>,
    /// Opaque to all but the store that wrote it.
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Followed {
    /// A snapshot that leaves nothing for the next one.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot: Arc::new(snapshot), kept: None }
    }

    /// A snapshot, and what its store reads from it before it takes the next one.
    #[cfg_attr(
        not(any(feature = "redis", feature = "consul", feature = "sqlite")),
        allow(dead_code, reason = "memory is read whole every time")
    )]
    pub fn keeping<T: Any + Send + Sync>(snapshot: Snapshot, kept: T) -> Self {
        Self { snapshot: Arc::new(snapshot), kept: Some(Arc::new(kept)) }
    }

    /// Returns what the store kept; `None` if it kept nothing.
    #[cfg_attr(
        not(any(feature = "redis", feature = "consul", feature = "sqlite")),
        allow(dead_code, reason = "memory is read whole every time")
    )]
    pub fn kept<T: Any>(&self) -> Option<&T> {
        self.kept.as_deref()?.downcast_ref()
    }
}

impl Snapshot {
    /// Returns the same after a time in which nothing was written; `None` if in that time something
    /// ends, or may. `announce_ttl` is how long a silent client is kept.
    #[cfg(feature = "sqlite")]
    pub(crate) fn later(&self, passed_ms: u64, announce_ttl: Duration) -> Option<Self> {
        // When a waiter falls silent is not part of what was read.
        if self.locks.iter().any(|lock| !lock.waiters.is_empty()) {
            return None;
        }
        let most_ms = crate::clock::millis(announce_ttl);
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
                (&mut holder.idle_ago_ms, true),
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
