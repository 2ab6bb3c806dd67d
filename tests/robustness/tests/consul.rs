//! Robustness on real Consul agents.
#![cfg(unix)]

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Healing, Hurt, Plan, SELDOM, run};
use polylatch_robustness::record::Verdict;
use polylatch_robustness::sharing::Family;
use polylatch_robustness::stage::Stage;
use polylatch_robustness::{crowd, scenarios, size};
use polylatch_test_services::consul::{Cluster, ConsulAgent};
use polylatch_test_services::proxy::{Hold, Proxy};

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// Short times: the servers keep a dead session for twice its TTL. Without lock-delay nothing but the
/// holders' own clocks keeps sections apart.
const SHORT: &str = "session_ttl_min=100ms&lock_delay=0s&lease=1200ms&provisional=600ms&poll=50ms&timeout=1s";

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let agent = ConsulAgent::start();
    let url = format!("{}?session_ttl_min=100ms&lock_delay=0s", agent.url());
    scenario(&Stage::new(WORKER, &url, Evidence::new(None)));
}

#[test]
fn a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused() {
    on_stage(scenarios::a_holder_paused_beyond_its_lease_is_notified_at_once_and_refused);
}

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue() {
    on_stage(|stage| crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(stage, 4));
}

#[test]
fn sections_never_overlap_while_workers_connections_and_the_agent_are_hurt() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_261_101);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", 30_000) / 10;
    let faults = size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 300).max(20));
    let agent = ConsulAgent::start();
    let proxy = Proxy::start_raw(agent.address());
    let evidence = Evidence::new(Some(seed));
    let urls = (0..8).map(|place| match place % 2 {
        0 => format!("{}?{SHORT}", agent.url()),
        _ => format!("{}?{SHORT}", agent.url_through(proxy.address())),
    });
    let reset: Hurt<'_> = Box::new(|_| {
        proxy.reset_all();
        ("reset of connections".into(), None)
    });
    // Longer than a first lease: what waits in the proxy arrives when somebody else holds.
    let silence: Hurt<'_> = Box::new(|random| {
        let hold = [Hold::Stall, Hold::Stall, Hold::StallReplies, Hold::Swallow][random.below(4) as usize];
        proxy.set_hold(hold);
        let length = Duration::from_millis(200 + random.below(1500));
        let end: Healing<'_> = (length, Box::new(|| proxy.set_hold(Hold::Off)));
        (format!("silence: {hold:?} for {length:?}"), Some(end))
    });
    let pause_agent: Hurt<'_> = Box::new(|random| {
        agent.pause();
        let length = Duration::from_millis(50 + random.below(1200));
        let end: Healing<'_> = (length, Box::new(|| agent.resume()));
        (format!("pause of the agent: {length:?}"), Some(end))
    });
    let plan = Plan {
        program: WORKER,
        family: Family::Mutex,
        looks: format!("{}?{SHORT}", agent.url()),
        seed,
        sections,
        faults,
        urls: urls.collect(),
        threads: 3,
        locks: 6,
        long: Duration::from_millis(900),
        long_one_in: SELDOM,
        pause: Duration::from_millis(2200),
        kills: 20,
        pauses: 20,
        others: vec![(10, reset), (20, silence), (5, pause_agent)],
        quick: (Vec::new(), 0),
        apart: Duration::ZERO,
    };
    let mut outcome = run(&plan, &evidence);
    println!("consul under load (seed {seed}):\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    assert!(outcome.figures.sections as u64 >= sections, "{}", outcome.figures);
    assert!(outcome.figures.faults.values().sum::<u64>() >= faults, "{}", outcome.figures);
}

