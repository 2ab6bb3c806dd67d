//! What goes on in the background: sessions are kept alive, leases that are over are given back,
//! and letters are read.
//!
//! One request waits at the agent for changes of this client's inbox, however many acquisitions
//! wait: letters are keys, so none is lost between two readings. The same reading tells when a
//! session has ended, because its marker goes with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::backend::consul::acquisition::{Acquisition, Lease, Place};
use crate::backend::consul::backend::Inner;
use crate::backend::consul::protocol::records::{Follower, Letter};
use crate::backend::consul::protocol::view::{View, letter_to};
use crate::backend::consul::sessions::Session;
use crate::backend::consul::transport::api::{Entry, Op};
use crate::backend::consul::transport::pace::Pace;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::name::LockName;
use crate::policy::backoff::Backoff;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// How long the agent may hold a request back while nothing changes.
const WATCH: Duration = Duration::from_secs(30);

/// How long the keeper sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long a lease that is over may still be on its way to being given back by its holder.
const GRACE: Duration = Duration::from_millis(500);

/// Whether letters reach this client, and which it has read.
#[derive(Default)]
pub(crate) struct Inbox {
    started: AtomicBool,
    hears: AtomicBool,
    read: Mutex<HashMap<String, u64>>,
    reader: Mutex<Option<AbortHandle>>,
}

impl Inbox {
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Ends the request that waits for letters: the agent would hold it, and so its connection, for up to
    /// [`WATCH`] after nobody wants an answer any more.
    pub(crate) fn close(&self) {
        if let Some(reader) = unpoisoned(&self.reader).take() {
            reader.abort();
        }
    }
}

impl Inner {
    /// Starts the background work, with the first session.
    pub(crate) fn listen(self: &Arc<Self>) {
        if !self.inbox.started.swap(true, Ordering::SeqCst) {
            let reader = self.runtime.spawn(read_letters(Arc::downgrade(self)));
            *unpoisoned(&self.inbox.reader) = Some(reader.abort_handle());
            self.runtime.spawn(keep(Arc::downgrade(self)));
        }
    }

    /// The server no longer has this session: nothing is held with it any more.
    pub(crate) fn session_ended(&self, session: &Session) {
        if !session.mark_ended() {
            return;
        }
        tracing::warn!(target: "polylatch", event = "session_ended", session = session.id, "a Consul session ended");
        for acquisition in self.acquisitions.all() {
            if !acquisition.sessions().iter().any(|one| one.id == session.id) {
                continue;
            }
            let owner = acquisition.contender.owner;
            let lease = acquisition.lease();
            match lease {
                Some(lease) => {
                    self.wakeups.session_ended(owner, lease.fence);
                    // One who waits for the lock does not know yet that it had it.
                    self.wakeups.hint(owner);
                    acquisition.state().place = Place::Nowhere;
                }
                None => self.wakeups.hint(owner),
            }
        }
    }

    /// Reads what stands in the inbox.
    fn heard(self: &Arc<Self>, index: u64, entries: &[Entry]) {
        let mut news = Vec::new();
        {
            let mut read = unpoisoned(&self.inbox.read);
            for entry in entries {
                if let Some((owner, letter)) = letter_to(&self.keys, &self.client, entry)
                    && read.insert(entry.key.clone(), entry.modified) != Some(entry.modified)
                {
                    news.push((entry, owner, letter));
                }
            }
            read.retain(|key, _| entries.iter().any(|entry| entry.key == *key));
        }
        for (entry, owner, letter) in news {
            match letter {
                Letter::Granted { name, next, alone } => {
                    self.granted_by_letter(owner, &name, (next, alone), entry);
                }
                Letter::Revoked { fence } => {
                    self.wakeups.revoked(owner, fence);
                    self.throw_away(entry.key.clone());
                    if let Some(acquisition) = self.acquisitions.get(owner) {
                        let inner = Arc::clone(self);
                        self.runtime.spawn(async move { inner.finish(&acquisition).await });
                    }
                }
            }
        }
        for session in self.sessions.all() {
            let lives =
                entries.iter().any(|entry| entry.key == session.marker() && entry.session == session.id);
            // A session that is newer than this reading is not in it yet.
            if !lives && session.known_at(index) {
                self.session_ended(&session);
            }
        }
    }

    fn granted_by_letter(
        self: &Arc<Self>,
        owner: OwnerToken,
        name: &str,
        (next, alone): (Vec<Follower>, bool),
        entry: &Entry,
    ) {
        let Some(acquisition) = self.acquisitions.get(owner) else {
            return self.give_back_unknown(owner, name, entry);
        };
        let session = acquisition.state().session.clone().filter(|session| session.id == entry.session);
        let Some(session) = session else { return self.give_back_unknown(owner, name, entry) };
        let fence = entry.modified;
        let key = self.lease_key(&acquisition.contender, &session);
        if acquisition.lease().is_none_or(|lease| lease.fence < fence) {
            acquisition.granted(fence, key, fence);
            if !next.is_empty() {
                self.acquisitions.note_contended(&acquisition.contender.name, Some(next.len()));
            }
            {
                let mut state = acquisition.state();
                (state.next, state.alone) = (next, alone);
            }
            self.look_out(&acquisition);
        }
        self.wakeups.grant(owner, fence);
    }

