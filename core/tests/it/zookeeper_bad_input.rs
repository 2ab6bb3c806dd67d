//! ZooKeeper: wrong addresses, paths, rights, lengths and foreign nodes are refused clearly, and nothing is half created.

#![cfg(all(feature = "zookeeper", unix))]

use std::net::TcpListener;
use std::time::Duration;

use crate::contract::{block_on, eventually_within, millis, seen};
use crate::contract_zookeeper::SERVER;
use crate::zookeeper_faults::{connect, url};
use polylatch::inspect::{CheckSeverity, Holds};
use polylatch::{ErrorKind, LostReason, Polylatch};
use polylatch_test_services::zookeeper::{Ensemble, Ticks, ZooKeeper};

#[track_caller]
fn refused(url: &str, kind: ErrorKind, part: &str) {
    let error = block_on(Polylatch::connect(url)).unwrap_err();
    assert_eq!(error.kind(), kind, "{url}: {error}");
    assert!(error.to_string().contains(part), "{url}: {error}");
    assert!(!format!("{error:?}").contains("Zq7x"), "{error:?}");
}

#[test]
fn wrong_addresses_are_told_with_the_way_out() {
    refused(
        "zookeeper://127.0.0.1:1,127.0.0.1:2",
        ErrorKind::BackendUnavailable,
        "could not connect to ZooKeeper",
    );
    let other = crate::contract_etcd::not_etcd();
    refused(
        &format!("zookeeper://{other}?timeout=2s"),
        ErrorKind::BackendRejected,
        "does not answer as ZooKeeper",
    );
    let closes = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = closes.local_addr().unwrap();
    std::thread::spawn(move || closes.incoming().for_each(drop));
    refused(&format!("zookeeper://{place}"), ErrorKind::BackendUnavailable, "requires TLS");
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = hangs.local_addr().unwrap();
    refused(
        &format!("zookeeper://{place}?timeout=500ms"),
        ErrorKind::BackendUnavailable,
        "did not answer in time",
    );
}

