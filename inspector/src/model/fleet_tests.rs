use std::sync::Arc;

use polylatch::inspect::{AuditEntry, ClientView, HolderView, LockView, Snapshot, changes};
use polylatch::{ClientId, FencingToken};

use super::super::alert::{Alarms, AlertRule, Condition};
use super::super::copy::commands;
use super::super::export;
use super::super::fixture::{clients, held, lock, snapshot, waiting};
use super::super::history::{HoldEnd, Limits, PulseKind};
use super::super::recording::{Encoder, Recording};
use super::super::replay::Replay;
use super::super::report::{Report, Sample, Update};
use super::super::{Environment, LockState, Rule, Severity, Sight};
use super::*;

/// Plays readings to a fleet, and remembers them.
struct Scene {
    fleet: Fleet,
    now_ms: u64,
    before: HashMap<String, Arc<Snapshot>>,
    told: Vec<Update>,
    sight: Sight,
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
            sight: Sight::default(),
            every_ms: 1_000,
        }
    }

    /// Reads store `one`, this much after the reading before.
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
        let sample = Sample {
            events: before.map_or_else(Vec::new, |before| changes(&before, &reading)),
            snapshot: reading,
            sight: self.sight.clone(),
            every_ms: self.every_ms,
        };
        self.tell(name, Report::Seen(sample));
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
    HolderView {
        owner_digest: format!("{client}#{token}"),
        fencing_token: Some(FencingToken::new(token)),
        acquired_at_ms: Some(at_ms),
        ..held(client, now_ms - at_ms)
    }
}

fn foreign() -> LockView {
    let mut holder = held(clients::<1>()[0], 0);
    (holder.client, holder.remaining_ms, holder.lease_ms, holder.held_for_ms) = (None, None, None, None);
    LockView { mode: "foreign".into(), ..lock("theirs", vec![holder], vec![]) }
}

#[test]
fn a_condition_is_shown_only_after_it_stood_and_a_flapping_one_never() {
    let mut scene = Scene::new();
    scene.look(0, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::Legit]);
    scene.look(1_000, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::Legit]);
    scene.look(1_000, vec![foreign()]);
    assert_eq!(scene.rules("theirs"), [Rule::NoExpiry]);
    assert_eq!(scene.row("theirs").state, LockState::NoExpiry);
    assert_eq!(scene.fleet.attention(scene.now_ms)[0].since_ms, 0);

    let mut scene = Scene::new();
    for _ in 0..20 {
        for locks in [vec![foreign()], vec![foreign()], vec![]] {
            scene.look(900, locks);
            let attention = scene.fleet.attention(scene.now_ms);
            assert!(attention.iter().all(|found| found.finding.rule == Rule::Clock), "{attention:?}");
        }
    }
}

#[test]
fn a_late_beat_that_came_after_all_was_never_an_alarm() {
    let [a] = clients();
    let mut scene = Scene::new();
    for ago in [1_000, 2_000, 7_600, 100, 7_600, 200] {
        let mut holder = held(a, 60_000);
        (holder.renewed_ago_ms, holder.renewals) = (Some(ago), Some(9));
        holder.remaining_ms = Some(15_000 - ago);
        scene.look(1_000, vec![lock("x", vec![holder], vec![])]);
        assert_eq!(scene.rules("x"), [Rule::Legit], "{ago}");
    }
}

