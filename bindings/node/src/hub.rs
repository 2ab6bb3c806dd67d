//! The calls of one environment (the main thread's, or a worker's).

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use napi::bindgen_prelude::{Either, Either7, Function, Null};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{Converted, FencingToken, GuardSet, Lock, LostReason, Polylatch};
use polylatch_bridge::{Failure, HostLoop, LockSpec, Started, UnderWay, one_ended, run_interruptible};

use crate::client::NativeClient;
use crate::failure::Fault;
use crate::guard::{NativeGuard, NativeSet};
use crate::options::{ClientOption, Options, connect, way};

/// How long the end of an environment waits until stores know that its locks are free.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// How a call ended: nothing, not had, what went wrong, a guard, a set, a client, or JSON.
type Payload = Either7<(), Null, Fault, NativeGuard, NativeSet, NativeClient, String>;

/// What a call returns at once: its end, or a boolean if it goes on: whether a turn is due.
type Reply = Either<bool, Payload>;

type Notify = ThreadsafeFunction<(), (), (), Status, false, true>;

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
    Set(GuardSet, Arc<Polylatch>),
    Client(Polylatch),
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
    clients: Vec<Weak<Polylatch>>,
}

#[napi]
pub struct Hub {
    /// Empty once the environment ends.
    calls: Rc<RefCell<Option<Calls>>>,
}

