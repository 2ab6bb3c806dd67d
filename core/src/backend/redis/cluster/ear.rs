//! One connection, over which a client hears what concerns it in the slots of one node.
//!
//! Source: Redis 7.0, `SSUBSCRIBE`: a channel lives in a slot as a key does, so that subscribing elsewhere is
//! answered by `MOVED`, and whoever listens when the slot goes to another node is told by `sunsubscribe`.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;

use super::spoken::{Said, take};
use crate::backend::redis::config::Address;
use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::native::timers::pause;
use crate::backend::redis::transport::port::{ChannelEvent, Listener};
use crate::backend::redis::transport::replies::{Redirect, refusal};
use crate::backend::redis::transport::stream::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::backoff::Backoff;

/// One channel of a slot, and who hears it. Tells that listener when nothing comes any more.
pub(super) struct Listening {
    pub channel: String,
    pub slot: u16,
    pub listener: Listener,
    /// How often nodes have sent it on since it was last confirmed.
    pub hops: u32,
}

impl Drop for Listening {
    fn drop(&mut self) {
        (self.listener)(ChannelEvent::Ended);
    }
}

/// What an ear is told to do.
pub(super) enum Order {
    Hear(Listening),
    Leave(String),
    /// Slots may be at other nodes now.
    Look,
}

/// A command that was not answered yet.
struct Asked {
    subscribes: bool,
    channel: String,
    slot: u16,
}

impl Asked {
    fn of(one: &Listening, subscribes: bool) -> Self {
        Self { subscribes, channel: one.channel.clone(), slot: one.slot }
    }
}

/// The map of the cluster, as far as a connection that listens needs it.
pub(super) trait Map: Send + Sync + 'static {
    /// The runtime of the client, whose timers count.
    fn runtime(&self) -> &Handle;

    /// The node that has a slot, as far as is known.
    fn known_owner(&self, slot: u16) -> Option<Address>;

    /// The map may be old.
    fn doubt(self: Arc<Self>);

    /// A node says that a slot is at another one.
    fn has_moved(self: Arc<Self>, slot: u16, host: &str, port: u16);

    /// Hears a channel on the node that has its slot.
    fn hear_in_slot(self: Arc<Self>, runtime: Handle, one: Listening);

    /// Forgets a connection that has nothing to hear. Says whether it is forgotten.
    fn retires(&self, at: &Address, runtime: tokio::runtime::Id, orders: &UnboundedReceiver<Order>) -> bool;
}

/// One connection, while there is something to hear.
pub(super) struct Ear {
    pub map: Weak<dyn Map>,
    pub port: Arc<NativePort>,
    pub at: Address,
    /// Where it listens.
    pub runtime: Handle,
    pub orders: UnboundedReceiver<Order>,
    pub heard: HashMap<String, Listening>,
    /// A subscription has stood since the connection was lost last.
    pub confirmed: bool,
}

/// Why an ear stops to listen.
enum End {
    /// Nobody wants to hear anything here.
    Unused,
    /// The client was closed.
    Closed,
}

impl Ear {
    /// Hears until nobody wants to, or the client is closed.
    pub(super) async fn run(mut self) {
        let new_backoff = || Backoff::new(Duration::from_millis(20), Duration::from_secs(1), 1);
        let mut backoff = new_backoff();
        loop {
            let error = match self.connected().await {
                Ok(stream) => self.listens(stream).await,
                Err(error) => Err(error),
            };
            if std::mem::take(&mut self.confirmed) {
                backoff = new_backoff();
            }
            match error {
                Ok(End::Closed) => return,
                Ok(End::Unused) => {
                    let Some(map) = self.map.upgrade() else { return };
                    if map.retires(&self.at, self.runtime.id(), &self.orders) {
                        return;
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::BackendRejected => {
                    for (_, one) in self.heard.drain() {
                        (one.listener)(ChannelEvent::Refused(error.to_string()));
                    }
                    continue;
                }
                Err(error) => tracing::debug!(%error, at = %self.at, "subscriptions interrupted"),
            }
            self.heard.values().for_each(|one| (one.listener)(ChannelEvent::Interrupted));
            let Some(map) = self.map.upgrade() else { return };
            Arc::clone(&map).doubt();
            let pause = pause(map.runtime(), backoff.delay());
            drop(map);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    still_there = &mut pause => match still_there {
                        true => break,
                        false => return,
                    },
                    order = self.orders.recv() => match order {
                        None => return,
                        Some(order) => drop(self.obey(order)),
                    },
                }
            }
        }
    }

