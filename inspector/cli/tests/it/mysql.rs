//! The real program against a MariaDB server: tables that an operator makes, and users with their rights alone.

#![cfg(unix)]

use std::process::{Command, Output, Stdio};

use polylatch_test_services::mariadb::MariadbServer;

fn polylatch(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
    command.args(args).env("POLYLATCH_URL", url).env_remove("POLYLATCH_LOCK").stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn users_with_the_printed_grants_alone_do_what_they_are_for() {
    let server = MariadbServer::start();
    server.sql("CREATE USER 'shop-app'@'%'; CREATE USER eyes@'127.0.0.1'");
    let args = ["schema", "mysql", "--clients", "shop-app", "--inspectors", "eyes@127.0.0.1"];
    let printed = polylatch("sqlite:unused.db", &args);
    assert!(printed.status.success(), "{printed:?}");
    for _ in 0..2 {
        assert_eq!(server.script_as("root", "locks", &text(&printed.stdout)).unwrap(), "");
    }
    let (app, eyes) = (server.url_of("shop-app", "locks"), server.url_of("eyes", "locks"));
    let run = polylatch(&app, &["run", "a", "--", "true"]);
    assert!(run.status.success(), "{run:?}");
    let listed = polylatch(&eyes, &["ls"]);
    assert!(text(&listed.stdout).contains("No lock is held or waited for"), "{listed:?}");
    let refused = polylatch(&eyes, &["run", "b", "--wait", "no", "--", "true"]);
    assert!(text(&refused.stderr).contains("--clients USER"), "{refused:?}");
    let doctor = polylatch(&app, &["doctor"]);
    let said = text(&doctor.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("Rows are found by the primary key"), "{said}");
}

#[test]
fn a_user_that_cannot_be_is_refused() {
    let output = polylatch("sqlite:unused.db", &["schema", "mysql", "--clients", "a\\b"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(text(&output.stderr).contains("NAME@HOST"), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}
