//! Leases that stay with their client after a release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::inspect::BreakRequest;
use polylatch::{ErrorKind, Guard, Lock, LockAll, Polylatch};

use super::{Store, block_on, eventually, eventually_within, millis, poll_at_most, seen};

const IDLE: Duration = Duration::from_secs(60);

/// Waiters of such clients learn of a grant by a push, or much later.
const BY_PUSH_ALONE: &str = "poll=20s&provisional=50s&lease=60s";
const PROMPTLY: Duration = Duration::from_secs(5);

fn kept(client: &Polylatch) -> Lock {
    client.lock("a").keep_idle(IDLE)
}

fn acquire(lock: &Lock) -> Guard {
    block_on(lock.acquire()).unwrap()
}

fn release(guard: &Guard) {
    block_on(guard.release()).unwrap();
}

/// As the store shows the holder; 0 if there is none.
fn shown(client: &Polylatch) -> u64 {
    seen(client, "a").holders.first().map_or(0, |holder| holder.fencing_token.unwrap().get())
}

/// An operator ends the lease that the store shows.
fn end_lease(operator: &Polylatch) {
    let expected = seen(operator, "a").holders[0].fencing_token.unwrap();
    let request = BreakRequest { name: "a".into(), expected, by: "test".into(), reason: "test".into() };
    block_on(operator.inspect().break_lease(&request)).unwrap();
}

pub fn a_kept_lock_is_entered_again_without_a_request(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let lock = kept(&client);
    let first = acquire(&lock);
    let granted = first.fencing_token();
    release(&first);
    let mut newest = granted;
    for number in 0..50 {
        // As a program does that names the lock where it needs it.
        let guard = acquire(&if number % 2 == 0 { lock.clone() } else { kept(&client) });
        assert!(guard.fencing_token() > newest, "{} after {newest}", guard.fencing_token());
        newest = guard.fencing_token();
        guard.check().unwrap();
        assert_eq!(shown(&other), granted.get(), "the lease is the same");
        if number % 2 == 0 { release(&guard) } else { drop(guard) }
    }
    let stats = client.stats();
    assert_eq!((stats.acquired, stats.held), (51, 0), "{stats:?}");

    block_on(client.close());
    let next = acquire(&other.lock("a"));
    assert!(next.fencing_token() > newest, "{} after {newest}", next.fencing_token());
    assert!(kept(&client).name() == "a" && block_on(kept(&client).acquire()).is_err(), "it is closed");
}

pub fn a_kept_lock_is_entered_and_left_at_once_or_not_at_all(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let lock = kept(&client);
    assert!(lock.enter_kept().is_none(), "nothing is kept");
    let first = acquire(&lock);
    assert!(lock.enter_kept().is_none(), "a caller is in");
    assert!(!first.leave_kept(), "the store has set no tokens aside yet");
    first.check().unwrap();
    release(&first);
    assert!(client.lock("a").enter_kept().is_none(), "it was not asked for");
    assert!(kept(&client).lease(Duration::from_secs(20)).enter_kept().is_none(), "another lease");
    let (mut newest, mut entered, mut left) = (first.fencing_token(), 0, 0);
    for _ in 0..50 {
        // Now and then the store is being asked whether it keeps the lease.
        let at_once = lock.enter_kept();
        entered += u32::from(at_once.is_some());
        let guard = at_once.unwrap_or_else(|| acquire(&lock));
        assert!(guard.fencing_token() > newest, "{} after {newest}", guard.fencing_token());
        newest = guard.fencing_token();
        assert!(lock.enter_kept().is_none() && !first.leave_kept());
        guard.check().unwrap();
        if guard.leave_kept() {
            left += 1;
            assert!(!guard.is_held() && !guard.leave_kept(), "it is released");
        } else {
            guard.check().unwrap();
        }
        release(&guard);
    }
    assert!(entered > 0 && left > 0, "{entered} entered and {left} left at once");
    assert_eq!(client.stats().acquired, 51);

    let last = acquire(&lock);
    let waiting = thread::spawn(move || acquire(&other.lock("a").wait(Duration::from_secs(20))));
    eventually("another one waits", || !seen(&client, "a").waiters.is_empty());
    // Whether this client knows of it by now or not, the other one gets it.
    if !last.leave_kept() {
        last.check().unwrap();
        release(&last);
    }
    assert!(waiting.join().unwrap().fencing_token() > last.fencing_token());
}

