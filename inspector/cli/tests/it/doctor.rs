//! `polylatch doctor`, `completions` and `man` with the real program, a real file and real servers.

#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait::wait_until;
use serde_json::Value;

fn polylatch(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    for inherited in ["POLYLATCH_LOCK", "NO_COLOR", "LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(inherited);
    }
    command.args(args).env("POLYLATCH_URL", url).stdin(Stdio::null()).output().unwrap()
}

/// Runs `doctor --json`, checks the shape of every part, and returns the exit code as well.
#[track_caller]
fn doctor(url: &str) -> (i32, Value) {
    let output = polylatch(url, &["doctor", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    for check in report["findings"].as_array().unwrap() {
        for field in ["id", "severity", "title", "detail", "consequence", "fix"] {
            assert!(check[field].is_string(), "{field} of {check}");
        }
        let severity = check["severity"].as_str().unwrap();
        assert!(["ok", "notice", "unknown", "warning", "problem"].contains(&severity), "{check}");
        if ["warning", "problem"].contains(&severity) {
            assert_ne!(check["consequence"], "", "{check}");
            assert_ne!(check["fix"], "", "{check}");
        }
    }
    for promise in report["promises"].as_array().unwrap() {
        assert!(["yes", "no", "unknown"].contains(&promise["holds"].as_str().unwrap()), "{promise}");
        assert!(promise["what"].is_string() && promise["because"].is_string(), "{promise}");
    }
    (output.status.code().unwrap(), report)
}

#[track_caller]
fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id}: {report:#}"))
}

#[track_caller]
fn severity(report: &Value, id: &str) -> String {
    finding(report, id)["severity"].as_str().unwrap().to_owned()
}

#[track_caller]
fn holds(report: &Value, id: &str) -> String {
    let promises = report["promises"].as_array().unwrap();
    let promise = promises.iter().find(|promise| promise["id"] == id).unwrap();
    promise["holds"].as_str().unwrap().to_owned()
}

fn keys(server: &RedisServer) -> String {
    server.command(&["KEYS", "*"]).texts().join(" ")
}

#[test]
fn a_file_of_ones_own_is_fine_and_a_loose_one_is_not() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    let (code, report) = doctor(&url);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["backend"], "sqlite");
    assert_eq!(report["url"], url);
    assert!(report["version"].as_str().unwrap().starts_with("SQLite 3."));
    assert_eq!(severity(&report, "integrity"), "ok");
    assert_eq!(
        (holds(&report, "exclusion"), holds(&report, "exclusion-after-failover")),
        ("yes".into(), "no".into())
    );

    fs::set_permissions(dir.join("locks.db"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, report) = doctor(&url);
    assert_eq!(code, 1);
    assert_eq!(report["worst"], "problem");
    assert_eq!(severity(&report, "file-permissions"), "warning");
    let folder = finding(&report, "folder-permissions");
    assert_eq!(folder["fix"], format!("chmod o-w '{}'", dir.path().display()));
    // The worst comes first, for scripts and for people.
    assert_eq!(report["findings"][0]["id"], "folder-permissions");
    let human = String::from_utf8(polylatch(&url, &["doctor"]).stdout).unwrap();
    let (at, after) = (human.find("PROBLEM"), human.find("WARNING"));
    assert!(at.is_some() && at < after && human.contains("What this set-up promises"), "{human}");
}

