//! Robustness on a real PostgreSQL server.
#![cfg(unix)]

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Healing, Hurt, Plan, run_and_judge};
use polylatch_robustness::sharing::Family;
use polylatch_robustness::stage::Stage;
use polylatch_robustness::{crowd, size};
use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::proxy::{Hold, Proxy};

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// Short times, so that a killed holder costs half a second and not four.
const OPTIONS: &str = "lease=600ms&provisional=300ms&poll=50ms";

fn on_stage(scenario: impl FnOnce(&Stage)) {
    // What a process does is tried here. A disk that others keep busy would lose leases that are to last.
    let server = PostgresServer::with(&["fsync=off"]);
    scenario(&Stage::new(WORKER, &server.url(), Evidence::new(None)));
}

/// Eight URLs: every second worker goes through the proxy, and every fourth does not listen, as behind a pooler.
fn urls(server: &PostgresServer, proxy: &Proxy) -> Vec<String> {
    let url = |place| {
        let url = if place % 2 == 0 { server.url() } else { server.url_through(proxy.address()) };
        let wake = if place % 4 == 3 { "poll" } else { "notify" };
        format!("{url}?{OPTIONS}&wake={wake}")
    };
    (0..8).map(url).collect()
}

/// Ways to hurt the server and the connections, with how often each is chosen.
fn faults_of<'test>(server: &'test PostgresServer, proxy: &'test Proxy) -> Vec<(u64, Hurt<'test>)> {
    let reset: Hurt<'test> = Box::new(move |_| {
        proxy.reset_all();
        ("reset of connections".into(), None)
    });
    // Longer than a first lease: what waits in the proxy arrives when another client holds.
    let silence: Hurt<'test> = Box::new(move |random| {
        let hold = [Hold::Stall, Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(4) as usize];
        proxy.set_hold(hold);
        let length = Duration::from_millis(200 + random.below(1000));
        let end: Healing<'test> = (length, Box::new(move || proxy.set_hold(Hold::Off)));
        (format!("silence: {hold:?} for {length:?}"), Some(end))
    });
    let terminate: Hurt<'test> = Box::new(move |_| {
        // A paused server would not answer, and one that was killed has no connections.
        server.resume();
        let ended = if server.is_running() { server.terminate_clients() } else { 0 };
        (format!("pg_terminate_backend: {ended} connections"), None)
    });
    let pause_server: Hurt<'test> = Box::new(move |random| {
        server.pause();
        let length = Duration::from_millis(50 + random.below(400));
        let end: Healing<'test> = (length, Box::new(move || server.resume()));
        (format!("pause of the server: {length:?}"), Some(end))
    });
    let restart: Hurt<'test> = Box::new(move |random| {
        server.kill();
        let down = Duration::from_millis(random.below(300));
        let back: Healing<'test> = (
            down,
            Box::new(move || {
                if !server.is_running() {
                    server.start_again();
                }
            }),
        );
        (format!("kill of the server: back after {down:?}"), Some(back))
    });
    vec![(8, reset), (14, silence), (12, terminate), (4, pause_server), (5, restart)]
}

/// Everything is hurt; every kind of lock keeps its rules.
#[track_caller]
fn under_all_faults(family: Family, seed: u64, sections: u64) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", sections * 40) / 40;
    let server = PostgresServer::start();
    let proxy = Proxy::start_raw(server.address());
    let evidence = Evidence::new(Some(seed));
    let plan = Plan {
        sections,
        faults: size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 100).max(30)),
        kills: 20,
        pauses: 12,
        others: faults_of(&server, &proxy),
        // On a slow machine few sections pass in a second. Some have to last, so that others meet them.
        long_one_in: 40,
        ..Plan::usual(WORKER, family, seed, urls(&server, &proxy), server.url())
    };
    let _ = run_and_judge("postgres under load", &plan, &evidence);
}

#[test]
fn sections_never_overlap_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::Mutex, 20_261_123, 1_800);
}

#[test]
fn readers_never_meet_a_writer_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::ReadWrite, 20_261_124, 800);
}

#[test]
fn permits_are_never_more_than_there_are_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::Semaphore, 20_261_125, 800);
}

polylatch_robustness::scenarios!(on_stage);

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue() {
    on_stage(|stage| crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(stage, 2));
}
