//! The poller against real stores: it connects, tells, breaks, and comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use model::{BreakOrder, ConnectionId, Fleet, LockState, Phase, Report, RowKey};
use polylatch::Polylatch;
use polylatch::inspect::{BreakOutcome, EventKind};
use polylatch_inspector_host::poll::{Poller, Target, Told, ViewerClock};
use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;

const PATIENCE: Duration = Duration::from_secs(30);

struct Watching {
    poller: Poller,
    told: Receiver<Told>,
    woken: Arc<AtomicUsize>,
    fleet: Fleet,
    clock: ViewerClock,
    events: Vec<EventKind>,
    broken: Vec<Result<BreakOutcome, String>>,
}

impl Watching {
    fn start() -> Self {
        let (clock, woken) = (ViewerClock::start(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&woken);
        let wake = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let (poller, told) = Poller::start(clock, Arc::new(wake)).unwrap();
        let (events, broken) = (Vec::new(), Vec::new());
        Self { poller, told, woken, fleet: Fleet::default(), clock, events, broken }
    }

    fn watch(&self, name: &str, url: &str) {
        let target = Target::new(ConnectionId::new(name), url).evenly(Duration::from_millis(100));
        self.poller.watch(target);
    }

    /// Takes news until something is the case.
    #[track_caller]
    fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let started = std::time::Instant::now();
        while !is(self) {
            assert!(started.elapsed() < PATIENCE, "waited in vain for {what}");
            let Ok(told) = self.told.recv_timeout(Duration::from_secs(5)) else { continue };
            match told {
                Told::Connected(connection) => self.fleet.connect(connection),
                Told::Update(update) => {
                    if let Report::Polled(polled) = &update.report {
                        self.events.extend(polled.events.iter().map(|event| event.kind.clone()));
                    }
                    self.fleet.ingest(update);
                }
                Told::Broken(result) => self.broken.push(result.outcome),
                Told::Records(_) => {}
            }
        }
    }

    fn state(&self, connection: &str, lock: &str) -> Option<LockState> {
        let key = RowKey { connection: ConnectionId::new(connection), lock: lock.into() };
        let row = self.fleet.find(&key).map(|place| self.fleet.at(place))?;
        Some(self.fleet.state(row, self.clock.now_ms()))
    }

    fn phase(&self, connection: &str) -> Option<Phase> {
        Some(self.fleet.store(&ConnectionId::new(connection))?.phase(self.clock.now_ms()))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn several_stores_are_read_and_a_lease_is_broken() {
    let (server, dir) = (RedisServer::start(), TempDir::new());
    let file = format!("sqlite:{}", dir.join("locks.db").display());
    let mut watching = Watching::start();
    watching.watch("cache", &server.url());
    watching.watch("file", &file);
    let runtime = runtime();
    let (first, second) = runtime.block_on(async {
        (Polylatch::connect(&server.url()).await.unwrap(), Polylatch::connect(&file).await.unwrap())
    });
    let one = runtime.block_on(first.lock("orders").acquire()).unwrap();
    let two = runtime.block_on(second.lock("stock").acquire()).unwrap();
    watching.until("both to be held", |watching| {
        watching.state("cache", "orders") == Some(LockState::Held)
            && watching.state("file", "stock") == Some(LockState::Held)
    });
    assert!(watching.woken.load(Ordering::Relaxed) >= 4, "the consumer is woken for what it gets");
    assert!(watching.fleet.stores().iter().all(|store| store.connection().command.contains("--url")));

    let order = BreakOrder {
        connection: ConnectionId::new("cache"),
        lock: "orders".into(),
        expected: one.fencing_token(),
        reason: "test".into(),
    };
    watching.poller.break_lease(order.clone(), "ann@desk");
    watching.until("the break", |watching| {
        matches!(watching.broken.first(), Some(Ok(BreakOutcome::Broken { .. })))
            && watching.events.iter().any(|kind| matches!(kind, EventKind::Broken { .. }))
    });
    watching.poller.break_lease(order, "ann@desk");
    watching.until("the second one", |watching| watching.broken.len() == 2);
    assert_eq!(watching.broken[1], Ok(BreakOutcome::Free));
    runtime.block_on(two.release()).unwrap();
    watching.until("the release", |watching| watching.state("file", "stock") != Some(LockState::Held));
}

#[test]
fn a_store_that_cannot_be_reached_is_told_tried_again_and_never_shown_as_the_present() {
    let dir = TempDir::new();
    let mut watching = Watching::start();
    let folder = dir.join("later");
    let file = format!("sqlite:{}", folder.join("locks.db").display());
    for name in ["there", "file"] {
        watching.fleet.connect(model::Connection {
            id: ConnectionId::new(name),
            shown_url: String::new(),
            command: "polylatch".into(),
            environment: Default::default(),
            read_only: false,
        });
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Something listens there and says nothing that Redis would.
    let url = format!("redis://:s3cret@{}?timeout=200ms", port.local_addr().unwrap());
    watching.watch("there", &url);
    watching.watch("file", &file);
    watching.until("the failures", |watching| {
        let lost = |name| matches!(watching.phase(name), Some(Phase::Lost { .. }));
        lost("there") && lost("file")
    });
    let Some(Phase::Lost { why, retry_at_ms, .. }) = watching.phase("there") else { panic!() };
    assert!(!why.contains("s3cret") && retry_at_ms.is_some(), "{why}");
    // The folder comes into being, and somebody asks for another look.
    std::fs::create_dir(&folder).unwrap();
    watching.poller.refresh(None);
    watching.until("the file to be read", |watching| watching.phase("file") == Some(Phase::Live));

    watching.poller.forget(&ConnectionId::new("file"));
    let mut read_only = Target::new(ConnectionId::new("file"), file);
    read_only.read_only = true;
    watching.poller.watch(read_only);
    let order = BreakOrder {
        connection: ConnectionId::new("file"),
        lock: "x".into(),
        expected: polylatch::FencingToken::new(1),
        reason: "test".into(),
    };
    watching.poller.break_lease(order, "ann@desk");
    watching.until("the refusal", |watching| !watching.broken.is_empty());
    assert!(watching.broken[0].as_ref().is_err_and(|why| why.contains("read-only")));
}
