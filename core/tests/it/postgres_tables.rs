//! What stands in the database, and what can be wrong with it: every case is a typed error whose message names the
//! way out, and leaves the database as it was.

#![cfg(all(feature = "postgres", unix))]

use std::time::Duration;

use crate::contract::{Store, block_on};
use crate::contract_postgres::{SERVER, fresh};
use crate::database_tables::{self as tables, break_of, refused};
use polylatch::inspect::Query;
use polylatch::{ErrorKind, LostReason, Polylatch, PostgresRole, postgres_grants, postgres_schema};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::postgres::{GUARDED, PASSWORD, PostgresServer};

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
fn tables_of_another_version_or_with_a_part_missing_are_refused() {
    let store = fresh("");
    drop(store.connect());
    SERVER.sql(&format!("UPDATE {}.polylatch_schema SET version = 2", store.schema));
    refused(&store.url(""), ErrorKind::BackendRejected, "use a newer Polylatch");
    SERVER.sql(&format!("UPDATE {}.polylatch_schema SET version = 0", store.schema));
    refused(&store.url(""), ErrorKind::BackendRejected, "no release of Polylatch");
    SERVER.sql(&format!(
        "UPDATE {0}.polylatch_schema SET version = 1; DROP TABLE {0}.waiters CASCADE",
        store.schema
    ));
    refused(&store.url(""), ErrorKind::BackendRejected, "no table waiters");
}

#[test]
fn a_role_needs_its_rights_and_no_more() {
    role("worker");
    let url = |schema: &str| format!("{}?schema={schema}", SERVER.url_of("worker"));
    refused(&url("missing"), ErrorKind::BackendRejected, "CREATE on the database");
    let script = postgres_schema("prepared").unwrap();
    SERVER.sql(&script);
    refused(&url("prepared"), ErrorKind::BackendRejected, "--clients ROLE");
    SERVER.sql(
        "GRANT USAGE ON SCHEMA prepared TO worker; GRANT SELECT ON ALL TABLES IN SCHEMA prepared TO worker",
    );
    refused(&url("prepared"), ErrorKind::BackendRejected, "polylatch schema postgres --schema prepared");
    SERVER.sql(&postgres_grants("prepared", PostgresRole::Client, "worker").unwrap());
    let client = block_on(Polylatch::connect(&url("prepared"))).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
    drop(block_on(client.rw_lock("b").read().acquire()).unwrap());
    for refused in
        ["UPDATE prepared.polylatch_schema SET version = 2", "UPDATE prepared.audit SET reason = ''"]
    {
        let error = SERVER.script_as("worker", refused).unwrap_err();
        assert!(error.contains("permission denied"), "{error}");
    }
}

#[test]
fn looking_needs_no_tables_and_makes_none() {
    role("looker");
    let url = format!("{}?schema=empty", SERVER.url_of("looker"));
    let look = || block_on(Polylatch::builder().url(&url).connect_to_look());
    let client = look().unwrap();
    let list = |client: &Polylatch| block_on(client.inspect().list(&Query::default()));
    let seen = list(&client).unwrap();
    assert!(seen.locks.is_empty() && seen.clients.is_empty() && seen.audit.is_empty(), "{seen:?}");
    assert!(seen.taken_at_ms > 0, "by the server's clock: {seen:?}");
    let one = Query { name: Some("a".into()), ..Query::default() };
    assert!(block_on(client.inspect().list(&one)).unwrap().locks[0].holders.is_empty());
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'empty'";
    assert_eq!(SERVER.sql(schemas), "0", "it made nothing");
    // Who looked before the tables were made sees what is locked from then on, as far as it may.
    let holder = block_on(Polylatch::connect(&format!("{}?schema=empty", SERVER.url()))).unwrap();
    let _guard = block_on(holder.lock("a").acquire()).unwrap();
    let error = list(&client).unwrap_err();
    assert!(error.to_string().contains("polylatch schema postgres"), "{error}");
    SERVER.sql(&postgres_grants("empty", PostgresRole::Inspector, "looker").unwrap());
    assert_eq!(list(&client).unwrap().locks[0].holders.len(), 1);
    // What was there and is missing is no empty store.
    SERVER.sql("DROP TABLE empty.waiters CASCADE");
    for error in [list(&client).unwrap_err(), look().map(drop).unwrap_err()] {
        assert!(error.to_string().contains("no table"), "{error}");
    }
}

#[test]
fn an_inspector_reads_and_neither_breaks_nor_sees_owner_tokens() {
    role("eyes");
    let store = fresh("");
    let schema = &store.schema;
    tables::an_inspector_reads_and_neither_breaks_nor_sees_owner_tokens(
        &store,
        &format!("{}?schema={schema}", SERVER.url_of("eyes")),
        || drop(SERVER.sql(&postgres_grants(schema, PostgresRole::Inspector, "eyes").unwrap())),
        "--clients ROLE",
        |table| SERVER.script_as("eyes", &format!("SELECT owner FROM {schema}.{table}")),
    );
}

