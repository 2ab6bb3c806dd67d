//! Keeping a lease, and losing it.

use std::thread;
use std::time::{Duration, Instant};

use polylatch::{ErrorKind, LostReason};

use super::{Store, block_on, eventually_within, millis, seen};

pub fn a_held_lock_is_renewed_beyond_its_lease(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let guard = block_on(client.lock("a").lease(store.safe()).acquire()).unwrap();
    let started = Instant::now();
    while guard.renewals() < 3 || started.elapsed() < store.safe() {
        guard.check().unwrap();
        assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
        assert!(started.elapsed() < Duration::from_secs(60), "{} renewals", guard.renewals());
        thread::sleep(millis(20));
    }
    block_on(guard.release()).unwrap();
}

pub fn a_lease_without_renewal_ends_and_its_holder_knows_first(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let guard = block_on(client.lock("a").lease(store.time(400)).renew(false).acquire()).unwrap();
    let next = block_on(other.lock("a").wait(store.time(5_000)).acquire()).unwrap();
    // Not "soon afterwards": the holder's own clock must have ended the lease already.
    assert!(!guard.is_held());
    assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Expired));
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
}

pub fn the_hold_limit_ends_a_lease_that_would_be_renewed(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let started = Instant::now();
    let guard = block_on(client.lock("a").lease(store.safe()).max_hold(store.safe() / 2).acquire()).unwrap();
    assert_eq!(block_on(guard.lost()), LostReason::HoldLimit);
    let held = started.elapsed();
    // Before the lease would have ended without a renewal.
    assert!(held > store.safe() / 5 * 2 && held < store.safe() * 9 / 10, "{held:?}");
    let _next = block_on(other.lock("a").wait(store.time(5_000)).acquire()).unwrap();
}

pub fn work_that_stops_beating_loses_its_lock(store: &impl Store) {
    let client = store.connect();
    let every = millis(1_000);
    let guard = block_on(client.lock("a").lease(store.safe()).beat_every(every).acquire()).unwrap();
    let started = Instant::now();
    while started.elapsed() < every * 4 / 3 {
        thread::sleep(millis(50));
        guard.beat();
        guard.check().unwrap();
    }
    let stopped = Instant::now();
    assert_eq!(block_on(guard.lost()), LostReason::NoProgress);
    assert!(stopped.elapsed() < every * 2, "{:?}", stopped.elapsed());
}

pub fn many_leases_are_renewed_together(store: &impl Store) {
    let client = store.connect();
    let guards: Vec<_> = (0..store.crowd(300))
        .map(|number| block_on(client.lock(format!("many/{number}")).lease(store.safe()).acquire()).unwrap())
        .collect();
    eventually_within("each was renewed twice", millis(60_000), || {
        for guard in &guards {
            guard.check().unwrap();
        }
        guards.iter().all(|guard| guard.renewals() >= 2)
    });
}

pub fn a_lost_guard_says_so_and_cannot_be_released(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").lease(store.time(200)).renew(false).acquire()).unwrap();
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    let error = block_on(guard.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    assert_eq!(block_on(guard.lost()), LostReason::Expired, "it stays lost");
    let next = block_on(client.lock("a").wait(store.time(2_000)).acquire()).unwrap();
    drop(guard);
    next.check().unwrap();
    assert_eq!(seen(&client, "a").holders.len(), 1);
}

pub fn a_guard_is_endangered_before_it_reaches_its_hold_limit(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").lease(millis(2_000)).max_hold(millis(2_000)).acquire()).unwrap();
    block_on(guard.endangered());
    assert!(guard.is_held(), "the warning comes while there is time to act");
    assert_eq!(block_on(guard.lost()), LostReason::HoldLimit);
}
