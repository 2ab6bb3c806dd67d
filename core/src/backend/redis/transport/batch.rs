//! Requests that are made at the same time go to the server in one script call.
//!
//! Most of the time that a small script takes is spent around it: at the server to look it up and to
//! take its arguments apart, at the client to write it and to find whose the answer is. Where many
//! tasks of one runtime take and release locks at once, this is paid once for all of them. A request
//! that is alone never waits for company.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::{self, Handle, RuntimeFlavor};

use crate::backend::Reply;
use crate::backend::redis::protocol::call::{Call, Data, no_answer};
use crate::backend::redis::protocol::scripts;
use crate::backend::redis::transport::port::Port;
use crate::error::Result;
use crate::wakeups::unpoisoned;

#[cfg(all(test, unix))]
mod tests;

/// From how many requests under way on there is company to be expected. With fewer, each is on its
/// own sooner.
const WORTH_IT: usize = 4;

/// How many requests go together at most. With more, the server has nothing to do while they gather, and
/// the client nothing while they are answered.
const MOST: usize = 8;

/// The same where one thread makes all requests: while it makes more of them nothing else is held up.
const MOST_OF_ONE_THREAD: usize = 24;

/// The requests of one client that can go together: polls and releases of mutexes that are not in the
/// index of names before their first renewal.
#[derive(Debug, Default)]
pub(crate) struct Together {
    under_way: AtomicUsize,
    /// Those that can still be joined. One for each runtime: each has a connection of its own.
    open: Mutex<HashMap<Option<runtime::Id>, Weak<Batch>>>,
}

impl Together {
    /// Sends such a poll or release, together with those that others send now, and answers it.
    ///
    /// Cancellation: a request that has not left is withdrawn; the others are not harmed.
    pub(crate) async fn run(&self, port: &Arc<dyn Port>, call: Call) -> Result<Data> {
        let _under_way = UnderWay::begin(&self.under_way);
        if self.under_way.load(Ordering::Relaxed) < WORTH_IT {
            return port.one(call, None).await;
        }
        let spare = call.clone();
        match self.join(port, call).await? {
            // It met an error, which its own answer tells best.
            Data::Nil => port.one(spare, None).await,
            answer => Ok(answer),
        }
    }

    /// Counts a request that goes by itself as company for others, until this is dropped.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        UnderWay::begin(&self.under_way)
    }

    /// Whether one more request would go together with others.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn has_company(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) + 1 >= WORTH_IT
    }

    fn join(&self, port: &Arc<dyn Port>, call: Call) -> Member {
        let handle = Handle::try_current().ok();
        let one_thread =
            handle.as_ref().is_some_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let most = if one_thread { MOST_OF_ONE_THREAD } else { MOST };
        let runtime = handle.map(|handle| handle.id());
        let mut call = Some(call);
        let mut open = unpoisoned(&self.open);
        let batch = open.get(&runtime).and_then(Weak::upgrade);
        if let Some(batch) = batch
            && let Some(at) = batch.add(&mut call)
        {
            return Member { batch, at, gave_way: false };
        }
        // Forgets those of runtimes that have ended.
        open.retain(|_, batch| batch.strong_count() > 0);
        let batch = Batch::of(port, call, most);
        open.insert(runtime, Arc::downgrade(&batch));
        Member { batch, at: 0, gave_way: false }
    }
}

pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests that go, or went, in one call.
///
/// Whichever member is polled drives it for all: one whose task is kept busy elsewhere holds up nobody.
struct Batch {
    port: Arc<dyn Port>,
    /// How many requests it takes.
    most: usize,
    state: Mutex<State>,
    driver: Arc<Alarm>,
}

struct State {
    stage: Stage,
    /// Of the members that wait, in their order.
    wakers: Vec<Option<Waker>>,
}

type Answers = Result<Vec<Result<Data>>>;

enum Stage {
    /// Can be joined. `None` where a member has gone.
    Gathering(Vec<Option<Call>>),
    /// The call is on its way; `None` while somebody drives it.
    Sent { members: Vec<usize>, call: Option<Reply<Vec<Result<Data>>>> },
    /// One answer for each member that has not taken it.
    Answered(Vec<Option<Result<Data>>>),
}