#[test]
fn many_clients_make_the_tables_at_once() {
    tables::many_clients_make_the_tables_at_once(&fresh(""));
}

#[test]
fn the_script_can_be_run_again_and_refuses_what_is_not_its_own() {
    role("owner");
    SERVER.sql("GRANT CREATE ON DATABASE postgres TO owner");
    let script = postgres_schema("Twice").unwrap();
    let run = || SERVER.script_as("owner", &script);
    assert_eq!(run().unwrap(), "");
    let url = format!("{}?schema=Twice", SERVER.url_of("owner"));
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    assert_eq!(run().unwrap(), "");
    guard.check().unwrap();
    assert_eq!(SERVER.sql("SELECT count(*) FROM \"Twice\".locks"), "1", "what was there is still there");
    // What is missing is added again.
    SERVER.sql("DROP VIEW \"Twice\".seen_waiters");
    refused(&url, ErrorKind::BackendRejected, "no table seen_waiters");
    run().unwrap();
    block_on(Polylatch::connect(&url)).unwrap();
    SERVER.sql("UPDATE \"Twice\".polylatch_schema SET version = 2");
    assert!(run().unwrap_err().contains("of version 2"));
    SERVER.sql("CREATE SCHEMA another AUTHORIZATION owner; CREATE TABLE another.waiters (id int)");
    let error = SERVER.script_as("owner", &postgres_schema("another").unwrap()).unwrap_err();
    assert!(error.contains("tables of another program"), "{error}");
    assert_eq!(SERVER.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'another'"), "1");
}

/// Any user of a database can listen and notify. What it hears of a grant gives it no power over the lock.
#[test]
fn a_forged_notification_of_a_break_ends_no_lease() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE stranger LOGIN");
    let url = format!("{}?lease=60s&provisional=60s", server.url());
    let one = block_on(Polylatch::connect(&url)).unwrap();
    let looks = block_on(Polylatch::builder().url(&url).connect_to_look()).unwrap();
    let guard = block_on(one.lock("a").acquire()).unwrap();
    let listening = "SELECT substr(query, 8) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'";
    crate::contract::eventually("it listens", || !server.sql(listening).is_empty());
    let (channel, owner) = (server.sql(listening), server.sql("SELECT owner FROM polylatch.locks"));
    let forged = |kind: &str| {
        let message = format!("NOTIFY {channel}, '{kind} {owner} {}'", guard.fencing_token());
        server.script_as("stranger", &message).unwrap();
    };
    forged("revoked");
    // A break that is real arrives behind it, so the forged one was heard.
    let other = block_on(one.lock("b").acquire()).unwrap();
    block_on(looks.inspect().break_lease(&break_of("b", other.fencing_token()))).unwrap();
    assert_eq!(block_on(other.lost()), LostReason::Broken);
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
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
fn a_standby_is_refused_and_doctor_names_it() {
    let server = PostgresServer::start();
    drop(block_on(Polylatch::connect(&server.url())).unwrap());
    server.become_standby();
    let url = |options: &str| format!("{}?{options}", server.url());
    for options in ["", "mode=session", "schema=missing"] {
        refused(&url(options), ErrorKind::BackendRejected, "connect to the primary");
    }
    let (_, report) = block_on(Polylatch::builder().url(url("")).examine()).unwrap();
    let finding = report.finding("read-only").unwrap();
    assert_eq!(finding.severity, polylatch::inspect::CheckSeverity::Problem, "{finding:?}");
}

#[test]
fn doctor_says_what_the_server_promises() {
    let store = fresh("mode=session");
    drop(store.connect());
    let examine = || block_on(Polylatch::builder().url(store.url("")).examine()).unwrap().1;
    let seen = examine();
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
        let finding = seen.finding(id).unwrap_or_else(|| panic!("{id}"));
        assert_eq!(finding.severity, polylatch::inspect::CheckSeverity::Ok, "{finding:?}");
    }
    SERVER.sql(&format!("ALTER TABLE {}.leases DROP CONSTRAINT leases_pkey", store.schema));
    let finding = examine().finding("primary-key").cloned().unwrap();
    assert_eq!(finding.severity, polylatch::inspect::CheckSeverity::Warning, "{finding:?}");
    assert!(finding.detail.contains(".leases"), "{finding:?}");
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
    assert!(!log.contains("pg_notify"), "{log}");
    // What is sent often is planned once.
    pair();
    let before = server.log().len();
    pair();
    let log = server.log().split_off(before);
    let executed: Vec<_> = log.lines().filter(|line| line.contains("execute ")).collect();
    assert_eq!(executed.len(), 2, "{executed:#?}");
    assert!(!executed.iter().any(|line| line.contains("<unnamed>")), "both are prepared: {executed:#?}");
}

