//! The calls of one environment (the main thread's, or a worker's).

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use napi::bindgen_prelude::{Array, Either, Either8, Function, Null};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use polylatch::Guard;
use polylatch::inspect::Query;
use polylatch_bridge::events::Listener;
use polylatch_bridge::{
    Begun, Client, Events, Failure, Handle, HostLoop, Level, LockOptions, LockSpec, Started, UnderWay,
    Wanted, ops, run_interruptible,
};

use crate::at_once;
use crate::claims::NativeRun;
use crate::client::NativeClient;
use crate::failure::Fault;
use crate::guard::{Guards, NativeSet};
use crate::options::{ClientOption, NUMBERS, Options, connect};

/// How long the end of an environment waits until stores know that its locks are free.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// How a call ended: nothing, not had, what went wrong, a number, a set, a client, a text or a run. The number is the
/// fencing token of a lock that was acquired or is held in another mode, and of one that was released how often its lease
/// was renewed.
type Payload = Either8<(), Null, Fault, f64, NativeSet, NativeClient, String, NativeRun>;

/// What a call returns at once: its end, or a boolean if it goes on: whether a turn is due.
pub type Reply = Either<bool, Payload>;

type Notify = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The number that `js/events.cjs` gives for a client without a callback.
const NOBODY: f64 = 0.0;

/// The end of a call, on its way to the loop.
struct Done {
    call: usize,
    value: Value,
}

pub enum Value {
    Nothing,
    NotHad,
    Failed(Failure),
    /// One lock, and the number of its guard.
    Held(usize, Handle, Arc<Client>),
    /// Several locks.
    HeldAll(Handle, Arc<Client>),
    /// A guard that goes on under its number.
    Converted(Arc<Handle>),
    /// A guard, under its number, that was released.
    Released(usize, Arc<Handle>),
    Client(Arc<Client>),
    /// JSON, or another text.
    Json(String),
    Begun(Box<Begun>, Arc<Client>),
}

impl From<Result<Value, Failure>> for Value {
    fn from(result: Result<Value, Failure>) -> Self {
        result.unwrap_or_else(Value::Failed)
    }
}

/// Everything that ends with the environment.
pub struct Calls {
    host: HostLoop<Done>,
    /// By the numbers that `js/calls.cjs` gives: small, and given again.
    under_way: Vec<Option<UnderWay<Done>>>,
    pub guards: Guards,
    /// By the numbers of their [`NativeClient`]s.
    clients: Vec<Weak<Client>>,
    events: Arc<Events>,
}

