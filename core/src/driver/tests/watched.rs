//! What the watchdog notices, and when.

use super::*;

#[test]
fn a_suspend_ends_a_lease_though_all_timers_stood_still() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
        // Not at a moment when the watchdog is awake for another reason.
        pass(ms(2_000)).await;
        assert_eq!(guard.renewals(), 1, "the next is due in minutes");
        world.clock().suspend(Duration::from_secs(700));
        // Without asking the guard: that looks at the clock by itself.
        let lost = guard.lost();
        assert_eq!(cut_off(ms(600), lost).await, Some(LostReason::Expired), "told soon after the resume");
        let guard = client.lock("b").acquire().await.unwrap();
        world.clock().suspend(Duration::from_secs(700));
        assert!(!guard.is_held(), "the clock decides, not a timer");
    });
}

#[test]
fn a_short_suspend_is_made_up_for_by_a_renewal_soon_after() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(Duration::from_secs(600)).acquire().await.unwrap();
        // Not at a moment when the watchdog is awake for another reason.
        pass(ms(2_000)).await;
        world.clock().suspend(Duration::from_secs(400));
        pass(ms(600)).await;
        assert_eq!(guard.renewals(), 2);
        guard.check().unwrap();
    });
}

#[test]
fn without_a_watchdog_nothing_is_vouched_for() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        let lost = guard.lost();
        pass(ms(100)).await;
        // The watchdog is the next one to look at the clock.
        world.clock().break_once();
        assert_eq!(cut_off(ms(1_200), lost).await, Some(LostReason::Unverifiable));
        assert!(!guard.is_held());
        let late = client.lock("b").acquire().await.unwrap();
        assert_eq!(
            cut_off(ms(1), late.lost()).await,
            Some(LostReason::Unverifiable),
            "nobody would renew it"
        );
    });
}

#[test]
fn a_held_lock_is_renewed_at_a_third_and_never_lost_by_itself() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        let started = client.now();
        while client.now().since(started) < Duration::from_secs(300) {
            pass(ms(100)).await;
            guard.check().unwrap();
        }
        let renewals = client.calls("renew");
        assert!((58..=68).contains(&renewals.len()), "{} renewals of a lease of 15 s", renewals.len());
        assert!(renewals[0].since(started) <= ms(1_010), "the first one comes within a third of 3 s");
        assert!(renewals.windows(2).all(|pair| pair[1].since(pair[0]) <= ms(5_010)));
    });
}

#[test]
fn a_hung_store_is_asked_again_and_a_loss_is_told_before_the_store_lets_go() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        let (lost, endangered) = (guard.lost(), guard.endangered());
        pass(ms(1_500)).await;
        let confirmed = *client.calls("renew").last().unwrap();
        let until = guard.valid_until();
        assert_eq!(until, valid_until(confirmed, Duration::from_secs(15)));
        client.goes("renew", Way { there: Duration::from_secs(3_600), ..Way::default() });
        endangered.await;
        assert!(client.now().since(confirmed) <= ms(7_520) && guard.is_held(), "a warning in time");
        assert_eq!(lost.await, LostReason::Expired);
        assert!(client.now().since(until) <= ms(10), "told on time");
        assert_eq!(world.seen("a").holders.len(), 1, "the store still keeps others out");
        let tries = client.calls("renew").into_iter().filter(|at| *at > confirmed).count();
        assert!((3..=40).contains(&tries), "{tries} tries");
    });
}

#[test]
fn a_renewal_confirmed_late_counts_from_when_it_left() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        client.goes("renew", slow(ms(800)));
        pass(ms(2_500)).await;
        let renewals = client.calls("renew");
        assert!(renewals.iter().any(|at| guard.valid_until() == valid_until(*at, Duration::from_secs(15))));
        assert!(guard.valid_until() < valid_until(client.now(), Duration::from_secs(15)));
        guard.check().unwrap();
    });
}

#[test]
fn a_lease_that_the_store_does_not_know_any_more_is_lost_with_the_next_renewal() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        // Behind its back.
        client.core.backend.cancel(&guard.contender()).await.unwrap();
        assert_eq!(cut_off(ms(1_100), guard.lost()).await, Some(LostReason::Superseded));
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Superseded));
    });
}

#[test]
fn a_thousand_leases_are_renewed_in_batches() {
    world(|world| async move {
        let client = world.connect();
        let mut guards = Vec::new();
        for number in 0..1_000 {
            guards.push(client.lock(&format!("many/{number}")).acquire().await.unwrap());
        }
        pass(Duration::from_secs(60)).await;
        assert!(guards.iter().all(Guard::is_held));
        let requests = client.calls("renew").len();
        assert!(requests <= 13 * 8, "{requests} requests in a minute");
    });
}

