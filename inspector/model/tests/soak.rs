//! What the picture keeps stays bounded, however long it is looked at.

#![cfg(target_os = "linux")] // memory is looked up there

use std::sync::Arc;
use std::time::Duration;

use polylatch::ClientId;
use polylatch::inspect::{ClientView, HolderView, LockView, Snapshot, changes};
use polylatch_inspector_model::history::Limits;
use polylatch_inspector_model::{
    Connection, ConnectionId, Environment, Fleet, LocalFacts, Polled, Report, Update,
};

/// Locks at once; every one of them has another name at every snapshot.
const LOCKS: u64 = 40;

/// Snapshots until everything that is kept is full.
const UNTIL_FULL: u64 = 400;

#[test]
fn memory_is_steady_while_names_clients_and_holders_change_all_the_time() {
    let id = ConnectionId::new("store");
    let limits = Limits { events: 2_000, quiet_locks: 1_000, ..Limits::default() };
    let mut fleet = Fleet::new(limits);
    fleet.connect(Connection {
        id: id.clone(),
        shown_url: "memory:".into(),
        command: "polylatch".into(),
        environment: Environment::Development,
        read_only: false,
    });
    let mut before: Option<Arc<Snapshot>> = None;
    let mut sizes = Vec::new();
    for reading in 0..4 * UNTIL_FULL {
        let snapshot = Arc::new(snapshot(reading));
        let events = before.as_ref().map_or_else(Vec::new, |before| changes(before, &snapshot));
        before = Some(Arc::clone(&snapshot));
        let polled = Polled { snapshot, events, local: LocalFacts::default(), every_ms: 200 };
        let at_ms = 1_000_000 + 200 * reading;
        fleet.ingest(Update { connection: id.clone(), at_ms, report: Report::Polled(polled) });
        if (reading + 1).is_multiple_of(UNTIL_FULL) {
            sizes.push(memory_kib());
        }
    }
    assert_eq!(fleet.stores()[0].rows().len() as u64, LOCKS);
    assert!(fleet.stores()[0].events().len() <= 2_000);
    println!("memory at each quarter, in KiB: {sizes:?}");
    // What is freed does not all go back to the system at once; what leaks grows with every quarter.
    let growth = sizes[3].saturating_sub(sizes[0]);
    assert!(growth < 1_500, "{growth} KiB more after {} other locks: {sizes:?}", 3 * UNTIL_FULL * LOCKS);
}

fn snapshot(reading: u64) -> Snapshot {
    let taken_at_ms = 1_000_000 + 200 * reading;
    let client = |at: u64| ClientId::parse(&format!("web-{at}:{}:{at:08x}", reading + 1)).unwrap();
    let lock = |at: u64| {
        let mut holder = HolderView::new("mutex");
        holder.client = Some(client(at));
        holder.label = "ship".into();
        holder.owner_digest = format!("{reading:x}{at:x}");
        holder.acquired_at_ms = Some(taken_at_ms);
        holder.held_for_ms = Some(10);
        holder.lease_ms = Some(10_000);
        holder.remaining_ms = Some(9_990);
        holder.renewals = Some(0);
        holder.renewed = Some(true);
        let mut lock = LockView::new(format!("orders/{reading:06}/{at:03}"), "mutex");
        lock.holders.push(holder);
        lock
    };
    let seen = |at: u64| {
        let mut seen = ClientView::new(client(at), "web-1", 1);
        seen.program = "shop".into();
        seen.language = "rust".into();
        seen.version = "1".into();
        seen.seen_ago_ms = 10;
        seen
    };
    let mut snapshot = Snapshot::new("redis", taken_at_ms);
    snapshot.round_trip = Duration::from_millis(1);
    snapshot.requests = 1;
    snapshot.locks = (0..LOCKS).map(lock).collect();
    snapshot.clients = (0..LOCKS).map(seen).collect();
    snapshot
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
