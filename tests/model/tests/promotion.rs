//! A promotion that forgets leaves no two holders under `guarantee=strict`; without any one of the things
//! that it asks for, it does. A run with `--nocapture` prints what each search saw and the shortest ways.

use polylatch_model::promotion::{World, search};

#[track_caller]
fn keeps(name: &str, world: World) {
    let found = search(&world);
    println!("{name}: {found}");
    assert!(found.violation.is_none(), "{name}: {found}");
    assert!(found.granted_after > 0, "{name}: the promoted server never granted anything");
}

#[track_caller]
fn breaks(name: &str, world: World) {
    let found = search(&world);
    println!("{name}: {found}");
    assert!(found.violation.is_some(), "{name} must break: {found}");
}

/// One replica, and an operator who lets the promoted server go on without any.
const ALONE: World = World { lifted: true, ..World::strict(1) };

#[test]
fn strict_never_has_two_holders() {
    keeps("one replica, alone after its promotion", ALONE);
    keeps("two replicas", World::strict(2));
    keeps("three replicas", World::strict(3));
    keeps("a longer lease", World { lease: 4, quarantine: 6, ..ALONE });
    keeps("a longer lag", World { lag: 4, quarantine: 6, ..World::strict(2) });
}

#[test]
fn a_quarantine_of_one_tick_less_is_too_short() {
    breaks("alone", World { quarantine: ALONE.quarantine - 1, ..ALONE });
    let two = World::strict(2);
    breaks("two replicas", World { quarantine: two.quarantine - 1, ..two });
    breaks("the lease without the lag", World { quarantine: ALONE.lease, ..ALONE });
}

#[test]
fn without_quarantine_the_former_masters_leases_meet_the_promoted_ones() {
    breaks("alone", World { quarantine: 0, ..ALONE });
    breaks("two replicas", World { quarantine: 0, ..World::strict(2) });
}

#[test]
fn a_master_that_wants_no_replicas_or_too_few_of_them_goes_on() {
    breaks("none wanted", World { min_replicas: 0, ..ALONE });
    breaks("one of three wanted", World { min_replicas: 1, ..World::strict(3) });
}

#[test]
fn best_effort_has_two_holders_after_a_promotion() {
    breaks("best effort", World::best_effort(1));
    // Waiting for a replica alone narrows the window, and does not close it.
    breaks("acknowledged grants alone", World { acks: 1, lifted: true, ..World::best_effort(1) });
}

/// What no length of quarantine covers, and therefore stands among the limits.
#[test]
fn a_master_that_hangs_and_goes_on_late_is_not_covered() {
    breaks("hung", World { hangs: true, ..ALONE });
    breaks("hung, long quarantine", World { hangs: true, quarantine: 12, ..ALONE });
}
