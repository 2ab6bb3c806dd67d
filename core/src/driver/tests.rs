//! What the driver promises, against a store whose answers and time the test decides.

use std::time::Duration;

use crate::error::{ErrorKind, LostReason};
use crate::guard::{Converted, Guard};
use crate::lock_all::LockAll;
use crate::policy::lease::valid_until;
use crate::policy::watchdog::BATCH_WINDOW;

mod cancelled;
mod counted;
mod extended;
mod leaving;
mod watched;
mod world;

use world::{Way, World, cut_off, some, world};

const FIRST: Duration = Duration::from_secs(3);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An answer that takes so long.
fn slow(back: Duration) -> Way {
    Way { back, ..Way::default() }
}

/// How long a request takes each way that has to be caught on its way.
const LEG: Duration = Duration::from_millis(40);

fn legs() -> Way {
    Way { there: LEG, back: LEG, ..Way::default() }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

async fn upgraded(guard: Guard) -> Guard {
    match guard.try_upgrade().await.unwrap() {
        Converted::Done(guard) => guard,
        Converted::Refused(_) => panic!("the only reader"),
    }
}

#[test]
fn a_lease_counts_from_when_its_request_left() {
    world(|world| async move {
        let client = world.connect();
        for back in [ms(0), ms(700), ms(2_900)] {
            client.goes("poll", slow(back));
            client.goes("take_all", slow(back));
            let sent_at = client.now();
            let guard = client.lock("a").acquire().await.unwrap();
            assert_eq!(guard.valid_until(), valid_until(sent_at, FIRST), "an answer after {back:?}");
            guard.release().await.unwrap();
            if back > ms(1_000) {
                // A caller who does not wait is not kept for so long.
                continue;
            }
            let sent_at = client.now();
            let all = some(LockAll::of([client.lock("a"), client.lock("b")]).try_acquire().await);
            for guard in all.guards() {
                assert_eq!(guard.valid_until(), valid_until(sent_at, FIRST), "an answer after {back:?}");
            }
            all.release().await.unwrap();
        }
    });
}

#[test]
fn an_answer_that_took_longer_than_the_lease_is_no_lock() {
    world(|world| async move {
        let client = world.connect();
        client.goes("poll", slow(ms(2_980)));
        client.goes("take_all", slow(ms(2_980)));
        let error = client.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        let error = client.lock("b").wait(ms(100)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        let set = LockAll::of([client.lock("c"), client.lock("d")]);
        assert_eq!(set.try_acquire().await.unwrap_err().kind(), ErrorKind::BackendUnavailable);
        pass(ms(1)).await;
        assert!(["a", "b", "c", "d"].iter().all(|name| world.is_empty(name)), "it is undone at once");
    });
}

#[test]
fn a_pushed_grant_counts_from_the_last_poll_and_is_renewed_at_once() {
    world(|world| async move {
        let (holder, waits) = (world.connect(), world.connect());
        let held = holder.lock("a").acquire().await.unwrap();
        let lock = waits.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        pass(ms(300)).await;
        held.release().await.unwrap();
        let entered_at = waits.now();
        let guard = waiting.await.unwrap();
        let polls = waits.calls("poll");
        assert_eq!(polls.len(), 1, "it entered without asking");
        assert_eq!(guard.valid_until(), valid_until(polls[0], FIRST));
        pass(BATCH_WINDOW * 2).await;
        let renewals = waits.calls("renew");
        assert_eq!(renewals.len(), 1, "a failover may have lost the grant, so the store is asked");
        assert!(renewals[0].since(entered_at) <= BATCH_WINDOW);
        assert_eq!(guard.valid_until(), valid_until(renewals[0], Duration::from_secs(15)));
    });
}

#[test]
fn a_guard_is_not_held_from_when_its_release_has_left() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        client.goes("release", Way { there: ms(200), back: ms(200), ..Way::default() });
        let releasing = guard.release();
        let mut releasing = std::pin::pin!(releasing);
        assert!(cut_off(ms(1), releasing.as_mut()).await.is_none());
        assert_eq!(world.seen("a").holders.len(), 1, "the store does not know yet");
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        releasing.await.unwrap();
        assert!(world.is_empty("a"));
    });
}

