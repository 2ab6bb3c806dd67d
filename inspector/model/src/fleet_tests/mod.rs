mod judged;
mod kept;

use std::sync::Arc;

use polylatch::inspect::{AuditEntry, HolderView, LockView, Snapshot, changes};
use polylatch::{ClientId, FencingToken};

use super::super::alert::{Alarms, AlertRule, Condition};
use super::super::copy::commands;
use super::super::export;
use super::super::fixture::{clients, held, lock, snapshot, waiting, with};
use super::super::history::{HoldEnd, Limits, PulseKind};
use super::super::recording::{Encoder, Recording};
use super::super::replay::Replay;
use super::super::report::{Polled, Report, Update};
use super::super::{Environment, LocalFacts, LockState, Rule, Severity};
use super::*;

/// Plays snapshots to a fleet, and remembers them.
struct Scene {
    fleet: Fleet,
    now_ms: u64,
    before: HashMap<String, Arc<Snapshot>>,
    told: Vec<Update>,
    local: LocalFacts,
    every_ms: u64,
}

fn connection(name: &str) -> Connection {
    Connection {
        id: ConnectionId::new(name),
        shown_url: format!("redis://{name}"),
        command: format!("polylatch --url redis://{name}"),
        environment: Environment::Development,
        read_only: false,
    }
}

fn key(name: &str) -> RowKey {
    RowKey { connection: ConnectionId::new("one"), lock: name.into() }
}

impl Scene {
    fn new() -> Self {
        let mut fleet = Fleet::new(Limits::default());
        fleet.connect(connection("one"));
        fleet.connect(connection("two"));
        Self {
            fleet,
            now_ms: 0,
            before: HashMap::new(),
            told: Vec::new(),
            local: LocalFacts::default(),
            every_ms: 1_000,
        }
    }

    /// Reads store `one`, this much after the snapshot before.
    fn look(&mut self, after_ms: u64, locks: Vec<LockView>) {
        self.look_at("one", after_ms, locks);
    }

    fn look_at(&mut self, name: &str, after_ms: u64, locks: Vec<LockView>) {
        let mut reading = snapshot(locks);
        reading.locks.sort_by(|a, b| a.name.cmp(&b.name));
        reading.clients.sort_by(|a, b| a.id.cmp(&b.id));
        self.show(name, after_ms, reading);
    }

    fn show(&mut self, name: &str, after_ms: u64, mut reading: Snapshot) {
        self.now_ms += after_ms;
        reading.taken_at_ms = 1_000_000 + self.now_ms;
        reading.round_trip = std::time::Duration::from_micros(1_234);
        let reading = Arc::new(reading);
        let before = self.before.insert(name.into(), Arc::clone(&reading));
        let polled = Polled {
            events: before.map_or_else(Vec::new, |before| changes(&before, &reading)),
            snapshot: reading,
            local: self.local.clone(),
            every_ms: self.every_ms,
        };
        self.tell(name, Report::Polled(polled));
    }

    fn fail(&mut self, after_ms: u64) {
        self.now_ms += after_ms;
        self.tell("one", Report::Failed { message: "connection refused".into(), retry_in_ms: Some(500) });
    }

    fn tell(&mut self, name: &str, report: Report) {
        let update = Update { connection: ConnectionId::new(name), at_ms: self.now_ms, report };
        self.told.push(update.clone());
        self.fleet.ingest(update);
    }

    fn rules(&self, name: &str) -> Vec<Rule> {
        self.fleet.explain(&key(name)).iter().map(|finding| finding.rule).collect()
    }

    fn row(&self, name: &str) -> &Row {
        self.fleet.at(self.fleet.find(&key(name)).unwrap())
    }
}

fn granted(client: &ClientId, token: u64, at_ms: u64, now_ms: u64) -> HolderView {
    with(held(client, now_ms - at_ms), |holder| {
        holder.owner_digest = format!("{client}#{token}");
        holder.fencing_token = Some(FencingToken::new(token));
        holder.acquired_at_ms = Some(at_ms);
    })
}

