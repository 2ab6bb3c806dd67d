use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> BootInstant {
    BootInstant::from_nanos(1_000_000_000_000) + Duration::from_millis(millis)
}

fn plan() -> LeasePlan {
    LeasePlan {
        lease: 15 * SECOND,
        first: 3 * SECOND,
        renew: true,
        max_hold: None,
        beat_every: None,
        phase: Duration::ZERO,
        cohort: 0,
    }
}

fn renewed(lease: &mut Lease, millis: u64) {
    let Due::Renew(asked) = lease.due(at(millis)) else { panic!("no renewal due at {millis}: {lease:?}") };
    lease.renewal_sent();
    lease.renewal_done(at(millis), asked, at(millis + 1), RenewalOutcome::Extended);
}

#[test]
fn validity_counts_from_the_send_time_and_is_shorter_than_the_lease() {
    assert_eq!(valid_until(at(0), 10 * SECOND), at(9_898));
    assert_eq!(valid_until(at(0), Duration::from_millis(1)), at(0));
}

#[test]
fn a_provisional_lease_is_extended_at_a_third_and_then_lives_in_full() {
    let mut lease = Lease::granted(plan(), at(0), at(5), false, 1);
    assert!(matches!(lease.due(at(800)), Due::Nothing(_)));
    renewed(&mut lease, 1_100);
    assert_eq!(lease.valid_until(), valid_until(at(1_100), 15 * SECOND));
    assert_eq!(lease.renewals(), 1);
    assert!(matches!(lease.due(at(5_000)), Due::Nothing(_)));
    renewed(&mut lease, 6_700);
}

#[test]
fn leases_of_one_client_are_renewed_together_and_not_later_than_a_third() {
    for phase in [0, 37, 412] {
        let plan = LeasePlan { phase: Duration::from_millis(phase), ..plan() };
        let mut instants: Vec<_> =
            (0..1_000).map(|millis| plan.renewal_after(at(millis), 15 * SECOND)).collect();
        for (millis, due) in (0..).zip(&instants) {
            assert!(*due <= at(millis + 5_000) && *due > at(millis + 4_499), "{millis}: {due:?}");
        }
        instants.dedup();
        assert!(instants.len() <= 3, "a second of grants makes {} batches", instants.len());
    }
}

#[test]
fn thousands_of_leases_granted_at_once_are_renewed_in_turn_and_each_after_a_third() {
    let third: u128 = 5_000;
    let mut turns = Vec::new();
    for cohort in 1..=COHORTS_IN_TURN {
        let plan = LeasePlan { cohort, ..plan() };
        let first = plan.renewal_after(at(0), 15 * SECOND);
        assert!(first > at(0) && first <= at(5_010), "{cohort}: {first:?}");
        turns.push(first.since(at(0)).as_millis() % third);
        // Sent a little late, and with others a little early.
        for sent_at in [first + Duration::from_millis(3), first - Duration::from_millis(5)] {
            assert_eq!(plan.renewal_after(sent_at, 15 * SECOND), first + 5 * SECOND);
        }
    }
    turns.sort_unstable();
    let apart = third / u128::from(COHORTS_IN_TURN);
    assert!(turns.windows(2).all(|pair| pair[1] - pair[0] == apart), "{turns:?}");
}

#[test]
fn a_grant_by_push_is_renewed_at_once() {
    let mut lease = Lease::granted(plan(), at(0), at(900), true, 1);
    assert_eq!(lease.due(at(910)), Due::Renew(15 * SECOND));
}

#[test]
fn an_early_renewal_asks_for_the_first_lease_and_the_next_for_the_full_one() {
    let mut lease = Lease::granted(plan(), at(0), at(0), false, 1);
    lease.renew_early(at(50));
    assert!(matches!(lease.due(at(40)), Due::Nothing(_)));
    assert_eq!(lease.due(at(50)), Due::Renew(3 * SECOND));
    renewed(&mut lease, 50);
    assert_eq!(lease.valid_until(), valid_until(at(50), 3 * SECOND));
    assert!(matches!(lease.due(at(800)), Due::Nothing(_)));
    assert_eq!(lease.due(at(1_100)), Due::Renew(15 * SECOND));
    let unrenewed = LeasePlan { lease: 9 * SECOND, first: SECOND, renew: false, ..plan() };
    let mut lease = Lease::granted(unrenewed, at(0), at(0), false, 1);
    lease.renew_early(at(50));
    renewed(&mut lease, 50);
    assert!(matches!(lease.due(at(900)), Due::Nothing(_)), "it is renewed no more");
}

