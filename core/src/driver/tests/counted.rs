//! What a client counts, to the millisecond.

use super::*;
use crate::stats::Stats;

fn stats(client: &world::Client) -> Stats {
    client.core.observer.stats()
}

fn close(seconds: f64, expected: f64) -> bool {
    (seconds - expected).abs() < 0.01
}

#[test]
fn waits_and_holds_have_the_length_that_they_had() {
    world(|world| async move {
        let (one, other) = (world.connect(), world.connect());
        let held = one.lock("a").acquire().await.unwrap();
        let lock = other.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        pass(ms(700)).await;
        assert_eq!((stats(&other).waiting, stats(&other).held), (1, 0));
        assert_eq!((stats(&one).waiting, stats(&one).held), (0, 1));
        held.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert_eq!((stats(&other).waiting, stats(&other).held, stats(&other).acquired), (0, 1, 1));
        assert!(close(stats(&other).wait.sum(), 0.7), "{:?}", stats(&other).wait);
        assert!(close(stats(&one).hold.sum(), 0.7), "{:?}", stats(&one).hold);
        drop(guard);
    });
}

#[test]
fn the_lag_of_a_renewal_has_the_tries_that_failed() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        client.goes("renew", Way { refused: true, ..Way::default() });
        // Due about a second after the grant, a third of the first lease.
        pass(ms(1_900)).await;
        let tried = client.calls("renew");
        let before = stats(&client);
        assert!(tried.len() >= 2 && before.renewal_lag.count() == 0, "{tried:?} {before:?}");
        let failed =
            before.errors_by_kind().find(|(kind, _)| *kind == ErrorKind::BackendUnavailable).unwrap().1;
        assert_eq!((failed, before.errors()), (tried.len() as u64, tried.len() as u64));
        client.goes("renew", Way::default());
        while guard.renewals() == 0 {
            pass(ms(1)).await;
        }
        let (after, lag) = (stats(&client), client.now().since(tried[0]).as_secs_f64());
        assert_eq!(after.renewal_lag.count(), 1);
        assert!(lag > 0.5 && (after.renewal_lag.sum() - lag).abs() < 0.06, "{lag} {:?}", after.renewal_lag);
        // The next one is punctual again.
        pass(ms(5_100)).await;
        let next = stats(&client).renewal_lag;
        assert_eq!(next.count(), 2);
        assert!(next.sum() - after.renewal_lag.sum() < 0.02, "{next:?}");
    });
}

#[test]
fn a_renewal_that_is_not_answered_is_an_error_and_its_late_answer_none() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").lease(FIRST).acquire().await.unwrap();
        client.goes("renew", slow(ms(800)));
        while guard.renewals() == 0 {
            pass(ms(1)).await;
        }
        assert!(stats(&client).errors() >= 1, "the limit of a renewal is a fifth of the lease");
        assert_eq!(stats(&client).renewal_lag.count(), 1);
        assert!(stats(&client).renewal_lag.sum() >= 0.7, "{:?}", stats(&client).renewal_lag);
        client.goes("renew", Way::default());
    });
}

#[test]
fn a_set_that_waits_counts_each_lock_once_and_its_failure_once() {
    world(|world| async move {
        let (one, other) = (world.connect(), world.connect());
        let held = one.lock("b").acquire().await.unwrap();
        let set = LockAll::of([other.lock("a"), other.lock("b")]);
        assert!(set.try_acquire().await.unwrap().is_none());
        assert_eq!((stats(&other).refused, stats(&other).errors()), (2, 0));
        set.clone().wait(ms(200)).acquire().await.unwrap_err();
        let after = stats(&other);
        assert_eq!((after.refused, after.acquired, after.timed_out, after.errors()), (2, 1, 1, 1));
        held.release().await.unwrap();
        set.acquire().await.unwrap().release().await.unwrap();
        assert_eq!((stats(&other).acquired, stats(&other).held), (3, 0));
    });
}

#[test]
fn an_owner_that_enters_again_waited_for_nothing_and_holds_one_lease() {
    world(|world| async move {
        let client = world.connect();
        let lock = client.lock("a").owner("me");
        let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        assert_eq!((stats(&client).acquired, stats(&client).held), (2, 1));
        inner.release().await.unwrap();
        assert_eq!((stats(&client).held, stats(&client).hold.count()), (1, 0));
        outer.release().await.unwrap();
        assert_eq!((stats(&client).held, stats(&client).hold.count()), (0, 1));
    });
}
