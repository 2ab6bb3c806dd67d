//! What other programs put into a store, and a server whose clock is wrong.

use model::{Rule, Severity};
use polylatch_test_services::clock::MovableClock;
use polylatch_test_services::redis::RedisServer;

use super::stage::Stage;
use super::{client, hold};

pub fn foreign() {
    let server = RedisServer::start();
    let mut stage = Stage::watching(server.url(), Some("x"));
    let set = server.command(&["SET", "x", "0123456789abcdef0123456789abcdef", "PX", "600000"]);
    assert_eq!(set.error(), None);
    stage.shows(Rule::Foreign);
    stage.never_shows(&[Rule::NoExpiry, Rule::Legit, Rule::RenewalsStopped]);
    assert!(stage.helps().ends_with(" show --foreign x"), "{}", stage.helps());
    assert_eq!(server.command(&["PERSIST", "x"]).error(), None);
    stage.shows(Rule::NoExpiry);
    assert!(!stage.tells(Rule::Legit));
    let told = format!("{:?}", stage.findings());
    assert!(!told.contains("0123456789abcdef"), "the value is that program's secret: {told}");
}

pub fn unreadable() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    let key = stage.fleet.lock(&Stage::key("x")).and_then(|lock| {
        lock.details.iter().find(|detail| detail.name == "key").map(|detail| detail.value.clone())
    });
    let broken = server.command(&["SET", &key.unwrap(), "no record of a lease", "PX", "600000"]);
    assert_eq!(broken.error(), None);
    stage.shows(Rule::Foreign);
    stage.never_shows(&[Rule::Legit, Rule::Free]);
    assert!(stage.helps().contains(" show "), "{}", stage.helps());
}

pub fn clock_step() {
    let clock = MovableClock::new();
    let server = RedisServer::builder().clock(&clock).start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::Clock]);
    clock.set_offset_ms(5_000);
    // It has to last, so it is told somewhat later than other things.
    stage.until("the finding about the clock", |stage| stage.tells(Rule::Clock));
    stage.never_shows(&[Rule::RenewalsStopped, Rule::LateRenewal, Rule::Free, Rule::HolderGone]);
    let told = stage.findings();
    let clock = told.iter().find(|finding| finding.rule == Rule::Clock).unwrap();
    assert!(clock.severity >= Severity::Notice && clock.sentence.contains("ahead of"), "{clock:?}");
}
