//! What not every store can do. A store that declares an ability has to show it; one that does not has to
//! refuse whatever needs it, with a typed error and before anything is sent.

use polylatch::{ErrorKind, Lock};

use super::{Store, block_on, millis, seen};

/// First come, first served.
pub fn order<S: Store>(store: &S, case: fn(&S)) {
    if store.connect().capability().fifo {
        return case(store);
    }
    let client = store.connect();
    refused(store, &client.lock("a").fifo(true), "first come, first served");
    // Nobody is refused who did not ask for it.
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_some());
    assert!(block_on(client.lock("b").fifo(false).try_acquire()).unwrap().is_some());
}

/// Read-write locks and semaphores.
pub fn sharing<S: Store>(store: &S, case: fn(&S)) {
    if store.connect().capability().sharing {
        return case(store);
    }
    let client = store.connect();
    refused(store, &client.rw_lock("a").read(), "read-write lock");
    refused(store, &client.rw_lock("a").write(), "read-write lock");
    refused(store, &client.semaphore("a", 3).permits(1), "semaphore of 3 permits");
}

/// Another length for a lease that is held. On Consul, etcd and ZooKeeper it is that of a session, which cannot be changed.
pub fn changing_leases<S: Store>(store: &S, case: fn(&S)) {
    let client = store.connect();
    let backend = client.capability().backend;
    if !matches!(backend, "consul" | "etcd" | "zookeeper") {
        return case(store);
    }
    let guard = block_on(client.lock("a").lease(millis(15_000)).acquire()).unwrap();
    let error = block_on(guard.extend(millis(60_000))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(&format!("{backend} cannot change the lease")), "{error}");
    for part in ["TTL", "acquire it with lease=60s", "by 15s to renew"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    // What it can do: renew now, and hold for the whole lease at once.
    let before = guard.valid_until();
    assert!(block_on(guard.extend(millis(15_000))).unwrap() > before);
    guard.check().unwrap();
    assert_eq!(guard.renewals(), 1);
}

/// Ending the holders' leases and entering in one step.
pub fn stealing<S: Store>(store: &S, case: fn(&S)) {
    let client = store.connect();
    if !matches!(client.capability().backend, "redlock" | "consul" | "etcd" | "zookeeper") {
        return case(store);
    }
    let holder = block_on(client.lock("b").acquire()).unwrap();
    let error = block_on(store.connect().lock("b").steal("test").acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("break the lease and acquire the lock"), "{error}");
    holder.check().unwrap();
    refused(store, &client.lock("a").steal("test"), "in one step");
}

/// Leases that stay with their client after a release.
pub fn keeping<S: Store>(store: &S, case: fn(&S)) {
    let client = store.connect();
    if matches!(client.capability().backend, "memory" | "redis") {
        return case(store);
    }
    refused(store, &client.lock("a").keep_idle(millis(1_000)), "cannot keep a lease after its release");
}

/// Several locks in one step. Without it they are taken one after the other, and are had together or not
/// at all in the end.
pub fn atomic_sets<S: Store>(store: &S, case: fn(&S)) {
    let client = store.connect();
    if client.capability().atomic_sets {
        return case(store);
    }
    let other = store.connect();
    let one = block_on(other.lock("b").acquire()).unwrap();
    assert!(block_on(client.lock_all(["a", "b"]).try_acquire()).unwrap().is_none());
    drop(block_on(other.lock("a").wait(millis(5_000)).acquire()).expect("nothing is kept of a set"));
    block_on(one.release()).unwrap();
    let set = block_on(client.lock_all(["a", "b"]).acquire()).unwrap();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    assert!(block_on(other.lock("b").try_acquire()).unwrap().is_none());
    drop(set);
}

fn refused(store: &impl Store, lock: &Lock, part: &str) {
    for result in [block_on(lock.try_acquire()), block_on(lock.acquire()).map(Some)] {
        let error = result.expect_err("the store declares that it cannot do this");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.context().lock.as_deref(), Some("a"));
    }
    let left = seen(&store.connect(), "a");
    assert!(left.holders.is_empty() && left.waiters.is_empty(), "{left:?}");
}
