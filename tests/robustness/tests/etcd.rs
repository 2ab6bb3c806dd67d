//! Robustness on real members of etcd.
#![cfg(unix)]

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::members::Members;
use polylatch_robustness::stage::Stage;
use polylatch_robustness::{crowd, members, scenarios};
use polylatch_test_services::etcd::{EtcdCluster, EtcdMember};

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// Options of every URL.
const COMMON: &str = "timeout=1s";

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let server = EtcdMember::start();
    scenario(&Stage::new(WORKER, &format!("{}?{COMMON}", server.url()), Evidence::new(None)));
}

#[test]
fn a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused() {
    on_stage(|stage| scenarios::a_holder_paused_so_often_is_notified_at_once_and_refused(stage, 2));
}

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue() {
    on_stage(|stage| crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(stage, 1));
}

#[test]
fn sections_never_overlap_while_sessions_end_and_leaders_die() {
    let cluster = EtcdCluster::start();
    members::sections_never_overlap_while_sessions_end_and_leaders_die(
        &Members {
            store: "etcd",
            program: WORKER,
            seed: 20_261_125,
            addresses: cluster.members.iter().map(EtcdMember::address).collect(),
            common: COMMON,
            options: "lease=2s&provisional=1s&poll=50ms",
            lease: Duration::from_secs(2),
        },
        |session| {
            let lease = session.strip_prefix("lease ").expect("a lease");
            let id = i64::from_str_radix(lease, 16).expect("a number");
            // One that has expired meanwhile cannot be revoked.
            cluster.leader().ask("/v3/lease/revoke", &format!("{{\"ID\":\"{id}\"}}"));
        },
        |pauses| {
            let leader = cluster.leader();
            if pauses {
                leader.pause();
            } else {
                leader.kill();
            }
            // Two of three are up, so sections go on.
            let _ = cluster.leader_instead_of(leader);
            if pauses {
                leader.resume();
            } else {
                leader.start_again();
            }
            leader.wait_for_leader();
        },
    );
}
