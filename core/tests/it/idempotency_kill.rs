//! A process that runs idempotent work is killed at each step: another run never waits for longer than its lease, and
//! every answer that any process got is the same.

#![cfg(all(unix, feature = "redis", feature = "sqlite", feature = "postgres", feature = "mysql"))]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polylatch::Polylatch;
use polylatch::idempotency::{Outcome, RecordState, RunOptions};
use polylatch_test_services::mariadb::MariadbServer;
use polylatch_test_services::postgres::PostgresServer;
use polylatch_test_services::proc::kill;
use polylatch_test_services::redis::RedisServer;

use crate::contract::block_on;

const URL: &str = "POLYLATCH_TEST_KILLED_AT";
const STEP: &str = "POLYLATCH_TEST_KILLED_STEP";
const EFFECTS: &str = "POLYLATCH_TEST_EFFECTS";
const KEY: &str = "POLYLATCH_TEST_KEY";

/// What the child prints when it is where it is to be killed.
const HERE: &str = "killed here";
/// What it prints before an answer.
const ANSWER: &str = "answer ";

/// Where the child is killed. At those with a number of microseconds it goes on, and is killed so long after.
const STEPS: [(&str, u64); 8] = [
    ("before the claim", 0),
    ("during the claim", 300),
    ("before the effect", 0),
    ("after the effect", 0),
    ("during the completion", 100),
    ("during the completion", 600),
    ("during the completion", 2_000),
    ("after the completion", 0),
];

const LEASE: Duration = Duration::from_millis(500);

/// What a loaded machine may take for a few requests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of the runs that go on: two hundred of them on a busy machine take a while.
const LONG_LEASE: Duration = Duration::from_secs(10);

fn options(lease: Duration) -> RunOptions {
    RunOptions::new().lease(lease).wait(PATIENCE).payload(b"one order")
}

fn here(step: &str, goes_on: bool) {
    if std::env::var(STEP).as_deref() == Ok(step) {
        println!("\n{HERE}");
        std::io::stdout().flush().unwrap();
        if !goes_on {
            loop {
                std::thread::park();
            }
        }
    }
}

/// What the work does outside of the store. Returns its answer.
fn effect(effects: &Path) -> Vec<u8> {
    let line = format!("order of process {}\n", std::process::id());
    OpenOptions::new().append(true).create(true).open(effects).unwrap().write_all(line.as_bytes()).unwrap();
    line.trim_end().into()
}

/// The whole program of the child.
#[test]
fn runs_until_it_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let effects = std::env::var_os(EFFECTS).unwrap();
    let client = block_on(Polylatch::connect(&url)).unwrap();
    here("before the claim", false);
    here("during the claim", true);
    let scope = client.idempotency("kill");
    let outcome = block_on(scope.run(&std::env::var(KEY).unwrap(), &options(LEASE), |_| async {
        if std::env::var(STEP).as_deref() == Ok("during the claim") {
            // On a busy machine the signal may come after the claim; it is not to come between effect and completion.
            std::future::pending::<()>().await;
        }
        here("before the effect", false);
        let answer = effect(Path::new(&effects));
        here("after the effect", false);
        here("during the completion", true);
        Ok(answer)
    }))
    .unwrap();
    println!("\n{ANSWER}{}", String::from_utf8_lossy(outcome.value()));
    here("after the completion", false);
}

/// So many requests repeat the one whose process is killed, at the same time.
fn duplicates() -> usize {
    number_of("POLYLATCH_IDEMPOTENCY_DUPLICATES", 200)
}

/// How often each step is played; in the first turn with all duplicates, in the others with one repetition.
fn turns() -> usize {
    number_of("POLYLATCH_IDEMPOTENCY_TURNS", 2)
}

