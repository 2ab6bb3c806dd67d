//! What following a Consul costs it, and that nothing is missed.

#![cfg(all(feature = "consul", unix))]

use std::time::Duration;

use pollster::block_on;
use polylatch::Polylatch;
use polylatch::inspect::Query;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn nothing_is_asked_while_nothing_is_written_and_every_change_is_seen() {
    let agent = ConsulAgent::start();
    let client = block_on(Polylatch::connect(&agent.url())).unwrap();
    let watcher = block_on(Polylatch::connect(&agent.url())).unwrap();
    let first = block_on(client.lock("a").acquire()).unwrap();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut read = || block_on(follower.read()).unwrap();
    wait_until("the lock", PATIENCE, || read().locks.len() == 1);
    wait_until("a look without a request", PATIENCE, || read().requests == 0);
    let before = read().locks[0].holders[0].held_for_ms.unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(read().locks[0].holders[0].held_for_ms.unwrap() >= before + 50, "ages go on");

    let second = block_on(client.lock("b").acquire()).unwrap();
    wait_until("the other lock", PATIENCE, || read().locks.len() == 2);
    block_on(second.release()).unwrap();
    wait_until("its end", PATIENCE, || read().locks.len() == 1);
    block_on(first.release()).unwrap();
    wait_until("the end of the first", PATIENCE, || read().locks.is_empty());
}

#[test]
fn an_agent_that_is_gone_is_not_taken_for_one_with_nothing_new() {
    let agent = ConsulAgent::start();
    let client = block_on(Polylatch::connect(&agent.url())).unwrap();
    let watcher = block_on(Polylatch::connect(&format!("{}?timeout=500ms", agent.url()))).unwrap();
    let _held = block_on(client.lock("a").acquire()).unwrap();
    let mut follower = watcher.inspect().follow(Query::default());
    wait_until("a look without a request", PATIENCE, || block_on(follower.read()).unwrap().requests == 0);
    agent.pause();
    wait_until("the failure", PATIENCE, || block_on(follower.read()).is_err());
    agent.resume();
    wait_until("that it is back", PATIENCE, || {
        block_on(follower.read()).is_ok_and(|snapshot| snapshot.backend == "consul")
    });
}
