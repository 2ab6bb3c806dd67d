//! The calls that are under way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::{Array, Function};
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{FencingToken, GuardSet, LostReason, Polylatch};
use polylatch_bridge::{Failure, LockSpec, Place, one_ended, step};
use tokio::sync::oneshot;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use crate::events::Listening;
use crate::failure::fault;
#[cfg(feature = "consul")]
use crate::fetch::HostFetch;
use crate::guard::{NativeClient, NativeGuard, NativeSet};
use crate::options::{connect_options, lock_options, millis, steal_reason, way};
#[cfg(feature = "redis")]
use crate::redis::HostRedis;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console, js_name = error)]
    fn console_error(text: &str);
}

/// How a call ended.
enum Value {
    Nothing,
    NotHad,
    Guard(polylatch::Guard, Rc<Polylatch>),
    Set(GuardSet, Rc<Polylatch>),
    Client(Polylatch, Option<Listening>),
    Json(String),
}

/// Calls by their number; dropping one ends it.
type UnderWay = Rc<RefCell<HashMap<u32, oneshot::Sender<()>>>>;

/// Where `js/calls.mjs` makes calls. Each returns `false`, and later `ended(call, value)` is called, or how
/// it ended.
#[wasm_bindgen]
pub struct Hub {
    under_way: UnderWay,
    ended: Function,
}

#[wasm_bindgen]
impl Hub {
    #[wasm_bindgen(constructor)]
    pub fn new(ended: Function) -> Self {
        // A panic ends the whole instance with nothing but `unreachable`: this says why, for a report.
        std::panic::set_hook(Box::new(|panic| {
            console_error(&format!("Polylatch has a bug; please report: {panic}"))
        }));
        Self { under_way: UnderWay::default(), ended }
    }

    /// Ends a call; what it may have done is undone in the background.
    pub fn cancel(&self, call: u32) {
        let under_way = self.under_way.borrow_mut().remove(&call);
        drop(under_way);
    }

