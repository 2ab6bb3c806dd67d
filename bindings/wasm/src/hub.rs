//! The calls that are under way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use js_sys::{Array, Function};
use polylatch::inspect::Query;
use polylatch_bridge::{Client, Failure, Handle, LockSpec, Wanted, ops};
use tokio::sync::oneshot;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use crate::events::Listening;
use crate::failure::fault;
#[cfg(any(feature = "consul", feature = "etcd"))]
use crate::fetch::HostFetch;
use crate::guard::{NativeClient, NativeGuard, NativeSet};
use crate::options::{NUMBERS, connect_options, lock_options};
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
    Held(Arc<Handle>, Rc<Client>),
    Client(Client, Option<Listening>),
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
        not(all(feature = "redis", any(feature = "consul", feature = "etcd"))),
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
        #[cfg(any(feature = "consul", feature = "etcd"))]
        let builder = match fetch {
            Some(fetch) => builder.http(Arc::new(HostFetch(fetch))),
            None => builder,
        };
        let (listening, route) =
            match on_event.map(|on_event| Listening::new(on_event, options.level)).transpose() {
                Ok(listening) => listening.unzip(),
                Err(failure) => return fault(&failure),
            };
        let builder = match &route {
            Some(route) => builder.on_id(route.opener()),
            None => builder,
        };
        self.start(
            call,
            async move { Ok(Value::Client(Client::of(builder.connect().await?, route), listening)) },
        )
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
        let way = NUMBERS.way(in_way, count, capacity);
        let wanted =
            lock_options(&options).and_then(|options| Ok(Wanted::One(LockSpec { name, way: way?, options })));
        self.acquiring(call, client, waits, wanted)
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
        let wanted = lock_options(&options).map(|options| Wanted::All { names, options });
        self.acquiring(call, client, waits, wanted)
    }

    pub fn release(&self, call: u32, guard: &NativeGuard) -> JsValue {
        self.releasing(call, &guard.handle)
    }

    /// Gives the lease another length, in milliseconds.
    pub fn extend(&self, call: u32, guard: &NativeGuard, lease: f64) -> JsValue {
        let (handle, lease) = (Arc::clone(&guard.handle), NUMBERS.millis("lease", lease));
        self.start(call, async move { handle.extend(lease?).await.map(|_| Value::Nothing) })
    }

    #[wasm_bindgen(js_name = releaseAll)]
    pub fn release_all(&self, call: u32, set: &NativeSet) -> JsValue {
        self.releasing(call, &set.handle)
    }

    /// Downgrades from writing to reading, or upgrades. What it returns is held whether it is done or not: `guard.ts` sees
    /// by its mode in which way.
    pub fn convert(&self, call: u32, guard: &NativeGuard, up: bool) -> JsValue {
        let (handle, client) = (Arc::clone(&guard.handle), Rc::clone(&guard.client));
        self.start(call, async move {
            handle.convert(up).await?;
            Ok(Value::Held(handle, client))
        })
    }

    /// Ends when the lease does: with what went wrong if it was lost, otherwise with nothing.
    pub fn lost(&self, call: u32, guard: &NativeGuard) -> JsValue {
        self.losing(call, &guard.handle)
    }

    /// The same for a set: ends when one of its leases was lost, or all are over.
    #[wasm_bindgen(js_name = lostOne)]
    pub fn lost_one(&self, call: u32, set: &NativeSet) -> JsValue {
        self.losing(call, &set.handle)
    }

    /// Ends with `null` when the lease is in danger, with nothing when it is over.
    pub fn endangered(&self, call: u32, guard: &NativeGuard) -> JsValue {
        match guard.handle.endangered() {
            Ok(endangered) => {
                self.start(
                    call,
                    async move { Ok(if endangered.await { Value::NotHad } else { Value::Nothing }) },
                )
            }
            Err(failure) => fault(&failure),
        }
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
        let query = Query { name, prefix, limit: limit.map(|limit| limit as usize), ..Query::default() };
        let client = Rc::clone(&client.client);
        self.start(call, async move { client.list_json(&query).await.map(Value::Json) })
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
        let request = ops::break_request(name, &expected, by, reason);
        let client = Rc::clone(&client.client);
        self.start(call, async move { client.break_lease_json(&request).await.map(Value::Json) })
    }

    pub fn close(&self, call: u32, client: &NativeClient) -> JsValue {
        let (client, listening) = (Rc::clone(&client.client), Rc::clone(&client.listening));
        self.start(call, async move {
            client.close().await;
            if let Some(listening) = &*listening {
                listening.tell();
            }
            Ok(Value::Nothing)
        })
    }
}

impl Hub {
    fn acquiring(
        &self,
        call: u32,
        client: &NativeClient,
        waits: bool,
        wanted: Result<Wanted, Failure>,
    ) -> JsValue {
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(failure) => return fault(&failure),
        };
        let client = Rc::clone(&client.client);
        self.start(call, async move {
            let held = client.acquire(&wanted, waits).await?;
            Ok(held.map_or(Value::NotHad, |held| Value::Held(Arc::new(held), client)))
        })
    }

    fn releasing(&self, call: u32, handle: &Arc<Handle>) -> JsValue {
        let handle = Arc::clone(handle);
        self.start(call, async move { handle.release().await.map(|()| Value::Nothing) })
    }

    /// The handle is not kept by this: a guard that is forgotten is released.
    fn losing(&self, call: u32, handle: &Arc<Handle>) -> JsValue {
        match handle.lost() {
            Ok(lost) => self.start(call, async move { lost.await.map(|()| Value::Nothing) }),
            Err(failure) => fault(&failure),
        }
    }

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

fn payload(result: Result<Value, Failure>) -> JsValue {
    match result {
        Ok(Value::Nothing) => JsValue::UNDEFINED,
        Ok(Value::NotHad) => JsValue::NULL,
        Ok(Value::Held(handle, client)) => match *handle {
            Handle::One(_) => NativeGuard { handle, client }.into(),
            Handle::All(_) => NativeSet { handle, _client: client }.into(),
        },
        Ok(Value::Client(client, listening)) => {
            NativeClient { client: Rc::new(client), listening: Rc::new(listening) }.into()
        }
        Ok(Value::Json(text)) => text.into(),
        Err(failure) => fault(&failure),
    }
}
