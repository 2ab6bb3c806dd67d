//! Another length for a lease that is held.

use std::thread;

use polylatch::{ErrorKind, Guard, Lock, LostReason, Polylatch};

use super::{Store, block_on, eventually, millis, seen};

/// A lock of every kind that the store has, with names that begin so.
fn every_kind(client: &Polylatch, begins: &str) -> Vec<Lock> {
    let name = |kind: &str| format!("{begins}/{kind}");
    let mut locks = vec![client.lock(name("mutex"))];
    if client.capability().sharing {
        locks.push(client.rw_lock(name("read")).read());
        locks.push(client.rw_lock(name("write")).write());
        locks.push(client.semaphore(name("permits"), 3).permits(2));
    }
    locks
}

/// Another client finds the lock in use, and changes nothing by asking.
fn excludes(other: &Polylatch, guard: &Guard) {
    let name = guard.name();
    let rival = match name.rsplit_once('/').unwrap().1 {
        "mutex" => other.lock(name),
        "permits" => other.semaphore(name, 3).permits(2),
        _ => other.rw_lock(name).write(),
    };
    assert!(block_on(rival.try_acquire()).unwrap().is_none(), "{name}");
    guard.check().unwrap_or_else(|error| panic!("{name}: {error}"));
}

pub fn an_extended_lease_outlives_its_first_length_and_a_shortened_one_its_new_one(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let (short, long) = (millis(3_000), millis(20_000));
    let acquire = |begins, lease| -> Vec<Guard> {
        let locks = every_kind(&client, begins).into_iter().map(|lock| lock.lease(lease).renew(false));
        locks.map(|lock| block_on(lock.acquire()).unwrap()).collect()
    };
    let (grows, shrinks) = (acquire("grows", short), acquire("shrinks", long));
    for guard in &grows {
        let before = guard.valid_until();
        let deadline = block_on(guard.extend(long)).unwrap();
        assert_eq!(deadline, guard.valid_until());
        assert!(deadline > before && guard.remaining() > millis(15_000), "{:?}", guard.remaining());
    }
    for guard in &shrinks {
        let before = guard.valid_until();
        assert_eq!(block_on(guard.extend(short)).unwrap(), before, "{}", guard.name());
    }
    let all = || grows.iter().chain(&shrinks);
    // Whoever asks cuts a lease that is longer than its record says.
    all().for_each(|guard| excludes(&other, guard));
    thread::sleep(short + millis(300));
    for guard in all() {
        excludes(&other, guard);
        let holder = seen(&other, guard.name()).holders.remove(0);
        let left = guard.remaining().as_millis() as u64;
        assert!(holder.remaining_ms.is_some_and(|seen| seen >= left), "{}: {holder:?}", guard.name());
        assert_eq!(holder.renewals, Some(0), "{}", guard.name());
    }
    for guard in all() {
        block_on(guard.release()).unwrap();
        assert!(seen(&other, guard.name()).holders.is_empty(), "{}", guard.name());
    }
}

pub fn renewals_use_the_new_length(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let locks = every_kind(&client, "a").into_iter().map(|lock| lock.lease(millis(3_000)));
    let guards: Vec<_> = locks.map(|lock| block_on(lock.acquire()).unwrap()).collect();
    for guard in &guards {
        block_on(guard.extend(millis(6_000))).unwrap();
    }
    eventually("each was renewed by its new length", || guards.iter().all(|guard| guard.renewals() >= 2));
    for guard in &guards {
        excludes(&other, guard);
        let holder = seen(&other, guard.name()).holders.remove(0);
        assert_eq!(holder.lease_ms, Some(6_000), "{}", guard.name());
        assert!(holder.remaining_ms.is_some_and(|left| left > 3_000), "{}: {holder:?}", guard.name());
        block_on(guard.release()).unwrap();
    }
}

pub fn impossible_extensions_are_errors_and_change_nothing(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    for length in [millis(1), client.capability().max_lease + millis(1)] {
        let error = block_on(guard.extend(length)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("lease is") && error.to_string().contains("between"), "{error}");
    }
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    let error = block_on(guard.extend(millis(5_000))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let lost = block_on(client.lock("b").lease(store.time(200)).renew(false).acquire()).unwrap();
    block_on(lost.lost());
    let error = block_on(lost.extend(millis(5_000))).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Expired), "{error}");
}
