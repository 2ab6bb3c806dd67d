//! Killed connections, a killed server, a server that stands still and many clients at once, on a real MariaDB server.

#![cfg(all(feature = "mysql", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen, stands_in_line};
use crate::contract_mariadb::{SERVER, fresh};
use crate::database_faults::{self as faults, connect, sections};
use polylatch::Polylatch;
use polylatch_test_services::mariadb::{MariadbServer, ROOT};

#[test]
fn a_client_whose_connections_are_ended_keeps_its_lease_and_its_place() {
    faults::a_client_whose_connections_are_ended_keeps_its_lease_and_its_place(&MariadbServer::start(), 10);
}

#[test]
fn renewals_go_on_after_connections_were_ended() {
    faults::renewals_go_on_after_connections_were_ended(&MariadbServer::start());
}

#[test]
fn sections_do_not_overlap_while_the_server_is_killed_and_started_again() {
    faults::sections_do_not_overlap_while_the_server_is_killed(&MariadbServer::start(), 4);
}

#[test]
fn sections_do_not_overlap_while_connections_are_ended() {
    faults::sections_do_not_overlap_while_connections_are_ended(&MariadbServer::start(), 20);
}

#[test]
fn a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock() {
    faults::a_silent_server_endangers_and_then_ends_a_lease_by_the_holders_clock(&MariadbServer::start());
}

