//! Lost replies, repeated requests, broken connections and silence, done by a proxy in front of a real
//! server: outcomes stay right, and nothing is stuck for longer than a first lease and a poll.

#![cfg(all(feature = "redis", unix))]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, poll_at_most, seen};
use polylatch::{Clock, ErrorKind, Guard, LostReason, Polylatch, SystemClock};
use polylatch_test_services::proxy::{Hold, Pattern, Proxy};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::{Reply, wait_until};

/// First lease, poll interval, and what a busy machine may add.
const FIRST: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(50);
const SLACK: Duration = Duration::from_millis(400);
const OPTIONS: &str = "poll=50ms&provisional=300ms&timeout=1s&lease=900ms";
/// Where a fault must not cost a lease: its renewals may come late on a busy machine, and one of them is lost.
const STEADY_FIRST: Duration = Duration::from_secs(3);
const STEADY: &str = "poll=50ms&provisional=3s&timeout=1s&lease=9s";

/// A server, one client behind a proxy, and one with a way of its own.
struct Scene {
    server: RedisServer,
    proxy: Proxy,
    hurt: Polylatch,
    other: Polylatch,
}

fn connect(url: &str, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{url}?{options}"))).unwrap_or_else(|error| panic!("{error:?}"))
}

fn scene() -> Scene {
    scene_with(OPTIONS)
}

fn scene_with(options: &str) -> Scene {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let hurt = connect(&proxy.url(), options);
    let other = connect(&server.url(), options);
    Scene { server, proxy, hurt, other }
}

impl Scene {
    /// Lets every script pass through the proxy once, so that it knows them by their text.
    fn warmed_up() -> Self {
        Self::warmed(scene())
    }

    /// With leases that a fault does not cost.
    fn steady() -> Self {
        Self::warmed(scene_with(STEADY))
    }

    fn warmed(scene: Self) -> Self {
        let guard = block_on(scene.hurt.lock("warm").acquire()).unwrap();
        eventually("it is renewed", || guard.renewals() >= 1);
        block_on(scene.hurt.lock("warm").wait(millis(20)).acquire()).unwrap_err();
        block_on(guard.release()).unwrap();
        drop(block_on(scene.hurt.lock_all(["warm", "warmer"]).acquire()).unwrap());
        scene
    }

    fn is_free(&self, name: &str) -> bool {
        self.server.command(&["EXISTS", &format!("polylatch:{{{name}}}:lock")]) == Reply::Int(0)
    }

    fn nobody_waits(&self, name: &str) -> bool {
        self.server.command(&["EXISTS", &format!("polylatch:{{{name}}}:line")]) == Reply::Int(0)
    }
}

/// Parts of the scripts' texts by which the proxy knows them.
const VERBS: [&str; 5] = [
    "-- Acquire, confirm",
    "-- Takes several locks",
    "-- Extends leases",
    "-- Frees the lock",
    "-- Leaves the line",
];

/// Acquires and gives back, waits and gives up, so that every verb is used; the lock must be right.
fn use_all_verbs(scene: &Scene) {
    let guard = block_on(scene.hurt.lock("a").wait(millis(20_000)).acquire()).unwrap();
    assert!(block_on(scene.other.lock("a").try_acquire()).unwrap().is_none(), "it is held");
    let before = guard.renewals();
    eventually("it is renewed", || guard.renewals() > before);
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    let theirs = block_on(scene.other.lock("a").wait(millis(20_000)).acquire()).unwrap();
    let error = block_on(scene.hurt.lock("a").wait(millis(120)).acquire()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WaitTimeout | ErrorKind::BackendUnavailable), "{error:?}");
    theirs.check().unwrap();
    let fence = theirs.fencing_token();
    block_on(theirs.release()).unwrap();
    let started = Instant::now();
    let next = block_on(scene.other.lock("a").wait(millis(20_000)).acquire()).unwrap();
    assert!(started.elapsed() < STEADY_FIRST + POLL + SLACK, "stuck for {:?}", started.elapsed());
    assert!(next.fencing_token() > fence);
    block_on(next.release()).unwrap();
    eventually("nobody is left in line", || scene.nobody_waits("a"));
    let all = block_on(scene.hurt.lock_all(["a", "b"]).wait(millis(20_000)).acquire()).unwrap();
    assert!(block_on(scene.other.lock_all(["b", "c"]).try_acquire()).unwrap().is_none(), "one is held");
    all.check().unwrap();
    block_on(all.release()).unwrap();
    eventually("all are free", || ["a", "b", "c"].iter().all(|name| scene.is_free(name)));
}

#[test]
fn a_lost_reply_of_any_verb_changes_no_outcome() {
    let scene = Scene::steady();
    for verb in VERBS {
        for nth in 1..=2 {
            let fault = scene.proxy.drop_reply(Pattern::script(verb), nth);
            while !fault.has_fired() {
                use_all_verbs(&scene);
            }
            use_all_verbs(&scene);
        }
    }
}