#[test]
fn a_file_that_somebody_keeps_locked_names_the_process() {
    let dir = TempDir::new();
    let path = dir.join("locks.db");
    let url = format!("sqlite:{}?busy_timeout=100ms", path.display());
    assert_eq!(doctor(&url).0, 0);
    let blocker = rusqlite::Connection::open(&path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (code, report) = doctor(&url);
    assert_eq!(code, 69, "{report:#}");
    let check = finding(&report, "connection").to_string();
    assert!(check.contains(&format!("pid {}", std::process::id())), "{check}");
    blocker.execute_batch("ROLLBACK").unwrap();
    assert_eq!(doctor(&url).0, 0);
}

#[test]
fn a_store_that_cannot_be_examined_is_told_as_a_finding() {
    let port = polylatch_test_services::port::ReservedPort::new().unwrap();
    let (code, report) = doctor(&format!("redis://:canary@{}", port.address()));
    assert_eq!(code, 69);
    assert_eq!(severity(&report, "connection"), "problem");
    assert_eq!(report["url"], Value::Null);
    assert!(!report.to_string().contains("canary"));

    let dir = TempDir::new();
    fs::write(dir.join("locks.db"), "this is no database, and never was one. ".repeat(40)).unwrap();
    let (code, report) = doctor(&format!("sqlite:{}", dir.join("locks.db").display()));
    assert_eq!((code, severity(&report, "connection")), (69, "problem".into()));

    let output = polylatch("memory:", &["--url", "memory:", "doctor"]);
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn a_wrong_password_is_told_without_repeating_it() {
    let server = RedisServer::builder().password("right").start();
    let (code, report) = doctor(&format!("redis://:canary@{}", server.address()));
    assert_eq!(code, 69);
    let check = finding(&report, "connection");
    assert!(check["detail"].as_str().unwrap().contains("password"), "{check}");
    assert!(!report.to_string().contains("canary"));
    let (_, report) = doctor(&server.url());
    assert_eq!(severity(&report, "login"), "ok");
    assert!(!report.to_string().contains("right@"));
}

#[test]
fn a_plain_server_forgets_and_a_careful_one_does_not() {
    let server = RedisServer::start();
    let (code, report) = doctor(&server.url());
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["backend"], "redis");
    assert_eq!(severity(&report, "persistence"), "warning");
    assert!(finding(&report, "persistence")["fix"].as_str().unwrap().contains("appendonly yes"));
    for id in ["permissions", "push", "eviction", "role", "mode", "clock", "keys", "encryption"] {
        assert_eq!(severity(&report, id), "ok", "{}", finding(&report, id));
    }
    assert_eq!(holds(&report, "exclusion"), "yes");
    assert_eq!(holds(&report, "exclusion-after-restart"), "no");
    // guarantee=strict waits a restart out.
    let (code, strict) = doctor(&format!("{}?guarantee=strict", server.url()));
    assert_eq!(code, 0, "{strict:#}");
    assert_eq!(holds(&strict, "exclusion-after-restart"), "yes");
    assert_eq!(keys(&server), "", "doctor leaves nothing behind");

    let server = RedisServer::builder().append_only().start();
    let (code, report) = doctor(&server.url());
    assert_eq!((code, severity(&report, "persistence")), (0, "ok".into()), "{report:#}");
    assert_eq!(holds(&report, "exclusion-after-restart"), "yes");
}

#[test]
fn a_held_lock_is_not_touched() {
    let server = RedisServer::start();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_polylatch"))
        .args(["run", "orders/42", "--", "sleep", "60"])
        .env("POLYLATCH_URL", server.url())
        .spawn()
        .unwrap();
    let key = "polylatch:{orders/42}:lock";
    let value = || server.command(&["GET", key]).text().unwrap_or_default().to_owned();
    wait_until("the lock to be held", std::time::Duration::from_secs(20), || value().contains("pl1"));
    // A mutex is listed by its first renewal.
    let listed = || server.command(&["ZCARD", "polylatch:locks"]).int() == Some(1);
    wait_until("the lock to be listed", std::time::Duration::from_secs(20), listed);
    let owner = |text: String| text.split('|').next().unwrap_or_default().to_owned();
    let before = owner(value());
    let (_, report) = doctor(&server.url());
    assert!(finding(&report, "keys")["detail"].as_str().unwrap().starts_with("1 lock"), "{report:#}");
    assert_eq!(owner(value()), before);
    assert!(!keys(&server).contains("doctor"));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn an_evicting_server_is_a_problem_also_where_clients_refuse_it() {
    let server = RedisServer::builder().max_memory("8mb", "allkeys-lru").append_only().start();
    for url in [server.url(), format!("{}?guarantee=strict", server.url())] {
        let (code, report) = doctor(&url);
        assert_eq!(code, 1);
        let check = finding(&report, "eviction");
        assert_eq!(check["severity"], "problem");
        assert!(check["fix"].as_str().unwrap().contains("CONFIG SET maxmemory-policy noeviction"), "{check}");
        assert_eq!(holds(&report, "exclusion"), "no");
    }
    // The fix, as it is printed, mends it.
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(doctor(&server.url()).0, 0);
}

#[test]
fn a_replica_and_its_primary_are_told_apart() {
    let primary = RedisServer::builder().append_only().start();
    let replica = RedisServer::builder().replica_of(primary.address()).start();
    let (code, report) = doctor(&replica.url());
    assert_eq!(code, 1);
    let check = finding(&report, "role");
    assert_eq!(check["severity"], "problem");
    assert_eq!(check["fix"], format!("Connect to the primary: redis://{}", primary.address()));
    assert_eq!(holds(&report, "exclusion"), "no");

    wait_until("the replica to be online", std::time::Duration::from_secs(20), || {
        primary.command(&["INFO", "replication"]).text().is_some_and(|text| text.contains("state=online"))
    });
    let (code, report) = doctor(&primary.url());
    assert_eq!((code, severity(&report, "replicas")), (1, "warning".into()), "{report:#}");
    assert_eq!(holds(&report, "exclusion-after-failover"), "no");
    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let (code, report) = doctor(&format!("{}?guarantee=strict&ack=majority", primary.url()));
    assert_eq!((code, severity(&report, "replicas")), (0, "ok".into()), "{report:#}");
    assert_eq!(holds(&report, "exclusion-after-failover"), "yes");
}

#[test]
fn a_minimal_user_is_told_what_is_missing_and_the_fix_mends_it() {
    let user =
        "app on >secret ~polylatch:* &polylatch:* -@all +eval +evalsha +get +set +del +exists +time +ping";
    let server = RedisServer::builder().acl_user(user).start();
    let url = server.url_as("app", "secret");
    let (code, report) = doctor(&url);
    assert_eq!(code, 1, "{report:#}");
    let check = finding(&report, "permissions");
    assert_eq!(check["severity"], "problem");
    assert_eq!(severity(&report, "info"), "unknown");
    assert_eq!(holds(&report, "exclusion"), "no");

    for id in ["permissions", "push", "info"] {
        let (_, report) = doctor(&url);
        let fix = finding(&report, id)["fix"].as_str().unwrap().to_owned();
        let Some((_, rules)) = fix.split_once(" ACL SETUSER app ") else { continue };
        let rules = rules.split("   # ").next().unwrap().replace('\'', "");
        let words = ["ACL", "SETUSER", "app"].into_iter().chain(rules.split_whitespace());
        let done = server.command(&words.collect::<Vec<_>>());
        assert!(done.is_ok(), "{fix}: {done:?}");
    }
    let (_, report) = doctor(&url);
    for id in ["permissions", "push", "info", "keys"] {
        assert_eq!(severity(&report, id), "ok", "{}", finding(&report, id));
    }
    assert_eq!(holds(&report, "exclusion"), "yes");
    assert!(!report.to_string().contains("secret"));
    assert_eq!(keys(&server), "");
}

#[test]
fn foreign_data_under_our_keys_is_found() {
    let server = RedisServer::start();
    server.command(&["RPUSH", "polylatch:fence", "x"]);
    let (code, report) = doctor(&server.url());
    assert_eq!((code, severity(&report, "fencing-counter")), (1, "problem".into()));
    server.command(&["DEL", "polylatch:fence"]);
    server.command(&["SET", "polylatch:locks", "x"]);
    let (code, report) = doctor(&server.url());
    assert_eq!((code, severity(&report, "keys")), (1, "problem".into()), "{report:#}");
}

#[test]
fn help_documents_the_exit_codes_and_the_installation() {
    let help = |command: &str| {
        let output = polylatch("redis://:canary@h", &[command, "--help"]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("canary"));
        text
    };
    assert!(["0 ", "1 ", "64 ", "69 "].iter().all(|code| help("doctor").contains(code)));
    assert!(help("completions").contains("bash-completion"));
    assert!(help("man").contains("man1/polylatch.1"));
}

/// Gives text to a program's standard input and says whether it was content; `None` if the program
/// is not installed.
fn accepted_by(program: &str, args: &[&str], text: &[u8]) -> Option<(bool, String)> {
    let started = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(_) => {
            eprintln!("skipped: {program} is not installed");
            return None;
        }
    };
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(&text));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn completions_parse_in_their_shells_and_know_the_commands() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let output = polylatch("redis://:canary@h", &["completions", shell]);
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("doctor") && text.contains("break"), "{shell}");
        assert!(!text.contains("canary"));
        if let Some((content, said)) = accepted_by(shell, &[check], text.as_bytes()) {
            assert!(content && said.is_empty(), "{shell}: {said}");
        }
    }
    assert_eq!(polylatch("", &["completions", "nosuchshell"]).status.code(), Some(64));
}

#[test]
fn manual_pages_are_whole_and_clean() {
    for page in [None, Some("run"), Some("doctor")] {
        let args: Vec<&str> = ["man"].into_iter().chain(page).collect();
        let output = polylatch("redis://:canary@h", &args);
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(".TH polylatch") && text.contains(".SH NAME"), "{text}");
        assert!(!text.contains("canary"));
        if page != Some("run") {
            assert!(text.contains("doctor"));
        }
        if let Some((content, said)) =
            accepted_by("groff", &["-man", "-Tascii", "-ww", "-z", "-K", "utf8"], text.as_bytes())
        {
            assert!(content && said.is_empty(), "{page:?}: {said}");
        }
    }
    assert_eq!(polylatch("", &["man", "frobnicate"]).status.code(), Some(64));
}
