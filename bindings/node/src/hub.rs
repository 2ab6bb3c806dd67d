//! The calls of one environment (the main thread's, or a worker's).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use napi::bindgen_prelude::{Array, Either, Either7, Function, Null};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{FencingToken, GuardSet, Lock, LostReason, Polylatch};
use polylatch_bridge::events::Listener;
use polylatch_bridge::{
    Events, Failure, HostLoop, Level, LockSpec, Route, Started, UnderWay, one_ended, run_interruptible, step,
    units,
};

use crate::client::NativeClient;
use crate::failure::Fault;
use crate::guard::{Guards, NativeSet};
use crate::options::{ClientOption, Options, connect, way};

/// How long the end of an environment waits until stores know that its locks are free.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// How a call ended: nothing, not had, what went wrong, a guard's number, a set, a client, or JSON. With a
/// guard's number goes its fencing token, and with the end of a release how often the lease was renewed.
type Payload = Either7<(), Null, Fault, u32, NativeSet, NativeClient, String>;

/// What a call returns at once: its end, or a boolean if it goes on: whether a turn is due.
type Reply = Either<bool, Payload>;

type Notify = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The number that `js/events.cjs` gives for a client without a callback.
const NOBODY: f64 = 0.0;

/// The end of a call, on its way to the loop.
struct Done {
    call: usize,
    value: Value,
}

enum Value {
    Nothing,
    NotHad,
    Failed(Failure),
    Guard(polylatch::Guard, Arc<Polylatch>),
    /// A guard that goes on under its number.
    Converted(usize, polylatch::Guard),
    /// A number whose guard was lost by a step that failed.
    GivenUp(usize, Failure),
    /// A guard, under its number, that was released.
    Released(usize, Arc<polylatch::Guard>),
    Set(GuardSet, Arc<Polylatch>),
    Client(Polylatch, Option<Route>),
    Json(String),
}

impl From<Result<Value, Failure>> for Value {
    fn from(result: Result<Value, Failure>) -> Self {
        result.unwrap_or_else(Value::Failed)
    }
}

/// Everything that ends with the environment.
struct Calls {
    host: HostLoop<Done>,
    /// By the numbers that `js/calls.cjs` gives: small, and given again.
    under_way: Vec<Option<UnderWay<Done>>>,
    guards: Guards,
    clients: Vec<Weak<Polylatch>>,
    events: Arc<Events>,
}

#[napi]
pub struct Hub {
    /// Empty once the environment ends.
    calls: Rc<RefCell<Option<Calls>>>,
    /// The number that goes with the last payload that was returned at once.
    beside: Cell<f64>,
}

