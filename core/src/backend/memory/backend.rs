//! Verbs become calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use super::doctor;
#[cfg(not(target_family = "wasm"))]
use super::idempotency::Kept as KeptRecords;
use super::store::{Now, Push, Store};
#[cfg(not(target_family = "wasm"))]
use crate::backend::records::Records;
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Capability, Contender, Conversion, OpenContext, Released, RenewItem,
    Renewal, Reply,
};
use crate::client_info::{ClientInfo, process_id};
use crate::clock::{Clock, Instant, SystemTime, UNIX_EPOCH};
use crate::error::Result;
use crate::mode::Mode;
use crate::policy::fencing::{FenceQuality, FencingToken};
#[cfg(not(target_family = "wasm"))]
use crate::snapshot::Examination;
use crate::snapshot::{BreakOutcome, BreakRequest, Query, Snapshot};
use crate::wakeups::{Wakeups, unpoisoned};

#[derive(Debug, Default)]
struct Shared {
    store: Mutex<Store>,
    #[cfg(not(target_family = "wasm"))]
    records: Mutex<KeptRecords>,
    clients: Mutex<Vec<Weak<Wakeups>>>,
}

/// One client's view of a store in this process.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    capability: Capability,
}

/// A forked child has a copy of its parent's stores; nobody there renews or releases.
type ProcessAndName = (u32, String);

/// Opens the store of this name, or a private one if the name is empty.
pub(crate) fn open(name: &str, context: &OpenContext) -> Arc<dyn Backend> {
    static NAMED: OnceLock<Mutex<HashMap<ProcessAndName, Weak<Shared>>>> = OnceLock::new();
    let shared = if name.is_empty() {
        Arc::default()
    } else {
        let name = (process_id(), name.to_owned());
        let mut named = unpoisoned(NAMED.get_or_init(Mutex::default));
        match named.get(&name).and_then(Weak::upgrade) {
            Some(shared) => shared,
            None => {
                let shared = Arc::<Shared>::default();
                named.insert(name, Arc::downgrade(&shared));
                shared
            }
        }
    };
    unpoisoned(&shared.clients).push(Arc::downgrade(&context.wakeups));
    Arc::new(MemoryBackend {
        clock: Arc::clone(&context.clock),
        shared,
        capability: Capability {
            backend: "memory",
            fifo: true,
            push: true,
            expiry: true,
            sharing: true,
            atomic_sets: true,
            fencing: FenceQuality::Strict,
            min_lease: crate::limits::MIN_LEASE,
            max_lease: crate::limits::MAX_LEASE,
        },
    })
}

impl MemoryBackend {
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn with_records<T>(&self, step: impl FnOnce(&mut KeptRecords, Now) -> T) -> T {
        step(&mut unpoisoned(&self.shared.records), self.now())
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { boot: self.clock.now(), wall_us: u64::try_from(wall.as_micros()).unwrap_or(0) }
    }

    /// The clients that there are.
    fn clients(&self) -> Vec<Arc<Wakeups>> {
        let mut clients = unpoisoned(&self.shared.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    /// Carries out one step and delivers what it pushed.
    fn step<T>(&self, step: impl FnOnce(&mut Store, Now) -> (T, Vec<Push>)) -> T {
        let (result, pushes) = step(&mut unpoisoned(&self.shared.store), self.now());
        if !pushes.is_empty() {
            // A message may be answered with the next step before it returns, so nothing is locked meanwhile.
            let clients = self.clients();
            for push in pushes {
                for client in &clients {
                    match push {
                        Push::Granted { owner, fence } => client.grant(owner, fence),
                        Push::Revoked { owner, fence } => client.revoked(owner, fence),
                        Push::Wanted { owner, fence } => client.wanted(owner, fence),
                    }
                }
            }
        }
        result
    }
}

pub(super) fn ready<T: Send + 'static>(result: Result<T>) -> Reply<T> {
    Box::pin(std::future::ready(result))
}

impl Backend for MemoryBackend {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        ready(Ok(self.step(|store, now| store.poll(now, contender, ask))))
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        ready(Ok(self.step(|store, now| store.take_all(now, contenders))))
    }

    fn steal(&self, contender: &Arc<Contender>, reason: &str) -> Reply<Answer> {
        ready(Ok(self.step(|store, now| store.steal(now, contender, reason))))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        ready(Ok(self.step(|store, now| (items.iter().map(|item| store.renew(now, item)).collect(), vec![]))))
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        ready(Ok(self.step(|store, now| store.convert(now, contender, fence.get(), to))))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        ready(Ok(self.step(|store, now| store.release(now, contender, fence.get()))))
    }

    /// It is carried out when it is asked for.
    fn release_in_turn(&self, contender: &Arc<Contender>, fence: FencingToken) -> Option<Reply<Released>> {
        Some(self.release(contender, fence))
    }

    #[cfg(not(target_family = "wasm"))]
    fn can_keep(&self) -> bool {
        true
    }

    #[cfg(not(target_family = "wasm"))]
    fn keep(&self, item: RenewItem, tokens: u64) -> Reply<crate::backend::Kept> {
        ready(Ok(self.step(|store, now| store.keep(now, &item, tokens))))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        self.step(|store, now| ((), store.cancel(now, contender)));
        ready(Ok(()))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        self.step(|store, now| (store.announce(now, client), vec![]));
        ready(Ok(()))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let started = Instant::now();
        let mut snapshot = self.step(|store, now| (store.snapshot(now, query), vec![]));
        snapshot.round_trip = started.elapsed();
        ready(Ok(snapshot))
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        ready(Ok(self.step(|store, now| store.break_lease(now, request))))
    }

    #[cfg(not(target_family = "wasm"))]
    fn examine(&self) -> Reply<Examination> {
        ready(Ok(doctor::examination()))
    }

    #[cfg(not(target_family = "wasm"))]
    fn records(&self) -> Result<&dyn Records> {
        Ok(self)
    }

    fn close(&self) -> Reply<()> {
        ready(Ok(()))
    }
}
