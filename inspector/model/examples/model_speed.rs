//! What the model costs: 10 000 locks, of which 1 000 change at every snapshot.
//!
//! `cargo run --release -p polylatch-inspector-model --example model_speed`

use std::sync::Arc;
use std::time::{Duration, Instant};

use polylatch::inspect::{ClientView, HolderView, LockView, Snapshot, WaiterView, changes};
use polylatch::{ClientId, FencingToken};
use polylatch_inspector_model::history::Limits;
use polylatch_inspector_model::recording::Encoder;
use polylatch_inspector_model::{
    Alarms, AlertRule, Connection, ConnectionId, Environment, Filter, Fleet, LocalFacts, Polled, Report,
    Update, View,
};

const LOCKS: usize = 10_000;
const CLIENTS: usize = 500;
const CHANGES: usize = 1_000;
const LOOKS: usize = 60;

fn client(number: usize) -> ClientId {
    ClientId::parse(&format!("host-{}:{}:0a0b0c0d", number % 40, 1_000 + number)).expect("well formed")
}

/// The store at snapshot number `look`: a tenth of the locks change hands between two snapshots.
fn reading(look: usize) -> Snapshot {
    let taken_at_ms = 1_700_000_000_000 + look as u64 * 1_000;
    let locks = (0..LOCKS)
        .map(|at| {
            // Lock number `at` changes hands when it is its turn.
            let turns = (look + LOCKS / CHANGES - at / CHANGES - 1) / (LOCKS / CHANGES);
            let held_ms = ((look + LOCKS / CHANGES - at / CHANGES - 1) % (LOCKS / CHANGES)) as u64 * 1_000;
            let mut holder = HolderView::new("mutex");
            holder.client = Some(client((at + turns * 7) % CLIENTS));
            holder.label = format!("job {at}");
            holder.owner_digest = format!("{:08x}", at * 1_000 + turns);
            holder.fencing_token = Some(FencingToken::new(1 + turns as u64));
            holder.acquired_at_ms = Some(taken_at_ms - held_ms);
            holder.held_for_ms = Some(held_ms);
            holder.lease_ms = Some(15_000);
            holder.remaining_ms = Some(15_000 - held_ms % 5_000);
            holder.renewals = Some((held_ms / 5_000) as u32);
            holder.renewed_ago_ms = (held_ms >= 5_000).then_some(held_ms % 5_000);
            holder.renewed = Some(true);
            let mut lock = LockView::new(format!("orders/{at:06}"), "mutex");
            lock.holders.push(holder);
            if at % 10 == 0 {
                let mut waiter = WaiterView::new(client((at + 3) % CLIENTS), "mutex", taken_at_ms - held_ms);
                waiter.label = "waiting".into();
                waiter.owner_digest = format!("w{:08x}", at * 1_000 + turns);
                waiter.waited_ms = held_ms;
                lock.waiters.push(waiter);
            }
            lock
        })
        .collect();
    let seen = |number: usize| {
        let mut seen =
            ClientView::new(client(number), format!("host-{}", number % 40), 1_000 + number as u32);
        seen.process_started_at_ms = Some(1);
        seen.program = "worker".into();
        seen.language = "rust".into();
        seen.version = "0.1.0".into();
        seen.seen_ago_ms = 100;
        seen
    };
    let mut reading = Snapshot::new("redis", taken_at_ms);
    reading.round_trip = Duration::from_millis(20);
    reading.requests = 101;
    reading.locks = locks;
    reading.clients = (0..CLIENTS).map(seen).collect();
    reading
}

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn of<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = what();
        self.0.push(started.elapsed());
        result
    }

    fn tell(&mut self, what: &str) {
        self.0.sort();
        let ms = |at: usize| self.0[at].as_secs_f64() * 1_000.0;
        println!(
            "{what:<34} median {:>7.2} ms   worst {:>7.2} ms",
            ms(self.0.len() / 2),
            ms(self.0.len() - 1)
        );
    }
}

fn resident_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1_024)
}

fn main() {
    let id = ConnectionId::new("bench");
    let connection = Connection {
        id: id.clone(),
        shown_url: "redis://bench".into(),
        command: "polylatch".into(),
        environment: Environment::Development,
        read_only: false,
    };
    let mut fleet = Fleet::new(Limits::default());
    fleet.connect(connection.clone());
    let (mut encoder, _) = Encoder::begin(&[connection], 0);
    let rule = r#"{"name":"long","condition":{"is":"held-over","ms":600000}}"#;
    let rule: AlertRule = serde_json::from_str(rule).expect("a rule");
    let mut alarms = Alarms::new(vec![rule]).expect("one rule");
    let all = View::default();
    let some =
        View { filter: Filter::parse("state:contended held<1m job").expect("a filter"), ..View::default() };

    let [mut diff, mut ingest, mut lines, mut filtered, mut watch, mut record, mut graph] =
        std::array::from_fn(|_| Times::default());
    let (mut before, mut bytes, mut changed): (Option<Arc<Snapshot>>, usize, usize) = (None, 0, 0);
    println!("{LOCKS} locks, {CHANGES} change hands at each of {LOOKS} snapshots, {CLIENTS} clients");
    for look in 0..LOOKS {
        let snapshot = Arc::new(reading(look));
        let events = diff.of(|| before.as_ref().map_or_else(Vec::new, |before| changes(before, &snapshot)));
        changed += events.len();
        before = Some(Arc::clone(&snapshot));
        let polled = Polled { snapshot, events, local: LocalFacts::default(), every_ms: 1_000 };
        let update =
            Update { connection: id.clone(), at_ms: look as u64 * 1_000, report: Report::Polled(polled) };
        bytes += record.of(|| encoder.update(&update)).len();
        ingest.of(|| fleet.ingest(update));
        let now_ms = look as u64 * 1_000;
        lines.of(|| all.lines(&fleet, now_ms));
        filtered.of(|| some.lines(&fleet, now_ms));
        watch.of(|| (fleet.summary(now_ms), fleet.attention(now_ms), alarms.check(&fleet, now_ms)));
        graph.of(|| fleet.graph());
    }
    println!("{changed} events; a recording has {} kB a snapshot", bytes / LOOKS / 1_024);
    diff.tell("compare two snapshots");
    ingest.tell("take a snapshot into the fleet");
    lines.tell("order all rows");
    filtered.tell("filter and order");
    watch.tell("counts, findings, alerts");
    graph.tell("wait-for graph");
    record.tell("record a snapshot");
    match resident_mb() {
        Some(mb) => println!("memory {mb} MB"),
        None => println!("memory: this system does not say"),
    }
}
