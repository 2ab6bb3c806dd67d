//! The small door to a Redis server: run scripts, subscribe, say what server it is.
//!
//! The backend knows nothing else of its transport, so the same scripts run over the native client,
//! over a transport that a host program supplies, and over a simulated one.

use std::sync::Arc;

use tokio::runtime;

use crate::backend::Reply;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::protocol::call::{Call, Data, no_answer};
#[cfg(not(target_family = "wasm"))]
use crate::backend::redis::protocol::sentinels::Report;
use crate::error::{Error, ErrorKind, Result};

/// What a server says about itself; `None` where this user may not ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    pub version: Option<String>,
    /// Changes with every restart and every promotion.
    pub epoch: Option<String>,
    pub is_replica: bool,
    /// The most replicas seen on this server so far.
    pub replicas: u32,
    pub min_replicas_to_write: Option<u32>,
    pub max_memory: Option<u64>,
    pub eviction_policy: Option<String>,
    pub is_cluster_node: bool,
    /// It says who keeps the data, and keeps none.
    pub is_sentinel: bool,
}

/// What happens on a subscribed channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChannelEvent {
    /// The server has confirmed the subscription: messages from before may be missing.
    Subscribed,
    /// The connection is gone; the port subscribes again by itself.
    Interrupted,
    /// The server refuses this subscription for good.
    Refused(String),
    /// Nothing comes any more: it was refused, the port was closed, or the runtime has ended.
    Ended,
    Message(Vec<u8>),
}

/// How a client hears of grants, and what it may make of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushes {
    /// At the inbox of the client. The server counts everybody whom a message can reach, so a grant that it took
    /// back was never heard of, and a push is a grant.
    Counted,
    /// At the inbox of the client, whose messages reach more than are counted: a push is a reason to ask.
    Hints,
    /// In the slot of the lock. Who listens there is counted before the grant, so a push is a grant.
    InSlot,
}

impl Pushes {
    /// How it stands in the record of a waiter.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Counted | Self::Hints => 1,
            Self::InSlot => 2,
        }
    }
}

/// A server's refusal of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its first word, such as `NOPERM`.
    pub code: String,
    pub detail: String,
}

/// Hears what happens on a channel. Called on the runtime that subscribed; must not block.
pub(crate) type Listener = Arc<dyn Fn(ChannelEvent) + Send + Sync>;

/// A connection to one Redis server.
pub(crate) trait Port: Send + Sync + 'static {
    /// Runs scripts in order, without anything of this client between them, and answers each.
    ///
    /// With `acknowledge`, waits for replicas after the last one; too few are an error whose effect
    /// is `maybe`. A script that the server does not know yet is loaded.
    fn run(&self, calls: Vec<Call>, acknowledge: Option<Acknowledge>) -> Reply<Vec<Result<Data>>>;

    /// Subscribes for the life of the port, and subscribes again after every interruption. Listens on
    /// the caller's runtime, or on the client's own if the caller has none.
    fn subscribe(&self, channel: String, listener: Listener);

    /// Asks the server what it is. Connects if need be.
    fn facts(&self) -> Reply<ServerFacts>;

    /// Asks one command that changes nothing of value; for examining a server. A port need not be able to.
    fn ask(&self, words: Vec<String>) -> Reply<std::result::Result<Data, Refusal>> {
        let _ = words;
        let error = Error::new(ErrorKind::Unsupported, "this connection cannot ask the server about itself");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Whether one script may have the keys of several locks.
    fn joins_locks(&self) -> bool {
        true
    }

    /// What a push to this client is worth.
    fn pushes(&self) -> Pushes {
        Pushes::Counted
    }

    /// Hears a channel no more on the runtime that subscribed to it; a port may hear it until it is closed.
    fn unsubscribe(&self, channel: String, runtime: runtime::Id) {
        let _ = (channel, runtime);
    }

    /// What each Sentinel says, where Sentinels name the master; for examining.
    #[cfg(not(target_family = "wasm"))]
    fn sentinels(&self) -> Option<Reply<Vec<Report>>> {
        None
    }

    /// The number of the connection that it began to open last; `None` if it cannot tell. No two connections have
    /// the same, also not of two ports. As long as it stays the same, every answer comes from the server process
    /// that answered before.
    fn latest_connection(&self) -> Option<u64> {
        None
    }

    /// Whether the script that releases, run now and in this runtime, leaves with the first poll and is carried out before
    /// what is run here later: the runtime is connected, and the server knows the script.
    #[cfg(not(target_family = "wasm"))]
    fn releases_at_once(&self) -> bool {
        false
    }

    /// Closes all connections.
    fn close(&self);
}

impl dyn Port {
    /// Runs one script, and answers it.
    pub(crate) async fn one(&self, call: Call, acknowledge: Option<Acknowledge>) -> Result<Data> {
        let mut answers = self.run(vec![call], acknowledge).await?;
        answers.pop().unwrap_or_else(|| Err(no_answer()))
    }
}
