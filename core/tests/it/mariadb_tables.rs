//! What stands in the database, and what can be wrong with it: every case is a typed error whose message names the
//! way out, and leaves the database as it was.

#![cfg(all(feature = "mysql", unix))]

use std::time::Duration;

use crate::contract::{Store, block_on, eventually};
use crate::contract_mariadb::{SERVER, fresh};
use crate::database_tables::{self as tables, break_of, refused};
use polylatch::idempotency::RunOptions;
use polylatch::inspect::Query;
use polylatch::{Effect, ErrorKind, LostReason, MysqlRole, Polylatch, mysql_grants, mysql_schema};
use polylatch_test_services::mariadb::{CERTIFIED, GUARDED, MariadbServer, PASSWORD};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::tls::Flaw;

/// A user of its own for one case, who may only connect.
fn user(name: &str) {
    SERVER.sql(&format!("CREATE OR REPLACE USER '{name}'@'%'"));
}

#[test]
fn wrong_logins_and_places_are_told_with_the_place_to_look() {
    let port = SERVER.port();
    let with = |login: &str, rest: &str| format!("mysql://{login}@127.0.0.1:{port}{rest}");
    let guarded = |password: &str| with(&format!("{GUARDED}:{password}"), "/locks");
    refused(&guarded("wrong-s3cret"), ErrorKind::BackendRejected, "check user, password");
    refused(&with(GUARDED, "/locks"), ErrorKind::BackendRejected, "check user, password");
    // Logged in; only then it is about rights.
    refused(&guarded(PASSWORD), ErrorKind::BackendRejected, "may not use the database");
    refused(&with("root", "/nowhere"), ErrorKind::BackendRejected, "create the database");
    refused(&with("root", "/locks?sslmode=require"), ErrorKind::BackendRejected, "offers no TLS");
    let nobody = ReservedPort::new().unwrap();
    let url = format!("mariadb://127.0.0.1:{}/locks", nobody.number());
    refused(&url, ErrorKind::BackendUnavailable, "check that it runs");
}

#[test]
fn both_schemes_name_one_store() {
    let store = fresh();
    let one = store.connect();
    let other = block_on(Polylatch::connect(&store.url("").replace("mysql:", "mariadb:"))).unwrap();
    let guard = block_on(one.lock("a").acquire()).unwrap();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
}

/// A collation would take some of these for one, and a padding one those that end with spaces.
#[test]
fn names_are_compared_byte_by_byte() {
    let store = fresh();
    let client = store.connect();
    let names = ["a", "A", "a ", "ä", "a\u{308}", "\u{e4} ", "ａ", &"n".repeat(512)];
    let guards: Vec<_> = names
        .iter()
        .map(|name| block_on(client.lock(*name).try_acquire()).unwrap().unwrap_or_else(|| panic!("{name:?}")))
        .collect();
    let seen = block_on(client.inspect().list(&Query::default())).unwrap();
    assert_eq!(seen.locks.len(), names.len());
    for guard in guards {
        block_on(guard.release()).unwrap();
    }
}