fn foreign() -> LockView {
    let mut holder = held(clients::<1>()[0], 0);
    (holder.client, holder.remaining_ms, holder.lease_ms, holder.held_for_ms) = (None, None, None, None);
    with(lock("theirs", vec![holder], vec![]), |lock| lock.mode = "foreign".into())
}

#[test]
fn the_graph_shows_who_holds_everybody_up() {
    let [a, b, c, d] = clients();
    let mut scene = Scene::new();
    let line = vec![waiting(b, 400), waiting(c, 300)];
    scene.look(
        0,
        vec![
            lock("x", vec![held(a, 900)], line),
            lock("y", vec![held(b, 900)], vec![waiting(d, 100)]),
            lock("z", vec![held(d, 1)], vec![]),
        ],
    );
    let graph = scene.fleet.graph();
    assert_eq!((graph.parties.len(), graph.locks.len(), graph.rings.len()), (4, 2, 0));
    assert_eq!((graph.holds.len(), graph.waits.len(), graph.trees.len()), (2, 3, 1));
    assert_eq!(graph.trees[0].blocked, 3);
    assert_eq!(
        graph.text(),
        "web-1 pid 100 (worker) holds up 3 clients:\n  web-1 pid 200 (worker) \"job\" waits for x, and holds up 1 client\n    web-1 pid 400 (worker) \"job\" waits for y\n  web-1 pid 300 (worker) \"job\" waits for x\n"
    );
}

#[test]
fn beats_holds_and_waits_are_remembered_with_how_they_ended() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    scene.look(0, vec![lock("x", vec![granted(a, 7, start - 2_000, start)], vec![waiting(b, 500)])]);
    let mut renewed = granted(a, 7, start - 2_000, start + 4_000);
    (renewed.renewals, renewed.renewed_ago_ms, renewed.remaining_ms) = (Some(1), Some(1_000), Some(14_000));
    scene.look(4_000, vec![lock("x", vec![renewed.clone()], vec![waiting(b, 4_500)])]);
    (renewed.renewed_ago_ms, renewed.remaining_ms) = (Some(8_500), Some(6_500));
    scene.look(7_500, vec![lock("x", vec![renewed], vec![waiting(b, 12_000)])]);
    assert_eq!(scene.row("x").missed, 1);
    let mut next = granted(b, 8, start + 12_000, start + 12_500);
    next.owner_digest = format!("waiter-{b}");
    scene.look(1_000, vec![lock("x", vec![next], vec![])]);

    let history = scene.fleet.history(&key("x")).unwrap();
    let kinds: Vec<_> = history.pulses.iter().map(|pulse| pulse.kind).collect();
    assert_eq!(
        kinds,
        [PulseKind::Granted, PulseKind::Renewed { after_ms: 5_000 }, PulseKind::Missed, PulseKind::Granted]
    );
    let ends: Vec<_> = history.holds.iter().map(|hold| (hold.fencing_token, hold.end)).collect();
    assert_eq!(ends, [(Some(7), Some(HoldEnd::Released)), (Some(8), None)]);
    assert_eq!(history.holds[0].length_ms(), Some(14_500));
    assert_eq!((history.waits.len(), history.waits[0].got_it), (1, true));
    assert_eq!(scene.row("x").hand_offs, 1);
    let events: Vec<_> = scene.fleet.events_of(&key("x")).map(|logged| logged.number).collect();
    assert_eq!(events.len(), 4, "renewed, endangered, released, granted");
}

