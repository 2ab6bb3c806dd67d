//! An acquisition goes behind what its own client's background still has to say about the lock.

use super::*;
use crate::backend::Purpose;
use crate::client_info::process_id;

#[test]
fn a_lock_whose_guard_was_dropped_is_free_for_its_own_client() {
    world(|world| async move {
        let client = world.connect();
        // A release that arrives long after the request that follows it would.
        client.goes("release", legs());
        for _ in 0..3 {
            drop(client.lock("a").acquire().await.unwrap());
            let polls = client.calls("poll").len();
            let guard = client.lock("a").acquire().await.unwrap();
            assert_eq!(client.calls("poll").len(), polls + 1, "it was not queued behind itself");
            drop(guard);
            drop(some(client.lock("a").try_acquire().await));
            drop(some(LockAll::of([client.lock("b"), client.lock("a")]).try_acquire().await));
            drop(some(client.rw("c").write().try_acquire().await));
            drop(some(client.rw("c").read().try_acquire().await));
        }
    });
}

#[test]
fn a_release_that_has_left_in_turn_is_not_waited_for() {
    world(|world| async move {
        let client = world.connect();
        client.goes("release", Way { in_turn: true, ..legs() });
        client.goes("poll", Way { there: LEG + ms(1), back: LEG, ..Way::default() });
        drop(client.lock("a").acquire().await.unwrap());
        let dropped = client.now();
        let guard = some(client.lock("a").try_acquire().await);
        assert_eq!([client.calls("release")[0], *client.calls("poll").last().unwrap()], [dropped; 2]);
        pass(LEG).await;
        assert_eq!(client.calls("release").len(), 1, "its answer was taken");
        assert!(guard.is_held());
        // One that fails is asked for again, and only then the lock is free.
        client.goes("release", Way { in_turn: true, refused: true, ..Way::default() });
        drop(guard);
        pass(ms(5)).await;
        assert!(!world.is_empty("a"));
        client.goes("release", Way::default());
        pass(ms(50)).await;
        assert!(world.is_empty("a"));
    });
}

#[test]
fn a_forked_child_sends_no_release_for_what_its_parent_holds() {
    world(|world| async move {
        let this = process_id();
        for (process, sent) in [(this, 1), (this + 1, 0)] {
            let client = world.connect_in(process, Purpose::Lock);
            client.goes("release", Way { in_turn: true, ..Way::default() });
            drop(client.lock("a").acquire().await.unwrap());
            // What is left to the background is not carried out in a child, which has no such thread.
            assert_eq!(client.calls("release").len(), sent, "dropped in process {process}");
            pass(ms(1)).await;
        }
    });
}

#[test]
fn a_lock_whose_acquisition_was_cancelled_is_free_for_its_own_client() {
    world(|world| async move {
        let client = world.connect();
        client.goes("poll", legs());
        client.goes("cancel", legs());
        for moment in (0..20).map(|step| ms(step * 5)) {
            drop(cut_off(moment, client.lock("a").acquire()).await);
            assert!(client.lock("a").try_acquire().await.unwrap().is_some(), "cancelled after {moment:?}");
            pass(ms(500)).await;
        }
    });
}

#[test]
fn only_the_same_lock_is_waited_for_and_only_what_began_before() {
    world(|world| async move {
        let client = world.connect();
        client.goes("release", slow(ms(300)));
        let lock = client.rw("a").read();
        let (first, second) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        drop(first);
        let asked = client.now();
        let _other = some(client.lock("b").try_acquire().await);
        assert_eq!(client.now(), asked, "another lock");
        let (_guard, ()) = tokio::join!(lock.acquire(), async {
            pass(ms(200)).await;
            drop(second);
        });
        assert_eq!(client.now(), asked + ms(300), "the release that began later is answered after 500 ms");
    });
}

#[test]
fn a_store_that_hangs_is_asked_all_the_same() {
    world(|world| async move {
        let client = world.connect();
        client.goes("release", Way { lost: true, ..Way::default() });
        drop(client.lock("a").acquire().await.unwrap());
        let asked = client.now();
        let _guard = some(client.lock("a").try_acquire().await);
        assert_eq!(client.now(), asked + ms(250), "a quarter of the second that a try may take");
        for name in ["c", "d"] {
            drop(client.lock(name).acquire().await.unwrap());
        }
        client.goes("poll", Way { lost: true, ..Way::default() });
        client.goes("take_all", Way { lost: true, ..Way::default() });
        let set = LockAll::of([client.lock("c"), client.lock("d")]);
        let asked = client.now();
        let lock = client.lock("c");
        let (one, all) = tokio::join!(lock.try_acquire(), set.try_acquire());
        assert!(one.is_err() && all.is_err());
        assert_eq!(client.now(), asked + ms(1_000), "the wait is a part of that second");
        client.goes("poll", Way::default());
        client.goes("release", Way { refused: true, ..Way::default() });
        drop(client.lock("b").acquire().await.unwrap());
        let asked = client.now();
        assert!(client.lock("b").try_acquire().await.unwrap().is_none(), "it is held still");
        assert_eq!(client.now(), asked, "a release that failed is not waited for until it succeeds");
    });
}

#[test]
fn closing_ends_the_wait_for_an_own_release() {
    world(|world| async move {
        let client = world.connect();
        client.goes("release", slow(ms(200)));
        drop(client.lock("a").acquire().await.unwrap());
        let lock = client.lock("a");
        let (acquired, ()) = tokio::join!(lock.acquire(), async {
            pass(ms(50)).await;
            client.core.close().await;
        });
        assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Canceled);
        assert!(world.is_empty("a"));
    });
}
