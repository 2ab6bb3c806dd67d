//! What cannot be a store of independent nodes is refused before any lock is tried.

#![cfg(all(feature = "redis", unix))]

use std::time::{Duration, Instant};

use pollster::block_on;
use polylatch::inspect::Query;
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::redis::{RedisServer, Tls};
use polylatch_test_services::wait_until;

fn refused(url: &str) -> Error {
    let started = Instant::now();
    let error = block_on(Polylatch::connect(url)).expect_err(url);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(error.context().operation, Some("connect"), "{error}");
    error
}

#[track_caller]
fn expect(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
    }
}

fn url_of(servers: &[&RedisServer]) -> String {
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{}", places.join(","))
}

#[test]
fn fewer_than_a_majority_is_reported_with_every_node_that_is_missing() {
    let (one, down) = (RedisServer::start(), [ReservedPort::new().unwrap(), ReservedPort::new().unwrap()]);
    let url = format!("redlock://{},{},{}", one.address(), down[0].address(), down[1].address());
    let error = refused(&url);
    let places = [down[0].address().to_string(), down[1].address().to_string()];
    expect(&error, ErrorKind::QuorumUnreachable, &["1 of 3 nodes can be used and 2 are needed"]);
    expect(&error, ErrorKind::QuorumUnreachable, &[&places[0], &places[1]]);
}

#[test]
fn a_minority_that_is_down_or_hung_does_not_keep_a_client_from_connecting() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    servers[2].pause();
    let started = Instant::now();
    let url = url_of(&[&servers[0], &servers[1], &servers[2]]);
    let options = "max_lease=3s&lease=3s&provisional=1s&poll=100ms";
    let client = block_on(Polylatch::connect(&format!("{url}?{options}"))).unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "it waited for a node it does not need");
    // What the third one knows is not known, so the store does not count as new.
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
}

#[test]
fn two_names_of_one_server_are_refused() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let url = format!("redlock://{},localhost:{},{}", one.address(), one.port(), two.address());
    expect(&refused(&url), ErrorKind::InvalidConfig, &["are the same server", "localhost"]);
}

#[test]
fn a_replica_is_no_node() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let replica = RedisServer::builder().replica_of(one.address()).start();
    let error = refused(&url_of(&[&one, &two, &replica]));
    expect(&error, ErrorKind::BackendRejected, &["is a replica", "name the primary"]);
}

#[test]
fn a_cluster_node_is_no_node() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    // By itself it would take its own port and 10 000, which may be too high.
    let bus = ReservedPort::new().unwrap();
    let of_cluster = RedisServer::builder()
        .config("cluster-enabled yes")
        .config(&format!("cluster-port {}", bus.number()))
        .start();
    let error = refused(&url_of(&[&one, &of_cluster, &two]));
    expect(&error, ErrorKind::BackendRejected, &["a node of a Redis Cluster"]);
}

#[test]
fn programs_that_count_different_numbers_of_nodes_do_not_come_together() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let three = url_of(&[&servers[0], &servers[1], &servers[2]]);
    take_part(&three);
    let error = refused(&url_of(&[&servers[0]]));
    expect(&error, ErrorKind::InvalidConfig, &["belongs to a store of 3 nodes, and the URL names 1"]);
    // Another prefix is another store.
    drop(block_on(Polylatch::connect(&format!("{}?prefix=other", url_of(&[&servers[0]])))).unwrap());
}

/// Takes a lock: connecting and looking alone write nothing.
fn take_part(url: &str) {
    let client = block_on(Polylatch::connect(url)).unwrap();
    let guard = block_on(client.lock("first").acquire()).unwrap();
    block_on(guard.release()).unwrap();
}

#[test]
fn a_node_of_another_store_is_that_nodes_problem_and_examination_names_the_remedy() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    // A program with a wrong URL was the first on one of the nodes.
    take_part(&url_of(&[&servers[0]]));
    let three = format!(
        "{}?max_lease=4s&lease=4s&provisional=1s&poll=100ms",
        url_of(&[&servers[0], &servers[1], &servers[2]])
    );
    let client = block_on(Polylatch::connect(&three)).unwrap();
    let examination = block_on(client.inspect().examine()).unwrap();
    let finding = examination.finding("node").unwrap_or_else(|| panic!("{examination:?}"));
    assert!(finding.detail.contains("belongs to a store of 1 nodes"), "{finding:?}");
    assert!(
        finding.fix.contains("redis-cli") && finding.fix.contains("polylatch:redlock:gate"),
        "{finding:?}"
    );
    assert_eq!(servers[0].command(&["DEL", "polylatch:redlock:gate"]).int(), Some(1));
    // It was used, so the store is not new: the others begin after their time, and then this one comes back.
    let guard = block_on(client.lock("a").wait(Duration::from_secs(60)).acquire()).unwrap();
    wait_until("the node votes", Duration::from_secs(60), || {
        servers[0].command(&["GET", "polylatch:redlock:gate"]).text().is_some_and(|gate| gate.contains("|3|"))
    });
    block_on(guard.release()).unwrap();
}

