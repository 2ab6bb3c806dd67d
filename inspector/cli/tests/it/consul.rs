//! The real program against a Consul agent: what works on the other stores works there.

#![cfg(unix)]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use polylatch_test_services::TempDir;
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::wait::wait_until;
use serde_json::Value;

/// Far beyond what any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(agent: &ConsulAgent, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).env("POLYLATCH_URL", agent.url()).env_remove("POLYLATCH_LOCK").stdin(Stdio::null());
    command
}

fn polylatch(agent: &ConsulAgent, args: &[&str]) -> Output {
    command(agent, args).output().unwrap()
}

fn json(agent: &ConsulAgent, args: &[&str]) -> Value {
    let output = polylatch(agent, args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn run_ls_show_and_break_work_on_consul() {
    let agent = ConsulAgent::start();
    let mut child = command(&agent, &["run", "web/deploy", "--label", "deploy", "--", "sleep", "600"]);
    let mut holder = Running(child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let holders = |count: usize| {
        let locks = json(&agent, &["ls", "--json"]);
        locks["locks"].as_array().is_some_and(|locks| locks.len() == count)
    };
    wait_until("the lock to be listed", PATIENCE, || holders(1));
    let seen = json(&agent, &["show", "web/deploy", "--json"]);
    let text = seen.to_string();
    assert!(text.contains("deploy") && text.contains("session TTL") && text.contains("lock-delay"), "{text}");
    let token = text
        .split("\"fencing_token\":")
        .nth(1)
        .map(|rest| rest.trim_start_matches('"').chars().take_while(char::is_ascii_digit).collect::<String>())
        .unwrap();
    let broken = polylatch(&agent, &["break", "web/deploy", "--token", &token, "--reason", "test", "--yes"]);
    assert!(broken.status.success(), "{broken:?}");
    let status =
        polylatch_test_services::wait_for("the run to end", PATIENCE, || holder.0.try_wait().unwrap());
    assert!(!status.success(), "a run whose lease was broken does not succeed");
    wait_until("nothing to be listed", PATIENCE, || holders(0));
    let after = polylatch(&agent, &["run", "web/deploy", "--", "true"]);
    assert!(after.status.success(), "{after:?}");
}

#[test]
fn watch_tells_what_happens_and_run_passes_on_token_and_exit_code() {
    let agent = ConsulAgent::start();
    let dir = TempDir::new();
    let (out, err) = (dir.join("out"), dir.join("err"));
    let said = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default();
    let mut watch = command(&agent, &["watch", "jobs/", "--every", "100ms", "--json"]);
    watch.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    let _watching = Running(watch.spawn().unwrap());
    wait_until("the watch to begin", PATIENCE, || said(&err).contains("watching"));
    let script = "test \"$POLYLATCH_FENCING_TOKEN\" -gt 0 && sleep 1; exit 7";
    let run = polylatch(&agent, &["run", "jobs/1", "--", "sh", "-c", script]);
    assert_eq!(run.status.code(), Some(7), "{run:?}");
    wait_until("the release to be told", PATIENCE, || said(&out).contains("released"));
    let events = said(&out);
    assert!(events.contains("granted") && events.contains("jobs/1"), "{events}");
}

#[test]
fn shared_locks_permits_and_waits_work_on_consul() {
    let agent = ConsulAgent::start();
    // Each holds until its standard input ends.
    let run = |args: &[&str]| {
        let mut command = command(&agent, args);
        Running(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    };
    let seen = |name: &str, what: &str, count: usize| {
        let locks = json(&agent, &["ls", "--json"]);
        let lock = locks["locks"].as_array().and_then(|all| all.iter().find(|lock| lock["name"] == name));
        lock.and_then(|lock| lock[what].as_array()).map_or(0, Vec::len) == count
    };
    let _readers = [(); 2].map(|()| run(&["run", "pages", "--shared", "--", "cat"]));
    let _permits = [(); 2].map(|()| run(&["run", "pool", "--permits", "1/2", "--", "cat"]));
    wait_until("two readers and two permits", PATIENCE, || {
        seen("pages", "holders", 2) && seen("pool", "holders", 2)
    });
    let full = polylatch(&agent, &["run", "pool", "--permits", "1/2", "--wait", "no", "--", "true"]);
    assert!(!full.status.success(), "{full:?}");
    let _writer = run(&["run", "pages", "--write", "--", "true"]);
    wait_until("a writer in line", PATIENCE, || seen("pages", "waiters", 1));
    let shown = polylatch(&agent, &["show", "pages"]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("read") && text.contains("write"), "{text}");
}

#[test]
fn doctor_tells_leader_session_and_lock_delay() {
    let agent = ConsulAgent::start();
    let output = polylatch(&agent, &["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["Consul 1.", "lock-delay works", "the servers have a leader", "sessions can be made"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}
