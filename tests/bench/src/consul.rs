//! Consul: an acquire and release against the raw requests that they need, and hand-offs with the
//! requests that a critical section costs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::consul::{ConsulAgent, field};
use tokio::runtime::Builder;

use crate::figures::{Samples, heading, row};

const ROUNDS: usize = 10;
const PER_ROUND: usize = 100;
const SECTIONS: usize = 400;
/// Length of a record without a label, in base64.
const RECORD: usize = 140;
/// Clients that contend; waiters are spread over them.
const CLIENTS: usize = 8;

pub fn run() {
    let agent = ConsulAgent::start();
    uncontended(&agent);
    handoff(&agent);
}

/// A connection that is kept, and nothing else: the floor.
struct Wire(TcpStream, Vec<u8>);

impl Wire {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the agent listens");
        stream.set_nodelay(true).expect("a socket");
        Self(stream, vec![0; 1 << 16])
    }

    fn put(&mut self, target: &str, body: &str) -> String {
        self.ask("PUT", target, body).1
    }

    /// Sends one request; returns head and body of the answer.
    fn ask(&mut self, method: &str, target: &str, body: &str) -> (String, String) {
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.0.write_all(request.as_bytes()).expect("the agent reads");
        let mut filled = 0;
        loop {
            filled += self.0.read(&mut self.1[filled..]).expect("the agent answers");
            let text = std::str::from_utf8(&self.1[..filled]).expect("text");
            let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
            if rest.len() >= length {
                return (head.to_owned(), rest.to_owned());
            }
        }
    }
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
        let parties = (waiters + 1).min(CLIENTS);
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
            let (ours, _) = contend(agent, &agent.url(), waiters, held, || 0);
            row(&format!("polylatch, {waiters} waiters, sections of {held:?}"), "µs", &ours, &floors);
        }
        // Counted in a run of its own: what passes bytes on takes time.
        let relay = Relay::start(agent.address());
        let url = format!("consul://{}", relay.address);
        let (_, requests) =
            contend(agent, &url, waiters, Duration::ZERO, || relay.requests.load(Ordering::SeqCst));
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

/// Passes bytes on and counts requests.
struct Relay {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Relay {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a port");
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let (up, down) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                let counter = Arc::clone(&counter);
                thread::spawn(move || pass(up, server, Some(&counter)));
                thread::spawn(move || pass(down, client, None));
            }
        });
        Self { address, requests }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, requests: Option<&AtomicU64>) {
    let mut buffer = [0; 1 << 15];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if let Some(requests) = requests {
            // A request line begins a packet here: requests of one connection follow one another.
            let text = &buffer[..count];
            let begins = [b"PUT /v1".as_slice(), b"GET /v1"].iter().any(|start| text.starts_with(start));
            requests.fetch_add(u64::from(begins), Ordering::SeqCst);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

struct Shared {
    released_at: AtomicU64,
    done: AtomicUsize,
    stop: AtomicBool,
    latencies: Mutex<Vec<f64>>,
}

/// Hand-offs among so many waiters and a holder; latencies, and requests per section.
fn contend(
    agent: &ConsulAgent,
    url: &str,
    waiters: usize,
    held: Duration,
    requests: impl Fn() -> u64,
) -> (Samples, f64) {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    let start = Instant::now();
    let name = format!("handoff-{waiters}-{}", RUN.fetch_add(1, Ordering::SeqCst));
    let shared = Arc::new(Shared {
        released_at: AtomicU64::new(0),
        done: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        latencies: Mutex::default(),
    });
    let blocker = polylatch::blocking::Polylatch::connect(&agent.url()).expect("it connects");
    let blocking = blocker.lock(&name).acquire().expect("it is free");
    // One of them holds while the others wait.
    let contenders = waiters + 1;
    let clients = contenders.min(CLIENTS);
    let begin = Arc::new(Barrier::new(clients + 1));
    let threads: Vec<_> = (0..clients)
        .map(|client| {
            let mine = contenders / clients + usize::from(client < contenders % clients);
            let (shared, begin, url, name) =
                (Arc::clone(&shared), Arc::clone(&begin), url.to_owned(), name.clone());
            thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let client = Polylatch::connect(&url).await.expect("it connects");
                    let tasks: Vec<_> = (0..mine)
                        .map(|_| {
                            tokio::spawn(one(client.clone(), name.clone(), Arc::clone(&shared), start, held))
                        })
                        .collect();
                    begin.wait();
                    for task in tasks {
                        task.await.expect("no panic");
                    }
                    client.close().await;
                });
            })
        })
        .collect();
    begin.wait();
    let query = polylatch::inspect::Query { name: Some(name), ..Default::default() };
    while blocker.list(&query).expect("it answers").locks[0].waiters.len() < contenders {
        thread::sleep(Duration::from_millis(5));
    }
    let before = requests();
    shared.released_at.store(now(start), Ordering::SeqCst);
    blocking.release().expect("it is held");
    while shared.done.load(Ordering::SeqCst) < SECTIONS {
        thread::sleep(Duration::from_millis(1));
    }
    let requests = requests() - before;
    let sections = shared.done.load(Ordering::SeqCst);
    for thread in threads {
        thread.join().expect("no panic");
    }
    blocker.close();
    let mut samples = Samples::default();
    samples.extend(std::mem::take(&mut *shared.latencies.lock().expect("no panic")));
    (samples, requests as f64 / sections as f64)
}

async fn one(client: Polylatch, name: String, shared: Arc<Shared>, start: Instant, held: Duration) {
    let lock = client.lock(name).wait(Duration::from_secs(120));
    let mut mine = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let guard = lock.acquire().await.expect("everybody gets it in time");
        let entered = now(start);
        if shared.done.fetch_add(1, Ordering::SeqCst) < SECTIONS {
            mine.push((entered - shared.released_at.load(Ordering::SeqCst)) as f64 / 1e3);
        } else {
            shared.stop.store(true, Ordering::SeqCst);
        }
        if !held.is_zero() {
            tokio::time::sleep(held).await;
        }
        shared.released_at.store(now(start), Ordering::SeqCst);
        guard.release().await.expect("it is held");
    }
    shared.latencies.lock().expect("no panic").extend(mine);
}

fn now(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