fn number_of(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// One child is killed, and of the requests of this process that repeat its own, one takes its key over.
fn round(url: &str, folder: &Path, key: &str, (step, micros): (&str, u64), duplicates: usize) {
    let effects = folder.join(key);
    let clients: Vec<_> =
        (0..duplicates.min(4)).map(|_| block_on(Polylatch::connect(url)).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let repeat = |number: usize| {
        let scope = clients[number % clients.len()].idempotency("kill");
        let (key, effects) = (key.to_owned(), effects.clone());
        runtime.spawn(async move {
            scope.run(&key, &options(LONG_LEASE), |_| async { Ok(effect(&effects)) }).await
        })
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "idempotency_kill::runs_until_it_is_killed", "--nocapture"])
        .envs([(URL, url), (STEP, step), (KEY, key)])
        .env(EFFECTS, &effects)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    while out.read_line(&mut printed).unwrap() > 0 && !printed.ends_with(&format!("{HERE}\n")) {}
    assert!(printed.contains(HERE), "{step}: the child ended before: {printed}");
    let waits = step.starts_with("before the effect") || step.starts_with("after");
    let mut repeated: Vec<_> = if waits { (0..duplicates).map(repeat).collect() } else { Vec::new() };
    let wait = Instant::now();
    while wait.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
    kill(child.id());
    let begun = Instant::now();
    child.wait().unwrap();
    out.read_to_string(&mut printed).unwrap();

    repeated.extend((repeated.len()..duplicates).map(repeat));
    let outcomes: Vec<_> = repeated.into_iter().map(|run| runtime.block_on(run).unwrap().unwrap()).collect();
    let took = begun.elapsed();
    assert!(took < LEASE + Duration::from_secs(10), "{step}: the key was stuck for {took:?}");
    let answer = outcomes[0].value().clone();
    assert!(outcomes.iter().all(|outcome| *outcome.value() == answer), "{step}: differing answers");
    let firsts = outcomes.iter().filter(|outcome| !outcome.is_replayed()).count();
    assert!(firsts <= 1, "{step}: {firsts} runs did the work");
    let scope = clients[0].idempotency("kill");
    let again =
        block_on(scope.run(key, &options(LONG_LEASE), |_| async { panic!("{step}: done again") })).unwrap();
    assert_eq!(again, Outcome::Replayed(answer.clone()), "{step}");
    let theirs = printed.lines().find_map(|line| line.strip_prefix(ANSWER));
    if let Some(theirs) = theirs {
        assert_eq!(theirs.as_bytes(), answer.as_slice(), "{step}: differing answers");
    }
    let effects = std::fs::read_to_string(&effects).unwrap();
    let effects: Vec<_> = effects.lines().collect();
    // Where the child died between its effect and the completion, only the effect itself can refuse the second one.
    let most = if ["after the effect", "during the completion"].contains(&step) { 2 } else { 1 };
    assert!((1..=most).contains(&effects.len()), "{step}: {effects:?}");
    assert!(effects.iter().any(|effect| effect.as_bytes() == answer.as_slice()), "{step}");
    let record = block_on(scope.show(key)).unwrap().unwrap();
    assert_eq!(record.state, RecordState::Done, "{step}");
    match step {
        "before the claim" => assert_eq!((firsts, record.runs), (1, 1)),
        "before the effect" | "after the effect" => assert_eq!((firsts, record.runs), (1, 2), "{step}"),
        "after the completion" => assert!(firsts == 0 && theirs.is_some()),
        _ => {}
    }
}

fn is_killed_at_every_step(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    for turn in 0..turns() {
        let duplicates = if turn == 0 { duplicates() } else { 1 };
        for (at, step) in STEPS.into_iter().enumerate() {
            round(url, folder.path(), &format!("{turn}-{at}"), step, duplicates);
        }
    }
}

#[test]
fn a_process_killed_at_any_step_leaves_one_answer_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    is_killed_at_every_step(&format!("sqlite:{}?timeout=20s", folder.path().join("locks.db").display()));
}

#[test]
fn a_process_killed_at_any_step_leaves_one_answer_on_a_redis_server() {
    let server = RedisServer::start();
    is_killed_at_every_step(&format!("{}?timeout=20s", server.url()));
}

#[test]
fn a_process_killed_at_any_step_leaves_one_answer_on_a_postgres_server() {
    let server = PostgresServer::start();
    is_killed_at_every_step(&format!("{}?timeout=20s", server.url()));
}

#[test]
fn a_process_killed_at_any_step_leaves_one_answer_on_a_mariadb_server() {
    let server = MariadbServer::start();
    is_killed_at_every_step(&format!("{}?timeout=20s", server.url()));
}
