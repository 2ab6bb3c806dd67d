//! Idempotent work inside the application's own transactions, on SQLite, PostgreSQL and MariaDB.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", unix))]

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::idempotency::{RecordState, Retention, RunOptions};
use polylatch::resource::{Claimed, RunClaim, TransactionRun, TransactionRunOptions, TransactionRuns};

use crate::contract::block_on;
use crate::sql_world::{Database, Failed, World, each, mariadb, postgres};

fn options() -> TransactionRunOptions {
    TransactionRunOptions::new()
}

fn run_of(world: &World, scope: &str, key: &str) -> TransactionRun {
    world.runs().run(scope, key, &options()).unwrap()
}

fn claim(database: &mut Database, run: &TransactionRun) -> Claimed<RunClaim> {
    run.claim().run(|statement| database.query(statement)).unwrap()
}

fn complete(database: &mut Database, claim: &RunClaim, result: &[u8]) {
    claim.complete(result).unwrap().run(|statement| database.query(statement)).unwrap();
}

/// A whole request of an application. A deadlock is answered as everywhere: roll back and begin again.
fn request(database: &mut Database, run: &TransactionRun, key: &str) -> Vec<u8> {
    loop {
        database.begin();
        match run.claim().run(|statement| database.query(statement)) {
            Ok(Claimed::Mine(claim)) => {
                database.effect(key, "all");
                let answer = format!("order of {:?}", thread::current().id()).into_bytes();
                complete(database, &claim, &answer);
                database.run("COMMIT");
                return answer;
            }
            Ok(Claimed::Replayed(answer)) => {
                database.run("ROLLBACK");
                return answer;
            }
            Err(Failed::Database(code)) if code == "1213" => database.run("ROLLBACK"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_repetition_in_a_transaction_gets_the_stored_answer() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let with = |payload: &[u8]| world.runs().run("orders/7", "a", &options().payload(payload)).unwrap();
        database.begin();
        let first = claim(&mut database, &with(b"3 apples")).mine().unwrap();
        assert_eq!(first.runs(), 1);
        database.effect("a", "all");
        complete(&mut database, &first, b"\0order 42\xff");
        database.run("COMMIT");
        let mut other = world.open();
        other.begin();
        let Claimed::Replayed(answer) = claim(&mut other, &with(b"3 apples")) else { panic!() };
        assert_eq!(answer, b"\0order 42\xff");
        other.run("ROLLBACK");
        for run in [with(b"4 apples"), run_of(world, "orders/7", "a")] {
            other.begin();
            assert!(matches!(claim(&mut other, &run), Claimed::PayloadMismatch));
            other.run("ROLLBACK");
        }
        assert_eq!(other.effects("a", "all"), 1);
    });
}

#[test]
fn of_many_transactions_with_one_key_at_once_one_works() {
    each(|fresh| {
        let (world, begin) = (&fresh.world, Barrier::new(8));
        for key in ["a", "b"] {
            let answers: Vec<_> = thread::scope(|scope| {
                let one = || {
                    let mut database = world.open();
                    let run = run_of(world, "orders/7", key);
                    begin.wait();
                    request(&mut database, &run, key)
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
            assert_eq!(world.open().effects(key, "all"), 1);
        }
    });
}

/// In the transactions of MySQL and MariaDB what was read first decides what is seen later, unless it is read with a lock.
#[test]
fn a_duplicate_waits_for_the_end_of_the_first_transaction() {
    each(|fresh| {
        let world = &fresh.world;
        for end in ["COMMIT", "ROLLBACK"] {
            let mut first = world.open();
            first.begin();
            let claimed = claim(&mut first, &run_of(world, "orders/7", end)).mine().unwrap();
            first.effect(end, "all");
            complete(&mut first, &claimed, b"order 42");
            let (told, ends) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut second = world.open();
                    second.begin();
                    // On SQLite its transaction begins when the first one has ended.
                    if !matches!(world, World::Sqlite { .. }) {
                        assert_eq!(second.effects(end, "all"), 0, "a snapshot from before");
                    }
                    let found = claim(&mut second, &run_of(world, "orders/7", end));
                    let is_mine = matches!(found, Claimed::Mine(_));
                    if let Claimed::Replayed(answer) = &found {
                        assert_eq!(answer, b"order 42");
                    }
                    second.run("ROLLBACK");
                    told.send(is_mine).unwrap();
                });
                let early = ends.recv_timeout(Duration::from_millis(300));
                assert!(early.is_err(), "{end}: it did not wait: {early:?}");
                first.run(end);
                let is_mine = ends.recv_timeout(Duration::from_secs(20)).unwrap();
                assert_eq!(is_mine, end == "ROLLBACK", "{end}");
            });
        }
    });
}

