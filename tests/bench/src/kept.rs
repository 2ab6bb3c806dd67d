//! A lock whose lease stays with its client after a release: the next entry there, and how soon another client has it.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polylatch::blocking::{Lock, Polylatch};
use polylatch_test_services::redis::RedisServer;

use crate::figures::{Samples, heading, row};
use crate::layout::on_processor_of_servers;
use crate::raw::{GIVE, Wire};

const ROUNDS: usize = 20;
const PER_ROUND: usize = 300;
/// Entries of which one sample is the mean: reading the clock takes a good part of one.
const ENTRIES: usize = 1_000;
/// From microseconds for all of them to nanoseconds for one.
const NANOS: f64 = ENTRIES as f64 / 1e3;
const HANDED_OVER: usize = 500;
const IDLE: Duration = Duration::from_secs(60);

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
    heading("a lock that is kept after its release (µs)");
    let connect = || Polylatch::connect(&server.url()).expect("it connects");
    let (keeper, other) = (connect(), connect());
    let (usual, kept) = (keeper.lock("usual"), keeper.lock("kept").keep_idle(IDLE));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = runtime.block_on(polylatch::Polylatch::connect(&server.url())).expect("it connects");
    let in_tasks = client.lock("in-tasks").keep_idle(IDLE);
    let mut wire = Wire::connect(server.address());
    let give = wire.load(GIVE);
    let [mut floor, mut pairs, mut blocking, mut tasks] = [(); 4].map(|()| Samples::default());
    pair(&kept);
    for _ in 0..ROUNDS {
        for _ in 0..PER_ROUND {
            floor.add(timed(|| {
                wire.ask(&["SET", "floor", "token", "NX", "PX", "10000"]);
                wire.ask(&["EVALSHA", &give, "1", "floor", "token"]);
            }));
            pairs.add(timed(|| pair(&usual)));
        }
        for _ in 0..5 {
            blocking.add(timed(|| (0..ENTRIES).for_each(|_| pair(&kept))) / NANOS);
            tasks.add(
                timed(|| {
                    runtime.block_on(async {
                        for _ in 0..ENTRIES {
                            let guard = in_tasks.acquire().await.expect("it is kept");
                            guard.release().await.expect("it is held");
                        }
                    });
                }) / NANOS,
            );
        }
    }
    row("floor: two round trips, blocking socket", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &pairs, &[("socket", floor.median())]);
    row("kept, blocking API", "ns", &blocking, &[("socket", floor.median() * 1e3)]);
    row("kept, async", "ns", &tasks, &[("socket", floor.median() * 1e3)]);

    let (mut handed_over, mut had) = (Samples::default(), Samples::default());
    let (lock, kept) = (other.lock("usual"), keeper.lock("to-others").keep_idle(IDLE));
    let to_others = other.lock("to-others");
    for _ in 0..HANDED_OVER {
        handed_over.add(hand_over(&usual, &lock, &other));
        pair(&kept);
        let asked = Instant::now();
        let guard = to_others.acquire().expect("it is released");
        had.add(asked.elapsed().as_nanos() as f64 / 1e3);
        guard.release().expect("it is held");
    }
    row("hand-off: release to acquire, 2 clients", "µs", &handed_over, &[]);
    row("kept: acquire by another client", "µs", &had, &[("hand-off", handed_over.median())]);
}

fn pair(lock: &Lock) {
    lock.acquire().expect("it is free").release().expect("it is held");
}

fn timed(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_nanos() as f64 / 1e3
}

/// From the call of release to the return of an acquire that waits in another client.
fn hand_over(lock: &Lock, of_other: &Lock, other: &Polylatch) -> f64 {
    let guard = lock.acquire().expect("it is free");
    let (entered, told) = channel();
    let waits = of_other.clone();
    let waiter = thread::spawn(move || {
        let guard = waits.acquire().expect("it is released");
        entered.send(Instant::now()).expect("it is awaited");
        guard.release().expect("it is held");
    });
    while other.stats().waiting == 0 {
        thread::yield_now();
    }
    let released = Instant::now();
    guard.release().expect("it is held");
    let took = told.recv().expect("it enters").duration_since(released);
    waiter.join().expect("no panic");
    took.as_nanos() as f64 / 1e3
}
