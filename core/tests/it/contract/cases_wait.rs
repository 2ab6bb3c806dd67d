//! Standing in line, and leaving it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use polylatch::ErrorKind;

use super::{Store, block_on, eventually, eventually_within, millis, poll_at_most, seen};

pub fn waiters_enter_in_the_order_in_which_they_came(store: &impl Store) {
    let clients = [store.connect(), store.connect(), store.connect()];
    let first = block_on(clients[0].lock("a").acquire()).unwrap();
    let (tell, told) = mpsc::channel();
    for number in 0..12 {
        let lock = clients[number % 3].lock("a").label(number.to_string()).wait(millis(20_000));
        let tell = tell.clone();
        thread::spawn(move || {
            let guard = block_on(lock.acquire()).unwrap();
            tell.send((number, guard.fencing_token())).unwrap();
            block_on(guard.release()).unwrap();
        });
        eventually("it stands in line", || seen(&clients[0], "a").waiters.len() == number + 1);
    }
    block_on(first.release()).unwrap();
    let order: Vec<_> = told.iter().take(12).collect();
    assert!(order.iter().map(|(number, _)| *number).eq(0..12), "{order:?}");
    assert!(order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
}

pub fn a_newcomer_does_not_overtake_a_live_waiter(store: &impl Store) {
    let (holder, waiting, newcomer) = (store.connect(), store.connect(), store.connect());
    let guard = block_on(holder.lock("a").lease(millis(400)).renew(false).acquire()).unwrap();
    let lock = waiting.lock("a").wait(millis(10_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&holder, "a").waiters.len() == 1);
    std::mem::forget(guard);
    // Free at some moment, by expiry; whoever finds it so must leave it to the waiter.
    while !waiter.is_finished() {
        assert!(block_on(newcomer.lock("a").try_acquire()).unwrap().is_none(), "the newcomer barged");
    }
    assert!(waiter.join().unwrap().is_held());
}

pub fn a_barging_contender_may_overtake(store: &impl Store) {
    // The waiter is of a client that was cut off: it stands in line, live by its last sign, but no
    // push reaches it before it asks again.
    let (holder, barging) = (store.connect(), store.connect());
    let guard = block_on(holder.lock("a").lease(millis(300)).renew(false).acquire()).unwrap();
    let waiting = holder.lock("a").wait(millis(20_000));
    assert!(poll_at_most(3, waiting.acquire()).is_none());
    std::mem::forget(guard);
    let barged = block_on(barging.lock("a").fifo(false).wait(millis(5_000)).acquire()).unwrap();
    assert!(barged.is_held());
}

pub fn a_waiter_that_gives_up_leaves_the_queue(store: &impl Store) {
    let (holder, other) = (store.connect(), store.connect());
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let error = block_on(other.lock("a").wait(millis(50)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    eventually("the line is empty", || seen(&holder, "a").waiters.is_empty());
    block_on(guard.release()).unwrap();
    assert!(block_on(holder.lock("a").try_acquire()).unwrap().is_some());
}

pub fn an_acquisition_cancelled_at_any_point_leaves_nothing(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    for times in 1..=6 {
        for _ in 0..5 {
            let lock = client.lock("a");
            drop(poll_at_most(times, lock.acquire()));
            let started = Instant::now();
            let guard = block_on(other.lock("a").wait(millis(8_000)).acquire()).unwrap();
            assert!(started.elapsed() < millis(2_500), "an orphan was waited out at {times} polls");
            block_on(guard.release()).unwrap();
        }
    }
}

pub fn a_waiting_acquisition_cancelled_at_any_point_leaves_nothing(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    for times in 1..=6 {
        let held = block_on(other.lock("a").acquire()).unwrap();
        let lock = client.lock("a").wait(millis(30_000));
        let releaser = thread::spawn(move || {
            // Somewhere among the polls of the other thread, so that a hand-off meets a cancellation.
            thread::sleep(millis(20 * times as u64));
            block_on(held.release()).unwrap();
        });
        drop(poll_at_most(times, lock.acquire()));
        releaser.join().unwrap();
        let started = Instant::now();
        let guard = block_on(other.lock("a").wait(millis(8_000)).acquire()).unwrap();
        assert!(started.elapsed() < millis(2_500), "an orphan was waited out at {times} polls");
        block_on(guard.release()).unwrap();
        eventually("the line is empty", || seen(&other, "a").waiters.is_empty());
    }
}

pub fn a_release_cancelled_at_any_point_still_frees_the_lock(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    for times in 1..=4 {
        let guard = block_on(client.lock("a").acquire()).unwrap();
        drop(poll_at_most(times, guard.release()));
        let started = Instant::now();
        let next = block_on(other.lock("a").wait(millis(8_000)).acquire()).unwrap();
        assert!(started.elapsed() < millis(2_500), "the lease was waited out at {times} polls");
        assert!(!guard.is_held(), "a release that was begun is finished");
        assert!(poll_at_most(1, guard.lost()).is_none(), "giving a lock back is no loss");
        block_on(next.release()).unwrap();
    }
}

pub fn two_holders_never_meet_under_load(store: &impl Store) {
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU64::new(0));
    let clients = [store.connect(), store.connect()];
    let threads: Vec<_> = (0..6)
        .map(|number| {
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            let lock = clients[number % 2].lock("a").wait(millis(30_000));
            thread::spawn(move || {
                for _ in 0..40 {
                    let guard = block_on(lock.acquire()).unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two holders met");
                    let token = guard.fencing_token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "tokens went back");
                    assert!(inside.swap(false, Ordering::SeqCst));
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

pub fn many_waiters_are_all_served(store: &impl Store) {
    let clients = [store.connect(), store.connect()];
    let held = block_on(clients[0].lock("a").acquire()).unwrap();
    let threads: Vec<_> = (0..40)
        .map(|number| {
            let lock = clients[number % 2].lock("a").wait(millis(30_000));
            thread::spawn(move || {
                let guard = block_on(lock.acquire()).unwrap();
                block_on(guard.release()).unwrap();
            })
        })
        .collect();
    eventually_within("all wait in the queue", millis(30_000), || seen(&clients[0], "a").waiters.len() == 40);
    let started = Instant::now();
    block_on(held.release()).unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(started.elapsed() < millis(8_000), "40 hand-offs took {:?}", started.elapsed());
}

/// More waiters fall silent than one step of a store drops, and a live one stands behind them.
pub fn a_newcomer_does_not_overtake_a_live_waiter_behind_many_silent_ones(store: &impl Store) {
    let many = store.crowd(140);
    // They ask rarely enough that a loaded machine answers all of them before the first falls silent.
    let (holder, dead) = (store.connect(), store.connect_with("poll=400ms"));
    let held = block_on(holder.lock("a").acquire()).unwrap();
    let lock = dead.lock("a");
    let mut silent: Vec<_> = (0..many).map(|_| Box::pin(lock.acquire())).collect();
    eventually_within("all wait in the queue", millis(30_000), || {
        silent.iter_mut().for_each(|one| assert!(poll_at_most(1, one.as_mut()).is_none()));
        seen(&holder, "a").waiters.len() == many
    });
    // Nobody cancels them, and nobody gives a sign of life for them any more.
    silent.into_iter().for_each(std::mem::forget);
    // It asks so rarely that all of them are silent before it asks again, which drops some of them.
    let live = store.connect_with("lease=30s&provisional=10s&poll=3s");
    let lock = live.lock("a").wait(millis(30_000));
    let (tell, told) = mpsc::channel::<()>();
    let waiter = thread::spawn(move || {
        let guard = block_on(lock.acquire()).unwrap();
        let _ = told.recv();
        guard
    });
    eventually_within("all but the last are silent", millis(15_000), || {
        let waiters = seen(&holder, "a").waiters;
        let silent = waiters.iter().filter(|waiter| waiter.silent).count();
        waiters.len() == many + 1 && silent == if store.waiters_fall_silent() { many } else { 0 }
    });
    if !store.waiters_fall_silent() {
        // Their places go with the client's session; closing ends that at once.
        let all_wait = || seen(&holder, "a").waiters.len() == many + 1;
        assert!(all_wait() && block_on(holder.lock("a").try_acquire()).unwrap().is_none());
        block_on(dead.close());
        eventually("the places go with the session", || seen(&holder, "a").waiters.len() == 1);
    }
    block_on(held.release()).unwrap();
    let live = live.id().clone();
    loop {
        assert!(block_on(holder.lock("a").try_acquire()).unwrap().is_none(), "it was overtaken");
        if seen(&holder, "a").holders.first().is_some_and(|holder| holder.client.as_ref() == Some(&live)) {
            break;
        }
    }
    drop(tell);
    block_on(waiter.join().unwrap().release()).unwrap();
}
