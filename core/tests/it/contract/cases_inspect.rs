//! Seeing who holds and who waits, and ending a lease.

use std::thread;
use std::time::{Duration, Instant};

use polylatch::inspect::{AuditEntry, BreakOutcome, BreakRequest, EventKind, LockView, Query, Snapshot};
use polylatch::{ErrorKind, FencingToken, LostReason, Polylatch};

use super::{Store, block_on, eventually, millis, poll_at_most, seen, stands_in_line};

fn list(client: &Polylatch) -> Snapshot {
    block_on(client.inspect().list(&Query::default())).unwrap()
}

fn order(name: &str, expected: FencingToken) -> BreakRequest {
    BreakRequest { name: name.into(), expected, by: "ann@desk".into(), reason: "holder is stuck".into() }
}

pub fn holders_waiters_and_clients_are_visible(store: &impl Store) {
    let (holder, watcher) = (store.connect(), store.connect());
    assert!(list(&watcher).locks.is_empty());
    let guard = block_on(holder.lock("a").label("import").lease(millis(8_000)).acquire()).unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|number| {
            let lock = holder.lock("a").label(format!("waiter {number}")).wait(millis(10_000));
            let thread = thread::spawn(move || drop(block_on(lock.acquire())));
            eventually("it waits", || seen(&watcher, "a").waiters.len() == number + 1);
            thread
        })
        .collect();
    eventually("the client said who it is", || !list(&watcher).clients.is_empty());

    let snapshot = list(&watcher);
    assert_eq!(snapshot.locks.len(), 1);
    let lock = &snapshot.locks[0];
    assert_eq!((lock.name.as_str(), &*lock.mode), ("a", "mutex"));
    let seen_holder = &lock.holders[0];
    assert_eq!(seen_holder.client.as_ref(), Some(holder.id()));
    assert_eq!(seen_holder.label, "import");
    assert_eq!(seen_holder.fencing_token, Some(guard.fencing_token()));
    assert_eq!(seen_holder.lease_ms, Some(8_000));
    match seen_holder.remaining_ms {
        Some(left) => assert!(store.tells_renewals() && left <= 8_000 && left > 500),
        None => assert!(!store.tells_renewals()),
    }
    assert!(seen_holder.held_for_ms.unwrap() < 10_000);
    assert!(snapshot.taken_at_ms.abs_diff(seen_holder.acquired_at_ms.unwrap()) < 10_000);
    assert_eq!(seen_holder.owner_digest.len(), 8);
    let labels: Vec<_> = lock.waiters.iter().map(|waiter| waiter.label.as_str()).collect();
    assert_eq!(labels, ["waiter 0", "waiter 1"]);
    assert_eq!(lock.waiters[1].position, 1);
    assert!(!lock.waiters[0].silent && lock.waiters[0].waited_ms < 10_000);
    let client = snapshot.clients.iter().find(|client| client.id == *holder.id()).unwrap();
    assert_eq!(client.pid, std::process::id());
    assert_eq!((client.language.as_str(), client.version.as_str()), ("rust", env!("CARGO_PKG_VERSION")));
    assert!(!client.program.is_empty() && !client.host.is_empty());
    if cfg!(target_os = "linux") {
        assert!(client.boot.is_some() && client.pid_namespace.is_some());
    }
    // A lease of 8 s starts with a shorter one, which is there to be renewed.
    assert_eq!(seen_holder.renewed, Some(true));
    let json = serde_json::to_string(&snapshot).unwrap();
    let back: polylatch::inspect::Snapshot = serde_json::from_str(&json).unwrap();
    assert_eq!(back.locks, snapshot.locks);
    assert_eq!((back.clients, back.audit), (snapshot.clients.clone(), snapshot.audit.clone()));

    block_on(guard.release()).unwrap();
    for waiter in waiters {
        waiter.join().unwrap();
    }
    eventually("nothing is left", || list(&watcher).locks.is_empty());
}

