//! Many tasks of one process, or many threads, each with a lock of its own, over one connection.

use std::time::Instant;

use polylatch::{Polylatch, blocking};
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::cost::{Cost, Spent};
use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;
use crate::raw::{GIVE, TAKE, Wire};

const TASKS: usize = 64;
const ROUNDS: usize = 12;
const PAIRS_PER_TASK: usize = 150;
const PAIRS: usize = TASKS * PAIRS_PER_TASK;

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
    heading("64 tasks on 64 locks (pairs a second; a ratio of 1 is as fast as the raw scripts)");
    let pipeline = pipelined(&server);
    row("floor: 64 raw requests in each write", "pairs/s", &pipeline, &[]);
    for (name, mut builder) in [
        ("current-thread runtime", Builder::new_current_thread()),
        ("multi-thread runtime", Builder::new_multi_thread()),
    ] {
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let (mut raw, mut ours) = (Samples::default(), Samples::default());
        let (mut of_raw, mut of_ours) = (Cost::default(), Cost::default());
        runtime.block_on(async {
            let connection = redis::Client::open(server.url())
                .expect("a URL")
                .get_multiplexed_async_connection()
                .await
                .expect("it connects");
            let client = Polylatch::connect(&server.url()).await.expect("it connects");
            for _ in 0..ROUNDS {
                let (before, started) = (Spent::before(&server), Instant::now());
                let mut tasks = JoinSet::new();
                for task in 0..TASKS {
                    let mut connection = connection.clone();
                    tasks.spawn(async move {
                        let (take, give) = (redis::Script::new(TAKE), redis::Script::new(GIVE));
                        let key = format!("raw-{task}");
                        for _ in 0..PAIRS_PER_TASK {
                            let _: redis::Value = take
                                .key(&key)
                                .arg("token")
                                .arg(10_000)
                                .invoke_async(&mut connection)
                                .await
                                .expect("the script runs");
                            let _: i64 = give
                                .key(&key)
                                .arg("token")
                                .invoke_async(&mut connection)
                                .await
                                .expect("the script runs");
                        }
                    });
                }
                while tasks.join_next().await.is_some() {}
                raw.add(PAIRS as f64 / started.elapsed().as_secs_f64());
                of_raw.since(before, &server, PAIRS);

                let (before, started) = (Spent::before(&server), Instant::now());
                let mut tasks = JoinSet::new();
                for task in 0..TASKS {
                    let lock = client.lock(format!("ours-{task}"));
                    tasks.spawn(async move {
                        for _ in 0..PAIRS_PER_TASK {
                            let guard = lock.acquire().await.expect("it is free");
                            guard.release().await.expect("it is held");
                        }
                    });
                }
                while tasks.join_next().await.is_some() {}
                ours.add(PAIRS as f64 / started.elapsed().as_secs_f64());
                of_ours.since(before, &server, PAIRS);
            }
        });
        row(&format!("redis crate, two scripts, {name}"), "pairs/s", &raw, &[]);
        of_raw.print();
        let floors = [("redis crate", raw.median()), ("pipeline", pipeline.median())];
        row(&format!("polylatch, {name}"), "pairs/s", &ours, &floors);
        of_ours.print();
    }
    threads(&server, &pipeline);
}

/// A socket that sends what 64 tasks ask for at once, and then reads all answers: no task waits for its own.
fn pipelined(server: &RedisServer) -> Samples {
    let mut wire = Wire::connect(server.address());
    let give = wire.load(GIVE);
    let names: Vec<_> = (0..TASKS).map(|task| format!("pipelined-{task}")).collect();
    let ask = |request: &dyn Fn(&str) -> String| names.iter().map(|name| request(name)).collect::<String>();
    let take = ask(&|name| Wire::text(&["SET", name, "token", "NX", "PX", "10000"]));
    let give = ask(&|name| Wire::text(&["EVALSHA", &give, "1", name, "token"]));
    let mut rates = Samples::default();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..PAIRS_PER_TASK {
            for text in [&take, &give] {
                wire.send_text(text);
                (0..TASKS).for_each(|_| drop(wire.line()));
            }
        }
        rates.add(PAIRS as f64 / started.elapsed().as_secs_f64());
    }
    rates
}

/// The floor has a connection for each thread, as a library without a shared one needs.
fn threads(server: &RedisServer, pipeline: &Samples) {
    let client = blocking::Polylatch::connect(&server.url()).expect("it connects");
    let mut wires: Vec<_> = (0..TASKS).map(|_| Wire::connect(server.address())).collect();
    let (take, give) = (wires[0].load(TAKE), wires[0].load(GIVE));
    let (mut raw, mut ours) = (Samples::default(), Samples::default());
    let (mut of_raw, mut of_ours) = (Cost::default(), Cost::default());
    let pairs_per_second = |started: Instant| PAIRS as f64 / started.elapsed().as_secs_f64();
    for _ in 0..ROUNDS {
        let (before, started) = (Spent::before(server), Instant::now());
        std::thread::scope(|scope| {
            for (thread, wire) in wires.iter_mut().enumerate() {
                let (take, give) = (&take, &give);
                scope.spawn(move || {
                    let key = format!("raw-{thread}");
                    for _ in 0..PAIRS_PER_TASK {
                        wire.ask(&["EVALSHA", take, "1", &key, "token", "10000"]);
                        wire.ask(&["EVALSHA", give, "1", &key, "token"]);
                    }
                });
            }
        });
        raw.add(pairs_per_second(started));
        of_raw.since(before, server, PAIRS);
        let (before, started) = (Spent::before(server), Instant::now());
        std::thread::scope(|scope| {
            for thread in 0..TASKS {
                let lock = client.lock(format!("ours-{thread}"));
                scope.spawn(move || {
                    for _ in 0..PAIRS_PER_TASK {
                        let guard = lock.acquire().expect("it is free");
                        guard.release().expect("it is held");
                    }
                });
            }
        });
        ours.add(pairs_per_second(started));
        of_ours.since(before, server, PAIRS);
    }
    row("raw sockets, 64 threads with one each", "pairs/s", &raw, &[]);
    of_raw.print();
    let floors = [("raw sockets", raw.median()), ("pipeline", pipeline.median())];
    row("polylatch, 64 threads on one client", "pairs/s", &ours, &floors);
    of_ours.print();
}
