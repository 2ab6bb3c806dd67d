//! The table of idempotent work: read when it is opened, with what is stuck first.

use std::time::Duration;

use eframe::egui::Key;
use polylatch::Polylatch;
use polylatch::idempotency::{Begun, RunOptions};
use polylatch_inspector::Args;
use polylatch_test_services::redis::RedisServer;

use super::pilot::Pilot;

#[test]
fn keys_are_read_when_their_table_is_opened_and_stuck_ones_are_explained() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nodes = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let places: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
    let redlock = format!("redlock://{}", places.join(","));
    let mut window =
        Pilot::on_a_store(|file| Args { url: vec![file.to_owned(), redlock], ..Args::default() });
    let client = runtime.block_on(Polylatch::connect(&window.url)).unwrap();
    let scope = client.idempotency("orders/anna");
    let options = RunOptions::new().lease(Duration::from_millis(500));
    let work = |_| async { Ok(b"order 42".to_vec()) };
    runtime.block_on(scope.run("9f1c", &options, work)).unwrap();
    let Begun::Mine(dropped) = runtime.block_on(scope.begin("77aa", &options)).unwrap() else {
        panic!("a new key")
    };
    drop(dropped);
    let state = || runtime.block_on(scope.show("77aa")).unwrap().unwrap().state;
    polylatch_test_services::wait_until("the claim to end", Duration::from_secs(30), || {
        state() == polylatch::idempotency::RecordState::Abandoned
    });

    window.until("the connections", |window| window.says("connection"));
    window.key(Key::Num8);
    window.until_row("77aa in orders/anna, abandoned, CLAIM-ABANDONED");
    assert!(window.rows()[0].starts_with("77aa"), "what needs attention comes first: {:?}", window.rows());
    window.until_row("9f1c in orders/anna, done");
    window.until("the counts", |window| window.says("2 keys") && window.says("1 need attention"));
    window.until("a store without records", |window| window.says("keeps no records of idempotent work"));
    window.click_row("77aa");
    window.until("the explanation", |window| {
        window.says("No answer is stored: host") && window.says("let the work refuse a second effect")
    });
    window.click_row("9f1c");
    window.until("the answer's keep", |window| window.says("Every run gets that answer"));

    // Nothing is read until it is asked for.
    runtime.block_on(scope.run("new", &options, work)).unwrap();
    window.steps(20);
    assert!(!window.says("new in orders/anna"));
    window.key(Key::R);
    window.until_row("new in orders/anna, done");
    window.key(Key::Escape);
    window.until("the locks", |window| !window.says("R reads again"));
}
