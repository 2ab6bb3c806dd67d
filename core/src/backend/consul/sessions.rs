//! The sessions of one client: made when first needed, shared by locks of one lease length, kept
//! alive as long as anybody needs them, destroyed after that.
//!
//! A lock hangs on its session, so what can be said of a lease is what can be said of the session:
//! the server keeps it for at least its TTL from the last renewal that it carried out, and for twice
//! that at most. The time of a renewal counts from before its request left.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backend::consul::config::SessionOptions;
use crate::backend::consul::protocol::keys::Keys;
use crate::backend::consul::protocol::records::{OWN_FLAGS, never_written};
use crate::backend::consul::protocol::view::lock_op;
use crate::backend::consul::transport::api::{Api, NewSession, Op, Outcome};
use crate::clock::{BootInstant, Clock, SystemClock, millis};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::name::LockName;
use crate::token::{ClientId, OwnerToken};
use crate::wakeups::unpoisoned;

/// How long a session that nobody needs is kept for the next lock.
const KEPT_UNUSED: Duration = Duration::from_secs(60);

/// Which locks share a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    /// All of one lease length; the number tells the sessions apart that one semaphore needs.
    Shared(Duration, u32),
    /// One acquisition.
    Own(Duration, u32, OwnerToken),
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub id: String,
    pub ttl: Duration,
    marker: String,
    /// Index of the marker: requests that carry an older one are refused by the server.
    epoch: AtomicU64,
    /// When the last renewal left that the server has confirmed.
    renewed: Mutex<BootInstant>,
    renewing: tokio::sync::Mutex<()>,
    ended: AtomicBool,
    last_needed: Mutex<BootInstant>,
}

impl Session {
    /// The server no longer has it, so nothing is held with it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(crate) fn mark_ended(&self) -> bool {
        !self.ended.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// Whether a reading up to this index has to show its marker.
    pub(crate) fn known_at(&self, index: u64) -> bool {
        self.epoch.load(Ordering::SeqCst) <= index
    }

    /// The check that a request is not one from before the epoch ended.
    pub(crate) fn in_epoch(&self) -> Op {
        Op::CheckIndex(self.marker.clone(), self.epoch.load(Ordering::SeqCst))
    }

    pub(crate) fn renewed(&self) -> BootInstant {
        *unpoisoned(&self.renewed)
    }

    fn needed(&self, now: BootInstant) {
        *unpoisoned(&self.last_needed) = now;
    }

    fn unneeded_since(&self) -> BootInstant {
        *unpoisoned(&self.last_needed)
    }
}

/// A session in use for one semaphore: no two permits of one name can hang on the same session.
#[derive(Debug)]
pub(crate) struct Permit {
    pub session: Arc<Session>,
    name: LockName,
    taken: Arc<Mutex<HashSet<(LockName, String)>>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        unpoisoned(&self.taken).remove(&(self.name.clone(), self.session.id.clone()));
    }
}

pub(crate) struct Sessions {
    api: Arc<Api>,
    keys: Keys,
    client: ClientId,
    options: SessionOptions,
    present: Mutex<HashMap<Class, Arc<Session>>>,
    /// Held while a session is made, so that those who need it share it.
    making: tokio::sync::Mutex<()>,
    taken: Arc<Mutex<HashSet<(LockName, String)>>>,
    /// Told when there is a session to look after.
    pub(crate) made: tokio::sync::Notify,
}

impl Sessions {
    pub(crate) fn new(api: Arc<Api>, keys: Keys, client: ClientId, options: SessionOptions) -> Self {
        Self {
            api,
            keys,
            client,
            options,
            present: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            taken: Arc::default(),
            made: tokio::sync::Notify::new(),
        }
    }

    /// The lock-delay of the session for a lock of this lease.
    pub(crate) fn lock_delay(&self, lease: Duration) -> Duration {
        self.options.lock_delay_for(ttl_of(lease))
    }

