//! Locks on a clock that is moved by hand: hours of leases pass, and no test sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use polylatch::{BootInstant, ClientBuilder, Clock, ErrorKind, LostReason, ManualClock, Polylatch};

use crate::contract::{block_on, eventually, poll_at_most};

const LEASE: Duration = Duration::from_secs(3600);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(BootInstant::from_nanos(1_000_000_000_000_000)))
}

fn connect(url: &str, clock: &Arc<ManualClock>) -> Polylatch {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    block_on(ClientBuilder::default().url(url).clock(clock).connect()).unwrap()
}

/// Waits until something is so, while the clock goes on: renewals that are due gather for a few milliseconds.
fn goes_on_until(what: &str, clock: &ManualClock, mut so: impl FnMut() -> bool) {
    eventually(what, || {
        clock.advance(Duration::from_millis(1));
        so()
    });
}

#[test]
fn hours_of_a_lock_pass_in_an_instant() {
    let started = Instant::now();
    let clock = clock();
    let client = connect("memory:hours", &clock);
    let other = connect("memory:hours", &clock);

    // Acquire: the first lease is short, and the watchdog makes it long.
    let guard = block_on(client.lock("report").lease(LEASE).acquire()).unwrap();
    assert!(guard.remaining() <= Duration::from_secs(3));
    clock.advance(Duration::from_secs(2));
    goes_on_until("it is renewed", &clock, || guard.remaining() > LEASE / 2);

    // Renew: ten hours, twenty minutes at a time.
    for _ in 0..30 {
        clock.advance(LEASE / 3);
        goes_on_until("it is renewed", &clock, || guard.remaining() > LEASE * 9 / 10);
        assert!(block_on(other.lock("report").try_acquire()).unwrap().is_none());
    }

    // Lose: the machine sleeps for longer than the lease.
    let mut lost = Box::pin(guard.lost());
    assert!(poll_at_most(1, lost.as_mut()).is_none());
    clock.advance(LEASE * 2);
    assert!(!guard.is_held(), "the first look at the clock tells");
    assert_eq!(block_on(lost), LostReason::Expired);

    // Acquire again: the other client has it at once, with a larger token, and gives up waiting on time.
    let next =
        block_on(other.lock("report").lease(LEASE).try_acquire()).unwrap().expect("the lease has expired");
    assert!(next.fencing_token() > guard.fencing_token());
    clock.advance(Duration::from_secs(2));
    goes_on_until("it is renewed", &clock, || next.remaining() > LEASE / 2);
    let asked = client.lock("report").wait(LEASE / 2);
    let mut waiting = Box::pin(asked.acquire());
    assert!(poll_at_most(2, waiting.as_mut()).is_none());
    clock.advance(LEASE / 2 - Duration::from_secs(10));
    goes_on_until("the holder is renewed", &clock, || next.remaining() > LEASE * 9 / 10);
    assert!(poll_at_most(2, waiting.as_mut()).is_none(), "seconds are left to wait");
    clock.advance(Duration::from_secs(10));
    assert_eq!(block_on(waiting).unwrap_err().kind(), ErrorKind::WaitTimeout);
    block_on(next.release()).unwrap();
    assert!(block_on(client.lock("report").try_acquire()).unwrap().is_some());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?} for fourteen hours", started.elapsed());
}

#[test]
fn limits_of_the_work_follow_the_clock_too() {
    let clock = clock();
    let client = connect("memory:", &clock);
    let guard = block_on(client.lock("job").lease(LEASE).max_hold(LEASE * 2).acquire()).unwrap();
    let mut endangered = Box::pin(guard.endangered());
    clock.advance(Duration::from_secs(2));
    goes_on_until("it is renewed", &clock, || guard.remaining() > LEASE / 2);
    clock.advance(LEASE / 3);
    goes_on_until("it is renewed", &clock, || guard.remaining() > LEASE * 9 / 10);
    assert!(poll_at_most(1, endangered.as_mut()).is_none());
    // From an hour before the limit on, no renewal reaches beyond it.
    clock.advance(LEASE * 2 / 3);
    goes_on_until("it is renewed up to the limit", &clock, || guard.remaining() > LEASE * 9 / 10);
    clock.advance(LEASE * 9 / 10);
    block_on(endangered);
    assert!(guard.is_held());
    clock.advance(LEASE / 10);
    assert!(!guard.is_held(), "the limit ends it");
}

#[test]
fn a_clock_of_ones_own_is_for_memory() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    for url in [url.as_str(), "redis://127.0.0.1:1", "consul://127.0.0.1:1"] {
        let clock = clock() as Arc<dyn Clock>;
        let error = block_on(ClientBuilder::default().url(url).clock(clock).connect()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("is for memory:"), "{error}");
    }
}