    /// Somebody let in an acquisition that this client has given up.
    fn give_back_unknown(self: &Arc<Self>, owner: OwnerToken, name: &str, entry: &Entry) {
        let Ok(name) = LockName::new(name) else { return };
        let (inner, letter) = (Arc::clone(self), entry.key.clone());
        self.runtime.spawn(async move {
            if let Err(error) = inner.end_lease_of(&name, owner).await {
                tracing::debug!(%error, lock = %name, "a lock that came too late could not be released yet");
            }
            inner.throw_away(letter);
        });
    }

    fn throw_away(self: &Arc<Self>, letter: String) {
        let inner = Arc::clone(self);
        self.runtime.spawn(async move {
            let _ = inner.api.transact(&[Op::Delete(letter)]).await;
        });
    }

    /// Wakes a first waiter when the held key changes: a program that is not Polylatch writes no
    /// letters.
    pub(crate) fn watch_lock(self: &Arc<Self>, acquisition: &Arc<Acquisition>, view: &View) {
        let Some(lock) = &view.lock else { return };
        let mut state = acquisition.state();
        if let Some((index, _)) = &state.watch
            && *index == lock.modified
        {
            return;
        }
        let (api, wakeups) = (Arc::clone(&self.api), Arc::clone(&self.wakeups));
        let (key, held, owner) = (lock.key.clone(), lock.modified, acquisition.contender.owner);
        let mut index = held;
        let watch = self.runtime.spawn(async move {
            loop {
                let pace = Pace::start();
                let Ok((seen, entries)) = api.watch(&key, false, index, WATCH).await else { return };
                if entries.first().map(|entry| entry.modified) != Some(held) {
                    return wakeups.hint(owner);
                }
                index = index.max(pace.next(index, seen).await);
            }
        });
        if let Some((_, before)) = state.watch.replace((lock.modified, watch.abort_handle())) {
            before.abort();
        }
    }

    /// Gives back a lease that is over.
    async fn give_back(self: &Arc<Self>, acquisition: &Acquisition, fence: u64) -> Result<()> {
        let _turn = acquisition.turn.lock().await;
        // A poll that was under way may have confirmed it meanwhile: then its holder relies on it.
        let is_over = |lease: Lease| lease.fence == fence && lease.ends_at + GRACE <= SystemClock.now();
        if acquisition.lease().is_some_and(is_over) {
            self.release_in_turn(acquisition, &acquisition.contender, fence).await?;
            self.finish(acquisition).await;
        }
        Ok(())
    }

    /// Renews what is due, destroys what is not needed, gives back what is over. Returns how long to
    /// sleep.
    fn tend(self: &Arc<Self>) -> Duration {
        let now = SystemClock.now();
        for session in self.sessions.take_unneeded(&self.acquisitions.needed(), now) {
            let inner = Arc::clone(self);
            self.runtime.spawn(async move { inner.sessions.destroy(&session).await });
        }
        self.clear_letters();
        let mut next = now + LONGEST_SLEEP;
        for session in self.sessions.all() {
            // The holders' own renewals come earlier; this one is for those who wait.
            let due = session.renewed() + session.ttl / 2;
            if due > now {
                next = next.min(due);
                continue;
            }
            next = next.min(now + session.ttl / 20);
            let inner = Arc::clone(self);
            self.runtime.spawn(async move {
                match inner.sessions.renew(&session, due).await {
                    Ok(true) => {}
                    Ok(false) => inner.session_ended(&session),
                    Err(error) => tracing::debug!(%error, "a session could not be renewed; trying again"),
                }
            });
        }
        for acquisition in self.acquisitions.all() {
            let Some(lease) = acquisition.lease() else { continue };
            let over = lease.ends_at + GRACE;
            if over > now {
                next = next.min(over);
                continue;
            }
            let again = acquisition.state().given_back_again;
            if again.is_some_and(|again| again > now) {
                continue;
            }
            // Its session may live on with other locks, so it does not end by itself.
            acquisition.state().given_back_again = Some(now + LONGEST_SLEEP);
            let inner = Arc::clone(self);
            self.runtime.spawn(async move {
                if let Err(error) = inner.give_back(&acquisition, lease.fence).await {
                    tracing::debug!(%error, "a lease that is over could not be released; trying again");
                }
            });
        }
        next.since(now).max(Duration::from_millis(5))
    }
}

async fn keep(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if strong.is_closed() {
            return;
        }
        let pause = strong.tend();
        let sessions = Arc::clone(&strong.sessions);
        drop(strong);
        tokio::select! {
            () = sessions.made.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn read_letters(inner: Weak<Inner>) {
    let first = || Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 1);
    let mut backoff = first();
    let mut index = 0;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if strong.is_closed() {
            return;
        }
        let (api, path) = (Arc::clone(&strong.api), strong.keys.inbox(&strong.client));
        drop(strong);
        let pace = Pace::start();
        let heard = api.watch(&path, true, index, WATCH).await;
        let Some(strong) = inner.upgrade() else { return };
        match heard {
            Ok((seen, entries)) => {
                backoff = first();
                strong.inbox.hears.store(true, Ordering::Relaxed);
                strong.heard(seen, &entries);
                drop(strong);
                index = pace.next(index, seen).await;
            }
            Err(error) => {
                strong.inbox.hears.store(false, Ordering::Relaxed);
                drop(strong);
                tracing::debug!(%error, "the inbox cannot be read; trying again");
                tokio::time::sleep(backoff.delay()).await;
            }
        }
    }
}
