//! Acquire and release of a free lock, one after the other.

use std::time::Instant;

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use crate::cost::Cost;
use crate::figures::{Samples, heading, row, row_beside};
use crate::layout::on_processor_of_servers;
use crate::raw::{GIVE, TAKE, Wire};

const ROUNDS: usize = 20;
const PER_ROUND: usize = 300;

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
    heading("acquire + release of a free lock, one client (µs a pair)");
    let mut wire = Wire::connect(server.address());
    let give = wire.load(GIVE);
    let mut socket = Samples::default();
    let blocking = polylatch::blocking::Polylatch::connect(&server.url()).expect("it connects");
    let lock = blocking.lock("blocking");
    let mut threads = Samples::default();
    let (mut of_socket, mut of_threads) = (Cost::default(), Cost::default());
    let mut runtimes = [
        Case::new("current-thread runtime", Builder::new_current_thread(), &server),
        Case::new("multi-thread runtime", Builder::new_multi_thread(), &server),
    ];
    for _ in 0..ROUNDS {
        socket.extend(of_socket.of(&server, PER_ROUND, || {
            timed(|| {
                wire.ask(&["SET", "floor", "token", "NX", "PX", "10000"]);
                wire.ask(&["EVALSHA", &give, "1", "floor", "token"]);
            })
        }));
        threads.extend(of_threads.of(&server, PER_ROUND, || {
            timed(|| {
                lock.acquire().expect("it is free").release().expect("it is held");
            })
        }));
        for case in &mut runtimes {
            case.round(&server);
        }
    }
    let floor = socket.median();
    row("floor: two round trips, blocking socket", "µs", &socket, &[]);
    of_socket.print();
    row("polylatch, blocking API", "µs", &threads, &[("socket", floor)]);
    of_threads.print();
    for case in &runtimes {
        row_beside(
            &format!("redis crate, two scripts, {}", case.name),
            "µs",
            &case.raw,
            &[("socket", floor)],
        );
        case.of_raw.print();
        let floors = [("redis crate", case.raw.median()), ("socket", floor)];
        row(&format!("polylatch, {}", case.name), "µs", &case.ours, &floors);
        case.of_ours.print();
        row(&format!("the same, its release not waited for, {}", case.name), "µs", &case.dropped, &floors);
        case.of_dropped.print();
    }
}

fn timed(mut pair: impl FnMut()) -> Vec<f64> {
    (0..PER_ROUND)
        .map(|_| {
            let started = Instant::now();
            pair();
            started.elapsed().as_nanos() as f64 / 1e3
        })
        .collect()
}

struct Case {
    name: &'static str,
    runtime: Runtime,
    connection: MultiplexedConnection,
    client: Polylatch,
    raw: Samples,
    ours: Samples,
    of_raw: Cost,
    of_ours: Cost,
    /// A guard that is dropped, so that its release leaves from the background; the next acquire does not wait for it.
    dropped: Samples,
    of_dropped: Cost,
}

impl Case {
    fn new(name: &'static str, mut builder: Builder, server: &RedisServer) -> Self {
        let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
        let (connection, client) = runtime.block_on(async {
            let client = redis::Client::open(server.url()).expect("a URL");
            let connection = client.get_multiplexed_async_connection().await.expect("it connects");
            (connection, Polylatch::connect(&server.url()).await.expect("it connects"))
        });
        let (raw, ours) = (Samples::default(), Samples::default());
        Self {
            name,
            runtime,
            connection,
            client,
            raw,
            ours,
            of_raw: Cost::default(),
            of_ours: Cost::default(),
            dropped: Samples::default(),
            of_dropped: Cost::default(),
        }
    }

    fn round(&mut self, server: &RedisServer) {
        let (take, give) = (redis::Script::new(TAKE), redis::Script::new(GIVE));
        let lock = self.client.lock(self.name);
        let Self { name, runtime, connection, raw, ours, of_raw, of_ours, dropped, of_dropped, .. } = self;
        let scripts = async {
            for _ in 0..PER_ROUND {
                let started = Instant::now();
                let taken: redis::RedisResult<()> =
                    take.key(*name).arg("token").arg(10_000).invoke_async(connection).await;
                let given: redis::RedisResult<i64> =
                    give.key(*name).arg("token").invoke_async(connection).await;
                raw.add(started.elapsed().as_nanos() as f64 / 1e3);
                taken.and(given).expect("the scripts run");
            }
        };
        of_raw.of(server, PER_ROUND, || runtime.block_on(scripts));
        let sections = async {
            for _ in 0..PER_ROUND {
                let started = Instant::now();
                let guard = lock.acquire().await.expect("it is free");
                guard.release().await.expect("it is held");
                ours.add(started.elapsed().as_nanos() as f64 / 1e3);
            }
        };
        of_ours.of(server, PER_ROUND, || runtime.block_on(sections));
        let in_the_background = async {
            for _ in 0..PER_ROUND {
                let started = Instant::now();
                drop(lock.acquire().await.expect("it is free"));
                dropped.add(started.elapsed().as_nanos() as f64 / 1e3);
            }
        };
        of_dropped.of(server, PER_ROUND, || runtime.block_on(in_the_background));
    }
}
