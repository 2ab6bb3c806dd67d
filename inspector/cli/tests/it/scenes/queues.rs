//! Queues that do not move as they should, and such that only seem so.

use std::time::Duration;

use model::Rule;
use polylatch_test_services::clock::MovableClock;
use polylatch_test_services::proc;
use polylatch_test_services::redis::RedisServer;

use super::stage::Stage;
use super::{client, hold};

/// The key of the lock `x`, as the store shows it.
fn key_of(stage: &Stage) -> String {
    let lock = stage.fleet.lock(&Stage::key("x")).expect("the lock is held");
    lock.details.iter().find(|detail| detail.name == "key").expect("Redis has keys").value.clone()
}

pub fn stale_head() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holding = client(&stage);
    let _guard = hold(&stage, &holding);
    let first = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    let second = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 2);
    // One that is stale behind another one holds up nothing.
    proc::pause_between_writes(second.pid());
    stage.until("the second waiter to be stale", |stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        lock.is_some_and(|lock| lock.waiters.get(1).is_some_and(|waiter| waiter.silent))
    });
    stage.never_shows(&[Rule::DeadHead]);
    proc::pause_between_writes(first.pid());
    stage.shows(Rule::DeadHead);
    assert!(!stage.tells(Rule::Legit));
}

/// The holder's record goes without a release, so no push reaches the waiter, which polls rarely.
pub fn free_beside_a_waiter() {
    let server = RedisServer::start();
    let mut stage = Stage::new(format!("{}?poll=10s&provisional=25s", server.url()));
    let holding = client(&stage);
    let guard = hold(&stage, &holding);
    let mut waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    // A release hands the lock on.
    stage.runtime.block_on(guard.release()).unwrap();
    stage.until_held(1, 0);
    stage.never_shows(&[Rule::LostWake]);
    waiter.kill();
    assert_eq!(server.command(&["DEL", &key_of(&stage)]).error(), None);
    stage.until("nothing", |stage| stage.fleet.lock(&Stage::key("x")).is_none());
    let _guard = hold(&stage, &holding);
    let _waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    assert_eq!(server.command(&["DEL", &key_of(&stage)]).error(), None);
    stage.shows(Rule::LostWake);
}

/// The server's clock runs at two and a half times the speed, so that a minute passes sooner.
pub fn long_wait() {
    let clock = MovableClock::new();
    let server = RedisServer::builder().clock(&clock).start();
    // A waiter's heartbeat comes every 5 s of the machine's clock, and its record lasts for 17.5 s of the server's.
    let mut stage = Stage::new(format!("{}?poll=5s&provisional=15s", server.url()));
    // Without these options the first renewal comes at once.
    let _holder = stage.run(&["--url", &server.url(), "--lease", "10m"]);
    stage.until("a renewal for the whole lease", |stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.remaining_ms > Some(500_000)))
    });
    let _waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    stage.never_shows(&[Rule::LongWait]);
    for step in 1..=24 {
        clock.set_offset_ms(step * 1_500);
        stage.passes(Duration::from_secs(1));
    }
    stage.shows(Rule::LongWait);
}

/// Holders die, and clients that do not queue are there before the waiter asks again.
pub fn starved() {
    let server = RedisServer::start();
    let mut stage = Stage::new(format!("{}?poll=20s&provisional=50s", server.url()));
    // In order, those that came later do not pass.
    let holders = [(); 6].map(|()| stage.run(&["--wait", "10m", "--max-hold", "500ms"]));
    stage.until("all of them in turn", |stage| {
        assert!(!stage.tells(Rule::Starved), "{:?}", stage.findings());
        stage.fleet.lock(&Stage::key("x")).is_none()
    });
    drop(holders);
    let barging = client(&stage);
    let mut guards = vec![hold(&stage, &barging)];
    let _waiter = stage.run(&["--wait", "10m"]);
    stage.until_held(1, 1);
    let key = key_of(&stage);
    for _ in 0..6 {
        assert_eq!(server.command(&["DEL", &key]).error(), None);
        let next = barging.lock("x").lease(Duration::from_secs(60)).fifo(false);
        guards.push(stage.runtime.block_on(next.try_acquire()).unwrap().expect("it is free"));
        let token = guards.last().map(|guard| guard.fencing_token());
        stage.until("the next holder", |stage| {
            let lock = stage.fleet.lock(&Stage::key("x"));
            lock.is_some_and(|lock| lock.holders.first().is_some_and(|holder| holder.fencing_token == token))
        });
    }
    stage.shows(Rule::Starved);
}

/// How long a renewing process is stopped: its renewal comes late, and the lease of 8 s is not lost.
const LATE: Duration = Duration::from_millis(5_200);

pub fn late_renewals() {
    let server = RedisServer::start();
    let mut stage = Stage::new(server.url());
    let holder = stage.run(&["--lease", "8s", "--kill-after", "100ms"]);
    let renewals = |stage: &Stage| {
        let lock = stage.fleet.lock(&Stage::key("x"));
        lock.and_then(|lock| lock.holders.first()?.renewals).unwrap_or(0)
    };
    stage.until("a renewal in time", |stage| renewals(stage) >= 2);
    stage.never_shows(&[Rule::ShortLease]);
    for _ in 0..5 {
        let before = renewals(&stage);
        stage.until("a renewal", |stage| renewals(stage) > before);
        proc::pause_between_writes(holder.pid());
        stage.passes(LATE);
        proc::resume(holder.pid());
    }
    stage.shows(Rule::ShortLease);
}
