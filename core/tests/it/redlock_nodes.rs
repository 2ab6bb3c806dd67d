//! Nodes that are down, hung, restarted or slow, and what holders and contenders notice of it.

#![cfg(all(feature = "redis", unix))]

use std::time::{Duration, Instant};

use pollster::block_on;
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{ErrorKind, LostReason, Polylatch};
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::{wait_for, wait_until};

const SOON: Duration = Duration::from_secs(20);

struct Nodes(Vec<RedisServer>);

impl Nodes {
    fn start(count: usize) -> Self {
        Self((0..count).map(|_| RedisServer::start()).collect())
    }

    fn url(&self, options: &str) -> String {
        let places: Vec<_> = self.0.iter().map(|server| server.address().to_string()).collect();
        format!("redlock://{}?{options}", places.join(","))
    }

    fn connect(&self, options: &str) -> Polylatch {
        block_on(Polylatch::connect(&self.url(options))).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// How many of the nodes have a lock of this name.
    fn held(&self, name: &str) -> usize {
        let key = format!("polylatch:{{{name}}}:lock");
        self.0.iter().filter(|server| server.is_running() && self.has(server, &key)).count()
    }

    fn has(&self, server: &RedisServer, key: &str) -> bool {
        server.try_command(&["GET", key]).is_ok_and(|reply| reply.text().is_some())
    }
}

fn cycles(client: &Polylatch, count: usize) -> Duration {
    let started = Instant::now();
    for _ in 0..count {
        let guard = block_on(client.lock("a").acquire()).unwrap();
        block_on(guard.release()).unwrap();
    }
    started.elapsed()
}

#[test]
fn no_client_waits_for_a_minority_that_is_hung() {
    let nodes = Nodes::start(5);
    let client = nodes.connect("node_timeout=500ms");
    cycles(&client, 5);
    nodes.0[0].pause();
    nodes.0[3].pause();
    let took = cycles(&client, 100);
    // A single wait for a hung node would be half a second; this is room for a loaded machine.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let (one, two) = (nodes.connect("node_timeout=200ms"), nodes.connect("node_timeout=200ms"));
    let guard = block_on(one.lock("b").acquire()).unwrap();
    assert!(block_on(two.lock("b").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
    nodes.0[0].resume();
    nodes.0[3].resume();
    // What they carry out late leaves nothing for longer than a first lease.
    wait_until("the nodes that came back are free", SOON, || nodes.held("a") + nodes.held("b") == 0);
    wait_until("they take part again", SOON, || {
        let guard = block_on(client.lock("c").acquire()).unwrap();
        let held = nodes.held("c");
        block_on(guard.release()).unwrap();
        held == 5
    });
}

#[test]
fn a_majority_that_is_down_is_an_error_and_the_lock_is_had_when_it_comes_back() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("timeout=1s&lease=2s&max_lease=2s");
    cycles(&client, 1);
    nodes.0[0].kill();
    nodes.0[1].kill();
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuorumUnreachable, "{error}");
    assert!(error.to_string().contains(&nodes.0[0].address().to_string()), "{error}");
    wait_until("the one yes was taken back", SOON, || nodes.held("a") == 0);
    nodes.0[0].start_again();
    nodes.0[1].start_again();
    // They have forgotten everything, so they sit out, whether this client has seen that yet or not.
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    let told = [ErrorKind::BackendUnavailable, ErrorKind::QuorumUnreachable];
    assert!(told.contains(&error.kind()), "{error}");
    let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
    block_on(guard.release()).unwrap();
}

#[test]
fn a_node_that_restarts_empty_does_not_vote_until_its_time_is_over() {
    let nodes = Nodes::start(3);
    let options = "lease=3s&max_lease=3s&provisional=1s&poll=100ms";
    let (holder, other) = (nodes.connect(options), nodes.connect(options));
    // Held by the first two only.
    nodes.0[2].kill();
    let guard = block_on(holder.lock("a").renew(false).acquire()).unwrap();
    nodes.0[2].start_again();
    let restarted = Instant::now();
    nodes.0[1].restart_empty();
    // Two of three do not know of the lock; only their silence keeps it.
    for _ in 0..20 {
        if let Ok(Some(_)) = block_on(other.lock("a").try_acquire()) {
            panic!("two holders after {:?}; the first says held: {}", restarted.elapsed(), guard.is_held());
        }
        if !guard.is_held() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let next = block_on(other.lock("a").wait(SOON).acquire()).unwrap();
    assert!(!guard.is_held(), "two holders");
    assert!(restarted.elapsed() >= Duration::from_secs(2), "{:?}", restarted.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_flushed_node_counts_as_restarted() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("lease=2s&max_lease=2s");
    let first = block_on(client.lock("a").acquire()).unwrap().fencing_token();
    assert!(nodes.0[0].command(&["FLUSHALL"]).is_ok());
    assert!(nodes.0[1].command(&["FLUSHALL"]).is_ok());
    let started = Instant::now();
    let error = block_on(client.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    let guard = block_on(client.lock("b").wait(SOON).acquire()).unwrap();
    assert!(started.elapsed() > Duration::from_millis(1500), "{:?}", started.elapsed());
    assert!(guard.fencing_token() > first);
}

#[test]
fn a_restarted_node_gets_a_held_lease_back_and_loses_it_with_the_release() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("lease=1s&provisional=400ms&poll=100ms");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    nodes.0[0].restart_empty();
    wait_until("the node has the lease again", SOON, || nodes.held("a") == 3);
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    wait_until("no node has it", SOON, || nodes.held("a") == 0);
}

#[test]
fn a_failed_renewal_unlocks_nothing_and_the_holder_knows_in_time() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("lease=1500ms&provisional=800ms&poll=100ms&timeout=1s");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("it was renewed", SOON, || guard.renewals() >= 1);
    nodes.0[0].pause();
    nodes.0[1].pause();
    block_on(guard.endangered());
    assert!(nodes.has(&nodes.0[2], "polylatch:{a}:lock"), "the one that answers still has it");
    assert!(guard.is_held());
    nodes.0[0].resume();
    nodes.0[1].resume();
    wait_until("it is safe again", SOON, || guard.remaining() > Duration::from_millis(1000));
    nodes.0[0].pause();
    nodes.0[1].pause();
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    assert!(!guard.is_held());
    nodes.0[0].resume();
    nodes.0[1].resume();
}

#[test]
fn a_holder_that_no_majority_has_is_notified() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("lease=4s&provisional=1s&poll=100ms");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    // A renewal between the two gives the first one its lease back; then they forget once more.
    wait_until("the holder is told", SOON, || {
        for server in &nodes.0[..2] {
            server.command(&["DEL", "polylatch:{a}:lock"]);
        }
        !guard.is_held()
    });
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
}

#[test]
fn waiters_follow_each_other_without_waiting_for_a_poll() {
    let nodes = Nodes::start(3);
    // A poll would come after twenty seconds.
    let options = "poll=10s&provisional=25s&lease=30s";
    let clients: Vec<_> = (0..4).map(|_| nodes.connect(options)).collect();
    let held = block_on(clients[0].lock("a").acquire()).unwrap();
    let waiting: Vec<_> = clients[1..]
        .iter()
        .map(|client| {
            let lock = client.lock("a").wait(SOON);
            std::thread::spawn(move || {
                let guard = block_on(lock.acquire()).unwrap();
                block_on(guard.release()).unwrap();
            })
        })
        .collect();
    let query = Query { name: Some("a".into()), ..Query::default() };
    wait_until("all wait", SOON, || {
        block_on(clients[0].inspect().list(&query)).unwrap().locks[0].waiters.len() == 3
    });
    let started = Instant::now();
    block_on(held.release()).unwrap();
    for thread in waiting {
        thread.join().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn who_enters_by_a_majority_leaves_no_place_on_a_node_that_refused() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("");
    // Another program has the key on one node, so that node says no and lets the contender wait.
    let taken = ["SET", "polylatch:{a}:lock", "somebody else", "PX", "60000"];
    assert!(nodes.0[2].command(&taken).is_ok());
    let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
    wait_until("the third node has refused", SOON, || {
        nodes.0[2].command(&["ZCARD", "polylatch:{a}:crowd"]).int() == Some(1)
    });
    block_on(guard.release()).unwrap();
    wait_until("nobody waits there any more", Duration::from_secs(2), || {
        nodes.0[2].command(&["ZCARD", "polylatch:{a}:crowd"]).int() == Some(0)
    });
}

#[test]
fn who_loses_a_lock_leaves_no_place_on_a_node_that_refused() {
    for told in ["by a push", "by a renewal"] {
        let nodes = Nodes::start(3);
        let client = nodes.connect("");
        let taken = ["SET", "polylatch:{a}:lock", "somebody else", "PX", "60000"];
        assert!(nodes.0[2].command(&taken).is_ok());
        let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
        let crowd = || nodes.0[2].command(&["ZCARD", "polylatch:{a}:crowd"]).int();
        wait_until("the third node has refused", SOON, || crowd() == Some(1));
        if told == "by a push" {
            let request = BreakRequest {
                name: "a".into(),
                expected: guard.fencing_token(),
                by: "operator".into(),
                reason: "the test says so".into(),
            };
            block_on(client.inspect().break_lease(&request)).unwrap();
        } else {
            for server in &nodes.0[..2] {
                server.command(&["DEL", "polylatch:{a}:lock"]);
            }
        }
        wait_until(&format!("the holder is told {told}"), SOON, || !guard.is_held());
        wait_until("nobody waits there any more", Duration::from_secs(5), || crowd() == Some(0));
    }
}

#[test]
fn every_nodes_vote_is_visible() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("");
    let guard = block_on(client.lock("a").label("import").acquire()).unwrap();
    wait_until("all nodes have it", SOON, || nodes.held("a") == 3);
    nodes.0[1].kill();
    let query = Query { name: Some("a".into()), ..Query::default() };
    let lock = wait_for("the reading with a node away", SOON, || {
        let lock = block_on(client.inspect().list(&query)).unwrap().locks.remove(0);
        lock.votes.iter().any(|vote| !vote.reached).then_some(lock)
    });
    assert_eq!(lock.holders.len(), 1);
    assert_eq!(lock.holders[0].label, "import");
    assert_eq!(lock.holders[0].fencing_token, Some(guard.fencing_token()));
    let of_node = |at: usize| {
        let address = nodes.0[at].address().to_string();
        lock.votes.iter().find(|vote| vote.node == address).unwrap()
    };
    assert!(of_node(0).reached && of_node(0).remaining_ms.is_some_and(|left| left > 0), "{:?}", lock.votes);
    assert_eq!(of_node(0).owner_digest.as_ref(), Some(&lock.holders[0].owner_digest));
    assert_eq!(of_node(0).client.as_ref(), Some(client.id()));
    assert!(!of_node(1).reached && of_node(1).owner_digest.is_none());
}

#[test]
fn what_a_minority_of_the_nodes_still_has_is_visible_though_no_client_holds_it() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    wait_until("all nodes have it", SOON, || nodes.held("a") == 3);
    let key = "polylatch:{a}:lock";
    let value = nodes.0[1].try_command(&["GET", key]).unwrap().text().unwrap().to_owned();
    block_on(guard.release()).unwrap();
    wait_until("all nodes are free", SOON, || nodes.held("a") == 0);
    // As an acquisition leaves it that reached this node alone and ended there.
    nodes.0[1].try_command(&["SET", key, &value, "PX", "60000"]).unwrap();
    nodes.0[1].try_command(&["ZADD", "polylatch:locks", "9999999999999", "a"]).unwrap();
    let lock = block_on(client.inspect().list(&Query::default())).unwrap().locks.remove(0);
    assert!(lock.holders.is_empty() && lock.waiters.is_empty(), "{lock:?}");
    let held: Vec<_> = lock.votes.iter().map(|vote| vote.client.as_ref()).collect();
    assert_eq!(held, [None, Some(client.id()), None], "{lock:?}");
}

