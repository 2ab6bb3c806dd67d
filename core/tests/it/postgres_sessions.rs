//! Session mode on a real PostgreSQL server.

#![cfg(all(feature = "postgres", unix))]

use crate::contract_postgres::fresh;
use crate::database_sessions as sessions;
use polylatch_test_services::postgres::PostgresServer;

crate::session_contract!(|| fresh("mode=session"));

/// Ends the connections of sessions, as an operator would.
fn end_sessions(server: &PostgresServer) {
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'",
    );
}

#[test]
fn a_lease_ends_with_its_connection() {
    let server = PostgresServer::start();
    sessions::a_lease_ends_with_its_connection(&server, || end_sessions(&server));
}

#[test]
fn a_killed_process_frees_its_locks_at_once() {
    sessions::a_killed_process_frees_its_locks_at_once(&PostgresServer::start());
}

#[test]
fn both_modes_exclude_each_other_with_one_sequence_of_tokens() {
    sessions::both_modes_exclude_each_other_with_one_sequence_of_tokens(&PostgresServer::start());
}

#[test]
fn a_silent_server_ends_a_lease_by_the_holders_clock() {
    sessions::a_silent_server_ends_a_lease_by_the_holders_clock(&PostgresServer::start());
}

#[test]
fn a_client_whose_idle_session_ended_acquires_in_another_one() {
    let server = PostgresServer::start();
    let noted = || server.sql("SELECT count(*) FROM polylatch.sessions WHERE over_ms IS NOT NULL");
    sessions::a_client_whose_idle_session_ended_acquires_in_another_one(
        &server,
        || end_sessions(&server),
        || noted().trim().parse().unwrap(),
    );
}

#[test]
fn sections_do_not_overlap_while_sessions_are_ended() {
    let server = PostgresServer::start();
    sessions::sections_do_not_overlap_while_sessions_are_ended(&server, || end_sessions(&server));
}

/// A server that ends silent connections early must not do so with a session before its holder counts to the end.
#[test]
fn the_server_does_not_end_a_silent_session_early() {
    let server = PostgresServer::with(&[
        "tcp_keepalives_idle=2",
        "tcp_keepalives_interval=1",
        "tcp_keepalives_count=1",
        "tcp_user_timeout=2000",
        "idle_session_timeout=1000",
    ]);
    let client = crate::database_faults::connect(&server, "mode=session&lease=60s&provisional=60s");
    let guard = crate::contract::block_on(client.lock("a").acquire()).unwrap();
    std::thread::sleep(crate::contract::millis(2_500));
    guard.check().unwrap();
    crate::contract::block_on(guard.release()).unwrap();
}
