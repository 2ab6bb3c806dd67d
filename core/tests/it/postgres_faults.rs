//! Ended connections, a killed server and many clients at once, on a real PostgreSQL server.

#![cfg(all(feature = "postgres", unix))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen, stands_in_line};
use crate::contract_postgres::{SERVER, fresh};
use polylatch::{Guard, LostReason, Polylatch};
use polylatch_test_services::postgres::PostgresServer;

fn connect(server: &PostgresServer, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{options}", server.url())))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_client_whose_connections_are_ended_keeps_its_lease_and_its_place() {
    let server = PostgresServer::start();
    let (one, other) = (connect(&server, "poll=200ms"), connect(&server, "poll=200ms"));
    let mut holder = block_on(one.lock("a").acquire()).unwrap();
    for round in 0..20 {
        let (next_client, looks) = if round % 2 == 0 { (&other, &one) } else { (&one, &other) };
        let lock = next_client.lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), looks, "a", 1);
        assert!(server.terminate_clients() >= 2, "both clients are connected");
        holder.check().unwrap();
        let held = seen(looks, "a");
        assert_eq!(held.holders[0].fencing_token, Some(holder.fencing_token()), "round {round}");
        assert_eq!(held.waiters.len(), 1, "round {round}: a place in the queue outlives its connection");
        block_on(holder.release()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let next = block_on(waiting).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(next.fencing_token() > holder.fencing_token());
        holder = next;
    }
}

#[test]
fn renewals_go_on_after_connections_were_ended() {
    let server = PostgresServer::start();
    let client = connect(&server, "");
    let guard = block_on(client.lock("a").lease(millis(3_000)).acquire()).unwrap();
    let until = Instant::now() + millis(5_000);
    while Instant::now() < until {
        server.terminate_clients();
        thread::sleep(millis(300));
        guard.check().unwrap();
    }
    assert!(guard.renewals() >= 3, "{}", guard.renewals());
}

/// Sections of several threads on one lock; `hurt` runs meanwhile. Returns how many sections there were, and how
/// many failed with an error.
fn sections(clients: Vec<Polylatch>, hurt: impl FnOnce()) -> (usize, usize) {
    let inside: Arc<Mutex<Vec<Arc<Guard>>>> = Arc::default();
    let newest = Arc::new(Mutex::new(0));
    let (stop, done, failed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = clients
        .into_iter()
        .map(|client| {
            let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
            let (stop, done, failed) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&failed));
            thread::spawn(move || {
                let lock = client.lock("section").wait(millis(10_000));
                while !stop.load(Ordering::SeqCst) {
                    let guard = match block_on(lock.acquire()) {
                        Ok(guard) => Arc::new(guard),
                        Err(_) => {
                            failed.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                    };
                    {
                        let mut inside = inside.lock().unwrap();
                        // A holder that knows that it lost its lease has stopped.
                        let both = inside.iter().any(|other| other.is_held()) && guard.is_held();
                        assert!(!both, "two holders at once");
                        inside.push(Arc::clone(&guard));
                        let mut newest = newest.lock().unwrap();
                        assert!(guard.fencing_token().get() > *newest, "fencing tokens grow");
                        *newest = guard.fencing_token().get();
                    }
                    thread::sleep(millis(3));
                    inside.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &guard));
                    let _ = block_on(guard.release());
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    hurt();
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    (done.load(Ordering::SeqCst), failed.load(Ordering::SeqCst))
}

#[test]
fn sections_do_not_overlap_while_the_server_is_killed_and_started_again() {
    let server = PostgresServer::start();
    let clients = (0..6).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, _) = sections(clients, || {
        for _ in 0..5 {
            thread::sleep(millis(1_000));
            server.kill();
            server.start_again();
        }
        thread::sleep(millis(2_000));
    });
    assert!(done > 50, "only {done} sections");
}

#[test]
fn sections_do_not_overlap_while_connections_are_ended() {
    let server = PostgresServer::start();
    let clients = (0..6).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || {
        for _ in 0..40 {
            server.terminate_clients();
            thread::sleep(millis(50));
        }
        thread::sleep(millis(1_000));
    });
    assert!(done > 50, "only {done} sections");
    assert!(failed <= done, "{failed} failures in {done} sections");
}

#[test]
fn a_server_that_isolates_strictly_is_no_error() {
    let server = PostgresServer::with(&["default_transaction_isolation=serializable"]);
    let clients = (0..4).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || thread::sleep(millis(3_000)));
    assert!(done > 20 && failed == 0, "{done} sections, {failed} failures");
}

#[test]
fn a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock() {
    let server = PostgresServer::start();
    let client = connect(&server, "timeout=1s&poll=200ms&provisional=1s");
    let guard = block_on(client.lock("a").lease(millis(2_000)).acquire()).unwrap();
    let asked = Instant::now();
    server.pause();
    let reason = block_on(guard.lost());
    let took = asked.elapsed();
    server.resume();
    assert_eq!(reason, LostReason::Expired);
    assert!(took <= millis(2_300), "{took:?}");
    // The connection that did not answer was ended; a new one works.
    eventually("the lock is acquired again", || {
        matches!(block_on(client.lock("a").try_acquire()), Ok(Some(_)))
    });
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
fn many_clients_at_many_new_names_and_sets_meet_no_deadlock() {
    let store = fresh("");
    let deadlocks = || SERVER.sql("SELECT sum(deadlocks) FROM pg_stat_database");
    let before = deadlocks();
    let clients: Vec<_> = (0..8).map(|_| crate::contract::Store::connect(&store)).collect();
    let begin = Arc::new(Barrier::new(64));
    let threads: Vec<_> = (0..64)
        .map(|number| {
            let (client, begin) = (clients[number % 8].clone(), Arc::clone(&begin));
            thread::spawn(move || {
                begin.wait();
                let name = |at: usize| format!("n{}", (number * 7 + at * 31) % 64);
                let guard = block_on(client.lock(format!("own{number}")).acquire()).unwrap();
                block_on(guard.release()).unwrap();
                // Several names at a time, new to the store, in any order.
                let set = client.lock_all([name(2), name(0), name(1)]);
                let guards = block_on(set.wait(Duration::from_secs(60)).acquire()).unwrap();
                block_on(guards.release()).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(deadlocks(), before);
}

#[test]
fn a_release_notifies_the_next_waiter_of_another_client() {
    let store = fresh("poll=10s&provisional=30s&lease=60s");
    let connect = || crate::contract::Store::connect(&store);
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