#[napi]
impl Hub {
    /// `notify` is called on the loop when [`Hub::turn`] has something to do. It does not keep the
    /// process alive. With `turn`, the same function again, the loop also watches for answers itself. `heard` is
    /// called on the loop when [`Hub::events`] has something.
    #[napi(constructor)]
    pub fn new(
        env: Env,
        notify: Notify,
        turn: Option<Function<'_, (), ()>>,
        heard: Notify,
    ) -> napi::Result<Self> {
        let notify = Arc::new(notify);
        let tell = move || {
            // An environment that ends takes no calls any more; there is no callback left to call.
            let _ = notify.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        let host = match turn {
            Some(turn) => watched(env, tell, turn),
            None => HostLoop::new(tell),
        };
        let events = Events::new(move || {
            let _ = heard.call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
        let (under_way, guards, clients) = Default::default();
        let calls = Calls { host, under_way, guards, clients, events };
        let calls = Rc::new(RefCell::new(Some(calls)));
        // A worker that is terminated gets to run no JavaScript any more, so `js/` cannot say goodbye.
        env.add_env_cleanup_hook(Rc::clone(&calls), |calls| farewell(&calls))?;
        Ok(Self { calls, beside: Cell::new(0.0) })
    }

    /// Ends what waits and gives back what is held; waits for that, but not for long. Afterwards every
    /// call fails.
    #[napi(catch_unwind)]
    pub fn farewell(&self) {
        farewell(&self.calls);
    }

    /// Carries on what was woken. Returns for each call that has ended its number, how it ended, and the
    /// number that goes with that.
    #[napi(catch_unwind)]
    pub fn turn<'env>(&self, env: &'env Env) -> napi::Result<Array<'env>> {
        let mut ended = env.create_array(0)?;
        let mut place = self.calls.borrow_mut();
        let Some(calls) = place.as_mut() else { return Ok(ended) };
        let Calls { host, under_way, guards, clients, .. } = calls;
        let mut told = Ok(());
        host.turn(|done| {
            // The result of a cancelled call is dropped, which releases a lock.
            if under_way.get_mut(done.call).and_then(Option::take).is_some() {
                let (payload, beside) = payload(done.value, guards, clients);
                let entry = ended
                    .insert(done.call as u32)
                    .and_then(|()| ended.insert(payload))
                    .and_then(|()| ended.insert(beside));
                if entry.is_err() {
                    told = entry;
                }
            }
        });
        told.map(|()| ended)
    }

    /// Takes out what has come up, as JSON: pairs of an event, or `null` for the end of a client, and the number that its
    /// client was connected with.
    #[napi(catch_unwind)]
    pub fn events(&self) -> Option<String> {
        let events = self.calls.borrow().as_ref().map(|calls| Arc::clone(&calls.events))?;
        Some(crate::events::json(events.take()))
    }

    /// From which level on the channels want the events of all clients of this environment: 0 debug, 1 info, else
    /// warnings.
    #[napi(catch_unwind)]
    pub fn want(&self, least: u32) {
        let events = self.calls.borrow().as_ref().map(|calls| Arc::clone(&calls.events));
        if let Some(events) = events {
            events.want(Some(match least {
                0 => Level::Debug,
                1 => Level::Info,
                _ => Level::Warn,
            }));
        }
    }

    /// The number that goes with what a call has just returned at once.
    #[napi(catch_unwind)]
    pub fn beside(&self) -> f64 {
        self.beside.get()
    }

    /// Ends a call; what it may have done is undone in the background.
    #[napi(catch_unwind)]
    pub fn cancel(&self, call: f64) {
        let mut place = self.calls.borrow_mut();
        let under_way = place.as_mut().and_then(|calls| calls.under_way.get_mut(call as usize)?.take());
        drop(place);
        if let Some(under_way) = under_way {
            under_way.cancel();
        }
    }

    #[napi(catch_unwind)]
    pub fn connect(
        &self,
        call: f64,
        url: Option<String>,
        program: Option<String>,
        options: Vec<ClientOption>,
        listener: f64,
    ) -> Reply {
        let mut options = match connect(url, program, options) {
            Ok(options) => options,
            Err(failure) => return failed(failure),
        };
        let events = self.calls.borrow().as_ref().map(|calls| Arc::clone(&calls.events));
        options.listener = events.map(|events| Listener {
            events: Arc::new(move || Ok(Arc::clone(&events))),
            number: listener as u64,
            level: (listener != NOBODY).then(Level::default),
        });
        self.start(call, async move {
            let (client, route) = options.connect().await?;
            Ok(Value::Client(client, route))
        })
    }

    /// Acquires one lock. With `waits` unset it answers at once; see `lock.ts` for the modes. The
    /// usual options come one by one, or all of them as an object.
    #[napi(catch_unwind)]
    #[allow(clippy::too_many_arguments, reason = "one call across the border is cheaper than an object")]
    pub fn acquire(
        &self,
        call: f64,
        client: &NativeClient,
        waits: bool,
        name: String,
        in_way: u32,
        count: f64,
        capacity: f64,
        lease: Option<f64>,
        wait: Option<f64>,
        options: Option<Options>,
    ) -> Reply {
        let options = options.or_else(|| {
            (lease.is_some() || wait.is_some()).then(|| Options { lease, wait, ..Options::default() })
        });
        let client = Arc::clone(&client.client);
        let lock = match one_lock(&client, name, in_way, count, capacity, options) {
            Ok(lock) => lock,
            Err(failure) => return failed(failure),
        };
        self.start(call, async move {
            let guard = if waits { Some(lock.acquire().await?) } else { lock.try_acquire().await? };
            Ok(guard.map_or(Value::NotHad, |guard| Value::Guard(guard, client)))
        })
    }

    /// Acquires several locks together.
    #[napi(catch_unwind)]
    pub fn acquire_all(
        &self,
        call: f64,
        client: &NativeClient,
        waits: bool,
        names: Vec<String>,
        options: Option<Options>,
    ) -> Reply {
        let client = Arc::clone(&client.client);
        let options = match options.unwrap_or_default().checked() {
            Ok(options) => options,
            Err(failure) => return failed(failure),
        };
        let all = options.all(&client, names);
        self.start(call, async move {
            let set = if waits { Some(all.acquire().await?) } else { all.try_acquire().await? };
            Ok(set.map_or(Value::NotHad, |set| Value::Set(set, client)))
        })
    }

    #[napi(catch_unwind)]
    pub fn release(&self, call: f64, guard: u32) -> Reply {
        let number = guard as usize;
        if self.calls.borrow_mut().as_mut().is_some_and(|calls| calls.guards.leave_given_up(number)) {
            self.beside.set(0.0);
            return Either::B(Either7::A(()));
        }
        match self.guard(number) {
            Ok(guard) => self.start(call, async move {
                guard.release().await?;
                Ok(Value::Released(number, guard))
            }),
            Err(failure) => failed(failure),
        }
    }

    /// Gives the lease another length, in milliseconds.
    #[napi(catch_unwind)]
    pub fn extend(&self, call: f64, guard: u32, lease: f64) -> Reply {
        let extension = units::millis("lease", lease)
            .and_then(|lease| self.guard(guard as usize).map(|guard| guard.extend(lease)));
        match extension {
            Ok(extension) => self.start(call, async move { Ok(extension.await.map(|_| Value::Nothing)?) }),
            Err(failure) => failed(failure),
        }
    }

    #[napi(catch_unwind)]
    pub fn release_all(&self, call: f64, set: &NativeSet) -> Reply {
        let set = Arc::clone(&set.set);
        self.start(call, async move { Ok(set.release().await.map(|()| Value::Nothing)?) })
    }

    /// Steps down from writing to reading, or up. The guard becomes another, under the same number.
    #[napi(catch_unwind)]
    pub fn convert(&self, call: f64, guard: u32, up: bool) -> Reply {
        let number = guard as usize;
        let taken = {
            let mut place = self.calls.borrow_mut();
            let Some(calls) = place.as_mut() else { return failed(ending()) };
            match calls.guards.take(number, up) {
                Ok(taken) => taken,
                Err(failure) => return failed(failure),
            }
        };
        // Held whether it is done or not: `guard.ts` sees by its mode in which way.
        self.start(call, async move {
            Ok(match step(taken, up).await {
                Ok((guard, _)) => Value::Converted(number, guard),
                Err(failure) => Value::GivenUp(number, failure),
            })
        })
    }

    /// Ends when the lease does: with what went wrong if it was lost, otherwise with nothing.
    #[napi(catch_unwind)]
    pub fn lost(&self, call: f64, guard: u32) -> Reply {
        let guard = match self.guard(guard as usize) {
            Ok(guard) => guard,
            Err(failure) => return failed(failure),
        };
        let ended = guard.ended();
        // Not kept alive by this call: a guard that is forgotten is released.
        let guard = Arc::downgrade(&guard);
        self.start(call, async move {
            let lost: Option<LostReason> = ended.await;
            if let (Some(_), Some(guard)) = (lost, guard.upgrade()) {
                guard.check()?;
            }
            Ok(Value::Nothing)
        })
    }

    /// The same for a set: ends when one of its leases was lost, or all are over.
    #[napi(catch_unwind)]
    pub fn lost_one(&self, call: f64, set: &NativeSet) -> Reply {
        let ended = one_ended(&set.set);
        let set = Arc::downgrade(&set.set);
        self.start(call, async move {
            if ended.await.is_some()
                && let Some(set) = set.upgrade()
            {
                set.check()?;
            }
            Ok(Value::Nothing)
        })
    }

    /// Ends with `null` when the lease is in danger, with nothing when it is over.
    #[napi(catch_unwind)]
    pub fn endangered(&self, call: f64, guard: u32) -> Reply {
        let guard = match self.guard(guard as usize) {
            Ok(guard) => guard,
            Err(failure) => return failed(failure),
        };
        let (endangered, ended) = (guard.endangered(), guard.ended());
        drop(guard);
        self.start(call, async move {
            tokio::select! {
                biased;
                () = endangered => Ok(Value::NotHad),
                // A loss that comes between the two looks is a danger, too.
                lost = ended => Ok(if lost.is_some() { Value::NotHad } else { Value::Nothing }),
            }
        })
    }

    /// Reads who holds and who waits, as JSON.
    #[napi(catch_unwind)]
    pub fn inspect(
        &self,
        call: f64,
        client: &NativeClient,
        name: Option<String>,
        prefix: Option<String>,
        limit: Option<u32>,
    ) -> Reply {
        let inspector = client.client.inspect();
        let query = Query { name, prefix, limit: limit.map(|limit| limit as usize), ..Query::default() };
        self.start(call, async move {
            let snapshot = inspector.list(&query).await?;
            json(serde_json::to_string(&snapshot))
        })
    }

    #[napi(catch_unwind)]
    pub fn break_lease(
        &self,
        call: f64,
        client: &NativeClient,
        name: String,
        expected: String,
        by: String,
        reason: String,
    ) -> Reply {
        let inspector = client.client.inspect();
        // `js/` passes only what fits 64 bits; no token is larger than 2^53.
        let expected = FencingToken::new(expected.parse().unwrap_or(u64::MAX));
        let request = BreakRequest { name, expected, by, reason };
        self.start(call, async move {
            let outcome = inspector.break_lease(&request).await?;
            json(serde_json::to_string(&outcome))
        })
    }

    #[napi(catch_unwind)]
    pub fn close(&self, call: f64, client: &NativeClient) -> Reply {
        let (client, route) = (Arc::clone(&client.client), Arc::clone(&client.route));
        self.start(call, async move {
            client.close().await;
            if let Some(route) = &*route {
                route.end();
            }
            Ok(Value::Nothing)
        })
    }

    /// JavaScript has forgotten a guard: its lock is released in the background.
    #[napi(catch_unwind)]
    pub fn forget(&self, guard: u32) {
        if let Some(calls) = self.calls.borrow_mut().as_mut() {
            calls.guards.remove(guard as usize);
        }
    }

    /// In which way a lock is held.
    #[napi(catch_unwind)]
    pub fn mode(&self, guard: u32) -> Option<&'static str> {
        self.guard(guard as usize).ok().map(|guard| guard.mode().code())
    }