#[test]
fn many_clients_at_many_new_names_and_sets_meet_no_deadlock() {
    SERVER.sql("SET GLOBAL innodb_monitor_enable = lock_deadlocks");
    faults::many_clients_at_many_new_names_and_sets_meet_no_deadlock(&fresh(), || {
        let told =
            SERVER.sql("SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'");
        told.parse().unwrap()
    });
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

/// How long the entries of waiters of another client take, from the release. The clients are of these users.
fn hand_offs(server: &MariadbServer, users: [&str; 2], options: &str, count: usize) -> Vec<Duration> {
    let options = format!("poll=10s&provisional=30s&lease=60s&{options}");
    let clients = users.map(|user| {
        block_on(Polylatch::connect(&format!("{}?{options}", server.url_of(user, "locks")))).unwrap()
    });
    let looks = connect(server, "wake=poll");
    let locks: Vec<_> = clients.iter().map(|client| client.lock("a").wait(millis(30_000))).collect();
    let mut holder = block_on(locks[0].acquire()).unwrap();
    let mut took = Vec::new();
    for turn in 1..=count {
        let lock = locks[turn % 2].clone();
        let waiting = thread::spawn(move || {
            let guard = block_on(lock.acquire()).unwrap();
            (guard, Instant::now())
        });
        eventually("it waits", || seen(&looks, "a").waiters.len() == 1);
        // The waiter listens by now, or polls.
        thread::sleep(millis(300));
        let released = Instant::now();
        block_on(holder.release()).unwrap();
        let (next, entered) = waiting.join().unwrap();
        took.push(entered - released);
        holder = next;
    }
    block_on(holder.release()).unwrap();
    took.sort_unstable();
    took
}

/// How many clients wait in a request until they are woken.
fn listeners(server: &MariadbServer) -> String {
    server.sql(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock' AND host <> 'localhost'",
    )
}

/// A waiter that listens polls every ten seconds here.
#[test]
fn a_release_wakes_the_next_waiter_of_another_client() {
    let took = hand_offs(&MariadbServer::start(), [ROOT; 2], "wake=doorbell", 9);
    assert!(took[took.len() / 2] < millis(2_000), "{took:?}");
}

/// A server lets a client wake connections of its own user only.
#[test]
fn waiters_poll_where_the_holder_is_another_user_of_the_server() {
    let server = MariadbServer::start();
    server.sql("CREATE USER plain@'%'; GRANT ALL ON locks.* TO plain@'%'");
    for users in [["plain", "other"], ["other", "plain"]] {
        server.sql("CREATE OR REPLACE USER other@'%'; GRANT ALL ON locks.* TO other@'%'");
        let took = hand_offs(&server, users, "wake=doorbell", 4);
        assert!(took[took.len() - 1] < millis(3_000), "{took:?}");
    }
}

/// What a release to a waiter of another client costs: one request, and no poll of the waiter.
#[test]
fn a_release_with_a_waiter_costs_one_request() {
    let server = MariadbServer::start();
    server.sql("SET GLOBAL log_output = 'TABLE'");
    let clients = [(); 2].map(|()| connect(&server, "poll=10s&provisional=30s&lease=60s"));
    let lock_of = |turn: usize| clients[turn % 2].lock("a").wait(millis(20_000));
    let logged = |part: &str| {
        server.sql(&format!(
            "SELECT COUNT(*) FROM mysql.general_log WHERE user_host LIKE '%127.0.0.1%' AND command_type IN ('Query', \
             'Execute') AND argument LIKE '{part}'"
        ))
    };
    let mut holder = block_on(lock_of(0).acquire()).unwrap();
    for turn in 1..=6 {
        let lock = lock_of(turn);
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        eventually("it waits until it is woken", || listeners(&server) == "1");
        server.sql("SET GLOBAL general_log = 1");
        block_on(holder.release()).unwrap();
        holder = block_on(waiting).unwrap();
        server.sql("SET GLOBAL general_log = 0");
        // The one who released first did not know of a waiter.
        if turn > 2 {
            assert_eq!(logged("START TRANSACTION%COMMIT; KILL QUERY %"), "1", "turn {turn}");
            // Neither is it tried whether no client waits, nor does the waiter ask, or grant itself the lock.
            let others = ["START TRANSACTION%", "UPDATE polylatch_locks SET fence = %owner = NULL%"];
            assert_eq!(others.map(logged), ["1", "0"], "turn {turn}");
        }
        server.sql("TRUNCATE mysql.general_log");
    }
    // The row says whether there are more, so that no client overtakes them.
    let is_shared = || server.sql("SELECT is_shared FROM locks.polylatch_locks WHERE name = 'a'");
    let locks = [0, 1].map(lock_of);
    let [mut first, mut second] = [&locks[0], &locks[1]].map(|lock| Box::pin(lock.acquire()));
    stands_in_line(first.as_mut(), &clients[0], "a", 1);
    stands_in_line(second.as_mut(), &clients[0], "a", 2);
    assert_eq!(is_shared(), "1");
    block_on(holder.release()).unwrap();
    assert_eq!(is_shared(), "1");
    block_on(block_on(first).unwrap().release()).unwrap();
    assert_eq!(is_shared(), "0");
    block_on(block_on(second).unwrap().release()).unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM locks.polylatch_waiters"), "0");
}

/// What it costs to queue behind a holder: one request, which is a whole transaction.
#[test]
fn queueing_behind_a_holder_costs_one_request() {
    let server = MariadbServer::start();
    server.sql("SET GLOBAL log_output = 'TABLE'");
    let clients = [(); 2].map(|()| connect(&server, "poll=10s&provisional=30s&lease=60s"));
    let held = block_on(clients[0].lock("a").acquire()).unwrap();
    let logged = |part: &str| {
        server.sql(&format!(
            "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE '{part}'"
        ))
    };
    let lock = clients[1].lock("a").wait(millis(20_000));
    for turn in 1..=3 {
        server.sql("SET GLOBAL general_log = 1");
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        server.sql("SET GLOBAL general_log = 0");
        let asked =
            ["START TRANSACTION%INSERT INTO polylatch_waiters%COMMIT", "START TRANSACTION%FOR UPDATE%"];
        assert_eq!(asked.map(logged), ["1", "1"], "turn {turn}");
        drop(waiting);
        eventually("it left the queue", || server.sql("SELECT COUNT(*) FROM locks.polylatch_waiters") == "0");
        server.sql("TRUNCATE mysql.general_log");
    }
    block_on(held.release()).unwrap();
}

/// What a repetition of idempotent work costs: one statement, which is prepared and says what was stored.
#[test]
fn a_repetition_of_idempotent_work_is_one_statement() {
    let server = MariadbServer::start();
    server.sql("SET GLOBAL log_output = 'TABLE'");
    let scope = connect(&server, "").idempotency("charges");
    let options = polylatch::idempotency::RunOptions::new();
    let run = || block_on(scope.run("k", &options, |_| async { Ok(b"ok".to_vec()) })).unwrap();
    assert!(!run().is_replayed());
    for _ in 0..2 {
        server.sql("SET GLOBAL general_log = 1");
        assert!(run().is_replayed());
        server.sql("SET GLOBAL general_log = 0");
        let sent = server.sql(
            "SELECT command_type, LEFT(argument, 11) FROM mysql.general_log WHERE user_host LIKE '%127.0.0.1%' \
             AND command_type <> 'Prepare' AND argument LIKE '%polylatch_idempotency%'",
        );
        assert_eq!(sent, "Execute\tINSERT INTO");
        server.sql("TRUNCATE mysql.general_log");
    }
}

/// The connection that is to be woken waits for a session lock of the other one, which may end before.
#[test]
fn a_waiter_is_woken_also_after_its_other_connection_was_ended() {
    let server = MariadbServer::start();
    let client = || connect(&server, "poll=10s&provisional=30s&lease=60s");
    let holder = client();
    let connections = || {
        let ids = server.sql(
            "SELECT id FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%' AND command <> 'Killed'",
        );
        ids.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let held = block_on(holder.lock("a").acquire()).unwrap();
    let of_the_holder = connections();
    let waiter = client();
    let lock = waiter.lock("a").wait(millis(20_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &holder, "a", 1);
    eventually("it waits until it is woken", || listeners(&server) == "1");
    let listens = server.sql(
        "SELECT id FROM information_schema.processlist WHERE state = 'User lock' AND host LIKE '127.0.0.1:%'",
    );
    let others = || {
        let mut ids = connections();
        ids.retain(|id| *id != listens && !of_the_holder.contains(id));
        ids
    };
    let [verbs] = &others()[..] else { panic!("{:?}", others()) };
    server.sql(&format!("KILL {verbs}"));
    eventually("another connection has its lock", || {
        let named = format!(
            "SELECT IS_USED_LOCK(CONCAT('polylatch.rings.', LEFT(SHA2(CONCAT('locks/', '{ROOT}', '/', client), 256), 32))) \
             FROM locks.polylatch_waiters"
        );
        others().iter().any(|id| *id == server.sql(&named)) && listeners(&server) == "1"
    });
    let released = Instant::now();
    block_on(held.release()).unwrap();
    let next = block_on(waiting).unwrap();
    assert!(released.elapsed() < millis(2_000), "{:?}", released.elapsed());
    block_on(next.release()).unwrap();
}

/// A server may stop all that it lets sleep when it wakes one of them.
#[test]
fn rings_to_one_client_do_not_hold_up_others() {
    let server = MariadbServer::start();
    let slowest: Vec<_> = thread::scope(|scope| {
        let pairs: Vec<_> = (0..6)
            .map(|pair| {
                let clients = [(); 2].map(|()| connect(&server, "poll=10s&provisional=30s&lease=60s"));
                let name = format!("pair-{pair}");
                let turns = move |client: Polylatch| {
                    let lock = client.lock(&name).wait(millis(60_000));
                    (0..100).fold(Duration::ZERO, |slowest, _| {
                        let guard = block_on(lock.acquire()).unwrap();
                        thread::sleep(millis(2));
                        let began = Instant::now();
                        block_on(guard.release()).unwrap();
                        slowest.max(began.elapsed())
                    })
                };
                clients.map(|client| {
                    scope.spawn({
                        let turns = turns.clone();
                        move || turns(client)
                    })
                })
            })
            .collect();
        pairs.into_iter().flatten().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(slowest.iter().all(|slowest| *slowest < millis(1_500)), "{slowest:?}");
}

/// One ring that wakes no client costs the connection nothing: what came before it is committed.
#[test]
fn a_ring_for_a_client_that_does_not_listen_is_no_failure() {
    let server = MariadbServer::start();
    let (rings, polls) = (connect(&server, "poll=1s"), connect(&server, "wake=poll"));
    let ids = || server.sql("SELECT id FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%'");
    let before = ids();
    for turn in 0..4 {
        let holder = block_on(rings.lock("a").acquire()).unwrap();
        let lock = polls.lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), &rings, "a", 1);
        block_on(holder.release()).unwrap();
        block_on(block_on(waiting).unwrap().release()).unwrap();
        assert_eq!(ids(), before, "turn {turn}");
    }
}

/// A grant before the request sleeps wakes no request; the next one finds it.
#[test]
fn a_grant_before_a_waiter_listens_is_found_when_it_does() {
    let server = MariadbServer::start();
    let clients = [(); 2].map(|()| connect(&server, "poll=10s&provisional=30s&lease=60s"));
    let mut took = Vec::new();
    for _ in 0..20 {
        let holder = block_on(clients[0].lock("a").acquire()).unwrap();
        let lock = clients[1].lock("a").wait(millis(30_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        let released = Instant::now();
        block_on(holder.release()).unwrap();
        let guard = block_on(waiting).unwrap();
        took.push(released.elapsed());
        block_on(guard.release()).unwrap();
    }
    assert!(took.iter().all(|took| *took < millis(3_000)), "{took:?}");
}

/// The connections are ended; leases are not touched, and waiters listen again.
#[test]
fn a_connection_that_listens_and_was_cut_costs_no_lock_and_is_opened_again() {
    let server = MariadbServer::start();
    let clients = [connect(&server, "poll=1s"), connect(&server, "poll=1s")];
    let open = "SELECT COUNT(*) FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%'";
    assert_eq!(server.sql(open), "2", "without waiters a client has one");
    let mut holder = block_on(clients[0].lock("a").acquire()).unwrap();
    for turn in 1..=3 {
        let lock = clients[turn % 2].lock("a").wait(millis(20_000));
        let mut waiting = Box::pin(lock.acquire());
        stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
        eventually("it listens", || listeners(&server) == "1");
        server.kill_connections();
        eventually("it listens again", || listeners(&server) == "1");
        server.kill_connections();
        block_on(holder.release()).unwrap();
        holder = block_on(waiting).unwrap();
    }
    block_on(holder.release()).unwrap();
    for client in clients {
        block_on(client.close());
    }
    eventually("closed clients have no connection", || server.sql(open) == "0");
    let took = hand_offs(&server, [ROOT; 2], "wake=doorbell", 5);
    assert!(took[took.len() / 2] < millis(2_000), "{took:?}");
}

/// Seven of ten connections are in use; a server takes no smaller limit.
#[test]
fn no_connection_for_listening_is_opened_where_connections_are_scarce() {
    let server = MariadbServer::with(&["max-connections=10"]);
    let clients = [(); 7].map(|()| connect(&server, "poll=10s&provisional=30s&lease=60s"));
    let holder = block_on(clients[0].lock("a").acquire()).unwrap();
    let lock = clients[1].lock("a").wait(millis(20_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
    let released = Instant::now();
    block_on(holder.release()).unwrap();
    let guard = block_on(waiting).unwrap();
    assert!(released.elapsed() < millis(3_000), "it polls");
    let open = "SELECT COUNT(*) FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%'";
    assert_eq!(server.sql(open), "7");
    block_on(guard.release()).unwrap();
}

/// With wake=poll a client has one connection, and waiters poll.
#[test]
fn a_client_that_does_not_listen_has_one_connection() {
    let server = MariadbServer::start();
    let clients = [connect(&server, "wake=poll"), connect(&server, "wake=poll")];
    let holder = block_on(clients[0].lock("a").acquire()).unwrap();
    let lock = clients[1].lock("a").wait(millis(20_000));
    let mut waiting = Box::pin(lock.acquire());
    stands_in_line(waiting.as_mut(), &clients[0], "a", 1);
    let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE host LIKE '127.0.0.1:%'";
    assert_eq!(server.sql(count), "2");
    block_on(holder.release()).unwrap();
    block_on(block_on(waiting).unwrap().release()).unwrap();
}
