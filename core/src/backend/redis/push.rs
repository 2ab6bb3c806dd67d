//! Where pushes reach this client: its inbox, heard on each runtime that waits.
//!
//! A push that comes in on the waiter's own runtime wakes it there, without a detour over another
//! thread. All subscriptions are to the one channel of the client, so it does not matter which of
//! them brings a message, nor that several do: it is for one owner token, and the second time nobody
//! waits for it any more.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::backend::redis::backend::Inner;
use crate::backend::redis::transport::port::{ChannelEvent, Pushes};
use crate::clock::Instant;
use crate::error::Result;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// How long a first waiter lets the subscription come up before it stands in line without it.
const SUBSCRIBE_LIMIT: Duration = Duration::from_millis(500);

/// How long a channel that nobody waits for is heard on at least: the next one may come soon.
const UNUSED: Duration = Duration::from_secs(10);

/// How many runtimes of a program hear for themselves. Every push wakes all of them, so the waiters
/// of further ones are woken by the client's own thread.
const RUNTIMES: usize = 4;

/// Whether pushes come in over one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    /// It was confirmed once and comes up again.
    Interrupted,
    /// The server refuses it, or its runtime has ended.
    Closed,
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    at: Mutex<HashMap<runtime::Id, Inbox>>,
    /// The server refuses them for good: waiters are marked as not listening.
    refused: AtomicBool,
}

#[derive(Debug)]
struct Inbox {
    state: Arc<watch::Sender<State>>,
    door: Arc<Door>,
    /// Until then somebody may wait for a push.
    used_until: Instant,
}

/// Where a client's first waiters queue until its subscription is there.
#[derive(Debug)]
struct Door {
    /// Fair. Whether somebody had a turn.
    turns: Arc<tokio::sync::Mutex<bool>>,
    /// How many are at the door, with the one whose turn it is.
    queued: AtomicUsize,
    /// The subscription is not waited for any longer.
    until: Instant,
}

#[derive(Debug)]
struct Queued(Arc<Door>);

