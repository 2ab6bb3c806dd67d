//! What stands in the database, and what can be wrong with it: every case is a typed error whose message names the
//! way out, and leaves the database as it was.

#![cfg(all(feature = "postgres", unix))]

use std::sync::{Arc, Barrier};
use std::thread;

use crate::contract::{Store, block_on};
use crate::contract_postgres::{SERVER, fresh};
use polylatch::{Effect, ErrorKind, Polylatch};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::postgres::{GUARDED, PASSWORD, PostgresServer};

#[track_caller]
fn refused(url: &str, kind: ErrorKind, part: &str) {
    let Err(error) = block_on(Polylatch::connect(url)) else { panic!("{url} was accepted") };
    assert_eq!(error.kind(), kind, "{url}: {error:?}");
    assert!(error.to_string().contains(part), "{url} should be told {part:?}: {error}");
    assert_eq!(error.effect(), Effect::None, "{url}: {error:?}");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}

/// A role of its own for one case.
fn role(name: &str) {
    SERVER.sql(&format!("DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN"));
}

#[test]
fn wrong_logins_and_places_are_told_with_the_place_to_look() {
    let port = SERVER.port();
    let with = |login: &str, rest: &str| format!("postgres://{login}@127.0.0.1:{port}{rest}");
    let guarded = |password: &str| with(&format!("{GUARDED}:{password}"), "/postgres");
    refused(&guarded("wrong-s3cret"), ErrorKind::BackendRejected, "check user and password");
    refused(&with(GUARDED, "/postgres"), ErrorKind::InvalidConfig, "password_env=");
    // Logged in; only then it is about rights.
    refused(&guarded(PASSWORD), ErrorKind::BackendRejected, "CREATE on the database");
    refused(&with("postgres", "/nowhere"), ErrorKind::BackendRejected, "postgres://HOST/DATABASE");
    refused(&with("postgres", "/postgres?sslmode=require"), ErrorKind::BackendRejected, "offers no TLS");
    let nobody = ReservedPort::new().unwrap();
    let url = format!("postgres://127.0.0.1:{}", nobody.number());
    refused(&url, ErrorKind::BackendUnavailable, "is it running");
}

#[test]
fn tables_of_others_are_left_as_they_are() {
    SERVER
        .sql("CREATE SCHEMA theirs; CREATE TABLE theirs.locks (id int); INSERT INTO theirs.locks VALUES (7)");
    let url = |schema: &str| format!("{}?schema={schema}", SERVER.url());
    refused(&url("theirs"), ErrorKind::NameConflict, "schema=");
    SERVER.sql("CREATE SCHEMA theirs2; CREATE TABLE theirs2.polylatch_schema (id int)");
    refused(&url("theirs2"), ErrorKind::NameConflict, "schema=");
    assert_eq!(SERVER.sql("SELECT id FROM theirs.locks"), "7");
    assert_eq!(
        SERVER.sql("SELECT count(*) FROM pg_tables WHERE schemaname IN ('theirs', 'theirs2')"),
        "2",
        "nothing was made beside them"
    );
}

#[test]
fn tables_of_a_newer_version_or_with_a_part_missing_are_refused() {
    let store = fresh("");
    drop(store.connect());
    SERVER.sql(&format!("UPDATE {}.polylatch_schema SET version = 2", store.schema));
    refused(&store.url(""), ErrorKind::BackendRejected, "use a newer Polylatch");
    SERVER.sql(&format!("UPDATE {0}.polylatch_schema SET version = 1; DROP TABLE {0}.waiters", store.schema));
    refused(&store.url(""), ErrorKind::BackendRejected, "no table waiters");
}

#[test]
fn a_role_needs_its_rights_and_no_more() {
    role("worker");
    let url = |schema: &str| format!("{}?schema={schema}", SERVER.url_of("worker"));
    refused(&url("missing"), ErrorKind::BackendRejected, "CREATE on the database");
    let script = polylatch::postgres_schema("prepared").unwrap();
    SERVER.sql(&script);
    refused(&url("prepared"), ErrorKind::BackendRejected, "grant USAGE");
    SERVER.sql(
        "GRANT USAGE ON SCHEMA prepared TO worker; GRANT SELECT ON ALL TABLES IN SCHEMA prepared TO worker",
    );
    refused(&url("prepared"), ErrorKind::BackendRejected, "SELECT, INSERT, UPDATE and DELETE");
    SERVER.sql(
        "GRANT INSERT, UPDATE, DELETE ON prepared.locks, prepared.leases, prepared.waiters, prepared.clients, \
         prepared.audit TO worker; GRANT UPDATE ON prepared.polylatch_schema TO worker",
    );
    let client = block_on(Polylatch::connect(&url("prepared"))).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
    drop(block_on(client.rw_lock("b").read().acquire()).unwrap());
}

#[test]
fn a_read_only_session_is_told() {
    role("reader");
    let store = fresh("");
    let schema = &store.schema;
    drop(store.connect());
    SERVER.sql(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO reader; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO reader; \
         ALTER ROLE reader SET default_transaction_read_only = on"
    ));
    refused(
        &format!("{}?schema={schema}", SERVER.url_of("reader")),
        ErrorKind::BackendRejected,
        "connect to the primary",
    );
}

#[test]
fn many_clients_make_the_tables_at_once() {
    let store = fresh("");
    let begin = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (url, begin) = (store.url(""), Arc::clone(&begin));
            thread::spawn(move || {
                begin.wait();
                block_on(Polylatch::connect(&url)).map(drop)
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn an_uncontended_lock_costs_one_statement_each_way_and_no_notification() {
    let server = PostgresServer::with(&["log_statement=all", "log_destination=stderr"]);
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let pair = || {
        let guard = block_on(client.lock("a").acquire()).unwrap();
        block_on(guard.release()).unwrap();
    };
    // The row of the lock, and who this client is.
    pair();
    crate::contract::eventually("it has announced itself", || {
        server.sql("SELECT count(*) FROM polylatch.clients") == "1"
    });
    let before = server.log().len();
    pair();
    let log = server.log().split_off(before);
    let executed: Vec<_> = log.lines().filter(|line| line.contains("execute ")).collect();
    assert_eq!(executed.len(), 2, "{executed:#?}");
    assert!(executed.iter().all(|line| line.contains("<unnamed>")), "nothing is prepared: {executed:#?}");
    assert!(!log.contains("pg_notify"), "{log}");
}
