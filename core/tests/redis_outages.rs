//! A server that is paused, killed or restarted while locks are held and waited for.

#![cfg(all(feature = "redis", unix))]

mod contract;

use std::thread;
use std::time::{Duration, Instant};

use contract::{block_on, eventually, millis, seen};
use polylatch::{ErrorKind, LostReason, Polylatch};
use polylatch_test_services::redis::RedisServer;

const OPTIONS: &str = "poll=50ms&provisional=300ms&timeout=500ms&lease=2s";

fn connect(server: &RedisServer) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{OPTIONS}", server.url()))).unwrap()
}

#[test]
fn a_pause_shorter_than_the_lease_costs_nothing_and_a_longer_one_is_told_in_time() {
    let server = RedisServer::start();
    let client = connect(&server);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    eventually("it is renewed", || guard.renewals() >= 1);
    server.pause();
    block_on(guard.endangered());
    server.resume();
    let before = guard.renewals();
    eventually("it is renewed again", || guard.renewals() > before);
    guard.check().unwrap();

    server.pause();
    let asked = Instant::now();
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    assert!(asked.elapsed() < millis(2_100), "{:?}", asked.elapsed());
    let asked = Instant::now();
    let error = block_on(client.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(asked.elapsed() < millis(1_500), "{:?}", asked.elapsed());
    server.resume();
    let next = block_on(client.lock("a").wait(millis(5_000)).acquire()).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_server_killed_and_restarted_with_its_data_keeps_holders_and_waiters() {
    let server = RedisServer::builder().append_only().start();
    let [holder, waiting] = [(); 2].map(|()| connect(&server));
    let guard = block_on(holder.lock("a").lease(millis(4_000)).acquire()).unwrap();
    eventually("it has its full lease", || guard.renewals() >= 1);
    let waiters: Vec<_> = (0..3)
        .map(|number| {
            let lock = waiting.lock("a").label(number.to_string()).wait(millis(20_000));
            let waiter = thread::spawn(move || {
                let guard = block_on(lock.acquire()).unwrap();
                let fence = guard.fencing_token();
                block_on(guard.release()).unwrap();
                fence
            });
            eventually("it waits", || seen(&holder, "a").waiters.len() == number + 1);
            waiter
        })
        .collect();

    let renewals = guard.renewals();
    server.restart_with_data();
    eventually("it is renewed by the new server", || guard.renewals() > renewals);
    guard.check().unwrap();
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "nobody entered");
    let freed = Instant::now();
    block_on(guard.release()).unwrap();
    let mut last = guard.fencing_token();
    for waiter in waiters {
        let fence = waiter.join().unwrap();
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    assert!(freed.elapsed() < millis(3_000), "{:?}", freed.elapsed());
}

#[test]
fn a_server_restarted_empty_tells_its_holder_and_fences_go_on_growing() {
    let server = RedisServer::start();
    let client = connect(&server);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let before = Instant::now();
    server.restart_empty();
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
    assert!(before.elapsed() < Duration::from_secs(3), "by its next renewal: {:?}", before.elapsed());
    let next = block_on(client.lock("a").acquire()).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn waiting_goes_on_while_the_server_is_away_and_ends_with_a_typed_error_in_time() {
    let server = RedisServer::builder().append_only().start();
    let client = connect(&server);
    server.kill();
    let asked = Instant::now();
    let error = block_on(client.lock("a").wait(millis(600)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
    assert!(asked.elapsed() >= millis(600) && asked.elapsed() < millis(2_000), "{:?}", asked.elapsed());
    let lock = client.lock("a").wait(millis(20_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    server.start_again();
    waiter.join().unwrap().check().unwrap();
}

#[test]
fn release_and_close_end_in_time_without_a_server() {
    let server = RedisServer::start();
    let client = connect(&server);
    let [one, other] = ["a", "b"].map(|name| block_on(client.lock(name).acquire()).unwrap());
    server.kill();
    let asked = Instant::now();
    let error = block_on(one.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
    assert!(asked.elapsed() < millis(1_500), "{:?}", asked.elapsed());
    let asked = Instant::now();
    block_on(client.close());
    assert!(asked.elapsed() < millis(6_000), "{:?}", asked.elapsed());
    assert!(!other.is_held());
}
