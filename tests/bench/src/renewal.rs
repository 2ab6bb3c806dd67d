//! Holding many locks: what their renewal costs.

use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;

use crate::figures::heading;

/// As in the usual comparison: a lease of ten seconds.
const LEASE: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(20);

pub fn run() {
    let server = RedisServer::start();
    heading("renewing held locks, lease 10 s, over 20 s");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    for count in [1_000, 10_000] {
        runtime.block_on(async {
            let client = Polylatch::connect(&server.url()).await.expect("it connects");
            let mut guards = Vec::with_capacity(count);
            for number in 0..count {
                let lock = client.lock(format!("held/{count}/{number}")).lease(LEASE);
                guards.push(lock.acquire().await.expect("it is free"));
            }
            // The provisional leases become full ones first.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (cpu, calls, started) = (cpu_secs(), commands(&server), Instant::now());
            tokio::time::sleep(WATCHED).await;
            let secs = started.elapsed().as_secs_f64();
            let (cpu, calls) = (cpu_secs() - cpu, commands(&server) - calls);
            let lost = guards.iter().filter(|guard| !guard.is_held()).count();
            println!(
                "  {count:>6} locks: {:>6.1} commands/s (floor {:.1}: one script for 250 locks), \
                 {:.3} CPU s a minute = {:.2} % of a core, {lost} lost",
                calls as f64 / secs,
                // A third of the lease, give or take the jitter.
                (count as f64 / 250.0).ceil() / (LEASE.as_secs_f64() / 3.0),
                cpu / secs * 60.0,
                cpu / secs * 100.0,
            );
            drop(guards);
            client.close().await;
        });
    }
}

fn cpu_secs() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn commands(server: &RedisServer) -> u64 {
    let reply = server.command(&["INFO", "commandstats"]);
    let text = reply.text().unwrap_or_default().to_owned();
    text.lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum()
}
