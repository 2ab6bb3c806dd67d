//! Tens of thousands of sections while everything is hurt; a million in the long form.

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Healing, Hurt, Plan, run_and_judge};
use polylatch_robustness::random::Random;
use polylatch_robustness::sharing::Family;
use polylatch_robustness::size;
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::RedisServer;

use crate::WORKER;

/// Short times, so that a killed holder costs half a second and not four.
const OPTIONS: &str = "lease=600ms&provisional=300ms&poll=50ms";

/// Eight URLs: every second worker goes through the proxy.
fn urls(server: &RedisServer, proxy: &Proxy) -> Vec<String> {
    let url = |place| if place % 2 == 0 { server.url() } else { proxy.url() };
    (0..8).map(|place| format!("{}?{OPTIONS}", url(place))).collect()
}

/// Ways to hurt the server and the connections through the proxy, with how often each is chosen.
fn faults_of<'test>(server: &'test RedisServer, proxy: &'test Proxy) -> Vec<(u64, Hurt<'test>)> {
    let command = |words: &'static [&'static str]| -> Hurt<'test> {
        Box::new(move |_: &mut Random| {
            // A paused server would not answer.
            server.resume();
            let reply = server.command(words);
            assert!(reply.error().is_none(), "{words:?}: {reply:?}");
            (words.join(" ").to_lowercase(), None)
        })
    };
    let reset: Hurt<'test> = Box::new(move |_| {
        proxy.reset_all();
        ("reset of connections".into(), None)
    });
    let lose_reply: Hurt<'test> = Box::new(move |random| {
        let nth = 1 + random.below(30) as usize;
        proxy.drop_reply("EVALSHA", nth);
        (format!("loss of a reply: {nth}"), None)
    });
    let lose_request: Hurt<'test> = Box::new(move |random| {
        let nth = 1 + random.below(30) as usize;
        proxy.drop_request("EVALSHA", nth);
        (format!("loss of a request: {nth}"), None)
    });
    let repeat_request: Hurt<'test> = Box::new(move |random| {
        let nth = 1 + random.below(30) as usize;
        proxy.duplicate_request("EVALSHA", nth);
        (format!("repeated request: {nth}"), None)
    });
    let lose_pushes: Hurt<'test> = Box::new(move |random| {
        let share = if random.once_in(2) { 1.0 } else { 0.3 };
        proxy.drop_pushes(share);
        let end: Healing<'test> = (Duration::from_millis(700), Box::new(move || proxy.drop_pushes(0.0)));
        (format!("loss of pushes: {share}"), Some(end))
    });
    // Longer than a first lease: what waits in the proxy arrives when somebody else holds.
    let silence: Hurt<'test> = Box::new(move |random| {
        let hold = [Hold::Stall, Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(4) as usize];
        proxy.set_hold(hold);
        let length = Duration::from_millis(200 + random.below(1000));
        let end: Healing<'test> = (length, Box::new(move || proxy.set_hold(Hold::Off)));
        (format!("silence: {hold:?} for {length:?}"), Some(end))
    });
    let pause_server: Hurt<'test> = Box::new(move |random| {
        server.pause();
        let length = Duration::from_millis(50 + random.below(400));
        let end: Healing<'test> = (length, Box::new(move || server.resume()));
        (format!("pause of the server: {length:?}"), Some(end))
    });
    vec![
        (8, reset),
        (8, lose_reply),
        (5, lose_request),
        (4, repeat_request),
        (6, lose_pushes),
        (12, silence),
        (2, pause_server),
        (4, command(&["SCRIPT", "FLUSH"])),
        (3, command(&["CLIENT", "KILL", "TYPE", "normal"])),
        (3, command(&["CLIENT", "KILL", "TYPE", "pubsub"])),
    ]
}

/// How many threads of a process contend for how many locks.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    threads: u64,
    locks: u64,
}

/// Most wait for others.
const NARROW: Crowd = Crowd { threads: 3, locks: 6 };

/// Most locks are free, and a process asks for several at the same time, which go together.
const WIDE: Crowd = Crowd { threads: 16, locks: 400 };

/// Most locks are free, and a process often comes back to one that it has kept.
const FAITHFUL: Crowd = Crowd { threads: 4, locks: 150 };

/// Everything is hurt; every kind of lock keeps its rules.
#[track_caller]
fn under_all_faults(family: Family, crowd: Crowd, seed: u64, sections: u64) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", sections);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let evidence = Evidence::new(Some(seed));
    let plan = Plan {
        sections,
        faults: size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 1_700).max(20)),
        threads: crowd.threads,
        locks: crowd.locks,
        kills: 35,
        pauses: 20,
        others: faults_of(&server, &proxy),
        ..Plan::usual(WORKER, family, seed, urls(&server, &proxy), server.url())
    };
    let _ = run_and_judge("redis under load", &plan, &evidence);
    assert!(proxy.malformed().is_empty(), "{:?}", proxy.malformed());
}

/// The server is killed again and again, and comes back with what it had written down.
#[track_caller]
fn under_restarts(family: Family, seed: u64, sections: u64, faults: u64) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let server = RedisServer::builder().append_only().start();
    let proxy = Proxy::start(server.address());
    let evidence = Evidence::new(Some(seed));
    let restart: Hurt<'_> = Box::new(|random| {
        server.kill();
        let down = Duration::from_millis(random.below(300));
        let back: Healing<'_> = (
            down,
            Box::new(|| {
                if !server.is_running() {
                    server.start_again();
                }
            }),
        );
        (format!("kill of the server: back after {down:?}"), Some(back))
    });
    let plan = Plan {
        sections: size("POLYLATCH_ROBUSTNESS_SECTIONS", sections * 20) / 20,
        faults,
        others: vec![(5, restart)],
        ..Plan::usual(WORKER, family, seed, urls(&server, &proxy), server.url())
    };
    let _ = run_and_judge("redis killed under load", &plan, &evidence);
}

#[test]
fn sections_never_overlap_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::Mutex, NARROW, 20_260_101, 60_000);
}

#[test]
fn sections_never_overlap_while_requests_that_go_together_are_hurt() {
    under_all_faults(Family::Mutex, WIDE, 20_261_122, 30_000);
}

#[test]
fn sections_of_kept_locks_never_overlap_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::Kept, FAITHFUL, 20_261_127, 15_000);
}

#[test]
fn sections_of_kept_locks_never_overlap_while_the_server_is_killed_and_comes_back_with_its_data() {
    under_restarts(Family::Kept, 20_261_128, 2_500, 8);
}

#[test]
fn readers_never_meet_a_writer_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::ReadWrite, NARROW, 20_260_104, 15_000);
}

#[test]
fn permits_are_never_more_than_there_are_while_workers_connections_and_server_are_hurt() {
    under_all_faults(Family::Semaphore, NARROW, 20_260_105, 15_000);
}

#[test]
fn sections_never_overlap_while_the_server_is_killed_and_comes_back_with_its_data() {
    under_restarts(Family::Mutex, 20_260_102, 10_000, 24);
}

#[test]
fn readers_never_meet_a_writer_while_the_server_is_killed_and_comes_back_with_its_data() {
    under_restarts(Family::ReadWrite, 20_260_106, 2_500, 8);
}

#[test]
fn permits_are_never_more_than_there_are_while_the_server_is_killed_and_comes_back() {
    under_restarts(Family::Semaphore, 20_260_107, 2_500, 8);
}