#[test]
fn examination_says_what_the_nodes_can_promise() {
    let nodes = Nodes::start(3);
    let client = nodes.connect("max_lease=15s");
    cycles(&client, 1);
    let good = block_on(client.inspect().examine()).unwrap();
    assert_eq!(good.backend, "redlock");
    assert!(!good.worst().needs_action(), "{:?}", good.findings);
    nodes.0[2].kill();
    nodes.0[1].restart_empty();
    let bad = block_on(client.inspect().examine()).unwrap();
    let finding = |id: &str| bad.finding(id).unwrap_or_else(|| panic!("{id}: {:?}", bad.findings));
    assert!(finding("nodes").title.contains("2 of 3 nodes answer"), "{:?}", finding("nodes"));
    assert!(finding("votes").severity.needs_action(), "{:?}", finding("votes"));
    assert!(finding("votes").detail.contains(&nodes.0[1].address().to_string()), "{:?}", finding("votes"));
}

#[test]
fn examination_says_where_a_longer_lease_of_another_program_is_recorded() {
    let nodes = Nodes::start(3);
    let long = nodes.connect("max_lease=10m");
    cycles(&long, 1);
    block_on(long.close());
    let finding = |options: &str| {
        let (_, examination) = block_on(Polylatch::builder().url(nodes.url(options)).examine()).unwrap();
        examination.finding("max_lease").unwrap().clone()
    };
    assert!(finding("max_lease=10m").detail.contains("no node has recorded a longer one"));
    let differs = finding("");
    assert!(differs.detail.contains("600 s, recorded on 3 of 3 nodes"), "{differs:?}");
    assert!(differs.fix.contains("max_lease=600000ms"), "{differs:?}");
    nodes.0[0].kill();
    nodes.0[1].restart_empty();
    let differs = finding("");
    assert!(differs.detail.contains("on 1 of 3 nodes"), "{differs:?}");
    assert!(differs.detail.contains("1 nodes did not answer"), "{differs:?}");
}

