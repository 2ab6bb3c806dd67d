//! What this client knows of its acquisitions, and the session and node of each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::backend::HolderHint;
use crate::error::{Error, ErrorKind, Result};
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

use super::transport::session::Session;

/// The node of a contender, or its nodes: as many as it has permits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub paths: Vec<String>,
    /// The transaction that created them.
    pub created: u64,
    /// That transaction, or the one of the writer that this reader was.
    pub fence: u64,
}

impl Own {
    pub(crate) fn created(paths: impl Into<Vec<String>>, created: u64) -> Self {
        Self { paths: paths.into(), created, fence: created }
    }

    /// One more, which a conversion whose answer was lost may have left.
    pub(crate) fn add(&mut self, path: String, created: u64) {
        self.paths.push(path);
        self.created = self.created.max(created);
        self.fence = self.created;
    }

    pub(crate) fn path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }

    /// The last part of its path.
    pub(crate) fn name(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }
}

/// One acquisition. Its verbs take turns, by the mutex.
#[derive(Default)]
pub(crate) struct Acquisition {
    pub state: tokio::sync::Mutex<State>,
    ended: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    pub session: Option<Arc<Session>>,
    /// The UUID in the name of its node: another one for each session, so that a node of an ended session, which a member
    /// may show for a while, is never found.
    pub id: u128,
    pub node: Option<Own>,
    /// Its nodes are the permits of a semaphore, not a place in the queue.
    pub has_permits: bool,
    /// A request that creates its node may have been carried out, or may still be on its way.
    pub uncertain: bool,
    /// A request that deletes its node may have been carried out.
    pub deleting: bool,
    /// Its node says that it waits.
    pub queued: bool,
    /// The holder's node, its fence, and what its data say.
    pub holder: Option<(String, u64, HolderHint)>,
}

impl State {
    /// Begins in this session, in which nothing was sent for it yet.
    pub(crate) fn begin(&mut self, session: Arc<Session>) -> Result<()> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(ErrorKind::Internal, "could not read random bytes from the OS").with_source(error)
        })?;
        *self = Self {
            session: Some(session),
            id: u128::from_le_bytes(bytes),
            holder: self.holder.take(),
            ..Self::default()
        };
        Ok(())
    }
}

impl Acquisition {
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Nothing more is created for it.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Its session is over, so that it has no node, and never will.
    fn is_over(&self) -> bool {
        let Ok(state) = self.state.try_lock() else { return false };
        state.session.as_ref().is_some_and(|session| session.is_ended())
    }
}

/// All acquisitions of a client.
#[derive(Default)]
pub(crate) struct Acquisitions(Mutex<HashMap<OwnerToken, Arc<Acquisition>>>);

impl Acquisitions {
    /// The acquisition of this owner, which may be a new one.
    pub(crate) fn of(&self, owner: OwnerToken) -> Arc<Acquisition> {
        let mut present = unpoisoned(&self.0);
        if let Some(known) = present.get(&owner) {
            return Arc::clone(known);
        }
        // Those whose lease was lost have no other end.
        present.retain(|_, one| Arc::strong_count(one) > 1 || !one.is_over());
        Arc::clone(present.entry(owner).or_default())
    }

    pub(crate) fn get(&self, owner: OwnerToken) -> Option<Arc<Acquisition>> {
        unpoisoned(&self.0).get(&owner).cloned()
    }

    pub(crate) fn forget(&self, owner: OwnerToken) {
        unpoisoned(&self.0).remove(&owner);
    }
}
