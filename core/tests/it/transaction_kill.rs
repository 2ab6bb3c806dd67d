//! A process that works in its own transactions is killed at each step: what is done is recorded, and what is recorded is
//! done.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "mysql", unix))]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::resource::{Claimed, TransactionRunOptions, TransactionSteps};
use polylatch_test_services::proc::kill;

use crate::sql_world::{Database, World, each};

const WORLD: &str = "POLYLATCH_TEST_SQL_WORLD";
const STEP: &str = "POLYLATCH_TEST_SQL_STEP";
const KEY: &str = "POLYLATCH_TEST_SQL_KEY";
/// How often a process is killed at each step.
const TURNS: &str = "POLYLATCH_SQL_KILLS";

const HERE: &str = "killed here";

/// Where the child is killed. At those with a number of microseconds it goes on, and is killed so long after.
const PLACES: [(&str, u64); 11] = [
    ("before the claim", 0),
    ("during the claim", 200),
    ("after the claim", 0),
    ("after the work", 0),
    ("during the record", 100),
    ("before the commit", 0),
    ("during the commit", 0),
    ("during the commit", 50),
    ("during the commit", 200),
    ("during the commit", 1_000),
    ("after the commit", 0),
];

const IN_STEPS: [&str; 3] = ["reserve", "charge", "send"];

/// Of work in steps. The processes that go on wait for it.
const LEASE: Duration = Duration::from_millis(100);

fn here(step: &str, micros: bool) {
    if std::env::var(STEP).is_ok_and(|wanted| wanted == step) {
        println!("\n{HERE}");
        std::io::stdout().flush().unwrap();
        // A step that is reached by a number of microseconds goes on, and is killed from outside meanwhile.
        if !micros {
            loop {
                thread::park();
            }
        }
    }
}

/// The whole program of the child.
#[test]
fn works_until_it_is_killed() {
    let (Ok(world), Ok(key)) = (std::env::var(WORLD), std::env::var(KEY)) else { return };
    let world = World::parse(&world);
    let mut database = world.open();
    here("before the claim", false);
    here("during the claim", true);
    if key.starts_with("steps") {
        in_steps(&mut database, &steps_of(&world, &key), &key);
    } else {
        whole(&mut database, &key);
    }
}

/// Work in one transaction; says whether this did it.
fn whole(database: &mut Database, key: &str) -> bool {
    let run = database.world.runs().run("kill", key, &TransactionRunOptions::new()).unwrap();
    database.begin();
    let claimed = run.claim().run(|statement| database.query(statement)).unwrap();
    here("after the claim", false);
    let is_mine = match claimed {
        Claimed::Mine(claim) => {
            database.effect(key, "all");
            here("after the work", false);
            here("during the record", true);
            claim.complete(b"done").unwrap().run(|statement| database.query(statement)).unwrap();
            true
        }
        Claimed::Replayed(_) => false,
        other => panic!("{other:?}"),
    };
    here("before the commit", false);
    here("during the commit", true);
    database.run("COMMIT");
    here("after the commit", false);
    is_mine
}

fn steps_of(world: &World, key: &str) -> TransactionSteps {
    world.runs().steps("kill", key, &TransactionRunOptions::new().lease(LEASE)).unwrap()
}

fn in_steps(database: &mut Database, steps: &TransactionSteps, key: &str) {
    let mut claimed = loop {
        database.begin();
        let found = steps.claim().run(|statement| database.query(statement)).unwrap();
        database.run("COMMIT");
        match found {
            Claimed::Mine(claimed) => break claimed,
            Claimed::Replayed(_) => return,
            // A claim that was killed is waited for.
            Claimed::InProgress { lease } => thread::sleep(lease.unwrap().1),
            other => panic!("{other:?}"),
        }
    };
    here("somewhere", true);
    for name in IN_STEPS {
        if claimed.value(name).is_none() {
            database.begin();
            database.effect(key, name);
            let step = claimed.step(name, b"").unwrap();
            claimed = step.run(|statement| database.query(statement)).unwrap();
            database.run("COMMIT");
        }
    }
    database.begin();
    claimed.complete(b"done").unwrap().run(|statement| database.query(statement)).unwrap();
    database.run("COMMIT");
}

/// Starts a child and kills it at a step, so many microseconds after.
fn killed(world: &World, key: &str, step: &str, micros: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "transaction_kill::works_until_it_is_killed", "--nocapture"])
        .envs([(WORLD, world.text().as_str()), (STEP, step), (KEY, key)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    while out.read_line(&mut printed).unwrap() > 0 && !printed.ends_with(&format!("{HERE}\n")) {}
    // Steps may be finished before.
    assert!(printed.contains(HERE) || step == "somewhere", "{step}: the child ended before: {printed}");
    let wait = Instant::now();
    while wait.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
    kill(child.id());
    child.wait().unwrap();
}

fn turns() -> u64 {
    std::env::var(TURNS).map_or(1, |turns| turns.parse().expect(TURNS))
}

#[test]
fn a_transaction_that_is_killed_at_any_step_is_done_and_recorded_or_neither() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        let (mut done, mut not_recorded, mut not_done) = (0, 0, 0);
        for turn in 0..turns() {
            for (at, (step, micros)) in PLACES.into_iter().enumerate() {
                let key = format!("{turn}-{at}");
                killed(world, &key, step, micros + turn % 50);
                // It waits until the server has ended the transaction of the child.
                database.begin();
                let run = world.runs().run("kill", &key, &TransactionRunOptions::new()).unwrap();
                let found = run.claim().run(|statement| database.query(statement)).unwrap();
                let is_recorded = matches!(found, Claimed::Replayed(_));
                let is_done = database.effects(&key, "all") == 1;
                database.run("ROLLBACK");
                not_recorded += u32::from(is_done && !is_recorded);
                not_done += u32::from(is_recorded && !is_done);
                done += u32::from(is_done);
                if step == "after the commit" {
                    assert!(is_done, "it was committed");
                }
                assert!(whole(&mut database, &key) != is_done);
                assert_eq!(database.effects(&key, "all"), 1, "{step}, {micros} µs");
            }
        }
        assert_eq!((not_recorded, not_done), (0, 0), "done but not recorded, recorded but not done");
        eprintln!("{done} of {} were committed by what was killed", turns() * PLACES.len() as u64);
    });
}

#[test]
fn work_in_steps_that_is_killed_anywhere_does_each_step_once() {
    each(|fresh| {
        let (world, mut database) = (&fresh.world, fresh.world.open());
        for turn in 0..3 * turns() {
            let key = format!("steps-{turn}");
            for micros in [700, 1_900] {
                killed(world, &key, "somewhere", micros + 611 * turn % 3_000);
            }
            in_steps(&mut database, &steps_of(world, &key), &key);
            for name in IN_STEPS {
                assert_eq!(database.effects(&key, name), 1, "{key}: {name}");
            }
        }
    });
}