    /// Milliseconds.
    #[napi(catch_unwind)]
    pub fn remaining(&self, guard: u32) -> f64 {
        self.guard(guard as usize).map_or(0.0, |guard| guard.remaining().as_secs_f64() * 1e3)
    }

    #[napi(catch_unwind)]
    pub fn is_held(&self, guard: u32) -> bool {
        self.guard(guard as usize).is_ok_and(|guard| guard.is_held())
    }

    #[napi(catch_unwind)]
    pub fn renewals(&self, guard: u32) -> u32 {
        self.guard(guard as usize).map_or(0, |guard| guard.renewals())
    }

    #[napi(catch_unwind)]
    pub fn beat(&self, guard: u32) {
        if let Ok(guard) = self.guard(guard as usize) {
            guard.beat();
        }
    }

    /// Nothing, or why it is not held.
    #[napi(catch_unwind)]
    pub fn check(&self, guard: u32) -> Either<Fault, ()> {
        match self.guard(guard as usize).and_then(|guard| guard.check().map_err(Failure::from)) {
            Ok(()) => Either::B(()),
            Err(failure) => Either::A(failure.into()),
        }
    }

    /// What a guard says that was released, and has no number any more.
    #[napi(catch_unwind)]
    pub fn given_back(&self, name: String) -> Fault {
        let text = format!("the lease of {name} was given back; acquire a new one");
        let mut fault = Fault::from(Failure::invalid_argument(text));
        fault.lock = Some(name);
        fault
    }
}