#[test]
fn renewals_before_the_first_reading_are_not_observed_and_not_missed() {
    let [a] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    let lease = |renewals, renewed_at_ms: u64, now_ms: u64| {
        let mut lease = granted(a, 7, start - 60_000, now_ms);
        let ago = now_ms - renewed_at_ms;
        (lease.renewals, lease.renewed_ago_ms) = (Some(renewals), Some(ago));
        lease.remaining_ms = Some(15_000 - ago);
        lease
    };
    scene.look(0, vec![lock("x", vec![lease(12, start - 1_000, start)], vec![])]);
    scene.look(5_000, vec![lock("x", vec![lease(13, start + 4_000, start + 5_000)], vec![])]);
    let history = scene.fleet.history(&key("x")).unwrap();
    assert_eq!(history.observed_from_ms, Some(start));
    let pulses: Vec<_> = history.pulses.iter().map(|pulse| (pulse.at_ms, pulse.kind)).collect();
    let renewed = |after_ms| PulseKind::Renewed { after_ms };
    assert_eq!(
        pulses,
        [
            (start - 60_000, PulseKind::Granted),
            (start - 1_000, renewed(4_916)),
            (start + 4_000, renewed(5_000))
        ]
    );
    // What comes later was observed from its begin.
    scene.look(1_000, vec![lock("y", vec![granted(a, 8, start + 5_500, start + 6_000)], vec![])]);
    assert_eq!(scene.fleet.history(&key("y")).unwrap().observed_from_ms, None);
}

#[test]
fn every_hold_says_whose_it_was_and_for_what() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    for (at, (client, label)) in [(a, "mail"), (b, "mail"), (a, "mail"), (a, "print")].into_iter().enumerate()
    {
        let at = at as u64;
        let mut holder = granted(client, 7 + at, start + at * 1_000, start + at * 1_000);
        (holder.label, holder.owner_digest) = (label.into(), format!("{at}"));
        scene.look(1_000, vec![lock("x", vec![holder], vec![])]);
    }
    let holds = &scene.fleet.history(&key("x")).unwrap().holds;
    let told: Vec<_> = holds.iter().map(|hold| (hold.by.client.as_ref(), &*hold.by.label)).collect();
    assert_eq!(told, [(Some(a), "mail"), (Some(b), "mail"), (Some(a), "mail"), (Some(a), "print")]);
    assert!(Arc::ptr_eq(&holds[0].by, &holds[2].by), "said once");
}

#[test]
fn locks_that_come_and_go_between_others_leave_those_what_they_are() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    let names = |names: &[&str], now: u64| -> Vec<LockView> {
        let one =
            |name: &&str| lock(name, vec![granted(if *name == "d" { b } else { a }, 7, start, now)], vec![]);
        names.iter().map(one).collect()
    };
    for (at, present) in
        [&["b", "d"][..], &["a", "b", "c", "d"], &["b", "d"], &["d"], &["b", "d"]].iter().enumerate()
    {
        scene.look(1_000, names(present, start + at as u64 * 1_000));
        for name in *present {
            let key = key(name);
            assert_eq!((&*scene.row(name).key.lock, &*scene.fleet.lock(&key).unwrap().name), (*name, *name));
            let whose = if *name == "d" { b } else { a };
            assert_eq!(scene.fleet.history(&key).unwrap().holds[0].by.client.as_ref(), Some(whose));
        }
    }
    assert_eq!(scene.row("d").changed_at_ms, 1_000, "nothing happened to it");
    assert!(scene.row("b").changed_at_ms > 1_000, "it was away");
    assert_eq!(scene.fleet.history(&key("d")).unwrap().holds.len(), 1);
}

#[test]
fn a_time_without_data_is_a_gap_and_not_a_guess() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    scene.look(0, vec![lock("x", vec![granted(a, 7, start, start)], vec![])]);
    scene.fail(1_000);
    let phase = scene.fleet.stores()[0].phase(scene.now_ms);
    assert!(matches!(phase, Phase::Lost { since_ms: Some(0), failing_since_ms: 1_000, .. }), "{phase:?}");
    assert_eq!(scene.fleet.state(scene.row("x"), scene.now_ms), LockState::Unknown);
    assert!(scene.fleet.attention(scene.now_ms).is_empty(), "one failure is no alarm");
    scene.fail(2_500);
    let attention = scene.fleet.attention(scene.now_ms);
    assert_eq!(
        (attention[0].finding.rule, attention[0].finding.severity),
        (Rule::Backend, Severity::Problem)
    );
    assert!(attention[0].finding.sentence.contains("connection refused"));
    scene.look(30_000, vec![lock("x", vec![granted(b, 9, start + 20_000, start + 33_500)], vec![])]);
    assert_eq!(scene.fleet.state(scene.row("x"), scene.now_ms), LockState::Held);
    let store = &scene.fleet.stores()[0];
    assert_eq!(store.gaps().len(), 1);
    assert_eq!(scene.fleet.history(&key("x")).unwrap().holds[0].end, Some(HoldEnd::Unseen));
}

