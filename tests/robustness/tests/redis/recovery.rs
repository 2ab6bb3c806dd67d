//! Holders and waiters that are killed or paused.

use polylatch::blocking::Polylatch;
use polylatch::inspect::Query;
use polylatch_robustness::boot_nanos;
use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::process::SOON;
use polylatch_robustness::scenarios::{self, C, P, SLACK, since};
use polylatch_robustness::stage::Stage;
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

use crate::WORKER;

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let server = RedisServer::start();
    scenario(&Stage::new(WORKER, &server.url(), Evidence::new(None)));
}

fn connect(url: &str) -> Polylatch {
    Polylatch::connect(url).unwrap_or_else(|error| panic!("{error:?}"))
}

polylatch_robustness::scenarios!(on_stage);

#[test]
fn a_process_killed_with_many_waiting_tasks_delays_a_newcomer_by_its_lease_only() {
    on_stage(scenarios::a_process_killed_with_many_waiting_tasks_delays_a_newcomer_by_its_lease_only);
}

#[test]
fn a_dead_waiter_that_still_seems_to_listen_costs_one_first_lease() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let stage = Stage::new(WORKER, &server.url(), Evidence::new(None));
    let dead = stage.worker_at("dead", &proxy.url());
    let [mut holder, mut dead, mut next] = stage.lined_up(dead);
    // A cut cable: the server does not hear that the process is gone.
    proxy.set_hold(Hold::Stall);
    dead.kill();
    let released = boot_nanos();
    holder.order("leave 0");
    assert_eq!(holder.released(), "ok");
    let (_, entered) = next.entered(0, SOON);
    let took = since(released, entered);
    println!("the head of the line was killed behind a cut cable: {took:?}");
    assert!(took <= C + P + SLACK, "{took:?}");
    stage.judge([holder, dead, next]);
}

#[test]
fn a_guard_does_not_say_held_while_closing_its_client_has_let_the_next_one_in() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.url()), connect(&server.url()));
    // Loads the scripts: the release has to be one request.
    client.lock("orders").acquire().expect("it is free").release().expect("it is held");
    let guard = client.lock("orders").acquire().expect("it is free");
    // The release arrives, its answer does not: for a moment only the server knows.
    proxy.set_hold(Hold::StallReplies);
    let closing = std::thread::spawn(move || client.close());
    let next = other.lock("orders").wait(SOON).acquire().expect("closing releases it");
    let (held, next_held) = (guard.is_held(), next.is_held());
    proxy.heal();
    closing.join().expect("closing does not panic");
    assert!(next_held && !held, "both guards of one lock say that they are held");
    assert!(guard.release().is_ok(), "closing has released it");
}

#[test]
fn a_release_that_arrives_twice_leaves_the_next_holder_alone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.url()), connect(&server.url()));
    client.lock("orders").acquire().expect("it is free").release().expect("it is held");
    let guard = client.lock("orders").acquire().expect("it is free");
    let waiting = std::thread::spawn(move || other.lock("orders").wait(SOON).acquire());
    wait_until("a waiter", SOON, || {
        let query = Query { name: Some("orders".into()), ..Query::default() };
        client.list(&query).is_ok_and(|snapshot| snapshot.locks[0].waiters.len() == 1)
    });
    let repeated = proxy.duplicate_request("EVALSHA", 1);
    guard.release().expect("it is held");
    assert!(repeated.has_fired());
    let next = waiting.join().expect("waiting does not panic").expect("it was released");
    // On the same connection, so after the second release.
    assert!(client.lock("orders").try_acquire().expect("Redis answers").is_none());
    assert!(next.is_held());
    next.release().expect("nobody else released it");
}

#[test]
fn a_release_that_arrives_after_its_lease_leaves_the_next_holder_alone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let options = "lease=400ms&provisional=300ms&poll=50ms";
    let client = connect(&format!("{}?{options}", proxy.url()));
    let other = connect(&format!("{}?lease=10s", server.url()));
    client.lock("orders").acquire().expect("it is free").release().expect("it is held");
    let guard = client.lock("orders").acquire().expect("it is free");
    proxy.set_hold(Hold::Stall);
    let releasing = std::thread::spawn(move || guard.release());
    let next = other.lock("orders").wait(SOON).acquire().expect("the lease ends");
    proxy.set_hold(Hold::Off);
    let late = releasing.join().expect("releasing does not panic").expect_err("it came too late");
    assert_eq!(late.code(), "lease_lost", "{late}");
    assert!(client.lock("orders").try_acquire().expect("Redis answers").is_none());
    assert!(next.is_held());
    next.release().expect("nobody else released it");
}
