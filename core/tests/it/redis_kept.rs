//! Leases that are kept after a release, beside clients of versions that know nothing of them.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;

use crate::contract::{block_on, eventually, seen};

const IDLE: Duration = Duration::from_secs(60);

/// Waiters of such clients hardly ever ask by themselves.
fn connect(server: &RedisServer, lease: &str) -> Polylatch {
    let url = format!("{}?poll=20s&provisional=50s&lease={lease}", server.url());
    block_on(Polylatch::connect(&url)).unwrap()
}

#[test]
fn a_waiter_that_has_nothing_pushed_gets_a_kept_lock_at_the_next_renewal() {
    let server = RedisServer::start();
    let (keeper, older) = (connect(&server, "6s"), connect(&server, "60s"));
    let lock = keeper.lock("a").keep_idle(IDLE);
    block_on(block_on(lock.acquire()).unwrap().release()).unwrap();
    // A version that does not know the key leaves it alone; this one finds none.
    assert_eq!(server.command(&["DEL", "polylatch:{a}:kept"]).int(), Some(1));
    let waits = older.lock("a");
    let waiting = thread::spawn(move || block_on(waits.acquire()).unwrap());
    eventually("it is queued", || seen(&keeper, "a").waiters.len() == 1);
    let queued = Instant::now();
    let next = waiting.join().unwrap();
    // A third of the lease, and something for a busy machine.
    assert!(queued.elapsed() < Duration::from_secs(8), "after {:?}", queued.elapsed());
    next.check().unwrap();
    assert!(block_on(lock.try_acquire()).unwrap().is_none());
}

#[test]
fn a_lock_that_is_kept_is_listed_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let keeper = connect(&server, "60s");
    block_on(block_on(keeper.lock("a").keep_idle(IDLE).acquire()).unwrap().release()).unwrap();
    let looks = connect(&server, "60s");
    let listed = block_on(looks.inspect().list(&polylatch::inspect::Query::default())).unwrap();
    assert_eq!(listed.locks.len(), 1, "{listed:?}");
    block_on(keeper.close());
    assert_eq!(server.command(&["EXISTS", "polylatch:{a}:lock"]).int(), Some(0));
    assert_eq!(server.command(&["ZCARD", "polylatch:locks"]).int(), Some(0));
    let left = server.command(&["PTTL", "polylatch:{a}:kept"]).int().unwrap();
    assert!(left == -2 || (1..=60_000).contains(&left), "it ends by itself: {left}");
}
