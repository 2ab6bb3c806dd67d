//! Robustness on five Redis servers that decide by majority: tens of thousands of sections while nodes
//! are killed, emptied, paused, slow and cut off.
//!
//! `POLYLATCH_REDLOCK_SECTIONS` (4 000) and `POLYLATCH_REDLOCK_FAULTS` (18) set the size. Locks that are held for
//! seconds are in `redlock_held`.
#![cfg(unix)]

use std::sync::Mutex;
use std::time::{Duration, Instant};

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Healing, Hurt, Plan, SELDOM, run};
use polylatch_robustness::random::Random;
use polylatch_robustness::scenarios;
use polylatch_robustness::sharing::Family;
use polylatch_robustness::size;
use polylatch_robustness::stage::Stage;
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::RedisServer;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

const NODES: usize = 5;

/// So many may be away together.
const SPARE: usize = 2;

/// Short times, so that a killed holder costs half a second and a restarted node one second.
const OPTIONS: &str = "lease=600ms&provisional=300ms&poll=50ms&max_lease=1s&node_timeout=75ms";

/// How long a restarted node sits out, with what it takes to be let in again.
const SITS_OUT: Duration = Duration::from_millis(1300);

struct Nodes {
    servers: Vec<RedisServer>,
    /// In front of every node; half of the workers go through them.
    proxies: Vec<Proxy>,
    /// Until when a node is away.
    away: Mutex<[Option<Instant>; NODES]>,
}

impl Nodes {
    fn start() -> Self {
        let servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
        let proxies = servers.iter().map(|server| Proxy::start(server.address())).collect();
        Self { servers, proxies, away: Mutex::default() }
    }

    fn url(&self, through_proxies: bool) -> String {
        let direct = self.servers.iter().map(RedisServer::address);
        let places: Vec<_> = match through_proxies {
            true => self.proxies.iter().map(|proxy| proxy.address().to_string()).collect(),
            false => direct.map(|address| address.to_string()).collect(),
        };
        format!("redlock://{}?{OPTIONS}", places.join(","))
    }

    /// Chooses a node that may be away for so long: never more than a minority together.
    fn choose(&self, random: &mut Random, length: Duration) -> Option<usize> {
        let mut away = self.away.lock().expect("nothing panics while holding it");
        let now = Instant::now();
        for node in away.iter_mut() {
            *node = node.filter(|until| *until > now);
        }
        if away.iter().flatten().count() >= SPARE {
            return None;
        }
        let mut at = random.below(NODES as u64) as usize;
        while away[at].is_some() {
            at = (at + 1) % NODES;
        }
        away[at] = Some(now + length + SITS_OUT);
        Some(at)
    }
}

/// A fault of a node; where too many are away already, it waits its turn.
fn on_a_node<'test>(
    nodes: &'test Nodes,
    length: fn(&mut Random) -> Duration,
    hurt: impl Fn(usize, Duration) -> (String, Option<Healing<'test>>) + 'test,
) -> Hurt<'test> {
    Box::new(move |random| {
        let length = length(random);
        loop {
            if let Some(at) = nodes.choose(random, length) {
                return hurt(at, length);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

fn faults_of(nodes: &Nodes) -> Vec<(u64, Hurt<'_>)> {
    let short = |random: &mut Random| Duration::from_millis(50 + random.below(500));
    let refuse = on_a_node(nodes, short, move |at, length| {
        nodes.servers[at].kill();
        let back: Healing<'_> = (length, Box::new(move || nodes.servers[at].start_again()));
        (format!("node refuses, and comes back empty: {at} after {length:?}"), Some(back))
    });
    let empty = on_a_node(
        nodes,
        |_| Duration::ZERO,
        move |at, _| {
            nodes.servers[at].restart_empty();
            (format!("node restarts empty: {at}"), None)
        },
    );
    let flush = on_a_node(
        nodes,
        |_| Duration::ZERO,
        move |at, _| {
            assert!(nodes.servers[at].command(&["FLUSHALL"]).is_ok());
            (format!("node is emptied: {at}"), None)
        },
    );
    let pause = on_a_node(
        nodes,
        |random| Duration::from_millis(100 + random.below(900)),
        move |at, length| {
            nodes.servers[at].pause();
            let on: Healing<'_> = (length, Box::new(move || nodes.servers[at].resume()));
            (format!("node is paused: {at} for {length:?}"), Some(on))
        },
    );
    let slow = on_a_node(nodes, short, move |at, length| {
        nodes.proxies[at].set_latency(Duration::from_millis(30), Duration::from_millis(20));
        let on: Healing<'_> =
            (length, Box::new(move || nodes.proxies[at].set_latency(Duration::ZERO, Duration::ZERO)));
        (format!("node is slow: {at} for {length:?}"), Some(on))
    });
    let cut = on_a_node(nodes, short, move |at, length| {
        nodes.proxies[at].set_hold(Hold::Stall);
        let on: Healing<'_> = (length, Box::new(move || nodes.proxies[at].set_hold(Hold::Off)));
        (format!("node is cut off: {at} for {length:?}"), Some(on))
    });
    let reset: Hurt<'_> = Box::new(|random| {
        let at = random.below(NODES as u64) as usize;
        nodes.proxies[at].reset_all();
        (format!("reset of connections: {at}"), None)
    });
    let lose_reply: Hurt<'_> = Box::new(|random| {
        let (at, nth) = (random.below(NODES as u64) as usize, 1 + random.below(30) as usize);
        nodes.proxies[at].drop_reply("EVALSHA", nth);
        (format!("loss of a reply: {at}"), None)
    });
    vec![(5, refuse), (6, empty), (2, flush), (5, pause), (3, slow), (3, cut), (2, reset), (2, lose_reply)]
}

