//! A holder gives its lease another length.

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Length on record and what is left, in ms.
fn recorded(world: &World, name: &str) -> (u64, u64) {
    let seen = world.seen(name);
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    (holder.lease_ms.unwrap(), holder.remaining_ms.unwrap())
}

#[test]
fn an_extension_asks_at_once_and_counts_from_when_it_left() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(secs(9)).acquire().await.unwrap();
        pass(ms(300)).await;
        client.goes("renew", slow(ms(500)));
        let sent_at = client.now();
        let deadline = guard.extend(secs(30)).await.unwrap();
        assert_eq!((client.now().since(sent_at), client.calls("renew").len()), (ms(500), 1), "one request");
        assert_eq!(deadline, valid_until(sent_at, secs(30)));
        assert_eq!((guard.valid_until(), guard.renewals()), (deadline, 1));
        client.goes("renew", Way::default());
        for _ in 0..60 {
            pass(secs(1)).await;
            guard.check().unwrap();
            let (lease, left) = recorded(&world, "a");
            assert!(lease == 30_000 && left > 19_000, "{lease} {left}: renewals use the new length");
        }
        assert!(guard.renewals() < 10, "{} renewals, at a third of the new length", guard.renewals());
    });
}

#[test]
fn a_shorter_length_takes_back_nothing_and_then_applies() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(secs(60)).acquire().await.unwrap();
        let promised = guard.extend(secs(60)).await.unwrap();
        assert_eq!(guard.extend(secs(6)).await.unwrap(), promised);
        // Each answer is what the holder relies on, so the store must keep it, and say so.
        while client.now() + secs(6) < promised {
            let (lease, left) = recorded(&world, "a");
            assert!(ms(left) >= promised.since(client.now()), "{left} ms left");
            assert!(lease >= left, "others cut what is longer than the length on record: {lease} {left}");
            assert!(guard.valid_until() >= promised);
            pass(ms(500)).await;
        }
        pass(secs(4)).await;
        assert_eq!(recorded(&world, "a").0, 6_000);
        assert!(guard.remaining() < secs(6) && guard.remaining() > secs(3), "{:?}", guard.remaining());
        guard.check().unwrap();
    });
}

#[test]
fn an_extension_that_is_not_confirmed_changes_nothing_for_the_holder() {
    world(|world| async move {
        let client = world.connect();
        let lost = Way { lost: true, ..Way::default() };
        for way in [Way { refused: true, ..Way::default() }, lost] {
            let guard = client.lock("a").lease(secs(15)).acquire().await.unwrap();
            pass(secs(2)).await;
            client.goes("renew", way);
            let before = guard.valid_until();
            let error = guard.extend(secs(600)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
            assert_eq!((error.context().lock.as_deref(), guard.valid_until()), (Some("a"), before));
            client.goes("renew", Way::default());
            pass(secs(6)).await;
            guard.check().unwrap();
            assert!(guard.remaining() < secs(15), "renewals keep the length: {:?}", guard.remaining());
            let (lease, left) = recorded(&world, "a");
            assert!(lease >= left, "{lease} {left}");
            guard.release().await.unwrap();
            assert!(world.is_empty("a"));
        }
    });
}

#[test]
fn an_extension_cancelled_at_any_moment_leaves_the_guard_and_the_store_agreed() {
    world(|world| async move {
        let client = world.connect();
        let legs = Way { there: ms(40), back: ms(40), ..Way::default() };
        for moment in (0..20).map(|step| ms(step * 5)) {
            let guard = client.lock("a").lease(secs(15)).acquire().await.unwrap();
            client.goes("renew", legs);
            drop(cut_off(moment, guard.extend(secs(60))).await);
            for _ in 0..30 {
                pass(ms(30)).await;
                let left = guard.valid_until().since(client.now());
                assert!(left <= ms(recorded(&world, "a").1), "cancelled after {moment:?}: {left:?}");
            }
            guard.check().unwrap();
            assert!(guard.remaining() > secs(50), "what the store confirms counts, also after {moment:?}");
            client.goes("renew", Way::default());
            guard.release().await.unwrap();
            assert!(world.is_empty("a"));
        }
    });
}

#[test]
fn an_answer_that_comes_after_the_end_of_the_lease_is_no_extension() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(secs(2)).renew(false).acquire().await.unwrap();
        client.goes("renew", slow(ms(2_500)));
        let (started, error) = (client.now(), guard.extend(secs(60)).await.unwrap_err());
        assert_eq!(error.lost_reason(), Some(LostReason::Expired), "{error}");
        assert!(client.now().since(started) <= secs(2), "it does not wait for the answer");
        pass(secs(2)).await;
        assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Expired), "a loss is final");
    });
}

