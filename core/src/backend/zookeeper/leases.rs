//! Ends leases that are not renewed while their session lives.
//!
//! A node lasts as long as its session, and other locks of the client renew that. So a lease that its holder does not renew
//! any more (a fixed lease, a limit that was reached, work that hangs) is ended by its own client, when it has expired by
//! the clock that the holder counts by. A client that cannot do so does not renew its session either. Nor does the place of a
//! waiter end with its lease: one that could not be removed from the queue is removed as soon as a member can be asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Contender;
use crate::clock::{BootInstant, Clock, SystemClock};
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

use super::backend::Inner;

/// When a deletion that failed is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// How long the task sleeps while there is nothing to end.
const IDLE: Duration = Duration::from_secs(3600);

/// The leases of one client, and when each expires.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<OwnerToken, (BootInstant, Arc<Contender>)>>,
    changed: Notify,
}

impl Leases {
    /// The contender holds until then, or longer if that is known already.
    pub(crate) fn hold(&self, contender: &Arc<Contender>, until: BootInstant) {
        let mut held = unpoisoned(&self.held);
        let entry = held.entry(contender.owner).or_insert_with(|| (until, Arc::clone(contender)));
        entry.0 = entry.0.max(until);
        drop(held);
        self.changed.notify_one();
    }

    /// The same for a renewal. `false` if the lease was ended meanwhile.
    pub(crate) fn extend(&self, owner: OwnerToken, until: BootInstant) -> bool {
        match unpoisoned(&self.held).get_mut(&owner) {
            Some(entry) => {
                entry.0 = entry.0.max(until);
                true
            }
            None => false,
        }
    }

    pub(crate) fn forget(&self, owner: OwnerToken) {
        unpoisoned(&self.held).remove(&owner);
    }

    /// What is being removed is removed then, if that fails.
    pub(crate) fn end_later(&self, contender: &Arc<Contender>) {
        self.hold(contender, SystemClock.now() + AGAIN);
    }

    /// Lets the task see that its client is gone.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Takes out what has expired, and says when the next one does.
    fn expired(&self, now: BootInstant) -> (Vec<Arc<Contender>>, Option<BootInstant>) {
        let mut held = unpoisoned(&self.held);
        let mut expired = Vec::new();
        held.retain(|_, (until, contender)| {
            let is_over = *until <= now;
            if is_over {
                expired.push(Arc::clone(contender));
            }
            !is_over
        });
        (expired, held.values().map(|(until, _)| *until).min())
    }

    /// Runs as long as the client.
    pub(crate) async fn watch(self: Arc<Self>, client: Weak<Inner>) {
        loop {
            let now = SystemClock.now();
            let (expired, next) = self.expired(now);
            let Some(inner) = client.upgrade().filter(|inner| !inner.is_closed()) else { return };
            for contender in expired {
                let inner = Arc::clone(&inner);
                tokio::spawn(async move {
                    if let Err(error) = inner.cancel(contender).await {
                        tracing::debug!(%error, "the node of an expired lease could not be deleted yet");
                    }
                });
            }
            drop(inner);
            let pause = next.map_or(IDLE, |next| next.since(now));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}
