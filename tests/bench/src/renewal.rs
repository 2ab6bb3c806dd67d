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
            let (cpu, calls, started) = (cpu_secs(), commands(&server, is_script), Instant::now());
            let (mut most, mut inner) = (0, commands(&server, is_inner));
            let first = inner;
            while started.elapsed() < WATCHED {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let now = commands(&server, is_inner);
                most = most.max(now - inner);
                inner = now;
            }
            let secs = started.elapsed().as_secs_f64();
            let (cpu, calls) = (cpu_secs() - cpu, commands(&server, is_script) - calls);
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
            println!(
                "         commands within the scripts: {:.0} a second, at most {most} in 100 ms",
                (inner - first) as f64 / secs
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

fn is_script(command: &str) -> bool {
    command.starts_with("eval")
}

/// What the scripts carry out, without what this program asks.
fn is_inner(command: &str) -> bool {
    !is_script(command) && command != "info"
}

/// How many of these commands the server has carried out.
fn commands(server: &RedisServer, counts: fn(&str) -> bool) -> u64 {
    let reply = server.command(&["INFO", "commandstats"]);
    let text = reply.text().unwrap_or_default().to_owned();
    let of = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        counts(command).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}
