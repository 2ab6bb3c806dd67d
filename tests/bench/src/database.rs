//! What is measured in the same way on every database.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use polylatch::blocking::Polylatch;
use tokio::runtime::{Builder, Runtime};

use crate::contention::{Relay, contend};
use crate::figures::{Samples, row};

const PER_ROUND: usize = 100;

pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A round of pairs, in µs.
pub fn timed<T>(mut pair: impl FnMut() -> T) -> Vec<f64> {
    (0..PER_ROUND)
        .map(|_| {
            let started = Instant::now();
            pair();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

/// From a release to the entry of the waiter of another client, in µs; the lock is held for so long in between.
pub fn hand_offs(url: &str, count: usize, held: Duration) -> Samples {
    let released: Mutex<Option<Instant>> = Mutex::new(None);
    let ours = Mutex::new(Samples::default());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = Polylatch::connect(url).expect("it connects");
                let lock = client.lock("handed").wait(Duration::from_secs(60));
                for _ in 0..count / 2 {
                    let guard = lock.acquire().expect("it is handed on");
                    let entered = Instant::now();
                    if let Some(at) = released.lock().expect("no panic").take() {
                        ours.lock().expect("no panic").add(entered.duration_since(at).as_secs_f64() * 1e6);
                    }
                    thread::sleep(held);
                    *released.lock().expect("no panic") = Some(Instant::now());
                    guard.release().expect("it is held");
                }
                client.close();
            });
        }
    });
    ours.into_inner().expect("no panic")
}

/// Hand-offs among many waiters, beside the floor; and what they cost. `counts` says how many requests, or statements, a
/// client has sent at once; `through` is the URL by way of an address.
pub fn contended(
    url: &str,
    floor: f64,
    server: SocketAddr,
    (what, counts): (&str, fn(&[u8]) -> u64),
    through: impl Fn(SocketAddr) -> String,
    statements: Option<&dyn Fn() -> u64>,
) {
    const HELD: Duration = Duration::from_millis(3);
    for waiters in [2, 8, 64] {
        let (ours, carried_out) = contend(url, url, waiters, HELD, || statements.map_or(0, |count| count()));
        row(&format!("polylatch, {waiters} waiters, sections of {HELD:?}"), "µs", &ours, &[("floor", floor)]);
        // Counted in a run of its own: what passes bytes on takes time.
        let relay = Relay::start(server, counts);
        let (_, requests) = contend(url, &through(relay.address), waiters, HELD, || relay.requests());
        print!("    {what} per critical section {requests:.2}");
        println!(
            "{}",
            if statements.is_some() { format!(", statements {carried_out:.2}") } else { String::new() }
        );
    }
}