#[test]
fn a_second_release_waits_for_the_first() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.lock("a").acquire().await.unwrap();
        client.goes("release", Way { there: ms(500), back: ms(500), ..Way::default() });
        let first = guard.release();
        let mut first = std::pin::pin!(first);
        assert!(cut_off(ms(100), first.as_mut()).await.is_none());
        let second = guard.release();
        let mut second = std::pin::pin!(second);
        assert!(cut_off(ms(100), second.as_mut()).await.is_none(), "the store does not know yet");
        let (first, second) = tokio::join!(first, second);
        first.unwrap();
        second.unwrap();
        assert!(world.is_empty("a"));
        assert_eq!(client.calls("release").len(), 1);
        guard.release().await.unwrap();
    });
}

#[test]
fn a_second_release_says_what_came_of_the_first() {
    world(|world| async move {
        let client = world.connect();
        let lock = client.lock("a").lease(Duration::from_secs(60));
        let guard = lock.acquire().await.unwrap();
        pass(ms(1_500)).await;
        client.goes("release", Way { refused: true, ..Way::default() });
        let (first, second) = tokio::join!(guard.release(), guard.release());
        for result in [first, second] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::BackendUnavailable);
        }
        assert!(!world.is_empty("a"));
        // The background goes on, and so may the caller.
        client.goes("release", Way::default());
        guard.release().await.unwrap();
        assert!(world.is_empty("a"));
    });
}

#[test]
fn a_release_whose_answer_was_lost_is_asked_again_and_is_no_loss() {
    world(|world| async move {
        let client = world.connect();
        let lock = client.lock("a").lease(Duration::from_secs(60));
        let guard = lock.acquire().await.unwrap();
        pass(ms(1_500)).await;
        client.goes("release", Way { lost: true, ..Way::default() });
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
        client.goes("release", Way::default());
        guard.release().await.unwrap();
        assert!(world.is_empty("a"));
        // Refused before it left, it cannot have freed the lock: then it is a loss.
        let guard = client.lock("c").lease(Duration::from_secs(60)).acquire().await.unwrap();
        pass(ms(1_500)).await;
        client.goes("release", Way { refused: true, ..Way::default() });
        guard.release().await.unwrap_err();
        client.core.backend.cancel(&guard.contender()).await.unwrap();
        client.goes("release", Way::default());
        assert_eq!(guard.release().await.unwrap_err().lost_reason(), Some(LostReason::Superseded));
        let guard = client.lock("b").acquire().await.unwrap();
        let request = crate::snapshot::BreakRequest {
            name: "b".into(),
            expected: guard.fencing_token(),
            by: "ann@desk".into(),
            reason: "test".into(),
        };
        let broken = client.core.backend.break_lease(&request);
        broken.await.unwrap();
        assert_eq!(guard.release().await.unwrap_err().lost_reason(), Some(LostReason::Broken));
    });
}

#[test]
fn closing_releases_a_lease_whose_conversion_is_under_way() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").read().acquire().await.unwrap();
        let lost = guard.lost();
        client.goes("convert", slow(ms(300)));
        let converting = tokio::spawn(guard.try_upgrade());
        pass(ms(100)).await;
        client.core.close().await;
        assert_eq!(converting.await.unwrap().unwrap_err().kind(), ErrorKind::Canceled);
        pass(ms(100)).await;
        assert!(world.is_empty("a"));
        assert!(cut_off(ms(10), lost).await.is_none(), "closing is no loss");
    });
}

#[test]
fn a_renewal_that_a_conversion_overtakes_is_no_loss() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").read().acquire().await.unwrap();
        let lost = guard.lost();
        pass(ms(500)).await;
        // The first renewal leaves a second after the grant, with the fence from before.
        client.goes("convert", slow(ms(1_500)));
        let writer = upgraded(guard).await;
        assert!(!client.calls("renew").is_empty(), "one was overtaken");
        assert!(client.calls("renew").len() < 20, "it is not asked again and again");
        assert!(cut_off(ms(1), lost).await.is_none(), "the lease went on under another fence");
        pass(Duration::from_secs(60)).await;
        writer.check().unwrap();
        assert_eq!(world.seen("a").holders[0].fencing_token, Some(writer.fencing_token()));
    });
}

#[test]
fn a_conversion_that_takes_longer_than_the_lease_ends_it() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").write().lease(Duration::from_secs(600)).acquire().await.unwrap();
        pass(ms(1_500)).await;
        client.goes("convert", slow(ms(2_990)));
        let error = guard.downgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
        pass(ms(10)).await;
        assert!(world.is_empty("a"), "what is left of ten minutes is not left to nobody");
    });
}

