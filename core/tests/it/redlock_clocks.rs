//! Nodes whose wall clocks step, or are wrong after a restart.

#![cfg(all(feature = "redis", target_os = "linux"))]

use std::time::{Duration, Instant};

use pollster::block_on;
use polylatch::Polylatch;
use polylatch_test_services::clock::MovableClock;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

const SOON: Duration = Duration::from_secs(60);

fn url_of(nodes: &[RedisServer]) -> String {
    let places: Vec<_> = nodes.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{}", places.join(","))
}

fn connect(nodes: &[RedisServer], options: &str) -> Polylatch {
    let url = format!("{}?{options}", url_of(nodes));
    block_on(Polylatch::connect(&url)).unwrap_or_else(|error| panic!("{error:?}"))
}

fn has_lock(node: &RedisServer, name: &str) -> bool {
    node.try_command(&["EXISTS", &format!("polylatch:{{{name}}}:lock")])
        .is_ok_and(|reply| reply.int() == Some(1))
}

fn clocked() -> (Vec<MovableClock>, Vec<RedisServer>) {
    let clocks: Vec<_> = (0..3).map(|_| MovableClock::new()).collect();
    let nodes = clocks.iter().map(|clock| RedisServer::builder().clock(clock).append_only().start());
    let nodes = nodes.collect();
    (clocks, nodes)
}

#[test]
fn a_node_whose_clock_steps_forward_does_not_vote_until_what_it_dropped_has_ended() {
    let (clocks, nodes) = clocked();
    let options = "max_lease=15s&lease=15s";
    let (holder, other) = (connect(&nodes, options), connect(&nodes, options));
    let warm = block_on(other.lock("b").acquire()).unwrap();
    block_on(warm.release()).unwrap();
    let guard = block_on(holder.lock("a").renew(false).acquire()).unwrap();
    // As if this node had been away from the acquisition; no renewal heals it.
    wait_until("all nodes have it", SOON, || nodes.iter().all(|node| has_lock(node, "a")));
    nodes[2].command(&["DEL", "polylatch:{a}:lock"]);
    // Another one drops it before its time.
    clocks[1].set_offset_ms(20_000);
    let stepped = Instant::now();
    while guard.is_held() && stepped.elapsed() < Duration::from_secs(8) {
        if let Ok(Some(_)) = block_on(other.lock("a").try_acquire()) {
            panic!("two holders {:?} after the step", stepped.elapsed());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(guard.is_held());
    let gate = nodes[1].command(&["GET", "polylatch:redlock:gate"]);
    assert!(gate.text().is_some_and(|gate| !gate.contains("|open|")), "{gate:?}");
}

#[test]
fn a_node_that_restarts_with_a_wrong_clock_is_quarantined_by_the_clients_clock() {
    let (clocks, nodes) = clocked();
    let client = connect(&nodes, "max_lease=10s&lease=10s");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    nodes[0].kill();
    clocks[0].set_offset_ms(-60_000);
    nodes[0].start_again();
    let closed = |gate: Option<&str>| gate.is_some_and(|gate| !gate.contains("|open|"));
    let gate = || nodes[0].command(&["GET", "polylatch:redlock:gate"]).text().map(str::to_owned);
    wait_until("a client has closed it", SOON, || closed(gate().as_deref()));
    let restarted = Instant::now();
    // The clock is set right, which looks like a minute.
    clocks[0].set_offset_ms(0);
    wait_until("it votes", SOON, || !closed(gate().as_deref()));
    assert!(restarted.elapsed() > Duration::from_secs(9), "{:?}", restarted.elapsed());
    guard.check().unwrap();
    drop(guard);
}

#[test]
fn a_step_that_leaves_too_few_votes_is_settled_on_a_thread_without_a_runtime() {
    let clock = MovableClock::new();
    let nodes = [RedisServer::builder().clock(&clock).start()];
    let client = connect(&nodes, "max_lease=3s&lease=3s&provisional=1s&poll=100ms");
    for offset in 1..=3 {
        let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
        block_on(guard.release()).unwrap();
        clock.set_offset_ms(offset * 20_000);
        // The node is closed: its only vote does not count.
        assert!(block_on(client.lock("a").try_acquire()).is_err());
    }
}

#[test]
fn clocks_that_all_move_together_are_this_clients_own() {
    let (clocks, nodes) = clocked();
    let client = connect(&nodes, "max_lease=4s&lease=4s");
    let warm = block_on(client.lock("a").acquire()).unwrap();
    block_on(warm.release()).unwrap();
    clocks.iter().for_each(|clock| clock.set_offset_ms(30_000));
    // Looks come once in a second.
    std::thread::sleep(Duration::from_millis(2_500));
    let guard = block_on(client.lock("a").try_acquire()).unwrap().expect("no node was closed");
    block_on(guard.release()).unwrap();
}
