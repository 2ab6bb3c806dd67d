//! Ended connections, a killed server and many clients at once, on a real PostgreSQL server.

#![cfg(all(feature = "postgres", unix))]

use std::thread;
use std::time::Instant;

use crate::contract::{Store, block_on, eventually, millis, seen, stands_in_line};
use crate::contract_postgres::{SERVER, fresh};
use crate::database_faults::{self as faults, connect, sections};
use polylatch_test_services::postgres::PostgresServer;

#[test]
fn a_client_whose_connections_are_ended_keeps_its_lease_and_its_place() {
    faults::a_client_whose_connections_are_ended_keeps_its_lease_and_its_place(&PostgresServer::start(), 20);
}

#[test]
fn renewals_go_on_after_connections_were_ended() {
    faults::renewals_go_on_after_connections_were_ended(&PostgresServer::start());
}

#[test]
fn sections_do_not_overlap_while_the_server_is_killed_and_started_again() {
    faults::sections_do_not_overlap_while_the_server_is_killed(&PostgresServer::start(), 5);
}

#[test]
fn sections_do_not_overlap_while_connections_are_ended() {
    faults::sections_do_not_overlap_while_connections_are_ended(&PostgresServer::start(), 40);
}

#[test]
fn a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock() {
    faults::a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock(&PostgresServer::start());
}

#[test]
fn many_clients_at_many_new_names_and_sets_meet_no_deadlock() {
    faults::many_clients_at_many_new_names_and_sets_meet_no_deadlock(&fresh(""), || {
        SERVER.sql("SELECT sum(deadlocks) FROM pg_stat_database").parse().unwrap()
    });
}

/// Commits wait for the standby, so it has what was granted, and grows on from there.
#[test]
fn after_a_failover_to_a_synchronous_standby_leases_and_tokens_go_on() {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    let one = connect(&primary, "lease=60s&provisional=60s");
    let replicas = || block_on(one.inspect().examine()).unwrap().finding("replicas").unwrap().title.clone();
    eventually("it follows", || primary.sql("SELECT count(*) FROM pg_stat_replication") == "1");
    assert_eq!(replicas(), "Standbys follow asynchronously");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    let waits = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    eventually("commits wait for it", || primary.sql(waits) == "1");
    assert_eq!(replicas(), "Commits wait for standbys");
    let guard = block_on(one.lock("a").acquire()).unwrap();
    let released = block_on(one.lock("b").acquire()).unwrap();
    block_on(released.release()).unwrap();
    primary.kill();
    standby.promote();
    let other = connect(&standby, "");
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none(), "it is held");
    assert_eq!(seen(&other, "a").holders[0].fencing_token, Some(guard.fencing_token()));
    let next = block_on(other.lock("b").try_acquire()).unwrap().unwrap();
    assert!(next.fencing_token() > released.fencing_token());
}

#[test]
fn a_server_that_isolates_strictly_is_no_error() {
    let server = PostgresServer::with(&["default_transaction_isolation=serializable"]);
    let clients = (0..4).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || thread::sleep(millis(3_000)));
    assert!(done > 20 && failed == 0, "{done} sections, {failed} failures");
}

/// A step reads the time first and commits later. A waiter that heard "wait" in between would count the lease that this step
/// grants it from then on, and hold the lock for longer than the store says.
#[test]
fn a_waiter_is_not_answered_in_the_middle_of_a_step() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server, ""), connect(&server, "poll=100ms"));
    let holder = block_on(one.lock("a").acquire()).unwrap();
    let waiting = thread::spawn(move || block_on(other.lock("a").wait(millis(60_000)).acquire()).map(drop));
    let heartbeat = "SELECT silent_ms FROM polylatch.waiters";
    eventually("it waits", || !server.sql(heartbeat).is_empty());
    let first = server.sql(heartbeat);
    eventually("heartbeats are recorded", || server.sql(heartbeat) != first);
    let step = format!(
        "BEGIN; SELECT FROM polylatch.locks WHERE name = 'a' FOR UPDATE; {heartbeat}; SELECT pg_sleep(0.8); {heartbeat}; \
         COMMIT"
    );
    let seen = server.script_as("postgres", &step).unwrap();
    let seen: Vec<_> = seen.split_whitespace().collect();
    assert!(seen.len() == 2 && seen[0] == seen[1], "answered in between: {seen:?}");
    eventually("heartbeats go on", || server.sql(heartbeat) != seen[0]);
    block_on(holder.release()).unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_release_notifies_the_next_waiter_of_another_client() {
    let store = fresh("poll=10s&provisional=30s&lease=60s");
    let connect = || store.connect();
    let (one, other, looks) = (connect(), connect(), connect());
    eventually("they listen", || {
        SERVER.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").parse::<u32>().unwrap()
            >= 2
    });
    let (locks, mut took) =
        ([one.lock("a").wait(millis(30_000)), other.lock("a").wait(millis(30_000))], vec![]);
    let mut holder = block_on(locks[0].acquire()).unwrap();
    for turn in 1..=5 {
        let mut waiting = Box::pin(locks[turn % 2].acquire());
        stands_in_line(waiting.as_mut(), &looks, "a", 1);
        let released = Instant::now();
        block_on(holder.release()).unwrap();
        holder = block_on(waiting).unwrap();
        took.push(released.elapsed());
    }
    assert!(took.iter().all(|took| *took < millis(3_000)), "a poll comes after ten seconds: {took:?}");
}