/// Wakes the members when the call can go on. Weak, so that the call ends with the last of them.
struct Alarm {
    batch: Weak<Batch>,
    rang: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before the members are looked up: one that comes to sleep meanwhile sees it.
        self.rang.store(true, Ordering::SeqCst);
        if let Some(batch) = self.batch.upgrade() {
            let wakers = unpoisoned(&batch.state).take_wakers();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl State {
    fn sleep(&mut self, at: usize, context: &Context<'_>) {
        match &mut self.wakers[at] {
            Some(known) => known.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }

    /// Makes the call from what was gathered, unless it has left.
    fn send(&mut self, port: &Arc<dyn Port>) {
        if let Stage::Gathering(calls) = &mut self.stage {
            let gathered = mem::take(calls).into_iter().enumerate();
            let mut gathered: Vec<_> = gathered.filter_map(|(at, call)| Some((at, call?))).collect();
            gathered.sort_by_key(|(_, call)| !call.script.releases());
            let (members, calls): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();
            let call = Some(port.run(one_call_of(calls), None));
            self.stage = Stage::Sent { members, call };
        }
    }

    fn answered(&mut self, answers: Answers) {
        let mut of_members: Vec<_> = self.wakers.iter().map(|_| None).collect();
        if let Stage::Sent { members, .. } = &self.stage {
            for (at, answer) in members.iter().zip(taken_apart(answers, members.len())) {
                of_members[*at] = Some(answer);
            }
        }
        self.stage = Stage::Answered(of_members);
    }
}

/// The requests as one call, releases first; a single one as it is.
fn one_call_of(mut requests: Vec<Call>) -> Vec<Call> {
    if requests.len() < 2 {
        return requests;
    }
    let releases = requests.iter().filter(|request| request.script.releases()).count();
    let mut keys = Vec::with_capacity(1 + 2 * requests.len());
    let mut args = Vec::with_capacity(1 + 4 * requests.len());
    args.push(releases.to_string());
    for request in &mut requests {
        // Lock, line, and the counter, which is the same for all.
        let counter = request.keys.pop();
        if keys.is_empty() {
            keys.extend(counter);
        }
        keys.append(&mut request.keys);
        args.append(&mut request.args);
    }
    vec![Call { script: &scripts::TOGETHER, keys, args }]
}

/// The answers of the members from those of the call.
fn taken_apart(answers: Answers, members: usize) -> Vec<Result<Data>> {
    let of_call = match answers {
        Ok(mut answers) => answers.pop().unwrap_or_else(|| Err(no_answer())),
        Err(error) => Err(error),
    };
    match of_call {
        Ok(Data::List(answers)) if members > 1 && answers.len() == members => {
            answers.into_iter().map(Ok).collect()
        }
        Ok(answer) if members == 1 => vec![Ok(answer)],
        Ok(_) => (0..members).map(|_| Err(no_answer())).collect(),
        Err(error) => {
            let copies: Vec<Result<Data>> = (1..members).map(|_| Err(error.twin())).collect();
            std::iter::once(Err(error)).chain(copies).collect()
        }
    }
}

impl Batch {
    fn of(port: &Arc<dyn Port>, request: Option<Call>, most: usize) -> Arc<Self> {
        Arc::new_cyclic(|batch| Self {
            port: Arc::clone(port),
            most,
            state: Mutex::new(State { stage: Stage::Gathering(vec![request]), wakers: vec![None] }),
            // To be driven for the first time, for which nothing wakes.
            driver: Arc::new(Alarm { batch: Weak::clone(batch), rang: AtomicBool::new(true) }),
        })
    }

    /// Takes a request in, unless the call has left or is full.
    fn add(&self, request: &mut Option<Call>) -> Option<usize> {
        let mut state = unpoisoned(&self.state);
        let at = match &mut state.stage {
            Stage::Gathering(calls) if calls.len() < self.most => {
                calls.push(request.take());
                calls.len() - 1
            }
            _ => return None,
        };
        state.wakers.push(None);
        Some(at)
    }
}

/// One request's part in a batch.
struct Member {
    batch: Arc<Batch>,
    at: usize,
    /// Whether those who are ready to run had their chance to join.
    gave_way: bool,
}

impl Future for Member {
    type Output = Result<Data>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gave_way = mem::replace(&mut self.gave_way, true);
        let Self { batch, at, .. } = &*self;
        let mut state = unpoisoned(&batch.state);
        loop {
            if !gave_way && matches!(&state.stage, Stage::Gathering(calls) if calls.len() < batch.most) {
                state.sleep(*at, context);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            state.send(&batch.port);
            let call = match &mut state.stage {
                Stage::Answered(answers) => {
                    return Poll::Ready(answers[*at].take().unwrap_or_else(|| Err(no_answer())));
                }
                Stage::Sent { call, .. } => call,
                Stage::Gathering(_) => return Poll::Ready(Err(no_answer())),
            };
            // Somebody else drives it, who looks at the alarm before it sleeps, or there is nothing to do.
            let to_drive = call.is_some() && batch.driver.rang.swap(false, Ordering::SeqCst);
            let driven = if to_drive { call.take() } else { None };
            let Some(mut driven) = driven else {
                state.sleep(*at, context);
                return Poll::Pending;
            };
            drop(state);
            let progress =
                driven.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&batch.driver))));
            state = unpoisoned(&batch.state);
            match progress {
                Poll::Pending => {
                    if let Stage::Sent { call, .. } = &mut state.stage {
                        *call = Some(driven);
                    }
                }
                Poll::Ready(answers) => {
                    state.answered(answers);
                    let wakers = state.take_wakers();
                    drop(state);
                    wakers.into_iter().for_each(Waker::wake);
                    state = unpoisoned(&batch.state);
                }
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = unpoisoned(&self.batch.state);
        state.wakers[self.at] = None;
        if let Stage::Gathering(calls) = &mut state.stage {
            calls[self.at] = None;
        }
    }
}