#[test]
fn without_waiting_a_duplicate_is_in_progress_at_once() {
    for fresh in [postgres(), mariadb()] {
        let world = &fresh.world;
        let runs = world.runs();
        let run = || runs.run("orders/7", "a", &options().no_wait()).unwrap();
        let (mut first, mut second) = (world.open(), world.open());
        first.begin();
        // The first one waits: what it holds is seen all the same.
        let claimed = claim(&mut first, &run_of(world, "orders/7", "a")).mine().unwrap();
        second.begin();
        let begun = Instant::now();
        match run().claim().run(|statement| second.query(statement)) {
            Ok(Claimed::InProgress { lease: None }) => {}
            Err(Failed::Database(code)) if runs.says_in_progress(&code) => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        second.run("ROLLBACK");
        complete(&mut first, &claimed, b"x");
        first.run("COMMIT");
        second.begin();
        assert!(matches!(claim(&mut second, &run()), Claimed::Replayed(_)));
        second.run("ROLLBACK");
    }
}

#[test]
fn an_exception_after_the_effect_leaves_neither_effect_nor_key() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let run = run_of(world, "orders/7", "a");
        database.begin();
        let claimed = claim(&mut database, &run).mine().unwrap();
        database.effect("a", "all");
        complete(&mut database, &claimed, b"order 41");
        // The application fails here and rolls back. No code deletes the key.
        database.run("ROLLBACK");
        assert_eq!(database.effects("a", "all"), 0);
        request(&mut database, &run, "a");
        request(&mut database, &run_of(world, "orders/7", "a"), "a");
        assert_eq!(database.effects("a", "all"), 1);
    });
}

#[test]
fn a_stored_failure_is_the_answer_of_every_repetition() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        database.begin();
        let claimed = claim(&mut database, &run_of(world, "orders/7", "a")).mine().unwrap();
        claimed.fail(b"card refused").unwrap().run(|statement| database.query(statement)).unwrap();
        database.run("COMMIT");
        database.begin();
        let Claimed::Failed(answer) = claim(&mut database, &run_of(world, "orders/7", "a")) else { panic!() };
        assert_eq!(answer, b"card refused");
        database.run("ROLLBACK");
    });
}

#[test]
fn a_transaction_that_dies_frees_its_key_at_once_whatever_the_retention_is() {
    each(|fresh| {
        let world = &fresh.world;
        let run = || {
            let options = options().retention(Retention::Forever);
            world.runs().run("orders/7", "a", &options).unwrap()
        };
        let mut dies = world.open();
        dies.begin();
        assert!(claim(&mut dies, &run()).mine().is_some());
        dies.effect("a", "all");
        drop(dies);
        let begun = Instant::now();
        request(&mut world.open(), &run(), "a");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(world.open().effects("a", "all"), 1);
    });
}

#[test]
fn the_key_of_another_callers_scope_gets_nothing_of_an_answer() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        request(&mut database, &run_of(world, "orders/7", "a"), "a");
        for scope in ["orders/8", "Orders/7", "orders/7 "] {
            database.begin();
            assert!(claim(&mut database, &run_of(world, scope, "a")).mine().is_some(), "{scope:?}");
            database.run("ROLLBACK");
        }
        for key in ["A", "a "] {
            database.begin();
            assert!(claim(&mut database, &run_of(world, "orders/7", key)).mine().is_some(), "{key:?}");
            database.run("ROLLBACK");
        }
    });
}

#[test]
fn an_answer_whose_retention_is_over_counts_as_absent_and_is_purged_in_batches() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let table = world.table("idempotency");
        for key in ["a", "b", "c", "kept"] {
            request(&mut database, &run_of(world, "orders/7", key), key);
        }
        let column = if matches!(world, World::Mariadb { .. }) { "record_key" } else { "key" };
        database.run(&format!("UPDATE {table} SET keep_until_ms = 1 WHERE {column} <> 'kept'"));
        database.begin();
        let again = claim(&mut database, &run_of(world, "orders/7", "a")).mine().unwrap();
        assert_eq!(again.runs(), 1);
        database.run("ROLLBACK");
        let mut purge = |most| {
            let purging = world.runs().purge(most).unwrap();
            purging.run(|statement| database.query(statement)).unwrap()
        };
        assert_eq!((purge(2), purge(2), purge(2)), (2, 1, 0));
        assert_eq!(database.number(&format!("SELECT count(*) FROM {table}")), 1);
        let zero = world.runs().purge(0).unwrap_err();
        assert!(zero.to_string().contains("1 to 100000"), "{zero}");
    });
}

