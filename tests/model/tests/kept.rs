//! Leases that stay with their client after a release keep exclusion and the order of tokens; without any one of their
//! rules they do not.
//!
//! `POLYLATCH_MODEL_STATES` sets the size of each search that must find nothing. A run with `--nocapture` prints what each
//! search saw and the traces of the violations.

use polylatch_model::kept::{Rule, Search, Violation, World, search};

/// Enough for every variant that must be caught; a miss is a failure, not a reason to search on.
const STATES_FOR_A_VIOLATION: usize = 400_000;

fn most_states() -> usize {
    let variable = "POLYLATCH_MODEL_STATES";
    let Ok(text) = std::env::var(variable) else { return 100_000 };
    text.replace('_', "")
        .parse()
        .unwrap_or_else(|_| panic!("{variable} must be a whole number, not {text:?}"))
}

#[track_caller]
fn keeps(name: &str, world: World) -> Search {
    let found = search(&world, most_states());
    println!("{name}: {found}");
    assert!(found.violation.is_none(), "{name}: {found}");
    assert!(found.kept_entries > 20 && found.others > 100, "{name}: {found}");
    found
}

#[track_caller]
fn breaks(rule: Rule, world: World, expected: Violation) {
    let found = search(&world.without(rule), STATES_FOR_A_VIOLATION);
    println!("without {rule:?}: {found}");
    let violation = found.violation.as_ref().map(|(violation, _)| *violation);
    assert_eq!(violation, Some(expected), "without {rule:?}: {found}");
}

/// Every message arrives.
const RELIABLE: World = World { loses: false, ..World::usual() };

#[test]
fn a_small_world_is_visited_completely() {
    let small = World { entries: 4, ticks: 2, ..World::usual() };
    assert!(keeps("small", small).exhausted);
    assert!(keeps("small, an older client", World { older: true, ..small }).exhausted);
}

#[test]
fn kept_leases_keep_exclusion_and_the_order_of_tokens_within_the_bound() {
    keeps("usual", World::usual());
    keeps("longer leases", World { lease: 3, ticks: 6, ..World::usual() });
    keeps("an older client", World { older: true, ..World::usual() });
    keeps("reliable", RELIABLE);
}

#[test]
fn every_rule_is_needed() {
    breaks(Rule::TokensAreSetAside, World::usual(), Violation::TokenFell);
    breaks(Rule::AskedIsClosed, World::usual(), Violation::TwoCallers);
    breaks(Rule::SoundOnly, World::usual(), Violation::AtRisk);
    breaks(Rule::WantedEndsIt, RELIABLE, Violation::Starved);
    breaks(Rule::AskingHandsOn, World { older: true, ..World::usual() }, Violation::Starved);
    breaks(Rule::RenewalsAsk, World { older: true, tokens: 4, ..World::usual() }, Violation::Starved);
}
