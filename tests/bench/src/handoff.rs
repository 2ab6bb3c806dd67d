//! From the call of release to the return of the next acquire in another contender.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;

use crate::figures::{Samples, heading, row};
use crate::raw::Wire;

/// Clients that contend; waiters are spread over them.
const CLIENTS: usize = 8;
const ROUNDS: usize = 3;
const SECTIONS: usize = 2_000;

/// What a push hand-off needs at the least: stand in line (or take a free lock), and pass on.
const STAND: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000) return 1 end redis.call('RPUSH', KEYS[2], ARGV[1]) return 0";
const PASS_ON: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('DEL', KEYS[1]) local next = redis.call('LPOP', KEYS[2]) if next then redis.call('SET', KEYS[1], next, 'PX', 10000) redis.call('PUBLISH', next, 'yours') end return 1";

pub fn run() {
    let server = RedisServer::start();
    heading("hand-off of a contended lock (µs)");
    for waiters in [2, 8, 64, 1000] {
        let (mut floor, mut ours) = (Samples::default(), Samples::default());
        let mut commands = Samples::default();
        let mut starved = 0;
        for round in 0..ROUNDS {
            floor.extend(raw_round(&server, waiters.min(64)));
            let outcome = our_round(&server, &format!("handoff-{waiters}-{round}"), waiters);
            ours.extend(outcome.latencies);
            commands.add(outcome.commands);
            starved += outcome.starved;
        }
        row(&format!("floor: push over blocking sockets, {} waiters", waiters.min(64)), "µs", &floor, &[]);
        row(&format!("polylatch, {waiters} waiters"), "µs", &ours, &[("floor", floor.median())]);
        println!(
            "    commands per critical section {:.2}; contenders that never got it: {starved}",
            commands.median()
        );
    }
}

fn now(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The floor: the same contention over blocking sockets, a thread for each contender, without fences,
/// heartbeats, provisional leases or anything else that makes it safe.
fn raw_round(server: &RedisServer, parties: usize) -> Vec<f64> {
    let start = Instant::now();
    let passed_at = Arc::new(AtomicU64::new(0));
    let left = Arc::new(AtomicUsize::new(SECTIONS));
    let ready = Arc::new(Barrier::new(parties));
    server.command(&["DEL", "raw", "raw-line"]);
    let threads: Vec<_> = (0..parties)
        .map(|party| {
            let (passed_at, left, ready) = (Arc::clone(&passed_at), Arc::clone(&left), Arc::clone(&ready));
            let (mut wire, mut inbox) = (Wire::connect(server.address()), Wire::connect(server.address()));
            thread::spawn(move || {
                let (stand, pass_on) = (wire.load(STAND), wire.load(PASS_ON));
                let me = format!("raw-{party}");
                inbox.send(&["SUBSCRIBE", &me]);
                inbox.message();
                ready.wait();
                let mut latencies = Vec::new();
                while left.load(Ordering::SeqCst) > 0 {
                    let free = wire.ask(&["EVALSHA", &stand, "2", "raw", "raw-line", &me]);
                    if free != ":1" {
                        inbox.message();
                        latencies.push((now(start) - passed_at.load(Ordering::SeqCst)) as f64 / 1e3);
                    }
                    let _ = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    passed_at.store(now(start), Ordering::SeqCst);
                    wire.ask(&["EVALSHA", &pass_on, "2", "raw", "raw-line", &me]);
                }
                latencies
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
}

struct Outcome {
    latencies: Vec<f64>,
    commands: f64,
    starved: usize,
}

fn our_round(server: &RedisServer, name: &str, waiters: usize) -> Outcome {
    let start = Instant::now();
    let sections = SECTIONS.max(3 * waiters);
    let shared = Arc::new(Shared {
        released_at: AtomicU64::new(0),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        latencies: Mutex::default(),
        starved: AtomicUsize::new(0),
    });
    let in_line = Arc::new(Barrier::new(waiters.min(CLIENTS) + 1));
    let blocker = polylatch::blocking::Polylatch::connect(&server.url()).expect("it connects");
    let held = blocker.lock(name).acquire().expect("it is free");
    let threads: Vec<_> = (0..waiters.min(CLIENTS))
        .map(|client| {
            let mine = waiters / CLIENTS.min(waiters) + usize::from(client < waiters % CLIENTS.min(waiters));
            let (shared, in_line) = (Arc::clone(&shared), Arc::clone(&in_line));
            let (url, name) = (server.url(), name.to_owned());
            thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let client = Polylatch::connect(&url).await.expect("it connects");
                    let tasks: Vec<_> = (0..mine)
                        .map(|_| {
                            tokio::spawn(contend(
                                client.clone(),
                                name.clone(),
                                Arc::clone(&shared),
                                start,
                                sections,
                            ))
                        })
                        .collect();
                    in_line.wait();
                    for task in tasks {
                        task.await.expect("no panic");
                    }
                    client.close().await;
                });
            })
        })
        .collect();
    in_line.wait();
    // Until everybody stands in line.
    let query = polylatch::inspect::Query { name: Some(name.to_owned()), ..Default::default() };
    while blocker.list(&query).expect("it answers").locks[0].waiters.len() < waiters {
        thread::sleep(Duration::from_millis(5));
    }
    let before = scripts_run(server);
    shared.released_at.store(now(start), Ordering::SeqCst);
    held.release().expect("it is held");
    for thread in threads {
        thread.join().expect("no panic");
    }
    let commands = (scripts_run(server) - before) as f64 / shared.done.load(Ordering::SeqCst) as f64;
    let latencies = std::mem::take(&mut *shared.latencies.lock().expect("no panic"));
    Outcome { latencies, commands, starved: shared.starved.load(Ordering::SeqCst) }
}

struct Shared {
    released_at: AtomicU64,
    done: AtomicUsize,
    stop: AtomicBool,
    latencies: Mutex<Vec<f64>>,
    starved: AtomicUsize,
}

async fn contend(client: Polylatch, name: String, shared: Arc<Shared>, start: Instant, sections: usize) {
    let lock = client.lock(name).wait(Duration::from_secs(60));
    let mut mine = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let guard = lock.acquire().await.expect("everybody gets it in time");
        let entered = now(start);
        let done = shared.done.fetch_add(1, Ordering::SeqCst) + 1;
        if done <= sections {
            mine.push((entered - shared.released_at.load(Ordering::SeqCst)) as f64 / 1e3);
        } else {
            shared.stop.store(true, Ordering::SeqCst);
        }
        shared.released_at.store(now(start), Ordering::SeqCst);
        guard.release().await.expect("it is held");
    }
    if mine.is_empty() {
        shared.starved.fetch_add(1, Ordering::SeqCst);
    }
    shared.latencies.lock().expect("no panic").extend(mine);
}

fn scripts_run(server: &RedisServer) -> u64 {
    let reply = server.command(&["INFO", "commandstats"]);
    let text = reply.text().unwrap_or_default().to_owned();
    text.lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum()
}