    /// A connection, or none if nobody wants one by then.
    async fn connected(&mut self) -> Result<Option<Box<dyn Stream>>> {
        let port = Arc::clone(&self.port);
        let connecting = port.subscriber();
        tokio::pin!(connecting);
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order);
            }
            if self.heard.is_empty() {
                return Ok(None);
            }
            tokio::select! {
                stream = &mut connecting => return stream.map(Some),
                order = self.orders.recv() => match order {
                    None => return Ok(None),
                    Some(order) => drop(self.obey(order)),
                },
            }
        }
    }

    /// Carries out an order; says what the node has to be asked for that.
    fn obey(&mut self, order: Order) -> Option<Asked> {
        match order {
            Order::Hear(one) => {
                let asked = Asked::of(&one, true);
                self.heard.insert(one.channel.clone(), one);
                Some(asked)
            }
            Order::Leave(channel) => {
                let one = self.heard.remove(&channel)?;
                Some(Asked::of(&one, false))
            }
            Order::Look => {
                let map = self.map.upgrade()?;
                let astray = self
                    .heard
                    .extract_if(|_, one| map.known_owner(one.slot).is_some_and(|owner| owner != self.at));
                // A node that has lost a slot ends what was heard there by itself.
                let astray: Vec<_> = astray.map(|(_, one)| one).collect();
                astray.into_iter().for_each(|one| Arc::clone(&map).hear_in_slot(self.runtime.clone(), one));
                None
            }
        }
    }

    async fn listens(&mut self, stream: Option<Box<dyn Stream>>) -> Result<End> {
        let Some(mut stream) = stream else {
            return Ok(if self.orders.is_closed() { End::Closed } else { End::Unused });
        };
        let broken = |error: io::Error| {
            Error::new(ErrorKind::BackendUnavailable, "the connection of a subscription broke")
                .with_source(error)
        };
        let mut asked: Vec<Asked> = Vec::new();
        let mut buffer = Vec::new();
        let mut asks: Vec<_> = self.heard.values().map(|one| Asked::of(one, true)).collect();
        let (runtime, timeout) = (self.port.runtime().clone(), self.port.timeout());
        let mut quiet = Box::pin(pause(&runtime, timeout));
        let (mut was_heard, mut pinged) = (true, false);
        loop {
            for ask in asks.drain(..) {
                let verb = if ask.subscribes { "SSUBSCRIBE" } else { "SUNSUBSCRIBE" };
                let words = redis::cmd(verb).arg(&ask.channel).get_packed_command();
                stream.write_all(&words).await.map_err(broken)?;
                asked.push(ask);
            }
            stream.flush().await.map_err(broken)?;
            if self.heard.is_empty() {
                return Ok(End::Unused);
            }
            tokio::select! {
                still_there = &mut quiet => {
                    if !still_there {
                        return Ok(End::Closed);
                    }
                    match was_heard {
                        true => {}
                        // A connection that is lost without notice is as quiet as one on which nothing is published.
                        false if !pinged => stream.write_all(b"*1\r\n$4\r\nPING\r\n").await.map_err(broken)?,
                        false => return Err(broken(io::ErrorKind::TimedOut.into())),
                    }
                    pinged = !was_heard;
                    was_heard = false;
                    quiet.set(pause(&runtime, timeout));
                }
                read = stream.read_buf(&mut buffer) => {
                    was_heard = true;
                    if read.map_err(broken)? == 0 {
                        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
                    }
                    while let Some(said) = take(&mut buffer).map_err(broken)? {
                        self.hears(said, &mut asked)?;
                    }
                }
                order = self.orders.recv() => match order {
                    None => return Ok(End::Closed),
                    Some(order) => asks.extend(self.obey(order)),
                },
            }
        }
    }

    fn hears(&mut self, said: Said, asked: &mut Vec<Asked>) -> Result<()> {
        let words = match said {
            Said::Words(words) => words,
            Said::Refused(text) => return self.refused(&text, asked),
        };
        let [kind, channel, rest @ ..] = &words[..] else { return Ok(()) };
        let channel = String::from_utf8_lossy(channel);
        let mut answered = |subscribes: bool| {
            let at = asked.iter().position(|one| one.subscribes == subscribes && one.channel == *channel)?;
            Some(asked.remove(at))
        };
        match (&kind[..], self.heard.get_mut(&*channel)) {
            (b"smessage", Some(one)) => {
                let message = rest.first().cloned().unwrap_or_default();
                (one.listener)(ChannelEvent::Message(message));
            }
            (b"ssubscribe", one) => {
                answered(true);
                self.confirmed = true;
                if let Some(one) = one {
                    one.hops = 0;
                    (one.listener)(ChannelEvent::Subscribed);
                }
            }
            (b"sunsubscribe", _) => {
                let was_asked_for = answered(false).is_some();
                // Otherwise the slot has gone to another node.
                if !was_asked_for {
                    self.goes_on(&channel);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes a refusal. Only that of a moved slot says what it is about; the others come in the order of asking.
    fn refused(&mut self, text: &str, asked: &mut Vec<Asked>) -> Result<()> {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        // A user that may not ping is answered all the same.
        if code == "NOPERM" && detail.contains("'ping'") {
            return Ok(());
        }
        let moved = match Redirect::read(code, detail) {
            Some(Redirect::Moved { host, port }) => Some((host, port)),
            _ => None,
        };
        let slot = detail.split(' ').next().and_then(|slot| slot.parse::<u16>().ok());
        let at = match (&moved, slot) {
            (Some(_), Some(slot)) => asked.iter().position(|one| one.slot == slot),
            _ => (!asked.is_empty()).then_some(0),
        };
        let refused = at.map(|at| asked.remove(at));
        let Some(Asked { channel, slot, .. }) = refused.filter(|one| one.subscribes) else { return Ok(()) };
        match (moved, self.map.upgrade()) {
            (Some((host, port)), Some(map)) => {
                let host = if host.is_empty() { self.at.host().to_owned() } else { host };
                map.has_moved(slot, &host, port);
                self.goes_on(&channel);
                Ok(())
            }
            (_, map) => {
                let error = refusal(Some(code), Some(detail));
                match map {
                    _ if error.kind() == ErrorKind::BackendRejected => {
                        if let Some(one) = self.heard.remove(&channel) {
                            (one.listener)(ChannelEvent::Refused(error.to_string()));
                        }
                    }
                    // Such as a slot that nobody serves. The others are heard on.
                    Some(map) => {
                        map.doubt();
                        self.goes_on(&channel);
                    }
                    None => return Err(error),
                }
                Ok(())
            }
        }
    }

    /// Lets a channel be heard where its slot is now.
    fn goes_on(&mut self, channel: &str) {
        if let (Some(one), Some(map)) = (self.heard.remove(channel), self.map.upgrade()) {
            map.hear_in_slot(self.runtime.clone(), one);
        }
    }
}
