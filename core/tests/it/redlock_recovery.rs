//! Nodes that lose their data, come back or are put right: who may enter meanwhile, and what heals.

#![cfg(all(feature = "redis", unix))]

use std::time::{Duration, Instant};

use pollster::block_on;
use polylatch::inspect::Holds;
use polylatch::{FenceQuality, Polylatch};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

const SOON: Duration = Duration::from_secs(30);

fn start(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

fn connect(nodes: &[RedisServer], options: &str) -> Polylatch {
    let places: Vec<_> = nodes.iter().map(|server| server.address().to_string()).collect();
    let url = format!("redlock://{}?{options}", places.join(","));
    block_on(Polylatch::connect(&url)).unwrap_or_else(|error| panic!("{error:?}"))
}

fn has_lock(node: &RedisServer) -> bool {
    node.try_command(&["EXISTS", "polylatch:{a}:lock"]).is_ok_and(|reply| reply.int() == Some(1))
}

#[test]
fn a_healed_node_keeps_the_lease_from_one_renewal_to_the_next_with_default_options() {
    let nodes = start(3);
    let client = connect(&nodes, "");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("the lease has its full length", SOON, || guard.renewals() >= 1);
    nodes[0].restart_empty();
    wait_until("the node has the lease again", SOON, || has_lock(&nodes[0]));
    // Two renewals, 5 s apart, and the pauses between.
    let end = Instant::now() + Duration::from_millis(10_500);
    while Instant::now() < end {
        assert!(has_lock(&nodes[0]), "the holder stands on a bare majority again");
        std::thread::sleep(Duration::from_millis(20));
    }
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
}

#[test]
fn a_node_that_was_away_gets_the_lease_before_the_next_renewal() {
    let nodes = start(3);
    let client = connect(&nodes, "lease=60s");
    // A new store begins at once only while all nodes answer.
    let warm = block_on(client.lock("b").acquire()).unwrap();
    block_on(warm.release()).unwrap();
    nodes[2].kill();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("the lease has its full length", SOON, || guard.renewals() == 1);
    nodes[2].start_again();
    wait_until("the node has the lease", Duration::from_secs(15), || has_lock(&nodes[2]));
    // The next one comes after 20 s.
    assert_eq!(guard.renewals(), 1);
    block_on(guard.release()).unwrap();
    wait_until("no node has it", SOON, || !nodes.iter().any(has_lock));
}

#[test]
fn a_node_in_quarantine_gets_a_lease_that_is_never_renewed() {
    let nodes = start(3);
    let client = connect(&nodes, "");
    let warm = block_on(client.lock("b").acquire()).unwrap();
    nodes[2].restart_empty();
    let guard = block_on(client.lock("a").renew(false).acquire()).unwrap();
    wait_until("the node has the lease", Duration::from_secs(10), || has_lock(&nodes[2]));
    guard.check().unwrap();
    let gate = nodes[2].command(&["GET", "polylatch:redlock:gate"]);
    assert!(gate.text().is_none_or(|gate| !gate.contains("|open|")), "{gate:?}");
    block_on(guard.release()).unwrap();
    wait_until("no node has it", SOON, || !nodes.iter().any(has_lock));
    block_on(warm.release()).unwrap();
}

#[test]
fn a_guard_says_what_its_own_token_is_worth() {
    let nodes = start(3);
    let client = connect(&nodes, "max_lease=3s&lease=3s&provisional=1s&poll=100ms");
    let before = block_on(client.lock("a").acquire()).unwrap();
    assert_eq!(before.fence_quality(), FenceQuality::Strict);
    let order = || {
        let examination = block_on(client.inspect().examine()).unwrap();
        examination.promises.iter().find(|promise| promise.id == "fencing-order").unwrap().holds
    };
    assert_eq!(order(), Holds::Yes);
    nodes.iter().for_each(RedisServer::restart_empty);
    let after = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
    assert_eq!(after.fence_quality(), FenceQuality::TimeFloored, "no node knew the largest token");
    assert_eq!(before.fence_quality(), FenceQuality::Strict);
    assert_eq!(order(), Holds::No);
    block_on(after.release()).unwrap();
}

#[test]
fn a_client_that_saw_the_store_in_use_does_not_take_it_for_new_when_all_nodes_lose_their_data() {
    let nodes = start(3);
    let (holder, other) = (connect(&nodes, "max_lease=15s"), connect(&nodes, "max_lease=15s"));
    let guard = block_on(holder.lock("a").renew(false).acquire()).unwrap();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    nodes.iter().for_each(RedisServer::restart_empty);
    let restarted = Instant::now();
    let next = block_on(other.lock("a").wait(SOON).acquire()).unwrap();
    assert!(!guard.is_held(), "two holders after {:?}", restarted.elapsed());
    assert!(restarted.elapsed() > Duration::from_secs(14), "{:?}", restarted.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_node_that_was_a_replica_takes_part_when_that_is_fixed() {
    let mut nodes = start(2);
    let replica = RedisServer::builder().replica_of(nodes[0].address()).start();
    replica.kill();
    nodes.push(replica);
    let client = connect(&nodes, "max_lease=3s&lease=3s&provisional=1s&poll=100ms");
    let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
    block_on(guard.release()).unwrap();
    nodes[2].start_again();
    wait_until("it is known for a replica", SOON, || {
        let examination = block_on(client.inspect().examine()).unwrap();
        examination.finding("node").is_some_and(|finding| finding.detail.contains("is a replica"))
    });
    nodes[2].command(&["REPLICAOF", "NO", "ONE"]);
    wait_until("it votes", SOON, || {
        let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let voted = has_lock(&nodes[2]);
        block_on(guard.release()).unwrap();
        voted
    });
}

#[test]
fn a_release_reaches_a_node_that_was_away() {
    let mut nodes = start(2);
    nodes.push(RedisServer::builder().append_only().start());
    let client = connect(&nodes, "max_lease=10m&lease=5m");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("all nodes have the full lease", SOON, || {
        nodes
            .iter()
            .all(|node| node.command(&["PTTL", "polylatch:{a}:lock"]).int().is_some_and(|left| left > 10_000))
    });
    nodes[2].kill();
    block_on(guard.release()).unwrap();
    nodes[2].start_again();
    assert!(has_lock(&nodes[2]), "it kept its data");
    wait_until("the release was sent again", SOON, || !has_lock(&nodes[2]));
}

#[test]
fn a_late_early_renewal_does_not_shorten_a_lease() {
    let nodes = start(1);
    let client = connect(&nodes, "");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let key = "polylatch:{a}:lock";
    // Longer than any renewal asks for.
    assert_eq!(nodes[0].command(&["PEXPIRE", key, "50000"]).int(), Some(1));
    wait_until("it was renewed", SOON, || guard.renewals() >= 1);
    let left = nodes[0].command(&["PTTL", key]).int().unwrap();
    assert!(left > 30_000, "{left}");
}

#[test]
fn a_majority_that_is_away_leaves_the_rest_visible() {
    let nodes = start(3);
    let client = connect(&nodes, "");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("all nodes have it", SOON, || nodes.iter().all(has_lock));
    nodes[0].kill();
    nodes[1].kill();
    let places: Vec<_> = nodes.iter().map(|server| server.address().to_string()).collect();
    let url = format!("redlock://{}", places.join(","));
    let looker = block_on(Polylatch::builder().url(&url).connect_to_look()).unwrap();
    let snapshot = block_on(looker.inspect().list(&polylatch::inspect::Query::default())).unwrap();
    assert_eq!(snapshot.locks.len(), 1, "{snapshot:?}");
    let reached: Vec<_> = snapshot.locks[0].votes.iter().map(|vote| vote.reached).collect();
    assert_eq!(reached, [false, false, true]);
    let (_, examination) = block_on(Polylatch::builder().url(&url).examine()).unwrap();
    assert!(examination.finding("nodes").unwrap().severity.needs_action());
    drop(guard);
}
