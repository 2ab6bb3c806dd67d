//! The hand-off of locks that several can hold keeps its promises; without any one of its rules it does
//! not. A run with `--nocapture` prints what each search saw and the traces of the violations.

use polylatch_model::shared::{Family, Rule, Search, Violation, World, search, walk};

const READERS_AND_WRITERS: Family = Family::ReadWrite;
const PERMITS: Family = Family::Semaphore(2);

/// Enough for every variant that must be caught; a miss is a failure, not a reason to search on.
const STATES_FOR_A_VIOLATION: usize = 400_000;

#[track_caller]
fn keeps(name: &str, found: &Search) {
    println!("{name}: {found}");
    assert!(found.violation.is_none(), "{name}: {found}");
    assert!(found.most_inside > 1, "{name}: nothing was shared");
}

#[track_caller]
fn breaks(family: Family, rule: Rule, expected: Violation) {
    let found = search(&World::of(family, 3, 2).without(rule), STATES_FOR_A_VIOLATION);
    println!("without {rule:?}: {found}");
    let violation = found.violation.as_ref().map(|trace| trace.violation);
    assert_eq!(violation, Some(expected), "without {rule:?}: {found}");
}

#[test]
fn readers_writers_and_permits_keep_every_promise_as_far_as_they_are_visited() {
    for family in [READERS_AND_WRITERS, PERMITS] {
        keeps("two clients", &search(&World::of(family, 2, 2), 300_000));
    }
    for (family, seed) in [(READERS_AND_WRITERS, 1), (PERMITS, 2), (Family::Semaphore(3), 3)] {
        keeps("three clients", &search(&World::of(family, 3, 3), 120_000));
        let wide = World { lease: 4, provisional: 3, ..World::of(family, 4, 6) };
        keeps("four clients, at random", &walk(&wide, seed, 250_000, 400));
    }
}

#[test]
fn a_reader_may_not_pass_a_waiting_writer() {
    breaks(READERS_AND_WRITERS, Rule::NewcomerKeepsTurn, Violation::Overtaken);
    breaks(READERS_AND_WRITERS, Rule::GrantStopsAtFirst, Violation::Overtaken);
    breaks(PERMITS, Rule::NewcomerKeepsTurn, Violation::Overtaken);
    breaks(PERMITS, Rule::GrantStopsAtFirst, Violation::Overtaken);
}

#[test]
fn a_group_may_not_be_granted_while_one_of_the_other_lives() {
    breaks(READERS_AND_WRITERS, Rule::WriterWaitsForAllReaders, Violation::WrongTogether);
    breaks(READERS_AND_WRITERS, Rule::ReadersWaitForWriter, Violation::WrongTogether);
}

#[test]
fn permits_that_are_only_provisional_count() {
    breaks(PERMITS, Rule::ProvisionalPermitsCount, Violation::WrongTogether);
}

#[test]
fn a_grant_may_not_move_the_end_of_another_lease() {
    breaks(READERS_AND_WRITERS, Rule::LeasesEndApart, Violation::HolderWithoutLease);
    breaks(PERMITS, Rule::LeasesEndApart, Violation::HolderWithoutLease);
}

#[test]
fn who_leaves_the_line_lets_in_whom_only_it_kept_out() {
    breaks(READERS_AND_WRITERS, Rule::LeavingGrants, Violation::LeftOut);
    breaks(PERMITS, Rule::LeavingGrants, Violation::LeftOut);
}

#[test]
fn conversions_need_each_of_their_rules() {
    breaks(READERS_AND_WRITERS, Rule::UpgradeNeedsToBeAlone, Violation::WrongTogether);
    breaks(READERS_AND_WRITERS, Rule::UpgradeTakesFence, Violation::FenceNotAbove);
    breaks(READERS_AND_WRITERS, Rule::DowngradeStaysHeld, Violation::HolderWithoutLease);
}
