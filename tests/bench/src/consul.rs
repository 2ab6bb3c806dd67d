//! Consul: an acquire and release against the raw requests that they need, and hand-offs with the
//! requests that a critical section costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use polylatch_test_services::consul::{ConsulAgent, field};

use crate::contention::{Relay, SECTIONS, contend, now};
use crate::figures::{Samples, heading, row};
use crate::http::Wire;
use crate::layout::on_processor_of_servers;

const ROUNDS: usize = 10;
const PER_ROUND: usize = 100;
/// Length of a record without a label, in base64.
const RECORD: usize = 140;

pub fn run() {
    let agent = on_processor_of_servers(ConsulAgent::start);
    uncontended(&agent);
    handoff(&agent);
}

fn uncontended(agent: &ConsulAgent) {
    heading("Consul: acquire + release of a free lock, one client (µs a pair)");
    let mut wire = Wire::connect(agent.address());
    let session =
        wire.put("/v1/session/create", "{\"TTL\":\"3600s\",\"Behavior\":\"delete\",\"NodeChecks\":[]}");
    let session = field(&session, "ID").expect("a session");
    let mine = format!(",\"Session\":\"{session}\"");
    // What the library sends for a mutex: the same operations on keys and values of the same length.
    let record = "A".repeat(RECORD);
    let take = format!(
        "[{},{},{},{}]",
        op("check-session", &format!("floor/.client/host:1:00000000/session-{session}"), &mine),
        op("check-not-exists", "floor/bench/.lock", ""),
        op("check-not-exists", "floor/bench/.line/open", ""),
        op(
            "lock",
            "floor/bench/.lock",
            &format!("{mine},\"Flags\":3304740253564472344,\"Value\":\"{record}\"")
        ),
    );
    let give = format!(
        "[{},{},{}]",
        op("check-session", "floor/bench/.lock", &mine),
        op("check-not-exists", "floor/bench/.line/open", ""),
        op("delete", "floor/bench/.lock", ""),
    );
    let bare_take = format!("[{}]", op("lock", "floor/bare", &format!("{mine},\"Value\":\"aGVsbG8=\"")));
    let bare_give = format!("[{}]", op("delete", "floor/bare", ""));
    let marker = op("lock", &format!("floor/.client/host:1:00000000/session-{session}"), &mine);
    wire.put("/v1/txn", &format!("[{marker}]"));
    let client = polylatch::blocking::Polylatch::connect(&agent.url()).expect("it connects");
    let lock = client.lock("bench");
    let (mut bare, mut floor, mut ours) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        bare.extend(timed(|| {
            wire.put("/v1/txn", &bare_take);
            wire.put("/v1/txn", &bare_give);
        }));
        floor.extend(timed(|| {
            wire.put("/v1/txn", &take);
            wire.put("/v1/txn", &give);
        }));
        ours.extend(timed(|| {
            lock.acquire().expect("it is free").release().expect("it is held");
        }));
    }
    row("a lock and a delete, blocking socket", "µs", &bare, &[]);
    row("floor: the same two transactions, blocking socket", "µs", &floor, &[]);
    let floors = [("floor", floor.median()), ("lock and delete", bare.median())];
    row("polylatch, blocking API", "µs", &ours, &floors);
    client.close();
}

/// One operation of a transaction, with more fields.
fn op(verb: &str, key: &str, more: &str) -> String {
    format!("{{\"KV\":{{\"Verb\":\"{verb}\",\"Key\":\"{key}\"{more}}}}}")
}

fn timed(mut pair: impl FnMut()) -> Vec<f64> {
    (0..PER_ROUND).map(|_| once(&mut pair)).collect()
}

fn once(work: &mut dyn FnMut()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_nanos() as f64 / 1e3
}

fn rest(pause: Duration) {
    if !pause.is_zero() {
        thread::sleep(pause);
    }
}