#[test]
fn a_deadlock_through_two_stores_is_explained_on_both_sides_and_told_once() {
    let [a, b, c, d] = clients();
    let mut scene = Scene::new();
    let reading = |locks| {
        let mut reading = snapshot(locks);
        for client in &mut reading.clients {
            client.pid = if client.id == *a || client.id == *c { 100 } else { 200 };
        }
        reading
    };
    for after in [0, 1_000, 1_000] {
        let waits = 4_000 + after;
        scene.show(
            "one",
            after,
            reading(vec![lock("orders", vec![held(a, 9_000)], vec![waiting(b, waits)])]),
        );
        scene.show("two", 0, reading(vec![lock("stock", vec![held(d, 5_000)], vec![waiting(c, waits)])]));
    }
    assert_eq!(scene.rules("orders")[0], Rule::Deadlock);
    assert_eq!(scene.row("orders").state, LockState::Deadlock);
    let attention = scene.fleet.attention(scene.now_ms);
    assert_eq!(attention.len(), 1, "{attention:?}");
    let finding = &attention[0].finding;
    assert!(finding.sentence.contains("waits for orders in one, held by"), "{}", finding.sentence);
    let Next::Run(command) = &finding.next[0] else { panic!("{finding:?}") };
    assert!(command.starts_with("polylatch --url redis://two break stock --token 7"), "{command}");
    assert_eq!(scene.fleet.summary(scene.now_ms).deadlocked, 2);
    let text = scene.fleet.graph().text();
    assert!(text.contains("break here: stock, taken last, held for 5.0 s"), "{text}");
    // One side lets go: nothing is left of it on the other.
    scene.show("two", 1_000, reading(vec![]));
    assert!(!scene.rules("orders").contains(&Rule::Deadlock));
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
        "web-1 pid 100 (worker) holds up 3 clients:\n  web-1 pid 200 (worker) waits for x, and holds up 1 client\n    web-1 pid 400 (worker) waits for y\n  web-1 pid 300 (worker) waits for x\n"
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
fn far_longer_than_usual_is_told_and_the_usual_is_not() {
    let [a, b] = clients();
    let run = |held_ms: u64| {
        let mut scene = Scene::new();
        scene.every_ms = 10_000;
        let mut at = 1_000_000;
        scene.look(0, vec![]);
        for token in 1..=9 {
            at += 1_000;
            scene.look(1_000, vec![lock("x", vec![granted(a, token, at, at)], vec![])]);
            at += 5_000;
            scene.look(5_000, vec![lock("x", vec![], vec![])]);
        }
        for _ in 0..2 {
            at += 6_000;
            let mut holder = granted(b, 99, at - held_ms, at);
            (holder.renewals, holder.renewed_ago_ms, holder.remaining_ms) =
                (Some(50), Some(100), Some(14_900));
            scene.look(6_000, vec![lock("x", vec![holder], vec![])]);
        }
        scene.fleet.explain(&key("x")).remove(0)
    };
    let finding = run(40_000);
    assert_eq!((finding.rule, finding.severity), (Rule::ZombieRenew, Severity::Warning));
    assert!(finding.sentence.contains("has held it for 40.0 s; the longest of the holds before was 5.0 s"));
    assert_eq!(run(20_000).rule, Rule::Legit);
}

#[test]
fn who_is_passed_over_again_and_again_starves_and_who_only_waits_does_not() {
    let [a, b, c] = clients();
    let run = |barging: bool| {
        let mut scene = Scene::new();
        let mut at = 1_000_000;
        for token in 1..=7 {
            at += 1_000;
            let holder = if barging { granted(a, token, at, at) } else { granted(a, 1, 1_001_000, at) };
            scene.look(1_000, vec![lock("x", vec![holder], vec![waiting(b, at - 999_000), waiting(c, 10)])]);
        }
        scene.fleet.explain(&key("x")).remove(0)
    };
    let finding = run(true);
    assert_eq!(finding.rule, Rule::Starved);
    assert!(finding.sentence.contains("was passed over 6 times"), "{}", finding.sentence);
    assert_eq!(run(false).rule, Rule::Legit);
}

#[test]
fn a_token_that_falls_back_is_told_and_growing_ones_are_not() {
    let [a, b] = clients();
    let run = |second: u64| {
        let mut scene = Scene::new();
        let start = 1_000_000;
        scene.look(0, vec![lock("x", vec![granted(a, 50, start, start)], vec![])]);
        let next = granted(b, second, start + 500, start + 1_000);
        scene.look(1_000, vec![lock("x", vec![next], vec![])]);
        scene.rules("x")
    };
    assert_eq!(run(3), [Rule::TokenFellBack]);
    assert_eq!(run(51), [Rule::Legit]);
}

#[test]
fn beats_that_come_late_every_time_are_told() {
    let [a] = clients();
    let run = |gap_ms: u64| {
        let mut scene = Scene::new();
        let start = 1_000_000;
        for beat in 0..6 {
            let now = start + beat * gap_ms;
            let mut holder = granted(a, 1, start, now);
            (holder.renewals, holder.remaining_ms) = (Some(beat as u32), Some(15_000));
            holder.renewed_ago_ms = (beat > 0).then_some(0);
            scene.look(if beat == 0 { 0 } else { gap_ms }, vec![lock("x", vec![holder], vec![])]);
        }
        scene.rules("x")
    };
    assert_eq!(run(9_500), [Rule::ShortLease]);
    assert_eq!(run(5_000), [Rule::Legit]);
}

#[test]
fn a_lock_delay_is_no_contention() {
    let mut scene = Scene::new();
    let mut delayed = lock("x", vec![], vec![]);
    delayed.details.push(polylatch::inspect::Detail::new("lock-delay", "9 s left"));
    scene.look(0, vec![delayed]);
    assert_eq!((scene.row("x").state, scene.rules("x")), (LockState::LockDelay, vec![Rule::LockDelay]));
    scene.look(1_000, vec![lock("x", vec![], vec![])]);
    assert_eq!(scene.rules("x"), [Rule::Free]);
}

#[test]
fn a_clock_that_is_off_is_told_when_it_stays_so() {
    let mut scene = Scene::new();
    for _ in 0..12 {
        scene.look(1_000, vec![]);
    }
    // The scene's stores are far ahead of its viewer.
    let attention = scene.fleet.attention(scene.now_ms);
    assert_eq!(attention[0].finding.rule, Rule::Clock);
    assert!(attention[0].finding.sentence.contains("ahead of"), "{attention:?}");
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

/// A scene in which much happens.
fn eventful() -> Scene {
    let [a, b, c, d] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    scene.sight = Sight { host: "web-1".into(), ..Sight::default() };
    for at in 0..40_u64 {
        let now = start + at * 1_000;
        // Ages that are off by some, as those of a store that is read in pages.
        let mut first = granted(a, 7, start, now + at % 3);
        (first.renewals, first.renewed_ago_ms) = (Some((at / 5) as u32), (at >= 5).then_some(at % 5 * 1_000));
        first.remaining_ms = Some(15_000 - at % 5 * 1_000);
        let mut locks = vec![lock("orders", vec![first], vec![waiting(b, at * 1_000 + 4_000)])];
        locks.push(lock(
            "stock",
            vec![granted(b, 8, start, now)],
            if at > 10 { vec![waiting(a, (at - 10) * 1_000)] } else { vec![] },
        ));
        if at % 7 < 4 {
            locks.push(foreign());
        }
        if at > 20 {
            locks.push(lock(
                "mail",
                vec![granted(if at % 2 == 0 { c } else { d }, 100 + at, now, now)],
                vec![],
            ));
        }
        if at == 15 {
            scene.fail(500);
            scene.look(500, locks);
        } else {
            scene.look(1_000, locks);
        }
        scene.look_at("two", 0, vec![lock("far", vec![granted(c, 1, start, now)], vec![])]);
    }
    let mut last = (*scene.before["one"]).clone();
    last.audit.push(AuditEntry {
        at_ms: start + 40_000,
        name: "stock".into(),
        fencing_token: FencingToken::new(8),
        holder: b.clone(),
        by: "ann@desk".into(),
        reason: "stuck".into(),
    });
    last.locks.retain(|lock| lock.name != "stock");
    last.clients.push(ClientView { id: ClientId::parse("zeta:1:0").unwrap(), ..last.clients[0].clone() });
    scene.show("one", 1_000, last);
    scene
}

fn recorded(scene: &Scene) -> String {
    let (mut encoder, mut text) = Encoder::begin(&[connection("one"), connection("two")], 0);
    for update in &scene.told {
        text += &encoder.update(update);
    }
    text
}

#[test]
fn a_replay_shows_at_every_moment_what_was_shown_live() {
    let scene = eventful();
    let text = recorded(&scene);
    let mut replay = Replay::new(Recording::parse(&text).unwrap(), Limits::default());
    assert_eq!(replay.remarks(), Vec::<String>::new());
    let mut live = Fleet::new(Limits::default());
    live.connect(connection("one"));
    live.connect(connection("two"));
    let mut at = 0;
    while at < scene.told.len() {
        let now_ms = scene.told[at].at_ms;
        while scene.told.get(at).is_some_and(|update| update.at_ms == now_ms) {
            live.ingest(scene.told[at].clone());
            at += 1;
        }
        replay.seek(now_ms);
        assert_eq!(replay.fleet().attention(now_ms), live.attention(now_ms), "at {now_ms}");
        for place in live.row_refs() {
            let row = live.at(place);
            let again = replay.fleet().find(&row.key).map(|place| replay.fleet().at(place));
            assert_eq!(again, Some(row), "at {now_ms}");
            assert_eq!(replay.fleet().explain(&row.key), live.explain(&row.key));
            assert_eq!(replay.fleet().lock(&row.key), live.lock(&row.key));
            assert_eq!(replay.fleet().history(&row.key), live.history(&row.key));
        }
    }
    // Back, and forth again.
    let end = replay.fleet().attention(scene.now_ms);
    replay.seek(12_345);
    assert_eq!(replay.at_ms(), 12_345);
    assert_ne!(replay.fleet().attention(12_345), end);
    replay.seek(u64::MAX);
    assert_eq!(replay.fleet().attention(scene.now_ms), end);
    let marks: Vec<_> = replay.marks().iter().map(|mark| (mark.text.as_str(), mark.attention)).collect();
    assert!(marks.iter().any(|(text, attention)| text.starts_with("Deadlock") && *attention), "{marks:?}");
    assert!(marks.contains(&("stock: broken by ann@desk: stuck", false)), "{marks:?}");
}

#[test]
fn a_recording_is_small_and_has_no_secret() {
    let [a] = clients();
    let mut scene = Scene::new();
    for at in 0..50 {
        let holder = |name: u64| granted(a, 7, 1_000_000, 1_000_000 + at * 100 + name % 3);
        let locks = (0..20).map(|name| lock(&format!("lock/{name:02}"), vec![holder(name)], vec![]));
        scene.look(100, locks.collect());
    }
    let text = recorded(&scene);
    let whole: usize = scene
        .told
        .iter()
        .map(|update| match &update.report {
            Report::Seen(sample) => serde_json::to_string(&sample.snapshot).unwrap().len(),
            Report::Failed { .. } => 0,
        })
        .sum();
    assert!(text.len() * 10 < whole, "{} of {whole}", text.len());
    assert!(!text.contains("s3cret"));
}

#[test]
fn a_cut_or_damaged_recording_is_read_as_far_as_it_goes() {
    let text = recorded(&eventful());
    let all = Recording::parse(&text).unwrap().len();
    for cut in (text.len() - 300..text.len()).step_by(7) {
        let recording = Recording::parse(&text[..cut]).unwrap();
        assert!(recording.remarks()[0].contains("cut off") && recording.len() >= all - 4);
    }
    let lines: Vec<&str> = text.lines().collect();
    let mut damaged = lines.clone();
    damaged[10] = "{\"at\":5000,\"of\":\"one\",\"ne";
    damaged.remove(20);
    let replay = Replay::new(Recording::parse(&(damaged.join("\n") + "\n")).unwrap(), Limits::default());
    let remarks = replay.remarks();
    assert!(remarks[0].contains("1 line is damaged"), "{remarks:?}");
    for (text, part) in [("", "no recording"), ("{}\n", "no recording"), ("hello\n", "no recording")] {
        assert!(Recording::parse(text).unwrap_err().contains(part));
    }
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert!(Recording::parse(&newer).unwrap_err().contains("update this program"));
}

#[test]
fn rows_are_exported_as_json_csv_and_markdown_without_tricks() {
    let [a, b] = clients();
    let mut scene = Scene::new();
    let mut trick = held(a, 2_000);
    trick.label = "=HYPERLINK(\"x\")\u{202e}".into();
    let locks = vec![lock("=cmd|x", vec![trick], vec![waiting(b, 10)]), lock("a,\"b\"", vec![], vec![])];
    scene.look(0, locks.clone());
    scene.look(1_000, locks);
    let rows: Vec<RowRef> = scene.fleet.row_refs().collect();
    let json = export::json(&scene.fleet, &rows, scene.now_ms);
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed[0]["name"], "=cmd|x");
    assert_eq!(parsed[0]["state"], "contended");
    assert!(!json.contains('\u{202e}'));
    let csv = export::csv(&scene.fleet, &rows, scene.now_ms);
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert!(lines[0].starts_with("state,lock,connection"));
    assert!(lines[1].contains("\"'=cmd|x\",one"), "{}", lines[1]);
    assert!(lines[2].contains("\"a,\"\"b\"\"\",one"), "{}", lines[2]);
    let ticket = export::markdown(&scene.fleet, rows[0], scene.now_ms);
    assert!(ticket.starts_with("### Lock `=cmd\\|x`"), "{ticket}");
    assert!(ticket.contains("polylatch --url redis://one show '=cmd|x'"), "{ticket}");
}

#[test]
fn commands_to_copy_are_quoted_and_never_change_the_store_but_by_ours() {
    let [a] = clients();
    let mut scene = Scene::new();
    let name = "it's $HOME/`x`";
    let mut odd = lock(name, vec![held(a, 10)], vec![]);
    odd.details.push(polylatch::inspect::Detail::new("key", format!("polylatch:{{{name}}}:lock")));
    let mut reading = snapshot(vec![odd, lock("x\u{202e}y", vec![held(a, 10)], vec![])]);
    reading.backend = "redis".into();
    scene.show("one", 0, reading);
    let found = commands(&scene.fleet, &key(name));
    let texts: Vec<&str> = found.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            r"polylatch --url redis://one show 'it'\''s $HOME/`x`'",
            r"polylatch --url redis://one break 'it'\''s $HOME/`x`' --token 7 --reason '...'",
            r"redis-cli -u redis://one GET 'polylatch:{it'\''s $HOME/`x`}:lock'",
            r"redis-cli -u redis://one PTTL 'polylatch:{it'\''s $HOME/`x`}:lock'",
        ]
    );
    assert_eq!(found.iter().filter(|command| command.changes).count(), 1);
    assert_eq!(commands(&scene.fleet, &key("x\u{202e}y")), []);
}
