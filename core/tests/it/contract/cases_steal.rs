//! Ending the holders' leases and entering before all waiters.

use std::sync::{Arc, Mutex};
use std::thread;

use polylatch::inspect::Query;
use polylatch::{ErrorKind, Lock, LockAll, LostReason, Polylatch};

use super::{Store, block_on, eventually, millis, seen};

fn audit(client: &Polylatch) -> Vec<(String, String, u64)> {
    let entries = block_on(client.inspect().list(&Query::default())).unwrap().audit;
    entries.into_iter().map(|entry| (entry.by, entry.reason, entry.fencing_token.get())).collect()
}

pub fn a_thief_enters_before_all_waiters(store: &impl Store) {
    for kind in ["mutex", "writer"] {
        let (holder, waiters, thief) = (store.connect(), store.connect(), store.connect());
        let lock = |client: &Polylatch| match kind {
            "mutex" => client.lock(kind),
            _ => client.rw_lock(kind).write(),
        };
        // A client that has waited once listens for pushes, so it is notified at once.
        let guard = block_on(lock(&holder).lease(store.safe()).wait(millis(100)).acquire()).unwrap();
        let entered = Arc::new(Mutex::new(Vec::new()));
        let queue: Vec<_> = (0..5)
            .map(|number| {
                let (lock, entered) = (lock(&waiters).wait(millis(20_000)), Arc::clone(&entered));
                let waiting = thread::spawn(move || {
                    let guard = block_on(lock.acquire()).unwrap();
                    entered.lock().unwrap().push(number);
                    block_on(guard.release()).unwrap();
                });
                eventually("it waits", || seen(&thief, kind).waiters.len() == number + 1);
                waiting
            })
            .collect();

        let stolen = block_on(lock(&thief).steal("the page reloads").wait(millis(10_000)).acquire()).unwrap();
        assert!(stolen.fencing_token() > guard.fencing_token());
        let reason = block_on(guard.lost());
        assert!(matches!(reason, LostReason::Broken | LostReason::Superseded), "{reason}");
        let view = seen(&thief, kind);
        assert_eq!(view.holders.len(), 1);
        assert_eq!(view.holders[0].fencing_token, Some(stolen.fencing_token()));
        assert_eq!(view.waiters.len(), 5, "no waiter was granted it in between");
        assert!(entered.lock().unwrap().is_empty());
        let expected = (thief.id().to_string(), "the page reloads".to_owned(), guard.fencing_token().get());
        assert_eq!(audit(&thief)[0], expected);

        // It is a lease like any other, and the queue goes on in its order.
        eventually("it is renewed", || stolen.renewals() > 0);
        block_on(stolen.release()).unwrap();
        for waiting in queue {
            waiting.join().unwrap();
        }
        assert_eq!(*entered.lock().unwrap(), [0, 1, 2, 3, 4]);
    }
}

pub fn a_thief_ends_every_reader(store: &impl Store) {
    let (readers, thief) = (store.connect(), store.connect());
    let reading: Vec<_> = (0..3)
        .map(|_| {
            block_on(readers.rw_lock("a").read().lease(store.safe()).wait(millis(100)).acquire()).unwrap()
        })
        .collect();
    let stolen = block_on(thief.rw_lock("a").write().steal("test").try_acquire()).unwrap().unwrap();
    for reader in &reading {
        block_on(reader.lost());
        assert!(reader.fencing_token() < stolen.fencing_token());
    }
    let mut tokens: Vec<_> = audit(&thief).into_iter().map(|(_, _, token)| token).collect();
    tokens.reverse();
    assert_eq!(tokens, reading.iter().map(|reader| reader.fencing_token().get()).collect::<Vec<_>>());
    assert_eq!(seen(&thief, "a").holders.len(), 1);
    stolen.check().unwrap();
}

pub fn the_last_thief_has_the_lock(store: &impl Store) {
    let client = store.connect();
    let free = block_on(client.lock("a").steal("test").acquire()).unwrap();
    assert!(audit(&client).is_empty(), "no lease was ended");
    let other = store.connect();
    let thieves: Vec<_> =
        (0..4).map(|_| block_on(other.lock("a").steal("test").acquire()).unwrap()).collect();
    let (last, before) = thieves.split_last().unwrap();
    for robbed in before {
        block_on(robbed.lost());
    }
    block_on(free.lost());
    last.check().unwrap();
    assert_eq!(audit(&client).len(), 4);
}

pub fn impossible_thefts_are_errors_and_end_nothing(store: &impl Store) {
    let client = store.connect();
    let reader = block_on(client.rw_lock("a").read().acquire()).unwrap();
    let invalid = |lock: Lock, part: &str| {
        let error = block_on(lock.acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    invalid(client.rw_lock("a").read().steal("test"), "only an exclusive lock can be stolen");
    invalid(client.semaphore("b", 2).permits(2).steal("test"), "only an exclusive lock can be stolen");
    invalid(client.rw_lock("a").write().owner("me").steal("test"), "leave steal or owner out");
    for reason in ["", "  ", "a\u{1b}b", &"x".repeat(257)] {
        invalid(client.rw_lock("a").write().steal(reason), "the reason of a break");
    }
    let set = LockAll::of([client.lock("b"), client.rw_lock("a").write().steal("test")]);
    let error = block_on(set.acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("steal is for one lock alone"), "{error}");
    // Another kind of lock is no holder to end.
    let error = block_on(client.lock("a").steal("test").acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
    reader.check().unwrap();
    block_on(reader.release()).unwrap();
    assert!(audit(&client).is_empty());
}

pub fn a_theft_cancelled_at_any_point_leaves_nothing(store: &impl Store) {
    let other = store.connect();
    for polls in 1..6 {
        let client = store.connect();
        let holder = block_on(other.lock("a").lease(store.safe()).acquire()).unwrap();
        let lock = client.lock("a").steal("test");
        drop(super::poll_at_most(polls, lock.acquire()));
        drop(holder);
        // Until then a request that had left may end any lease that it finds.
        block_on(client.close());
        let next = other.lock("a").wait(millis(10_000));
        block_on(block_on(next.acquire()).expect("nothing is left of the thief").release()).unwrap();
    }
}