pub fn a_kept_lease_is_shown_as_one_that_is_free_for_the_next_caller(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let idle = || seen(&other, "a").holders.first().map(|holder| holder.idle_ago_ms);
    let first = acquire(&kept(&client));
    assert_eq!(idle(), Some(None), "nothing is kept before the first release");
    release(&first);
    let ago = idle().flatten().expect("it is kept");
    assert!(ago < 5_000, "{ago} ms");
    let second = acquire(&kept(&client));
    assert!(idle().flatten().is_some(), "the store is not told of a caller");
    let next = thread::spawn(move || acquire(&other.lock("a").wait(Duration::from_secs(20))));
    eventually("another one waits", || !seen(&client, "a").waiters.is_empty());
    release(&second);
    let next = next.join().unwrap();
    let shown = &seen(&client, "a").holders[0];
    assert_eq!((shown.fencing_token, shown.idle_ago_ms), (Some(next.fencing_token()), None));
}

pub fn another_client_has_a_kept_lock_released_at_once(store: &impl Store) {
    let (client, other) = (store.connect_with(BY_PUSH_ALONE), store.connect_with(BY_PUSH_ALONE));
    let mut newest = 0;
    for round in 0..5 {
        let lock = kept(&client);
        release(&acquire(&lock));
        let again = acquire(&lock);
        assert!(again.fencing_token().get() > newest);
        newest = again.fencing_token().get();
        release(&again);
        let started = Instant::now();
        let next = acquire(&other.lock("a"));
        assert!(started.elapsed() < PROMPTLY, "round {round}: after {:?}", started.elapsed());
        assert!(next.fencing_token().get() > newest, "{} after {newest}", next.fencing_token());
        newest = next.fencing_token().get();
        assert!(block_on(lock.try_acquire()).unwrap().is_none(), "it is not this client's any more");
        release(&next);
    }
}

pub fn a_kept_lock_in_use_is_handed_on_when_its_caller_leaves(store: &impl Store) {
    let (client, other) = (store.connect_with(BY_PUSH_ALONE), store.connect_with(BY_PUSH_ALONE));
    release(&acquire(&kept(&client)));
    let guard = acquire(&kept(&client));
    let waits = other.lock("a");
    let waiting = thread::spawn(move || acquire(&waits));
    eventually("it is queued", || seen(&client, "a").waiters.len() == 1);
    guard.check().unwrap();
    assert!(!waiting.is_finished());
    let started = Instant::now();
    release(&guard);
    let next = waiting.join().unwrap();
    assert!(started.elapsed() < PROMPTLY, "after {:?}", started.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(block_on(kept(&client).try_acquire()).unwrap().is_none());
}

pub fn a_try_elsewhere_is_refused_and_has_a_kept_lock_released(store: &impl Store) {
    let (client, other) = (store.connect_with(BY_PUSH_ALONE), store.connect_with(BY_PUSH_ALONE));
    release(&acquire(&kept(&client)));
    let started = Instant::now();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    eventually("it is released", || shown(&other) == 0);
    assert!(started.elapsed() < PROMPTLY, "after {:?}", started.elapsed());
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_some());
}