#[test]
fn tables_of_others_are_left_as_they_are() {
    let store = fresh();
    let database = &store.database;
    SERVER.sql(&format!(
        "CREATE TABLE {database}.polylatch_locks (id INT); INSERT INTO {database}.polylatch_locks VALUES (7)"
    ));
    refused(&store.url(""), ErrorKind::NameConflict, "name another database");
    assert_eq!(SERVER.sql(&format!("SELECT id FROM {database}.polylatch_locks")), "7");
    let tables = |database: &str| {
        SERVER
            .sql(&format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{database}'"))
    };
    assert_eq!(tables(database), "1", "nothing was made beside it");
    let store = fresh();
    SERVER.sql(&format!("CREATE TABLE {}.polylatch_schema (id INT)", store.database));
    refused(&store.url(""), ErrorKind::NameConflict, "name another database");
    assert_eq!(tables(&store.database), "1");
}

#[test]
fn tables_of_another_version_or_with_a_part_missing_are_refused() {
    let store = fresh();
    drop(store.connect());
    let database = &store.database;
    SERVER.sql(&format!("UPDATE {database}.polylatch_schema SET version = 2"));
    refused(&store.url(""), ErrorKind::BackendRejected, "use a newer Polylatch");
    SERVER.sql(&format!("UPDATE {database}.polylatch_schema SET version = 0"));
    refused(&store.url(""), ErrorKind::BackendRejected, "no release of Polylatch");
    SERVER.sql(&format!(
        "UPDATE {database}.polylatch_schema SET version = 1; DROP TABLE {database}.polylatch_waiters"
    ));
    refused(&store.url(""), ErrorKind::BackendRejected, "no table polylatch_waiters");
    // The script adds what is missing, and leaves what is there.
    SERVER.script_as("root", database, &mysql_schema()).unwrap();
    drop(store.connect());
}

#[test]
fn a_user_needs_its_rights_and_no_more() {
    user("worker");
    let store = fresh();
    let database = &store.database;
    let url = SERVER.url_of("worker", database);
    SERVER.sql(&format!("GRANT SHOW VIEW ON {database}.* TO worker"));
    refused(&url, ErrorKind::BackendRejected, "polylatch schema mysql");
    let tables = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{database}'");
    assert_eq!(SERVER.sql(&tables), "0", "nothing half made");
    SERVER.script_as("root", database, &mysql_schema()).unwrap();
    SERVER.sql(&format!("GRANT SELECT ON {database}.* TO worker"));
    refused(&url, ErrorKind::BackendRejected, "--clients USER");
    SERVER.sql(&format!(
        "REVOKE ALL, GRANT OPTION FROM worker; USE {database}; {}",
        mysql_grants(MysqlRole::Client, "worker").unwrap()
    ));
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
    let reader = block_on(client.rw_lock("b").read().acquire()).unwrap();
    let second = block_on(client.rw_lock("b").read().acquire()).unwrap();
    drop((reader, second));
    for refused in ["UPDATE polylatch_schema SET version = 2", "UPDATE polylatch_audit SET reason = ''"] {
        let error = SERVER.script_as("worker", database, refused).unwrap_err();
        assert!(error.contains("denied"), "{error}");
    }
}

#[test]
fn an_inspector_reads_and_neither_breaks_nor_sees_owner_tokens() {
    user("eyes");
    let store = fresh();
    let database = &store.database;
    tables::an_inspector_reads_and_neither_breaks_nor_sees_owner_tokens(
        &store,
        &SERVER.url_of("eyes", database),
        || {
            drop(
                SERVER
                    .sql(&format!("USE {database}; {}", mysql_grants(MysqlRole::Inspector, "eyes").unwrap())),
            )
        },
        "--clients USER",
        |table| SERVER.script_as("eyes", database, &format!("SELECT owner FROM polylatch_{table}")),
    );
}

#[test]
fn an_inspector_lists_records_and_sees_neither_results_nor_tokens() {
    user("reader");
    let store = fresh();
    let database = &store.database;
    let client = store.connect();
    let scope = client.idempotency("s");
    block_on(scope.run("k", &RunOptions::new(), |_| async { Ok(b"secret".to_vec()) })).unwrap();
    let token = block_on(scope.issue(Duration::from_secs(60))).unwrap();
    SERVER.sql(&format!("USE {database}; {}", mysql_grants(MysqlRole::Inspector, "reader").unwrap()));
    let url = SERVER.url_of("reader", database);
    let eyes = block_on(Polylatch::builder().url(&url).connect_to_look()).unwrap();
    let records = block_on(eyes.idempotency_records().list("", 9)).unwrap();
    let seen: Vec<_> = records.iter().map(|record| (record.key.as_str(), record.result_bytes)).collect();
    assert_eq!(seen.len(), 2, "{records:?}");
    assert!(seen.contains(&("k", 6)), "{seen:?}");
    assert!(seen.iter().all(|(key, _)| !key.contains(token.as_str())), "{seen:?}");
    for column in ["result", "record_key", "owner"] {
        let sql = format!("SELECT {column} FROM polylatch_idempotency");
        let error = SERVER.script_as("reader", database, &sql).unwrap_err();
        assert!(error.contains("denied"), "{column}: {error}");
    }
}

#[test]
fn many_clients_make_the_tables_at_once() {
    tables::many_clients_make_the_tables_at_once(&fresh());
}

#[test]
fn the_script_can_be_run_again_and_refuses_what_is_not_its_own() {
    let run = |database: &str| SERVER.script_as("root", database, &mysql_schema());
    let tables = |database: &str| {
        SERVER
            .sql(&format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{database}'"))
    };
    let store = fresh();
    let database = &store.database;
    run(database).unwrap();
    let client = store.connect();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    run(database).unwrap();
    guard.check().unwrap();
    SERVER.sql(&format!("UPDATE {database}.polylatch_schema SET version = 2"));
    let error = run(database).unwrap_err();
    assert!(error.contains("tables of another version are here"), "{error}");
    // What it lacks is missing in a table of another program; beside it nothing is made.
    for theirs in ["polylatch_schema (id INT)", "polylatch_waiters (name INT, ticket INT)"] {
        let store = fresh();
        let database = &store.database;
        SERVER.sql(&format!("CREATE TABLE {database}.{theirs}"));
        let error = run(database).unwrap_err();
        assert!(error.contains("tables of another program are here"), "{theirs}: {error}");
        assert_eq!(tables(database), "1", "{theirs}");
    }
}

#[test]
fn looking_needs_no_tables_and_makes_none() {
    let store = fresh();
    let look = block_on(Polylatch::builder().url(store.url("")).connect_to_look()).unwrap();
    let seen = block_on(look.inspect().list(&Query::default())).unwrap();
    assert!(seen.locks.is_empty() && seen.clients.is_empty() && seen.audit.is_empty(), "{seen:?}");
    assert!(seen.taken_at_ms > 0, "by the server's clock: {seen:?}");
    let tables =
        format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{}'", store.database);
    assert_eq!(SERVER.sql(&tables), "0", "it made nothing");
}

#[test]
fn a_read_only_server_is_told() {
    let server = MariadbServer::start();
    server.sql("CREATE USER plain@'%'; GRANT ALL ON locks.* TO plain@'%'");
    let url = server.url_of("plain", "locks");
    let client = block_on(Polylatch::connect(&url)).unwrap();
    server.sql("SET GLOBAL read_only = 1");
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::BackendRejected, Effect::None), "{error:?}");
    assert!(error.to_string().contains("connect to the primary"), "{error}");
    refused(&url, ErrorKind::BackendRejected, "connect to the primary");
    let doctor = block_on(client.inspect().examine()).unwrap();
    assert_eq!(doctor.finding("read-only").unwrap().severity, polylatch::inspect::CheckSeverity::Problem);
    server.sql("SET GLOBAL read_only = 0");
    drop(block_on(client.lock("a").try_acquire()).unwrap().unwrap());
}

