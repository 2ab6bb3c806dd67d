//! A store, clients and a clock under the test's control, in virtual time: nothing really waits.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::backend::memory::store::{Now, Push, Store};
use crate::backend::{
    Answer, AnswerAll, Ask, Backend, Contender, Conversion, Purpose, Released, RenewItem, Renewal, Reply,
};
use crate::capability::Capability;
use crate::client_info::{ClientInfo, process_id};
use crate::clock::{BootInstant, Clock, ManualClock};
use crate::driver::{Core, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_LEASE, MIN_LEASE};
use crate::lock::{Lock, RwLock};
use crate::mode::Mode;
use crate::options::Settings;
use crate::policy::fencing::{FenceQuality, FencingToken};
use crate::service::Service;
use crate::snapshot::{BreakOutcome, BreakRequest, LockView, Query, Snapshot};
use crate::wakeups::{Wakeups, unpoisoned};

/// Goes with the runtime's timers, and can be moved while those stand still, as in a suspend.
#[derive(Debug)]
pub(super) struct VirtualClock {
    started: Instant,
    moved: ManualClock,
    broken: Mutex<bool>,
}

impl VirtualClock {
    pub(super) fn suspend(&self, by: Duration) {
        self.moved.advance(by);
    }

    /// Lets the next one who looks at the clock panic.
    pub(super) fn break_once(&self) {
        *unpoisoned(&self.broken) = true;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> BootInstant {
        assert!(!std::mem::take(&mut *unpoisoned(&self.broken)), "the clock broke, as the test told it to");
        self.moved.now() + self.started.elapsed()
    }
}

/// How the requests of one verb go.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Way {
    /// Until the store carries a request out.
    pub there: Duration,
    /// Until its answer arrives.
    pub back: Duration,
    /// The answer never arrives.
    pub lost: bool,
    /// The request fails before it leaves.
    pub refused: bool,
    /// The store carries it out before later requests.
    pub in_turn: bool,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    clients: Mutex<Vec<Arc<Wakeups>>>,
    clock: Arc<VirtualClock>,
}

/// One client's way to the store.
#[derive(Debug, Clone)]
pub(super) struct Line {
    shared: Arc<Shared>,
    ways: Arc<Mutex<HashMap<&'static str, Way>>>,
    calls: Arc<Mutex<Vec<(&'static str, BootInstant)>>>,
    capability: Arc<Capability>,
}

impl Line {
    /// A request goes on once it has left, whatever becomes of the one who waits for its answer.
    fn carry<T: Send + 'static>(
        &self,
        verb: &'static str,
        step: impl FnOnce(&mut Store, Now) -> (T, Vec<Push>) + Send + 'static,
    ) -> Reply<T> {
        unpoisoned(&self.calls).push((verb, self.shared.clock.now()));
        let way = unpoisoned(&self.ways).get(verb).copied().unwrap_or_default();
        if way.refused {
            let error = Error::new(ErrorKind::BackendUnavailable, "the test refuses this request");
            return Box::pin(std::future::ready(Err(error)));
        }
        let (answer, answered) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            sleep(way.there).await;
            let result = shared.step(step);
            sleep(way.back).await;
            if way.lost {
                std::future::pending::<()>().await;
            }
            let _ = answer.send(result);
        });
        Box::pin(async move { Ok(answered.await.expect("the runtime lives as long as the test")) })
    }
}

impl Shared {
    fn step<T>(&self, step: impl FnOnce(&mut Store, Now) -> (T, Vec<Push>)) -> T {
        let now = Now { boot: self.clock.now(), wall_us: 1 };
        let (result, pushes) = step(&mut unpoisoned(&self.store), now);
        for client in unpoisoned(&self.clients).iter() {
            for push in &pushes {
                match *push {
                    Push::Granted { owner, fence } => client.grant(owner, fence),
                    Push::Revoked { owner, fence } => client.revoked(owner, fence),
                    Push::Wanted { owner, fence } => client.wanted(owner, fence),
                }
            }
        }
        result
    }
}

impl Backend for Line {
    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn poll(&self, contender: &Arc<Contender>, ask: Ask) -> Reply<Answer> {
        let contender = Arc::clone(contender);
        self.carry("poll", move |store, now| store.poll(now, &contender, ask))
    }

    fn take_all(&self, contenders: &[Arc<Contender>]) -> Reply<AnswerAll> {
        let contenders = contenders.to_vec();
        self.carry("take_all", move |store, now| store.take_all(now, &contenders))
    }

    fn renew(&self, items: Vec<RenewItem>) -> Reply<Vec<Renewal>> {
        self.carry("renew", move |store, now| {
            (items.iter().map(|item| store.renew(now, item)).collect(), vec![])
        })
    }

    fn convert(&self, contender: &Arc<Contender>, fence: FencingToken, to: Mode) -> Reply<Conversion> {
        let contender = Arc::clone(contender);
        self.carry("convert", move |store, now| store.convert(now, &contender, fence.get(), to))
    }

    fn release(&self, contender: &Arc<Contender>, fence: FencingToken) -> Reply<Released> {
        let contender = Arc::clone(contender);
        self.carry("release", move |store, now| store.release(now, &contender, fence.get()))
    }

