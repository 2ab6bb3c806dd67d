//! Idempotent work in several transactions of the application, on SQLite, PostgreSQL and MariaDB.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", unix))]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use polylatch::idempotency::{RecordState, RunOptions};
use polylatch::resource::{Claimed, StepsClaim, TransactionRunOptions, TransactionSteps};

use crate::contract::block_on;
use crate::sql_world::{Database, Failed, World, each, mariadb, postgres};

const STEPS: [&str; 3] = ["reserve", "charge", "send"];

/// A lease that no test waits for.
const LONG: Duration = Duration::from_secs(600);

fn steps_of(world: &World, key: &str, lease: Duration) -> TransactionSteps {
    world.runs().steps("orders/7", key, &TransactionRunOptions::new().lease(lease)).unwrap()
}

fn claim(database: &mut Database, steps: &TransactionSteps) -> Claimed<StepsClaim> {
    database.begin();
    let claimed = steps.claim().run(|statement| database.query(statement)).unwrap();
    database.run("COMMIT");
    claimed
}

fn step(database: &mut Database, claimed: &StepsClaim, key: &str, name: &str) -> Result<StepsClaim, Failed> {
    database.begin();
    database.effect(key, name);
    let next = claimed.step(name, name.to_uppercase().as_bytes()).unwrap();
    match next.run(|statement| database.query(statement)) {
        Ok(next) => {
            database.run("COMMIT");
            Ok(next)
        }
        Err(error) => {
            database.run("ROLLBACK");
            Err(error)
        }
    }
}

/// The rest of the work, from a claim on.
fn go_on(database: &mut Database, mut claimed: StepsClaim, key: &str) -> Result<(), Failed> {
    for name in STEPS {
        if claimed.value(name).is_none() {
            claimed = step(database, &claimed, key, name)?;
        }
    }
    database.begin();
    database.effect(key, "end");
    match claimed.complete(b"order 42").unwrap().run(|statement| database.query(statement)) {
        Ok(()) => {
            database.run("COMMIT");
            Ok(())
        }
        Err(error) => {
            database.run("ROLLBACK");
            Err(error)
        }
    }
}

fn each_step_once(database: &mut Database, key: &str) {
    for name in STEPS.into_iter().chain(["end"]) {
        assert_eq!(database.effects(key, name), 1, "{key}: {name}");
    }
}

/// The lease of whatever claim there is ends now.
fn end_leases(database: &mut Database) {
    let table = database.world.table("idempotency");
    database.run(&format!("UPDATE {table} SET ends_ms = 1"));
}

#[test]
fn a_repetition_goes_on_after_the_last_committed_step() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let claimed = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        let claimed = step(&mut database, &claimed, "a", "reserve").unwrap();
        // It dies in the middle of the next one.
        let mut dies = world.open();
        dies.begin();
        dies.effect("a", "charge");
        claimed.step("charge", b"").unwrap().run(|statement| dies.query(statement)).unwrap();
        drop(dies);
        let Claimed::InProgress { lease: Some((_, left)) } =
            claim(&mut database, &steps_of(world, "a", LONG))
        else {
            panic!("its lease is not over")
        };
        // The store rounds its end up to a whole millisecond.
        assert!(left <= LONG + Duration::from_millis(1) && left > LONG / 2, "{left:?}");
        end_leases(&mut database);
        let next = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        assert_eq!(next.finished().collect::<Vec<_>>(), [("reserve", &b"RESERVE"[..])]);
        assert!(next.runs() == 2 && next.fencing_token() > claimed.fencing_token());
        go_on(&mut database, next, "a").unwrap();
        each_step_once(&mut database, "a");
        let Claimed::Replayed(answer) = claim(&mut database, &steps_of(world, "a", LONG)) else { panic!() };
        assert_eq!(answer, b"order 42");
        // A transaction gets it too.
        database.begin();
        let run = world.runs().run("orders/7", "a", &TransactionRunOptions::new()).unwrap();
        let found = run.claim().run(|statement| database.query(statement)).unwrap();
        assert!(matches!(found, Claimed::Replayed(answer) if answer == b"order 42"));
        database.run("ROLLBACK");
    });
}

#[test]
fn a_worker_whose_work_was_taken_over_commits_no_step() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let paused = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        end_leases(&mut database);
        // As long as no other client has taken it over, it goes on.
        let paused = step(&mut database, &paused, "a", "reserve").unwrap();
        end_leases(&mut database);
        let present = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        let late = step(&mut database, &paused, "a", "charge").unwrap_err();
        assert_eq!(late.code(), "stale_token");
        let renewal = paused.renew().run(|statement| database.query(statement)).unwrap_err();
        assert_eq!(renewal.code(), "stale_token");
        go_on(&mut database, present, "a").unwrap();
        let late = step(&mut database, &paused, "a", "send").unwrap_err();
        assert_eq!(late.code(), "stale_token");
        each_step_once(&mut database, "a");
    });
}