fn handoff(agent: &ConsulAgent) {
    heading("Consul: hand-off of a contended lock (µs)");
    let (mut wire, start) = (Wire::connect(agent.address()), Instant::now());
    for waiters in [1, 8, 64] {
        let parties = (waiters + 1).min(crate::contention::CLIENTS);
        // Nothing but hand-offs; and sections that take a while, as in a program that works. Between two of
        // those nobody asks anything, and the first request after such a pause takes longer by itself: so the
        // floors have the same pauses.
        for held in [Duration::ZERO, Duration::from_millis(3)] {
            let mut trip = Samples::default();
            trip.extend((0..PER_ROUND).map(|_| {
                rest(held);
                once(&mut || {
                    drop(wire.put("/v1/txn", &format!("[{}]", op("set", "floor/x", &value(&start)))))
                })
            }));
            row(&format!("floor: one transaction, pauses of {held:?}"), "µs", &trip, &[]);
            let mut push = Samples::default();
            push.extend(between_threads(agent, parties, held));
            row(
                &format!("floor: bare hand-over, {parties} threads, pauses of {held:?}"),
                "µs",
                &push,
                &[("transaction", trip.median())],
            );
            let floors = [("transaction", trip.median()), ("hand-over", push.median())];
            let (ours, _) = contend(&agent.url(), &agent.url(), waiters, held, || 0);
            row(&format!("polylatch, {waiters} waiters, sections of {held:?}"), "µs", &ours, &floors);
        }
        // Counted in a run of its own: what passes bytes on takes time.
        let relay = Relay::start(agent.address(), |sent| {
            u64::from(sent.starts_with(b"PUT /v1") || sent.starts_with(b"GET /v1"))
        });
        let url = format!("consul://{}", relay.address);
        let (_, requests) = contend(&agent.url(), &url, waiters, Duration::ZERO, || relay.requests());
        println!("    requests per critical section {requests:.2}");
    }
}

/// A transaction that writes a key, and a request that waits for it in the thread whose turn it is then:
/// the least that a hand-over can be, without a line, fences, or anything else that makes it safe.
fn between_threads(agent: &ConsulAgent, parties: usize, held: Duration) -> Vec<f64> {
    let (start, address) = (Instant::now(), agent.address());
    let released_at = Arc::new(AtomicU64::new(0));
    let ready = Arc::new(Barrier::new(parties));
    let write = move |key: usize| format!("[{}]", op("set", &format!("push/{key}"), &value(&start)));
    for party in 0..parties {
        Wire::connect(address).put("/v1/txn", &write(party));
    }
    let threads: Vec<_> = (0..parties)
        .map(|party| {
            let (released_at, ready) = (Arc::clone(&released_at), Arc::clone(&ready));
            thread::spawn(move || {
                let (mut wire, mut inbox) = (Wire::connect(address), Wire::connect(address));
                let mut index = wait_for(&mut inbox, party, "0");
                ready.wait();
                let mut latencies = Vec::new();
                for turn in 0..SECTIONS / parties {
                    if party > 0 || turn > 0 {
                        index = wait_for(&mut inbox, party, &index);
                        latencies.push((now(start) - released_at.load(Ordering::SeqCst)) as f64 / 1e3);
                    }
                    rest(held);
                    released_at.store(now(start), Ordering::SeqCst);
                    wire.put("/v1/txn", &write((party + 1) % parties));
                }
                latencies
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
}

/// Waits until a key changes after `index`; returns the index it has then.
fn wait_for(inbox: &mut Wire, key: usize, index: &str) -> String {
    let (head, _) = inbox.ask("GET", &format!("/v1/kv/push/{key}?index={index}&wait=10s"), "");
    let index = head.lines().find_map(|line| line.strip_prefix("X-Consul-Index: "));
    index.expect("an index").to_owned()
}

/// A value that has not been written before, in base64.
fn value(start: &Instant) -> String {
    let digits = format!("{:016}", now(*start));
    let text: String =
        digits.bytes().flat_map(|digit| [b'A' + (digit - b'0'), b'A']).take(32).map(char::from).collect();
    format!(",\"Value\":\"{text}\"")
}
