//! Lost replies, late requests and broken connections, done by a proxy in front of a real agent.

#![cfg(all(feature = "consul", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, poll_at_most, seen};
use polylatch::{ErrorKind, LostReason, Polylatch};
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::proxy::{Hold, Proxy};

const OPTIONS: &str = "prefix=faults&session_ttl_min=100ms&lock_delay=0s&poll=50ms&timeout=1s&lease=15s";
const HOLDS: [Hold; 3] = [Hold::Stall, Hold::StallReplies, Hold::Swallow];

/// An agent, one client behind a proxy, and one with a way of its own.
struct Scene {
    agent: ConsulAgent,
    proxy: Proxy,
    hurt: Polylatch,
    other: Polylatch,
}

fn scene() -> Scene {
    let agent = ConsulAgent::start();
    let proxy = Proxy::start_raw(agent.address());
    let connect = |url: String| block_on(Polylatch::connect(&format!("{url}?{OPTIONS}"))).unwrap();
    let hurt = connect(agent.url_through(proxy.address()));
    let other = connect(agent.url());
    Scene { agent, proxy, hurt, other }
}

/// Nothing of the hurt client is left at this lock: it is free long before a lease has ended.
#[track_caller]
fn expect_free(scene: &Scene, name: &str, what: &str) {
    let started = Instant::now();
    let lock = scene.other.lock(name).wait(millis(12_000));
    let guard = block_on(lock.acquire()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(started.elapsed() < millis(8_000), "{what}: an orphan was waited out: {:?}", started.elapsed());
    block_on(guard.release()).unwrap();
    eventually("the line is empty", || seen(&scene.other, name).waiters.is_empty());
}

#[test]
fn an_acquisition_whose_reply_is_lost_is_asked_again() {
    let scene = scene();
    for (round, hold) in HOLDS.into_iter().enumerate() {
        let name = format!("acquire-{round}");
        scene.proxy.set_hold(hold);
        let lock = scene.hurt.lock(&name).wait(millis(20_000));
        let acquiring = thread::spawn(move || block_on(lock.acquire()));
        thread::sleep(millis(1_800));
        scene.proxy.set_hold(Hold::Off);
        let guard = acquiring.join().unwrap().unwrap_or_else(|error| panic!("{hold:?}: {error}"));
        assert!(block_on(scene.other.lock(&name).try_acquire()).unwrap().is_none());
        assert_eq!(seen(&scene.other, &name).holders[0].fencing_token, Some(guard.fencing_token()));
        block_on(guard.release()).unwrap();
        expect_free(&scene, &name, "after the release");
    }
}

#[test]
fn what_arrives_after_it_was_given_up_has_no_effect() {
    let scene = scene();
    // So that a session is there, and the lock's own requests are the ones that are late.
    block_on(block_on(scene.hurt.lock("first").acquire()).unwrap().release()).unwrap();
    for (round, hold) in HOLDS.into_iter().enumerate() {
        for times in 1..=3 {
            let name = format!("late-{round}-{times}");
            scene.proxy.set_hold(hold);
            let lock = scene.hurt.lock(&name).wait(millis(20_000));
            assert!(poll_at_most(times, lock.acquire()).is_none());
            thread::sleep(millis(1_300));
            scene.proxy.set_hold(Hold::Off);
            expect_free(&scene, &name, &format!("{hold:?} after {times} polls"));
            eventually("nobody holds it", || seen(&scene.other, &name).holders.is_empty());
        }
    }
    // The session has outlived all that.
    let guard = block_on(scene.hurt.lock("last").wait(millis(10_000)).acquire()).unwrap();
    guard.check().unwrap();
}

#[test]
fn a_waiter_that_gives_up_while_no_server_answers_leaves_the_queue() {
    let scene = scene();
    let held = block_on(scene.other.lock("a").acquire()).unwrap();
    for hold in HOLDS {
        let lock = scene.hurt.lock("a").wait(millis(2_500));
        let waiting = thread::spawn(move || block_on(lock.acquire()));
        eventually("it waits", || seen(&scene.other, "a").waiters.len() == 1);
        scene.proxy.set_hold(hold);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::WaitTimeout | ErrorKind::BackendUnavailable),
            "{hold:?}: {error}"
        );
        thread::sleep(millis(300));
        scene.proxy.set_hold(Hold::Off);
        eventually("it has left", || seen(&scene.other, "a").waiters.is_empty());
    }
    held.check().unwrap();
}

