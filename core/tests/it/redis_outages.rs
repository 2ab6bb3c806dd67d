//! A server that is paused, killed or restarted, and connections that are lost without notice, while locks are held and
//! waited for.

#![cfg(all(feature = "redis", unix))]

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, eventually_within, millis, seen};
use polylatch::{ErrorKind, Guard, LostReason, Polylatch};
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::redis::RedisServer;

const OPTIONS: &str = "poll=50ms&provisional=300ms&timeout=500ms&lease=2s";

fn connect(server: &RedisServer) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{OPTIONS}", server.url()))).unwrap()
}

#[test]
fn a_pause_shorter_than_the_lease_costs_nothing_and_a_longer_one_is_reported_in_time() {
    let server = RedisServer::start();
    let client = connect(&server);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    eventually("it is renewed", || guard.renewals() >= 1);
    server.pause();
    block_on(guard.endangered());
    server.resume();
    let before = guard.renewals();
    eventually("it is renewed again", || guard.renewals() > before);
    guard.check().unwrap();

    server.pause();
    let asked = Instant::now();
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    assert!(asked.elapsed() < millis(2_100), "{:?}", asked.elapsed());
    let asked = Instant::now();
    let error = block_on(client.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(asked.elapsed() < millis(1_500), "{:?}", asked.elapsed());
    server.resume();
    let next = block_on(client.lock("a").wait(millis(5_000)).acquire()).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_server_killed_and_restarted_with_its_data_keeps_holders_and_waiters() {
    let server = RedisServer::builder().append_only().start();
    // As users connect: with polls of 50 ms, a waiter is silent sooner than a busy machine restarts a server.
    let [holder, waiting] = [(); 2].map(|()| block_on(Polylatch::connect(&server.url())).unwrap());
    let guard = block_on(holder.lock("a").lease(millis(4_000)).acquire()).unwrap();
    eventually("it has its full lease", || guard.renewals() >= 1);
    let waiters: Vec<_> = (0..3)
        .map(|number| {
            let lock = waiting.lock("a").label(number.to_string()).wait(millis(20_000));
            let waiter = thread::spawn(move || {
                let guard = block_on(lock.acquire()).unwrap();
                let fence = guard.fencing_token();
                block_on(guard.release()).unwrap();
                fence
            });
            eventually("it waits", || seen(&holder, "a").waiters.len() == number + 1);
            waiter
        })
        .collect();

    let renewals = guard.renewals();
    server.restart_with_data();
    eventually("it is renewed by the new server", || guard.renewals() > renewals);
    guard.check().unwrap();
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "nobody entered");
    // One that has been silent for as long as the server was away is passed over, and keeps its place.
    eventually("all of them are heard again", || {
        let waiters = seen(&holder, "a").waiters;
        waiters.len() == 3 && waiters.iter().all(|waiter| !waiter.silent)
    });
    let freed = Instant::now();
    block_on(guard.release()).unwrap();
    let mut last = guard.fencing_token();
    for waiter in waiters {
        let fence = waiter.join().unwrap();
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    assert!(freed.elapsed() < millis(3_000), "{:?}", freed.elapsed());
}

#[test]
fn a_server_restarted_empty_tells_its_holder_and_fences_go_on_growing() {
    let server = RedisServer::start();
    let client = connect(&server);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let before = Instant::now();
    server.restart_empty();
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
    assert!(before.elapsed() < Duration::from_secs(3), "by its next renewal: {:?}", before.elapsed());
    let next = block_on(client.lock("a").acquire()).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn waiting_goes_on_while_the_server_is_away_and_ends_with_a_typed_error_in_time() {
    let server = RedisServer::builder().append_only().start();
    let client = connect(&server);
    server.kill();
    let asked = Instant::now();
    let error = block_on(client.lock("a").wait(millis(600)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
    assert!(asked.elapsed() >= millis(600) && asked.elapsed() < millis(2_000), "{:?}", asked.elapsed());
    let lock = client.lock("a").wait(millis(20_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    server.start_again();
    waiter.join().unwrap().check().unwrap();
}

#[test]
fn release_and_close_end_in_time_without_a_server() {
    let server = RedisServer::start();
    let client = connect(&server);
    let [one, other] = ["a", "b"].map(|name| block_on(client.lock(name).acquire()).unwrap());
    server.kill();
    let asked = Instant::now();
    let error = block_on(one.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
    assert!(asked.elapsed() < millis(1_500), "{:?}", asked.elapsed());
    let asked = Instant::now();
    block_on(client.close());
    assert!(asked.elapsed() < millis(6_000), "{:?}", asked.elapsed());
    assert!(!other.is_held());
}

/// A client whose connections go through a proxy, with default options but for these, and one with a way of its own.
fn beside_a_proxy(server: &RedisServer, options: &str) -> (Proxy, Polylatch, Polylatch) {
    let proxy = Proxy::start(server.address());
    let hurt = block_on(Polylatch::connect(&format!("{}?{options}", proxy.url()))).unwrap();
    let other = block_on(Polylatch::connect(&format!("{}?{options}", server.url()))).unwrap();
    (proxy, hurt, other)
}

fn waiter(client: &Polylatch, name: &str) -> thread::JoinHandle<(Guard, Instant)> {
    let lock = client.lock(name).wait(Duration::from_secs(120));
    thread::spawn(move || {
        let guard = block_on(lock.acquire()).unwrap();
        (guard, Instant::now())
    })
}

/// The time limit of a request by default.
const TIMEOUT: Duration = Duration::from_secs(3);

#[test]
fn a_dropped_flow_costs_no_lease_and_locks_are_there_again_within_two_time_limits() {
    let server = RedisServer::start();
    let (proxy, hurt, other) = beside_a_proxy(&server, "");
    let kept = block_on(hurt.lock("kept").acquire()).unwrap();
    eventually("it has its full lease", || kept.renewals() >= 1);
    let theirs = block_on(other.lock("handed over").acquire()).unwrap();
    let waiting = waiter(&hurt, "handed over");
    eventually("it waits", || seen(&other, "handed over").waiters.len() == 1);
    // Its first lease ends before a request without an answer does.
    let fresh = block_on(hurt.lock("fresh").acquire()).unwrap();

    proxy.sever_all();
    let severed = Instant::now();
    block_on(theirs.release()).unwrap();
    let new = block_on(hurt.lock("new").wait(3 * TIMEOUT).acquire()).unwrap();
    assert!(severed.elapsed() < 2 * TIMEOUT, "{:?}", severed.elapsed());
    let (handed_over, entered) = waiting.join().unwrap();
    assert!(entered - severed < 2 * TIMEOUT, "{:?}", entered - severed);
    eventually("the first lease is renewed", || fresh.renewals() >= 1 || fresh.check().is_err());
    for guard in [kept, fresh, new, handed_over] {
        guard.check().unwrap();
        block_on(guard.release()).unwrap();
    }
}

#[test]
fn a_renewal_that_arrives_after_a_later_one_shortens_no_lease() {
    let server = RedisServer::start();
    let (proxy, hurt, other) = beside_a_proxy(&server, "");
    // Loads the scripts: a renewal has to be one request.
    block_on(block_on(hurt.lock("a").acquire()).unwrap().release()).unwrap();
    let guard = block_on(hurt.lock("b").acquire()).unwrap();
    // Its first renewal asks for the first lease of 3 s once more and stays on the way. It is repeated on another
    // connection, where later ones ask for the whole lease of 15 s.
    proxy.delay_all();
    let left = || server.command(&["PTTL", "polylatch:{b}:lock"]).int().unwrap();
    eventually("it has its full lease", || left() > 10_000 && guard.remaining() > millis(10_000));
    let carried_out = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let of_scripts =
            stats.text().unwrap().lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        of_scripts.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = carried_out();
    proxy.deliver_late();
    eventually("the old renewal arrives", || carried_out() > before);
    // Both count on what is left: the holder by its own clock, and others on the server's.
    assert!(guard.remaining() > millis(6_000) && left() > 6_000, "{:?} {}", guard.remaining(), left());
    assert!(block_on(other.lock("b").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
}

#[test]
fn a_subscription_whose_flow_was_dropped_is_made_again() {
    let server = RedisServer::start();
    // Polls come so seldom that only a push wakes the waiter.
    let (proxy, hurt, other) = beside_a_proxy(&server, "timeout=1s&poll=20s&provisional=60s&lease=60s");
    let theirs = block_on(other.lock("a").acquire()).unwrap();
    let waiting = waiter(&hurt, "a");
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    let (subscribed, asked) = (proxy.requests_of("SUBSCRIBE"), proxy.requests_of("EVALSHA"));
    proxy.sever_all();
    let severed = Instant::now();
    eventually_within("it subscribes again", millis(15_000), || proxy.requests_of("SUBSCRIBE") > subscribed);
    assert!(severed.elapsed() < millis(6_000), "{:?}", severed.elapsed());
    // Released before the question that follows a subscription, the lock would need no push. Answers of a connection come in the order
    // of its requests, so that this one has been answered too.
    eventually("it has asked again", || proxy.requests_of("EVALSHA") > asked);
    block_on(block_on(hurt.lock("b").acquire()).unwrap().release()).unwrap();
    let released = Instant::now();
    block_on(theirs.release()).unwrap();
    let (guard, entered) = waiting.join().unwrap();
    assert!(entered - released < millis(5_000), "{:?}", entered - released);
    block_on(guard.release()).unwrap();
}

#[test]
fn waiters_poll_at_once_when_their_subscription_is_back() {
    let server = RedisServer::start();
    let (proxy, hurt, other) = beside_a_proxy(&server, "poll=20s&provisional=60s&lease=60s");
    let theirs = block_on(other.lock("a").acquire()).unwrap();
    let waiting = waiter(&hurt, "a");
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    // It asks, queues, and asks once more when it has subscribed. Released before that, the lock would need no push.
    eventually("it has asked again", || proxy.requests_of("EVALSHA") >= 3);
    // Answers of a connection come in the order of its requests, so that one has been answered too.
    block_on(block_on(hurt.lock("b").acquire()).unwrap().release()).unwrap();
    proxy.drop_pushes(1.0);
    block_on(theirs.release()).unwrap();
    eventually("the push is lost", || proxy.pushes_dropped() == 1);
    assert!(!waiting.is_finished());
    let before = Instant::now();
    proxy.reset_all();
    let (guard, entered) = waiting.join().unwrap();
    assert!(entered - before < millis(8_000), "only by its next poll: {:?}", entered - before);
    block_on(guard.release()).unwrap();
}

#[test]
fn a_client_that_is_dropped_while_its_subscription_is_interrupted_leaves_its_callers_alone() {
    static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.to_string().contains("Tokio") {
            PANICS.lock().unwrap().push(panic.to_string());
        }
        before(panic);
    }));
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.address());
        let mut callers = tokio::runtime::Builder::new_multi_thread();
        let callers = callers.worker_threads(2).enable_all().build().unwrap();
        for round in 0..30 {
            proxy.set_refuse(false);
            callers.block_on(async {
                let client = Polylatch::connect(&proxy.url()).await.unwrap();
                let guard = client.lock("a").wait(Duration::from_secs(30)).acquire().await.unwrap();
                client.lock("a").wait(millis(20)).acquire().await.unwrap_err();
                guard.release().await.unwrap();
                proxy.set_refuse(true);
                proxy.reset_all();
                // At another moment of the pause before the next try each time.
                tokio::time::sleep(millis(5 * (round % 8))).await;
                drop(client);
            });
        }
        // The threads of the clients end, and with them what their timers would have woken.
        thread::sleep(millis(500));
        ended.send(()).unwrap();
    });
    let end = end.recv_timeout(Duration::from_secs(60));
    // Not while it is locked: the hook sees the panic of this assertion, too.
    let panics = PANICS.lock().unwrap().clone();
    assert_eq!(panics, Vec::<String>::new());
    end.expect("all rounds end");
}

#[test]
fn a_server_that_hangs_holds_up_no_caller_for_longer_than_its_wait_and_a_second() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    block_on(block_on(client.lock("warm").acquire()).unwrap().release()).unwrap();
    server.pause();
    // By default a request may take 3 s.
    let slack = millis(1_000);
    let asked = Instant::now();
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(asked.elapsed() < millis(1_000) + slack, "{:?}", asked.elapsed());
    let asked = Instant::now();
    block_on(client.lock("a").wait(millis(500)).acquire()).unwrap_err();
    assert!(asked.elapsed() < millis(1_000) + slack, "{:?}", asked.elapsed());
    let asked = Instant::now();
    block_on(client.lock_all(["a", "b"]).try_acquire()).unwrap_err();
    assert!(asked.elapsed() < millis(1_000) + slack, "{:?}", asked.elapsed());
    server.resume();
    drop(block_on(client.lock("a").wait(millis(20_000)).acquire()).unwrap());
}