#[test]
fn of_two_workers_with_ended_leases_each_step_is_done_by_one() {
    each(|fresh| {
        let world = &fresh.world;
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut database = world.open();
                    begin.wait();
                    loop {
                        // So short that they take each other's work.
                        let steps = steps_of(world, "a", Duration::from_millis(100));
                        database.begin();
                        let claimed = steps.claim().run(|statement| database.query(statement));
                        database.run(if claimed.is_ok() { "COMMIT" } else { "ROLLBACK" });
                        match claimed {
                            Ok(Claimed::Replayed(_)) => break,
                            Ok(Claimed::Mine(claimed)) => {
                                thread::sleep(Duration::from_millis(70));
                                match go_on_slowly(&mut database, claimed) {
                                    Ok(()) => break,
                                    Err(error) => assert!(is_usual(&error), "{error:?}"),
                                }
                            }
                            Ok(Claimed::InProgress { .. }) => thread::sleep(Duration::from_millis(10)),
                            Err(error) => assert!(is_usual(&error), "{error:?}"),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        each_step_once(&mut world.open(), "a");
    });
}

/// Another worker has it, or a deadlock.
fn is_usual(error: &Failed) -> bool {
    ["stale_token", "1213"].contains(&error.code())
}

fn go_on_slowly(database: &mut Database, mut claimed: StepsClaim) -> Result<(), Failed> {
    for name in STEPS {
        if claimed.value(name).is_none() {
            claimed = step(database, &claimed, "a", name)?;
            thread::sleep(Duration::from_millis(70));
        }
    }
    go_on(database, claimed, "a")
}

#[test]
fn a_released_or_renewed_claim_keeps_its_steps_and_a_rolled_back_step_is_done_again() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let steps = steps_of(world, "a", LONG);
        let claimed = claim(&mut database, &steps).mine().unwrap();
        database.begin();
        database.effect("a", "reserve");
        claimed.step("reserve", b"").unwrap().run(|statement| database.query(statement)).unwrap();
        database.run("ROLLBACK");
        let claimed = step(&mut database, &claimed, "a", "reserve").unwrap();
        end_leases(&mut database);
        let claimed = claimed.renew().run(|statement| database.query(statement)).unwrap();
        assert!(matches!(claim(&mut database, &steps_of(world, "a", LONG)), Claimed::InProgress { .. }));
        // Its own claim, after the answer to a commit was lost.
        let again = claim(&mut database, &steps).mine().unwrap();
        assert_eq!((again.value("reserve"), again.runs()), (Some(&b"RESERVE"[..]), 1));
        assert_eq!(again.step("reserve", b"").unwrap_err().code(), "invalid_argument");
        claimed.release().run(|statement| database.query(statement)).unwrap();
        let next = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        go_on(&mut database, next, "a").unwrap();
        each_step_once(&mut database, "a");
    });
}

#[test]
fn a_released_claim_is_free_at_once() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        for time in 0..100 {
            let claimed = claim(&mut database, &steps_of(world, "a", LONG));
            let Claimed::Mine(claimed) = claimed else { panic!("{claimed:?} after {time} releases") };
            claimed.release().run(|statement| database.query(statement)).unwrap();
        }
    });
}

#[test]
fn unfinished_steps_are_not_done_as_a_whole() {
    for fresh in [postgres(), mariadb()] {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let claimed = claim(&mut database, &steps_of(world, "a", LONG)).mine().unwrap();
        step(&mut database, &claimed, "a", "reserve").unwrap();
        let client = block_on(polylatch::Polylatch::connect(fresh.store_url.as_deref().unwrap())).unwrap();
        let scope = client.idempotency("orders/7");
        let state = || block_on(scope.show("a")).unwrap().unwrap().state;
        assert_eq!(state(), RecordState::Running);
        end_leases(&mut database);
        assert_eq!(state(), RecordState::Abandoned);
        let error = block_on(scope.run("a", &RunOptions::new(), |_| async { panic!("done") })).unwrap_err();
        assert!(error.code() == "invalid_argument" && error.to_string().contains("in steps"), "{error}");
        database.begin();
        let run = world.runs().run("orders/7", "a", &TransactionRunOptions::new()).unwrap();
        let error = run.claim().run(|statement| database.query(statement)).unwrap_err();
        assert_eq!(error.code(), "invalid_argument");
        database.run("ROLLBACK");
    }
}
