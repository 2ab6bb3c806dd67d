//! The Redis hand-off protocol keeps its promises; without any one of its rules it does not.
//!
//! `POLYLATCH_MODEL_STATES` and `POLYLATCH_MODEL_STEPS` set the size of the searches that must find
//! nothing. A run with `--nocapture` prints what each search saw and the traces of the violations.

use polylatch_model::{Bounds, Model, Report, Rule, Violation, Walk, Watch, breadth_first, random_walks};

/// Room for messages beyond the smallest world, so that requests of several acquisitions mix.
const CROWDED: Bounds = Bounds { messages: 5, ..Bounds::SMALL };

const THREE_CLIENTS: Bounds = Bounds { clients: 3, waiters: 3, ..Bounds::SMALL };

/// Too large to visit; random walks get deep into it.
const WIDE: Bounds =
    Bounds { clients: 3, provisional: 3, lease: 5, messages: 7, waiters: 4, ..Bounds::SMALL };

/// Clocks that lose a tick now and then, and the margin that makes up for it.
const DRIFTING: Bounds =
    Bounds { lease: 4, provisional: 3, margin: 1, drift: true, messages: 2, ..Bounds::SMALL };

/// Enough for every negative variant; a miss is a failure, not a reason to search on.
const STATES_FOR_A_VIOLATION: usize = 3_000_000;

fn size(variable: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(variable) else {
        return default;
    };
    let digits = text.replace('_', "");
    let size = digits.parse();
    size.unwrap_or_else(|_| panic!("{variable} must be a whole number, not {text:?}"))
}

fn most_states() -> usize {
    size("POLYLATCH_MODEL_STATES", 6_000_000)
}

fn steps() -> u64 {
    size("POLYLATCH_MODEL_STEPS", 6_000_000) as u64
}

fn keeps(name: &str, report: &Report) {
    println!("{name}: {report}");
    assert!(report.violation.is_none(), "{name}: {report}");
    assert!(report.entries > 0, "{name} never entered");
}

fn visits(name: &str, model: Model, states: usize) -> Report {
    let report = breadth_first(&model, states);
    keeps(name, &report);
    assert!(report.exhausted || report.states >= states);
    report
}

fn walks(name: &str, model: Model, seed: u64) -> Report {
    let length = 300;
    let steps = steps();
    let walk = Walk { seed, steps, length };
    let report = random_walks(&model, walk);
    keeps(name, &report);
    report
}

fn breaks(name: &str, model: Model) -> Violation {
    let report = breadth_first(&model, STATES_FOR_A_VIOLATION);
    println!("{name}: {report}");
    let trace = report.violation;
    trace.unwrap_or_else(|| panic!("{name} must break")).violation
}

/// Without the rule a client first holds without the lock, and then two clients hold.
fn two_holders_meet_without(rule: Rule) {
    let model = Model::full(Bounds::SMALL).without(rule);
    let first = breaks(&format!("without {rule:?}"), model);
    assert!(matches!(first, Violation::HolderWithoutLock { .. }));
    let name = format!("without {rule:?}, until two hold");
    let second = breaks(&name, model.watching(Watch::Overlap));
    assert!(matches!(second, Violation::TwoHolders { .. }));
}

#[test]
fn the_full_protocol_keeps_exclusion() {
    let report = visits("full", Model::full(Bounds::SMALL), most_states());
    assert!(report.exhausted || most_states() < 3_000_000, "the smallest world grew");
    assert!(report.push_entries > 0);
}

#[test]
fn the_full_protocol_keeps_exclusion_with_more_messages_in_flight() {
    visits("full, crowded", Model::full(CROWDED), most_states() / 2);
}

#[test]
fn the_full_protocol_keeps_exclusion_with_three_clients() {
    let states = most_states() / 2;
    visits("full, three clients", Model::full(THREE_CLIENTS), states);
}

#[test]
fn the_full_protocol_keeps_exclusion_when_clocks_drift_within_the_margin() {
    visits("full, drifting", Model::full(DRIFTING), most_states() / 2);
    walks("full, drifting, walks", Model::full(DRIFTING), 4);
}

#[test]
fn the_full_protocol_keeps_exclusion_on_long_walks() {
    let report = walks("full, walks", Model::full(CROWDED), 1);
    assert!(report.push_entries > 0);
    let report = walks("full, wide walks", Model::full(WIDE), 2);
    assert!(report.push_entries > 0);
}

#[test]
fn pushes_as_hints_keep_exclusion() {
    let report = visits("hints", Model::full(CROWDED).hint_only(), most_states() / 2);
    assert_eq!(report.push_entries, 0);
    walks("hints, walks", Model::full(WIDE).hint_only(), 3);
}

