//! The flash sale with workers in Rust. `tests/conformance/test` holds one with workers in three languages.

#![cfg(unix)]

use std::process::{Command, Output};

use polylatch_test_services::mariadb::MariadbServer;
use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::redis::RedisServer;

fn sale(url: &str, more: &[&str]) -> (bool, String) {
    let worker = serde_json::to_string(&[env!("CARGO_BIN_EXE_flash_sale_worker")]).expect("it is plain data");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash_sale"));
    command.arg(url).args(more);
    for _ in 0..6 {
        command.args(["--worker", &worker]);
    }
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    println!("{said}");
    (status.success(), said)
}

/// Exactly 100 orders, no buyer with two, and every repetition got the same answer.
fn is_kept(url: &str, more: &[&str]) {
    let (kept, said) = sale(url, more);
    assert!(kept, "{said}");
    assert!(!said.contains(" 0 workers killed"), "{said}");
}

#[test]
fn a_flash_sale_in_a_file_sells_each_item_once() {
    let folder = tempfile::tempdir().expect("a folder");
    is_kept(&format!("sqlite:{}?timeout=20s", folder.path().join("locks.db").display()), &[]);
}

#[test]
fn a_flash_sale_on_a_redis_server_sells_each_item_once_and_not_without_idempotency() {
    let server = RedisServer::start();
    is_kept(&server.url(), &[]);
    // Presses at the same time order twice. Only then do the tests above say something.
    let (kept, said) = sale(&server.url(), &["--buyers", "300", "--without-idempotency"]);
    assert!(!kept && !said.contains(" 0 buyers with two orders"), "{said}");
}

#[test]
fn a_flash_sale_on_a_postgres_server_sells_each_item_once() {
    let server = PostgresServer::start();
    is_kept(&server.url(), &[]);
}

#[test]
fn a_flash_sale_on_a_mariadb_server_sells_each_item_once() {
    let server = MariadbServer::start();
    // Every step is on disk before it is answered: fewer buyers, or it takes as long as all others together.
    is_kept(&server.url(), &["--buyers", "600"]);
}