#[napi]
impl Hub {
    /// `notify` is called on the loop when [`Hub::turn`] has something to do. It does not keep the
    /// process alive. With `turn`, the same function again, the loop also watches for answers itself.
    #[napi(constructor)]
    pub fn new(env: Env, notify: Notify, turn: Option<Function<'_, (), ()>>) -> napi::Result<Self> {
        let notify = Arc::new(notify);
        let tell = move || {
            // An environment that ends takes no calls any more; there is nobody left to tell.
            let _ = notify.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        let host = match turn {
            Some(turn) => watched(env, tell, turn),
            None => HostLoop::new(tell),
        };
        let calls = Calls { host, under_way: Vec::new(), clients: Vec::new() };
        let calls = Rc::new(RefCell::new(Some(calls)));
        // A worker that is terminated gets to run no JavaScript any more, so `js/` cannot say goodbye.
        env.add_env_cleanup_hook(Rc::clone(&calls), |calls| farewell(&calls))?;
        Ok(Self { calls })
    }

    /// Ends what waits and gives back what is held; waits for that, but not for long. Afterwards every
    /// call fails.
    #[napi(catch_unwind)]
    pub fn farewell(&self) {
        farewell(&self.calls);
    }

    /// Carries on what was woken. Returns pairs: the number of a call that has ended, and how.
    #[napi(catch_unwind)]
    pub fn turn(&self) -> Vec<Either<f64, Payload>> {
        let mut ended = Vec::new();
        let mut place = self.calls.borrow_mut();
        let Some(calls) = place.as_mut() else { return ended };
        let Calls { host, under_way, clients } = calls;
        host.turn(|done| {
            // What nobody waits for any more is dropped, which gives a lock back.
            if under_way.get_mut(done.call).and_then(Option::take).is_some() {
                ended.push(Either::A(done.call as f64));
                ended.push(Either::B(payload(done.value, clients)));
            }
        });
        ended
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
    ) -> Reply {
        let options = match connect(url, program, options) {
            Ok(options) => options,
            Err(failure) => return failed(failure),
        };
        self.start(call, async move { Ok(Value::Client(options.builder().connect().await?)) })
    }

    /// Acquires one lock. With `waits` unset it answers at once; see `js/client.cjs` for the ways.
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
        options: Option<Options>,
    ) -> Reply {
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
    pub fn release(&self, call: f64, guard: &NativeGuard) -> Reply {
        match guard.get() {
            Ok(guard) => self.start(call, async move { Ok(guard.release().await.map(|()| Value::Nothing)?) }),
            Err(failure) => failed(failure),
        }
    }

    #[napi(catch_unwind)]
    pub fn release_all(&self, call: f64, set: &NativeSet) -> Reply {
        let set = Arc::clone(&set.set);
        self.start(call, async move { Ok(set.release().await.map(|()| Value::Nothing)?) })
    }

    /// Steps down from writing to reading, or up. The guard becomes another; a refused one is put
    /// back by [`Hub::put_back`].
    #[napi(catch_unwind)]
    pub fn convert(&self, call: f64, guard: &NativeGuard, up: bool) -> Reply {
        let client = Arc::clone(&guard.client);
        let taken = match guard.take() {
            Ok(taken) => taken,
            Err(failure) => return failed(failure),
        };
        // Said here, so that a guard that cannot be converted is not lost by the attempt.
        let from = if up { "read" } else { "write" };
        if taken.mode().code() != from {
            let text = format!("{} is held by {}, not by {from}", taken.name(), taken.mode().code());
            guard.put_back(taken);
            return failed(Failure::invalid_argument(text));
        }
        self.start(call, async move {
            if !up {
                return Ok(Value::Guard(taken.downgrade().await?, client));
            }
            Ok(match taken.try_upgrade().await? {
                Converted::Done(guard) => Value::Guard(guard, client),
                // Still held, in the old way: `js/guard.cjs` sees that by its mode.
                Converted::Refused(guard) => Value::Guard(guard, client),
            })
        })
    }

    /// Ends when the lease does: with what went wrong if it was lost, otherwise with nothing.
    #[napi(catch_unwind)]
    pub fn lost(&self, call: f64, guard: &NativeGuard) -> Reply {
        let guard = match guard.get() {
            Ok(guard) => guard,
            Err(failure) => return failed(failure),
        };
        let ended = guard.ended();
        // Not kept alive by this call: a guard that is forgotten is given back.
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
    pub fn endangered(&self, call: f64, guard: &NativeGuard) -> Reply {
        let guard = match guard.get() {
            Ok(guard) => guard,
            Err(failure) => return failed(failure),
        };
        let (endangered, ended) = (guard.endangered(), guard.ended());
        drop(guard);
        self.start(call, async move {
            tokio::select! {
                biased;
                () = endangered => Ok(Value::NotHad),
                _ = ended => Ok(Value::Nothing),
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
        let client = Arc::clone(&client.client);
        self.start(call, async move {
            client.close().await;
            Ok(Value::Nothing)
        })
    }
}

impl Hub {
    fn start(&self, call: f64, work: impl Future<Output = Result<Value, Failure>> + Send + 'static) -> Reply {
        let call = call as usize;
        let mut place = self.calls.borrow_mut();
        let Some(calls) = place.as_mut() else {
            return failed(Failure::canceled("this environment is ending; it takes no more locks"));
        };
        let finish = move |ended: Result<Result<Value, Failure>, Failure>| Done {
            call,
            value: ended.and_then(|ended| ended).into(),
        };
        match calls.host.start(work, finish) {
            Started::Done(done) => Either::B(payload(done.value, &mut calls.clients)),
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
        let Self { host, under_way, clients } = self;
        drop(under_way);
        drop(host);
        let deadline = Instant::now() + FAREWELL;
        for client in clients.iter().filter_map(Weak::upgrade) {
            let go_on = || if Instant::now() < deadline { Ok(()) } else { Err(()) };
            // A store that cannot be reached must not hold up the end of a process.
            let _ = run_interruptible(client.close(), go_on);
        }
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

fn payload(value: Value, clients: &mut Vec<Weak<Polylatch>>) -> Payload {
    match value {
        Value::Nothing => Either7::A(()),
        Value::NotHad => Either7::B(Null),
        Value::Failed(failure) => Either7::C(failure.into()),
        Value::Guard(guard, client) => Either7::D(NativeGuard::new(guard, client)),
        Value::Set(set, client) => Either7::E(NativeSet { set: Arc::new(set), _client: client }),
        Value::Client(client) => {
            let client = Arc::new(client);
            clients.retain(|client| client.strong_count() > 0);
            clients.push(Arc::downgrade(&client));
            Either7::F(NativeClient { client })
        }
        Value::Json(text) => Either7::G(text),
    }
}