#[test]
fn without_fresh_owner_ids_two_holders_meet() {
    two_holders_meet_without(Rule::FreshOwner);
}

#[test]
fn with_the_anchor_at_the_arrival_of_the_answer_two_holders_meet() {
    two_holders_meet_without(Rule::AnchorAtSend);
}

#[test]
fn with_the_window_counted_from_the_push_two_holders_meet() {
    two_holders_meet_without(Rule::WindowFromAnchor);
}

#[test]
fn without_the_fence_check_two_holders_meet() {
    two_holders_meet_without(Rule::FenceAboveAnchor);
}

#[test]
fn without_the_validity_check_two_holders_meet() {
    two_holders_meet_without(Rule::WindowNotPast);
}

#[test]
fn with_the_window_counted_from_the_answer_two_holders_meet() {
    two_holders_meet_without(Rule::AnswerFromSend);
}

#[test]
fn with_a_late_poll_that_shortens_the_lease_two_holders_meet() {
    two_holders_meet_without(Rule::ConfirmKeepsLease);
}

#[test]
fn with_a_late_short_renewal_that_shortens_the_lease_two_holders_meet() {
    two_holders_meet_without(Rule::RenewKeepsLease);
}

#[test]
fn with_an_unconditional_delete_two_holders_meet() {
    two_holders_meet_without(Rule::ReleaseChecksOwner);
}

#[test]
fn with_a_grant_shorter_than_the_receiver_counts_on_two_holders_meet() {
    two_holders_meet_without(Rule::LeaseOfReceiver);
}

#[test]
fn without_a_margin_a_slow_clock_outlives_its_lease() {
    let bounds = Bounds { margin: 0, ..DRIFTING };
    let found = breaks("drifting, no margin", Model::full(bounds));
    assert!(matches!(found, Violation::HolderWithoutLock { .. }));
    let model = Model::full(bounds).watching(Watch::Overlap);
    let found = breaks("drifting, no margin, until two hold", model);
    assert!(matches!(found, Violation::TwoHolders { .. }));
}

/// Nobody holds beyond a window because of it, so exclusion survives; but the server then names an
/// acquisition that has ended, with a fence that later grants have passed.
#[test]
fn a_renewal_that_creates_brings_an_old_lock_back() {
    let model = Model::full(Bounds::SMALL).without(Rule::RenewNeverCreates);
    let found = breaks("creating renewal", model);
    assert!(matches!(found, Violation::OldLockReturns { .. }));
    visits("creating renewal, overlap only", model.watching(Watch::Overlap), most_states() / 4);
}

/// The usual companion of a creating renewal: a holder that never notices that it was away.
#[test]
fn with_a_renewal_that_creates_and_revives_fences_go_backwards() {
    let model = Model::full(Bounds::SMALL)
        .without(Rule::RenewNeverCreates)
        .without(Rule::LossIsFinal)
        .watching(Watch::FenceOrder);
    let found = breaks("creating and reviving renewal", model);
    assert!(matches!(found, Violation::FenceNotAbove { .. }));
}

/// That a lost guard stays lost is a promise to the user. Exclusion does not rest on it.
#[test]
fn a_renewal_that_revives_a_lost_guard_keeps_exclusion() {
    let model = Model::full(Bounds::SMALL).without(Rule::LossIsFinal);
    visits("reviving renewal", model, most_states() / 2);
}

/// Guards the search itself: with room for every message, keeping the ones that cannot change
/// anything must leave the shortest traces as they are.
#[test]
fn dropping_inert_messages_neither_hides_nor_invents_a_violation() {
    let bounds = Bounds { messages: Bounds::MAX_MESSAGES, ..Bounds::SMALL };
    for rule in [
        Rule::FreshOwner,
        Rule::AnswerFromSend,
        Rule::ReleaseChecksOwner,
        Rule::RenewNeverCreates,
        Rule::ConfirmKeepsLease,
        Rule::RenewKeepsLease,
        Rule::WindowFromAnchor,
    ] {
        let model = Model::full(bounds).without(rule);
        let [pruned, kept] = [model, model.unpruned()].map(|model| {
            let report = breadth_first(&model, STATES_FOR_A_VIOLATION);
            report.violation.expect("the variant must break").events.len()
        });
        assert_eq!(pruned, kept, "without {rule:?}");
    }
    let model = Model::full(Bounds::SMALL).unpruned();
    visits("full, nothing dropped", model, most_states() / 4);
}
