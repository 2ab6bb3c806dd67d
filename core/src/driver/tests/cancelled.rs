//! Whatever is cancelled at whatever moment, nothing of it is left at the store.

use super::*;

/// Every moment of a request that goes by [`legs`], and of what follows it.
fn moments() -> impl Iterator<Item = Duration> {
    (0..30).map(|step| ms(step * 5))
}

/// Long before any lease ends.
async fn nothing_is_left(world: &World, names: &[&str], moment: Duration) {
    pass(ms(500)).await;
    for name in names {
        assert!(world.is_empty(name), "cancelled after {moment:?}: {:?}", world.seen(name));
    }
}

#[test]
fn a_cancelled_acquisition_leaves_nothing() {
    world(|world| async move {
        let client = world.connect();
        client.goes("poll", legs());
        for moment in moments() {
            drop(cut_off(moment, client.lock("a").acquire()).await);
            nothing_is_left(&world, &["a"], moment).await;
        }
    });
}

#[test]
fn a_cancelled_wait_leaves_nothing_whether_it_was_granted_or_not() {
    world(|world| async move {
        let (client, other) = (world.connect(), world.connect());
        client.goes("poll", legs());
        for moment in moments() {
            let held = other.lock("a").acquire().await.unwrap();
            let lock = client.lock("a");
            let (waited, released) = tokio::join!(cut_off(moment, lock.acquire()), async {
                pass(ms(60)).await;
                held.release().await
            });
            released.unwrap();
            drop(waited);
            nothing_is_left(&world, &["a"], moment).await;
        }
    });
}

#[test]
fn a_cancelled_set_leaves_nothing() {
    world(|world| async move {
        let client = world.connect();
        client.goes("take_all", legs());
        client.goes("poll", legs());
        let set = LockAll::of([client.lock("a"), client.lock("b")]);
        for moment in moments() {
            drop(cut_off(moment, set.try_acquire()).await);
            nothing_is_left(&world, &["a", "b"], moment).await;
        }
        // The waiting form, one lock after the other.
        let other = world.connect();
        for moment in moments() {
            let held = other.lock("b").acquire().await.unwrap();
            drop(cut_off(moment * 2, set.acquire()).await);
            held.release().await.unwrap();
            nothing_is_left(&world, &["a", "b"], moment).await;
        }
    });
}

#[test]
fn a_cancelled_conversion_leaves_nothing_and_is_no_loss() {
    world(|world| async move {
        let client = world.connect();
        client.goes("convert", legs());
        for upgrades in [true, false] {
            for moment in moments() {
                let rw = client.rw("a");
                let lock = if upgrades { rw.read() } else { rw.write() };
                let guard = lock.lease(Duration::from_secs(60)).acquire().await.unwrap();
                let (lost, ended) = (guard.lost(), guard.ended());
                // Renewed for the whole lease before: what is left behind would stay for a minute.
                pass(ms(1_100)).await;
                if upgrades {
                    drop(cut_off(moment, guard.try_upgrade()).await);
                } else {
                    drop(cut_off(moment, guard.downgrade()).await);
                }
                nothing_is_left(&world, &["a"], moment).await;
                assert!(cut_off(ms(1), lost).await.is_none(), "after {moment:?}");
                assert_eq!(cut_off(ms(1), ended).await, Some(None), "after {moment:?}");
            }
        }
    });
}

#[test]
fn a_cancelled_conversion_is_undone_when_the_store_answers_again() {
    world(|world| async move {
        let client = world.connect();
        let guard = client.rw("a").read().lease(Duration::from_secs(60)).acquire().await.unwrap();
        pass(ms(1_100)).await;
        client.goes("convert", Way { lost: true, ..Way::default() });
        client.goes("cancel", Way { refused: true, ..Way::default() });
        assert!(cut_off(ms(10), guard.try_upgrade()).await.is_none());
        pass(Duration::from_secs(10)).await;
        assert_eq!(world.seen("a").holders.len(), 1);
        client.goes("cancel", Way::default());
        pass(ms(1_100)).await;
        assert!(world.is_empty("a"));
    });
}

#[test]
fn a_cancelled_conversion_is_finished_before_it_is_undone() {
    world(|world| async move {
        let client = world.connect();
        client.goes("convert", legs());
        let guard = client.rw("a").write().acquire().await.unwrap();
        assert!(cut_off(ms(10), guard.downgrade()).await.is_none());
        pass(ms(500)).await;
        // A store may take several steps for a conversion; it is not left between two of them.
        let (converted, undone) = (client.calls("convert")[0], client.calls("cancel")[0]);
        assert_eq!(undone.since(converted), LEG * 2);
    });
}

#[test]
fn a_conversion_without_an_answer_leaves_nothing() {
    world(|world| async move {
        let client = world.connect();
        client.goes("convert", Way { lost: true, ..Way::default() });
        let guard = client.rw("a").read().lease(Duration::from_secs(60)).acquire().await.unwrap();
        let lost = guard.lost();
        pass(ms(1_100)).await;
        assert_eq!(guard.try_upgrade().await.unwrap_err().kind(), ErrorKind::BackendUnavailable);
        assert_eq!(cut_off(ms(1), lost).await, Some(LostReason::Unverifiable));
        pass(ms(100)).await;
        assert!(world.is_empty("a"));
    });
}

#[test]
fn a_cancelled_release_is_finished() {
    world(|world| async move {
        let client = world.connect();
        client.goes("release", legs());
        for moment in moments() {
            let guard = client.lock("a").acquire().await.unwrap();
            drop(cut_off(moment, guard.release()).await);
            pass(ms(500)).await;
            assert!(!guard.is_held(), "after {moment:?}");
            assert!(cut_off(ms(1), guard.lost()).await.is_none(), "after {moment:?}");
            nothing_is_left(&world, &["a"], moment).await;
        }
    });
}

#[test]
fn a_request_that_a_hanging_store_takes_up_after_its_undoing_is_undone_again() {
    world(|world| async move {
        let client = world.connect();
        // Given up after a second, undone at 1.4 s, carried out at 1.5 s.
        client.goes("poll", Way { there: ms(1_500), ..Way::default() });
        client.goes("cancel", Way { there: ms(400), ..Way::default() });
        let lock = client.lock("a").lease(Duration::from_secs(60)).wait(ms(100));
        lock.acquire().await.unwrap_err();
        pass(ms(450)).await;
        assert!(world.is_empty("a"), "{:?}", world.seen("a"));
        nothing_is_left(&world, &["a"], ms(100)).await;
        pass(Duration::from_secs(2)).await;
        assert!(world.is_empty("a"), "{:?}", world.seen("a"));
    });
}
