//! Messages from the nodes: a hint to the waiter that has waited longest, and the news that a lease was broken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::redis::transport::port::ChannelEvent;
use crate::backend::redlock::backend::Inner;
use crate::backend::redlock::transport::node::Node;
use crate::token::OwnerToken;
use crate::wakeups::unpoisoned;

/// How long a first waiter lets the subscriptions come up before it joins the crowd without them.
const SUBSCRIBE_LIMIT: Duration = Duration::from_millis(500);

/// How long the first hint waits for those of the other nodes: a lock that only one node has freed so far
/// is not available.
const GATHER: Duration = Duration::from_millis(3);

/// What this client hears.
pub(crate) struct Inbox {
    /// Subscribed once, on every node.
    listens: AtomicBool,
    /// The nodes whose messages arrive, as bits.
    open: watch::Sender<u16>,
    /// For each waiting owner the nodes that have told it that the lock is free there.
    hints: Mutex<HashMap<OwnerToken, u16>>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { listens: AtomicBool::new(false), open: watch::Sender::new(0), hints: Mutex::default() }
    }
}

impl Inner {
    /// Subscribes on every node, once, and waits a moment for a majority to confirm it.
    pub(crate) async fn listen(self: &Arc<Self>) {
        if self.inbox.listens.swap(true, Ordering::SeqCst) {
            return;
        }
        for (at, node) in self.nodes.iter().enumerate() {
            self.subscribe(at, node);
        }
        let mut open = self.inbox.open.subscribe();
        let needed = self.quorum.needed() as u32;
        let limit = {
            let _context = self.runtime.enter();
            tokio::time::sleep(SUBSCRIBE_LIMIT)
        };
        tokio::select! {
            _ = open.wait_for(|open| open.count_ones() >= needed) => {}
            () = limit => {}
        }
    }

    /// A node got another connection.
    pub(crate) fn listen_again(self: &Arc<Self>, node: &Node) {
        if self.inbox.listens.load(Ordering::SeqCst)
            && let Some(at) = self.nodes.iter().position(|other| other.place == node.place)
        {
            self.subscribe(at, node);
        }
    }

    fn subscribe(self: &Arc<Self>, at: usize, node: &Node) {
        let weak = Arc::downgrade(self);
        let channel = format!("{}{}", self.keys.inbox_before(), self.client);
        // On the client's own runtime: it outlives the one of this caller.
        let _context = self.runtime.enter();
        node.port().subscribe(
            channel,
            Arc::new(move |event| {
                if let Some(inner) = weak.upgrade() {
                    inner.heard(at, event);
                }
            }),
        );
    }

    fn heard(self: &Arc<Self>, at: usize, event: ChannelEvent) {
        match event {
            ChannelEvent::Subscribed => {
                self.inbox.open.send_modify(|open| *open |= 1 << at);
                // Whatever was pushed before now is lost.
                self.wakeups.hint_all();
            }
            ChannelEvent::Interrupted | ChannelEvent::Ended => {
                self.inbox.open.send_modify(|open| *open &= !(1 << at))
            }
            ChannelEvent::Refused(why) => {
                let node = &self.nodes[at].place;
                tracing::warn!(
                    target: "polylatch", event = "setup_warning", client = self.client.as_str(), which = node,
                    findings = why,
                    "pushes are refused, so waiters poll; allow the channel in the ACL"
                );
            }
            ChannelEvent::Message(message) => self.pushed(at, &message),
        }
    }

    fn pushed(self: &Arc<Self>, at: usize, message: &[u8]) {
        let Ok(message) = std::str::from_utf8(message) else { return };
        let mut fields = message.split('|');
        let (Some(what), Some(owner), Some(fence)) = (fields.next(), fields.next(), fields.next()) else {
            return;
        };
        let (Some(owner), Ok(fence)) = (OwnerToken::from_hex(owner), fence.parse()) else { return };
        match what {
            "hint" => self.hinted(at, owner),
            "revoked" => {
                self.wakeups.revoked(owner, fence);
                self.is_lost(owner, fence);
            }
            _ => {}
        }
    }

    /// Wakes the waiter when a majority has told it, or a moment after the first node did.
    fn hinted(self: &Arc<Self>, at: usize, owner: OwnerToken) {
        let (first, count) = {
            let mut hints = unpoisoned(&self.inbox.hints);
            let told = hints.entry(owner).or_default();
            let first = *told == 0;
            *told |= 1 << at;
            (first, told.count_ones() as usize)
        };
        if count >= self.quorum.needed() {
            if unpoisoned(&self.inbox.hints).remove(&owner).is_some() {
                self.wakeups.hint(owner);
            }
        } else if first {
            let inner = Arc::clone(self);
            self.runtime.spawn(async move {
                tokio::time::sleep(GATHER).await;
                if unpoisoned(&inner.inbox.hints).remove(&owner).is_some() {
                    inner.wakeups.hint(owner);
                }
            });
        }
    }
}