#[test]
fn a_read_only_member_is_no_store_and_the_reason_is_told() {
    let ensemble = Ensemble::start_with(&["-Dreadonlymode.enabled=true"]);
    let client = connect(&format!("{}?tick=200ms&lease=4s&timeout=2s", ensemble.url()));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    ensemble.members[1..].iter().for_each(ZooKeeper::kill);
    let left = &ensemble.members[0];
    eventually_within("it is read-only", Duration::from_secs(30), || {
        left.mode().as_deref() == Some("read-only")
    });
    refused(
        &format!("{}?tick=200ms", left.url()),
        ErrorKind::BackendUnavailable,
        "no majority of its members",
    );
    let error = block_on(client.lock("b").no_wait().acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
}

#[test]
fn a_chroot_has_to_exist_and_nothing_is_created_outside_of_it() {
    let url = format!("{}/bad-input-1/shop?tick=200ms", SERVER.url());
    refused(&url, ErrorKind::BackendRejected, "no node \"/bad-input-1/shop\"");
    assert!(!SERVER.run_command(&["ls", "/"]).contains("bad-input-1"), "it was created");
    SERVER.run_command(&["create", "/bad-input-1"]);
    SERVER.run_command(&["create", "/bad-input-1/shop"]);
    let client = connect(&url);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    assert!(SERVER.run_command(&["ls", "-R", "/bad-input-1"]).contains("/bad-input-1/shop/polylatch/a/_c_"));
    block_on(guard.release()).unwrap();
}

#[test]
fn nodes_belong_to_the_user_that_is_named_and_missing_rights_are_told() {
    let at = SERVER.address();
    let with = |user: &str| format!("zookeeper://{user}@{at}?prefix=bad-input-2&tick=200ms");
    let client = connect(&with("app:Zq7xWvKj"));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    // The server knows no users: another password is another one.
    for url in [with("app:Zq7xOther"), url("bad-input-2", "")] {
        let other = connect(&url);
        let error = block_on(other.lock("a").try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
        assert!(error.to_string().contains("setAcl"), "{error}");
        assert!(!format!("{error:?}").contains("Zq7x"), "{error:?}");
    }
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    assert!(block_on(connect(&with("app:Zq7xWvKj")).lock("a").try_acquire()).unwrap().is_some());
}

#[test]
fn a_server_that_requires_authentication_gets_it_or_is_refused_clearly() {
    let server = ZooKeeper::start_with(
        Ticks::default(),
        "enforce.auth.enabled=true\nenforce.auth.schemes=digest\nsessionRequireClientSASLAuth=false",
    );
    let with_user = format!("zookeeper://app:Zq7xWvKj@{}?tick=200ms", server.address());
    assert!(block_on(connect(&with_user).lock("a").try_acquire()).unwrap().is_some());
    refused(&format!("{}?tick=200ms", server.url()), ErrorKind::BackendRejected, "password_env=");
}

#[test]
fn leases_that_the_servers_allow_no_session_for_are_refused_with_the_rule() {
    let ticks = Ticks { millis: 200, most: 50 };
    let server = ZooKeeper::start_with(ticks, "");
    let client = connect(&format!("{}?tick=200ms&lease=5s", server.url()));
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_some());
    // Sessions of at most 10 s: a quarter more than the lease, a tick, and 200 ms.
    let error = block_on(client.lock("b").lease(Duration::from_secs(60)).try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for part in ["maxSessionTimeout", "at most 7680 ms", "75400 ms"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(seen(&client, "b").holders.is_empty());
    assert!(block_on(client.lock("b").lease(millis(7_680)).try_acquire()).unwrap().is_some());
    refused(&format!("{}?tick=200ms", server.url()), ErrorKind::Unsupported, "maxSessionTimeout");
}

#[test]
fn a_client_has_a_few_sessions_and_not_one_for_each_lock() {
    let client = connect(&url("bad-input-3", ""));
    let mut guards = Vec::new();
    for length in 0..7 {
        let lock = client.lock(format!("{length}")).lease(Duration::from_secs(20 + length));
        guards.push(block_on(lock.try_acquire()).unwrap().unwrap());
    }
    let lock = client.lock("one too many").lease(Duration::from_secs(60));
    let error = block_on(lock.try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("8 already") && error.to_string().contains("15000 ms"), "{error}");
    // A length that is not used any more makes room.
    block_on(guards.remove(3).release()).unwrap();
    assert!(block_on(lock.try_acquire()).unwrap().is_some());
    for guard in &guards {
        guard.check().unwrap();
    }
}

#[test]
fn a_node_of_another_program_is_refused_and_left_alone() {
    let client = connect(&url("bad-input-4", ""));
    drop(block_on(client.lock("other").acquire()).unwrap());
    SERVER.run_command(&["create", "/bad-input-4/web"]);
    SERVER.run_command(&["create", "/bad-input-4/web/_c_x-lock-0000000000", "precious"]);
    for result in [
        block_on(client.lock("web").try_acquire()).map(drop),
        block_on(client.lock("web").wait(millis(3_000)).acquire()).map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
        assert!(
            error.to_string().contains("_c_x-lock-0000000000") && error.to_string().contains("another name")
        );
    }
    let left = SERVER.run_command(&["ls", "/bad-input-4/web"]);
    assert!(left.contains("[_c_x-lock-0000000000]"), "nothing was created or changed: {left}");
    assert!(SERVER.run_command(&["get", "/bad-input-4/web/_c_x-lock-0000000000"]).contains("precious"));
}

#[test]
fn an_examination_says_what_holds() {
    let examine = |url: &str| block_on(Polylatch::builder().url(url).examine()).unwrap().1;
    let failover = |found: &polylatch::inspect::Examination| {
        found.promises.iter().find(|promise| promise.id == "exclusion-after-failover").unwrap().holds
    };
    let ensemble = Ensemble::start();
    let all = examine(&format!("{}?tick=200ms", ensemble.url()));
    assert_eq!(all.worst(), CheckSeverity::Notice, "{all:#?}");
    assert!(all.version.as_deref().is_some_and(|version| version.starts_with("ZooKeeper 3.")), "{all:#?}");
    assert_eq!(failover(&all), Holds::Yes);
    let one = examine(&format!("{}?tick=200ms", ensemble.members[0].url()));
    assert!(one.finding("members").unwrap().title.contains("one of several"), "{one:#?}");
    ensemble.members.iter().find(|member| member.mode().as_deref() != Some("leader")).unwrap().kill();
    let hurt = examine(&format!("{}?tick=200ms", ensemble.url()));
    assert_eq!(hurt.finding("members").unwrap().severity, CheckSeverity::Warning, "{hurt:#?}");

    let alone = examine(&url("bad-input-5", ""));
    assert_eq!(failover(&alone), Holds::No);
    assert!(
        SERVER.run_command(&["ls", "/bad-input-5/.clients"]).contains("[]"),
        "an examination leaves no node"
    );
    let short = examine(&url("bad-input-5", "").replace("tick=200ms", "tick=100ms"));
    assert_eq!(short.finding("tick-time").unwrap().severity, CheckSeverity::Problem, "{short:#?}");
    let missing = examine(&format!("{}/nowhere?tick=200ms", SERVER.url()));
    assert!(missing.finding("permissions").unwrap().detail.contains("no node \"/nowhere\""), "{missing:#?}");
    assert!(missing.promises.iter().all(|promise| promise.holds == Holds::No));
}