#[test]
fn rows_of_locks_that_went_stay_for_a_moment() {
    let [a] = clients();
    let mut scene = Scene::new();
    scene.look(0, vec![lock("x", vec![held(a, 1)], vec![])]);
    scene.look(1_000, vec![]);
    assert_eq!(scene.row("x").gone_at_ms, Some(1_000));
    assert!(scene.fleet.lock(&key("x")).is_none());
    scene.fleet.tick(3_999);
    assert!(scene.fleet.find(&key("x")).is_some());
    let version = scene.fleet.version();
    scene.fleet.tick(4_000);
    assert!(scene.fleet.find(&key("x")).is_none() && scene.fleet.version() > version);
    assert!(scene.fleet.history(&key("x")).is_some(), "its history is kept longer");
}

#[test]
fn remaining_time_goes_on_between_readings() {
    let [a] = clients();
    let mut scene = Scene::new();
    scene.look(0, vec![lock("x", vec![held(a, 5_000)], vec![])]);
    let row = scene.row("x");
    assert_eq!((row.left_now_ms(400), row.held_now_ms(400)), (Some(9_600), Some(5_400)));
    assert_eq!(row.left_now_ms(60_000), Some(0));
    assert!((row.left_share(2_500).unwrap() - 0.5).abs() < 0.01);
}

#[test]
fn clients_are_told_with_what_they_hold_and_wait_for() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    scene.look(
        0,
        vec![lock("x", vec![held(a, 900)], vec![waiting(b, 400)]), lock("y", vec![held(a, 10)], vec![])],
    );
    let clients = scene.fleet.clients();
    let of = |id: &ClientId| clients.iter().find(|row| row.id == *id).unwrap();
    assert_eq!((of(a).holds.len(), of(a).waits.len(), of(a).program.as_str()), (2, 0, "worker"));
    assert_eq!(of(b).waits, [(key("x"), 400)]);
}

#[test]
fn what_costs_is_told() {
    let mut scene = Scene::new();
    for _ in 0..5 {
        scene.look(500, vec![]);
    }
    let cost = scene.fleet.stores()[0].cost();
    assert_eq!((cost.requests_per_sec, cost.every_ms), (2.0, 1_000));
    assert!((cost.reading_ms - 1.234).abs() < 0.01);
}

#[test]
fn alerts_are_told_once_until_they_are_over() {
    let [a] = clients();
    let rule = |name: &str, condition, for_ms| AlertRule {
        name: name.into(),
        condition,
        filter: "lock:x".into(),
        for_ms,
        run: vec![],
        off: false,
    };
    let mut alarms = Alarms::new(vec![
        rule("long", Condition::HeldOver { ms: 5_000 }, 1_500),
        rule("lost", Condition::Unreachable, 0),
    ])
    .unwrap();
    let mut scene = Scene::new();
    let mut told = Vec::new();
    let mut check = |scene: &Scene, told: &mut Vec<(String, u64)>| {
        told.extend(
            alarms.check(&scene.fleet, scene.now_ms).into_iter().map(|alert| (alert.rule, alert.at_ms)),
        );
        alarms.standing().len()
    };
    for (held_ms, standing) in [(4_500, 0), (5_500, 0), (6_500, 0), (7_500, 1), (8_500, 1), (100, 0)] {
        let locks = vec![lock("x", vec![held(a, held_ms)], vec![]), lock("y", vec![held(a, 90_000)], vec![])];
        scene.look(1_000, locks);
        assert_eq!(check(&scene, &mut told), standing, "{held_ms}");
    }
    scene.fail(500);
    assert_eq!(check(&scene, &mut told), 1);
    assert_eq!(told, [("long".into(), 4_000), ("lost".into(), 6_500)]);
    assert!(Alarms::new(vec![rule("a", Condition::Deadlock, 0), rule("a", Condition::NoExpiry, 0)]).is_err());
}
