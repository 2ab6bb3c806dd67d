//! A Redis Cluster: what it promises, and what cannot be used as one.

#![cfg(all(feature = "redis", unix))]

use std::time::Duration;

use crate::contract::{block_on, eventually_within};
use polylatch::inspect::Holds;
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::redis::Cluster;

const SOON: Duration = Duration::from_secs(30);

fn connect(url: &str) -> Result<Polylatch, Error> {
    block_on(Polylatch::connect(url))
}

#[track_caller]
fn refused(url: &str, kind: ErrorKind, part: &str) {
    let error = connect(url).expect_err(url);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn a_node_is_no_server_of_its_own_but_names_the_others() {
    let cluster = Cluster::start_with(1, |node| node);
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[4]);
    for node in [master, replica] {
        refused(&node.url(), ErrorKind::BackendRejected, "write redis+cluster://");
    }
    assert!(master.command(&["KEYS", "*"]).items().is_empty(), "nothing was tried");
    for node in [master, replica] {
        let client = connect(&node.url().replace("redis://", "redis+cluster://")).unwrap();
        for at in 0..8 {
            block_on(block_on(client.lock(format!("job {at}")).acquire()).unwrap().release()).unwrap();
        }
    }
}

#[test]
fn a_cluster_without_some_of_its_slots_is_refused_with_their_numbers() {
    let cluster = Cluster::start_with(0, |node| node.config("cluster-require-full-coverage no"));
    let told = "no node of the cluster has the slots 100-200, 16383-16383";
    eventually_within("the slots are missed", SOON, || {
        for node in &cluster.nodes {
            for [first, last] in [["100", "200"], ["16383", "16383"]] {
                // Refused where it is forgotten already, by the word of whoever had it.
                node.command(&["CLUSTER", "DELSLOTSRANGE", first, last]);
            }
        }
        connect(&cluster.url()).is_err_and(|error| error.to_string().contains(told))
    });
    refused(&cluster.url(), ErrorKind::BackendUnavailable, "redis-cli --cluster fix");
    let first = &cluster.nodes[0];
    assert!(first.command(&["CLUSTER", "ADDSLOTSRANGE", "100", "200", "16383", "16383"]).is_ok());
    eventually_within("it is whole again", SOON, || connect(&cluster.url()).is_ok());
}

/// `ack=` asks for as many replicas after a promotion as before, though one of them is the master now and the
/// old master is not back yet.
#[test]
fn a_promoted_master_needs_the_acknowledgement_of_as_many_replicas_as_the_one_before() {
    let cluster = Cluster::start_with(2, |node| node);
    let options = "ack=all&timeout=2s&poll=100ms&provisional=2s&lease=4s";
    let client = connect(&format!("{}?{options}", cluster.url())).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let lock = |at: usize| !cluster.nodes[at].command(&["KEYS", "polylatch:*:{a}:lock"]).items().is_empty();
    let master = (0..3).find(|at| lock(*at)).expect("one has it");
    assert!(lock(master + 3) && lock(master + 6), "both replicas have confirmed it");
    block_on(guard.release()).unwrap();
    cluster.nodes[master].kill();
    let promoted = || [master + 3, master + 6].into_iter().find(|at| cluster.masters_by(*at).contains(at));
    eventually_within("a replica takes over", SOON, || promoted().is_some());
    let promoted = promoted().unwrap();
    cluster.wait_until_copied(2 * master + 9 - promoted);
    let refusal = || block_on(client.lock("a").try_acquire()).expect_err("one replica is too few");
    eventually_within("the promoted one misses a replica", SOON, || {
        refusal().to_string().contains("only 1 of the 2 replicas")
    });
    cluster.nodes[master].start_again();
    eventually_within("all are there again", SOON, || {
        block_on(client.lock("a").try_acquire()).is_ok_and(|guard| guard.is_some())
    });
}

#[test]
fn the_doctor_says_what_a_failed_master_takes_along() {
    let cluster = Cluster::start_with(1, |node| node);
    let after_failover = |options: &str| {
        let builder = Polylatch::builder().url(format!("{}?{options}", cluster.url()));
        let (_, examined) = block_on(builder.examine()).unwrap();
        let promise = examined.promises.iter().find(|promise| promise.id == "exclusion-after-failover");
        let promise = promise.unwrap_or_else(|| panic!("{examined:?}")).clone();
        (promise.holds, promise.because)
    };
    let (holds, why) = after_failover("");
    assert!(holds == Holds::No && why.contains("no ack="), "{why}");
    let (holds, why) = after_failover("ack=any");
    assert!(holds == Holds::No && why.contains("guarantee=strict"), "{why}");
    let strict = "ack=any&guarantee=strict&max_lease=1s&lease=1s&provisional=600ms&poll=100ms";
    let (holds, why) = after_failover(strict);
    assert!(holds == Holds::No && why.contains("min-replicas-to-write 0"), "{why}");
    for node in &cluster.nodes {
        assert!(node.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).is_ok());
    }
    let (holds, why) = after_failover(strict);
    assert!(holds == Holds::Yes, "{why}");
    // One master that cannot keep it is enough.
    assert!(cluster.nodes[1].command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).is_ok());
    assert_eq!(after_failover(strict).0, Holds::No);
}
