//! A host-provided Redis connection: an object with `command(args)` and, if it can listen,
//! `subscribe(channel, listener)`.

use std::sync::{Arc, Mutex, PoisonError};

use js_sys::{Array, Function, Reflect, Uint8Array};
use polylatch::host::{Answer, Failure, Listener, RedisConnection, RedisReply};
use tokio::sync::oneshot;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use crate::promise::{Here, kind_of, settled, text_of};

/// Deepest list in a reply; a script of the core answers with two levels.
const DEEPEST: usize = 8;

pub struct HostRedis {
    object: JsValue,
    command: Function,
    subscribe: Option<Function>,
    subscriptions: Arc<Mutex<Subscriptions>>,
}

#[derive(Default)]
struct Subscriptions {
    closed: bool,
    /// What ends each subscription.
    open: Vec<JsValue>,
}

impl HostRedis {
    /// `js/connect.mjs` has looked at the object already.
    pub fn new(object: JsValue) -> Result<Self, String> {
        let function = |name: &str| {
            Reflect::get(&object, &name.into()).ok().and_then(|value| value.dyn_into::<Function>().ok())
        };
        let command = function("command").ok_or("redis must have a function command(args)")?;
        let subscribe = function("subscribe");
        Ok(Self { object, command, subscribe, subscriptions: Arc::default() })
    }
}

impl RedisConnection for HostRedis {
    fn command(&self, words: Vec<String>) -> Answer<RedisReply> {
        let words: Array = words.into_iter().map(JsValue::from).collect();
        // Called here, not when the answer is polled: commands leave in order.
        let returned = self.command.call1(&self.object, &words);
        Box::pin(Here::new(async move {
            match settled(returned).await {
                Ok(value) => reply(&value, DEEPEST),
                Err(thrown) => refused(&thrown),
            }
        }))
    }

    fn subscribe(&self, channel: String, listener: Listener) -> Answer<()> {
        let Some(subscribe) = &self.subscribe else {
            return Box::pin(std::future::ready(Err(Failure::Unsupported)));
        };
        let heard = Closure::<dyn FnMut(JsValue)>::new(move |message: JsValue| {
            if let Some(text) = message.as_string() {
                listener(text.into_bytes());
            } else if let Some(bytes) = message.dyn_ref::<Uint8Array>() {
                listener(bytes.to_vec());
            }
        })
        // Freed when the program has forgotten it: it may be called for longer than it should.
        .into_js_value();
        let returned = subscribe.call2(&self.object, &channel.into(), &heard);
        let subscriptions = Arc::clone(&self.subscriptions);
        let (tell, told) = oneshot::channel();
        // Also when nobody waits for it any more: what is confirmed late has to be ended too.
        spawn_local(async move {
            let confirmed = settled(returned).await.map_err(|thrown| Failure::Broken(text_of(&thrown)));
            let _ = tell.send(confirmed.and_then(|end| keep(&subscriptions, end)));
        });
        Box::pin(async move { told.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn close(&self) {
        let mut subscriptions = self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        subscriptions.closed = true;
        let open = std::mem::take(&mut subscriptions.open);
        drop(subscriptions);
        open.iter().for_each(call);
    }
}

impl Drop for HostRedis {
    fn drop(&mut self) {
        self.close();
    }
}

/// Keeps what ends a subscription until the client is closed.
fn keep(subscriptions: &Mutex<Subscriptions>, end: JsValue) -> Result<(), Failure> {
    let mut subscriptions = subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
    if subscriptions.closed {
        drop(subscriptions);
        call(&end);
        return Err(closed());
    }
    subscriptions.open.push(end);
    Ok(())
}

fn closed() -> Failure {
    Failure::Broken("this client was closed".into())
}

fn call(end: &JsValue) {
    if let Some(end) = end.dyn_ref::<Function>()
        && let Ok(returned) = end.call0(&JsValue::UNDEFINED)
    {
        // How an unsubscription ends interests nobody, but must not be an unhandled rejection.
        spawn_local(async move { drop(settled(Ok(returned)).await) });
    }
}

/// A server's refusal is thrown by most clients, with the reply as its message: a code in capital letters
/// first (Redis serialization protocol, "Simple errors"). All else is a failure of the connection.
fn refused(thrown: &JsValue) -> Result<RedisReply, Failure> {
    let text = text_of(thrown);
    let code = text.split(' ').next().unwrap_or_default();
    let is_code = code.len() >= 3 && code.chars().all(|c| c.is_ascii_uppercase());
    if is_code { Ok(RedisReply::Error(text)) } else { Err(Failure::Broken(text)) }
}

fn reply(value: &JsValue, deepest: usize) -> Result<RedisReply, Failure> {
    if value.is_null() {
        return Ok(RedisReply::Nil);
    }
    if let Some(text) = value.as_string() {
        return Ok(RedisReply::Bytes(text.into_bytes()));
    }
    if let Some(number) = value.as_f64()
        && number.fract() == 0.0
        && number.abs() <= js_sys::Number::MAX_SAFE_INTEGER
    {
        return Ok(RedisReply::Int(number as i64));
    }
    if value.is_bigint()
        && let Ok(number) = i64::try_from(value.clone())
    {
        return Ok(RedisReply::Int(number));
    }
    if let Some(bytes) = value.dyn_ref::<Uint8Array>() {
        return Ok(RedisReply::Bytes(bytes.to_vec()));
    }
    if let Some(items) = value.dyn_ref::<Array>()
        && deepest > 0
    {
        let items = items.iter().map(|item| reply(&item, deepest - 1)).collect::<Result<_, _>>()?;
        return Ok(RedisReply::List(items));
    }
    if let Some(error) = value.dyn_ref::<js_sys::Error>() {
        return refused(error);
    }
    Err(Failure::Nonsense(kind_of(value)))
}
