//! `guarantee=strict`: what it refuses, and that no restart lets two holders meet.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis};
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

/// How long a store stays closed after a restart in these tests.
const CLOSED: Duration = Duration::from_millis(1_500);
const STRICT: &str = "guarantee=strict&max_lease=1500ms&lease=1500ms&provisional=600ms&poll=100ms";

fn connect(url: &str) -> Result<Polylatch, Error> {
    block_on(Polylatch::connect(url))
}

fn strict(server: &RedisServer) -> Polylatch {
    connect(&format!("{}?{STRICT}", server.url())).unwrap()
}

#[track_caller]
fn refused(url: &str, part: &str) {
    let error = connect(url).expect_err(url);
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error:?}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn an_evicting_server_is_refused_with_the_setting_that_helps() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = RedisServer::builder().max_memory("64mb", policy).start();
        refused(&format!("{}?{STRICT}", server.url()), "set maxmemory-policy noeviction");
        connect(&server.url()).unwrap();
        assert!(server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).is_ok());
        strict(&server);
    }
}

#[test]
fn replicas_that_no_grant_waits_for_are_refused() {
    let master = RedisServer::start();
    let _replica = RedisServer::builder().replica_of(master.address()).start();
    let connected =
        || master.command(&["INFO", "replication"]).text().unwrap().contains("connected_slaves:1");
    wait_until("the replica to connect", millis(10_000), connected);
    refused(&format!("{}?{STRICT}", master.url()), "add ack=majority");
    connect(&format!("{}?{STRICT}&ack=majority", master.url())).unwrap();
    connect(&master.url()).unwrap();
}

#[test]
fn a_user_who_may_not_see_restarts_is_refused() {
    let server = RedisServer::builder().acl_user("bob on >secret ~* &* +@all -info").start();
    refused(&format!("{}?{STRICT}", server.url_as("bob", "secret")), "allow it with +info");
    connect(&server.url_as("bob", "secret")).unwrap();
}

