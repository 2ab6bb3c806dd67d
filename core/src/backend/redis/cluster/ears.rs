//! Subscriptions of a client in a cluster: one to each master, shared by all shards that wait there.

use std::sync::{Arc, Mutex};

use tokio::runtime;

use crate::backend::redis::config::Address;
use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::port::{ChannelEvent, Listener, Port};
use crate::wakeups::unpoisoned;

/// Who listens where.
#[derive(Default)]
pub(super) struct Ears(Mutex<Vec<Arc<Ear>>>);

/// One subscription.
struct Ear {
    at: Address,
    runtime: runtime::Id,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    open: bool,
    over: bool,
    listeners: Vec<(u16, Listener)>,
}

impl Ears {
    /// Lets the shard in `slot` hear what comes to this channel at a master. Listens on the runtime that it is
    /// called on.
    pub(super) fn listen(
        &self,
        port: &NativePort,
        at: Address,
        runtime: runtime::Id,
        channel: String,
        slot: u16,
        listener: Listener,
    ) {
        let mut ears = unpoisoned(&self.0);
        if let Some(ear) = ears.iter().find(|ear| ear.at == at && ear.runtime == runtime) {
            let mut heard = unpoisoned(&ear.heard);
            if !heard.over {
                heard.listeners.push((slot, Arc::clone(&listener)));
                let open = heard.open;
                drop(heard);
                if open {
                    listener(ChannelEvent::Subscribed);
                }
                return;
            }
        }
        let heard = Heard { listeners: vec![(slot, listener)], ..Heard::default() };
        let ear = Arc::new(Ear { at, runtime, heard: Mutex::new(heard) });
        ears.retain(|ear| !unpoisoned(&ear.heard).over);
        ears.push(Arc::clone(&ear));
        drop(ears);
        port.subscribe(channel, Arc::new(move |event| ear.hears(&event)));
    }

    /// The shard in this slot lives at another master now: whoever listened for it listens anew.
    pub(super) fn moved(&self, slot: u16, to: &Address) {
        self.spread(|of| if of == slot { Some(to) } else { None });
    }

    /// Ends what is heard at other masters than those that have the slots; where it is not known, it stays.
    pub(super) fn spread<'a>(&self, owner: impl Fn(u16) -> Option<&'a Address>) {
        let ears = unpoisoned(&self.0).clone();
        for ear in ears {
            let astray: Vec<_> = {
                let mut heard = unpoisoned(&ear.heard);
                heard
                    .listeners
                    .extract_if(.., |(slot, _)| owner(*slot).is_some_and(|at| *at != ear.at))
                    .collect()
            };
            astray.iter().for_each(|(_, listener)| listener(ChannelEvent::Ended));
        }
    }
}

impl Ear {
    fn hears(&self, event: &ChannelEvent) {
        let listeners: Vec<Listener> = {
            let mut heard = unpoisoned(&self.heard);
            match event {
                ChannelEvent::Subscribed => heard.open = true,
                ChannelEvent::Interrupted => heard.open = false,
                ChannelEvent::Ended => heard.over = true,
                ChannelEvent::Refused(_) | ChannelEvent::Message(_) => {}
            }
            heard.listeners.iter().map(|(_, listener)| Arc::clone(listener)).collect()
        };
        listeners.iter().for_each(|listener| listener(event.clone()));
    }
}