#[test]
fn a_release_whose_reply_is_lost_still_frees_the_lock() {
    let scene = scene();
    for (round, hold) in HOLDS.into_iter().enumerate() {
        let name = format!("release-{round}");
        let guard = block_on(scene.hurt.lock(&name).wait(millis(10_000)).acquire()).unwrap();
        scene.proxy.set_hold(hold);
        let releasing = thread::spawn(move || (block_on(guard.release()), guard));
        thread::sleep(millis(1_500));
        scene.proxy.set_hold(Hold::Off);
        let (_, guard) = releasing.join().unwrap();
        assert!(!guard.is_held());
        expect_free(&scene, &name, &format!("{hold:?}"));
    }
}

/// How many connections to an address this host has open at its own side: `/proc/net/tcp`, state 01.
#[cfg(target_os = "linux")]
fn open_connections_to(address: std::net::SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let open = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|to| to.ends_with(&port)) && words.next() == Some("01")
    };
    table.lines().filter(open).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_closed_client_leaves_no_connection_behind() {
    let scene = scene();
    let guard = block_on(scene.hurt.lock("a").acquire()).unwrap();
    let details = seen(&scene.other, "a").holders.remove(0).details;
    let session = &details.iter().find(|detail| detail.name == "session").unwrap().value;
    // With its session everything of it goes, so closing changes nothing that its requests wait for.
    scene.agent.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
    let open = || open_connections_to(scene.proxy.address());
    assert!(open() > 0);
    block_on(scene.hurt.close());
    eventually("no connection is left", || open() == 0);
}

#[test]
fn locks_and_places_in_the_queue_outlast_broken_connections() {
    let scene = scene();
    let mine = block_on(scene.hurt.lock("mine").acquire()).unwrap();
    let theirs = block_on(scene.other.lock("theirs").acquire()).unwrap();
    let lock = scene.hurt.lock("theirs").wait(millis(30_000));
    let waiting = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&scene.other, "theirs").waiters.len() == 1);
    for _ in 0..10 {
        scene.proxy.reset_all();
        thread::sleep(millis(50));
        mine.check().unwrap();
    }
    let started = Instant::now();
    block_on(theirs.release()).unwrap();
    let entered = waiting.join().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    entered.check().unwrap();
    block_on(mine.release()).unwrap();
}

/// A process with many waiters died: the next live waiter has the lock when their session has ended.
#[test]
fn dead_waiters_hold_the_next_one_up_for_no_longer_than_their_session() {
    let agent = ConsulAgent::start();
    let options = "session_ttl_min=100ms&lock_delay=0s";
    let ttl = millis(3_000);
    let free = &|dead: usize| {
        let proxy = Proxy::start_raw(agent.address());
        let connect = |url: String| {
            block_on(Polylatch::connect(&format!("{url}?prefix=dead-{dead}&{options}"))).unwrap()
        };
        let dying = connect(agent.url_through(proxy.address()));
        let (holder, live) = (connect(agent.url()), connect(agent.url()));
        let guard = block_on(holder.lock("a").acquire()).unwrap();
        for _ in 0..dead {
            let lock = dying.lock("a").lease(ttl).wait(millis(60_000));
            thread::spawn(move || drop(block_on(lock.acquire())));
        }
        crate::contract::eventually_within("they wait", Duration::from_secs(30), || {
            seen(&holder, "a").waiters.len() == dead
        });
        let lock = live.lock("a").wait(millis(60_000));
        let waiting = thread::spawn(move || (block_on(lock.acquire()).unwrap(), Instant::now()));
        eventually("it waits behind them", || seen(&holder, "a").waiters.len() == dead + 1);
        proxy.set_hold(Hold::Swallow);
        let released = Instant::now();
        block_on(guard.release()).unwrap();
        let (next, entered) = waiting.join().unwrap();
        assert_eq!(seen(&holder, "a").holders[0].client.as_ref(), Some(live.id()));
        block_on(next.release()).unwrap();
        entered - released
    };
    thread::scope(|scope| {
        let runs = [4, 20, 200].map(|dead| (dead, scope.spawn(move || free(dead))));
        for (dead, run) in runs {
            let took = run.join().unwrap();
            println!("{dead} dead waiters: {took:?}");
            // The servers keep a dead session for up to twice its TTL; and time for a busy machine.
            assert!(took < 2 * ttl + millis(2_000 + 2_000), "{dead} dead waiters: {took:?}");
        }
    });
}
