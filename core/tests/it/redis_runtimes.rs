//! Where the connections and subscriptions of one client live: on the runtimes of its callers.

#![cfg(all(feature = "redis", unix))]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, seen};
use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// Polls come so seldom that a hand-off within a second is one by push.
const OPTIONS: &str = "poll=5s&provisional=12s&lease=12s";

fn connect(server: &RedisServer) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{OPTIONS}", server.url()))).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn a_caller_that_has_used_up_its_turn_does_not_spin() {
    let server = RedisServer::start();
    let client = connect(&server);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            drop(client.lock("warm").acquire().await.unwrap());
            let lock = client.lock("a");
            let mut acquire = pin!(lock.acquire());
            let mut first = true;
            let guard = poll_fn(|context| {
                if std::mem::take(&mut first) {
                    while pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
                }
                acquire.as_mut().poll(context)
            });
            tell.send(guard.await.unwrap().fencing_token()).unwrap();
        });
    });
    told.recv_timeout(Duration::from_secs(10)).expect("it gets the lock");
}

#[test]
fn a_push_reaches_waiters_on_every_runtime_and_after_one_has_ended() {
    let server = RedisServer::start();
    let (holder, client) = (connect(&server), connect(&server));
    let handed_over = |who: &dyn Fn(Polylatch) -> thread::JoinHandle<Instant>| {
        let guard = block_on(holder.lock("a").acquire()).unwrap();
        let waiter = who(client.clone());
        eventually("it waits", || seen(&holder, "a").waiters.len() == 1);
        let released = Instant::now();
        block_on(guard.release()).unwrap();
        let entered = waiter.join().unwrap();
        assert!(entered.duration_since(released) < Duration::from_secs(2), "it was not told");
    };
    // More runtimes than listen for themselves, each ending after its turn or staying to the end.
    let staying: Vec<_> = (0..6).map(|_| runtime()).collect();
    for runtime_that_stays in &staying {
        let handle = runtime_that_stays.handle().clone();
        handed_over(&move |client| {
            let handle = handle.clone();
            thread::spawn(move || handle.block_on(acquired(client)))
        });
        handed_over(&|client| thread::spawn(move || runtime().block_on(acquired(client))));
    }
    handed_over(&|client| thread::spawn(move || block_on(acquired(client))));
}

async fn acquired(client: Polylatch) -> Instant {
    let guard = client.lock("a").acquire().await.unwrap();
    let entered = Instant::now();
    guard.release().await.unwrap();
    entered
}