impl Queued {
    fn at(door: Arc<Door>) -> Self {
        door.queued.fetch_add(1, Ordering::SeqCst);
        Self(door)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A waiter's turn to send its request.
#[derive(Debug)]
pub(crate) struct Turn {
    before: OwnedMutexGuard<bool>,
    _queued: Queued,
}

impl Inboxes {
    /// Says whether the server lets this client listen, as far as known.
    pub(crate) fn may_listen(&self) -> bool {
        !self.refused.load(Ordering::SeqCst)
    }

    /// Says whether any subscription is confirmed: each of them brings the pushes of all waiters.
    pub(crate) fn hears(&self) -> bool {
        unpoisoned(&self.at).values().any(|inbox| *inbox.state.borrow() == State::Open)
    }
}

impl Inner {
    /// Subscribes to this client's inbox on the caller's runtime, once, and waits a moment for the
    /// server's confirmation: a push from before the subscription would be missed. The caller waits for a push
    /// for so long at most, or comes again.
    ///
    /// Those that come meanwhile get their turns in the order in which they came.
    pub(crate) async fn listens(self: &Arc<Self>, waits: Duration) -> Option<Turn> {
        let (inbox, door) = self.inbox_here(waits);
        if *inbox.borrow() != State::Opening && door.queued.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let queued = Queued::at(door);
        let before = Arc::clone(&queued.0.turns).lock_owned().await;
        let mut inbox = inbox.subscribe();
        if *inbox.borrow_and_update() == State::Opening {
            // From the first one on: those behind it must not wait for so long one after the other.
            let limit = self.pause(queued.0.until.saturating_duration_since(Instant::now()));
            tokio::select! {
                _ = inbox.wait_for(|state| *state != State::Opening) => {}
                () = limit => {}
            }
        }
        Some(Turn { before, _queued: queued })
    }

    /// Sends a waiter's request when it is its turn, and lets the next one go on once the request is on its way. The
    /// first request opens a connection, so the second waits for its answer.
    pub(crate) async fn in_turn<T>(
        &self,
        turn: Option<Turn>,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut request = pin!(request);
        if let Some(mut turn) = turn {
            let handed_over = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
            if let Poll::Ready(answer) = handed_over {
                return answer;
            }
            if !std::mem::replace(&mut *turn.before, true) {
                tokio::select! {
                    biased;
                    answer = &mut request => return answer,
                    () = self.pause(SUBSCRIBE_LIMIT) => {}
                }
            }
        }
        request.await
    }

    async fn pause(&self, length: Duration) {
        let pause = {
            let _context = self.runtime.enter();
            tokio::time::sleep(length)
        };
        pause.await;
    }

    /// Says whether the subscription on the caller's runtime is still coming up.
    pub(crate) fn is_opening(self: &Arc<Self>) -> bool {
        *self.inbox_here(Duration::ZERO).0.borrow() == State::Opening
    }

    /// Says whether the server lets this client listen, as far as known.
    pub(crate) fn may_listen(&self) -> bool {
        self.inboxes.may_listen()
    }

    /// The channel of this client, and how to publish there.
    pub(crate) fn inbox(&self) -> (&'static str, String) {
        let (verb, before) = match self.port.pushes() {
            Pushes::Counted | Pushes::Hints => ("PUBLISH", self.protocol.keys.inbox_before()),
            Pushes::InSlot => ("SPUBLISH", self.protocol.keys.inbox_in_slot_before()),
        };
        (verb, format!("{before}{}", self.client))
    }

    /// Says whether this client hears on the caller's runtime already, or on its own one in place of that.
    pub(crate) fn hears_here(&self) -> bool {
        let inboxes = unpoisoned(&self.inboxes.at);
        inboxes.contains_key(&self.hearing(&inboxes).id())
    }

    /// Where pushes to the caller are heard.
    fn hearing(&self, inboxes: &HashMap<runtime::Id, Inbox>) -> Handle {
        let others = inboxes.keys().filter(|id| **id != self.runtime.id()).count();
        let here = Handle::try_current().ok();
        here.filter(|here| inboxes.contains_key(&here.id()) || others < RUNTIMES)
            .unwrap_or_else(|| self.runtime.clone())
    }

    fn inbox_here(self: &Arc<Self>, waits: Duration) -> (Arc<watch::Sender<State>>, Arc<Door>) {
        let used_until = Instant::now() + waits.max(UNUSED);
        let (runtime, inbox, door) = {
            let mut inboxes = unpoisoned(&self.inboxes.at);
            let runtime = self.hearing(&inboxes);
            let id = runtime.id();
            if let Some(inbox) = inboxes.get_mut(&id) {
                inbox.used_until = inbox.used_until.max(used_until);
                return (Arc::clone(&inbox.state), Arc::clone(&inbox.door));
            }
            let state = Arc::new(watch::Sender::new(State::Opening));
            let until = Instant::now() + SUBSCRIBE_LIMIT;
            let door = Arc::new(Door { turns: Arc::default(), queued: AtomicUsize::new(0), until });
            inboxes.insert(id, Inbox { state: Arc::clone(&state), door: Arc::clone(&door), used_until });
            (runtime, state, door)
        };
        let id = runtime.id();
        let (weak, told) = (Arc::downgrade(self), Arc::clone(&inbox));
        let channel = self.inbox().1;
        // There are as many as shards, and most are not waited for most of the time.
        if self.port.pushes() == Pushes::InSlot {
            self.runtime.spawn(leave_when_unused(Arc::downgrade(self), id, Arc::downgrade(&inbox)));
        }
        let _context = runtime.enter();
        self.port.subscribe(
            channel,
            Arc::new(move |event| {
                if let Some(inner) = weak.upgrade() {
                    inner.heard(event, id, &told);
                }
            }),
        );
        (inbox, door)
    }

    fn heard(&self, event: ChannelEvent, id: runtime::Id, inbox: &watch::Sender<State>) {
        match event {
            ChannelEvent::Subscribed => {
                let inboxes = unpoisoned(&self.inboxes.at);
                if !inboxes.contains_key(&id) {
                    // Given up while it was on its way. Before anybody can subscribe anew.
                    return self.port.unsubscribe(self.inbox().1, id);
                }
                drop(inboxes);
                inbox.send_replace(State::Open);
                // Whatever was pushed before now is lost: everybody asks.
                self.wakeups.hint_all();
            }
            ChannelEvent::Interrupted => {
                inbox.send_if_modified(|state| {
                    let was_open = *state == State::Open;
                    if was_open {
                        *state = State::Interrupted;
                    }
                    was_open
                });
            }
            ChannelEvent::Refused(why) => {
                tracing::warn!(
                    target: "polylatch", event = "setup_warning", client = self.client.as_str(),
                    which = "pushes", findings = why, "pushes are refused, so waiters poll; allow the channel in the ACL"
                );
                self.inboxes.refused.store(true, Ordering::SeqCst);
                inbox.send_replace(State::Closed);
            }
            ChannelEvent::Ended => {
                // A refusal is for good, so there is nothing to gain by subscribing anew.
                if self.inboxes.may_listen() {
                    let mut inboxes = unpoisoned(&self.inboxes.at);
                    // It may have a successor already.
                    if inboxes.get(&id).is_some_and(|present| std::ptr::eq(&*present.state, inbox)) {
                        inboxes.remove(&id);
                    }
                }
                inbox.send_replace(State::Closed);
            }
            ChannelEvent::Message(message) => self.pushed(&message),
        }
    }

    fn pushed(&self, message: &[u8]) {
        let Ok(message) = std::str::from_utf8(message) else { return };
        let mut fields = message.split('|');
        let (Some(what), Some(owner), Some(fence)) = (fields.next(), fields.next(), fields.next()) else {
            return;
        };
        let (Some(owner), Ok(fence)) = (OwnerToken::from_hex(owner), fence.parse()) else { return };
        match what {
            // A push skips the replicas' acknowledgement, or tells of a grant that was withdrawn because
            // seemingly nobody heard of it, so it is only a reason to ask.
            "granted" if self.acknowledge.is_some() || self.port.pushes() == Pushes::Hints => {
                self.wakeups.hint(owner);
            }
            "granted" => self.wakeups.grant(owner, fence),
            // The lock is left to other libraries for a moment: ask when that is over.
            "hint" => self.wakeups.hint(owner),
            "revoked" => self.wakeups.revoked(owner, fence),
            "wanted" => self.wakeups.wanted(owner, fence),
            #[cfg(not(target_family = "wasm"))]
            "echo" => drop(self.own.echo.send_replace(Some(owner))),
            _ => {}
        }
    }
}

/// Unsubscribes this inbox, not one that came after it, once nobody has waited for a while. A refusal stays.
async fn leave_when_unused(inner: Weak<Inner>, id: runtime::Id, this: Weak<watch::Sender<State>>) {
    loop {
        let left = {
            let Some(inner) = inner.upgrade() else { return };
            let mut inboxes = unpoisoned(&inner.inboxes.at);
            let is_this = |present: &&Inbox| std::ptr::eq(Arc::as_ptr(&present.state), this.as_ptr());
            let Some(inbox) = inboxes.get(&id).filter(is_this) else { return };
            if !inner.inboxes.may_listen() {
                return;
            }
            let left = inbox.used_until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                inboxes.remove(&id);
                // Before anybody can subscribe anew.
                return inner.port.unsubscribe(inner.inbox().1, id);
            }
            left
        };
        tokio::time::sleep(left).await;
    }
}