    /// The session for a lock of this lease.
    pub(crate) async fn of(&self, lease: Duration, owner: OwnerToken) -> Result<Arc<Session>> {
        self.numbered(lease, 0, owner).await
    }

    async fn numbered(&self, lease: Duration, number: u32, owner: OwnerToken) -> Result<Arc<Session>> {
        let ttl = ttl_of(lease);
        let class = match self.options.per_lock {
            true => Class::Own(ttl, number, owner),
            false => Class::Shared(ttl, number),
        };
        let present = || {
            let session = unpoisoned(&self.present).get(&class).cloned();
            session
                .filter(|session| !session.has_ended())
                .inspect(|session| session.needed(SystemClock.now()))
        };
        if let Some(session) = present() {
            return Ok(session);
        }
        let _alone = self.making.lock().await;
        if let Some(session) = present() {
            return Ok(session);
        }
        let session = Arc::new(self.make(ttl).await?);
        unpoisoned(&self.present).insert(class, Arc::clone(&session));
        self.made.notify_one();
        Ok(session)
    }

    /// Sessions for this many permits of one semaphore, none of which it has already.
    pub(crate) async fn permits(
        &self,
        name: &LockName,
        lease: Duration,
        owner: OwnerToken,
        count: u32,
    ) -> Result<Vec<Permit>> {
        let mut permits = Vec::with_capacity(count as usize);
        let mut number = 0;
        while permits.len() < count as usize {
            let session = self.numbered(lease, number, owner).await?;
            number += 1;
            if unpoisoned(&self.taken).insert((name.clone(), session.id.clone())) {
                permits.push(Permit { session, name: name.clone(), taken: Arc::clone(&self.taken) });
            }
        }
        Ok(permits)
    }

    async fn make(&self, ttl: Duration) -> Result<Session> {
        let options = &self.options;
        // Without health checks: a false alarm would free locks that are held (option `checks`).
        let wanted = NewSession {
            name: format!("polylatch {}", self.client),
            ttl: go_duration(ttl),
            lock_delay: go_duration(options.lock_delay_for(ttl)),
            behavior: "delete",
            node_checks: &options.checks,
            node: options.node.as_deref(),
        };
        let left = SystemClock.now();
        let id = self.api.create_session(&wanted).await?;
        let marker = self.keys.marker(&self.client, &id);
        let mark = lock_op(marker.clone(), Vec::new(), OWN_FLAGS, &id);
        let epoch = match self.api.transact(&[mark]).await {
            Ok(Outcome::Done(written)) => written.first().map_or(0, |entry| entry.modified),
            other => {
                // It would last for its TTL without anybody knowing of it.
                let _ = self.api.destroy_session(&id).await;
                return Err(match other {
                    Err(error) => error.with_effect(Effect::None),
                    _ => busy(),
                });
            }
        };
        tracing::debug!(target: "polylatch", event = "session_made", session = id, ttl_ms = ttl.as_millis() as u64);
        Ok(Session {
            id,
            ttl,
            marker,
            epoch: AtomicU64::new(epoch),
            renewed: Mutex::new(left),
            renewing: tokio::sync::Mutex::default(),
            ended: AtomicBool::new(false),
            last_needed: Mutex::new(left),
        })
    }

    /// Sees to it that the server keeps the session for at least `need` from `from` on.
    ///
    /// Errors: of the request; and one to try again if the session is no more.
    pub(crate) async fn fresh(&self, session: &Session, from: BootInstant, need: Duration) -> Result<()> {
        let lasts = |session: &Session| session.renewed() + session.ttl >= from + need;
        if lasts(session) {
            return Ok(());
        }
        match self.renew(session, from).await? {
            true => Ok(()),
            false => Err(session_gone()),
        }
    }

