//! Fencing tokens over independent nodes keep their order; without any one of the rules they do not.
//!
//! `POLYLATCH_MODEL_STATES` and `POLYLATCH_MODEL_STEPS` set the size of the searches that must find
//! nothing. A run with `--nocapture` prints what each search saw and the traces of the violations.

use polylatch_model::redlock::{Model, Rules, Search, search, walk};

/// Enough for every variant that must fail; a miss is a failure, not a reason to search on.
const STATES_FOR_A_VIOLATION: usize = 3_000_000;

fn size(variable: &str, usual: usize) -> usize {
    let Ok(text) = std::env::var(variable) else { return usual };
    text.replace('_', "")
        .parse()
        .unwrap_or_else(|_| panic!("{variable} must be a whole number, not {text:?}"))
}

fn most_states() -> usize {
    size("POLYLATCH_MODEL_STATES", 6_000_000)
}

fn keeps(name: &str, report: Search) -> Search {
    println!("{name}: {report}");
    assert!(report.violation.is_none(), "{name}: {report}");
    assert!(report.tokens > 0, "{name} never got a token");
    report
}

fn breaks(name: &str, model: &Model) {
    let report = search(model, STATES_FOR_A_VIOLATION);
    println!("{name}: {report}");
    assert!(report.violation.is_some(), "{name} must break");
}

fn after_a_restart(gate: bool, wait: bool) -> Rules {
    Rules { restart: true, gate, wait, ..Rules::FULL }
}

#[test]
fn two_acquisitions_on_three_nodes_are_in_order_exhaustively() {
    let report = keeps("three nodes", search(&Model::new(3, 2), usize::MAX));
    assert!(report.exhausted);
}

#[test]
fn two_acquisitions_on_an_even_number_of_nodes_are_in_order() {
    assert!(keeps("two nodes", search(&Model::new(2, 2), usize::MAX)).exhausted);
    keeps("four nodes", search(&Model::new(4, 2), most_states() / 2));
}

#[test]
fn tokens_are_in_order_on_five_nodes_and_with_three_acquisitions_within_the_bound() {
    keeps("five nodes", search(&Model::new(5, 2), most_states() / 2));
    keeps("three acquisitions", search(&Model::new(3, 3), most_states() / 2));
    let steps = size("POLYLATCH_MODEL_STEPS", 6_000_000) as u64 / 3;
    keeps("four nodes, three acquisitions, walks", walk(&Model::new(4, 3), 1, steps));
}

#[test]
fn a_node_that_restarts_empty_and_waits_for_old_acquisitions_does_no_harm() {
    let model = Model { proposals: &[0, 2], counters: &[0], ..Model::new(3, 2) };
    let report = keeps("gate", search(&model.with(after_a_restart(true, true)), usize::MAX));
    assert!(report.exhausted);
    let steps = size("POLYLATCH_MODEL_STEPS", 6_000_000) as u64 / 3;
    keeps("gate, five nodes, walks", walk(&Model::new(5, 2).with(after_a_restart(true, true)), 2, steps));
    keeps("gate, four nodes, walks", walk(&Model::new(4, 3).with(after_a_restart(true, true)), 3, steps));
}

#[test]
fn the_largest_answer_alone_is_no_token() {
    breaks("without write-back", &Model::new(3, 2).with(Rules { write_back: false, ..Rules::FULL }));
}

#[test]
fn a_write_back_by_somebody_who_lost_the_lock_breaks_the_order() {
    breaks(
        "unconditional write-back",
        &Model::new(3, 2).with(Rules { only_the_owner: false, ..Rules::FULL }),
    );
}

#[test]
fn a_node_that_restarts_empty_and_votes_at_once_breaks_the_order() {
    breaks("no gate", &Model::new(3, 2).with(after_a_restart(false, true)));
}

#[test]
fn a_node_that_is_let_in_while_old_acquisitions_go_on_breaks_the_order() {
    breaks("let in at once", &Model::new(3, 2).with(after_a_restart(true, false)));
}

#[test]
fn a_late_yes_with_a_larger_number_proves_nothing() {
    let rules = Rules { larger_is_no_proof: false, ..after_a_restart(true, true) };
    let model = Model { counters: &[0], ..Model::new(3, 2) };
    breaks("larger numbers as proof", &model.with(rules));
}
