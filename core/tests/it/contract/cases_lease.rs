//! Keeping a lease, and losing it.

use std::thread;
use std::time::Instant;

use polylatch::{ErrorKind, LostReason};

use super::{Store, block_on, eventually, seen};

pub fn a_held_lock_is_renewed_beyond_its_lease(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let guard = block_on(client.lock("a").lease(store.time(600)).acquire()).unwrap();
    let started = Instant::now();
    while started.elapsed() < store.time(1_800) {
        guard.check().unwrap();
        assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
        thread::sleep(store.time(20));
    }
    assert!(guard.renewals() >= 4, "{} renewals", guard.renewals());
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
    let guard =
        block_on(client.lock("a").lease(store.time(300)).max_hold(store.time(700)).acquire()).unwrap();
    assert_eq!(block_on(guard.lost()), LostReason::HoldLimit);
    let held = started.elapsed();
    assert!(held > store.time(550) && held < store.time(950), "{held:?}");
    let _next = block_on(other.lock("a").wait(store.time(2_000)).acquire()).unwrap();
}

pub fn work_that_stops_beating_loses_its_lock(store: &impl Store) {
    let client = store.connect();
    let guard =
        block_on(client.lock("a").lease(store.time(400)).beat_every(store.time(300)).acquire()).unwrap();
    for _ in 0..15 {
        thread::sleep(store.time(50));
        guard.beat();
        guard.check().unwrap();
    }
    let stopped = Instant::now();
    assert_eq!(block_on(guard.lost()), LostReason::NoProgress);
    assert!(stopped.elapsed() < store.time(600), "{:?}", stopped.elapsed());
}

pub fn many_leases_are_renewed_together(store: &impl Store) {
    let client = store.connect();
    let guards: Vec<_> = (0..300)
        .map(|number| {
            block_on(client.lock(format!("many/{number}")).lease(store.time(2_000)).acquire()).unwrap()
        })
        .collect();
    eventually("each was renewed twice", || guards.iter().all(|guard| guard.renewals() >= 2));
    for guard in &guards {
        guard.check().unwrap();
    }
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
    let guard =
        block_on(client.lock("a").lease(store.time(600)).max_hold(store.time(600)).acquire()).unwrap();
    block_on(guard.endangered());
    assert!(guard.is_held(), "the warning comes while there is time to act");
    assert_eq!(block_on(guard.lost()), LostReason::HoldLimit);
}