    /// Renews a session, unless that was done at or after `from`. `false` if it is no more.
    pub(crate) async fn renew(&self, session: &Session, from: BootInstant) -> Result<bool> {
        // Those who ask together share one request.
        let _alone = session.renewing.lock().await;
        if session.has_ended() {
            return Ok(false);
        }
        if session.renewed() >= from {
            return Ok(true);
        }
        let left = SystemClock.now();
        match self.api.renew_session(&session.id).await? {
            Some(_) => {
                *unpoisoned(&session.renewed) = left;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Makes the server refuse every request under way that belongs to this session.
    pub(crate) async fn end_epoch(&self, session: &Session) -> Result<()> {
        let mark = Op::Set { key: session.marker.clone(), value: never_written(), flags: OWN_FLAGS };
        let holds = Op::CheckSession(session.marker.clone(), session.id.clone());
        if let Outcome::Done(written) = self.api.transact(&[holds, mark]).await?
            && let Some(entry) = written.last()
        {
            // Two at once: the later one counts.
            session.epoch.fetch_max(entry.modified, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Learns the epoch anew after the server refused the one that was known. `false` if the session
    /// is no more.
    pub(crate) async fn learn_epoch(&self, session: &Session) -> Result<bool> {
        let Outcome::Done(found) = self.api.look(&[Op::Tree(session.marker.clone())]).await? else {
            return Ok(true);
        };
        match found.iter().find(|entry| entry.session == session.id) {
            Some(entry) => {
                session.epoch.fetch_max(entry.modified, Ordering::SeqCst);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// All sessions of this client.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        unpoisoned(&self.present).values().cloned().collect()
    }

    /// Forgets sessions that have ended, and takes out those that nobody has needed for a while.
    pub(crate) fn take_unneeded(&self, needed: &HashSet<String>, now: BootInstant) -> Vec<Arc<Session>> {
        let mut present = unpoisoned(&self.present);
        let mut unneeded = Vec::new();
        present.retain(|_, session| {
            if session.has_ended() {
                return false;
            }
            if needed.contains(&session.id) {
                session.needed(now);
                return true;
            }
            if now.since(session.unneeded_since()) < KEPT_UNUSED {
                return true;
            }
            unneeded.push(Arc::clone(session));
            false
        });
        unneeded
    }

    /// Takes out the sessions of one acquisition that is over, if they are its own.
    pub(crate) fn take_own(&self, owner: OwnerToken) -> Vec<Arc<Session>> {
        if !self.options.per_lock {
            return Vec::new();
        }
        let mut own = Vec::new();
        unpoisoned(&self.present).retain(|class, session| {
            let keep = !matches!(class, Class::Own(_, _, of) if *of == owner);
            if !keep {
                own.push(Arc::clone(session));
            }
            keep
        });
        own
    }

    /// Destroys a session that nothing hangs on any more.
    pub(crate) async fn destroy(&self, session: &Session) {
        session.mark_ended();
        if let Err(error) = self.api.destroy_session(&session.id).await {
            tracing::debug!(%error, "a session could not be destroyed; it ends by its TTL");
        }
    }
}

/// The TTL for a lease: whole seconds, so that leases of about one length share a session.
fn ttl_of(lease: Duration) -> Duration {
    const SECOND: Duration = Duration::from_secs(1);
    if lease < SECOND || lease.subsec_nanos() == 0 { lease } else { Duration::from_secs(lease.as_secs() + 1) }
}

/// A duration as Go reads it.
fn go_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", millis(duration)),
    }
}

pub(crate) fn session_gone() -> Error {
    Error::new(ErrorKind::BackendUnavailable, "the session of this client has ended; a new one is made")
}

/// Others changed the lock each time it was looked at.
pub(crate) fn busy() -> Error {
    Error::new(ErrorKind::BackendUnavailable, "too many concurrent updates to this lock; trying again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_are_whole_seconds_where_servers_take_no_shorter_ones() {
        let millis = Duration::from_millis;
        for (lease, ttl, text) in [
            (15_000, 15_000, "15s"),
            (10_001, 11_000, "11s"),
            (250, 250, "250ms"),
            (86_400_000, 86_400_000, "86400s"),
        ] {
            assert_eq!(ttl_of(millis(lease)), millis(ttl));
            assert_eq!(go_duration(ttl_of(millis(lease))), text);
        }
    }
}