#[test]
fn looking_and_examining_write_nothing() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let url = url_of(&[&servers[0], &servers[1], &servers[2]]);
    let looker = block_on(Polylatch::connect(&url)).unwrap();
    block_on(looker.inspect().list(&Query::default())).unwrap();
    block_on(looker.inspect().examine()).unwrap();
    for server in &servers {
        assert_eq!(server.command(&["DBSIZE"]).int(), Some(0));
    }
    // Nor does it open nodes of a store that a program relies on.
    let strict = block_on(Polylatch::connect(&format!("{url}?guarantee=strict&max_lease=30s"))).unwrap();
    assert!(block_on(strict.lock("a").try_acquire()).is_err(), "a new store waits first");
    let other = block_on(Polylatch::connect(&url)).unwrap();
    block_on(other.inspect().list(&Query::default())).unwrap();
    let error = block_on(other.lock("a").try_acquire()).expect_err("a best-effort program opened the store");
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    // The longest lease that any client uses counts for all.
    let gates = servers.each_ref().map(|server| server.command(&["GET", "polylatch:redlock:gate"]));
    for gate in gates {
        assert!(gate.text().is_some_and(|gate| gate.contains("|1|60000|")), "{gate:?}");
    }
}

#[test]
fn an_evicting_node_is_refused_where_correctness_is_declared_and_reported_otherwise() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let evicting = RedisServer::builder().max_memory("64mb", "allkeys-lru").start();
    let url = url_of(&[&one, &two, &evicting]);
    let error = refused(&format!("{url}?guarantee=strict&max_lease=15s"));
    expect(&error, ErrorKind::BackendRejected, &["may evict held locks", "noeviction"]);
    let client = block_on(Polylatch::connect(&url)).unwrap();
    assert_eq!(client.capability().fencing.code(), "time-floored");
    let good = block_on(Polylatch::connect(&format!("{}?prefix=b", url_of(&[&one, &two])))).unwrap();
    assert_eq!(good.capability().fencing.code(), "strict");
    let alone = block_on(Polylatch::connect(&format!("{}?prefix=c", url_of(&[&one])))).unwrap();
    assert_eq!(alone.capability().fencing.code(), "time-floored");
}

#[test]
fn every_node_has_its_own_credentials_and_tls_and_no_secret_is_printed() {
    let password = "s3cret,canary";
    let (one, tls) = (RedisServer::start(), RedisServer::builder().tls(Tls::new()).start());
    let guarded = RedisServer::builder().password(password).start();
    let (a, b, c) = (one.address(), guarded.address(), tls.port());
    let ca = tls.tls().ca.display();
    let url = format!("redlock://{a},:s3cret%2Ccanary@{b},localhost:{c}?tls=localhost:{c}&ca={ca}");
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
    assert!(!client.url_for_display().contains("canary"), "{}", client.url_for_display());
    assert!(!format!("{client:?}").contains("canary"));
    for wrong in [
        format!("redlock://:wrong-canary@{b}"),
        format!("redlock://{a},:wrong-canary@{b}"),
        format!("redlock://:wrong-canary@{a},{b}"),
    ] {
        let error = refused(&wrong);
        assert!(!format!("{error:?} {error}").contains("canary"), "{error}");
    }
}

#[test]
fn a_lock_of_another_library_on_a_majority_excludes_ours_and_ours_excludes_it() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let url = format!("{}?lock_key=redlock:{{name}}", url_of(&[&servers[0], &servers[1], &servers[2]]));
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let take =
        |server: &RedisServer, ms: &str| server.command(&["SET", "redlock:a", "uuid-1", "NX", "PX", ms]);
    for server in &servers[..2] {
        assert!(take(server, "60000").is_ok());
    }
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_none());
    for server in &servers[..2] {
        server.command(&["DEL", "redlock:a"]);
    }
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let taken = servers.iter().filter(|server| take(server, "60000").is_ok()).count();
    // The third node may not have heard of us yet; one of three is no lock.
    assert!(taken < 2, "it was acquired although we hold it");
    block_on(guard.release()).unwrap();
    // Data that never expires is nobody's lock.
    for server in &servers {
        server.command(&["SET", "redlock:a", "a shopping list"]);
    }
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
    let kept = servers[0].command(&["GET", "redlock:a"]);
    assert_eq!(kept.text(), Some("a shopping list"));
}