#[test]
fn of_two_extensions_the_one_that_began_last_sets_the_length() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(secs(15)).acquire().await.unwrap();
        client.goes("renew", slow(ms(100)));
        let first = guard.extend(secs(90));
        let second = async {
            pass(ms(10)).await;
            client.goes("renew", Way::default());
            guard.extend(secs(30)).await
        };
        let (first, second) = tokio::join!(first, second);
        assert!(second.unwrap() < first.unwrap(), "each answers with the deadline that it found");
        pass(secs(100)).await;
        assert_eq!(recorded(&world, "a").0, 30_000);
        assert!(guard.remaining() < secs(30), "{:?}", guard.remaining());
    });
}

#[test]
fn the_hold_limit_and_missing_beats_still_end_an_extended_lease() {
    world(|world| async move {
        let client = world.connect();
        let taken_at = client.now();
        let guard = client.lock("a").lease(secs(5)).max_hold(secs(20)).acquire().await.unwrap();
        let deadline = guard.extend(secs(600)).await.unwrap();
        assert_eq!(deadline, taken_at + secs(20));
        assert!(recorded(&world, "a").1 < 21_000, "the store lets go soon after, too");
        assert_eq!(guard.lost().await, LostReason::HoldLimit);
        assert_eq!(client.now().since(taken_at), secs(20));
        let guard = client.lock("b").lease(secs(5)).beat_every(secs(8)).acquire().await.unwrap();
        guard.extend(secs(600)).await.unwrap();
        assert_eq!(guard.lost().await, LostReason::NoProgress);
    });
}

#[test]
fn a_lease_that_is_not_renewed_lives_as_long_as_it_was_extended() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(secs(5)).renew(false).acquire().await.unwrap();
        for _ in 0..3 {
            pass(secs(4)).await;
            let sent_at = client.now();
            assert_eq!(guard.extend(secs(5)).await.unwrap(), valid_until(sent_at, secs(5)));
        }
        let sent_at = client.now();
        let deadline = guard.extend(secs(20)).await.unwrap();
        let seen = world.seen("a").holders.remove(0);
        assert_eq!((seen.renewals, seen.renewed), (Some(0), None), "nobody renews it automatically");
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert_eq!((client.now(), deadline), (deadline, valid_until(sent_at, secs(20))));
    });
}

#[test]
fn a_conversion_keeps_what_an_extension_promised() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").read().lease(secs(5)).renew(false).acquire().await.unwrap();
        let promised = guard.extend(secs(60)).await.unwrap();
        let guard = upgraded(guard).await;
        assert_eq!(guard.valid_until(), promised);
        let guard = guard.downgrade().await.unwrap();
        assert_eq!(guard.valid_until(), promised);
        let longer = guard.extend(secs(90)).await.unwrap();
        assert!(longer > promised && recorded(&world, "a").0 == 90_000);
    });
}

#[test]
fn a_guard_that_is_over_is_not_extended() {
    world(|world| async move {
        let client = world.connect();
        let refused = |error: crate::error::Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("was released"), "{error}");
        };
        let lock = client.lock("a").owner("job");
        let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        inner.extend(secs(30)).await.unwrap();
        assert_eq!(outer.valid_until(), inner.valid_until(), "one lease");
        inner.release().await.unwrap();
        refused(inner.extend(secs(60)).await.unwrap_err());
        outer.extend(secs(40)).await.unwrap();
        // A release that is under way wins, whichever arrives first.
        client.goes("renew", slow(ms(100)));
        let (extended, released) = tokio::join!(outer.extend(secs(60)), async {
            pass(ms(10)).await;
            outer.release().await
        });
        released.unwrap();
        refused(extended.unwrap_err());
        refused(outer.extend(secs(60)).await.unwrap_err());
        assert!(world.is_empty("a"));
        for length in [ms(99), secs(24 * 3600 + 1)] {
            let guard = client.lock("b").acquire().await.unwrap();
            let before = client.calls("renew").len();
            let error = guard.extend(length).await.unwrap_err();
            let option = client.lock("c").lease(length).try_acquire().await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (option.kind(), option.message()));
            assert_eq!(client.calls("renew").len(), before, "nothing is sent");
        }
    });
}