#[test]
fn a_lease_longer_than_the_quarantine_is_refused() {
    let server = RedisServer::start();
    let error = connect(&format!("{}?guarantee=strict&max_lease=1s&lease=2s", server.url())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    let client = strict(&server);
    let error = block_on(client.lock("a").lease(millis(1_501)).try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Waits for the lock as several clients do; returns when the first of them got it, and its fence.
fn first_grant(clients: &[Polylatch], since: Instant) -> (Duration, u64) {
    let threads: Vec<_> = clients
        .iter()
        .map(|client| {
            let lock = client.lock("a").wait(millis(10_000));
            thread::spawn(move || {
                let guard = block_on(lock.acquire()).unwrap();
                let granted = (since.elapsed(), guard.fencing_token().get());
                block_on(guard.release()).unwrap();
                granted
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).min().unwrap()
}

#[test]
fn after_a_restart_with_its_data_nothing_is_granted_before_every_old_lease_has_ended() {
    let server = RedisServer::builder().append_only().start();
    let before = Instant::now();
    let [old, holder, idle] = [(); 3].map(|()| strict(&server));
    // A server that has never been used may be one that lost its data.
    assert_eq!(block_on(old.lock("a").try_acquire()).unwrap_err().kind(), ErrorKind::BackendUnavailable);
    let held = block_on(holder.lock("held").wait(millis(10_000)).acquire()).unwrap();
    assert!(before.elapsed() >= CLOSED, "{:?}", before.elapsed());

    let restarted = Instant::now();
    server.restart_with_data();
    let renewals = held.renewals();
    let fresh = strict(&server);
    for client in [&old, &fresh] {
        let error = block_on(client.lock("b").try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
        assert!(error.to_string().contains("until all earlier leases have expired"), "{error}");
    }
    // A thief is granted nothing early either, and ends nothing.
    let error = block_on(fresh.lock("held").steal("test").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
    let best_effort = connect(&server.url()).unwrap();
    assert!(block_on(best_effort.lock("c").try_acquire()).unwrap().is_some());

    let (after, _) = first_grant(&[old, fresh], restarted);
    assert!(after >= CLOSED, "granted after {after:?}");
    assert!(after < CLOSED + millis(2_500), "granted after {after:?} only");
    eventually("the holder from before renews", || held.renewals() > renewals);
    held.check().unwrap();

    // A client that slept through the restart neither enters early nor closes the store again.
    let asked = Instant::now();
    block_on(idle.lock("d").wait(millis(5_000)).acquire()).unwrap().check().unwrap();
    assert!(asked.elapsed() < millis(500), "{:?}", asked.elapsed());
}

#[test]
fn after_a_restart_without_data_nothing_is_granted_early_and_fences_go_on_growing() {
    let server = RedisServer::start();
    let [client, other] = [(); 2].map(|()| strict(&server));
    let held = block_on(client.lock("a").wait(millis(10_000)).acquire()).unwrap();
    let fence = held.fencing_token().get();
    let restarted = Instant::now();
    server.restart_empty();
    let best_effort = connect(&server.url()).unwrap();
    let at_once = block_on(best_effort.lock("x").try_acquire()).unwrap().expect("best effort grants at once");
    assert!(at_once.fencing_token().get() > fence);
    let (after, next) = first_grant(&[client, other], restarted);
    assert!(after >= CLOSED, "granted after {after:?}");
    assert!(next > fence, "{next} after {fence}");
    assert!(!held.is_held(), "the holder from before knows");
}

#[test]
fn a_flush_of_the_whole_store_closes_it_too() {
    let server = RedisServer::start();
    let client = strict(&server);
    block_on(block_on(client.lock("a").wait(millis(10_000)).acquire()).unwrap().release()).unwrap();
    let flushed = Instant::now();
    server.command(&["FLUSHALL"]);
    block_on(client.lock("a").wait(millis(10_000)).acquire()).unwrap().check().unwrap();
    assert!(flushed.elapsed() >= CLOSED, "{:?}", flushed.elapsed());
}

/// A client with this longest lease.
fn with_max_lease(server: &RedisServer, max_lease: u64) -> Polylatch {
    let provisional = (max_lease / 2).max(300);
    let options =
        format!("max_lease={max_lease}ms&lease={max_lease}ms&provisional={provisional}ms&poll=100ms");
    connect(&format!("{}?guarantee=strict&{options}", server.url())).unwrap()
}

#[test]
fn the_longest_lease_of_any_client_closes_the_store_for_all_after_a_restart() {
    let server = RedisServer::builder().append_only().start();
    let [short, long] = [500, 4_000].map(|max_lease| with_max_lease(&server, max_lease));
    for client in [&short, &long] {
        drop(block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap());
    }
    let held = block_on(long.lock("held").acquire()).unwrap();
    let restarted = Instant::now();
    server.restart_with_data();
    // Its client does not even ask: what it stored before its first grant is enough.
    block_on(short.lock("b").wait(millis(30_000)).acquire()).unwrap().check().unwrap();
    assert!(restarted.elapsed() >= millis(4_000), "granted after {:?}", restarted.elapsed());
    drop(held);
}

#[test]
fn a_client_with_longer_leases_closes_a_store_again_that_lost_its_data() {
    let server = RedisServer::start();
    let [short, long] = [300, 6_000].map(|max_lease| with_max_lease(&server, max_lease));
    // The emptied store knows only those who have asked since.
    drop(block_on(short.lock("a").wait(millis(30_000)).acquire()).unwrap());
    let opened = Instant::now();
    block_on(long.lock("c").try_acquire()).expect_err("it is closed for as long as its leases can last");
    block_on(short.lock("b").try_acquire()).expect_err("and so it is for all");
    block_on(short.lock("b").wait(millis(30_000)).acquire()).unwrap().check().unwrap();
    // Counted from the restart, not from when it came.
    assert!(opened.elapsed() > millis(3_000), "{:?}", opened.elapsed());
    block_on(long.lock("c").try_acquire()).unwrap().expect("open for both").check().unwrap();
}

#[test]
fn a_store_that_an_older_client_opened_is_not_closed_again_and_its_quarantine_is_made_longer() {
    let server = RedisServer::start();
    let client = with_max_lease(&server, 2_000);
    drop(block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap());
    let asked = |words: &[&str]| server.command(words).text().unwrap().to_owned();
    assert!(asked(&["GET", "polylatch:longest"]).starts_with("pl1|2000|"));
    // An older client stores only the gate.
    server.command(&["DEL", "polylatch:longest"]);
    drop(block_on(client.lock("b").try_acquire()).unwrap().expect("open"));
    // After a restart it opens the gate after its own longest lease, of which the other one knows nothing.
    let now = asked(&["GET", "polylatch:epoch"]);
    let epoch = now.strip_suffix("|open").unwrap();
    server.command(&["SET", "polylatch:longest", "pl1|2000|1|0a:0b"]);
    server.command(&["SET", "polylatch:epoch", &format!("{epoch}|open")]);
    let seen = Instant::now();
    block_on(client.lock("c").wait(millis(30_000)).acquire()).unwrap().check().unwrap();
    assert!(seen.elapsed() >= millis(1_900), "{:?}", seen.elapsed());
}

#[test]
fn a_waiter_that_is_handed_the_lock_waits_for_the_quarantine_too() {
    const LONGEST: u64 = 6_000;
    let server = RedisServer::builder().append_only().start();
    let [holder, waiter] = [(); 2].map(|()| with_max_lease(&server, LONGEST));
    let held = block_on(holder.lock("a").wait(millis(30_000)).acquire()).unwrap();
    let lock = waiter.lock("a").wait(millis(60_000));
    let waiting = thread::spawn(move || {
        let guard = block_on(lock.acquire()).unwrap();
        (Instant::now(), guard)
    });
    let queued = || server.command(&["ZCARD", "polylatch:{a}:line"]).int() == Some(1);
    eventually("it waits", queued);
    crate::contract::eventually_within("the holder has its whole lease", millis(20_000), || {
        held.renewals() > 0
    });
    let restarted = Instant::now();
    server.restart_with_data();
    // It hears again, so that the usual hand-off, by one message, could reach it.
    let inbox = format!("polylatch:inbox:{}", waiter.id());
    let hears = || server.command(&["PUBSUB", "NUMSUB", &inbox]).items().last().unwrap().int() == Some(1);
    wait_until("the waiter to subscribe again", millis(20_000), hears);
    let renewed = held.renewals();
    crate::contract::eventually_within("the holder renews", millis(20_000), || held.renewals() > renewed);
    block_on(held.release()).unwrap();
    let (granted, guard) = waiting.join().unwrap();
    guard.check().unwrap();
    assert!(granted - restarted >= millis(LONGEST), "granted {:?} after the restart", granted - restarted);
}

#[test]
fn the_examination_names_clients_of_the_other_guarantee() {
    let server = RedisServer::start();
    let strict = with_max_lease(&server, 300);
    let best_effort = connect(&server.url()).unwrap();
    let _held = block_on(best_effort.lock("a").acquire()).unwrap();
    let found = || block_on(strict.inspect().examine()).unwrap();
    let warned = || found().finding("guarantee").unwrap().detail.contains(best_effort.id().as_str());
    wait_until("the client to be recorded", millis(20_000), warned);
    let restart =
        found().promises.into_iter().find(|promise| promise.id == "exclusion-after-restart").unwrap();
    assert_eq!(restart.holds, polylatch::inspect::Holds::No, "{restart:?}");
}
