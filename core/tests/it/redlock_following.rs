//! What following several nodes costs them, and that nothing is missed.

#![cfg(all(feature = "redis", unix))]

use std::time::Duration;

use pollster::block_on;
use polylatch::Polylatch;
use polylatch::inspect::Query;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn of_each_node_only_what_was_written_is_read_again() {
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let places: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}", places.join(","));
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let watcher = block_on(Polylatch::connect(&url)).unwrap();
    // Longer than the test, so that no renewal comes between.
    let lease = Duration::from_secs(60);
    let take = |name: String| block_on(client.lock(name).lease(lease).renew(false).acquire()).unwrap();
    let mut held: Vec<_> = (0..20).map(|at| take(format!("lock/{at}"))).collect();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut read = || block_on(follower.read()).unwrap();
    let votes = |snapshot: &polylatch::inspect::Snapshot| {
        let votes = snapshot.locks.iter().flat_map(|lock| &lock.votes);
        votes.filter(|vote| vote.owner_digest.is_some()).count()
    };
    wait_until("all votes for all locks", PATIENCE, || votes(&read()) == 60);
    // A node is passed over in a reading that a majority decides before it answers, and read anew then.
    wait_until("two requests a node", PATIENCE, || {
        let snapshot = read();
        snapshot.requests == 6 && votes(&snapshot) == 60
    });
    block_on(held.pop().unwrap().release()).unwrap();
    wait_until("the end of one", PATIENCE, || read().locks.len() == 19);
    held.push(take("another".into()));
    wait_until("the new one", PATIENCE, || votes(&read()) == 60);
    nodes[2].kill();
    wait_until("the silence of a node", PATIENCE, || {
        read().locks.iter().all(|lock| lock.votes.iter().filter(|vote| vote.reached).count() == 2)
    });
    assert_eq!(read().locks.len(), 20);
    nodes[2].start_again();
    block_on(held.pop().unwrap().release()).unwrap();
    wait_until("that the node answers again", PATIENCE, || {
        let snapshot = read();
        snapshot.locks.len() == 19
            && snapshot.locks.iter().all(|lock| lock.votes.iter().all(|vote| vote.reached))
    });
}

#[test]
fn a_renewal_is_seen_on_every_node() {
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let places: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let url = format!("redlock://{}", places.join(","));
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let watcher = block_on(Polylatch::connect(&url)).unwrap();
    let _held = block_on(client.lock("a").lease(Duration::from_secs(3)).acquire()).unwrap();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut renewals = || {
        let snapshot = block_on(follower.read()).unwrap();
        snapshot.locks.first().and_then(|lock| lock.holders.first()?.renewals)
    };
    wait_until("three renewals", PATIENCE, || renewals() >= Some(3));
}
