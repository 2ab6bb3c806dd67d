//! Snapshots for the tests of this crate, and of those that show what it says.

use std::collections::HashMap;
use std::sync::OnceLock;

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

/// The value with something changed.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// A first lease of 15 s, granted `held_ms` ago.
pub fn held(client: &ClientId, held_ms: u64) -> HolderView {
    with(HolderView::new("mutex"), |holder| {
        holder.client = Some(client.clone());
        holder.label = "job".into();
        holder.owner_digest = format!("owner-{client}");
        holder.fencing_token = Some(FencingToken::new(7));
        holder.acquired_at_ms = Some(1_000_000 - held_ms);
        holder.held_for_ms = Some(held_ms);
        holder.lease_ms = Some(15_000);
        holder.remaining_ms = Some(15_000_u64.saturating_sub(held_ms));
        holder.renewals = Some(0);
        holder.renewed = Some(true);
    })
}

pub fn waiting(client: &ClientId, waited_ms: u64) -> WaiterView {
    with(WaiterView::new(client.clone(), "mutex", 1_000_000 - waited_ms), |waiter| {
        waiter.label = "job".into();
        waiter.owner_digest = format!("waiter-{client}");
        waiter.waited_ms = waited_ms;
    })
}

pub fn lock(name: &str, holders: Vec<HolderView>, mut waiters: Vec<WaiterView>) -> LockView {
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.position = at as u32;
    }
    with(LockView::new(name, "mutex"), |lock| (lock.holders, lock.waiters) = (holders, waiters))
}

/// The lock as a read-write lock with these holders' modes and these waiters'.
pub fn read_write(mut lock: LockView, held: &'static str, wanted: &'static str) -> LockView {
    lock.holders.iter_mut().for_each(|holder| holder.mode = held.into());
    lock.waiters.iter_mut().for_each(|waiter| waiter.mode = wanted.into());
    with(lock, |lock| lock.mode = "rw".into())
}

/// The lock as a semaphore, of which these permits are held and wanted.
pub fn semaphore(mut lock: LockView, capacity: u32, held: &[u32], wanted: &[u32]) -> LockView {
    for (holder, permits) in lock.holders.iter_mut().zip(held) {
        (holder.mode, holder.permits) = ("permits".into(), *permits);
    }
    for (waiter, permits) in lock.waiters.iter_mut().zip(wanted) {
        (waiter.mode, waiter.permits) = ("permits".into(), *permits);
    }
    with(lock, |lock| (lock.mode, lock.capacity) = ("semaphore".into(), Some(capacity)))
}

pub fn snapshot(locks: Vec<LockView>) -> Snapshot {
    let seen = |id: &&ClientId| {
        with(ClientView::new((*id).clone(), HOST, 100 * number(id)), |client| {
            client.process_started_at_ms = Some(500_000);
            client.program = "worker".into();
            client.language = "rust".into();
            client.version = "0.1.0".into();
            client.seen_ago_ms = 100;
        })
    };
    with(Snapshot::new("memory", 1_000_000), |reading| {
        reading.requests = 1;
        reading.locks = locks;
        reading.clients = clients::<4>().iter().map(seen).collect();
    })
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