/// Sessions are destroyed while their locks are held, and some of the holders cannot be notified. A
/// lock-delay as long as the lease keeps the next one out until they know. `POLYLATCH_CONSUL_FORCED_ENDS`
/// says how many are destroyed.
#[test]
fn sections_never_overlap_while_sessions_are_destroyed() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_261_103);
    let ends = size("POLYLATCH_CONSUL_FORCED_ENDS", 12);
    let agent = ConsulAgent::start();
    let proxy = Proxy::start_raw(agent.address());
    let evidence = Evidence::new(Some(seed));
    let options = "session_ttl_min=100ms&lock_delay=3s&lease=3s&provisional=2s&poll=100ms&timeout=1s";
    let urls = (0..6).map(|place| match place % 2 {
        0 => format!("{}?{options}", agent.url()),
        _ => format!("{}?{options}", agent.url_through(proxy.address())),
    });
    let destroyed = Cell::new(0);
    let destroy: Hurt<'_> = Box::new(|random| {
        let list = agent.ask("GET", "/v1/session/list", "").body;
        let sessions: Vec<_> =
            list.split("\"ID\"").skip(1).filter_map(|part| part.split('"').nth(1)).collect();
        let notified = random.once_in(2);
        if !notified {
            proxy.set_hold(Hold::Stall);
        }
        if !sessions.is_empty() {
            let session = sessions[random.below(sessions.len() as u64) as usize];
            agent.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
            destroyed.set(destroyed.get() + 1);
        }
        let end: Healing<'_> = (Duration::from_millis(1_000), Box::new(|| proxy.set_hold(Hold::Off)));
        ("session destroyed".into(), (!notified).then_some(end))
    });
    let plan = Plan {
        program: WORKER,
        family: Family::Mutex,
        looks: format!("{}?{options}", agent.url()),
        seed,
        sections: ends * 25,
        faults: ends,
        urls: urls.collect(),
        threads: 2,
        locks: 4,
        long: Duration::from_millis(1500),
        long_one_in: 20,
        pause: Duration::from_millis(1000),
        kills: 0,
        pauses: 0,
        others: vec![(1, destroy)],
        quick: (Vec::new(), 0),
        apart: Duration::ZERO,
    };
    let mut outcome = run(&plan, &evidence);
    println!("consul with destroyed sessions (seed {seed}):\n{}", outcome.figures);
    // What is the end of a session here is told like a lock that the store does not name any more.
    for section in &mut outcome.history.sections {
        if let Some(left) = &mut section.left
            && left.verdict == Verdict::Lost("session_ended".into())
        {
            left.verdict = Verdict::Lost("superseded".into());
        }
        if let Some((_, result)) = &mut section.released
            && result == "session_ended"
        {
            *result = "superseded".into();
        }
    }
    let early = outcome.history.expect_early_news().len() as u64;
    evidence.judge(&mut outcome.history);
    assert!(outcome.figures.sections as u64 >= plan.sections, "{}", outcome.figures);
    // A destroyed session takes what its client holds, one lock of each thread, and nothing else takes a
    // lock. A section that is cut short is told twice: on leaving, and at its release.
    let most = destroyed.get() * plan.threads * 2;
    assert!(early <= most, "{early} early losses, {most} explained: {}", outcome.figures);
}

/// Locks are held, renewed and handed on while one leader after the other dies, by way of an agent that
/// stays, as on the host of an application. `POLYLATCH_CONSUL_LEADER_KILLS` says how many die.
#[test]
fn no_lock_is_lost_while_leaders_are_killed_under_load() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_261_102);
    let kills = size("POLYLATCH_CONSUL_LEADER_KILLS", 4);
    let sections = kills * 250;
    let cluster = Cluster::start();
    let agent = cluster.client_agent();
    let evidence = Evidence::new(Some(seed));
    // Elections are to be shorter than half of the lease, and a fresh lock has two thirds of it: then
    // nothing may be lost.
    let lease = Duration::from_secs(15);
    let options = "session_ttl_min=100ms&lock_delay=0s&lease=15s&provisional=10s&poll=200ms&timeout=2s";
    let urls = (0..6).map(|_| format!("{}?{options}", agent.url()));
    let elections = RefCell::new(Vec::new());
    let kill: Hurt<'_> = Box::new(|_| {
        let leader = cluster.leader().address();
        let number = cluster.servers.iter().position(|server| server.address() == leader).unwrap_or(0);
        let started = Instant::now();
        let killed = cluster.kill_leader();
        elections.borrow_mut().push(started.elapsed());
        // Two of three have to be up at any time.
        killed.start_again();
        killed.wait_for_leader();
        (format!("kill of the leader: server {number}"), None)
    });
    let plan = Plan {
        program: WORKER,
        family: Family::Mutex,
        looks: format!("{}?{options}", agent.url()),
        seed,
        sections,
        faults: kills,
        urls: urls.collect(),
        threads: 2,
        locks: 6,
        // Across an election, and without renewal over the first third of the lease.
        long: Duration::from_millis(2000),
        long_one_in: SELDOM,
        pause: Duration::from_millis(1000),
        kills: 0,
        pauses: 0,
        others: vec![(1, kill)],
        quick: (Vec::new(), 0),
        apart: Duration::ZERO,
    };
    let mut outcome = run(&plan, &evidence);
    let elections = elections.take();
    let longest = elections.iter().max().copied().unwrap_or_default();
    println!("consul with dying leaders (seed {seed}), longest election {longest:?}:\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    assert_eq!(elections.len() as u64, kills);
    assert!(longest < lease / 2, "no such election was to be: {longest:?}");
    assert!(outcome.figures.losses.is_empty(), "locks were lost: {}", outcome.figures);
    assert_eq!(outcome.figures.writes_refused, 0, "{}", outcome.figures);
    assert!(outcome.figures.sections as u64 >= sections, "{}", outcome.figures);
}
