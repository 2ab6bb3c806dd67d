//! One shard's door to the cluster: finds the master of its slot, wherever that is at the moment.
//!
//! Source: Redis cluster specification, "MOVED redirection", "ASK redirection" and "Multiple keys operations"
//! (`TRYAGAIN`).

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};

use super::ear::Listening;
use super::nodes::Nodes;
use crate::backend::Reply;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::protocol::call::{Call, Data, no_answer};
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::native::NativePort;
use crate::backend::redis::transport::native::timers::pause;
use crate::backend::redis::transport::port::{ChannelEvent, Listener, Port, Pushes, Refusal, ServerFacts};
use crate::backend::redis::transport::replies::Redirect;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::policy::backoff::Backoff;

/// How often a request follows the word of nodes before it gives up: they then contradict each other.
const HOPS: u32 = 16;

/// The part of a cluster in which one shard lives.
#[derive(Clone)]
pub(super) struct ShardPort {
    nodes: Arc<Nodes>,
    slot: u16,
}

impl ShardPort {
    pub(super) fn new(nodes: Arc<Nodes>, slot: u16) -> Self {
        Self { nodes, slot }
    }

    async fn go(self, calls: Vec<Call>, acknowledge: Option<Acknowledge>) -> Result<Vec<Result<Data>>> {
        let mut backoff =
            Backoff::new(Duration::from_millis(5), Duration::from_millis(100), u64::from(self.slot));
        let mut hops = 0;
        loop {
            let owner = self.nodes.owner(self.slot).await?;
            let port = self.nodes.port(&owner)?;
            let mut silence = Silence { nodes: &self.nodes, answered: false };
            let mut answer = port.run(calls.clone(), acknowledge).await;
            silence.answered = true;
            let mut redirect = redirect_of(&answer);
            // What is granted there would wait for no replica.
            if let Some(Redirect::Ask { host, port, .. }) = &redirect
                && acknowledge.is_none()
                && !calls.iter().any(spells_keys)
            {
                // Only for this request: until the slot has moved altogether, its owner stays who it is.
                let elsewhere = self.nodes.port(&self.nodes.address(&host_or(host, owner.host()), *port))?;
                answer = elsewhere.run_asking(calls.clone()).await;
                redirect = redirect_of(&answer);
            }
            match redirect {
                None => {
                    if failed(&answer) {
                        self.nodes.doubt();
                    }
                    return answer;
                }
                Some(Redirect::Moved { host, port }) => {
                    hops += 1;
                    if hops > HOPS {
                        return Err(Error::new(
                            ErrorKind::BackendUnavailable,
                            format!("the nodes of the cluster do not agree who has slot {}", self.slot),
                        ));
                    }
                    let to = self.nodes.address(&host_or(&host, owner.host()), port);
                    self.nodes.has_moved(self.slot, to);
                }
                Some(redirect @ (Redirect::Ask { .. } | Redirect::TryAgain | Redirect::Began)) => {
                    // A part of the keys has moved already. A renewal looks at one key of each lock, and one
                    // key is always to be found.
                    if calls.iter().any(has_parts) {
                        return self.clone().one_by_one(calls).await;
                    }
                    if let Some(alone) = release_alone(&calls) {
                        let answer = Box::pin(self.clone().go(vec![alone], None)).await;
                        let mut answer =
                            answer.and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(no_answer())));
                        // A release goes on only where it has found the lock to be its own, and may have freed it.
                        if redirect == Redirect::Began {
                            let freed = answer.map(|_| Data::Int(1));
                            answer = freed.map_err(|error| error.with_effect(Effect::Maybe));
                        }
                        return Ok(vec![answer]);
                    }
                    // As long as the caller has time: a slot that moves has soon moved altogether.
                    pause(&self.nodes.runtime, backoff.delay()).await;
                }
            }
        }
    }

    /// Renews each lock by a call of its own, with no key but the lock's.
    async fn one_by_one(self, calls: Vec<Call>) -> Result<Vec<Result<Data>>> {
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            answers.push(self.clone().split(call).await);
        }
        Ok(answers)
    }

    async fn split(self, call: Call) -> Result<Data> {
        let is_mutex = std::ptr::eq(call.script, &*scripts::RENEW);
        let locks = if is_mutex { call.keys.len() - 1 } else { call.keys.len() / 2 };
        let width = call.args.len() / locks;
        let mut renewed = Vec::with_capacity(locks);
        for at in 0..locks {
            let mut args = call.args[at * width..(at + 1) * width].to_vec();
            let keys = if is_mutex {
                // The index is another key, and it can wait for the next renewal.
                args[4].clear();
                vec![call.keys[at].clone(); 2]
            } else {
                call.keys[2 * at..2 * at + 2].to_vec()
            };
            let single = Call { script: call.script, keys, args };
            let mut answer = Box::pin(self.clone().go(vec![single], None)).await?;
            let answer = answer.pop().unwrap_or_else(|| Err(no_answer()))?.list()?;
            renewed.extend(answer);
        }
        Ok(Data::List(renewed))
    }

    async fn at_owner(&self) -> Result<Arc<NativePort>> {
        self.nodes.port(&self.nodes.owner(self.slot).await?)
    }
}