#[test]
fn a_renewal_overtaken_by_the_release_is_no_loss() {
    let mut lease = Lease::granted(plan(), at(0), at(0), true, 1);
    assert!(matches!(lease.due(at(10)), Due::Renew(_)));
    lease.renewal_sent();
    lease.release_started();
    assert!(matches!(lease.due(at(20)), Due::Nothing(_)));
    lease.renewal_done(at(10), 15 * SECOND, at(21), RenewalOutcome::NotYours);
    assert_eq!(lease.judge(at(21)), LeaseState::Held);
    assert!(lease.released(at(22)));
}

#[test]
fn loss_is_reported_by_the_own_clock_even_while_a_renewal_is_in_flight() {
    let mut lease = Lease::granted(plan(), at(0), at(0), true, 1);
    assert!(matches!(lease.due(at(10)), Due::Renew(_)));
    lease.renewal_sent();
    assert_eq!(lease.judge(at(1_499)), LeaseState::Held);
    assert_eq!(lease.judge(at(1_500)), LeaseState::Endangered);
    assert_eq!(lease.judge(at(2_967)), LeaseState::Endangered);
    assert_eq!(lease.judge(at(2_968)), LeaseState::Lost(LostReason::Expired));
    lease.renewal_done(at(0), 15 * SECOND, at(2_970), RenewalOutcome::Extended);
    assert_eq!(lease.judge(at(2_971)), LeaseState::Lost(LostReason::Expired), "a loss is final");
    assert_eq!(lease.due(at(2_971)), Due::Over);
}

#[test]
fn an_endangered_lease_recovers_when_a_renewal_is_confirmed() {
    let mut lease = Lease::granted(plan(), at(0), at(0), false, 1);
    assert_eq!(lease.judge(at(1_600)), LeaseState::Endangered);
    renewed(&mut lease, 1_700);
    assert_eq!(lease.judge(at(1_702)), LeaseState::Held);
}

#[test]
fn not_yours_is_lost_at_once() {
    let mut lease = Lease::granted(plan(), at(0), at(0), true, 1);
    lease.renewal_sent();
    lease.renewal_done(at(0), 15 * SECOND, at(10), RenewalOutcome::NotYours);
    assert_eq!(lease.judge(at(10)), LeaseState::Lost(LostReason::Superseded));
}

#[test]
fn failed_renewals_are_tried_again_at_least_three_times_before_the_end() {
    let mut lease = Lease::granted(plan(), at(0), at(0), false, 9);
    renewed(&mut lease, 1_200);
    let mut tries = 0;
    let mut now = at(1_300);
    loop {
        match lease.due(now) {
            Due::Renew(asked) => {
                tries += 1;
                lease.renewal_sent();
                let sent = now;
                now = now + Duration::from_millis(500);
                lease.renewal_done(sent, asked, now, RenewalOutcome::Failed);
            }
            Due::Nothing(next) => now = next,
            Due::Over => break,
        }
    }
    assert!(tries >= 3, "{tries} tries");
    assert_eq!(lease.judge(now), LeaseState::Lost(LostReason::Expired));
}

/// Follows a lease whose renewals are never answered, each for as long as it may take. Returns how much of the
/// lease was left whenever one left.
fn unanswered(lease: &mut Lease, mut now: BootInstant) -> Vec<Duration> {
    let mut left = Vec::new();
    loop {
        match lease.due(now) {
            Due::Renew(asked) => {
                left.push(lease.valid_until().since(now));
                lease.renewal_sent();
                let limit = lease.renewal_limit(now, asked);
                lease.renewal_done(now, asked, now + limit, RenewalOutcome::Failed);
                now = now + limit.max(Duration::from_millis(1));
            }
            Due::Nothing(next) => now = next,
            Due::Over => return left,
        }
    }
}

#[test]
fn one_renewal_that_hangs_leaves_room_for_others_in_any_lease() {
    for (lease, first) in [(15, 3), (60, 3), (86_400, 3), (3, 3), (60, 60)] {
        let plan = LeasePlan { lease: lease * SECOND, first: first * SECOND, ..plan() };
        for at_once in [false, true] {
            let mut lease = Lease::granted(plan, at(0), at(0), at_once, 3);
            let left = unanswered(&mut lease, at(0));
            assert!(left.len() >= 3, "{plan:?}: {left:?}");
            for pair in left.windows(2).filter(|pair| pair[0] > Duration::from_millis(50)) {
                assert!(pair[1] >= pair[0] / 3, "the next try had too little left: {plan:?}: {left:?}");
            }
        }
    }
}