    fn release_in_turn(&self, contender: &Arc<Contender>, fence: FencingToken) -> Option<Reply<Released>> {
        let in_turn = unpoisoned(&self.ways).get("release").is_some_and(|way| way.in_turn);
        in_turn.then(|| self.release(contender, fence))
    }

    fn cancel(&self, contender: &Arc<Contender>) -> Reply<()> {
        let contender = Arc::clone(contender);
        self.carry("cancel", move |store, now| ((), store.cancel(now, &contender)))
    }

    fn announce(&self, client: &Arc<ClientInfo>) -> Reply<()> {
        let client = Arc::clone(client);
        self.carry("announce", move |store, now| (store.announce(now, &client), vec![]))
    }

    fn snapshot(&self, query: &Query) -> Reply<Snapshot> {
        let query = query.clone();
        self.carry("snapshot", move |store, now| (store.snapshot(now, &query), vec![]))
    }

    fn break_lease(&self, request: &BreakRequest) -> Reply<BreakOutcome> {
        let request = request.clone();
        self.carry("break", move |store, now| store.break_lease(now, &request))
    }

    fn close(&self) -> Reply<()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A client, and what it has asked.
pub(super) struct Client {
    pub(super) core: Handle,
    line: Line,
}

impl Client {
    pub(super) fn lock(&self, name: &str) -> Lock {
        Lock::new(self.core.clone(), name.into(), Mode::Mutex)
    }

    pub(super) fn rw(&self, name: &str) -> RwLock {
        RwLock::new(self.core.clone(), name.into())
    }

    /// From now on, requests of this verb go so.
    pub(super) fn goes(&self, verb: &'static str, way: Way) {
        unpoisoned(&self.line.ways).insert(verb, way);
    }

    /// When requests of this verb left.
    pub(super) fn calls(&self, verb: &str) -> Vec<BootInstant> {
        unpoisoned(&self.line.calls).iter().filter(|(called, _)| *called == verb).map(|(_, at)| *at).collect()
    }

    pub(super) fn now(&self) -> BootInstant {
        self.line.shared.clock.now()
    }
}

/// One store and its clock.
pub(super) struct World {
    shared: Arc<Shared>,
}

impl World {
    pub(super) fn clock(&self) -> &VirtualClock {
        &self.shared.clock
    }

    pub(super) fn connect(&self) -> Client {
        self.connect_for(Purpose::Lock)
    }

    pub(super) fn connect_for(&self, purpose: Purpose) -> Client {
        self.connect_in(process_id(), purpose)
    }

    /// As a client that a process of this number has connected.
    pub(super) fn connect_in(&self, process: u32, purpose: Purpose) -> Client {
        let wakeups = Arc::<Wakeups>::default();
        unpoisoned(&self.shared.clients).push(Arc::clone(&wakeups));
        let line = Line {
            shared: Arc::clone(&self.shared),
            ways: Arc::default(),
            calls: Arc::default(),
            capability: Arc::new(Capability {
                backend: "virtual",
                fifo: true,
                push: true,
                expiry: true,
                sharing: true,
                atomic_sets: true,
                fencing: FenceQuality::Strict,
                min_lease: MIN_LEASE,
                max_lease: MAX_LEASE,
            }),
        };
        let settings = Settings {
            lease: Duration::from_secs(15),
            provisional: Duration::from_secs(3),
            poll: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            enter_on_push: true,
        };
        let core = Core::start(
            Arc::new(line.clone()),
            Arc::clone(&self.shared.clock) as Arc<dyn Clock>,
            Service::of_this_runtime(Arc::clone(&self.shared.clock) as Arc<dyn Clock>),
            wakeups,
            ClientInfo { pid: process, ..ClientInfo::of_this_process(None, "rust", "0").unwrap() },
            settings,
            purpose,
        );
        Client { core: Handle::new(core, false), line }
    }

    /// Holders and waiters of a lock, as the store knows them.
    pub(super) fn seen(&self, name: &str) -> LockView {
        let query = Query { name: Some(name.into()), ..Query::default() };
        self.shared.step(|store, now| (store.snapshot(now, &query), vec![])).locks.remove(0)
    }

    pub(super) fn is_empty(&self, name: &str) -> bool {
        let seen = self.seen(name);
        seen.holders.is_empty() && seen.waiters.is_empty()
    }
}

/// Runs a test in a world of its own. Time passes whenever nothing else is left to do.
pub(super) fn world<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(VirtualClock {
            started: Instant::now(),
            moved: ManualClock::starting_at(BootInstant::from_nanos(0) + Duration::from_secs(1_000_000)),
            broken: Mutex::default(),
        });
        let shared = Arc::new(Shared { store: Mutex::default(), clients: Mutex::default(), clock });
        test(World { shared }).await;
    });
}

/// Runs a future for this long, then drops it.
pub(super) async fn cut_off<F: Future>(after: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(after, future).await.ok()
}

/// The value, or what else came.
pub(super) fn some<T>(result: Result<Option<T>>) -> T {
    result.expect("no error").expect("it is free")
}