#[test]
fn thousands_of_leases_are_renewed_in_turn_in_as_few_batches() {
    world(|world| async move {
        let client = world.connect();
        let mut guards = Vec::new();
        for number in 0..2_000 {
            guards.push(client.lock(&format!("many/{number}")).acquire().await.unwrap());
        }
        // Each has the instants of its cohort by then.
        pass(Duration::from_secs(20)).await;
        let settled = client.now();
        pass(Duration::from_secs(60)).await;
        assert!(guards.iter().all(Guard::is_held));
        let batches: Vec<_> = client.calls("renew").into_iter().filter(|at| *at > settled).collect();
        assert!(batches.len() <= 13 * 8, "{} batches in a minute", batches.len());
        // One cohort in each turn, and the first one whenever it is due.
        let most = batches
            .iter()
            .map(|from| batches.iter().filter(|at| *at >= from && at.since(*from) < ms(100)).count());
        assert_eq!(most.max(), Some(2), "batches within 100 ms");
    });
}

#[test]
fn renewals_that_are_all_answered_late_keep_the_lease() {
    world(|world| async move {
        let client = world.connect();
        // A fifth of the lease is how long one try is waited for.
        let guard = client.lock("a").lease(Duration::from_secs(5)).acquire().await.unwrap();
        client.goes("renew", slow(ms(1_500)));
        let lost = guard.lost();
        assert!(cut_off(Duration::from_secs(60), lost).await.is_none());
        guard.check().unwrap();
    });
}

#[test]
fn three_tries_fit_into_a_short_lease() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(Duration::from_secs(5)).acquire().await.unwrap();
        pass(ms(1_200)).await;
        let before = client.calls("renew").len();
        client.goes("renew", Way { there: Duration::from_secs(3_600), ..Way::default() });
        guard.lost().await;
        let tries = client.calls("renew").len() - before;
        assert!(tries >= 3, "{tries} tries");
    });
}

#[test]
fn one_hung_renewal_does_not_cost_a_first_lease_however_long_later_ones_are() {
    for lease in [15, 60, 3_600].map(Duration::from_secs) {
        world(|world| async move {
            let client = world.connect();
            let guard = client.lock("a").lease(lease).acquire().await.unwrap();
            client.goes("renew", Way { lost: true, there: Duration::from_secs(3_600), ..Way::default() });
            while client.calls("renew").is_empty() {
                pass(ms(10)).await;
            }
            client.goes("renew", Way::default());
            assert!(cut_off(Duration::from_secs(10), guard.lost()).await.is_none(), "lost: {lease:?}");
            assert!(client.calls("renew").len() >= 2 && guard.renewals() >= 1);
            guard.check().unwrap();
        });
    }
}

#[test]
fn nothing_is_renewed_from_when_a_release_has_left() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        pass(ms(500)).await;
        client.goes("release", Way { there: ms(2_000), ..Way::default() });
        guard.release().await.unwrap();
        assert!(client.calls("renew").is_empty());
    });
}

#[test]
fn limits_go_on_through_a_conversion() {
    world(|world| async move {
        let client = world.connect();
        let started = client.now();
        let rw = client.rw("a");
        let guard = rw.write().max_hold(Duration::from_secs(20)).acquire().await.unwrap();
        pass(Duration::from_secs(15)).await;
        let guard = guard.downgrade().await.unwrap();
        assert_eq!(guard.lost().await, LostReason::HoldLimit);
        assert!(client.now().since(started) <= Duration::from_secs(20));

        let client = world.connect();
        let started = client.now();
        let rw = client.rw("b");
        let guard = rw.write().beat_every(Duration::from_secs(10)).acquire().await.unwrap();
        pass(Duration::from_secs(7)).await;
        let guard = guard.downgrade().await.unwrap();
        assert_eq!(guard.lost().await, LostReason::NoProgress);
        assert!(client.now().since(started) <= Duration::from_secs(10));
    });
}

#[test]
fn a_break_of_a_fence_from_before_a_conversion_does_not_end_the_lease() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").read().acquire().await.unwrap();
        let (owner, fence) = (guard.contender().owner, guard.fencing_token());
        let writer = upgraded(guard).await;
        client.core.wakeups.revoked(owner, fence.get());
        writer.check().unwrap();
        client.core.wakeups.revoked(owner, writer.fencing_token().get());
        assert_eq!(writer.check().unwrap_err().lost_reason(), Some(LostReason::Broken));
    });
}

/// The grant is on its way when the lease is ended: the end arrives first.
#[test]
fn an_end_that_overtakes_the_grant_ends_the_lease_at_once() {
    world(|world| async move {
        let (client, operator) = (world.connect(), world.connect());
        client.goes("poll", slow(ms(500)));
        let lock = client.lock("a");
        let acquiring = tokio::spawn(async move { lock.acquire().await.unwrap() });
        pass(ms(100)).await;
        let fence = world.seen("a").holders[0].fencing_token;
        let request = crate::snapshot::BreakRequest {
            name: "a".into(),
            expected: fence.expect("it is held"),
            by: "ann@desk".into(),
            reason: "test".into(),
        };
        operator.core.backend.break_lease(&request).await.unwrap();
        let guard = acquiring.await.unwrap();
        assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Broken));
        // It is that lease's end, and no other one's.
        let next = client.lock("a").acquire().await.unwrap();
        pass(ms(1_000)).await;
        next.check().unwrap();
    });
}