#[test]
fn a_renewal_in_an_extended_lease_may_take_a_fifth_of_it() {
    let mut lease = Lease::granted(plan(), at(0), at(0), false, 1);
    renewed(&mut lease, 1_100);
    assert_eq!(lease.renewal_limit(at(6_000), 15 * SECOND), 3 * SECOND);
}

#[test]
fn a_late_confirmation_never_shortens_what_was_valid() {
    let mut lease = Lease::granted(plan(), at(0), at(0), true, 1);
    lease.renewal_sent();
    lease.renewal_done(at(500), 15 * SECOND, at(501), RenewalOutcome::Extended);
    let before = lease.valid_until();
    lease.renewal_done(at(100), SECOND, at(502), RenewalOutcome::Extended);
    assert_eq!(lease.valid_until(), before);
}

#[test]
fn a_lease_never_reaches_beyond_its_hold_limit() {
    let limits = LeasePlan { max_hold: Some(20 * SECOND), ..plan() };
    let mut lease = Lease::granted(limits, at(0), at(0), false, 1);
    let mut now = at(0);
    loop {
        match lease.due(now) {
            Due::Renew(asked) => {
                lease.renewal_sent();
                lease.renewal_done(now, asked, now + Duration::from_millis(1), RenewalOutcome::Extended);
                assert!(lease.valid_until() <= at(20_000));
            }
            Due::Nothing(next) => {
                assert!(next > now, "the watchdog would spin at {now:?}");
                now = next;
            }
            Due::Over => break,
        }
    }
    assert_eq!(lease.judge(now), LeaseState::Lost(LostReason::HoldLimit));
    assert!(now <= at(20_000) && now >= at(19_900), "{now:?}");
}

#[test]
fn a_renewal_for_longer_than_the_hold_limit_is_cut_by_it() {
    let limits = LeasePlan { max_hold: Some(5 * SECOND), ..plan() };
    let mut lease = Lease::granted(limits, at(0), at(0), false, 1);
    lease.renewal_sent();
    lease.renewal_done(at(1_000), 15 * SECOND, at(1_001), RenewalOutcome::Extended);
    assert_eq!(lease.valid_until(), at(5_000));
}

#[test]
fn work_that_stops_beating_loses_the_lease_and_work_that_beats_keeps_it() {
    let limits = LeasePlan { beat_every: Some(5 * SECOND), ..plan() };
    let mut lease = Lease::granted(limits, at(0), at(0), false, 1);
    let mut now = at(0);
    for round in 1..20 {
        let beat_at = at(round * 3_000);
        while now < beat_at {
            match lease.due(now) {
                Due::Renew(asked) => {
                    lease.renewal_sent();
                    lease.renewal_done(now, asked, now + Duration::from_millis(1), RenewalOutcome::Extended);
                }
                Due::Nothing(next) => now = next.min(beat_at),
                Due::Over => panic!("lost although the work beats: {lease:?}"),
            }
        }
        lease.beat(now);
    }
    let last = now;
    while lease.due(now) != Due::Over {
        match lease.due(now) {
            Due::Renew(asked) => {
                lease.renewal_sent();
                lease.renewal_done(now, asked, now + Duration::from_millis(1), RenewalOutcome::Extended);
                now = now + Duration::from_millis(1);
            }
            Due::Nothing(next) => now = next,
            Due::Over => {}
        }
    }
    assert_eq!(lease.judge(now), LeaseState::Lost(LostReason::NoProgress));
    assert!(now.since(last) <= 5 * SECOND);
}

#[test]
fn without_renewal_a_lease_just_ends() {
    let fixed = LeasePlan { renew: false, first: 15 * SECOND, ..plan() };
    let mut lease = Lease::granted(fixed, at(0), at(0), false, 1);
    assert_eq!(lease.due(at(0)), Due::Nothing(valid_until(at(0), 15 * SECOND)));
    assert_eq!(lease.judge(at(14_000)), LeaseState::Held);
    assert_eq!(lease.due(at(15_000)), Due::Over);
}

#[test]
fn releasing_twice_is_told_apart() {
    let mut lease = Lease::granted(plan(), at(0), at(0), false, 1);
    assert!(lease.released(at(1)));
    assert!(!lease.released(at(2)));
    lease.lose(at(3), LostReason::Broken);
    assert_eq!(lease.judge(at(60_000)), LeaseState::Released);
}
