//! Robustness on one SQLite file.
#![cfg(unix)]

use polylatch_robustness::evidence::Evidence;
use polylatch_robustness::load::{Plan, run_and_judge};
use polylatch_robustness::sharing::Family;
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

/// Processes are killed and paused; every kind of lock keeps its rules.
#[track_caller]
fn under_kills_and_pauses(family: Family, seed: u64, sections: u64) {
    let seed = size("POLYLATCH_ROBUSTNESS_SEED", seed);
    let sections = size("POLYLATCH_ROBUSTNESS_SECTIONS", sections * 5) / 5;
    let evidence = Evidence::new(Some(seed));
    let workers = vec![format!("{}?lease=600ms&provisional=300ms&poll=50ms", url(&evidence)); 8];
    let plan = Plan {
        sections,
        faults: size("POLYLATCH_ROBUSTNESS_FAULTS", (sections / 500).max(12)),
        kills: 5,
        pauses: 1,
        ..Plan::usual(WORKER, family, seed, workers, url(&evidence))
    };
    let figures = run_and_judge("sqlite under load", &plan, &evidence);
    expect_an_intact_file(&evidence);
    let kills = figures.faults.get("kill").copied().unwrap_or(0);
    assert!(kills >= plan.faults * 5 / 8, "only {kills} of {} faults were kills", plan.faults);
}

#[test]
fn sections_never_overlap_while_processes_are_killed_and_paused() {
    under_kills_and_pauses(Family::Mutex, 20_260_103, 40_000);
}

#[test]
fn readers_never_meet_a_writer_while_processes_are_killed_and_paused() {
    under_kills_and_pauses(Family::ReadWrite, 20_260_108, 6_000);
}

#[test]
fn permits_are_never_more_than_there_are_while_processes_are_killed_and_paused() {
    under_kills_and_pauses(Family::Semaphore, 20_260_109, 6_000);
}

polylatch_robustness::scenarios!(on_stage);

#[test]
fn a_process_killed_with_many_waiting_tasks_delays_a_newcomer_by_its_lease_only() {
    on_stage(scenarios::a_process_killed_with_many_waiting_tasks_delays_a_newcomer_by_its_lease_only);
}

#[test]
fn fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue() {
    on_stage(|stage| crowd::fifty_waiters_of_five_processes_enter_in_the_order_of_the_queue(stage, 20));
}
