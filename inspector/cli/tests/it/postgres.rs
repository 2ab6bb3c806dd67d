//! The real program against a PostgreSQL server: tables that an operator makes, and roles with their rights alone.

#![cfg(unix)]

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::wait::{wait_for, wait_until};
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

fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).env("POLYLATCH_URL", url).env_remove("POLYLATCH_LOCK").stdin(Stdio::null());
    command
}

fn polylatch(url: &str, args: &[&str]) -> Output {
    command(url, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The only lock that `ls --json` lists.
fn lock(url: &str) -> Option<Value> {
    let output = polylatch(url, &["ls", "--json"]);
    let seen: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    seen["locks"].as_array()?.first().cloned()
}

#[test]
fn ls_of_a_database_without_tables_shows_nothing_and_makes_nothing() {
    let server = PostgresServer::start();
    let output = polylatch(&server.url(), &["ls"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("No lock is held or waited for"), "{output:?}");
    let broken = polylatch(&server.url(), &["break", "a", "--token", "7", "--reason", "test", "--yes"]);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    assert!(text(&broken.stdout).contains("a is free"), "{broken:?}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'polylatch'"), "0");
    let doctor = polylatch(&server.url(), &["doctor"]);
    let said = text(&doctor.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("The tables are made by the first client"), "{said}");
}

#[test]
fn roles_with_the_printed_grants_alone_do_what_they_are_for() {
    let server = PostgresServer::start();
    server.sql(
        "CREATE ROLE owner LOGIN; GRANT CREATE ON DATABASE postgres TO owner; CREATE ROLE \"shop-app\" LOGIN; \
         CREATE ROLE eyes LOGIN",
    );
    // What it prints is what psql runs; no store is named, and none is needed.
    let args = ["schema", "postgres", "--clients", "shop-app", "--inspectors", "eyes"];
    let printed = Command::new(env!("CARGO_BIN_EXE_polylatch")).args(args).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    for _ in 0..2 {
        assert_eq!(server.script_as("owner", &text(&printed.stdout)).unwrap(), "");
    }
    let (app, eyes) = (server.url_of("shop-app"), server.url_of("eyes"));
    let run = |label: &str| {
        let mut run = command(&app, &["run", "a", "--label", label, "--", "cat"]);
        Running(run.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let holder = |label: &str| lock(&eyes).is_some_and(|lock| lock["holders"][0]["label"] == label);
    let mut first = run("first");
    wait_until("the first holds", PATIENCE, || holder("first"));
    let mut second = run("second");
    let waiters = || lock(&eyes).map_or(0, |lock| lock["waiters"].as_array().map_or(0, Vec::len));
    wait_until("the second waits", PATIENCE, || waiters() == 1);
    // Its command ends when its input does.
    drop(first.0.stdin.take());
    wait_until("the second follows", PATIENCE, || holder("second"));
    let token = lock(&eyes).unwrap()["holders"][0]["fencing_token"].to_string();
    let break_as = |url: &str| {
        polylatch(url, &["break", "a", "--token", token.trim_matches('"'), "--reason", "test", "--yes"])
    };
    let refused = break_as(&eyes);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert!(text(&refused.stderr).contains("rights of a client"), "{refused:?}");
    assert!(holder("second"), "nothing was broken");
    let refused = polylatch(&eyes, &["run", "b", "--wait", "no", "--", "true"]);
    assert!(text(&refused.stderr).contains("--clients ROLE"), "{refused:?}");
    let broken = break_as(&app);
    assert!(broken.status.success(), "{broken:?}");
    let status = wait_for("the second to end", PATIENCE, || second.0.try_wait().unwrap());
    assert!(!status.success(), "a run whose lease was broken does not succeed");
}

#[test]
fn a_schema_or_a_role_that_cannot_be_is_refused() {
    for (args, part) in [
        (&["schema", "postgres", "--schema", "a-b"][..], "underscores"),
        (&["schema", "postgres", "--clients", ""], "role"),
    ] {
        let output = polylatch("sqlite:unused.db", args);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}