pub fn until_when_a_waiter_waits_is_visible(store: &impl Store) {
    let (holder, other) = (store.connect(), store.connect());
    let deadlines = |name: &str| -> Vec<Option<u64>> {
        let waiters = seen(&holder, name).waiters.into_iter();
        // From when it came, to be independent of the store's clock.
        waiters.map(|waiter| waiter.gives_up_at_ms.map(|at| at.saturating_sub(waiter.since_ms))).collect()
    };
    let near = |at: &Option<u64>, ms: u64| at.is_some_and(|at| at.abs_diff(ms) < 5_000);
    let _held = block_on(holder.lock("a").lease(store.safe()).acquire()).unwrap();
    let locks = [other.lock("a").wait(millis(30_000)), other.lock("a"), other.lock("a").wait(millis(90_000))];
    let mut waiting = Vec::new();
    for lock in &locks {
        waiting.push(Box::pin(lock.acquire()));
        eventually("it is queued", || {
            waiting.iter_mut().for_each(|one| assert!(poll_at_most(1, one.as_mut()).is_none()));
            seen(&holder, "a").waiters.len() == waiting.len()
        });
    }
    if !store.tells_deadlines() {
        assert_eq!(deadlines("a"), [None; 3], "what is not known is not invented");
        return;
    }
    let all = deadlines("a");
    assert!(near(&all[0], 30_000) && all[1].is_none() && near(&all[2], 90_000), "{all:?}");
    drop(waiting.remove(0));
    eventually("the first has left", || deadlines("a").len() == 2);
    let left = deadlines("a");
    assert_eq!(left, all[1..], "a deadline goes with its waiter, and no other changes");
    if !holder.capability().sharing {
        return;
    }
    let _written = block_on(holder.rw_lock("b").write().lease(store.safe()).acquire()).unwrap();
    let reader = other.rw_lock("b").read().wait(millis(30_000));
    let mut reads = Box::pin(reader.acquire());
    stands_in_line(reads.as_mut(), &holder, "b", 1);
    assert!(near(&deadlines("b")[0], 30_000), "{:?}", deadlines("b"));
}

pub fn renewals_are_visible(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").lease(store.safe()).acquire()).unwrap();
    eventually("it was renewed twice", || guard.renewals() >= 2);
    if !store.tells_renewals() {
        let holder = seen(&client, "a").holders.remove(0);
        assert_eq!(
            (holder.renewals, holder.renewed_ago_ms),
            (None, None),
            "what is not known is not invented"
        );
        return;
    }
    eventually("and one can see it", || {
        let lock = seen(&client, "a");
        lock.holders[0].renewals.unwrap() >= 2 && lock.holders[0].renewed_ago_ms.unwrap() < 3_000
    });
}

pub fn a_free_lock_is_shown_when_asked_for_by_name(store: &impl Store) {
    let client = store.connect();
    let lock = seen(&client, "never/used");
    assert_eq!(lock.name, "never/used");
    assert!(lock.holders.is_empty() && lock.waiters.is_empty());
}

pub fn a_query_picks_by_prefix_and_limit(store: &impl Store) {
    let client = store.connect();
    let guards: Vec<_> = ["b/2", "a/1", "a/2", "c"]
        .iter()
        .map(|name| block_on(client.lock(*name).acquire()).unwrap())
        .collect();
    let names = |query: &Query| {
        let snapshot = block_on(client.inspect().list(query)).unwrap();
        (snapshot.locks.into_iter().map(|lock| lock.name).collect::<Vec<_>>(), snapshot.truncated)
    };
    assert_eq!(names(&Query::default()), (vec!["a/1".into(), "a/2".into(), "b/2".into(), "c".into()], false));
    let prefix = Query { prefix: Some("a/".into()), ..Query::default() };
    assert_eq!(names(&prefix), (vec!["a/1".into(), "a/2".into()], false));
    let limited = Query { limit: Some(2), ..Query::default() };
    assert_eq!(names(&limited), (vec!["a/1".into(), "a/2".into()], true));
    drop(guards);
}

pub fn names_and_labels_come_back_as_they_were_given(store: &impl Store) {
    let client = store.connect();
    let name = "Größe/{42}%7B|груз 🔒 'q\"";
    let label = "50% | done {x} 🚚";
    let _guard = block_on(client.lock(name).label(label).acquire()).unwrap();
    let other = store.connect();
    let waiting = other.lock(name).label(label).wait(millis(10_000));
    let future = waiting.acquire();
    let mut future = std::pin::pin!(future);
    stands_in_line(future.as_mut(), &client, name, 1);
    let snapshot = list(&client);
    assert_eq!(snapshot.locks[0].name, name);
    assert_eq!(snapshot.locks[0].holders[0].label, label);
    assert_eq!(snapshot.locks[0].waiters[0].label, label);
}

pub fn a_broken_lease_goes_to_the_next_and_its_holder_is_notified(store: &impl Store) {
    let (holder, operator) = (store.connect(), store.connect());
    // A client that has waited once listens for pushes, so it is told at once.
    let guard = block_on(holder.lock("a").lease(store.safe()).wait(millis(100)).acquire()).unwrap();
    let lock = operator.lock("a").wait(millis(10_000));
    let next = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&operator, "a").waiters.len() == 1);
    let outcome = block_on(operator.inspect().break_lease(&order("a", guard.fencing_token()))).unwrap();
    let BreakOutcome::Broken { holder: broken, next: follower } = outcome else { panic!("{outcome:?}") };
    assert_eq!((&broken, follower.as_ref()), (holder.id(), Some(operator.id())));
    let reason = block_on(guard.lost());
    assert!(matches!(reason, LostReason::Broken | LostReason::Superseded), "{reason}");
    let next = next.join().unwrap();
    assert!(next.is_held() && next.fencing_token() > guard.fencing_token());
    let audit = list(&operator).audit;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].name.as_str(), audit[0].by.as_str()), ("a", "ann@desk"));
    assert_eq!((audit[0].reason.as_str(), &audit[0].holder), ("holder is stuck", holder.id()));
    assert_eq!(audit[0].fencing_token, guard.fencing_token());
}