    #[allow(clippy::too_many_arguments, reason = "one call across the border is cheaper than an object")]
    #[cfg_attr(
        not(all(feature = "redis", feature = "consul")),
        allow(unused_variables, clippy::needless_pass_by_value, reason = "for the other kinds of store")
    )]
    pub fn connect(
        &self,
        call: u32,
        url: String,
        program: Option<String>,
        options: &Array,
        redis: JsValue,
        fetch: Option<Function>,
        host: String,
        pid: u32,
        on_event: Option<Function>,
    ) -> JsValue {
        let options = match connect_options(url, program, options) {
            Ok(options) => options,
            Err(failure) => return fault(&failure),
        };
        let builder = options.builder().runs_at(host, pid);
        #[cfg(feature = "redis")]
        let builder = match redis.is_undefined() {
            true => builder,
            false => match HostRedis::new(redis) {
                Ok(redis) => builder.redis(Arc::new(redis)),
                Err(rule) => return fault(&Failure::invalid_config(rule)),
            },
        };
        #[cfg(feature = "consul")]
        let builder = match fetch {
            Some(fetch) => builder.http(Arc::new(HostFetch(fetch))),
            None => builder,
        };
        let listening = match on_event.map(|on_event| Listening::new(on_event, options.level)).transpose() {
            Ok(listening) => listening,
            Err(failure) => return fault(&failure),
        };
        let builder = match &listening {
            Some(listening) => builder.on_id(listening.opener()),
            None => builder,
        };
        self.start(call, async move { Ok(Value::Client(builder.connect().await?, listening)) })
    }

    /// Acquires one lock. With `waits` unset it answers at once; see `lock.ts` for the modes.
    #[allow(clippy::too_many_arguments, reason = "one call across the border is cheaper than an object")]
    pub fn acquire(
        &self,
        call: u32,
        client: &NativeClient,
        waits: bool,
        name: String,
        in_way: u32,
        count: f64,
        capacity: f64,
        options: JsValue,
    ) -> JsValue {
        let client = Rc::clone(&client.client);
        let spec = lock_options(&options)
            .and_then(|options| Ok(LockSpec { name, way: way(in_way, count, capacity)?, options }));
        let mut lock = match spec {
            Ok(spec) => spec.of(&client),
            Err(failure) => return fault(&failure),
        };
        if let Some(reason) = steal_reason(&options) {
            lock = lock.steal(reason);
        }
        self.start(call, async move {
            let guard = if waits { Some(lock.acquire().await?) } else { lock.try_acquire().await? };
            Ok(guard.map_or(Value::NotHad, |guard| Value::Guard(guard, client)))
        })
    }

    /// Acquires several locks together.
    #[wasm_bindgen(js_name = acquireAll)]
    pub fn acquire_all(
        &self,
        call: u32,
        client: &NativeClient,
        waits: bool,
        names: Vec<String>,
        options: JsValue,
    ) -> JsValue {
        let client = Rc::clone(&client.client);
        let all = match lock_options(&options) {
            Ok(options) => options.all(&client, names),
            Err(failure) => return fault(&failure),
        };
        self.start(call, async move {
            let set = if waits { Some(all.acquire().await?) } else { all.try_acquire().await? };
            Ok(set.map_or(Value::NotHad, |set| Value::Set(set, client)))
        })
    }

    pub fn release(&self, call: u32, guard: &NativeGuard) -> JsValue {
        match guard.get() {
            Err(_) if guard.is_given_up() => JsValue::UNDEFINED,
            Ok(guard) => self.start(call, async move { Ok(guard.release().await.map(|()| Value::Nothing)?) }),
            Err(failure) => fault(&failure),
        }
    }

    /// Gives the lease another length, in milliseconds.
    pub fn extend(&self, call: u32, guard: &NativeGuard, lease: f64) -> JsValue {
        let extension = millis("lease", lease).and_then(|lease| guard.get().map(|guard| guard.extend(lease)));
        match extension {
            Ok(extension) => self.start(call, async move { Ok(extension.await.map(|_| Value::Nothing)?) }),
            Err(failure) => fault(&failure),
        }
    }

    #[wasm_bindgen(js_name = releaseAll)]
    pub fn release_all(&self, call: u32, set: &NativeSet) -> JsValue {
        let set = Rc::clone(&set.set);
        self.start(call, async move { Ok(set.release().await.map(|()| Value::Nothing)?) })
    }

    /// Steps down from writing to reading, or up. The guard becomes another.
    pub fn convert(&self, call: u32, guard: &NativeGuard, up: bool) -> JsValue {
        let client = Rc::clone(&guard.client);
        let (taken, place) = match guard.take(up) {
            Ok(taken) => taken,
            Err(failure) => return fault(&failure),
        };
        self.start(call, async move {
            let stepped = step(taken, up).await;
            place.replace(Place::Gone);
            // Held whether it is done or not: `guard.ts` sees by its mode in which way.
            stepped.map(|(guard, _)| Value::Guard(guard, client))
        })
    }

    /// Ends when the lease does: with what went wrong if it was lost, otherwise with nothing.
    pub fn lost(&self, call: u32, guard: &NativeGuard) -> JsValue {
        let guard = match guard.get() {
            Ok(guard) => guard,
            Err(failure) => return fault(&failure),
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
    #[wasm_bindgen(js_name = lostOne)]
    pub fn lost_one(&self, call: u32, set: &NativeSet) -> JsValue {
        let ended = one_ended(&set.set);
        let set = Rc::downgrade(&set.set);
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
    pub fn endangered(&self, call: u32, guard: &NativeGuard) -> JsValue {
        let guard = match guard.get() {
            Ok(guard) => guard,
            Err(failure) => return fault(&failure),
        };
        let (endangered, ended) = (guard.endangered(), guard.ended());
        drop(guard);
        self.start(call, async move {
            tokio::select! {
                biased;
                () = endangered => Ok(Value::NotHad),
                // A loss is a danger, too.
                lost = ended => Ok(if lost.is_some() { Value::NotHad } else { Value::Nothing }),
            }
        })
    }

    /// Reads who holds and who waits, as JSON.
    pub fn inspect(
        &self,
        call: u32,
        client: &NativeClient,
        name: Option<String>,
        prefix: Option<String>,
        limit: Option<u32>,
    ) -> JsValue {
        let inspector = client.client.inspect();
        let query = Query { name, prefix, limit: limit.map(|limit| limit as usize), ..Query::default() };
        self.start(call, async move {
            let snapshot = inspector.list(&query).await?;
            json(serde_json::to_string(&snapshot))
        })
    }

    #[wasm_bindgen(js_name = breakLease)]
    pub fn break_lease(
        &self,
        call: u32,
        client: &NativeClient,
        name: String,
        expected: String,
        by: String,
        reason: String,
    ) -> JsValue {
        let inspector = client.client.inspect();
        // `client.ts` passes only what fits 64 bits; no token is larger than 2^53.
        let expected = FencingToken::new(expected.parse().unwrap_or(u64::MAX));
        let request = BreakRequest { name, expected, by, reason };
        self.start(call, async move {
            let outcome = inspector.break_lease(&request).await?;
            json(serde_json::to_string(&outcome))
        })
    }

    pub fn close(&self, call: u32, client: &NativeClient) -> JsValue {
        let (client, listening) = (Rc::clone(&client.client), Rc::clone(&client.listening));
        self.start(call, async move {
            client.close().await;
            if let Some(listening) = &*listening {
                listening.end();
            }
            Ok(Value::Nothing)
        })
    }
}

impl Hub {
    fn start(&self, call: u32, work: impl Future<Output = Result<Value, Failure>> + 'static) -> JsValue {
        self.start_boxed(call, Box::pin(work))
    }

    /// Not generic, so that it is there once.
    fn start_boxed(&self, call: u32, work: Pin<Box<dyn Future<Output = Result<Value, Failure>>>>) -> JsValue {
        let (go_on, canceled) = oneshot::channel();
        self.under_way.borrow_mut().insert(call, go_on);
        let (under_way, ended) = (Rc::clone(&self.under_way), self.ended.clone());
        spawn_local(async move {
            let result = tokio::select! {
                biased;
                _ = canceled => return,
                result = work => result,
            };
            under_way.borrow_mut().remove(&call);
            // Whoever listens for a loss runs before this returns, and may make calls: nothing is borrowed.
            let _ = ended.call2(&JsValue::UNDEFINED, &call.into(), &payload(result));
        });
        false.into()
    }
}

fn json(text: Result<String, serde_json::Error>) -> Result<Value, Failure> {
    text.map(Value::Json).map_err(|_| Failure::internal("what was read cannot be written as JSON"))
}

fn payload(result: Result<Value, Failure>) -> JsValue {
    match result {
        Ok(Value::Nothing) => JsValue::UNDEFINED,
        Ok(Value::NotHad) => JsValue::NULL,
        Ok(Value::Guard(guard, client)) => NativeGuard::new(guard, client).into(),
        Ok(Value::Set(set, client)) => NativeSet { set: Rc::new(set), _client: client }.into(),
        Ok(Value::Client(client, listening)) => {
            NativeClient { client: Rc::new(client), listening: Rc::new(listening) }.into()
        }
        Ok(Value::Json(text)) => text.into(),
        Err(failure) => fault(&failure),
    }
}