pub fn a_released_guard_knows_nothing_of_the_next_caller(store: &impl Store) {
    let client = store.connect();
    let first = acquire(&kept(&client));
    let mut lost = Box::pin(first.lost());
    let (mut ended, mut at_risk) = (Box::pin(first.ended()), Box::pin(first.endangered()));
    release(&first);
    release(&first);
    let second = acquire(&kept(&client));
    assert!(!first.is_held() && first.remaining().is_zero());
    assert_eq!(first.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(block_on(first.extend(IDLE)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(poll_at_most(2, ended.as_mut()), Some(None));
    assert!(poll_at_most(1, lost.as_mut()).is_none() && poll_at_most(1, at_risk.as_mut()).is_none());
    second.check().unwrap();

    // Its loss is that of the present caller alone.
    end_lease(&client);
    let third = acquire(&kept(&client));
    assert!(third.fencing_token() > second.fencing_token());
    block_on(second.lost());
    assert_eq!(block_on(second.release()).unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(poll_at_most(1, lost.as_mut()).is_none() && !first.is_held());
    third.check().unwrap();
}

pub fn a_kept_lease_that_is_broken_is_not_entered_again(store: &impl Store) {
    let (client, operator) = (store.connect_with(BY_PUSH_ALONE), store.connect());
    let first = acquire(&kept(&client));
    release(&first);
    end_lease(&operator);
    let stats = client.stats();
    let next = acquire(&operator.lock("a"));
    eventually("its client knows", || block_on(kept(&client).try_acquire()).unwrap().is_none());
    assert!(next.fencing_token() > first.fencing_token());
    assert_eq!(stats.losses(), 0, "no caller was in: {stats:?}");
}

pub fn a_kept_lease_is_renewed_and_released_when_it_was_idle_for_long_enough(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    let lease = store.safe();
    let idle_for = lease * 2;
    let lock = client.lock("a").lease(lease).keep_idle(idle_for);
    let first = acquire(&lock);
    let granted = first.fencing_token().get();
    // The caller is out before the release returns.
    let released = Instant::now();
    release(&first);
    while released.elapsed() < idle_for * 9 / 10 {
        let shown = shown(&other);
        // A busy machine may have looked too late.
        assert!(shown == granted || released.elapsed() >= idle_for, "{shown} in the place of {granted}");
        thread::sleep(millis(20));
    }
    eventually_within("it is released", idle_for, || shown(&other) == 0);
    assert!(released.elapsed() >= idle_for, "after {:?}", released.elapsed());
}

pub fn the_end_of_a_client_releases_what_it_keeps(store: &impl Store) {
    let other = store.connect_with(BY_PUSH_ALONE);
    for way in ["close", "drop"] {
        let client = store.connect_with(BY_PUSH_ALONE);
        release(&acquire(&kept(&client)));
        assert!(shown(&other) > 0);
        let started = Instant::now();
        match way {
            "close" => block_on(client.close()),
            _ => drop(client),
        }
        // A busy machine may not be done when the drop returns.
        eventually(way, || shown(&other) == 0);
        assert!(started.elapsed() < PROMPTLY, "{way}: after {:?}", started.elapsed());
    }
}

/// Callers of two clients that keep and of one that does not. Half of them enter and leave at once where they can.
pub fn callers_of_kept_locks_never_meet_under_load(store: &impl Store) {
    let [one, two, usual] = [(); 3].map(|()| store.connect());
    let inside = Arc::new(AtomicBool::new(false));
    let newest = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..6)
        .map(|number| {
            let lock = match number {
                0 | 1 => kept(&one),
                2 | 3 => kept(&two),
                _ => usual.lock("a"),
            };
            let (inside, newest) = (Arc::clone(&inside), Arc::clone(&newest));
            thread::spawn(move || {
                for _ in 0..60 {
                    let at_once = if number % 2 == 0 { lock.enter_kept() } else { None };
                    let guard = at_once.unwrap_or_else(|| acquire(&lock));
                    assert!(!inside.swap(true, Ordering::SeqCst), "two callers at once");
                    let before = newest.swap(guard.fencing_token().get(), Ordering::SeqCst);
                    assert!(before < guard.fencing_token().get(), "{} after {before}", guard.fencing_token());
                    assert!(inside.swap(false, Ordering::SeqCst));
                    if number % 2 > 0 || !guard.leave_kept() {
                        release(&guard);
                    }
                    // So that it comes to entries of a kept lease, too.
                    if number % 2 == 0 {
                        thread::sleep(millis(1));
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
}

pub fn what_cannot_be_kept_is_an_error_before_anything_is_sent(store: &impl Store) {
    let client = store.connect();
    let invalid = |lock: Lock, part: &str| {
        let error = block_on(lock.acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    for is_kept in [false, true] {
        // Also where a lease of that name is kept.
        if is_kept {
            assert!(seen(&client, "a").holders.is_empty());
            release(&acquire(&kept(&client)));
        }
        invalid(
            client.lock("a").keep_idle(millis(99)),
            "keep_idle is 99ms; it must be between 100ms and 86400s",
        );
        invalid(client.rw_lock("a").read().keep_idle(IDLE), "keep_idle is for a plain lock");
        invalid(client.semaphore("a", 2).permits(1).keep_idle(IDLE), "keep_idle is for a plain lock");
        invalid(kept(&client).owner("me"), "owner is about a single one");
        invalid(kept(&client).max_hold(IDLE), "max_hold is about");
        invalid(kept(&client).beat_every(IDLE), "beat_every is about");
        invalid(kept(&client).renew(false), "renew=false is about");
        invalid(kept(&client).steal("test"), "steal is about");
        invalid(kept(&client).wait(IDLE * 1_000_000), "wait is");
    }
    let set = LockAll::of([client.lock("b"), kept(&client)]);
    let error = block_on(set.acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("keep_idle is for one lock alone"), "{error}");
}

pub fn a_release_that_keeps_may_be_cancelled_at_any_point(store: &impl Store) {
    let (client, other) = (store.connect(), store.connect());
    for times in 0..6 {
        let guard = acquire(&kept(&client));
        let done = poll_at_most(times, guard.release()).is_some();
        drop(guard);
        // Another caller of this client enters, or another client.
        let next = acquire(&kept(&client));
        drop(next);
        let theirs = acquire(&other.lock("a").wait(millis(20_000)));
        release(&theirs);
        assert!(times > 0 || !done);
    }
}