#[test]
fn a_lost_request_of_any_verb_changes_no_outcome() {
    let scene = Scene::steady();
    for verb in VERBS {
        for nth in 1..=2 {
            let fault = scene.proxy.drop_request(Pattern::script(verb), nth);
            while !fault.has_fired() {
                use_all_verbs(&scene);
            }
        }
    }
}

#[test]
fn a_repeated_request_of_any_verb_changes_no_outcome() {
    let scene = Scene::steady();
    for verb in VERBS {
        let fault = scene.proxy.duplicate_request(Pattern::script(verb), 1);
        while !fault.has_fired() {
            use_all_verbs(&scene);
        }
    }
}

#[test]
fn broken_connections_cost_no_lock_and_no_place_in_the_queue() {
    // With the polls that a client has by itself: whoever says nothing for a few polls leaves the queue.
    let scene = Scene::warmed(scene_with("provisional=3s&timeout=1s&lease=9s"));
    let held = block_on(scene.hurt.lock("held").acquire()).unwrap();
    let blocking = block_on(scene.other.lock("wanted").acquire()).unwrap();
    let lock = scene.hurt.lock("wanted").wait(millis(120_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&scene.other, "wanted").waiters.len() == 1);
    let late = scene.other.lock("wanted").wait(millis(120_000));
    let late = thread::spawn(move || block_on(late.acquire()).unwrap());
    eventually("another one stands behind it", || seen(&scene.other, "wanted").waiters.len() == 2);
    for _ in 0..20 {
        let before = held.renewals();
        scene.proxy.reset_all();
        if before.is_multiple_of(4) {
            eventually("it is renewed", || held.renewals() > before);
        }
        assert_eq!(seen(&scene.other, "wanted").waiters.len(), 2);
    }
    held.check().unwrap();
    // Who does not listen at the moment of the hand-off is passed over, and served by a later one.
    // The server counts a broken connection until it has looked at it, which it has before it answers twice.
    for _ in 0..2 {
        scene.server.command(&["PING"]);
    }
    let channels = || scene.server.command(&["PUBSUB", "CHANNELS", "polylatch:inbox:*"]).items().len();
    eventually("both clients listen again", || channels() == 2);
    block_on(blocking.release()).unwrap();
    let first = waiter.join().unwrap();
    assert!(!late.is_finished(), "the one that came first kept its place");
    block_on(first.release()).unwrap();
    block_on(late.join().unwrap().release()).unwrap();
    block_on(held.release()).unwrap();
}

/// Hands one lock from client to client; returns the longest that a free lock was in nobody's hands.
fn longest_gap(scene: &Scene, rounds: usize) -> Duration {
    let (tell, told) = mpsc::channel();
    let mut guard = Some(block_on(scene.other.lock("a").acquire()).unwrap());
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let (lock, tell) = (scene.hurt.lock("a").wait(millis(20_000)), tell.clone());
        let waiter = thread::spawn(move || {
            let guard = block_on(lock.acquire()).unwrap();
            tell.send((Instant::now(), guard)).unwrap();
        });
        eventually("it waits", || seen(&scene.other, "a").waiters.len() == 1);
        let freed = Instant::now();
        block_on(guard.take().unwrap().release()).unwrap();
        let (entered, next) = told.recv_timeout(Duration::from_secs(10)).unwrap();
        longest = longest.max(entered - freed);
        waiter.join().unwrap();
        guard = Some(next);
    }
    longest
}

#[test]
fn without_any_push_every_hand_off_happens_within_a_poll() {
    let scene = Scene::warmed_up();
    scene.proxy.drop_pushes(1.0);
    let gap = longest_gap(&scene, 50);
    assert!(gap < POLL + Duration::from_millis(150), "{gap:?}");
    assert!(scene.proxy.pushes_dropped() >= 40, "{}", scene.proxy.pushes_dropped());
}

#[test]
fn a_reset_subscription_comes_back_and_meanwhile_waiters_poll() {
    let scene = Scene::warmed_up();
    for _ in 0..5 {
        let gap = longest_gap(&scene, 2);
        assert!(gap < FIRST + POLL + SLACK, "{gap:?}");
        let channels = || scene.server.command(&["PUBSUB", "CHANNELS", "polylatch:inbox:*"]).items().len();
        let before = channels();
        assert!(scene.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int().unwrap() >= 1);
        eventually("all listen again", || channels() == before);
    }
}

fn told_in_time(guard: &Guard) {
    let valid_until = guard.valid_until();
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    let late = SystemClock.now().since(valid_until);
    assert!(late < millis(100), "told {late:?} after the deadline");
}

