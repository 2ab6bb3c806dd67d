//! Looks into the store, to know when a worker holds or waits.

use std::time::Duration;

use polylatch::blocking::Polylatch;
use polylatch::inspect::{LockView, Query};
use polylatch_test_services::wait_for;

use crate::lock_name;

/// Who holds a lock and who waits for it.
#[track_caller]
pub fn seen(client: &Polylatch, lock: u32) -> LockView {
    let query = Query { name: Some(lock_name(lock)), ..Query::default() };
    let snapshot = client.list(&query).unwrap_or_else(|error| panic!("{error:?}"));
    snapshot.locks.into_iter().next().expect("a lock asked for by name is always shown")
}

/// Waits until exactly these stand in line, by label, in this order, none of them silent.
#[track_caller]
pub fn wait_for_line(client: &Polylatch, lock: u32, labels: &[&str]) {
    wait_for(&format!("{labels:?} to stand in line"), Duration::from_secs(10), || {
        let view = seen(client, lock);
        let line: Vec<_> =
            view.waiters.iter().filter(|waiter| !waiter.silent).map(|waiter| waiter.label.as_str()).collect();
        (line == labels).then_some(())
    });
}

/// Waits until so many stand in line; returns their labels in order.
#[track_caller]
pub fn wait_for_crowd(client: &Polylatch, lock: u32, count: usize) -> Vec<String> {
    wait_for(&format!("{count} to stand in line"), Duration::from_secs(30), || {
        let view = seen(client, lock);
        (view.waiters.len() == count).then(|| view.waiters.into_iter().map(|waiter| waiter.label).collect())
    })
}
