//! Killed connections, a killed server, a server that stands still and many clients at once, on a real MariaDB server.

#![cfg(all(feature = "mysql", unix))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{Store, block_on, eventually, millis, seen, stands_in_line};
use crate::contract_mariadb::{SERVER, fresh};
use polylatch::{Guard, LostReason, Polylatch};
use polylatch_test_services::mariadb::MariadbServer;

fn connect(server: &MariadbServer, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?{options}", server.url())))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_client_whose_connection_is_killed_keeps_its_lease_and_its_place() {
    let server = MariadbServer::start();
    let (one, other) = (connect(&server, "poll=200ms"), connect(&server, "poll=200ms"));
    let mut holder = block_on(one.lock("a").acquire()).unwrap();
    for round in 0..10 {
        let (next_client, looks) = if round % 2 == 0 { (&other, &one) } else { (&one, &other) };
        let lock = next_client.lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), looks, "a", 1);
        assert!(server.kill_connections() >= 1, "clients are connected");
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
                    let Ok(guard) = block_on(lock.acquire()).map(Arc::new) else {
                        failed.fetch_add(1, Ordering::SeqCst);
                        continue;
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
    let server = MariadbServer::start();
    let clients = (0..6).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, _) = sections(clients, || {
        for _ in 0..4 {
            thread::sleep(millis(1_000));
            server.kill();
            server.start_again();
        }
        thread::sleep(millis(2_000));
    });
    assert!(done > 20, "only {done} sections");
}

/// Connections are killed wherever they are, so also in the middle of a step and of a commit.
#[test]
fn sections_do_not_overlap_while_connections_are_killed() {
    let server = MariadbServer::start();
    let clients = (0..6).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || {
        for _ in 0..20 {
            server.kill_connections();
            thread::sleep(millis(50));
        }
        thread::sleep(millis(1_000));
    });
    assert!(done > 20, "only {done} sections");
    assert!(failed <= done, "{failed} failures in {done} sections");
}

/// A step that is killed while it waits for the row of its lock has done nothing, and is done again.
#[test]
fn a_step_that_is_killed_in_the_middle_is_done_again() {
    let server = MariadbServer::start();
    let client = connect(&server, "timeout=20s&provisional=30s&lease=60s");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    // The queue makes the release a step.
    let waits = connect(&server, "");
    let lock = waits.lock("a").wait(millis(60_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &client, "a", 1);
    let blocked = "SELECT id FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%' AND time_ms > 200 \
                   AND info LIKE '%polylatch_locks%'";
    let released = thread::scope(|scope| {
        let holds = scope.spawn(|| {
            server.sql(
                "BEGIN; SELECT counter FROM locks.polylatch_locks WHERE name = 'a' FOR UPDATE; SELECT SLEEP(3); COMMIT",
            )
        });
        eventually("the row is locked", || {
            server.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(3)'")
                != "0"
        });
        let release = scope.spawn(|| block_on(guard.release()));
        eventually("a step waits for the row", || !server.sql(blocked).is_empty());
        for id in server.sql(blocked).lines() {
            let _ = server.try_sql(&format!("KILL {id}"));
        }
        holds.join().unwrap();
        release.join().unwrap()
    });
    released.unwrap();
    let next = block_on(waiting).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

/// A step reads the time first and commits later. A waiter that heard "wait" in between would count the lease that this step
/// grants it from then on, and hold the lock for longer than the store says.
#[test]
fn a_waiter_is_not_answered_in_the_middle_of_a_step() {
    let server = MariadbServer::start();
    let (one, other) = (connect(&server, ""), connect(&server, ""));
    let holder = block_on(one.lock("a").acquire()).unwrap();
    let waiting = thread::spawn(move || block_on(other.lock("a").wait(millis(60_000)).acquire()).map(drop));
    eventually("it waits", || server.sql("SELECT COUNT(*) FROM locks.polylatch_waiters") == "1");
    // It asks about every 50 ms; each time a transaction waits for the row, and no answer is given.
    let step = "BEGIN; SELECT counter FROM locks.polylatch_locks WHERE name = 'a' FOR UPDATE; SELECT SLEEP(0.5); \
                SHOW GLOBAL STATUS LIKE 'Com_commit'; SELECT SLEEP(1); SHOW GLOBAL STATUS LIKE 'Com_commit'; COMMIT";
    let told = server.sql(step);
    let commits: Vec<_> = told.lines().filter(|line| line.starts_with("Com_commit")).collect();
    assert!(commits.len() == 2 && commits[0] == commits[1], "answered in between: {told}");
    block_on(holder.release()).unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_server_that_isolates_strictly_or_in_another_time_zone_is_no_error() {
    let server = MariadbServer::with(&[
        "transaction-isolation=SERIALIZABLE",
        "default-time-zone=-09:30",
        "sql-mode=ANSI,SIMULTANEOUS_ASSIGNMENT",
    ]);
    let clients = (0..4).map(|_| connect(&server, "poll=100ms")).collect();
    let (done, failed) = sections(clients, || thread::sleep(millis(3_000)));
    assert!(done > 20 && failed == 0, "{done} sections, {failed} failures");
    let client = connect(&server, "");
    let guard = block_on(client.lock("b").acquire()).unwrap();
    let (held, now) = (seen(&client, "b"), std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap());
    let since = i128::from(held.holders[0].acquired_at_ms.unwrap());
    assert!((since - now.as_millis() as i128).abs() < 60_000, "{since} is not the time: {now:?}");
    block_on(guard.release()).unwrap();
}

#[test]
fn a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock() {
    let server = MariadbServer::start();
    let client = connect(&server, "timeout=1s&poll=200ms&provisional=1s");
    let guard = block_on(client.lock("a").lease(millis(2_000)).acquire()).unwrap();
    let asked = Instant::now();
    server.pause();
    let reason = block_on(guard.lost());
    let took = asked.elapsed();
    server.resume();
    assert_eq!(reason, LostReason::Expired);
    assert!(took <= millis(2_500), "{took:?}");
    // The connection that did not answer was ended; a new one works.
    eventually("the lock is acquired again", || {
        matches!(block_on(client.lock("a").try_acquire()), Ok(Some(_)))
    });
}

#[test]
fn many_clients_at_many_new_names_and_sets_meet_no_deadlock() {
    let store = fresh();
    let clients: Vec<_> = (0..8).map(|_| store.connect()).collect();
    let deadlocks = || {
        let told =
            SERVER.sql("SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'");
        told.parse::<u64>().unwrap()
    };
    SERVER.sql("SET GLOBAL innodb_monitor_enable = lock_deadlocks");
    let before = deadlocks();
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
fn an_uncontended_lock_costs_one_update_each_way_and_nothing_is_inserted_or_deleted() {
    let server = MariadbServer::start();
    let client = connect(&server, "");
    let pair = || {
        let guard = block_on(client.lock("a").acquire()).unwrap();
        block_on(guard.release()).unwrap();
    };
    // The row of the lock, and who this client is.
    pair();
    eventually("it has announced itself", || {
        server.sql("SELECT COUNT(*) FROM locks.polylatch_clients") == "1"
    });
    pair();
    let count = |name: &str| {
        let told = server.sql(&format!("SHOW GLOBAL STATUS LIKE 'Com_{name}'"));
        told.split('\t').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let counts = || ["update", "insert", "insert_select", "delete", "begin", "commit"].map(count);
    let before = counts();
    pair();
    let after = counts();
    assert_eq!(after[0] - before[0], 2, "{before:?} {after:?}");
    assert_eq!(after[1..], before[1..]);
}
