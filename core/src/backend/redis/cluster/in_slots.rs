//! What a client hears in the slots of its locks: one connection to each node where it waits, and on it a
//! channel for every shard in which somebody waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::SendError, unbounded_channel};

use super::ear::{Ear, Listening, Map, Order};
use super::nodes::Nodes;
use crate::backend::redis::config::Address;
use crate::backend::redis::transport::native::timers::pause;
use crate::wakeups::unpoisoned;

/// The ears of one client.
#[derive(Default)]
pub(super) struct InSlots(Mutex<Ears>);

#[derive(Default)]
struct Ears {
    closed: bool,
    known: Vec<Known>,
}

/// One connection, on a runtime.
struct Known {
    at: Address,
    runtime: runtime::Id,
    orders: UnboundedSender<Order>,
}

impl Nodes {
    /// Hears a channel on the node that has its slot, on this runtime; goes along with the slot.
    pub(super) fn hear_in_slot(self: &Arc<Self>, runtime: Handle, mut one: Listening) {
        let nodes = Arc::clone(self);
        let handle = runtime.clone();
        handle.spawn(async move {
            one.hops += 1;
            // While a slot is given away, two nodes may name each other.
            if one.hops > 2 && !pause(&nodes.runtime, Duration::from_millis(5 << one.hops.min(7))).await {
                return;
            }
            // Without an owner it ends here, and the next waiter tries again.
            let Ok(owner) = nodes.owner(one.slot).await else { return };
            nodes.place(runtime, owner, one);
        });
    }

    fn place(self: &Arc<Self>, runtime: Handle, at: Address, one: Listening) {
        let Ok(port) = self.port(&at) else { return };
        let mut ears = unpoisoned(&self.in_slots.0);
        if ears.closed {
            return;
        }
        ears.known.retain(|ear| !ear.orders.is_closed());
        let known = ears.known.iter().find(|ear| ear.at == at && ear.runtime == runtime.id());
        let one = match known.map(|ear| &ear.orders) {
            None => one,
            Some(orders) => match orders.send(Order::Hear(one)) {
                Err(SendError(Order::Hear(one))) => one,
                _ => return,
            },
        };
        let (orders, taken) = unbounded_channel();
        ears.known.push(Known { at: at.clone(), runtime: runtime.id(), orders });
        drop(ears);
        let heard = HashMap::from([(one.channel.clone(), one)]);
        let map: Weak<dyn Map> = Arc::downgrade(self) as Weak<dyn Map>;
        let ear = Ear { map, port, at, runtime: runtime.clone(), orders: taken, heard, confirmed: false };
        runtime.spawn(ear.run());
    }
}

impl Map for Nodes {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn known_owner(&self, slot: u16) -> Option<Address> {
        Self::known_owner(self, slot)
    }

    fn doubt(self: Arc<Self>) {
        Self::doubt(&self);
    }

    fn has_moved(self: Arc<Self>, slot: u16, host: &str, port: u16) {
        Self::has_moved(&self, slot, self.address(host, port));
    }

    fn hear_in_slot(self: Arc<Self>, runtime: Handle, one: Listening) {
        Self::hear_in_slot(&self, runtime, one);
    }

    fn retires(&self, at: &Address, runtime: runtime::Id, orders: &UnboundedReceiver<Order>) -> bool {
        self.in_slots.retires(at, runtime, orders)
    }
}

impl InSlots {
    /// Hears a channel no more on this runtime.
    pub(super) fn leave(&self, channel: &str, runtime: runtime::Id) {
        self.tell(|ear| (ear.runtime == runtime).then(|| Order::Leave(channel.to_owned())));
    }

    /// Slots may be at other nodes now.
    pub(super) fn look(&self) {
        self.tell(|_| Some(Order::Look));
    }

    fn tell(&self, order: impl Fn(&Known) -> Option<Order>) {
        for ear in &unpoisoned(&self.0).known {
            if let Some(order) = order(ear) {
                // One that has ended has nothing to do.
                let _ = ear.orders.send(order);
            }
        }
    }

    /// Forgets an ear that has nothing to hear, unless it was told something meanwhile. Says whether it is forgotten.
    pub(super) fn retires(
        &self,
        at: &Address,
        runtime: runtime::Id,
        orders: &UnboundedReceiver<Order>,
    ) -> bool {
        let mut ears = unpoisoned(&self.0);
        let unused = orders.is_empty();
        if unused {
            ears.known.retain(|ear| ear.at != *at || ear.runtime != runtime);
        }
        unused
    }

    /// Ends all.
    pub(super) fn close(&self) {
        let mut ears = unpoisoned(&self.0);
        ears.closed = true;
        let known = std::mem::take(&mut ears.known);
        drop(ears);
        drop(known);
    }
}
