//! Several locks at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use polylatch::{ErrorKind, Guard, GuardSet, Lock, LockAll, Polylatch};

use super::{Store, block_on, eventually, millis, poll_at_most, seen, stands_in_line};

fn names(set: &GuardSet) -> Vec<&str> {
    set.guards().iter().map(Guard::name).collect()
}

fn try_all(client: &Polylatch, names: &[&str]) -> Option<GuardSet> {
    block_on(client.lock_all(names.iter().copied()).try_acquire()).unwrap()
}

fn is_free(client: &Polylatch, name: &str) -> bool {
    seen(client, name).holders.is_empty()
}

pub fn several_locks_are_all_acquired_or_none(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let all = block_on(one.lock_all(["b", "a", "c", "a"]).acquire()).unwrap();
    let names: Vec<_> = all.guards().iter().map(Guard::name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(block_on(two.lock_all(["c", "d"]).try_acquire()).unwrap().is_none());
    assert!(block_on(two.lock("d").try_acquire()).unwrap().is_some(), "nothing of a refused set is kept");
    let error = block_on(two.lock_all(["d", "c"]).wait(millis(100)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    all.check().unwrap();
    block_on(all.release()).unwrap();
    assert!(block_on(two.lock_all(["a", "b", "c", "d"]).wait(millis(5_000)).acquire()).is_ok());
}

pub fn sets_of_locks_do_not_deadlock(store: &impl Store) {
    let clients = [store.connect(), store.connect()];
    let sets = [["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]];
    let threads: Vec<_> = sets
        .into_iter()
        .enumerate()
        .map(|(number, names)| {
            let client = clients[number % 2].clone();
            thread::spawn(move || {
                for _ in 0..15 {
                    let all = block_on(client.lock_all(names).wait(millis(30_000)).acquire()).unwrap();
                    all.check().unwrap();
                    block_on(all.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

pub fn no_client_sees_a_part_of_a_set_that_was_not_available(store: &impl Store) {
    let (holder, tries, looks) = (store.connect(), store.connect(), store.connect());
    assert!(tries.capability().atomic_sets, "of these stores all can");
    let last = block_on(holder.lock("c").acquire()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let tries_made = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&tries_made);
    let trying = thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            assert!(try_all(&tries, &["a", "b", "c"]).is_none());
            made.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Whoever tries one of the others always gets it: nobody ever holds it, not for a moment.
    let mut round = 0;
    while round < 150 || (tries_made.load(Ordering::SeqCst) < 10 && !trying.is_finished()) {
        let name = ["a", "b"][round % 2];
        round += 1;
        let guard = block_on(looks.lock(name).try_acquire()).unwrap();
        let guard = guard.unwrap_or_else(|| panic!("round {round}: a part of the set was taken"));
        block_on(guard.release()).unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    trying.join().unwrap();
    block_on(last.release()).unwrap();
    let all = try_all(&looks, &["a", "b", "c"]).expect("nothing is left of the tries");
    block_on(all.release()).unwrap();
}

pub fn sets_that_many_try_are_acquired_by_one_at_a_time(store: &impl Store) {
    let inside = Arc::new(AtomicBool::new(false));
    let clients = [store.connect(), store.connect()];
    let threads: Vec<_> = (0..4_usize)
        .map(|number| {
            let (inside, client) = (Arc::clone(&inside), clients[number % 2].clone());
            // Every set has "b", and they name it in every order.
            let names = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"], ["d", "a", "b"]][number];
            thread::spawn(move || {
                let (mut had, mut newest) = (0, None);
                while had < 15 {
                    let Some(all) = try_all(&client, &names) else { continue };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two sets that meet");
                    all.check().unwrap();
                    let token = all.guards().iter().map(Guard::fencing_token).min();
                    assert!(token > newest, "tokens grow: {token:?} after {newest:?}");
                    newest = all.guards().iter().map(Guard::fencing_token).max();
                    had += 1;
                    inside.store(false, Ordering::SeqCst);
                    block_on(all.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

pub fn every_lock_of_a_set_is_a_lease_of_its_own(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let all = block_on(client.lock_all(["b", "a"]).each(|lock| lock.lease(store.safe())).acquire()).unwrap();
    let tokens: Vec<_> = all.guards().iter().map(Guard::fencing_token).collect();
    // A store may number its steps instead of its grants.
    assert!(tokens[0] <= tokens[1]);
    eventually("each is renewed", || all.guards().iter().all(|guard| guard.renewals() > 0));
    all.check().expect("they are renewed");
    block_on(all.guards()[0].release()).unwrap();
    let mine = block_on(other.lock("a").try_acquire()).unwrap().expect("it was given back alone");
    assert!(block_on(other.lock("b").try_acquire()).unwrap().is_none());
    block_on(all.release()).unwrap();
    mine.check().expect("releasing the set does not touch what others have by now");
    assert!(is_free(&client, "b"));
    drop(try_all(&client, &["b", "c"]).unwrap());
    eventually("dropping a set releases it", || is_free(&other, "b") && is_free(&other, "c"));
}

pub fn a_set_may_mix_kinds(store: &impl Store) {
    let (one, two) = (store.connect(), store.connect());
    let set = |client: &Polylatch| -> LockAll {
        let rw = client.rw_lock("rw");
        LockAll::of([client.semaphore("sem", 3).permits(2), client.lock("mutex"), rw.read()])
    };
    let all = block_on(set(&one).try_acquire()).unwrap().unwrap();
    assert_eq!(names(&all), ["mutex", "rw", "sem"]);
    let permits = |count| block_on(two.semaphore("sem", 3).try_acquire(count)).unwrap();
    assert!(permits(2).is_none(), "one is left");
    let reader = block_on(two.rw_lock("rw").read().try_acquire()).unwrap().expect("readers share");
    block_on(reader.release()).unwrap();
    assert!(block_on(two.rw_lock("rw").write().try_acquire()).unwrap().is_none());
    block_on(all.release()).unwrap();
    // The last one in order cannot be had: nothing of the others is kept.
    let two_of_three = permits(2).unwrap();
    assert!(block_on(set(&one).try_acquire()).unwrap().is_none());
    assert!(is_free(&one, "mutex") && is_free(&one, "rw"));
    block_on(two_of_three.release()).unwrap();
    drop(block_on(set(&one).wait(millis(5_000)).acquire()).unwrap());
}

pub fn a_name_in_use_as_another_kind_refuses_the_whole_set(store: &impl Store) {
    let client = store.connect();
    let reader = block_on(client.rw_lock("b").read().acquire()).unwrap();
    for wait in [false, true] {
        let set = client.lock_all(["a", "b", "c"]).wait(millis(5_000));
        let error = match wait {
            true => block_on(set.acquire()).map(drop).unwrap_err(),
            false => block_on(set.try_acquire()).map(drop).unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
        assert!(error.to_string().contains("\"b\"") && error.to_string().contains("a read-write"), "{error}");
    }
    assert!(is_free(&client, "a") && is_free(&client, "c"));
    reader.check().unwrap();
}

pub fn a_set_does_not_overtake_who_waits_for_one_of_its_locks(store: &impl Store) {
    let (holder, others) = (store.connect(), store.connect());
    let first = block_on(holder.rw_lock("b").read().acquire()).unwrap();
    let writing = others.rw_lock("b").write().wait(millis(10_000));
    let mut writer = std::pin::pin!(writing.acquire());
    stands_in_line(writer.as_mut(), &holder, "b", 1);
    let set = |lock: Lock| LockAll::of([holder.lock("a"), lock]);
    let reader = holder.rw_lock("b").read();
    assert!(block_on(set(reader.clone()).try_acquire()).unwrap().is_none(), "a writer waits before it");
    assert!(is_free(&holder, "a"));
    let barging = block_on(set(reader.fifo(false)).try_acquire()).unwrap();
    let barging = barging.expect("it may overtake, and readers share");
    block_on(barging.release()).unwrap();
    block_on(first.release()).unwrap();
    block_on(writer).unwrap().check().unwrap();
}

pub fn a_set_waits_in_order_and_holds_nothing_after_it_gave_up(store: &impl Store) {
    let (holder, waits) = (store.connect(), store.connect());
    let held = block_on(holder.lock("b").acquire()).unwrap();
    let set = waits.lock_all(["c", "b", "a"]).wait(millis(10_000));
    let waiting = thread::spawn(move || block_on(set.acquire()).unwrap());
    eventually("it waits for b", || seen(&holder, "b").waiters.len() == 1);
    assert!(!is_free(&holder, "a"), "what comes before is held meanwhile");
    assert!(is_free(&holder, "c"), "what comes after is not");
    block_on(held.release()).unwrap();
    let all = waiting.join().unwrap();
    assert_eq!(names(&all), ["a", "b", "c"]);
    block_on(all.release()).unwrap();

    let held = block_on(holder.lock("b").acquire()).unwrap();
    let error = block_on(store.connect().lock_all(["a", "b"]).wait(millis(200)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    assert!(error.to_string().contains("b"), "{error}");
    eventually("nothing is left", || is_free(&holder, "a") && seen(&holder, "b").waiters.is_empty());
    held.check().unwrap();
}

pub fn an_owner_id_enters_again_through_a_set(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let mine = block_on(client.lock("b").owner("job-7").acquire()).unwrap();
    let set = |client: &Polylatch, owner: &'static str| {
        client.lock_all(["a", "b"]).each(move |lock| lock.owner(owner))
    };
    assert!(block_on(set(&client, "job-8").try_acquire()).unwrap().is_none());
    assert!(block_on(set(&other, "job-7").try_acquire()).unwrap().is_none(), "within one client only");
    let all = block_on(set(&client, "job-7").try_acquire()).unwrap().expect("it holds one of them already");
    assert_eq!(all.guards()[1].fencing_token(), mine.fencing_token());
    let again = block_on(client.lock("a").owner("job-7").try_acquire()).unwrap().expect("it holds it");
    assert_eq!(again.fencing_token(), all.guards()[0].fencing_token());
    block_on(all.release()).unwrap();
    assert!(!is_free(&other, "a") && !is_free(&other, "b"), "each has another guard");
    // A set that cannot be had leaves the guard of what was held before alone.
    let third = block_on(other.lock("c").acquire()).unwrap();
    let more = client.lock_all(["b", "c"]).each(|lock| lock.owner("job-7"));
    assert!(block_on(more.try_acquire()).unwrap().is_none());
    mine.check().unwrap();
    for guard in [mine, again, third] {
        block_on(guard.release()).unwrap();
    }
    assert!(is_free(&other, "a") && is_free(&other, "b"));
}

pub fn impossible_sets_are_errors_before_anything_is_sent(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let many: Vec<String> = (0..129).map(|number| format!("n{number}")).collect();
    let nothing: [&str; 0] = [];
    let rw = client.rw_lock("a");
    for (set, part) in [
        (client.lock_all(nothing), "at least one"),
        (client.lock_all(many), "129 names; 1 to 128"),
        (LockAll::of([rw.read(), rw.write()]), "conflicting modes"),
        (LockAll::of([client.lock("a"), other.lock("b")]), "different clients"),
        (client.lock_all(["a", ""]), "name"),
        (LockAll::of([client.lock("a"), client.semaphore("b", 2).permits(3)]), "3 permits"),
        (client.lock_all(["a"]).each(|lock| lock.lease(millis(1))), "lease"),
        (client.lock_all(["a"]).wait(std::time::Duration::MAX), "wait"),
    ] {
        for error in [block_on(set.acquire()).map(drop), block_on(set.try_acquire()).map(drop)] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    assert!(is_free(&client, "a"));
}

pub fn a_set_cancelled_at_any_point_leaves_nothing(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    for times in 1..6 {
        let set = client.lock_all(["a", "b"]);
        drop(poll_at_most(times, set.acquire()));
        eventually("all are free again", || is_free(&other, "a") && is_free(&other, "b"));
        let all = block_on(other.lock_all(["a", "b"]).wait(millis(5_000)).acquire()).unwrap();
        block_on(all.release()).unwrap();
    }
}