#[test]
fn queueing_costs_one_statement_and_a_release_with_a_waiter_one_and_a_notification() {
    let server = PostgresServer::with(&["log_statement=all", "log_destination=stderr"]);
    let connect = || {
        block_on(Polylatch::connect(&format!("{}?poll=10s&provisional=30s&lease=60s", server.url()))).unwrap()
    };
    let clients = [connect(), connect()];
    let mut holder = block_on(clients[0].lock("a").acquire()).unwrap();
    for turn in 1..=6 {
        let lock = clients[turn % 2].lock("a").wait(Duration::from_secs(20));
        let mut waiting = Box::pin(lock.acquire());
        let before = server.log().len();
        crate::contract::stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        let log = server.log().split_off(before);
        let of = |what| log.lines().filter(|line| line.contains("execute ") && line.contains(what)).count();
        // No row of the lock is made or locked by a statement of its own.
        assert_eq!((of("queued AS"), of("DO NOTHING"), of("is_shared::int")), (1, 0, 0), "{log}");
        let before = server.log().len();
        block_on(holder.release()).unwrap();
        let log = server.log().split_off(before);
        holder = block_on(waiting).unwrap();
        // The one who released first did not know of a waiter.
        if turn > 2 {
            let of_release = |line: &&str| line.contains("execute ") && line.contains("gone AS");
            assert_eq!(log.lines().filter(of_release).count(), 1, "{log}");
            assert_eq!(log.matches("SELECT pg_notify").count(), 1, "{log}");
            assert!(!log.contains("SET owner = NULL"), "{log}");
        }
    }
    // The row says whether there are more, so that nobody overtakes them.
    let is_shared = || server.sql("SELECT is_shared FROM polylatch.locks WHERE name = 'a'");
    let locks = [&clients[0], &clients[1]].map(|client| client.lock("a").wait(Duration::from_secs(20)));
    let [mut first, mut second] = [&locks[0], &locks[1]].map(|lock| Box::pin(lock.acquire()));
    crate::contract::stands_in_line(first.as_mut(), &clients[0], "a", 1);
    crate::contract::stands_in_line(second.as_mut(), &clients[0], "a", 2);
    assert_eq!(is_shared(), "t");
    block_on(holder.release()).unwrap();
    assert_eq!(is_shared(), "t");
    block_on(block_on(first).unwrap().release()).unwrap();
    assert_eq!(is_shared(), "f");
    block_on(block_on(second).unwrap().release()).unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM polylatch.waiters"), "0");
}

/// The statement that queues it is carried out when the row is free, long after.
#[test]
fn a_client_that_gave_up_while_the_row_was_locked_is_not_queued() {
    let server = PostgresServer::start();
    let connect = |options| block_on(Polylatch::connect(&format!("{}?{options}", server.url()))).unwrap();
    let (one, other) = (connect(""), connect("timeout=300ms"));
    let held = block_on(one.lock("a").acquire()).unwrap();
    // It leaves the queue again later on.
    server.sql(
        "CREATE TABLE queued (owner text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO queued VALUES (NEW.owner); RETURN NEW; END'; \
         CREATE TRIGGER note AFTER INSERT ON polylatch.waiters FOR EACH ROW EXECUTE FUNCTION note()",
    );
    let count = |what: &str| server.sql(&format!("SELECT count(*) FROM {what}"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lock = "BEGIN; SELECT FROM polylatch.locks WHERE name = 'a' FOR UPDATE; SELECT pg_sleep(60)";
            server.try_sql(lock).unwrap_err()
        });
        let locks = "pg_stat_activity WHERE wait_event = 'PgSleep'";
        crate::contract::eventually("the row is locked", || count(locks) == "1");
        let error = block_on(other.lock("a").wait(Duration::from_secs(1)).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
        assert_ne!(
            count("pg_stat_activity WHERE wait_event_type = 'Lock'"),
            "0",
            "its statements wait there"
        );
        server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    });
    let waits = || count("pg_stat_activity WHERE wait_event_type = 'Lock'");
    crate::contract::eventually("they were carried out", || waits() == "0");
    assert_eq!(count("queued"), "0");
    block_on(held.release()).unwrap();
}

/// A waiter finds its grant by its next poll then.
#[test]
fn a_release_that_may_notify_nobody_releases() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE quiet LOGIN; GRANT CREATE ON DATABASE postgres TO quiet");
    server.sql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC");
    for durability in ["server", "sync", "async"] {
        let url = format!("{}?poll=200ms&durability={durability}", server.url_of("quiet"));
        let clients = [0, 1].map(|_| block_on(Polylatch::connect(&url)).unwrap());
        let held = block_on(clients[0].lock("a").acquire()).unwrap();
        let lock = clients[1].lock("a").wait(Duration::from_secs(20));
        let mut waiting = Box::pin(lock.acquire());
        crate::contract::stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        block_on(held.release()).unwrap();
        block_on(block_on(waiting).unwrap().release()).unwrap();
    }
}
