//! What a crash of the server leaves of a lease, as `durability=` and `guarantee=` say, on real servers that are killed.

#![cfg(all(feature = "postgres", feature = "mysql", unix))]

use crate::contract::{block_on, millis, seen};
use crate::database_faults::connect;
use crate::database_tables::refused;
use polylatch::inspect::CheckSeverity;
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::mariadb::MariadbServer;
use polylatch_test_services::netns;
use polylatch_test_services::pgbouncer::PgBouncer;
use polylatch_test_services::postgres::PostgresServer;

/// The server writes what was committed without waiting as late as it can: after three times this.
const LATE: &str = "wal_writer_delay=10s";

/// Whether a lease outlives a server that is killed once it was granted, and the tokens before and after.
fn outlives(server: &PostgresServer, options: &str) -> (bool, u64, u64) {
    let client = connect(server, &format!("lease=60s&provisional=60s&{options}"));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    server.kill();
    server.start_again();
    let after = connect(server, "");
    let is_held = seen(&after, "a").holders.len() == 1;
    let next = if is_held {
        guard.fencing_token()
    } else {
        block_on(after.lock("a").acquire()).unwrap().fencing_token()
    };
    (is_held, guard.fencing_token().get(), next.get())
}

#[test]
fn with_durability_sync_a_lease_outlives_a_crash_of_a_server_that_commits_late() {
    let server = PostgresServer::with(&[LATE, "synchronous_commit=off"]);
    // The tables are on the disk.
    drop(connect(&server, "durability=sync"));
    assert!(outlives(&server, "durability=sync").0);
}

#[test]
fn with_durability_async_a_crash_may_forget_a_lease_and_tokens_go_on_growing() {
    let server = PostgresServer::with(&[LATE]);
    drop(connect(&server, ""));
    // What was not written for ten seconds is lost, so the commit did not wait. Once in ten seconds it is written all the same.
    let forgets = (0..3).any(|_| {
        let (is_held, before, after) = outlives(&server, "durability=async&wake=poll");
        assert!(after > before, "{after} after {before}");
        !is_held
    });
    assert!(forgets, "the commits waited for the disk");
}

/// Behind a pooler a setting of the session would be that of other clients too.
#[test]
fn durability_works_by_way_of_a_pooler_and_stays_with_the_transaction() {
    let server = PostgresServer::start();
    let Some(pooler) = PgBouncer::start(&server) else {
        return netns::left_out("durability= by way of PgBouncer", "pgbouncer is not installed");
    };
    let url = |options: &str| format!("{}?wake=poll&poll=200ms&{options}", pooler.url());
    let lazy = block_on(Polylatch::connect(&url("durability=async"))).unwrap();
    let guard = block_on(lazy.lock("a").acquire()).unwrap();
    let waits = lazy.clone();
    let waiting =
        std::thread::spawn(move || block_on(waits.lock("a").wait(millis(20_000)).acquire()).unwrap());
    drop(block_on(lazy.rw_lock("b").read().acquire()).unwrap());
    block_on(guard.release()).unwrap();
    block_on(waiting.join().unwrap().release()).unwrap();
    // Every connection of the pooler to the server, two at most, still commits as the server is set.
    let usual = block_on(Polylatch::connect(&url(""))).unwrap();
    for _ in 0..4 {
        let doctor = block_on(usual.inspect().examine()).unwrap();
        assert_eq!(doctor.finding("durability").unwrap().severity, CheckSeverity::Ok, "{doctor:?}");
    }
    let doctor = block_on(lazy.inspect().examine()).unwrap();
    assert_eq!(doctor.finding("durability").unwrap().severity, CheckSeverity::Warning);
}

#[test]
fn strict_refuses_a_server_that_may_forget_leases() {
    let server = PostgresServer::with(&["fsync=off"]);
    let strict = format!("{}?guarantee=strict", server.url());
    refused(&strict, ErrorKind::BackendRejected, "fsync is off");
    refused(&format!("{strict}&durability=async"), ErrorKind::InvalidConfig, "needs durability=sync");
    // Who looks is not refused, and doctor says why clients are.
    let look = block_on(Polylatch::builder().url(&strict).connect_to_look()).unwrap();
    let doctor = block_on(look.inspect().examine()).unwrap();
    assert_eq!(doctor.finding("durability").unwrap().severity, CheckSeverity::Problem);
    let server = PostgresServer::with(&[LATE, "synchronous_commit=off"]);
    drop(connect(&server, "guarantee=strict"));
    assert!(outlives(&server, "guarantee=strict").0);

    let server = MariadbServer::with(&["innodb-flush-log-at-trx-commit=2"]);
    let strict = format!("{}?guarantee=strict", server.url());
    refused(&strict, ErrorKind::BackendRejected, "innodb_flush_log_at_trx_commit");
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    drop(block_on(Polylatch::connect(&strict)).unwrap());
}
