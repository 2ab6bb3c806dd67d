//! Which nodes vote after a change keeps exclusion and the order of tokens; without any one of its rules it does not.
//!
//! `POLYLATCH_MODEL_STATES` sets the size of each search that must find nothing. A run with `--nocapture` prints what each
//! search saw and the traces of the violations.

use polylatch_model::admission::{Begin, Kept, Rule, Search, Violation, World, search};

/// Enough for every variant that must be caught; a miss is a failure, not a reason to search on.
const STATES_FOR_A_VIOLATION: usize = 400_000;

const STRICT: World = World { begin: Begin::Held, ..World::of(3, true) };
const BEST_EFFORT: World = World { begin: Begin::Held, ..World::of(3, false) };
const EMPTY: &[Kept] = &[Kept::Nothing];

fn most_states() -> usize {
    let variable = "POLYLATCH_MODEL_STATES";
    let Ok(text) = std::env::var(variable) else { return 80_000 };
    text.replace('_', "")
        .parse()
        .unwrap_or_else(|_| panic!("{variable} must be a whole number, not {text:?}"))
}

#[track_caller]
fn keeps_within(name: &str, world: World, most_states: usize) -> Search {
    let found = search(&world, most_states);
    println!("{name}: {found}");
    assert!(found.violation.is_none(), "{name}: {found}");
    assert!(found.granted > 0, "{name}: no client got the lock");
    found
}

#[track_caller]
fn keeps(name: &str, world: World) {
    keeps_within(name, world, most_states());
}

#[track_caller]
fn keeps_exhaustively(name: &str, world: World) {
    assert!(keeps_within(name, world, usize::MAX).exhausted, "{name}");
}

#[track_caller]
fn breaks(name: &str, world: World, expected: Violation) {
    let found = search(&world, STATES_FOR_A_VIOLATION);
    println!("{name}: {found}");
    let violation = found.violation.as_ref().map(|trace| trace.violation);
    assert_eq!(violation, Some(expected), "{name}: {found}");
}

#[track_caller]
fn needs(rule: Rule, world: World, expected: Violation) {
    breaks(&format!("without {rule:?}"), world.without(rule), expected);
}

#[test]
fn one_restart_of_any_kind_does_no_harm_exhaustively() {
    for (name, world) in [("strict", STRICT), ("best effort", BEST_EFFORT)] {
        keeps_exhaustively(name, world);
        keeps_exhaustively(&format!("{name}, at once"), World { late: false, renews: true, ..world });
        let two = World { nodes: 2, ..world };
        keeps_exhaustively(&format!("{name}, two nodes"), World { restarts: 2, ..two });
    }
    keeps_exhaustively("strict, other lengths", World { leases: &[3, 1], ..STRICT });
}

#[test]
fn every_node_may_lose_its_data_within_the_bound() {
    keeps("strict, a majority", World { restarts: 2, ..STRICT });
    keeps("strict, all", World { restarts: 3, kept: EMPTY, late: false, ..STRICT });
    keeps("best effort, a majority", World { restarts: 2, ..BEST_EFFORT });
    keeps("best effort, all", World { restarts: 3, kept: EMPTY, late: false, ..BEST_EFFORT });
}

#[test]
fn a_clock_that_steps_does_no_harm_within_the_bound() {
    for (name, world) in [("strict", STRICT), ("best effort", BEST_EFFORT)] {
        let alone = World { steps: 1, restarts: 0, late: false, ..world };
        keeps(&format!("{name}, a step"), alone);
        let with_restart = World { restarts: 1, kept: EMPTY, away: false, ..alone };
        keeps(&format!("{name}, a step and a restart"), with_restart);
    }
}

#[test]
fn new_stores_and_further_clients_keep_order_within_the_bound() {
    let new = World { begin: Begin::New, kept: EMPTY, late: false, ..BEST_EFFORT };
    keeps("a new store", World { restarts: 0, ..new });
    keeps("a new store, a restart", World { away: false, ..new });
    keeps("a new store, strict", World { strict: true, away: false, ..new });
    let twice = World { attempts: 2, kept: EMPTY, late: false, away: false, ..STRICT };
    keeps("each client asks twice", twice);
    keeps("three clients", World { leases: &[2, 2, 2], kept: EMPTY, late: false, ..STRICT });
}

#[test]
fn a_node_that_changed_is_quarantined() {
    needs(Rule::Quarantine, STRICT, Violation::TwoHolders);
    needs(Rule::VotesOfKnownProcess, STRICT, Violation::TwoHolders);
    let busy = World { restarts: 2, renews: true, kept: &[Kept::All, Kept::Nothing], away: false, ..STRICT };
    needs(Rule::OpensOnlyUnchanged, busy, Violation::TwoHolders);
}

#[test]
fn clocks_of_nodes_are_not_trusted() {
    let steps = World { steps: 1, restarts: 0, late: false, ..STRICT };
    needs(Rule::StepsClose, steps, Violation::TwoHolders);
    needs(Rule::OwnClockToo, World { restarts: 1, kept: EMPTY, ..steps }, Violation::TwoHolders);
}

#[test]
fn a_store_that_was_emptied_is_not_taken_for_a_new_one() {
    needs(Rule::SilenceIsNotNew, BEST_EFFORT, Violation::TwoHolders);
    let lost = World { restarts: 3, kept: EMPTY, late: false, ..BEST_EFFORT };
    needs(Rule::SeenIsRemembered, lost, Violation::TwoHolders);
    needs(Rule::VotesAreSeen, lost, Violation::TwoHolders);
}

#[test]
fn a_client_that_only_looks_opens_nothing() {
    let looker = World { leases: &[2, 2, 1], looker: Some(2), restarts: 3, kept: EMPTY, ..STRICT };
    let looker = World { late: false, away: false, ..looker };
    needs(Rule::LookingWritesNothing, looker, Violation::TwoHolders);
    keeps("a looker", looker);
}

#[test]
fn the_longest_lease_of_any_client_is_waited_for() {
    needs(Rule::LongestLeaseStands, World { leases: &[3, 1], ..STRICT }, Violation::TwoHolders);
}

#[test]
fn a_node_begins_again_with_a_counter_that_is_known_to_be_the_largest() {
    needs(Rule::CounterIsBroughtUp, STRICT, Violation::TokenFell);
    needs(Rule::StrictWaitsForTheRest, STRICT, Violation::TokenFell);
}

/// What is lost with the data of a majority, or is known to silent nodes alone: that leases are longer than
/// those of the client that opens. So it is among the limits.
#[test]
fn the_longest_lease_is_not_known_where_the_nodes_that_were_told_it_lost_it_or_are_silent() {
    let world = World { leases: &[3, 1], kept: EMPTY, ..STRICT };
    breaks("strict, a majority", World { restarts: 2, ..world }, Violation::TwoHolders);
    breaks("best effort, one and one silent", World { strict: false, ..world }, Violation::TwoHolders);
}
