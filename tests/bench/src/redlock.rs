//! A lock on five independent nodes, with all of them up, with two that refuse and with two that are hung. Its floor writes to all
//! that are up and returns with the third answer; beside it, one round trip to one node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::cost::Cost;
use crate::figures::{Samples, heading, row, row_beside};
use crate::layout::on_processor_of_servers;
use crate::raw::{GIVE, Quorum, TAKE, Wire};

const NODES: usize = 5;
const ROUNDS: usize = 12;
const PER_ROUND: usize = 100;

pub fn run() {
    for state in ["all up", "two refuse", "two are hung"] {
        let mut servers: Vec<_> = (0..NODES).map(|_| on_processor_of_servers(RedisServer::start)).collect();
        let alone = on_processor_of_servers(RedisServer::start);
        let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
        let url = format!("redlock://{}", places.join(","));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let clients: Vec<_> =
            (0..16).map(|_| runtime.block_on(Polylatch::connect(&url)).expect("they answer")).collect();
        heading(&format!("redlock over five nodes, {state} (µs; both ways are two round trips)"));
        let skipped = if state == "two refuse" { 2 } else { 0 };
        let mut wires: Vec<_> =
            servers[skipped..].iter().map(|server| Wire::connect(server.address())).collect();
        let scripts = wires.iter_mut().map(|wire| [wire.load(TAKE), wire.load(GIVE)]).next_back();
        let [take, give] = scripts.expect("some are up");
        for server in &mut servers[..2] {
            match state {
                "two refuse" => server.kill(),
                "two are hung" => server.pause(),
                _ => {}
            }
        }
        let take = Wire::text(&["EVALSHA", &take, "1", "floor", "token", "10000"]);
        let give = Wire::text(&["EVALSHA", &give, "1", "floor", "token"]);
        let mut quorum = Quorum::new(NODES, wires);
        let both = || {
            quorum.ask(&take);
            quorum.ask(&give);
        };
        let live = if state == "all up" { &servers[..] } else { &servers[2..] };
        measure(&runtime, &alone, live, both, &clients);
    }
}

fn measure(
    runtime: &Runtime,
    alone: &RedisServer,
    live: &[RedisServer],
    mut by_majority: impl FnMut(),
    clients: &[Polylatch],
) {
    let mut wire = Wire::connect(alone.address());
    let (take, give) = (wire.load(TAKE), wire.load(GIVE));
    let (mut floor, mut majority) = (Samples::default(), Samples::default());
    let counts = [1, 4, 16];
    let mut cycles = [Samples::default(), Samples::default(), Samples::default()];
    let (mut of_majority, mut of_ours) = (Cost::default(), Cost::default());
    let mut waits = [Samples::default(), Samples::default(), Samples::default()];
    for round in 0..=ROUNDS {
        for _ in 0..PER_ROUND {
            let started = Instant::now();
            wire.ask(&["EVALSHA", &take, "1", "floor", "token", "10000"]);
            wire.ask(&["EVALSHA", &give, "1", "floor", "token"]);
            floor.add(micros(started.elapsed()));
        }
        of_majority.of_all(live, PER_ROUND, || {
            for _ in 0..PER_ROUND {
                let started = Instant::now();
                by_majority();
                majority.add(micros(started.elapsed()));
            }
        });
        for (at, count) in counts.into_iter().enumerate() {
            let contended = || runtime.block_on(contend(&clients[..count], PER_ROUND));
            let (per_section, waited) = if count == 1 && round > 0 {
                of_ours.of_all(live, PER_ROUND, contended)
            } else {
                contended()
            };
            // The first round opens connections and finds out who is away.
            if round > 0 {
                cycles[at].extend(per_section);
                waits[at].extend(waited);
            }
        }
    }
    row("floor: two scripts, one node", "µs", &floor, &[]);
    row_beside(
        "floor: the same by majority, blocking sockets",
        "µs",
        &majority,
        &[("one node", floor.median())],
    );
    of_majority.print();
    let floors = [("majority", majority.median()), ("one node", floor.median())];
    row("1 contender, acquire + release", "µs", &cycles[0], &floors);
    of_ours.print();
    for (at, count) in counts.into_iter().enumerate().skip(1) {
        row(&format!("{count} contenders of one lock, per section"), "µs", &cycles[at], &floors);
        row_beside(&format!("{count} contenders, wait for the lock"), "µs", &waits[at], &floors);
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// So many sections by all contenders together: how long each took from the one before, or alone, from
/// acquire to release; and how long each waited.
async fn contend(clients: &[Polylatch], sections: usize) -> (Vec<f64>, Vec<f64>) {
    if let [alone] = clients {
        let lock = alone.lock("alone");
        let mut cycles = Vec::with_capacity(sections);
        for _ in 0..sections {
            let started = Instant::now();
            let guard = lock.acquire().await.expect("it is free");
            guard.release().await.expect("it is held");
            cycles.push(micros(started.elapsed()));
        }
        return (cycles, Vec::new());
    }
    let done = Arc::new(std::sync::Mutex::new((Vec::new(), Vec::new(), Instant::now())));
    let mut tasks = JoinSet::new();
    for client in clients {
        let (lock, done) = (client.lock("shared"), Arc::clone(&done));
        tasks.spawn(async move {
            loop {
                let started = Instant::now();
                let guard = lock.acquire().await.expect("somebody gives it back");
                {
                    let mut done = done.lock().expect("nothing panics while holding it");
                    let gap = done.2.elapsed();
                    done.0.push(micros(gap));
                    done.1.push(micros(started.elapsed()));
                    done.2 = Instant::now();
                }
                guard.release().await.expect("it is held");
                if done.lock().expect("nothing panics while holding it").0.len() >= sections {
                    return;
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no contender panics");
    }
    let done = done.lock().expect("all have ended");
    (done.0.clone(), done.1.clone())
}
