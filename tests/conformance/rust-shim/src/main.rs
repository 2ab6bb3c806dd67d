//! Lets the conformance runner drive the Rust library: requests and answers are JSON lines. The
//! protocol stands in `tests/conformance/README.md`.

use std::collections::HashMap;
use std::io::{BufRead, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polylatch::idempotency::RunError;
use polylatch::inspect::{BreakOutcome, BreakRequest, Query};
use polylatch::{Converted, Error, FencingToken, Guard, GuardSet, Lock, LockAll, Polylatch};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;

mod events;
mod idempotent;

/// A request: which verb, of which client, about what.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    id: u64,
    op: String,
    client: String,
    url: String,
    lock: String,
    locks: Vec<String>,
    guard: String,
    mode: Mode,
    options: Map<String, Value>,
    target: u64,
    token: u64,
    by: String,
    reason: String,
    lease_ms: u64,
    scope: String,
    key: String,
    payload: Option<String>,
    value: String,
    fails: bool,
    waits: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Mode {
    #[default]
    Mutex,
    Read,
    Write,
    Permits {
        count: u32,
        capacity: u32,
    },
}

/// What a guard's name stands for.
#[derive(Debug, Clone)]
enum Held {
    One(Arc<Guard>),
    Set(Arc<GuardSet>),
}

#[derive(Debug, Default)]
struct Shim {
    clients: Mutex<HashMap<String, Polylatch>>,
    /// Locks that are named, and not acquired.
    named: Mutex<Vec<Lock>>,
    guards: Mutex<HashMap<String, Held>>,
    running: Mutex<HashMap<u64, AbortHandle>>,
    events: events::Events,
    gates: idempotent::Gates,
}

/// What goes wrong: in the library, or in how the runner asks.
enum Fault {
    Library(Error),
    Run(RunError),
    Runner(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

type Answer = Result<Value, Fault>;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system gives a runtime");
    let shim = Arc::new(Shim::default());
    shim.events.listen();
    say(&json!({
        "hello": "polylatch", "protocol": 1, "language": "rust", "version": env!("CARGO_PKG_VERSION"),
        "can": ["cancel", "idempotency"],
    }));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let request: Request = serde_json::from_str(&line).expect("the runner sends requests");
        if request.op == "cancel" {
            let running = unpoisoned(&shim.running).remove(&request.target);
            if let Some(running) = running {
                running.abort();
            }
            say(&json!({"id": request.id, "ok": {}}));
            continue;
        }
        let id = request.id;
        let for_task = Arc::clone(&shim);
        let task = runtime.spawn(async move { for_task.serve(request).await });
        unpoisoned(&shim.running).insert(id, task.abort_handle());
        let shim = Arc::clone(&shim);
        runtime.spawn(async move {
            let mut answer = match task.await {
                Ok(Ok(ok)) => json!({"ok": ok}),
                Ok(Err(Fault::Library(error))) => json!({"error": told(&error)}),
                Ok(Err(Fault::Run(error))) => json!({"error": idempotent::told(&error)}),
                Ok(Err(Fault::Runner(fault))) => json!({"fault": fault}),
                Err(ended) if ended.is_cancelled() => json!({"canceled": true}),
                Err(ended) => json!({"fault": format!("it panicked: {ended}")}),
            };
            unpoisoned(&shim.running).remove(&id);
            answer["id"] = json!(id);
            say(&answer);
        });
    }
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    // The runner has gone if nobody listens.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn told(error: &Error) -> Value {
    let reason = error.lost_reason().map(|reason| reason.code());
    json!({
        "code": error.code(), "retry": error.retry().code(), "effect": error.effect().code(),
        "reason": reason, "message": error.to_string(),
    })
}

fn token(guard: &Guard) -> u64 {
    guard.fencing_token().get()
}

impl Shim {
    async fn serve(&self, request: Request) -> Answer {
        match request.op.as_str() {
            "connect" => {
                let client = Polylatch::connect(&request.url).await?;
                let capability = serde_json::to_value(client.capability()).expect("it is plain data");
                unpoisoned(&self.clients).insert(request.client, client);
                Ok(json!({"capability": capability}))
            }
            "name" => {
                let lock = self.lock(&request)?;
                unpoisoned(&self.named).push(lock);
                Ok(json!({}))
            }
            "acquire" => {
                let guard = self.lock(&request)?.acquire().await?;
                Ok(self.keep(request.guard, guard))
            }
            "try" => match self.lock(&request)?.try_acquire().await? {
                Some(guard) => Ok(self.keep(request.guard, guard)),
                None => Ok(json!({"held": false})),
            },
            "lock_all" => {
                let set = self.set(&request)?.acquire().await?;
                Ok(self.keep_set(request.guard, set))
            }
            "try_all" => match self.set(&request)?.try_acquire().await? {
                Some(set) => Ok(self.keep_set(request.guard, set)),
                None => Ok(json!({"held": false})),
            },
            "release" => {
                match self.held(&request)? {
                    Held::One(guard) => guard.release().await?,
                    Held::Set(set) => set.release().await?,
                }
                Ok(json!({}))
            }
            "check" => {
                match self.held(&request)? {
                    Held::One(guard) => guard.check()?,
                    Held::Set(set) => set.check()?,
                }
                Ok(json!({}))
            }
            "beat" => {
                self.guard(&request)?.beat();
                Ok(json!({}))
            }
            "extend" => {
                let guard = self.guard(&request)?;
                guard.extend(Duration::from_millis(request.lease_ms)).await?;
                Ok(json!({}))
            }
            "lost" => {
                let lost = self.guard(&request)?.lost();
                Ok(json!({"reason": lost.await.code()}))
            }
            "downgrade" => {
                let guard = self.take(&request)?.downgrade().await?;
                Ok(self.keep(request.guard, guard))
            }
            "upgrade" => match self.take(&request)?.try_upgrade().await? {
                Converted::Done(guard) => Ok(self.keep(request.guard, guard)),
                Converted::Refused(guard) => {
                    self.keep(request.guard, guard);
                    Ok(json!({"held": false}))
                }
            },
            "see" => self.see(&request).await,
            "break" => {
                let order = BreakRequest {
                    name: request.lock.clone(),
                    expected: FencingToken::new(request.token),
                    by: request.by.clone(),
                    reason: request.reason.clone(),
                };
                let outcome = self.client(&request)?.inspect().break_lease(&order).await?;
                Ok(json!({"outcome": match outcome {
                    BreakOutcome::Broken { .. } => "broken",
                    BreakOutcome::Free => "free",
                    BreakOutcome::ChangedHands { .. } => "changed_hands",
                    _ => "unknown",
                }}))
            }
            "told" => {
                let client = self.client(&request)?;
                Ok(json!({"events": self.events.of(client.id().as_str(), &request.lock)}))
            }
            "stats" => {
                let stats = self.client(&request)?.stats();
                Ok(json!({
                    "acquired": stats.acquired, "refused": stats.refused, "timed_out": stats.timed_out,
                    "held": stats.held, "waiting": stats.waiting, "losses": stats.losses(),
                }))
            }
            "run" => Ok(idempotent::run(&self.client(&request)?, &request, &self.gates).await?),
            "end_run" => {
                self.gates.reach(request.waits.as_deref().unwrap_or_default(), idempotent::Stage::MayEnd);
                Ok(json!({}))
            }
            "working" => {
                let name = request.waits.as_deref().unwrap_or_default();
                self.gates.reached(name, idempotent::Stage::Working).await;
                Ok(json!({}))
            }
            "close" => {
                self.client(&request)?.close().await;
                Ok(json!({}))
            }
            other => Err(Fault::Runner(format!("there is no verb {other:?}"))),
        }
    }

    fn client(&self, request: &Request) -> Result<Polylatch, Fault> {
        let clients = unpoisoned(&self.clients);
        let client = clients.get(&request.client).cloned();
        client.ok_or_else(|| Fault::Runner(format!("there is no client {:?}", request.client)))
    }

    fn lock(&self, request: &Request) -> Result<Lock, Fault> {
        let client = self.client(request)?;
        let lock = match request.mode {
            Mode::Mutex => client.lock(&request.lock),
            Mode::Read => client.rw_lock(&request.lock).read(),
            Mode::Write => client.rw_lock(&request.lock).write(),
            Mode::Permits { count, capacity } => client.semaphore(&request.lock, capacity).permits(count),
        };
        with_options(lock, &request.options)
    }

    fn set(&self, request: &Request) -> Result<LockAll, Fault> {
        let mut options = request.options.clone();
        let wait = options.remove("wait_ms").and_then(|wait| wait.as_u64());
        // Asked for once, so that a mistake of the runner is told and not hidden in the closure.
        let _ = with_options(self.client(request)?.lock("probe"), &options)?;
        let mut set = self.client(request)?.lock_all(&request.locks).each(|lock| {
            with_options(lock, &options).unwrap_or_else(|_| unreachable!("it was asked for above"))
        });
        if let Some(wait) = wait {
            set = set.wait(Duration::from_millis(wait));
        }
        Ok(set)
    }

    fn keep(&self, name: String, guard: Guard) -> Value {
        let told = json!({"held": true, "token": token(&guard), "locks": [guard.name()]});
        unpoisoned(&self.guards).insert(name, Held::One(Arc::new(guard)));
        told
    }

    fn keep_set(&self, name: String, set: GuardSet) -> Value {
        let locks: Vec<_> = set.guards().iter().map(|guard| guard.name().to_owned()).collect();
        unpoisoned(&self.guards).insert(name, Held::Set(Arc::new(set)));
        json!({"held": true, "locks": locks})
    }

    fn held(&self, request: &Request) -> Result<Held, Fault> {
        let guards = unpoisoned(&self.guards);
        let held = guards.get(&request.guard).cloned();
        held.ok_or_else(|| Fault::Runner(format!("there is no guard {:?}", request.guard)))
    }

    fn guard(&self, request: &Request) -> Result<Arc<Guard>, Fault> {
        match self.held(request)? {
            Held::One(guard) => Ok(guard),
            Held::Set(_) => Err(Fault::Runner(format!("{:?} is a set", request.guard))),
        }
    }

    /// Takes a guard out, for a step that consumes it.
    fn take(&self, request: &Request) -> Result<Guard, Fault> {
        let held = unpoisoned(&self.guards).remove(&request.guard);
        match held {
            Some(Held::One(guard)) => {
                Arc::try_unwrap(guard).map_err(|_| Fault::Runner(format!("{:?} is in use", request.guard)))
            }
            _ => Err(Fault::Runner(format!("there is no guard {:?}", request.guard))),
        }
    }

    async fn see(&self, request: &Request) -> Answer {
        let query = Query { name: Some(request.lock.clone()), ..Query::default() };
        let snapshot = self.client(request)?.inspect().list(&query).await?;
        let Some(view) = snapshot.locks.first() else { return Ok(json!({"holders": [], "waiters": []})) };
        let who = |id: Option<&polylatch::ClientId>| {
            let client = snapshot.clients.iter().find(|client| Some(&client.id) == id);
            (client.map(|client| client.pid), client.map(|client| client.language.clone()))
        };
        let holders: Vec<_> = view
            .holders
            .iter()
            .map(|holder| {
                let (pid, language) = who(holder.client.as_ref());
                json!({
                    "label": holder.label, "mode": holder.mode, "permits": holder.permits,
                    "token": holder.fencing_token, "renewals": holder.renewals,
                    "pid": pid, "language": language,
                })
            })
            .collect();
        let waiters: Vec<_> = view
            .waiters
            .iter()
            .map(|waiter| {
                let (pid, language) = who(Some(&waiter.client));
                json!({
                    "label": waiter.label, "mode": waiter.mode, "permits": waiter.permits,
                    "pid": pid, "language": language,
                })
            })
            .collect();
        Ok(json!({"holders": holders, "waiters": waiters}))
    }
}

/// Sets the options of an acquisition; a word that is unknown here is a mistake of the scenario.
fn with_options(mut lock: Lock, options: &Map<String, Value>) -> Result<Lock, Fault> {
    for (key, value) in options {
        let wrong = || Fault::Runner(format!("{key} cannot be {value}"));
        let millis = || value.as_u64().map(Duration::from_millis).ok_or_else(wrong);
        let text = || value.as_str().ok_or_else(wrong);
        let yes = || value.as_bool().ok_or_else(wrong);
        lock = match key.as_str() {
            "lease_ms" => lock.lease(millis()?),
            "wait_ms" => lock.wait(millis()?),
            "max_hold_ms" => lock.max_hold(millis()?),
            "beat_every_ms" => lock.beat_every(millis()?),
            "keep_idle_ms" => lock.keep_idle(millis()?),
            "label" => lock.label(text()?),
            "owner" => lock.owner(text()?),
            "fifo" => lock.fifo(yes()?),
            "renew" => lock.renew(yes()?),
            _ => return Err(Fault::Runner(format!("there is no option {key:?}"))),
        };
    }
    Ok(lock)
}
