//! Session mode on a real MariaDB server.

#![cfg(all(feature = "mysql", unix))]

use crate::contract::Store;
use crate::contract_mariadb::{Mariadb, fresh};
use crate::database_sessions as sessions;
use polylatch_test_services::mariadb::MariadbServer;

struct InSession(Mariadb);

impl Store for InSession {
    fn url(&self, options: &str) -> String {
        self.0.url(&format!("mode=session&{options}"))
    }
}

crate::session_contract!(|| InSession(fresh()));

/// Ends the connections of sessions, as an operator would.
fn end_sessions(server: &MariadbServer) {
    let holders =
        "SELECT IS_USED_LOCK(CONCAT('polylatch.session.', session_key)) FROM locks.polylatch_sessions";
    for id in server.sql(holders).lines().filter(|id| *id != "NULL") {
        // It may have ended meanwhile.
        let _ = server.try_sql(&format!("KILL {id}"));
    }
}

#[test]
fn a_lease_ends_with_its_connection() {
    let server = MariadbServer::start();
    sessions::a_lease_ends_with_its_connection(&server, || end_sessions(&server));
}

#[test]
fn a_killed_process_frees_its_locks_at_once() {
    sessions::a_killed_process_frees_its_locks_at_once(&MariadbServer::start());
}

#[test]
fn both_modes_exclude_each_other_with_one_sequence_of_tokens() {
    sessions::both_modes_exclude_each_other_with_one_sequence_of_tokens(&MariadbServer::start());
}

#[test]
fn a_silent_server_ends_a_lease_by_the_holders_clock() {
    sessions::a_silent_server_ends_a_lease_by_the_holders_clock(&MariadbServer::start());
}

#[test]
fn a_client_whose_idle_session_ended_acquires_in_another_one() {
    let server = MariadbServer::start();
    let noted = || server.sql("SELECT count(*) FROM locks.polylatch_sessions WHERE over_ms IS NOT NULL");
    sessions::a_client_whose_idle_session_ended_acquires_in_another_one(
        &server,
        || end_sessions(&server),
        || noted().trim().parse().unwrap(),
    );
}

#[test]
fn sections_do_not_overlap_while_sessions_are_ended() {
    let server = MariadbServer::start();
    sessions::sections_do_not_overlap_while_sessions_are_ended(&server, || end_sessions(&server));
}
