//! One session, as the verbs see it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clock::BootInstant;
use crate::error::{Effect, Error, Result};
use crate::token::OwnerToken;
use crate::wakeups::{Wakeups, unpoisoned};

use super::super::liveness::Liveness;
use super::super::protocol::answers::{Answer, code};
use super::super::protocol::requests::{self, Request};
use super::errors;

/// Requests that leave together, in this order, on one connection.
pub(crate) struct Order {
    pub requests: Vec<Request>,
    /// Who waits for the watches among them.
    pub owner: Option<OwnerToken>,
    pub reply: oneshot::Sender<Result<Vec<Answer>>>,
    /// It may have been sent.
    pub begun: Arc<AtomicBool>,
}

/// A session of the servers. It ends when the last one lets go of it, or with [`Session::end`].
pub(crate) struct Session {
    orders: mpsc::UnboundedSender<Order>,
    shared: Arc<Shared>,
    limit: Duration,
    /// A node that is never there.
    nothing: String,
}

/// What the session and the task at its connection both know.
pub(crate) struct Shared {
    pub wakeups: Arc<Wakeups>,
    state: Mutex<State>,
}

pub(crate) struct State {
    /// 0 until the first connection.
    pub id: i64,
    pub liveness: Liveness,
    /// Why it is over.
    pub ended: Option<Error>,
    /// The locks that are held by nodes of this session, with their fences.
    pub holders: HashMap<OwnerToken, u64>,
    /// Who waits for the end of a node.
    pub watches: HashMap<String, Vec<OwnerToken>>,
    /// The member that it is connected to, or was last; at first all of them.
    pub place: String,
}

impl Shared {
    pub(crate) fn new(wakeups: Arc<Wakeups>, liveness: Liveness, place: String) -> Self {
        let state =
            State { id: 0, liveness, ended: None, holders: HashMap::new(), watches: HashMap::new(), place };
        Self { wakeups, state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.state)
    }

    /// Everyone who waits asks again: watches are gone with their connection.
    pub(crate) fn forget_watches(&self) {
        let watches = std::mem::take(&mut self.state().watches);
        watches.into_values().flatten().for_each(|owner| self.wakeups.hint(owner));
    }

    /// The session is over: its nodes are gone, or never come.
    pub(crate) fn end(&self, why: Error) {
        let holders = {
            let mut state = self.state();
            state.ended.get_or_insert(why);
            std::mem::take(&mut state.holders)
        };
        holders.into_iter().for_each(|(owner, fence)| self.wakeups.session_ended(owner, fence));
        self.forget_watches();
    }
}

impl Session {
    pub(crate) fn new(
        orders: mpsc::UnboundedSender<Order>,
        shared: Arc<Shared>,
        limit: Duration,
        nothing: String,
    ) -> Self {
        Self { orders, shared, limit, nothing }
    }

    /// Its number, which is that of its nodes.
    pub(crate) fn id(&self) -> i64 {
        self.shared.state().id
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.shared.state().ended.is_some()
    }

    /// Whether it certainly lives for this long from then on.
    pub(crate) fn lasts(&self, from: BootInstant, need: Duration) -> bool {
        let state = self.shared.state();
        state.ended.is_none() && state.liveness.lasts(from, need)
    }

    pub(crate) fn holds(&self, owner: OwnerToken, fence: u64) {
        self.shared.state().holders.insert(owner, fence);
    }

    /// Nothing is to be told any more to this owner.
    pub(crate) fn forget(&self, owner: OwnerToken) {
        let mut state = self.shared.state();
        state.holders.remove(&owner);
        state.watches.retain(|_, owners| {
            owners.retain(|one| *one != owner);
            !owners.is_empty()
        });
    }

    /// Whether this owner is told when this node ends.
    pub(crate) fn watches(&self, node: &str, owner: OwnerToken) -> bool {
        self.shared.state().watches.get(node).is_some_and(|owners| owners.contains(&owner))
    }

    /// Whether this owner is told when any node ends.
    pub(crate) fn is_watching(&self, owner: OwnerToken) -> bool {
        self.shared.state().watches.values().any(|owners| owners.contains(&owner))
    }

    pub(crate) fn is_unused(&self) -> bool {
        let state = self.shared.state();
        state.holders.is_empty() && state.watches.is_empty()
    }

    /// A request that a majority logs, and that changes nothing.
    pub(crate) fn probe(&self) -> Request {
        requests::delete(&self.nothing)
    }

    /// Sends requests together and waits for their answers, of which each may be a refusal.
    ///
    /// Errors: effect `none` if they were certainly not sent; the session may be over.
    pub(crate) async fn ask(&self, requests: Vec<Request>) -> Result<Vec<Answer>> {
        self.ask_for(requests, None).await
    }

    /// The same; this owner waits for the watches among them.
    pub(crate) async fn ask_for(
        &self,
        requests: Vec<Request>,
        owner: Option<OwnerToken>,
    ) -> Result<Vec<Answer>> {
        // An order without requests would wait for an answer.
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answered) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let order = Order { requests, owner, reply, begun: Arc::clone(&begun) };
        if self.orders.send(order).is_err() {
            return Err(self.why_ended());
        }
        match timeout(self.limit, answered).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => Err(self.why_ended()),
            // What was not sent before `answered` was dropped, just now, is not sent later.
            Err(_) => {
                let effect = if begun.load(Ordering::SeqCst) { Effect::Maybe } else { Effect::None };
                Err(errors::silent(&self.shared.state().place).with_effect(effect))
            }
        }
    }

    /// Ends the session at the servers, and with it all of its nodes.
    pub(crate) async fn end(&self) -> Result<()> {
        let ended = self.ask(vec![requests::end_session()]).await;
        self.shared.end(errors::closed());
        ended.map(|_| ())
    }

    fn why_ended(&self) -> Error {
        self.shared.state().ended.as_ref().map_or_else(errors::expired, Error::twin)
    }
}

/// Whether a probe was carried out: that there is nothing to delete, or no right to, is what a majority has logged.
pub(crate) fn is_probed(answer: &Answer) -> bool {
    matches!(answer.code, code::NO_NODE | code::NO_AUTH)
}