#[test]
fn who_holds_does_not_stand_in_the_crowd_of_a_node_that_let_it_in() {
    let nodes = Nodes::start(3);
    let (one, two) = (nodes.connect(""), nodes.connect(""));
    let waiting = |at: usize| nodes.0[at].command(&["ZCARD", "polylatch:{a}:crowd"]).int() == Some(1);
    let old = block_on(one.lock("a").acquire()).unwrap();
    let lock = two.lock("a").wait(SOON);
    let next = std::thread::spawn(move || block_on(lock.acquire()).unwrap());
    wait_until("all nodes know who waits", SOON, || (0..3).all(waiting));
    block_on(old.release()).unwrap();
    let new = next.join().unwrap();
    // A node that was told of the release too late has not let it in.
    wait_until("most nodes know that it waits no more", SOON, || {
        (0..3).filter(|at| waiting(*at)).count() <= 1
    });
    block_on(new.release()).unwrap();
}

#[test]
fn closing_a_client_takes_its_waiters_off_a_node_that_answers_late() {
    let nodes = Nodes::start(3);
    let crowd = |server: &RedisServer| server.command(&["ZCARD", "polylatch:{a}:crowd"]).int().unwrap();
    let holder = nodes.connect("");
    let _held = block_on(holder.lock("a").acquire()).unwrap();
    let client = nodes.connect("node_timeout=50ms");
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let lock = client.lock("a");
            std::thread::spawn(move || block_on(lock.acquire()).map(drop))
        })
        .collect();
    wait_until("all wait on every node", SOON, || nodes.0.iter().all(|server| crowd(server) == 16));
    // As a busy node.
    nodes.0[2].pause();
    let closing = std::thread::spawn({
        let client = client.clone();
        move || block_on(client.close())
    });
    wait_until("the others know", SOON, || nodes.0[..2].iter().all(|server| crowd(server) == 0));
    // So late is the node: four times as long as one request waits.
    std::thread::sleep(Duration::from_millis(200));
    nodes.0[2].resume();
    closing.join().unwrap();
    for waiter in waiting {
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Canceled);
    }
    assert_eq!(crowd(&nodes.0[2]), 0);
}

