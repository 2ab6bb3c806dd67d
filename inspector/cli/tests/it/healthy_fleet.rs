//! A busy fleet in which nothing is wrong raises no alarm: processes with many tasks take turns on a real store while
//! the findings are polled.
//!
//! `POLYLATCH_FLEET_SECONDS` (10 for each store) says for how long; 600 is the long form.

#![cfg(target_os = "linux")] // processes are looked up there

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::poll::{Poller, Target, Told, ViewerClock};
use model::{ConnectionId, Fleet, Severity};
use polylatch::Polylatch;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::redis::RedisServer;

const PROCESSES: usize = 8;
const TASKS: usize = 16;
const LOCKS: u64 = 40;

/// Between two runs of `polylatch check`, which has to be started each time.
const CHECK_EVERY: Duration = Duration::from_secs(2);

fn seconds() -> u64 {
    std::env::var("POLYLATCH_FLEET_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Ended by its input when dropped, so that it releases what it holds.
struct Worker(Child);

impl Worker {
    fn start(url: &str, seed: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "healthy_fleet::a_worker_of_the_fleet", "--nocapture"]);
        command.env("POLYLATCH_TEST_URL", url).env("POLYLATCH_TEST_SEED", seed.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A number from 0 to below `end`: the same for the same seed.
fn below(seed: &mut u64, end: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % end
}

/// One process: each task takes one lock after the other and holds it, mostly for milliseconds, now and then for
/// seconds, so that leases are renewed.
#[test]
#[ignore = "is started by the other tests"]
fn a_worker_of_the_fleet() {
    let url = std::env::var("POLYLATCH_TEST_URL").expect("started by another test");
    let seed: u64 = std::env::var("POLYLATCH_TEST_SEED").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Polylatch::connect(&url)).unwrap();
    let mut tasks = Vec::new();
    for task in 0..TASKS as u64 {
        let client = client.clone();
        tasks.push(runtime.spawn(async move {
            let mut seed = (seed * 1_000 + task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            loop {
                let name = format!("fleet/{:02}", below(&mut seed, LOCKS));
                let hold = match below(&mut seed, 100) {
                    0..80 => below(&mut seed, 20),
                    80..98 => 100 + below(&mut seed, 200),
                    _ => 1_000 + below(&mut seed, 2_000),
                };
                let guard = client.lock(name).acquire().await.expect("the store works");
                tokio::time::sleep(Duration::from_millis(hold)).await;
                if let Err(error) = guard.release().await {
                    // A healthy fleet loses nothing; the end of this process tells it.
                    eprintln!("held for {hold} ms: {error}; {:?}", client.stats());
                }
                tokio::time::sleep(Duration::from_millis(below(&mut seed, 30))).await;
            }
        }));
    }
    runtime.block_on(async {
        let (tell, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
            let _ = tell.send(());
        });
        let _ = ended.await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let stats = client.stats();
        eprintln!(
            "worker {seed}: {} acquired, {} lost, {} errors",
            stats.acquired,
            stats.losses(),
            stats.errors()
        );
        assert_eq!((stats.losses(), stats.errors(), stats.failed), (0, 0, 0), "{stats:?}");
        client.close().await;
    });
    runtime.shutdown_background();
}

/// One fleet at a time: two would wait for processors, not for each other.
static ALONE: Mutex<()> = Mutex::new(());

fn no_alarm(url: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let workers: Vec<_> = (1..=PROCESSES).map(|seed| Worker::start(url, seed)).collect();
    let clock = ViewerClock::start();
    let (poller, told) = Poller::start(clock, Arc::new(|| {})).unwrap();
    poller.watch(Target::new(ConnectionId::new("fleet"), url));
    let mut fleet = Fleet::default();
    let (mut alarms, mut notices) = (Vec::new(), BTreeMap::<&str, u32>::new());
    let (mut snapshots, mut waited, mut checks) = (0_u32, 0_u32, 0);
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut next_check = Instant::now() + CHECK_EVERY / 2;
    while Instant::now() < end {
        let left = next_check.saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            Ok(Told::Connected(connection)) => fleet.connect(connection),
            Ok(Told::Update(update)) => {
                fleet.ingest(update);
                snapshots += 1;
                let found = fleet.attention(clock.now_ms());
                let found =
                    found.into_iter().filter(|attention| attention.finding.severity >= Severity::Warning);
                alarms.extend(
                    found.map(|attention| format!("{}: {:?}", attention.key.lock, attention.finding)),
                );
                for row in fleet.stores().iter().flat_map(|store| store.rows()) {
                    waited += u32::from(row.waiters > 0);
                    if row.severity() == Severity::Notice {
                        *notices.entry(row.rule().code()).or_default() += 1;
                    }
                }
            }
            Ok(Told::Broken(_) | Told::Records(_)) => {}
            Err(_) => {
                next_check += CHECK_EVERY;
                checks += 1;
                let check =
                    Command::new(env!("CARGO_BIN_EXE_polylatch")).args(["check", "--url", url]).output();
                let check = check.unwrap();
                if check.status.code() != Some(0) {
                    let (out, err) =
                        (String::from_utf8_lossy(&check.stdout), String::from_utf8_lossy(&check.stderr));
                    alarms.push(format!("polylatch check, {:?}: {out}{err}", check.status.code()));
                }
            }
        }
    }
    println!("{snapshots} snapshots, {checks} checks, {waited} times a queue was seen; notices: {notices:?}");
    assert!(snapshots >= 5 && checks >= 2 && waited >= snapshots, "the fleet was busy, and was looked at");
    alarms.dedup();
    assert!(alarms.is_empty(), "{} alarms: {:#?}", alarms.len(), &alarms[..alarms.len().min(10)]);
    for mut worker in workers {
        drop(worker.0.stdin.take());
        assert!(worker.0.wait().unwrap().success(), "a worker saw a loss or an error");
    }
}

#[test]
fn a_busy_healthy_fleet_on_redis_raises_no_alarm() {
    let server = RedisServer::start();
    no_alarm(&server.url());
}

#[test]
fn a_busy_healthy_fleet_on_redlock_raises_no_alarm() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    no_alarm(&format!("redlock://{}", places.join(",")));
}

#[test]
fn a_busy_healthy_fleet_on_consul_raises_no_alarm() {
    let agent = ConsulAgent::start();
    no_alarm(&agent.url());
}
