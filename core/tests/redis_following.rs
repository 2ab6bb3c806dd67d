//! What following a Redis costs it.

#![cfg(all(feature = "redis", unix))]

use std::time::Duration;

use pollster::block_on;
use polylatch::Polylatch;
use polylatch::inspect::Query;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

#[test]
fn only_what_was_written_is_read_again() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let watcher = block_on(Polylatch::connect(&server.url())).unwrap();
    // Longer than the test, so that no renewal comes between.
    let lease = Duration::from_secs(60);
    let take = |name: String| block_on(client.lock(name).lease(lease).renew(false).acquire()).unwrap();
    let mut held: Vec<_> = (0..50).map(|at| take(format!("lock/{at}"))).collect();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut read = || {
        let snapshot = block_on(follower.read()).unwrap();
        (snapshot.locks.len(), snapshot.requests)
    };
    wait_until("all to be listed", Duration::from_secs(20), || read().0 == 50);
    assert_eq!(read(), (50, 2), "a page of the index and the clients");
    block_on(held.pop().unwrap().release()).unwrap();
    held.push(take("another".into()));
    wait_until("the new one", Duration::from_secs(20), || read() == (50, 3));
    assert_eq!(read(), (50, 2));
}
