//! Taking a lock and giving it back.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use polylatch::{ErrorKind, FencingToken};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::{Store, block_on, eventually, millis, seen};

pub fn a_free_lock_is_acquired_and_released(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    assert!(guard.is_held());
    assert!(guard.check().is_ok());
    assert_eq!(guard.name(), "a");
    assert!(guard.remaining() > millis(500) && guard.remaining() < millis(15_000));
    assert!(guard.fencing_token().get() > 0 && guard.fencing_token().get() < 1 << 53);
    block_on(guard.release()).unwrap();
    assert!(!guard.is_held());
    let again = block_on(client.lock("a").try_acquire()).unwrap().expect("it was released");
    assert!(again.fencing_token() > guard.fencing_token());
}

pub fn a_held_lock_is_refused_and_the_wait_names_the_holder(store: &impl Store) {
    let (holder, other) = (store.connect(), store.connect());
    let _guard = block_on(holder.lock("a").label("nightly import").acquire()).unwrap();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    assert!(block_on(holder.lock("a").try_acquire()).unwrap().is_none(), "no reentrancy unless asked for");
    let refused = block_on(other.lock("a").no_wait().acquire()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WaitTimeout);

    let started = Instant::now();
    let timeout = block_on(other.lock("a").wait(millis(150)).acquire()).unwrap_err();
    assert!(started.elapsed() >= millis(150) && started.elapsed() < millis(2_000), "{:?}", started.elapsed());
    assert_eq!(timeout.kind(), ErrorKind::WaitTimeout);
    let text = timeout.to_string();
    let pid = std::process::id().to_string();
    assert!(text.contains("nightly import") && text.contains(&pid), "{text}");
}