#[test]
fn what_cannot_be_stored_is_refused_before_the_commit() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        database.begin();
        let claimed = claim(&mut database, &run_of(world, "orders/7", "a")).mine().unwrap();
        let large = vec![7; 1024 * 1024];
        let error = claimed.complete(&[large.as_slice(), b"x"].concat()).unwrap_err();
        assert_eq!(error.code(), "invalid_argument");
        assert!(error.to_string().contains("at most 1048576"), "{error}");
        complete(&mut database, &claimed, &large);
        database.run("COMMIT");
        database.begin();
        let Claimed::Replayed(answer) = claim(&mut database, &run_of(world, "orders/7", "a")) else {
            panic!()
        };
        assert!(answer == large);
        database.run("ROLLBACK");
        // A claim that is over writes nothing.
        let late = claimed.complete(b"late").unwrap().run(|statement| database.query(statement)).unwrap_err();
        assert_eq!(late.code(), "stale_token");
        let runs = world.runs();
        assert_eq!(runs.run("", "a", &options()).unwrap_err().code(), "invalid_argument");
        assert_eq!(runs.run("s", "a\n", &options()).unwrap_err().code(), "invalid_argument");
        let short = options().retention(Retention::For(Duration::from_millis(1)));
        assert_eq!(runs.run("s", "a", &short).unwrap_err().code(), "invalid_argument");
    });
    assert_eq!(TransactionRuns::postgres("a;b").unwrap_err().code(), "invalid_config");
}

/// Both forms keep one record, so neither does what the other has done.
#[test]
fn the_form_with_a_lease_and_the_form_in_a_transaction_answer_each_other() {
    for fresh in [postgres(), mariadb()] {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let client = block_on(polylatch::Polylatch::connect(fresh.store_url.as_deref().unwrap())).unwrap();
        let scope = client.idempotency("orders/7");
        let answer = request(&mut database, &run_of(world, "orders/7", "a"), "a");
        let replayed =
            block_on(scope.run("a", &RunOptions::new(), |_| async { panic!("done again") })).unwrap();
        assert!(replayed.is_replayed() && *replayed.value() == answer);
        let record = block_on(scope.show("a")).unwrap().unwrap();
        assert_eq!((record.state, record.runs), (RecordState::Done, 1));

        let outcome = block_on(scope.run("b", &RunOptions::new(), |_| async { Ok(b"by lease".to_vec()) }));
        assert!(!outcome.unwrap().is_replayed());
        database.begin();
        let Claimed::Replayed(found) = claim(&mut database, &run_of(world, "orders/7", "b")) else {
            panic!()
        };
        assert_eq!(found, b"by lease");
        database.run("ROLLBACK");

        // A live claim is not waited for; one that has ended is taken over, and its late answer is refused.
        let lease = RunOptions::new().lease(Duration::from_secs(3));
        let polylatch::idempotency::Begun::Mine(held) = block_on(scope.begin("c", &lease)).unwrap() else {
            panic!()
        };
        database.begin();
        let Claimed::InProgress { lease: Some((_, left)) } =
            claim(&mut database, &run_of(world, "orders/7", "c"))
        else {
            panic!()
        };
        // The server rounds the end up to a whole millisecond.
        assert!(left <= Duration::from_millis(3_001) && !left.is_zero(), "{left:?}");
        database.run("ROLLBACK");
        let table = world.table("idempotency");
        database.run(&format!("UPDATE {table} SET ends_ms = 1 WHERE state = 'claimed'"));
        let by_transaction = request(&mut database, &run_of(world, "orders/7", "c"), "c");
        let late = block_on(held.finish(Ok(b"late".to_vec()))).unwrap_err();
        assert_eq!(late.code(), "not_recorded");
        let found = block_on(scope.run("c", &RunOptions::new(), |_| async { panic!("done again") })).unwrap();
        assert_eq!(*found.value(), by_transaction);
    }
}