#[test]
fn acquiring_for_an_owner_id_waits_for_a_conversion_under_way() {
    world(|world| async move {
        let client = world.connect();
        let rw = client.rw("a");
        let writer = rw.write().owner("job").acquire().await.unwrap();
        client.goes("convert", slow(ms(500)));
        let converting = tokio::spawn(writer.downgrade());
        pass(ms(100)).await;
        assert!(rw.write().owner("job").try_acquire().await.unwrap().is_none(), "it is given up");
        let reader = converting.await.unwrap().unwrap();
        let again = some(rw.read().owner("job").try_acquire().await);
        assert_eq!(again.fencing_token(), reader.fencing_token());
        // Shared by two guards, its mode is not changed behind the back of one.
        let error = again.try_upgrade().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        reader.check().unwrap();
        let (third, writer) = (rw.read().owner("job"), upgraded(reader));
        let writer = writer.await;
        assert!(third.try_acquire().await.unwrap().is_none(), "the writer is alone");
        writer.check().unwrap();
    });
}

#[test]
fn an_owner_id_does_not_enter_a_lost_lease_again() {
    world(|world| async move {
        let client = world.connect();
        let lock = client.lock("a").owner("job");
        let lost = lock.acquire().await.unwrap();
        world.clock().suspend(Duration::from_secs(60));
        let new = some(lock.try_acquire().await);
        assert!(new.is_held() && !lost.is_held());
        assert!(new.fencing_token() > lost.fencing_token());
    });
}

#[test]
fn a_wait_that_is_over_has_left_the_queue_before_it_says_so() {
    world(|world| async move {
        let (holder, waits) = (world.connect(), world.connect());
        let held = holder.lock("a").acquire().await.unwrap();
        waits.goes("cancel", Way { there: ms(100), ..Way::default() });
        let error = waits.lock("a").wait(ms(500)).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitTimeout);
        assert!(world.seen("a").waiters.is_empty());
        // It takes too long: the caller is told, and the background sees to it.
        waits.goes("cancel", Way { there: ms(2_000), ..Way::default() });
        let started = waits.now();
        waits.lock("a").wait(ms(500)).acquire().await.unwrap_err();
        assert!(waits.now().since(started) <= ms(1_010));
        pass(ms(2_600)).await;
        assert!(world.seen("a").waiters.is_empty());
        held.check().unwrap();
    });
}

#[test]
fn closing_waits_until_waiters_have_left_the_queue() {
    world(|world| async move {
        let (holder, waits) = (world.connect(), world.connect());
        let held = holder.lock("a").acquire().await.unwrap();
        let lock = waits.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.map(drop).unwrap_err().kind() });
        pass(ms(100)).await;
        assert_eq!(world.seen("a").waiters.len(), 1);
        waits.goes("cancel", Way { there: ms(100), ..Way::default() });
        waits.core.close().await;
        assert!(world.seen("a").waiters.is_empty());
        assert_eq!(waiting.await.unwrap(), ErrorKind::Canceled);
        held.check().unwrap();
    });
}

#[test]
fn a_waiter_rides_out_an_outage_and_enters_soon_after() {
    world(|world| async move {
        let (holder, waits) = (world.connect(), world.connect());
        let held = holder.lock("a").acquire().await.unwrap();
        let lock = waits.lock("a");
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        pass(ms(100)).await;
        waits.goes("poll", Way { refused: true, ..Way::default() });
        pass(Duration::from_secs(60)).await;
        // Its place is gone by now; it asks at most once a second.
        held.release().await.unwrap();
        let asked = waits.calls("poll").len();
        assert!((55..140).contains(&asked), "asked {asked} times in a minute");
        waits.goes("poll", Way::default());
        let guard = cut_off(ms(1_010), waiting).await.expect("soon").unwrap();
        guard.check().unwrap();
    });
}

#[test]
fn a_client_for_inspection_acquires_nothing() {
    world(|world| async move {
        let client = world.connect_for(crate::backend::Purpose::Examine);
        for result in [client.lock("a").try_acquire().await, client.lock("a").acquire().await.map(Some)] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
        }
        let set = LockAll::of([client.lock("a"), client.lock("b")]);
        assert_eq!(set.try_acquire().await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(client.calls("poll").is_empty() && client.calls("take_all").is_empty());
    });
}
