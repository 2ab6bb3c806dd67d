//! The starter against the real `redis-server`.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use polylatch_test_services::redis::{RedisServer, Tls};
use polylatch_test_services::tls::Flaw;
use polylatch_test_services::{Client, TempDir, proc, wait_until};

#[test]
fn a_plain_server_answers_and_goes_with_its_value() {
    let server = RedisServer::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let mut client = Client::tcp(server.address()).expect("it listens");
    assert!(client.command(&["SET", "k", "v"]).expect("a reply").is_ok());
    assert_eq!(server.command(&["GET", "k"]).text(), Some("v"));
    let (pid, dir) = (server.pid(), server.data_dir());
    drop(server);
    assert!(!proc::exists(pid));
    assert!(!dir.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(RedisServer::start).join().expect("the thread does not panic");
    // A parent-death signal for the wrong thread would be on its way now.
    std::thread::sleep(Duration::from_millis(50));
    assert!(server.is_running());
    assert_eq!(server.command(&["PING"]).text(), Some("PONG"));
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn helper_that_holds_a_server() {
    if std::env::var_os("POLYLATCH_TEST_HOLD_A_SERVER").is_some() {
        let server = RedisServer::start();
        println!("\nserver {} {}", server.pid(), server.data_dir().display());
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn a_server_ends_with_a_test_process_that_is_killed() {
    let mut holder = Command::new(std::env::current_exe().expect("this test has a file"))
        .args(["--exact", "helper_that_holds_a_server", "--nocapture"])
        .env("POLYLATCH_TEST_HOLD_A_SERVER", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    let (pid, dir) = lines
        .map_while(Result::ok)
        .find_map(|line| {
            let (pid, dir) = line.strip_prefix("server ")?.split_once(' ')?;
            Some((pid.parse().ok()?, PathBuf::from(dir)))
        })
        .expect("the helper says which server it holds");
    assert!(proc::exists(pid));
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
    wait_until("the server's end", Duration::from_secs(5), || !proc::exists(pid));
    // A killed process cannot tidy up.
    let left = dir.parent().expect("it is inside the server's folder");
    std::fs::remove_dir_all(left).expect("it is still there");
}

#[test]
fn a_password_is_asked_for_and_commands_still_work() {
    let server = RedisServer::builder().password("p w\"1").start();
    assert!(server.url().starts_with("redis://:p%20w%221@127.0.0.1:"));
    let mut client = Client::tcp(server.address()).expect("it listens");
    let refused = client.command(&["PING"]).expect("a reply");
    assert!(refused.error().is_some_and(|text| text.starts_with("NOAUTH")));
    assert!(client.command(&["AUTH", "p w\"1"]).expect("a reply").is_ok());
    assert_eq!(server.command(&["PING"]).text(), Some("PONG"));
}

#[test]
fn acl_users_are_held_to_their_rules() {
    let server =
        RedisServer::builder().acl_user("default off").acl_user("app on >secret ~app:* +get +set").start();
    assert!(server.url_as("app", "secret").starts_with("redis://app:secret@"));
    let mut client = Client::tcp(server.address()).expect("it listens");
    let mut ask = |words: &[&str]| client.command(words).expect("a reply");
    assert!(ask(&["AUTH", "app", "secret"]).is_ok());
    assert!(ask(&["SET", "app:1", "v"]).is_ok());
    for forbidden in [&["SET", "other", "v"][..], &["FLUSHALL"][..]] {
        let reply = ask(forbidden);
        assert!(reply.error().is_some_and(|text| text.starts_with("NOPERM")), "{reply:?}");
    }
}

#[test]
fn a_unix_socket_server_has_no_port() {
    let server = RedisServer::builder().unix_socket().start();
    assert!(server.url().starts_with("redis+unix:///"));
    Client::tcp(server.address()).expect_err("no TCP");
    assert_eq!(server.command(&["PING"]).text(), Some("PONG"));
}

#[test]
fn an_append_only_server_keeps_its_data_over_a_crash_and_loses_it_when_told() {
    let server = RedisServer::builder().append_only().start();
    server.command(&["SET", "k", "v"]);
    let (pid, port) = (server.pid(), server.port());
    server.restart_with_data();
    assert_ne!(server.pid(), pid);
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["GET", "k"]).text(), Some("v"));
    server.restart_empty();
    assert!(server.command(&["GET", "k"]).is_nil());
}

#[test]
fn a_server_without_persistence_keeps_its_data_only_if_it_could_save() {
    let server = RedisServer::start();
    server.command(&["SET", "k", "v"]);
    server.restart_with_data();
    assert_eq!(server.command(&["GET", "k"]).text(), Some("v"));
    server.command(&["SET", "k", "newer"]);
    server.restart_empty();
    server.command(&["SET", "k", "newest"]);
    server.kill();
    assert!(!server.is_running());
    server.start_again();
    assert!(server.command(&["GET", "k"]).is_nil());
    server.stop();
    assert!(server.try_command(&["PING"]).is_err());
}

#[test]
fn a_paused_server_is_silent_until_resumed() {
    let server = RedisServer::start();
    let mut client = Client::tcp(server.address()).expect("it listens");
    client.set_timeout(Duration::from_millis(100)).expect("a timeout");
    server.pause();
    client.command(&["PING"]).expect_err("silence");
    server.resume();
    client.set_timeout(Duration::from_secs(5)).expect("a timeout");
    assert_eq!(client.read().expect("the late reply").text(), Some("PONG"));
    server.pause();
    server.stop();
    assert!(!server.is_running());
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.address()).start();
    primary.command(&["SET", "k", "v"]);
    wait_until("the key on the replica", Duration::from_secs(10), || {
        replica.command(&["GET", "k"]).text() == Some("v")
    });
}

#[test]
fn memory_limit_and_extra_lines_reach_the_server() {
    let server = RedisServer::builder().max_memory("2mb", "noeviction").config("hz 50").start();
    let read = |name| server.command(&["CONFIG", "GET", name]).texts()[1].to_owned();
    assert_eq!(read("maxmemory"), "2097152");
    assert_eq!(read("maxmemory-policy"), "noeviction");
    assert_eq!(read("hz"), "50");
}

#[test]
fn a_full_disk_stops_an_append_only_server_from_writing() {
    let dir = TempDir::new();
    let disk = match proc::small_disk(dir.path(), 256 * 1024) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let server = RedisServer::builder().append_only().data_dir(disk.path()).start();
    let big = "x".repeat(1024 * 1024);
    let refused = server.try_command(&["SET", "k", &big]);
    assert!(!refused.is_ok_and(|reply| reply.is_ok()), "1 MiB does not fit");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let error =
        RedisServer::builder().config("no-such-directive 1").try_start().expect_err("a wrong directive");
    let text = error.to_string();
    assert!(text.contains("no-such-directive"), "{text}");
}

/// Asks the server PING through `openssl s_client` (installed by `tests/run`), a second opinion
/// from another TLS library; answers everything it printed.
fn over_tls(server: &RedisServer, arguments: &[&str]) -> String {
    let script = r#"(printf 'PING\r\n'; sleep 0.3) | timeout 10 openssl s_client "$@" 2>&1"#;
    let address = server.address().to_string();
    let output = Command::new("sh")
        .args(["-c", script, "sh", "-connect", &address, "-verify_return_error"])
        .args(["-verify_ip", "127.0.0.1"])
        .args(arguments)
        .output()
        .expect("sh is everywhere");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("CONNECTED"), "is openssl installed? {printed}");
    printed
}

#[test]
fn a_tls_server_is_trusted_through_its_authority_only() {
    let server = RedisServer::builder().tls(Tls::new()).start();
    assert!(server.url().starts_with("rediss://"));
    let trust = |ca: &std::path::Path| over_tls(&server, &["-CAfile", ca.to_str().expect("UTF-8")]);
    let trusted = trust(&server.tls().ca);
    assert!(trusted.contains("+PONG"), "{trusted}");
    let distrusted = trust(&server.tls().wrong_ca);
    assert!(!distrusted.contains("+PONG"), "{distrusted}");
    assert_eq!(server.command(&["PING"]).text(), Some("PONG"));
}

#[test]
fn a_mutual_tls_server_accepts_its_own_clients_only() {
    let server = RedisServer::builder().tls(Tls::new().require_client_cert()).start();
    let files = server.tls();
    let text = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let ca = text(&files.ca);
    let ask = |cert: &std::path::Path, key: &std::path::Path| {
        over_tls(&server, &["-CAfile", &ca, "-cert", &text(cert), "-key", &text(key)])
    };
    let welcome = ask(&files.client_cert, &files.client_key);
    assert!(welcome.contains("+PONG"), "{welcome}");
    let refused = [
        ask(&files.foreign_client_cert, &files.foreign_client_key),
        ask(&files.expired_client_cert, &files.expired_client_key),
        over_tls(&server, &["-CAfile", &ca]),
    ];
    for output in refused {
        assert!(!output.contains("+PONG"), "{output}");
    }
}

#[test]
fn flawed_server_certificates_are_recognised_as_flawed() {
    let cases = [
        (Flaw::Expired, "expired"),
        (Flaw::NotYetValid, "not yet valid"),
        (Flaw::WrongName, "mismatch"),
        (Flaw::NameOnly, "mismatch"),
        (Flaw::SelfSigned, "self"),
    ];
    for (flaw, complaint) in cases {
        let server = RedisServer::builder().tls(Tls::new().server_cert(flaw)).start();
        let ca = server.tls().ca.to_str().expect("UTF-8").to_owned();
        let output = over_tls(&server, &["-CAfile", &ca]);
        assert!(!output.contains("+PONG"), "{flaw:?}: {output}");
        assert!(output.contains(complaint), "{flaw:?}: {output}");
    }
}
