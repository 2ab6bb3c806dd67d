//! Many tasks of one process, each with a lock of its own, over one connection.

use std::time::Instant;

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::figures::{Samples, heading, row};
use crate::raw::{GIVE, TAKE};

const TASKS: usize = 64;
const ROUNDS: usize = 12;
const PAIRS_PER_TASK: usize = 150;

pub fn run() {
    let server = RedisServer::start();
    heading("64 tasks on 64 locks (pairs a second; a ratio of 1 is as fast as the raw scripts)");
    for (name, mut builder) in [
        ("current-thread runtime", Builder::new_current_thread()),
        ("multi-thread runtime", Builder::new_multi_thread()),
    ] {
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let (mut raw, mut ours) = (Samples::default(), Samples::default());
        runtime.block_on(async {
            let connection = redis::Client::open(server.url())
                .expect("a URL")
                .get_multiplexed_async_connection()
                .await
                .expect("it connects");
            let client = Polylatch::connect(&server.url()).await.expect("it connects");
            for _ in 0..ROUNDS {
                let started = Instant::now();
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
                raw.add((TASKS * PAIRS_PER_TASK) as f64 / started.elapsed().as_secs_f64());

                let started = Instant::now();
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
                ours.add((TASKS * PAIRS_PER_TASK) as f64 / started.elapsed().as_secs_f64());
            }
        });
        row(&format!("redis crate, two scripts, {name}"), "pairs/s", &raw, &[]);
        row(&format!("polylatch, {name}"), "pairs/s", &ours, &[("redis crate", raw.median())]);
    }
}