pub fn a_lock_that_changed_hands_is_not_broken(store: &impl Store) {
    let client = store.connect();
    let old = block_on(client.lock("a").acquire()).unwrap();
    let looked_at = old.fencing_token();
    block_on(old.release()).unwrap();
    let free = block_on(client.inspect().break_lease(&order("a", looked_at))).unwrap();
    assert_eq!(free, BreakOutcome::Free);
    let new = block_on(client.lock("a").acquire()).unwrap();
    let changed = block_on(client.inspect().break_lease(&order("a", looked_at))).unwrap();
    assert_eq!(changed, BreakOutcome::ChangedHands { present: new.fencing_token() });
    new.check().unwrap();
    assert!(list(&client).audit.is_empty());
}

pub fn breaking_needs_a_reason(store: &impl Store) {
    let client = store.connect();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    for reason in ["", "  ", "a\u{1b}b", &"x".repeat(257)] {
        let request = BreakRequest { reason: reason.into(), ..order("a", guard.fencing_token()) };
        let error = block_on(client.inspect().break_lease(&request)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    guard.check().unwrap();
}

pub fn watching_tells_what_happened(store: &impl Store) {
    let client = store.connect();
    let mut watch = client.inspect().watch(Query::default(), millis(10));
    assert!(block_on(watch.next()).unwrap().events.is_empty());
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let granted = block_on(watch.next()).unwrap();
    assert_eq!(granted.events.len(), 1);
    assert_eq!(granted.events[0].kind, EventKind::Granted { fencing_token: Some(guard.fencing_token()) });
    assert_eq!(granted.events[0].client.as_ref(), Some(client.id()));
    block_on(guard.release()).unwrap();
    let released = block_on(watch.next()).unwrap();
    assert_eq!(released.events[0].kind, EventKind::Released);
}

/// Everything in a reading that does not change by the time that passes.
fn timeless(mut snapshot: Snapshot) -> (Vec<LockView>, Vec<String>, Vec<AuditEntry>) {
    for lock in &mut snapshot.locks {
        lock.ages(&mut |age, _| *age = 0);
    }
    let clients = snapshot.clients.iter().map(|client| client.id.to_string()).collect();
    (snapshot.locks, clients, snapshot.audit)
}

pub fn a_follower_sees_what_a_fresh_snapshot_shows(store: &impl Store) {
    // Sooner than everything is read anew in any case.
    let soon = Duration::from_millis(4_000);
    let (one, two) = (store.connect(), store.connect());
    let follow = |what: &str, change: &mut dyn FnMut()| {
        let mut follower = one.inspect().follow(Query::default());
        block_on(follower.read()).unwrap();
        let begun = Instant::now();
        change();
        loop {
            let followed = timeless((*block_on(follower.read()).unwrap()).clone());
            let fresh = timeless(list(&one));
            if followed == fresh {
                return;
            }
            assert!(begun.elapsed() < soon, "after {what}: {followed:#?} is not {fresh:#?}");
        }
    };
    // So long that a busy machine has two readings between two renewals.
    let lease = millis(6_000);
    let mut held = Vec::new();
    follow("nothing", &mut || {});
    follow("grants", &mut || {
        held.extend(["a", "b", "c"].map(|name| block_on(two.lock(name).lease(lease).acquire()).unwrap()));
    });
    follow("a renewal", &mut || {
        let before = held[0].renewals();
        eventually("it was renewed", || held[0].renewals() > before);
    });
    let mut waiter = None;
    follow("somebody waits", &mut || {
        let lock = one.lock("a").wait(millis(10_000));
        waiter = Some(thread::spawn(move || block_on(lock.acquire()).unwrap()));
        eventually("it waits", || seen(&one, "a").waiters.len() == 1);
    });
    follow("a hand-off", &mut || {
        block_on(held.remove(0).release()).unwrap();
        held.push(waiter.take().unwrap().join().unwrap());
    });
    follow("the same name again", &mut || {
        block_on(held.remove(0).release()).unwrap();
        held.push(block_on(one.lock("b").lease(lease).acquire()).unwrap());
    });
    follow("a break", &mut || {
        let token = held[0].fencing_token();
        block_on(two.inspect().break_lease(&order("c", token))).unwrap();
    });
    follow("the end of all", &mut || held.drain(..).for_each(|guard| drop(block_on(guard.release()))));
    let _unrenewed = block_on(two.lock("d").lease(store.time(500)).renew(false).acquire()).unwrap();
    follow("the end of a lease", &mut || eventually("it ended", || seen(&one, "d").holders.is_empty()));
}
