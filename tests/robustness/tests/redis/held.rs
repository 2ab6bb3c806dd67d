//! Locks that are held for seconds, with the options that users have, while everything is hurt.
//!
//! The other runs hold a lock for microseconds, so a fault seldom hits a holder. Here most faults do. None lasts
//! as long as what is left of a renewed lease, so a holder that has been renewed once must not lose it.

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Figures, Healing, Hurt, Plan, run};
use polylatch_robustness::random::Random;
use polylatch_robustness::sharing::Family;
use polylatch_robustness::size;
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::RedisServer;

use crate::WORKER;

/// By now a lease has been renewed for its whole length of 15 s: the first renewal comes after a second.
const RENEWED: Duration = Duration::from_secs(5);

/// Longest fault. With 5 s between renewals and 3 s for one request, a renewed lease of 15 s outlasts it.
const LONGEST: u64 = 4_000;

fn faults_of<'test>(server: &'test RedisServer, proxy: &'test Proxy) -> Vec<(u64, Hurt<'test>)> {
    let some_time = |random: &mut Random| Duration::from_millis(500 + random.below(LONGEST - 500));
    let silence: Hurt<'test> = Box::new(move |random| {
        let hold = [Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(3) as usize];
        proxy.set_hold(hold);
        let length = some_time(random);
        let end: Healing<'test> = (length, Box::new(move || proxy.set_hold(Hold::Off)));
        (format!("silence: {hold:?} for {length:?}"), Some(end))
    });
    let reset: Hurt<'test> = Box::new(move |_| {
        proxy.reset_all();
        ("reset of connections".into(), None)
    });
    let pause_server: Hurt<'test> = Box::new(move |random| {
        server.pause();
        let length = some_time(random);
        let end: Healing<'test> = (length, Box::new(move || server.resume()));
        (format!("pause of the server: {length:?}"), Some(end))
    });
    let restart: Hurt<'test> = Box::new(move |random| {
        server.resume();
        server.kill();
        let down = Duration::from_millis(random.below(1_500));
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
    vec![(5, silence), (2, reset), (2, pause_server), (2, restart)]
}

/// Holds locks for 7 s under faults of up to 4 s. No section that was renewed is lost.
#[track_caller]
fn held_across_faults(family: Family, seed: u64, sections: u64, faults: u64) -> Figures {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let server = RedisServer::builder().append_only().start();
    let proxy = Proxy::start(server.address());
    let evidence = Evidence::new(Some(seed));
    let urls = (0..8).map(|place| if place % 2 == 0 { server.url() } else { proxy.url() }).collect();
    let plan = Plan {
        sections: size("POLYLATCH_HELD_SECTIONS", sections),
        faults: size("POLYLATCH_HELD_FAULTS", faults),
        threads: 3,
        locks: 32,
        long: Duration::from_secs(7),
        long_one_in: 2,
        pause: Duration::from_millis(LONGEST),
        kills: 2,
        pauses: 2,
        others: faults_of(&server, &proxy),
        ..Plan::usual(WORKER, family, seed, urls, server.url())
    };
    let mut outcome = run(&plan, &evidence);
    let figures = outcome.figures;
    println!("redis, held across faults, {} (seed {seed}):\n{figures}", family.code());
    evidence.judge(&mut outcome.history);
    let lost = outcome.history.lost_after(RENEWED);
    assert!(lost.is_empty(), "renewed leases were lost: {}", lost[0]);
    assert!(figures.across_faults as u64 >= plan.faults, "too few were held while something was hurt");
    figures
}

#[test]
fn a_renewed_lease_outlasts_faults_with_the_options_that_users_have() {
    held_across_faults(Family::Mutex, 20_261_123, 150, 10);
}

#[test]
fn a_renewed_shared_lease_outlasts_faults_with_the_options_that_users_have() {
    held_across_faults(Family::ReadWrite, 20_261_124, 150, 8);
}
