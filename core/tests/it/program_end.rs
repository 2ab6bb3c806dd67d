//! A program that ends right after its guard was dropped leaves no lock behind.

#![cfg(all(unix, feature = "redis", feature = "sqlite"))]

use std::process::Command;
use std::time::Duration;

use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;

const URL: &str = "POLYLATCH_TEST_ENDS_AT";
/// What the child prints while it holds the locks.
const HELD: &str = "both are held";

/// The whole program of the child: what `main` does, and the end of the process.
#[test]
fn acquires_and_ends() {
    let Ok(url) = std::env::var(URL) else { return };
    {
        let client = pollster::block_on(Polylatch::connect(&url)).unwrap();
        let lock = client.lock("a").lease(Duration::from_secs(60));
        let _first = pollster::block_on(client.lock("b").lease(Duration::from_secs(60)).acquire()).unwrap();
        let _guard = pollster::block_on(lock.acquire()).unwrap();
        println!("{HELD}");
        if url.contains("guard_last") {
            // The guard outlives everything else.
            drop((lock, client));
        }
    }
    std::process::exit(0);
}

fn ends_without_a_lock(url: &str) {
    let looks = pollster::block_on(Polylatch::connect(url)).unwrap();
    for round in 0..10 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program_end::acquires_and_ends", "--nocapture"])
            .env(URL, url)
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        assert!(String::from_utf8_lossy(&child.stdout).contains(HELD), "it did not hold the locks");
        for name in ["a", "b"] {
            let guard = pollster::block_on(looks.lock(name).try_acquire()).unwrap();
            let guard = guard.unwrap_or_else(|| panic!("{name} is still held after round {round}"));
            pollster::block_on(guard.release()).unwrap();
        }
    }
}

#[test]
fn a_guard_dropped_at_the_end_of_a_program_is_released_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    ends_without_a_lock(&format!("sqlite:{}", directory.path().join("locks.db").display()));
    ends_without_a_lock(&format!("sqlite:{}", directory.path().join("guard_last.db").display()));
}

#[test]
fn a_guard_dropped_at_the_end_of_a_program_is_released_on_a_server() {
    let server = RedisServer::start();
    ends_without_a_lock(&server.url());
    ends_without_a_lock(&format!("{}?prefix=guard_last", server.url()));
}
