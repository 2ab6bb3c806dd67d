//! Hundreds of thousands of sections while everything is hurt.

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Figures, Healing, Hurt, Plan, run};
use polylatch_robustness::random::Random;
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

#[test]
fn sections_never_overlap_while_workers_connections_and_server_are_hurt() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_260_101);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", 200_000);
    let faults = size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 1_700).max(20));
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let evidence = Evidence::new(Some(seed));
    let plan = Plan {
        program: WORKER,
        seed,
        sections,
        faults,
        urls: urls(&server, &proxy),
        threads: 3,
        locks: 6,
        long: Duration::from_millis(450),
        pause: Duration::from_millis(1100),
        kills: 35,
        pauses: 20,
        others: faults_of(&server, &proxy),
    };
    let mut outcome = run(&plan, &evidence);
    println!("redis under load (seed {seed}):\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    assert!(proxy.malformed().is_empty(), "{:?}", proxy.malformed());
    expect_enough(&outcome.figures, sections, faults);
}

#[test]
fn sections_never_overlap_while_the_server_is_killed_and_comes_back_with_its_data() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_260_102);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", 200_000) / 20;
    let faults = 24;
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
        program: WORKER,
        seed,
        sections,
        faults,
        urls: urls(&server, &proxy),
        threads: 3,
        locks: 6,
        long: Duration::from_millis(450),
        pause: Duration::from_millis(1100),
        kills: 1,
        pauses: 0,
        others: vec![(5, restart)],
    };
    let mut outcome = run(&plan, &evidence);
    println!("redis killed under load (seed {seed}):\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    expect_enough(&outcome.figures, sections, faults);
}

/// A run that hurt too little would prove too little.
#[track_caller]
fn expect_enough(figures: &Figures, sections: u64, faults: u64) {
    assert!(figures.sections as u64 >= sections, "{figures}");
    assert!(figures.faults.values().sum::<u64>() >= faults, "{figures}");
}