#[napi]
pub struct Hub {
    /// Empty once the environment ends.
    calls: Rc<RefCell<Option<Calls>>>,
    number: u32,
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
        let number = at_once::add(&calls);
        Ok(Self { calls, number })
    }

    /// By which the functions of [`at_once`] know it.
    #[napi(catch_unwind)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends what waits and releases what is held; waits for that, but not for long. Afterwards every
    /// call fails.
    #[napi(catch_unwind)]
    pub fn farewell(&self) {
        farewell(&self.calls);
    }

    /// Carries on what was woken. Returns for each call that has ended its number and how it ended.
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
                let payload = payload(done.value, guards, clients);
                let entry = ended.insert(done.call as u32).and_then(|()| ended.insert(payload));
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
        self.start(call, async move { Ok(Value::Client(Arc::new(Client::connect(options).await?))) })
    }

    /// Acquires one lock, whose guard is to have this number. With `waits` unset it answers at once; see `lock.ts` for the
    /// modes. The usual options come one by one, or all of them as an object.
    #[napi(catch_unwind)]
    #[allow(clippy::too_many_arguments, reason = "one call across the border is cheaper than an object")]
    pub fn acquire(
        &self,
        call: f64,
        guard: u32,
        client: &NativeClient,
        waits: bool,
        name: String,
        in_way: u32,
        count: f64,
        capacity: f64,
        lease: Option<f64>,
        wait: Option<f64>,
        keep_idle: Option<f64>,
        options: Option<Options>,
    ) -> Reply {
        let options = options.or_else(|| {
            let is_any = lease.is_some() || wait.is_some() || keep_idle.is_some();
            is_any.then(|| Options { lease, wait, keep_idle, ..Options::default() })
        });
        let spec = options
            .map_or(Ok(LockOptions::default()), Options::checked)
            .and_then(|options| Ok(LockSpec { name, way: NUMBERS.way(in_way, count, capacity)?, options }));
        self.acquiring(call, client, waits, spec.map(Wanted::One), move |held, client| {
            Value::Held(guard as usize, held, client)
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
        let wanted = options.unwrap_or_default().checked().map(|options| Wanted::All { names, options });
        self.acquiring(call, client, waits, wanted, Value::HeldAll)
    }

    #[napi(catch_unwind)]
    pub fn release(&self, call: f64, guard: u32) -> Reply {
        let number = guard as usize;
        self.about(call, number, |handle| {
            Ok(async move {
                handle.release().await?;
                Ok(Value::Released(number, handle))
            })
        })
    }

    /// Gives the lease another length, in milliseconds.
    #[napi(catch_unwind)]
    pub fn extend(&self, call: f64, guard: u32, lease: f64) -> Reply {
        match NUMBERS.millis("lease", lease) {
            Ok(lease) => self.about(call, guard as usize, |handle| {
                Ok(async move { handle.extend(lease).await.map(|_| Value::Nothing) })
            }),
            Err(failure) => failed(failure),
        }
    }

    #[napi(catch_unwind)]
    pub fn release_all(&self, call: f64, set: &NativeSet) -> Reply {
        let handle = Arc::clone(&set.handle);
        self.start(call, async move { handle.release().await.map(|()| Value::Nothing) })
    }

    /// Downgrades from writing to reading, or upgrades. The guard goes on under its number, whether it is done or not:
    /// `guard.ts` sees by its mode in which way.
    #[napi(catch_unwind)]
    pub fn convert(&self, call: f64, guard: u32, up: bool) -> Reply {
        self.about(call, guard as usize, |handle| {
            Ok(async move {
                handle.convert(up).await?;
                Ok(Value::Converted(handle))
            })
        })
    }

    /// Ends when the lease does: with what went wrong if it was lost, otherwise with nothing.
    #[napi(catch_unwind)]
    pub fn lost(&self, call: f64, guard: u32) -> Reply {
        self.about(call, guard as usize, |handle| losing(&handle))
    }

    /// The same for a set: ends when one of its leases was lost, or all are over.
    #[napi(catch_unwind)]
    pub fn lost_one(&self, call: f64, set: &NativeSet) -> Reply {
        match losing(&set.handle) {
            Ok(lost) => self.start(call, lost),
            Err(failure) => failed(failure),
        }
    }

    /// Ends with `null` when the lease is in danger, with nothing when it is over.
    #[napi(catch_unwind)]
    pub fn endangered(&self, call: f64, guard: u32) -> Reply {
        self.about(call, guard as usize, |handle| {
            let endangered = handle.endangered()?;
            Ok(async move { Ok(if endangered.await { Value::NotHad } else { Value::Nothing }) })
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
        let query = Query { name, prefix, limit: limit.map(|limit| limit as usize), ..Query::default() };
        let client = Arc::clone(&client.client);
        self.start(call, async move { client.list_json(&query).await.map(Value::Json) })
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
        let request = ops::break_request(name, &expected, by, reason);
        let client = Arc::clone(&client.client);
        self.start(call, async move { client.break_lease_json(&request).await.map(Value::Json) })
    }

    #[napi(catch_unwind)]
    pub fn close(&self, call: f64, client: &NativeClient) -> Reply {
        let client = Arc::clone(&client.client);
        self.start(call, async move {
            client.close().await;
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
}

pub fn ending() -> Failure {
    Failure::canceled("this environment is ending; it takes no more locks")
}

impl Hub {
    /// Starts a call about a held lock.
    fn about<W: Future<Output = Result<Value, Failure>> + Send + 'static>(
        &self,
        call: f64,
        guard: usize,
        work: impl FnOnce(Arc<Handle>) -> Result<W, Failure>,
    ) -> Reply {
        let place = self.calls.borrow();
        let found = place.as_ref().ok_or_else(ending).and_then(|calls| calls.guards.get(guard).cloned());
        drop(place);
        match found.and_then(work) {
            Ok(work) => self.start(call, work),
            Err(failure) => failed(failure),
        }
    }

    fn acquiring(
        &self,
        call: f64,
        client: &NativeClient,
        waits: bool,
        wanted: Result<Wanted, Failure>,
        held: impl FnOnce(Handle, Arc<Client>) -> Value + Send + 'static,
    ) -> Reply {
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(failure) => return failed(failure),
        };
        let client = Arc::clone(&client.client);
        self.start(call, async move {
            let acquired = client.acquire(&wanted, waits).await?;
            Ok(acquired.map_or(Value::NotHad, |handle| held(handle, client)))
        })
    }

    pub(crate) fn start(
        &self,
        call: f64,
        work: impl Future<Output = Result<Value, Failure>> + Send + 'static,
    ) -> Reply {
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
            Started::Done(done) => Either::B(payload(done.value, &mut calls.guards, &mut calls.clients)),
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
    pub fn client(&self, number: u32) -> Option<Arc<Client>> {
        self.clients.get(number as usize)?.upgrade()
    }

    /// Ends what waits, and releases what is held.
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

/// Follows a handle, which is not kept by that: a guard that is forgotten is released.
fn losing(
    handle: &Arc<Handle>,
) -> Result<impl Future<Output = Result<Value, Failure>> + Send + use<>, Failure> {
    let lost = handle.lost()?;
    Ok(async move { lost.await.map(|()| Value::Nothing) })
}

pub fn failed(failure: Failure) -> Reply {
    Either::B(Either8::C(failure.into()))
}

/// Tokens are below 2^53, so a double keeps them exactly.
pub fn token(handle: &Handle) -> f64 {
    handle.fencing_token() as f64
}

pub fn renewals(handle: &Handle) -> f64 {
    handle.with(Guard::renewals).unwrap_or(0).into()
}

/// What a call ended with.
fn payload(value: Value, guards: &mut Guards, clients: &mut Vec<Weak<Client>>) -> Payload {
    match value {
        Value::Nothing => Either8::A(()),
        Value::NotHad => Either8::B(Null),
        Value::Failed(failure) => Either8::C(failure.into()),
        Value::Held(number, handle, client) => {
            let token = token(&handle);
            guards.put(number, handle, client);
            Either8::D(token)
        }
        Value::HeldAll(handle, client) => Either8::E(NativeSet { handle: Arc::new(handle), _client: client }),
        Value::Converted(handle) => Either8::D(token(&handle)),
        Value::Released(number, handle) => {
            guards.released(number, &handle);
            Either8::D(renewals(&handle))
        }
        Value::Client(client) => {
            // The number of a client that is gone is given again.
            let gone = clients.iter().position(|client| client.strong_count() == 0);
            let number = gone.unwrap_or(clients.len());
            clients.resize_with(clients.len().max(number + 1), Weak::new);
            clients[number] = Arc::downgrade(&client);
            Either8::F(NativeClient { client, number: number as u32 })
        }
        Value::Json(text) => Either8::G(text),
        Value::Begun(begun, client) => Either8::H(NativeRun::new(*begun, client)),
    }
}
