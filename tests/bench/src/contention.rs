//! Many clients that wait for one lock, on any store: how long hand-offs take, and what they cost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use tokio::runtime::Builder;

use crate::figures::Samples;

pub const SECTIONS: usize = 400;
/// Clients that contend; waiters are spread over them.
pub const CLIENTS: usize = 8;

/// Passes bytes on and counts requests.
pub struct Relay {
    pub address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Relay {
    /// `counts` says how many requests begin in what a client has sent at once.
    pub fn start(target: SocketAddr, counts: fn(&[u8]) -> u64) -> Self {
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
                thread::spawn(move || pass(up, server, counts, &counter));
                thread::spawn(move || pass(down, client, |_| 0, &AtomicU64::new(0)));
            }
        });
        Self { address, requests }
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, counts: fn(&[u8]) -> u64, requests: &AtomicU64) {
    let mut buffer = [0; 1 << 15];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // A request begins a packet here: requests of one connection follow one another.
        requests.fetch_add(counts(&buffer[..count]), Ordering::SeqCst);
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

/// Hand-offs among so many waiters and a holder; latencies, and requests per section. `direct` names the same store without
/// what counts requests.
pub fn contend(
    direct: &str,
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
    let blocker = polylatch::blocking::Polylatch::connect(direct).expect("it connects");
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

pub fn now(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
