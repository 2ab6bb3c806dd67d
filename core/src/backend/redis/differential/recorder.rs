//! A backend whose requests are recorded and answered by the test.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::redis::backend::RedisBackend;
use crate::backend::redis::config::Acknowledge;
use crate::backend::redis::config::{Address, Place, RedisConfig};
use crate::backend::redis::protocol::Guarantee;
use crate::backend::redis::protocol::call::{Call, Data};
use crate::backend::redis::protocol::keys::Keys;
use crate::backend::redis::transport::port::{ChannelEvent, Listener, Port, ServerFacts};
use crate::backend::{OpenContext, Reply};
use crate::error::Result;
use crate::token::ClientId;
use crate::wakeups::{Wakeups, unpoisoned};

const MAX_LEASE: Duration = Duration::from_secs(3600);

/// Takes the answer to a call; says what is wrong with what the backend makes of it.
pub(super) type Check = Box<dyn FnOnce(Data) -> std::result::Result<(), String>>;

/// A call, and where its answer goes.
type Recorded = (Call, oneshot::Sender<Result<Data>>);

/// Records what the backend would send, and lets the test answer it.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<VecDeque<Recorded>>>);

struct RecordingPort {
    recorder: Recorder,
    listens: bool,
}

impl Port for RecordingPort {
    fn run(&self, calls: Vec<Call>, _: Option<Acknowledge>) -> Reply<Vec<Result<Data>>> {
        let mut answers = Vec::new();
        for call in calls {
            let (answer, asked) = oneshot::channel();
            unpoisoned(&self.recorder.0).push_back((call, answer));
            answers.push(asked);
        }
        Box::pin(async move {
            let mut all = Vec::new();
            for answer in answers {
                all.push(answer.await.expect("the test answers every call"));
            }
            Ok(all)
        })
    }

    fn subscribe(&self, _: String, listener: Listener) {
        listener(if self.listens { ChannelEvent::Subscribed } else { ChannelEvent::Refused("test".into()) });
    }

    fn facts(&self) -> Reply<ServerFacts> {
        Box::pin(std::future::ready(Ok(ServerFacts::default())))
    }

    fn close(&self) {}

    /// Every call is recorded by itself, with many under way.
    fn joins_locks(&self) -> bool {
        false
    }
}

/// One client: its backend, and what that would send.
pub(super) struct Party {
    pub id: ClientId,
    pub listens: bool,
    pub backend: RedisBackend,
    recorder: Recorder,
}

impl Party {
    pub fn new(number: u64, listens: bool, runtime: &tokio::runtime::Handle) -> Self {
        let recorder = Recorder::default();
        let id = ClientId::from_stored(&format!("host:{number}:c0ffee"));
        let config = RedisConfig {
            place: Place::At(Address::Tcp { host: "recorded".into(), port: 1 }),
            user: None,
            password: None,
            database: 0,
            keys: Keys::new("pl", None).unwrap(),
            guarantee: Guarantee::BestEffort,
            max_lease: MAX_LEASE,
            acknowledge: None,
            timeout: Duration::from_secs(1),
        };
        let context = OpenContext {
            clock: std::sync::Arc::new(crate::clock::SystemClock),
            wakeups: Arc::<Wakeups>::default(),
            runtime: runtime.clone(),
            client: id.clone(),
            timeout: Duration::from_secs(1),
        };
        let port = RecordingPort { recorder: recorder.clone(), listens };
        Self { id, listens, backend: RedisBackend::new(config, context, Box::new(port)), recorder }
    }
}

/// Answers the recorded call and takes what the backend makes of the answer.
fn answered<T: Debug + PartialEq + 'static>(
    mut reply: Reply<T>,
    answer: oneshot::Sender<Result<Data>>,
    spec: T,
) -> Check {
    Box::new(move |data| {
        answer.send(Ok(data)).expect("the backend waits for it");
        match reply.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ours)) if ours == spec => Ok(()),
            Poll::Ready(ours) => Err(format!("it answers\n  {ours:?}\nand not\n  {spec:?}")),
            Poll::Pending => Err("it needs more than one call".into()),
        }
    })
}

/// Carries one step out in the specification, and records the backend's call for it.
pub(super) fn record<T: Debug + PartialEq + 'static>(
    party: &Party,
    mut reply: Reply<T>,
    spec: T,
) -> (Call, Check) {
    let pending = reply.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(pending, "it needs the store");
    let (call, answer) = unpoisoned(&party.recorder.0).pop_front().expect("it was recorded");
    (call, answered(reply, answer, spec))
}
