//! The events of one client, for a host that asks for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::{Event, Events, Heard, Level, Listener};
use crate::per_process::PerProcess;

/// Where the events of one client come in. A host asks for them with [`Inbox::next`], on a thread or in a task of its
/// own. In a forked child it begins empty: the child's own client fills it.
#[derive(Debug, Default)]
pub struct Inbox(PerProcess<Here>);

#[derive(Debug)]
struct Here {
    events: Arc<Events>,
    ring: Arc<Notify>,
    is_over: AtomicBool,
}

impl Inbox {
    /// Makes an empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns how a client is connected so that its events come here. One client for each inbox.
    pub fn listener(self: &Arc<Self>) -> Listener {
        let inbox = Arc::clone(self);
        Listener { events: Arc::new(move || Ok(inbox.events())), number: 0, level: Some(Level::default()) }
    }

    /// Returns the queue of this process.
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.here().events)
    }

    /// Waits for events, and returns them in their order; `None` after the last one of a client that was closed or is
    /// gone. For one that asks at a time.
    ///
    /// Cancellation: loses nothing while it waits.
    pub async fn next(&self) -> Option<Vec<Event>> {
        let here = self.here();
        loop {
            let mut events = Vec::new();
            for heard in here.events.take() {
                match heard {
                    Heard::Event(event, _) => events.push(event),
                    Heard::Ended(_) => here.is_over.store(true, Ordering::SeqCst),
                }
            }
            if !events.is_empty() {
                return Some(events);
            }
            if here.is_over.load(Ordering::SeqCst) {
                return None;
            }
            here.ring.notified().await;
        }
    }

    fn here(&self) -> &Here {
        self.0.get_or_make(|| {
            let ring = Arc::new(Notify::new());
            let rung = Arc::clone(&ring);
            let events = Events::of_clients(move || rung.notify_one());
            Here { events, ring, is_over: AtomicBool::new(false) }
        })
    }
}
