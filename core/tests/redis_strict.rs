//! `guarantee=strict`: what it refuses, and that no restart lets two holders meet.

#![cfg(all(feature = "redis", unix))]

mod contract;

use std::thread;
use std::time::{Duration, Instant};

use contract::{block_on, eventually, millis};
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
fn replicas_that_nobody_waits_for_are_refused() {
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
        assert!(error.to_string().contains("guarantee=strict"), "{error}");
    }
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
