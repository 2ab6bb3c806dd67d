//! Read-write locks, semaphores and sets beside the mutex, all free for whoever asks.

use std::time::Instant;

use polylatch::{Guard, Lock, LockAll, Polylatch};
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;

use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 1_500;

/// So many others hold the lock at the same time, where it can be shared.
const BESIDE: usize = 15;

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Polylatch::connect(&server.url()).await.expect("it connects");
        let others = Polylatch::connect(&server.url()).await.expect("it connects");
        let _beside = beside(&others).await;
        alone(&client).await;
        together(&client).await;
    });
}

/// Readers and permits that are held for as long as this lives.
async fn beside(others: &Polylatch) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..BESIDE {
        guards.push(others.rw_lock("beside/rw").read().acquire().await.expect("readers share"));
        guards.push(others.semaphore("beside/permits", 100).acquire(1).await.expect("there are enough"));
    }
    guards
}

async fn alone(client: &Polylatch) {
    heading("acquire + release of the lock family beside the mutex, one client (µs a pair)");
    let rw = client.rw_lock("rw");
    let cases: [(&str, Lock); 6] = [
        ("mutex", client.lock("mutex")),
        ("read-write lock, read", rw.read()),
        ("read-write lock, write", rw.write()),
        ("semaphore, 1 of 5 permits", client.semaphore("permits", 5).permits(1)),
        ("read, beside 15 readers", client.rw_lock("beside/rw").read()),
        ("1 of 100 permits, beside 15 holders", client.semaphore("beside/permits", 100).permits(1)),
    ];
    let mut samples: [Samples; 6] = Default::default();
    for round in 0..ROUNDS {
        // In alternation, and in turn each of them first.
        for step in 0..cases.len() {
            let at = (round + step) % cases.len();
            let started = Instant::now();
            let guard = cases[at].1.acquire().await.expect("it can be had");
            guard.release().await.expect("it is held");
            samples[at].add(started.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    let mutex = samples[0].median();
    for ((name, _), samples) in cases.iter().zip(&samples) {
        row(name, "µs", samples, &[("mutex", mutex)]);
    }
}

async fn together(client: &Polylatch) {
    heading("acquire + release of three mutexes (µs for all)");
    let names = ["set/a", "set/b", "set/c"];
    let set: LockAll = client.lock_all(names);
    let locks = names.map(|name| client.lock(name));
    let (mut one_by_one, mut at_once) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let mut guards = Vec::new();
        for lock in &locks {
            guards.push(lock.acquire().await.expect("it is free"));
        }
        for guard in &guards {
            guard.release().await.expect("it is held");
        }
        one_by_one.add(started.elapsed().as_nanos() as f64 / 1e3);
        let started = Instant::now();
        set.acquire().await.expect("all are free").release().await.expect("all are held");
        at_once.add(started.elapsed().as_nanos() as f64 / 1e3);
    }
    let floor = one_by_one.median();
    row("one after the other", "µs", &one_by_one, &[]);
    row("lock_all", "µs", &at_once, &[("one by one", floor)]);
}