#[test]
fn a_silent_server_endangers_and_then_ends_a_lease_by_its_own_clock() {
    for hold in [Hold::Stall, Hold::Swallow, Hold::StallReplies] {
        let scene = Scene::warmed_up();
        let guard = block_on(scene.hurt.lock("a").acquire()).unwrap();
        eventually("it is renewed", || guard.renewals() >= 1);
        scene.proxy.set_hold(hold);
        block_on(guard.endangered());
        assert!(guard.is_held(), "{hold:?}: the warning comes while there is time to act");
        guard.check().unwrap();
        told_in_time(&guard);
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(guard.remaining(), Duration::ZERO);
        // It never comes back, whatever the server says later.
        scene.proxy.heal();
        block_on(scene.hurt.lock("a").wait(millis(5_000)).acquire()).unwrap().check().unwrap();
        assert!(!guard.is_held());
    }
}

#[test]
fn a_silence_shorter_than_the_lease_costs_nothing() {
    let scene = Scene::warmed_up();
    let guard = block_on(scene.hurt.lock("a").acquire()).unwrap();
    for hold in [Hold::Stall, Hold::Swallow, Hold::StallReplies] {
        let before = guard.renewals();
        eventually("it is renewed", || guard.renewals() > before);
        scene.proxy.set_hold(hold);
        block_on(guard.endangered());
        scene.proxy.heal();
        let before = guard.renewals();
        eventually("it is renewed again", || guard.renewals() > before);
        guard.check().unwrap();
    }
}

#[test]
fn a_connection_that_hangs_during_the_first_lease_does_not_cost_the_lock() {
    let scene = Scene::warmed(scene_with("poll=50ms&provisional=3s&timeout=3s&lease=15s"));
    let guard = block_on(scene.hurt.lock("a").acquire()).unwrap();
    // The renewal that lists the lock asks for the first lease once more.
    eventually("it is listed", || guard.renewals() == 1);
    assert!(guard.remaining() <= STEADY_FIRST, "{:?}", guard.remaining());
    // The connections that there are hang for good. New ones are answered.
    scene.proxy.sever_all();
    wait_until("the full lease", STEADY_FIRST + SLACK, || guard.renewals() == 2 || !guard.is_held());
    guard.check().unwrap();
    assert!(guard.remaining() > STEADY_FIRST, "{:?}", guard.remaining());
    block_on(guard.release()).unwrap();
}

#[test]
fn a_release_that_is_not_answered_is_reported_in_time_and_finished_later() {
    for hold in [Hold::Stall, Hold::Swallow, Hold::StallReplies] {
        let scene = Scene::warmed_up();
        let guard = block_on(scene.hurt.lock("a").lease(millis(10_000)).acquire()).unwrap();
        eventually("it has its full lease", || guard.renewals() >= 1);
        scene.proxy.set_hold(hold);
        let started = Instant::now();
        let error = block_on(guard.release()).unwrap_err();
        let took = started.elapsed();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{hold:?}: {error:?}");
        assert!(took < millis(2_500), "{hold:?}: the time limit is one second, and it took {took:?}");
        let healed = Instant::now();
        scene.proxy.heal();
        wait_until("the background to finish the release", millis(4_000), || scene.is_free("a"));
        assert!(healed.elapsed() < millis(3_000), "{hold:?}: {:?}", healed.elapsed());
    }
}

#[test]
fn an_acquisition_cancelled_during_silence_leaves_no_orphan() {
    for hold in [Hold::Stall, Hold::Swallow, Hold::StallReplies] {
        for waits in [false, true] {
            let scene = Scene::warmed_up();
            scene.proxy.set_hold(hold);
            let lock = scene.hurt.lock("a");
            match waits {
                true => drop(poll_at_most(3, lock.acquire())),
                false => drop(poll_at_most(3, lock.try_acquire())),
            }
            let healed = Instant::now();
            scene.proxy.heal();
            // Carried out late or not at all: a first lease later at most it is gone.
            let next = block_on(scene.other.lock("a").wait(millis(5_000)).acquire()).unwrap();
            assert!(healed.elapsed() < FIRST + POLL + SLACK, "{hold:?} {waits}: {:?}", healed.elapsed());
            block_on(next.release()).unwrap();
            wait_until("both line and lock to be empty", millis(5_000), || {
                scene.is_free("a") && scene.nobody_waits("a")
            });
        }
    }
}

#[test]
fn a_request_carried_out_long_after_its_client_is_gone_blocks_for_one_first_lease_at_most() {
    let scene = Scene::warmed_up();
    scene.server.pause();
    let lock = scene.other.lock("a").lease(millis(20_000));
    drop(poll_at_most(2, lock.try_acquire()));
    let resumed = Instant::now();
    scene.server.resume();
    let next = block_on(scene.hurt.lock("a").wait(millis(10_000)).acquire()).unwrap();
    assert!(resumed.elapsed() < FIRST + POLL + SLACK, "{:?}", resumed.elapsed());
    next.check().unwrap();
}
