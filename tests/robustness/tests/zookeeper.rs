//! Robustness on real servers of ZooKeeper.
#![cfg(unix)]

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::members::Members;
use polylatch_robustness::stage::Stage;
use polylatch_robustness::{crowd, members, scenarios};
use polylatch_test_services::zookeeper::{Ensemble, ZooKeeper};

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// Options of every URL; the ticks are those of the servers that the tests start.
const COMMON: &str = "tick=200ms&timeout=1s";

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let server = ZooKeeper::start();
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
    let ensemble = Ensemble::start();
    members::sections_never_overlap_while_sessions_end_and_leaders_die(
        &Members {
            store: "zookeeper",
            program: WORKER,
            seed: 20_261_126,
            addresses: ensemble.members.iter().map(ZooKeeper::address).collect(),
            common: COMMON,
            options: "lease=1500ms&provisional=1s&poll=50ms",
            lease: Duration::from_millis(1_500),
        },
        |session| {
            let session = i64::from_str_radix(session.trim_start_matches("0x"), 16).expect("a number");
            ensemble.leader().end_session(session);
        },
        |pauses| {
            let leader = ensemble.leader();
            if pauses {
                leader.pause();
            } else {
                leader.kill();
            }
            // Two of three are up, so sections go on.
            let _ = ensemble.leader_instead_of(leader);
            if pauses {
                leader.resume();
            } else {
                leader.start_again();
            }
            leader.wait_until_it_serves();
        },
    );
}
