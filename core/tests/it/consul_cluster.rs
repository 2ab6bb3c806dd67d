//! Three servers: leaders are killed, and locks are kept.

#![cfg(all(feature = "consul", unix))]

use std::time::{Duration, Instant};

use crate::contract::{block_on, millis};
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::consul::Cluster;

/// Kills; every one with an election that is shorter than half of the TTL. `POLYLATCH_CONSUL_LEADER_KILLS`
/// says how many.
fn kills() -> usize {
    match std::env::var("POLYLATCH_CONSUL_LEADER_KILLS") {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("POLYLATCH_CONSUL_LEADER_KILLS={text} is no number"))
        }
        // The run under load kills more of them.
        Err(_) => 1,
    }
}

#[test]
fn locks_survive_the_death_of_leaders() {
    let cluster = Cluster::start();
    let lease = Duration::from_secs(30);
    let mut token = 0;
    for kill in 0..kills() {
        // By way of a server that stays: an agent of the application's host does the same.
        let url = format!("{}?prefix=cluster&lease=30s&timeout=2s", cluster.follower().url());
        let client = block_on(Polylatch::connect(&url)).unwrap();
        let guards: Vec<_> = (0..10)
            .map(|number| {
                let lock = client.lock(format!("{kill}/{number}")).lease(lease).wait(lease);
                block_on(lock.acquire()).unwrap()
            })
            .collect();
        // A lock that was just taken has a shorter first lease.
        crate::contract::eventually_within("all have their full lease", Duration::from_secs(50), || {
            guards.iter().all(|guard| guard.renewals() > 0)
        });
        let renewed: Vec<_> = guards.iter().map(|guard| guard.renewals()).collect();
        let started = Instant::now();
        let killed = cluster.kill_leader();
        let election = started.elapsed();
        assert!(election < lease / 2, "the election itself took {election:?}");
        // Every lock is renewed at the new leader, and can be given back there.
        crate::contract::eventually_within("all were renewed again", Duration::from_secs(50), || {
            guards.iter().zip(&renewed).all(|(guard, before)| guard.renewals() > *before)
        });
        for guard in &guards {
            guard.check().unwrap_or_else(|error| panic!("kill {kill}: {error}"));
            assert!(guard.fencing_token().get() > token, "tokens went back");
        }
        token = guards.iter().map(|guard| guard.fencing_token().get()).max().unwrap();
        for guard in &guards {
            block_on(guard.release()).unwrap();
        }
        block_on(client.close());
        killed.start_again();
        killed.wait_for_leader();
        println!("leader killed {} times, 0 of 10 locks lost; election {election:?}", kill + 1);
    }
}

#[test]
fn without_a_leader_nothing_is_granted_and_the_error_says_so() {
    let cluster = Cluster::start();
    let follower = cluster.follower();
    let client =
        block_on(Polylatch::connect(&format!("{}?prefix=alone&timeout=2s", follower.url()))).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    for server in &cluster.servers {
        if server.address() != follower.address() {
            server.kill();
        }
    }
    let error = block_on(client.lock("b").wait(millis(5_000)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    let lost = block_on(guard.lost());
    assert_eq!(lost, polylatch::LostReason::Expired);
    let error =
        block_on(Polylatch::connect(&format!("{}?prefix=alone&timeout=2s", follower.url()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
}
