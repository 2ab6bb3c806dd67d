//! etcd: an acquire and release against the two transactions that they need, and hand-offs against a lock request that the
//! member itself lets wait.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polylatch::blocking::Polylatch;
use polylatch_test_services::etcd::EtcdMember;
use serde_json::{Value, json};

use crate::contention::{Relay, contend};
use crate::database::timed;
use crate::figures::{Samples, heading, row};
use crate::http::Wire;
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 10;
const HAND_OFFS: usize = 100;

/// How long a lock is held before a hand-off: the other client certainly waits by then.
const HELD: Duration = Duration::from_millis(15);

/// The same for the floor: a member serves the watch of a younger lock request once in 0.1 s only.
const HELD_FOR_THE_FLOOR: Duration = Duration::from_millis(150);

/// Length of what a contender writes into its key.
const RECORD: usize = 140;

pub fn run() {
    let member = on_processor_of_servers(EtcdMember::start);
    uncontended(&member);
    handoff(&member);
}

fn bytes(text: &str) -> String {
    STANDARD.encode(text)
}

fn ask(wire: &mut Wire, target: &str, body: &Value) -> Value {
    let (head, answer) = wire.ask("POST", target, &body.to_string());
    assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}\n{answer}");
    serde_json::from_str(&answer).expect("JSON")
}

fn lease(wire: &mut Wire) -> String {
    ask(wire, "/v3/lease/grant", &json!({"TTL": "3600"}))["ID"].as_str().expect("a lease").to_owned()
}

fn uncontended(member: &EtcdMember) {
    heading("etcd: acquire + release of a free lock, one client (µs a pair)");
    let mut wire = Wire::connect(member.address());
    let lease = lease(&mut wire);
    let (folder, end, key) =
        (bytes("floor/bench/"), bytes("floor/bench0"), bytes("floor/bench/694d7a1b2c3d4e5f"));
    let record = bytes(&"a".repeat(RECORD));
    // What the library sends for a mutex: the same comparisons and operations, on keys and values of the same length.
    let take = json!({
        "compare": [{"key": folder, "range_end": end, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
        "success": [{"request_put": {"key": key, "value": record, "lease": lease}}],
        "failure": [{"request_range": {
            "key": folder, "range_end": end, "sort_target": "CREATE", "sort_order": "ASCEND", "limit": "1",
        }}],
    });
    let raw_pair = || {
        let taken = ask(&mut wire, "/v3/kv/txn", &take);
        let revision = taken["header"]["revision"].as_str().expect("a revision");
        assert_eq!(taken["succeeded"], true, "the floor does what the library does");
        let leave = json!({
            "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": revision}],
            "success": [{"request_delete_range": {"key": key}}],
        });
        assert_eq!(ask(&mut wire, "/v3/kv/txn", &leave)["succeeded"], true, "it is held");
    };
    let mut raw_pair = raw_pair;
    let client = Polylatch::connect(&member.url()).expect("it connects");
    let lock = client.lock("bench");
    let (mut floor, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        floor.extend(timed(&mut raw_pair));
        ours.extend(timed(|| lock.acquire().expect("it is free").release().expect("it is held")));
    }
    row("floor: two transactions, blocking socket", "µs", &floor, &[]);
    row("polylatch, blocking API", "µs", &ours, &[("floor", floor.median())]);
    client.close();
}

fn handoff(member: &EtcdMember) {
    heading("etcd: hand-off of a contended lock (µs)");
    let mut floor = Samples::default();
    floor.extend(between_two(member.address()));
    row("floor: a lock request that waits at the member", "µs", &floor, &[]);
    let floors = [("lock request", floor.median())];
    for waiters in [1, 8, 64] {
        let (ours, _) = contend(&member.url(), &member.url(), waiters, HELD, || 0);
        row(&format!("polylatch, {waiters} waiters, sections of {HELD:?}"), "µs", &ours, &floors);
        // Counted in a run of its own: what passes bytes on takes time.
        let relay = Relay::start(member.address(), |sent| u64::from(sent.starts_with(b"POST /v3")));
        let url = format!("etcd://{}", relay.address);
        let (_, requests) = contend(&member.url(), &url, waiters, HELD, || relay.requests());
        println!("    requests per critical section {requests:.2}");
    }
}

/// From an unlock request to the answer of the lock request that waits for it, in µs.
fn between_two(address: SocketAddr) -> Vec<f64> {
    let mut wires = [Wire::connect(address), Wire::connect(address)];
    let leases = wires.each_mut().map(lease);
    let lock = |wire: &mut Wire, lease: &str| {
        let taken = ask(wire, "/v3/lock/lock", &json!({"name": bytes("floor/lock"), "lease": lease}));
        taken["key"].as_str().expect("a key").to_owned()
    };
    let mut key = lock(&mut wires[0], &leases[0]);
    let mut latencies = Vec::new();
    for turn in 0..HAND_OFFS {
        let [first, second] = &mut wires;
        let (holder, waiter) = if turn % 2 == 0 { (first, second) } else { (second, first) };
        let lease = &leases[(turn + 1) % 2];
        (key, _) = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let key = lock(waiter, lease);
                (key, Instant::now())
            });
            thread::sleep(HELD_FOR_THE_FLOOR);
            let released = Instant::now();
            ask(holder, "/v3/lock/unlock", &json!({"key": key}));
            let (key, entered) = waits.join().expect("no panic");
            latencies.push(entered.duration_since(released).as_secs_f64() * 1e6);
            (key, ())
        });
    }
    latencies
}