/// Has the map looked at if a request is given up unanswered: its node may hang, and another one have its slots.
struct Silence<'a> {
    nodes: &'a Arc<Nodes>,
    answered: bool,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.nodes.doubt();
        }
    }
}

/// Renews more than can be asked for by one key of each lock: the index too, or several locks.
fn has_parts(call: &Call) -> bool {
    if std::ptr::eq(call.script, &*scripts::RENEW) {
        call.keys.first() != call.keys.last()
    } else {
        call.script.renews() && call.keys.len() > 2
    }
}

/// Uses keys that it does not name to the server: on the node that is just being given the slot they seem not to
/// exist, and one that is made there keeps its namesake from moving.
fn spells_keys(call: &Call) -> bool {
    [&*scripts::POLL, &*scripts::POLL_STRICT, &*scripts::RELEASE]
        .iter()
        .any(|script| std::ptr::eq(call.script, *script))
}

/// The release of a mutex by its one key: its lease must not run out while its line is on the way.
fn release_alone(calls: &[Call]) -> Option<Call> {
    let [call] = calls else { return None };
    std::ptr::eq(call.script, &*scripts::RELEASE).then(|| Call {
        script: &scripts::RELEASE_ALONE,
        keys: call.keys[..1].to_vec(),
        args: call.args[..2].to_vec(),
    })
}

fn host_or(host: &str, same: &str) -> String {
    if host.is_empty() { same.to_owned() } else { host.to_owned() }
}

fn redirect_of(answer: &Result<Vec<Result<Data>>>) -> Option<Redirect> {
    let of = |error: &Error| error.cause::<Redirect>().cloned();
    match answer {
        Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).find_map(of),
        Err(error) => of(error),
    }
}

fn failed(answer: &Result<Vec<Result<Data>>>) -> bool {
    let is_away = |error: &Error| error.kind() == ErrorKind::BackendUnavailable;
    match answer {
        Ok(answers) => answers.iter().filter_map(|answer| answer.as_ref().err()).any(is_away),
        Err(error) => is_away(error),
    }
}

impl Port for ShardPort {
    fn run(&self, calls: Vec<Call>, acknowledge: Option<Acknowledge>) -> Reply<Vec<Result<Data>>> {
        Box::pin(self.clone().go(calls, acknowledge))
    }

    fn subscribe(&self, channel: String, listener: Listener) {
        let shard = self.clone();
        let runtime = Handle::try_current().unwrap_or_else(|_| self.nodes.runtime.clone());
        if self.nodes.publishes_in_slots() {
            let one = Listening { channel, slot: self.slot, listener, hops: 0 };
            return self.nodes.hear_in_slot(runtime, one);
        }
        let id = runtime.id();
        runtime.spawn(async move {
            let port = match shard.nodes.owner(shard.slot).await {
                Ok(owner) => shard.nodes.port(&owner).map(|port| (owner, port)),
                Err(error) => Err(error),
            };
            match port {
                Ok((owner, port)) => shard.nodes.ears.listen(&port, owner, id, channel, shard.slot, listener),
                // The next waiter subscribes anew.
                Err(_) => listener(ChannelEvent::Ended),
            }
        });
    }

    fn facts(&self) -> Reply<ServerFacts> {
        let shard = self.clone();
        Box::pin(async move { shard.at_owner().await?.facts().await })
    }

    fn ask(&self, words: Vec<String>) -> Reply<std::result::Result<Data, Refusal>> {
        let shard = self.clone();
        Box::pin(async move { shard.at_owner().await?.ask(words).await })
    }

    /// The keys of a script share a slot, which those of different locks need not.
    fn joins_locks(&self) -> bool {
        false
    }

    /// A message to an inbox reaches the listeners of all nodes, and only those of the publishing one are counted.
    fn pushes(&self) -> Pushes {
        if self.nodes.publishes_in_slots() { Pushes::InSlot } else { Pushes::Hints }
    }

    fn unsubscribe(&self, channel: String, runtime: runtime::Id) {
        self.nodes.in_slots.leave(&channel, runtime);
    }

    fn close(&self) {
        // The connections are the cluster's.
    }
}