fn ending() -> Failure {
    Failure::canceled("this environment is ending; it takes no more locks")
}

impl Hub {
    fn guard(&self, number: usize) -> Result<Arc<polylatch::Guard>, Failure> {
        self.calls.borrow().as_ref().ok_or_else(ending)?.guards.get(number).cloned()
    }

    fn start(&self, call: f64, work: impl Future<Output = Result<Value, Failure>> + Send + 'static) -> Reply {
        let call = call as usize;
        let mut place = self.calls.borrow_mut();
        let Some(calls) = place.as_mut() else {
            return failed(ending());
        };
        let finish = move |ended: Result<Result<Value, Failure>, Failure>| Done {
            call,
            value: ended.and_then(|ended| ended).into(),
        };
        match calls.host.start(work, finish) {
            Started::Done(done) => {
                let (payload, beside) = payload(done.value, &mut calls.guards, &mut calls.clients);
                self.beside.set(beside);
                Either::B(payload)
            }
            Started::UnderWay(under_way) => {
                if calls.under_way.len() <= call {
                    calls.under_way.resize_with(call + 1, || None);
                }
                calls.under_way[call] = Some(under_way);
                Either::A(calls.host.is_due())
            }
        }
    }
}

impl Calls {
    /// Ends what waits, and gives back what is held.
    fn end(self) {
        let Self { host, under_way, guards, clients, events: _ } = self;
        drop(under_way);
        drop(host);
        let deadline = Instant::now() + FAREWELL;
        for client in clients.iter().filter_map(Weak::upgrade) {
            let go_on = || if Instant::now() < deadline { Ok(()) } else { Err(()) };
            // A store that cannot be reached must not hold up the end of a process.
            let _ = run_interruptible(client.close(), go_on);
        }
        // Their clients go with the last of them, so not before they are closed.
        drop(guards);
    }
}