pub fn a_wait_of_zero_asks_once(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").wait(millis(0)).acquire()).unwrap();
    let error = block_on(client.lock("a").wait(millis(0)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    drop(guard);
}

pub fn fencing_tokens_grow_over_release_expiry_and_clients(store: &impl Store) {
    let clients = [store.connect(), store.connect()];
    let mut last = FencingToken::new(0);
    for round in 0..10 {
        let client = &clients[round % 2];
        let is_forgotten = round % 3 == 0;
        let lease = if is_forgotten { millis(200) } else { store.safe() };
        let lock = client.lock("a").lease(lease).renew(!is_forgotten);
        let guard = block_on(lock.wait(millis(5_000)).acquire()).unwrap();
        assert!(guard.fencing_token() > last, "{} after {last}", guard.fencing_token());
        last = guard.fencing_token();
        if is_forgotten {
            // Forgotten on purpose: nobody releases, so the lease has to end.
            std::mem::forget(guard);
        } else {
            block_on(guard.release()).unwrap();
        }
    }
}

pub fn locks_of_different_names_do_not_meet(store: &impl Store) {
    let client = store.connect();
    let names = [
        "a", "A", "a ", "a/b", "a:b", "a{b}", "a%7Bb%7D", "a*", "a?", "[a]", "Größe", "груз", "🔒", "a|b",
        "a'b\"c",
    ];
    let guards: Vec<_> = names
        .iter()
        .map(|name| {
            block_on(client.lock(*name).try_acquire())
                .unwrap()
                .unwrap_or_else(|| panic!("{name:?} met another"))
        })
        .collect();
    for name in names {
        assert!(block_on(client.lock(name).try_acquire()).unwrap().is_none(), "{name:?} was taken twice");
    }
    drop(guards);
}

pub fn a_dropped_guard_releases_in_the_background(store: &impl Store) {
    let (first, second) = (store.connect(), store.connect());
    let guard = block_on(first.lock("a").acquire()).unwrap();
    drop(guard);
    let started = Instant::now();
    let _next = block_on(second.lock("a").wait(millis(5_000)).acquire()).unwrap();
    assert!(started.elapsed() < millis(1_500), "the lease was waited out: {:?}", started.elapsed());
}

pub fn a_dropped_guard_is_out_of_its_own_clients_way(store: &impl Store) {
    let client = store.connect();
    for round in 0..10 {
        drop(block_on(client.lock("a").acquire()).unwrap());
        let tried = block_on(client.lock("a").try_acquire()).unwrap();
        drop(tried.unwrap_or_else(|| panic!("round {round}: it met the lock of the guard that was dropped")));
    }
    eventually("the last one is released", || seen(&client, "a").holders.is_empty());
}

pub fn a_guard_that_ends_with_its_runtime_is_released(store: &impl Store) {
    let (first, second) = (store.connect(), store.connect());
    for mut runtime in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = runtime.enable_all().build().unwrap();
        let lock = first.lock("a").wait(millis(5_000));
        let (holds, is_held) = oneshot::channel();
        runtime.spawn(async move {
            // Once before: what is sent for the first time may go another way.
            lock.acquire().await.unwrap().release().await.unwrap();
            let _guard = lock.acquire().await.unwrap();
            holds.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        runtime.block_on(is_held).unwrap();
        drop(runtime);
        let started = Instant::now();
        let next = block_on(second.lock("a").wait(millis(5_000)).acquire()).unwrap();
        assert!(started.elapsed() < millis(1_500), "the lease was waited out: {:?}", started.elapsed());
        block_on(next.release()).unwrap();
    }
}

pub fn releasing_twice_is_fine_and_a_released_guard_is_not_held(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();
    block_on(guard.release()).unwrap();
    assert_eq!(guard.remaining(), millis(0));
    let error = guard.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "a release is no loss");
    let other = block_on(client.lock("a").acquire()).unwrap();
    drop(guard);
    assert!(other.check().is_ok());
    assert_eq!(seen(&client, "a").holders.len(), 1, "an old guard must not release a newer lease");
}

pub fn an_owner_id_enters_again_without_a_request(store: &impl Store) {
    let client = store.connect();
    let lock = client.lock("a").owner("job 7");
    let outer = block_on(lock.acquire()).unwrap();
    let inner = block_on(lock.acquire()).unwrap();
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    let tried = block_on(lock.try_acquire()).unwrap().expect("the owner enters again");
    drop(tried);
    block_on(outer.release()).unwrap();
    assert!(inner.is_held(), "the last guard keeps it");
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_none());
    block_on(inner.release()).unwrap();
    let after = block_on(client.lock("a").try_acquire()).unwrap().expect("the last guard was released");
    assert!(after.fencing_token() > inner.fencing_token());
}

pub fn different_owner_ids_exclude_each_other(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let _guard = block_on(one.lock("a").owner("x").acquire()).unwrap();
    assert!(block_on(one.lock("a").owner("y").try_acquire()).unwrap().is_none());
    assert!(block_on(two.lock("a").owner("x").try_acquire()).unwrap().is_none(), "an owner is of one client");
    assert!(block_on(one.lock("b").owner("x").try_acquire()).unwrap().is_some());
}

pub fn two_tasks_of_one_owner_share_one_acquisition(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let held = block_on(other.lock("a").acquire()).unwrap();
    let (tell, told) = mpsc::channel();
    for _ in 0..2 {
        let (lock, tell) = (client.lock("a").owner("job").wait(millis(10_000)), tell.clone());
        thread::spawn(move || tell.send(block_on(lock.acquire()).unwrap()).unwrap());
    }
    eventually("one of them waits", || !seen(&client, "a").waiters.is_empty());
    block_on(held.release()).unwrap();
    let guards = [told.recv().unwrap(), told.recv().unwrap()];
    assert_eq!(guards[0].fencing_token(), guards[1].fencing_token());
}

pub fn bad_arguments_are_errors_before_anything_is_sent(store: &impl Store) {
    let client = store.connect();
    let long = "x".repeat(513);
    let cases = [
        (client.lock(""), "empty"),
        (client.lock(long.as_str()), "513 bytes"),
        (client.lock("a\u{0}b"), "control character"),
        (client.lock("a\nb"), "control character"),
        (client.lock("a").lease(millis(1)), "lease is 1ms; it must be between"),
        (client.lock("a").lease(millis(999_999_999_999)), "lease is"),
        (client.lock("a").wait(millis(u64::MAX / 2)), "wait is"),
        (client.lock("a").max_hold(millis(0)), "max_hold is"),
        (client.lock("a").beat_every(millis(5)), "beat_every is"),
        (client.lock("a").renew(false).max_hold(millis(5_000)), "renew is off"),
        (client.lock("a").label("x".repeat(257)), "257 bytes"),
        (client.lock("a").label("a\u{1b}[2J"), "control character"),
        (client.lock("a").owner(""), "owner id has 0 bytes"),
    ];
    for (lock, part) in cases {
        let error = block_on(lock.try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(seen(&client, "a").holders.is_empty());
}

pub fn closing_a_client_releases_what_it_holds_and_ends_its_waits(store: &impl Store) {
    let (closing, other) = (store.connect(), store.connect());
    let held = block_on(closing.lock("a").acquire()).unwrap();
    let blocker = block_on(other.lock("b").acquire()).unwrap();
    let waiting = closing.lock("b").wait(millis(20_000));
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    eventually("it waits", || seen(&other, "b").waiters.len() == 1);

    block_on(closing.close());
    assert!(!held.is_held());
    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Canceled);
    let taken = block_on(other.lock("a").try_acquire()).unwrap();
    assert!(taken.is_some(), "close waits until the store knows");
    eventually("the line is empty", || seen(&other, "b").waiters.is_empty());
    assert_eq!(block_on(closing.lock("c").acquire()).unwrap_err().kind(), ErrorKind::Canceled);
    drop(blocker);
}

pub fn blocking_calls_do_the_same(store: &impl Store) {
    let client = polylatch::blocking::Polylatch::connect(&store.url("")).unwrap();
    let guard = client.lock("a").lease(millis(5_000)).acquire().unwrap();
    assert!(client.lock("a").try_acquire().unwrap().is_none());
    let timeout = client.lock("a").wait(millis(20)).acquire().unwrap_err();
    assert_eq!(timeout.kind(), ErrorKind::WaitTimeout);
    let snapshot = client.list(&Default::default()).unwrap();
    assert_eq!(snapshot.locks.len(), 1);
    guard.release().unwrap();
    client.close();
}

pub fn a_guard_prints_what_the_resource_needs(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("orders/42").acquire()).unwrap();
    let (id, token) = (client.id(), guard.fencing_token());
    let text = guard.sequencer().to_string();
    assert_eq!(text, format!("name=orders/42; holder={id}; token={token}"));
    assert_eq!(text.parse::<polylatch::resource::Sequencer>().unwrap(), guard.sequencer());
}
