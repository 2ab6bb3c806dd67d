//! Who holds, who waits, and whether renewal is alive: reading a store, watching it, breaking a lease.
//!
//! Everything here comes from the store alone; the processes that hold or wait are not asked.
//! What a store cannot say is `None`, never invented. Times are the store's own clock, in
//! milliseconds since the Unix epoch; ages are computed by the store, so that no two clocks are compared.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Reply;
use crate::driver::Core;
use crate::error::Result;
use crate::name::LockName;
use crate::snapshot::{Followed, check_words};

pub use crate::snapshot::{
    AuditEntry, BreakOutcome, BreakRequest, Check, CheckSeverity, ClientView, Detail, Event, EventKind,
    Examination, HolderView, Holds, LockView, Promise, Query, Snapshot, Trouble, TroubleKind, VoteView,
    WaiterView, changes,
};

/// Reads who holds and who waits, and ends leases. Cheap to clone.
#[derive(Clone)]
pub struct Inspector {
    core: Arc<Core>,
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspector").finish_non_exhaustive()
    }
}

impl Inspector {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Reads the locks that the query asks for. Changes nothing in the store.
    ///
    /// Errors: `invalid_argument` for an impossible name, `backend_unavailable`, `backend_rejected`.
    /// Cancellation: safe.
    pub async fn list(&self, query: &Query) -> Result<Snapshot> {
        query.check()?;
        self.reading(self.core.backend.snapshot(query)).await
    }

    /// Reads the same again and again; see [`Follower::read`].
    pub fn follow(&self, query: Query) -> Follower {
        Follower { inspector: self.clone(), query, before: None }
    }

    async fn reading<T: Send + 'static>(&self, request: Reply<T>) -> Result<T> {
        // Large stores are read in many pages, each of which has the client's time limit.
        let limit = self.core.settings.timeout * 10;
        let backend = self.core.backend.capability().backend;
        self.core.service.within(limit, request).await.map_err(|error| error.during(backend, "list"))
    }

    /// Looks at the store as a careful operator would: what this set-up can and cannot promise, and
    /// how to fix it. Touches no lock; what it tries, it tries under throw-away keys.
    ///
    /// What it may not look at is a finding of severity `unknown`, not an error.
    /// Errors: `backend_unavailable`, `backend_rejected`. Cancellation: safe.
    pub async fn examine(&self) -> Result<Examination> {
        let limit = self.core.settings.timeout * 10;
        self.core
            .service
            .within(limit, self.core.backend.examine())
            .await
            .map_err(|error| error.during(self.core.backend.capability().backend, "examine"))
    }

    /// Follows the store by reading it again and again; see [`Watch::next`].
    pub fn watch(&self, query: Query, every: Duration) -> Watch {
        Watch { follower: self.follow(query), every, before: None }
    }

    /// Breaks a lease, if it still has the expected fencing token.
    ///
    /// The next waiter gets the lock at once, an audit entry is left, and the old holder is notified: at
    /// once where the store can push, else by its next renewal. It may still be at work until then,
    /// so what it protects must check fencing tokens.
    ///
    /// Errors: `invalid_argument` for an impossible name or a reason that is empty, longer than 256
    /// bytes or has control characters. A lock that is free or changed hands is an outcome.
    pub async fn break_lease(&self, request: &BreakRequest) -> Result<BreakOutcome> {
        LockName::new(&request.name)?;
        for (what, text) in [("reason", &request.reason), ("author", &request.by)] {
            check_words(what, text).map_err(|error| error.on_lock(&request.name))?;
        }
        let core = &self.core;
        core.service
            .within(core.settings.timeout, core.backend.break_lease(request))
            .await
            .map_err(|error| error.during(core.backend.capability().backend, "break").on_lock(&request.name))
    }
}

/// Reads the same part of a store again and again, for less than as many single readings cost; made by
/// [`Inspector::follow`].
#[derive(Debug)]
pub struct Follower {
    inspector: Inspector,
    query: Query,
    before: Option<Followed>,
}

impl Follower {
    /// Reads the store now. Changes nothing in it.
    ///
    /// Guarantees: the same as [`Inspector::list`], but that on some stores only what was written since
    /// the snapshot before is read again, and the ages of the rest go on by the time that passed. What a store
    /// cannot tell without being read, such as a lease that another program extended by hand, is seen 30
    /// seconds later at the latest. That a Consul agent hangs is noticed after two seconds and the client's
    /// time limit. `requests` of the result says what it took.
    ///
    /// Errors: as [`Inspector::list`]. Cancellation: safe; the next call reads everything.
    pub async fn read(&mut self) -> Result<Arc<Snapshot>> {
        self.query.check()?;
        // Taken, so that after a failure everything is read.
        let request = self.inspector.core.backend.follow(&self.query, self.before.take());
        let followed = self.inspector.reading(request).await?;
        let snapshot = Arc::clone(&followed.snapshot);
        self.before = Some(followed);
        Ok(snapshot)
    }
}

/// Follows a store; made by [`Inspector::watch`].
#[derive(Debug)]
pub struct Watch {
    follower: Follower,
    every: Duration,
    before: Option<Arc<Snapshot>>,
}

/// A snapshot, and what has happened since the one before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Update {
    /// The store now.
    pub snapshot: Arc<Snapshot>,
    /// What changed. Empty with the first snapshot. What came and went between two snapshots is not seen.
    pub events: Vec<Event>,
}

impl Watch {
    /// Waits for the interval (not before the first snapshot), reads the store and compares.
    ///
    /// Errors: as [`Inspector::list`]; after one, the next call tries again and compares with the
    /// last good snapshot. Cancellation: safe.
    pub async fn next(&mut self) -> Result<Update> {
        if self.before.is_some() {
            self.follower.inspector.core.service.sleep(self.every).await;
        }
        let snapshot = self.follower.read().await?;
        let events = self.before.as_ref().map_or_else(Vec::new, |before| changes(before, &snapshot));
        self.before = Some(Arc::clone(&snapshot));
        Ok(Update { snapshot, events })
    }
}
