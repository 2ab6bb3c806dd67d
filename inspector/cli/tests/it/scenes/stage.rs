//! What a scene is played on: a store that is watched, processes that hold and wait, and what is told of it.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use host::poll::{Poller, Target, Told, ViewerClock};
use model::{ConnectionId, Finding, Fleet, Phase, Report, RowKey, Rule, copy};

/// Within this time a rule has to appear.
const APPEARS: Duration = Duration::from_secs(10);

/// Far beyond what any preparation takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `polylatch run` that holds or waits. Killed when dropped, also while it is stopped.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills it without a chance to release, and takes its remains away.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One store, looked at by the window's model.
pub struct Stage {
    pub url: String,
    pub runtime: tokio::runtime::Runtime,
    pub fleet: Fleet,
    clock: ViewerClock,
    told: Receiver<Told>,
    /// How many snapshots came.
    pub snapshots: u32,
    poller: Poller,
}

impl Stage {
    pub fn new(url: String) -> Self {
        Self::watching(url, None)
    }

    /// Also shows other libraries' locks whose keys match a pattern.
    pub fn watching(url: String, foreign: Option<&str>) -> Self {
        let clock = ViewerClock::start();
        let (poller, told) = Poller::start(clock, Arc::new(|| {})).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let target = Target::new(Self::id(), url.clone());
        poller.watch(Target { foreign: foreign.map(str::to_owned), ..target });
        Self { url, runtime, fleet: Fleet::default(), clock, told, snapshots: 0, poller }
    }

    /// Looks at another store, too.
    pub fn watch_also(&self, url: String) {
        self.poller.watch(Target::new(ConnectionId::new("other"), url));
    }

    fn id() -> ConnectionId {
        ConnectionId::new("store")
    }

    pub fn key(lock: &str) -> RowKey {
        RowKey { connection: Self::id(), lock: lock.into() }
    }

    /// Starts a process that holds `x`, or waits for it.
    pub fn run(&self, how: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polylatch"));
        command.arg("run").arg("x").args(how).args(["--", "sleep", "600"]);
        self.begin(command)
    }

    /// The same on another host: under another name, so that nothing is known of its process here.
    pub fn run_elsewhere(&self, how: &[&str]) -> Running {
        let script = "echo elsewhere >/proc/sys/kernel/hostname && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--uts", "sh", "-c", script, "sh"]);
        command
            .arg(env!("CARGO_BIN_EXE_polylatch"))
            .args(["run", "x"])
            .args(how)
            .args(["--", "sleep", "600"]);
        self.begin(command)
    }

    /// Starts a `run` of one lock whose command is a `run` of another, which may be in another store.
    pub fn run_nested(outer: [&str; 2], inner: [&str; 2]) -> Running {
        let script = "sleep 1; exec \"$0\" --url \"$1\" run \"$2\" -- true";
        let program = env!("CARGO_BIN_EXE_polylatch");
        let mut command = Command::new(program);
        command.args(["--url", outer[0], "run", outer[1], "--", "sh", "-c", script, program]).args(inner);
        command.env_remove("POLYLATCH_URL").env_remove("POLYLATCH_LOCK");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    fn begin(&self, mut command: Command) -> Running {
        command.env("POLYLATCH_URL", &self.url).env_remove("POLYLATCH_LOCK");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Takes what was told, for a moment at most.
    fn take(&mut self) {
        match self.told.recv_timeout(Duration::from_millis(100)) {
            Ok(Told::Connected(connection)) => self.fleet.connect(connection),
            Ok(Told::Update(update)) => {
                self.snapshots += u32::from(matches!(update.report, Report::Polled(_)));
                self.fleet.ingest(update);
            }
            Ok(Told::Broken(_) | Told::Records(_)) | Err(_) => {}
        }
        self.fleet.tick(self.now_ms());
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn until_within(&mut self, within: Duration, is: impl Fn(&Self) -> bool) -> bool {
        let started = Instant::now();
        while !is(self) {
            if started.elapsed() >= within {
                return false;
            }
            self.take();
        }
        true
    }

    /// Waits for what a scene begins with.
    #[track_caller]
    pub fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        assert!(self.until_within(PATIENCE, is), "waited in vain for {what}: {}", self.told());
    }

    /// Looks on for so long, where what is played is that time passes.
    pub fn passes(&mut self, time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {
            self.take();
        }
    }

    /// Waits until so many hold `x` and so many wait for it.
    #[track_caller]
    pub fn until_held(&mut self, holders: usize, waiters: usize) {
        self.until("holders and waiters", |stage| {
            let lock = stage.fleet.lock(&Self::key("x"));
            lock.is_some_and(|lock| lock.holders.len() == holders && lock.waiters.len() == waiters)
        });
    }

    pub fn phase(&self) -> Option<Phase> {
        Some(self.fleet.store(&Self::id())?.phase(self.now_ms()))
    }

    /// What is told of the store and of `x`.
    pub fn findings(&self) -> Vec<Finding> {
        let now_ms = self.now_ms();
        let attention = self.fleet.attention(now_ms).into_iter().map(|attention| attention.finding);
        attention.chain(self.fleet.explain_now(&Self::key("x"), now_ms)).collect()
    }

    /// What key `C` copies for `x`.
    pub fn helps(&self) -> String {
        copy::that_helps(&self.fleet, &Self::key("x")).unwrap_or_default()
    }

    pub fn tells(&self, rule: Rule) -> bool {
        self.findings().iter().any(|finding| finding.rule == rule)
    }

    fn told(&self) -> String {
        format!("{:?} {:#?}", self.phase(), self.findings())
    }

    /// Asserts that a rule appears in time.
    #[track_caller]
    pub fn shows(&mut self, rule: Rule) {
        let shown = self.until_within(APPEARS, |stage| stage.tells(rule));
        assert!(shown, "{rule:?} did not appear: {}", self.told());
    }

    /// Asserts that none of the rules appears while the store is looked at for so many snapshots, or so long.
    #[track_caller]
    pub fn never_shows(&mut self, rules: &[Rule]) {
        let (until, started) = (self.snapshots + 12, Instant::now());
        while self.snapshots < until && started.elapsed() < APPEARS {
            self.take();
            for rule in rules {
                assert!(!self.tells(*rule), "{rule:?} appeared: {}", self.told());
            }
        }
    }
}