/// The late yes of a node is taken back, and the contender waits there too while it waits at all. Here it enters and leaves
/// at about the time at which the yes comes.
#[test]
fn who_leaves_while_a_late_yes_is_taken_back_waits_nowhere() {
    const LATE: Duration = Duration::from_millis(30);
    let nodes = Nodes::start(3);
    let slow = Proxy::start(nodes.0[2].address());
    let places = [nodes.0[0].address(), nodes.0[1].address(), slow.address()].map(|place| place.to_string());
    let client =
        block_on(Polylatch::connect(&format!("redlock://{}?node_timeout=500ms", places.join(",")))).unwrap();
    let warm = block_on(client.lock("warm").acquire()).unwrap();
    block_on(warm.release()).unwrap();
    slow.set_latency(Duration::ZERO, LATE);
    let enter_and_leave = |thread: u64| {
        let lock = client.lock(format!("a{thread}")).wait(SOON);
        for round in 0..20 {
            // Another library holds it on a majority, until about the time of the late answer.
            let taken = 26 + (thread + round) % 10;
            for server in &nodes.0[..2] {
                let key = format!("polylatch:{{a{thread}}}:lock");
                server.command(&["SET", &key, "another", "PX", &taken.to_string()]);
            }
            block_on(block_on(lock.acquire()).unwrap().release()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..16 {
            scope.spawn(move || enter_and_leave(thread));
        }
    });
    let waits = |server: &RedisServer| {
        (0..16)
            .any(|at| server.command(&["ZCARD", &format!("polylatch:{{a{at}}}:crowd")]).int().unwrap() != 0)
    };
    wait_until("no node has a waiter", SOON, || !nodes.0.iter().any(waits));
}

/// How many scripts a node has run.
fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let stats = stats.text().expect("a text").to_owned();
    let calls = |command: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    };
    calls("eval") + calls("evalsha")
}

#[test]
fn a_short_section_asks_each_node_twice_also_one_that_answers_late() {
    const SECTIONS: u64 = 300;
    let nodes = Nodes::start(5);
    let client = nodes.connect("");
    cycles(&client, 5);
    let run = || nodes.0.iter().map(scripts_run).sum::<u64>();
    let before = run();
    cycles(&client, SECTIONS as usize);
    block_on(client.close());
    let each = (run() - before) as f64 / (5 * SECTIONS) as f64;
    println!("{each:.2} scripts a section and node");
    assert!(each < 2.05, "{each:.2}");
}