#[cfg(target_os = "linux")]
fn watched(
    env: Env,
    tell: impl Fn() + Clone + Send + Sync + 'static,
    turn: Function<'_, (), ()>,
) -> HostLoop<Done> {
    let host = HostLoop::watched(tell.clone());
    match host.descriptor() {
        Some(descriptor) if crate::watch::watch(env, descriptor, turn).is_none() => HostLoop::new(tell),
        _ => host,
    }
}

#[cfg(not(target_os = "linux"))]
fn watched(_: Env, tell: impl Fn() + Send + Sync + 'static, _: Function<'_, (), ()>) -> HostLoop<Done> {
    HostLoop::new(tell)
}

fn farewell(calls: &RefCell<Option<Calls>>) {
    let ended = calls.borrow_mut().take();
    if let Some(calls) = ended {
        calls.end();
    }
}

fn one_lock(
    client: &Polylatch,
    name: String,
    in_way: u32,
    count: f64,
    capacity: f64,
    options: Option<Options>,
) -> Result<Lock, Failure> {
    let options = options.map(Options::checked).transpose()?.unwrap_or_default();
    Ok(LockSpec { name, way: way(in_way, count, capacity)?, options }.of(client))
}

fn failed(failure: Failure) -> Reply {
    Either::B(Either7::C(failure.into()))
}

fn json(text: Result<String, serde_json::Error>) -> Result<Value, Failure> {
    text.map(Value::Json).map_err(|error| Failure::internal(format!("what was read is no JSON: {error}")))
}

/// What a call ended with, and the number that goes with it.
fn payload(value: Value, guards: &mut Guards, clients: &mut Vec<Weak<Polylatch>>) -> (Payload, f64) {
    let payload = match value {
        Value::Nothing => Either7::A(()),
        Value::NotHad => Either7::B(Null),
        Value::Failed(failure) => Either7::C(failure.into()),
        // Tokens are below 2^53, so a double keeps them exactly.
        Value::Guard(guard, client) => {
            let token = guard.fencing_token().get() as f64;
            return (Either7::D(guards.add(guard, client) as u32), token);
        }
        Value::Converted(number, guard) => {
            let token = guard.fencing_token().get() as f64;
            guards.put_back(number, guard);
            return (Either7::D(number as u32), token);
        }
        Value::GivenUp(number, failure) => {
            guards.given_up(number);
            Either7::C(failure.into())
        }
        Value::Released(number, guard) => {
            guards.given_back(number, &guard);
            return (Either7::A(()), f64::from(guard.renewals()));
        }
        Value::Set(set, client) => Either7::E(NativeSet { set: Arc::new(set), _client: client }),
        Value::Client(client, route) => {
            let client = Arc::new(client);
            clients.retain(|client| client.strong_count() > 0);
            clients.push(Arc::downgrade(&client));
            Either7::F(NativeClient { client, route: Arc::new(route) })
        }
        Value::Json(text) => Either7::G(text),
    };
    (payload, 0.0)
}
