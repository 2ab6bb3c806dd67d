//! Holding many locks: what their renewal costs.

use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;
use tokio::runtime::Builder;

use crate::cost::{client_secs, commands, server_secs};
use crate::figures::heading;
use crate::layout::on_processor_of_servers;

/// As in the usual comparison: a lease of ten seconds.
const LEASE: Duration = Duration::from_secs(10);
const WATCHED: Duration = Duration::from_secs(20);

pub fn run() {
    let server = on_processor_of_servers(RedisServer::start);
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
            let before = commands(&server);
            let (server_cpu, cpu, started) = (server_secs(&server), client_secs(), Instant::now());
            tokio::time::sleep(WATCHED).await;
            let secs = started.elapsed().as_secs_f64();
            let cpu = (client_secs() - cpu) / secs * 60.0;
            let server_cpu = (server_secs(&server) - server_cpu) / secs * 60.0;
            let done = commands(&server).since(before);
            let calls = done.scripts as f64 / secs;
            let inner = done.others as f64 / secs;
            let in_scripts = done.script_micros as f64 / 1e6 / secs * 60.0;
            let most = most_at_once(&server).await;
            let lost = guards.iter().filter(|guard| !guard.is_held()).count();
            // A third of the lease, give or take the jitter.
            let floor = (count as f64 / 250.0).ceil() / (LEASE.as_secs_f64() / 3.0);
            println!(
                "  {count:>6} locks: {calls:>6.1} commands/s (floor {floor:.1}: one script for 250 locks), CPU s a minute \
                 {cpu:.2} of the client and {server_cpu:.2} of the server, {in_scripts:.2} within scripts; {lost} lost"
            );
            println!("         commands within the scripts: {inner:.0} a second, at most {most} in 100 ms");
            drop(guards);
            client.close().await;
        });
    }
}

/// The most commands within scripts in a tenth of a second. Its questions cost CPU time, so nothing else is measured then.
async fn most_at_once(server: &RedisServer) -> u64 {
    let started = Instant::now();
    let (mut most, mut before) = (0, commands(server).others);
    while started.elapsed() < WATCHED {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = commands(server).others;
        most = most.max(now - before);
        before = now;
    }
    most
}