#[test]
fn doctor_says_what_the_server_promises() {
    let store = fresh();
    let client = store.connect();
    block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
    let seen = block_on(client.inspect().examine()).unwrap();
    let bad: Vec<_> = seen
        .findings
        .iter()
        .filter(|check| check.severity != polylatch::inspect::CheckSeverity::Ok)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for id in [
        "read-only",
        "durability",
        "isolation",
        "clock",
        "connections",
        "tables",
        "primary-key",
        "pooler",
        "replicas",
    ] {
        assert!(seen.finding(id).is_some(), "{id}");
    }
}

#[test]
fn with_tls_the_certificate_is_verified_by_issuer_and_name() {
    let server = MariadbServer::with_tls(Flaw::None);
    let url = |options: &str| format!("{}?sslmode=verify-full&{options}", server.url());
    let ca = |path: &std::path::Path| format!("ca={}", path.display());
    let client = block_on(Polylatch::connect(&url(&ca(&server.tls().ca)))).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    eventually("it is encrypted", || {
        server
            .sql("SHOW GLOBAL STATUS LIKE 'Ssl_accepts'")
            .split('\t')
            .nth(1)
            .is_some_and(|count| count != "0")
    });
    block_on(guard.release()).unwrap();
    refused(&url(&ca(&server.tls().wrong_ca)), ErrorKind::BackendRejected, "certificate is not trusted");
    refused(&url(""), ErrorKind::BackendRejected, "certificate is not trusted");
    let certified = server.url_of(CERTIFIED, "locks");
    let files = server.tls();
    let with = format!(
        "{certified}?sslmode=require&{}&cert={}&key={}",
        ca(&files.ca),
        files.client_cert.display(),
        files.client_key.display()
    );
    block_on(Polylatch::connect(&with)).unwrap();
    refused(&format!("{certified}?sslmode=require&{}", ca(&files.ca)), ErrorKind::BackendRejected, "cert=");
    for flaw in [Flaw::WrongName, Flaw::Expired] {
        let server = MariadbServer::with_tls(flaw);
        let url = format!("{}?sslmode=require&{}", server.url(), ca(&server.tls().ca));
        refused(&url, ErrorKind::BackendRejected, "certificate is not trusted");
    }
}

#[test]
fn a_break_is_found_by_the_next_renewal() {
    let store = fresh();
    let url = store.url("lease=3s");
    let (holder, operator) = (block_on(Polylatch::connect(&url)).unwrap(), store.connect());
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    block_on(operator.inspect().break_lease(&break_of("a", guard.fencing_token()))).unwrap();
    assert_eq!(block_on(guard.lost()), LostReason::Broken);
}
