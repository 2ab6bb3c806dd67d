//! Locks inside the caller's own transaction, against leases on the same name, on real PostgreSQL and MariaDB servers.

#![cfg(all(feature = "postgres", feature = "mysql", unix))]

use std::sync::mpsc;
use std::thread;

use mysql_async::prelude::Queryable;

use crate::contract::{Store, block_on, millis, seen, stands_in_line};
use crate::guarded_sql::{Database, Driver};
use polylatch::resource::TransactionLock;

/// A transaction of the application: the fence, or nothing where the lock is not free.
fn take(database: &mut Database, lock: &TransactionLock) -> Option<u64> {
    if let (Some(prepare), Driver::Mysql(conn)) = (lock.prepare_sql(), &mut database.driver) {
        database.runtime.block_on(conn.exec_drop(prepare, (lock.name(),))).unwrap();
    }
    database.run("BEGIN");
    match &mut database.driver {
        Driver::Postgres(client) => {
            let row = database.runtime.block_on(client.query_opt(lock.take_sql(), &[&lock.name()])).unwrap();
            row.map(|row| row.get::<_, i64>(0).try_into().unwrap())
        }
        Driver::Mysql(conn) => database.runtime.block_on(async {
            conn.exec_drop(lock.take_sql(), (lock.name(),)).await.unwrap();
            let changed = conn.affected_rows();
            let fence = conn.query_first(lock.fence_sql().unwrap()).await.unwrap();
            fence.filter(|_| changed == 1)
        }),
    }
}

/// Runs a story on each server; it connects the application as often as it wants.
fn each(story: impl Fn(&dyn Store, &dyn Fn() -> Database, &dyn Fn(&str) -> TransactionLock)) {
    let store = crate::contract_postgres::fresh("");
    story(&store, &Database::postgres, &|name| TransactionLock::postgres(&store.schema, name).unwrap());
    let store = crate::contract_mariadb::fresh();
    let open = || Database::mariadb(&store.database, true);
    story(&store, &open, &|name| TransactionLock::mysql(name).unwrap());
}

#[test]
fn a_transaction_is_refused_while_a_client_holds_a_lease_or_waits_for_one() {
    each(|store, open, lock| {
        let client = store.connect();
        let (mut database, a) = (open(), lock("a"));
        let guard = block_on(client.lock("a").acquire()).unwrap();
        assert_eq!(take(&mut database, &a), None);
        database.run("ROLLBACK");
        guard.check().unwrap();
        // A waiter comes before a transaction, also in the moment in which the lock is free.
        let waits = store.connect();
        let waiting = waits.lock("a").wait(millis(30_000));
        let mut waiting = Box::pin(waiting.acquire());
        stands_in_line(waiting.as_mut(), &client, "a", 1);
        assert_eq!(take(&mut database, &a), None);
        database.run("ROLLBACK");
        block_on(guard.release()).unwrap();
        let next = block_on(waiting).unwrap();
        block_on(next.release()).unwrap();
        let fence = take(&mut database, &a).expect("it is free");
        assert!(fence > next.fencing_token().get(), "{fence}");
        database.run("COMMIT");
    });
}

#[test]
fn no_client_acquires_the_lock_before_the_transaction_ends() {
    each(|store, open, lock| {
        let client = store.connect();
        block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
        let a = lock("a");
        for (end, name) in [("COMMIT", "a"), ("ROLLBACK", "a"), ("COMMIT", "new")] {
            let mut database = open();
            let lock = if name == "a" { a.clone() } else { lock(name) };
            let fence = take(&mut database, &lock).expect("it is free");
            let (acquired, told) = mpsc::channel();
            let other = store.connect();
            let waits = thread::spawn(move || {
                let guard = block_on(other.lock(name).wait(millis(20_000)).acquire()).unwrap();
                acquired.send(guard.fencing_token().get()).unwrap();
                block_on(guard.release()).unwrap();
            });
            let early = told.recv_timeout(millis(700));
            assert!(early.is_err(), "{name}, {end}: acquired in the middle of the transaction: {early:?}");
            database.run(end);
            let next = told.recv_timeout(millis(20_000)).unwrap();
            // What was rolled back gave out no number that is seen anywhere.
            assert!(next > fence || end == "ROLLBACK", "{name}, {end}: {next} after {fence}");
            waits.join().unwrap();
        }
        assert!(seen(&client, "a").holders.is_empty());
    });
}

#[test]
fn two_transactions_exclude_each_other_and_a_lost_connection_frees_the_lock() {
    each(|store, open, lock| {
        // It makes the tables.
        drop(store.connect());
        let (mut one, mut other, a) = (open(), open(), lock("a"));
        let first = take(&mut one, &a).expect("it is free");
        let (taken, told) = mpsc::channel();
        let b = a.clone();
        let waits = thread::spawn(move || {
            taken.send(take(&mut other, &b)).unwrap();
            other.run("COMMIT");
        });
        let early = told.recv_timeout(millis(500));
        assert!(early.is_err(), "both at once: {early:?}");
        // Its connection ends without a word.
        drop(one);
        let second = told.recv_timeout(millis(20_000)).unwrap().expect("it was rolled back");
        assert!(second > 0 && first > 0);
        waits.join().unwrap();
    });
}

#[test]
fn a_name_or_a_schema_that_cannot_be_is_refused_before_anything_is_sent() {
    assert_eq!(TransactionLock::mysql("").unwrap_err().code(), "invalid_argument");
    assert_eq!(TransactionLock::postgres("polylatch", "").unwrap_err().code(), "invalid_argument");
    assert_eq!(TransactionLock::postgres("a;b", "a").unwrap_err().code(), "invalid_config");
}
