//! Snapshots for the tests of this crate, and of those that show what it says.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use polylatch::inspect::{ClientView, HolderView, LockView, Snapshot, WaiterView};
use polylatch::{ClientId, FencingToken};

use super::{HostFacts, Process};

/// The host of every client in [`snapshot`] unless a test changes it.
pub const HOST: &str = "web-1";

/// Ids of four clients, or of the first of them.
pub fn clients<const N: usize>() -> [&'static ClientId; N] {
    static IDS: OnceLock<Vec<ClientId>> = OnceLock::new();
    let ids = IDS.get_or_init(|| {
        let id = |at: u32| ClientId::parse(&format!("{HOST}:{}:{at:08x}", 100 * at)).expect("well formed");
        (1..=4).map(id).collect()
    });
    std::array::from_fn(|at| &ids[at])
}

/// Number of a client in [`clients`], from 1: its process id in [`snapshot`] is 100 times that.
fn number(id: &ClientId) -> u32 {
    clients::<4>().iter().position(|known| *known == id).map_or(0, |at| at as u32 + 1)
}

/// A first lease of 15 s, granted `held_ms` ago.
pub fn held(client: &ClientId, held_ms: u64) -> HolderView {
    HolderView {
        client: Some(client.clone()),
        label: "job".into(),
        mode: "mutex".into(),
        permits: 1,
        owner_digest: format!("owner-{client}"),
        fencing_token: Some(FencingToken::new(7)),
        acquired_at_ms: Some(1_000_000 - held_ms),
        held_for_ms: Some(held_ms),
        lease_ms: Some(15_000),
        remaining_ms: Some(15_000_u64.saturating_sub(held_ms)),
        renewals: Some(0),
        renewed_ago_ms: None,
        renewed: Some(true),
        details: Vec::new(),
    }
}

pub fn waiting(client: &ClientId, waited_ms: u64) -> WaiterView {
    WaiterView {
        client: client.clone(),
        label: "job".into(),
        mode: "mutex".into(),
        permits: 1,
        owner_digest: format!("waiter-{client}"),
        position: 0,
        since_ms: 1_000_000 - waited_ms,
        waited_ms,
        silent: false,
        gives_up_at_ms: None,
    }
}

pub fn lock(name: &str, holders: Vec<HolderView>, mut waiters: Vec<WaiterView>) -> LockView {
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.position = at as u32;
    }
    LockView {
        name: name.into(),
        mode: "mutex".into(),
        capacity: None,
        holders,
        waiters,
        votes: Vec::new(),
        details: Vec::new(),
    }
}

/// The lock as a read-write lock with these holders' modes and these waiters'.
pub fn read_write(mut lock: LockView, held: &'static str, wanted: &'static str) -> LockView {
    lock.holders.iter_mut().for_each(|holder| holder.mode = held.into());
    lock.waiters.iter_mut().for_each(|waiter| waiter.mode = wanted.into());
    LockView { mode: "rw".into(), ..lock }
}

/// The lock as a semaphore, of which these permits are held and wanted.
pub fn semaphore(mut lock: LockView, capacity: u32, held: &[u32], wanted: &[u32]) -> LockView {
    for (holder, permits) in lock.holders.iter_mut().zip(held) {
        (holder.mode, holder.permits) = ("permits".into(), *permits);
    }
    for (waiter, permits) in lock.waiters.iter_mut().zip(wanted) {
        (waiter.mode, waiter.permits) = ("permits".into(), *permits);
    }
    LockView { mode: "semaphore".into(), capacity: Some(capacity), ..lock }
}

pub fn snapshot(locks: Vec<LockView>) -> Snapshot {
    let clients = clients::<4>()
        .iter()
        .map(|id| ClientView {
            id: (*id).clone(),
            host: HOST.into(),
            pid: 100 * number(id),
            process_started_at_ms: Some(500_000),
            boot: None,
            pid_namespace: None,
            program: "worker".into(),
            language: "rust".into(),
            version: "0.1.0".into(),
            seen_ago_ms: 100,
        })
        .collect();
    Snapshot {
        backend: "memory".into(),
        taken_at_ms: 1_000_000,
        round_trip: Duration::ZERO,
        requests: 1,
        locks,
        clients,
        audit: Vec::new(),
        truncated: false,
        troubles: Vec::new(),
    }
}

/// A host called [`HOST`] whose processes all run and have no known parents, except as given.
#[derive(Debug, Default)]
pub struct Host(pub HashMap<u32, Process>, pub HashMap<u32, u32>);

impl HostFacts for Host {
    fn host_name(&self) -> &str {
        HOST
    }

    fn process(&self, pid: u32) -> Process {
        let running = Process::Present { stopped: false, started_at_ms: Some(500_000) };
        self.0.get(&pid).copied().unwrap_or(running)
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        self.1.get(&pid).copied()
    }
}
