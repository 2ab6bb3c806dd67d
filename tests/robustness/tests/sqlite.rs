//! Robustness on one SQLite file.
#![cfg(unix)]

use std::time::Duration;

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Plan, run};
use polylatch_robustness::stage::Stage;
use polylatch_robustness::{crowd, scenarios, size};

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_polylatch-robustness-worker");

/// The file's URL without options; it lies beside the histories.
fn url(evidence: &Evidence) -> String {
    format!("sqlite:{}", evidence.file("locks.db").display())
}

fn on_stage(scenario: impl FnOnce(&Stage)) {
    let evidence = Evidence::new(None);
    let url = url(&evidence);
    scenario(&Stage::new(WORKER, &url, evidence));
}

/// SQLite's own opinion of the file, after all that.
#[track_caller]
fn expect_an_intact_file(evidence: &Evidence) {
    let file = rusqlite::Connection::open(evidence.file("locks.db")).expect("the file can be opened");
    let mut ask = file.prepare("PRAGMA integrity_check").expect("it is asked");
    let answers = ask.query_map([], |row| row.get::<_, String>(0)).expect("it answers");
    let answers: Vec<_> = answers.collect::<Result<_, _>>().expect("it answers text");
    assert_eq!(answers, ["ok"]);
}

#[test]
fn sections_never_overlap_while_processes_are_killed_and_paused() {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", 20_260_103);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", 200_000) / 5;
    let faults = size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 500).max(12));
    let evidence = Evidence::new(Some(seed));
    let plan = Plan {
        program: WORKER,
        seed,
        sections,
        faults,
        urls: vec![format!("{}?lease=600ms&provisional=300ms&poll=50ms", url(&evidence)); 8],
        threads: 3,
        locks: 6,
        long: Duration::from_millis(450),
        pause: Duration::from_millis(1100),
        kills: 5,
        pauses: 1,
        others: Vec::new(),
    };
    let mut outcome = run(&plan, &evidence);
    println!("sqlite under load (seed {seed}):\n{}", outcome.figures);
    evidence.judge(&mut outcome.history);
    expect_an_intact_file(&evidence);
    assert!(outcome.figures.sections as u64 >= sections);
    let kills = outcome.figures.faults.get("kill").copied().unwrap_or(0);
    assert!(kills >= faults * 5 / 8, "only {kills} of {faults} faults were kills");
}

#[test]
fn the_next_waiter_follows_a_holder_killed_under_its_first_lease() {
    on_stage(scenarios::the_next_waiter_follows_a_holder_killed_under_its_first_lease);
}

#[test]
fn the_next_waiter_follows_a_holder_killed_after_a_renewal() {
    on_stage(scenarios::the_next_waiter_follows_a_holder_killed_after_a_renewal);
}

#[test]
fn a_holder_paused_beyond_its_lease_is_told_at_once_and_refused() {
    on_stage(scenarios::a_holder_paused_beyond_its_lease_is_told_at_once_and_refused);
}

#[test]
fn a_dead_waiter_at_the_head_of_the_line_is_passed_over() {
    on_stage(scenarios::a_dead_waiter_at_the_head_of_the_line_is_passed_over);
}

#[test]
fn a_waiter_that_was_granted_during_a_pause_does_not_enter_late() {
    on_stage(scenarios::a_waiter_that_was_granted_during_a_pause_does_not_enter_late);
}

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_line() {
    on_stage(|stage| crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_line(stage, 20));
}