#[test]
fn sections_never_overlap_while_nodes_are_killed_emptied_paused_slow_and_cut_off() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_260_104);
    let sections = size("POLYLATCH_REDLOCK_SECTIONS", 4_000);
    let faults = size("POLYLATCH_REDLOCK_FAULTS", 18);
    let nodes = Nodes::start();
    let evidence = Evidence::new(Some(seed));
    let plan = Plan {
        program: WORKER,
        seed,
        sections,
        faults,
        urls: (0..6).map(|place| nodes.url(place % 2 == 1)).collect(),
        quick: (Vec::new(), 0),
        threads: 3,
        locks: 6,
        family: Family::Mutex,
        looks: nodes.url(false),
        long: Duration::from_millis(450),
        long_one_in: SELDOM,
        pause: Duration::from_millis(1100),
        kills: 2,
        pauses: 2,
        others: faults_of(&nodes),
        apart: Duration::ZERO,
    };
    let mut outcome = run(&plan, &evidence);
    let told_early = outcome.history.expect_early_news().len();
    println!("losses told before the lease had ended, because too few nodes remembered it: {told_early}");
    println!("redlock under load (seed {seed}):\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    for proxy in &nodes.proxies {
        assert!(proxy.malformed().is_empty(), "{:?}", proxy.malformed());
    }
    assert!(outcome.figures.sections as u64 >= sections);
    assert!(outcome.figures.faults.values().sum::<u64>() >= faults);
}

#[test]
fn two_to_sixteen_contenders_of_one_lock_get_past_each_other() {
    for contenders in [2, 4, 16] {
        let nodes = Nodes::start();
        let evidence = Evidence::new(None);
        let plan = Plan {
            program: WORKER,
            seed: 7,
            sections: 150,
            faults: 0,
            urls: vec![nodes.url(false); contenders],
            quick: (Vec::new(), 0),
            threads: 1,
            locks: 1,
            family: Family::Mutex,
            looks: nodes.url(false),
            long: Duration::from_millis(5),
            long_one_in: SELDOM,
            pause: Duration::ZERO,
            kills: 0,
            pauses: 0,
            others: Vec::new(),
            apart: Duration::ZERO,
        };
        let mut outcome = run(&plan, &evidence);
        println!("{contenders} contenders of one lock:\n{}", outcome.figures);
        evidence.judge(&mut outcome.history);
    }
}

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let nodes = Nodes::start();
    let url = nodes.url(false);
    let url = url.split('?').next().expect("options follow");
    scenario(&Stage::new(WORKER, url, Evidence::new(None)));
}

#[test]
fn the_next_waiter_follows_a_holder_killed_under_its_first_lease() {
    on_stage(scenarios::the_next_waiter_follows_a_holder_killed_under_its_first_lease);
}

#[test]
fn the_next_waiter_follows_a_holder_killed_after_a_renewal() {
    on_stage(scenarios::the_next_waiter_follows_a_holder_killed_after_a_renewal);
}

#[test]
fn a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused() {
    on_stage(scenarios::a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused);
}
