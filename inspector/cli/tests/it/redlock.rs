//! The real program against several real Redis servers.

#![cfg(unix)]

use std::process::{Command, Output};

use polylatch_test_services::redis::RedisServer;
use serde_json::Value;

fn polylatch(servers: &[RedisServer], args: &[&str]) -> Output {
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    Command::new(env!("CARGO_BIN_EXE_polylatch"))
        .args(args)
        .env("POLYLATCH_URL", format!("redlock://{}", places.join(",")))
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

#[test]
fn the_program_runs_lists_shows_and_examines_over_several_nodes() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let url: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let url = format!("redlock://{}", url.join(","));
    // The program inside sees the lock that it runs under.
    let look = format!("{} ls --json --url {url}", env!("CARGO_BIN_EXE_polylatch"));
    let run = polylatch(&servers, &["run", "orders/42", "--label", "nightly", "--", "sh", "-c", &look]);
    assert!(run.status.success(), "{}", text(&run));
    let listed: Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{}", text(&run)));
    assert_eq!(listed["backend"], "redlock");
    assert_eq!(listed["locks"][0]["name"], "orders/42");
    assert_eq!(listed["locks"][0]["holders"][0]["label"], "nightly");
    assert_eq!(listed["locks"].as_array().map(Vec::len), Some(1));

    let look = format!("{} show orders/42 --url {url}", env!("CARGO_BIN_EXE_polylatch"));
    let shown = polylatch(&servers, &["run", "orders/42", "--", "sh", "-c", &look]);
    assert!(text(&shown).contains("orders/42"), "{}", text(&shown));

    let exit = polylatch(&servers, &["run", "orders/42", "--", "sh", "-c", "exit 7"]);
    assert_eq!(exit.status.code(), Some(7), "{}", text(&exit));

    let doctor = polylatch(&servers, &["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor));
    let examined: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(examined["backend"], "redlock");
    let promises = examined["promises"].as_array().unwrap();
    let of = |id: &str| promises.iter().find(|promise| promise["id"] == id).map(|promise| &promise["holds"]);
    assert_eq!(of("exclusion"), Some(&Value::from("yes")));
    assert_eq!(of("fifo"), Some(&Value::from("no")));
}

#[test]
fn a_wrong_url_is_told_and_shared_locks_are_refused() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let shared = polylatch(&servers, &["run", "a", "--shared", "--", "true"]);
    assert!(!shared.status.success());
    assert!(text(&shared).contains("have one holder only"), "{}", text(&shared));
    let twice = Command::new(env!("CARGO_BIN_EXE_polylatch"))
        .args(["ls", "--url", "redlock://a,a"])
        .output()
        .unwrap();
    assert_eq!(twice.status.code(), Some(64), "{}", text(&twice));
}
