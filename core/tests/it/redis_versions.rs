//! Records of another version: a later one's are passed over and reported, never an error; those of this
//! version stay readable.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::inspect::{BreakOutcome, BreakRequest, CheckSeverity, Query};
use polylatch::{ErrorKind, FencingToken, Polylatch};
use polylatch_test_services::Reply;
use polylatch_test_services::redis::RedisServer;

/// Waiters that this version cannot read: marked, with a field more, with an unknown mode, and no record at all.
const WAITERS: [&str; 5] = [
    "pl2|00112233445566778899aabbccddeeff|h:1:x|3000|15000|1|m|x",
    "00112233445566778899aabbccddeeff|h:1:x|3000|15000|1|m|x|more",
    "00112233445566778899aabbccddeeff|h:1:x|3000|15000|1|intent|x",
    "pl3|1|later|",
    "{}",
];

/// Leases of a lock that can be shared, likewise.
const HOLDERS: [&str; 4] = [
    "pl2|00112233445566778899aabbccddeeff|1763680000000001|r",
    "00112233445566778899aabbccddeeff|1763680000000001|intent",
    "00112233445566778899aabbccddeeff|1763680000000001|p1/5|more",
    "{}",
];

fn connect(server: &RedisServer) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?poll=100ms", server.url()))).unwrap()
}

#[track_caller]
fn run(server: &RedisServer, words: &[&str]) -> Reply {
    let reply = server.command(words);
    assert_eq!(reply.error(), None, "{words:?}");
    reply
}

fn in_ms(after: Duration) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    (now + after).as_millis().to_string()
}

/// Queues records of another version in front of all others, alive for a minute.
fn queue(server: &RedisServer, name: &str, records: &[&str]) {
    let (line, life) = (format!("polylatch:{{{name}}}:line"), format!("polylatch:{{{name}}}:life"));
    for (at, record) in records.iter().enumerate() {
        run(server, &["ZADD", &line, &at.to_string(), record]);
        run(server, &["ZADD", &life, &in_ms(millis(60_000)), record]);
    }
    run(server, &["ZADD", "polylatch:locks", &in_ms(Duration::ZERO), name]);
}

fn finding(client: &Polylatch, id: &str) -> (CheckSeverity, String) {
    let examination = block_on(client.inspect().examine()).unwrap();
    let check = examination.finding(id).unwrap();
    (check.severity, check.detail.clone())
}

#[test]
fn waiters_of_another_version_are_passed_over_by_locks_of_every_kind() {
    let server = RedisServer::start();
    let [first, second] = [(); 2].map(|()| connect(&server));
    for name in ["mutex", "rw", "permits"] {
        queue(&server, name, &WAITERS);
        let wanted = |client: &Polylatch| match name {
            "mutex" => client.lock(name),
            "rw" => client.rw_lock(name).write(),
            _ => client.semaphore(name, 1).permits(1),
        };
        let held =
            block_on(wanted(&first).try_acquire()).unwrap().unwrap_or_else(|| panic!("{name} is free"));
        assert!(block_on(wanted(&second).try_acquire()).unwrap().is_none(), "{name}");
        let view = seen(&first, name);
        assert_eq!((view.holders.len(), view.waiters.len()), (1, 0), "{view:?}");
        assert_eq!(view.unreadable().count(), WAITERS.len(), "{view:?}");
        assert!(!format!("{view:?}").contains("00112233445566778899aabbccddeeff"), "{view:?}");

        let lock = wanted(&second).wait(millis(30_000));
        let waiting = thread::spawn(move || block_on(lock.acquire()).unwrap());
        eventually("it waits behind them", || seen(&first, name).waiters.len() == 1);
        block_on(held.release()).unwrap();
        let next = waiting.join().unwrap();
        next.check().unwrap();

        // A cancelled waiter and a broken lease leave nothing behind either.
        block_on(wanted(&first).wait(millis(300)).acquire()).expect_err("it is held");
        let order = BreakRequest {
            name: name.into(),
            expected: next.fencing_token(),
            by: "ann@desk".into(),
            reason: "test".into(),
        };
        let broken = block_on(first.inspect().break_lease(&order)).unwrap();
        assert!(matches!(broken, BreakOutcome::Broken { next: None, .. }), "{broken:?}");
        let sets = block_on(first.inspect().list(&Query::default())).unwrap();
        assert_eq!(sets.audit[0].fencing_token, order.expected);
        block_on(wanted(&first).try_acquire()).unwrap().expect("free again").check().unwrap();
    }
    let (severity, detail) = finding(&first, "records");
    assert_eq!(severity, CheckSeverity::Warning);
    assert!(detail.contains("waiter"), "{detail}");
}

#[test]
fn a_name_that_only_another_version_waits_for_is_listed() {
    let server = RedisServer::start();
    let client = connect(&server);
    queue(&server, "a", &WAITERS[..1]);
    let listed = block_on(client.inspect().list(&Query::default())).unwrap().locks;
    assert_eq!(listed.len(), 1, "{listed:?}");
    let told: Vec<_> = listed[0].unreadable().collect();
    assert_eq!(told, ["waiter 1: written by another version of Polylatch (form pl2)"]);
}

#[test]
fn a_waiter_of_another_version_expires_by_its_heartbeat() {
    let server = RedisServer::start();
    let client = connect(&server);
    queue(&server, "a", &WAITERS[..1]);
    run(&server, &["ZADD", "polylatch:{a}:life", "1", WAITERS[0]]);
    drop(block_on(client.lock("a").try_acquire()).unwrap().unwrap());
    assert_eq!(run(&server, &["EXISTS", "polylatch:{a}:line"]), Reply::Int(0));
}

#[test]
fn leases_of_another_version_exclude_everything_until_they_end() {
    let server = RedisServer::start();
    let client = connect(&server);
    for record in HOLDERS {
        let ends = Instant::now() + millis(2_500);
        for name in ["mutex", "read", "write", "permits", "set"] {
            let holders = format!("polylatch:{{{name}}}:holders");
            run(&server, &["ZADD", &holders, &in_ms(millis(2_500)), record]);
        }
        let kinds = [
            client.lock("mutex"),
            client.rw_lock("read").read(),
            client.rw_lock("write").write(),
            client.semaphore("permits", 5).permits(1),
        ];
        for lock in &kinds {
            assert!(block_on(lock.try_acquire()).unwrap().is_none(), "{record}: {lock:?}");
        }
        assert!(block_on(client.lock_all(["set", "beside"]).try_acquire()).unwrap().is_none(), "{record}");
        let view = seen(&client, "mutex");
        assert_eq!((view.holders.len(), view.unreadable().count()), (1, 1), "{view:?}");
        let order = BreakRequest {
            name: "mutex".into(),
            expected: FencingToken::new(1),
            by: "a".into(),
            reason: "b".into(),
        };
        if !record.starts_with('0') {
            let error = block_on(client.inspect().break_lease(&order)).unwrap_err();
            assert!(error.to_string().contains("another version"), "{error}");
        }
        let threads: Vec<_> = kinds
            .into_iter()
            .map(|lock| {
                let lock = lock.wait(millis(30_000));
                thread::spawn(move || {
                    let guard = block_on(lock.acquire()).unwrap();
                    (Instant::now(), block_on(guard.release()).unwrap())
                })
            })
            .collect();
        for entered in threads {
            let (at, ()) = entered.join().unwrap();
            assert!(at + millis(5) >= ends, "{record}: {:?} too early", ends - at);
        }
    }
}

#[test]
fn beside_a_lease_of_another_version_those_of_this_one_are_renewed_and_released() {
    let server = RedisServer::start();
    let client = connect(&server);
    let semaphore = client.semaphore("a", 5);
    let held = block_on(semaphore.permits(1).acquire()).unwrap();
    run(&server, &["ZADD", "polylatch:{a}:holders", &in_ms(millis(60_000)), HOLDERS[0]]);
    run(&server, &["HSET", "polylatch:{a}:details", "later", "pl2|x"]);
    assert!(block_on(semaphore.permits(1).try_acquire()).unwrap().is_none());
    let renewals = held.renewals();
    crate::contract::eventually_within("it is renewed", millis(30_000), || held.renewals() > renewals);
    block_on(held.release()).unwrap();
    // One that has ended is removed like any other.
    run(&server, &["ZADD", "polylatch:{a}:holders", "1", HOLDERS[0]]);
    block_on(semaphore.permits(5).try_acquire()).unwrap().expect("free").check().unwrap();
}

#[test]
fn a_lock_value_of_another_version_excludes_until_it_expires() {
    let server = RedisServer::start();
    let client = connect(&server);
    let value = "00112233445566778899aabbccddeeff|pl2|7|later";
    let ends = Instant::now() + millis(2_000);
    run(&server, &["SET", "polylatch:{a}:lock", value, "PX", "2000"]);
    run(&server, &["ZADD", "polylatch:locks", "1", "a"]);
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_none());
    let view = seen(&client, "a");
    assert_eq!((&*view.mode, view.holders.len(), view.unreadable().count()), ("mutex", 1, 1), "{view:?}");
    let order =
        BreakRequest { name: "a".into(), expected: FencingToken::new(1), by: "a".into(), reason: "b".into() };
    let error = block_on(client.inspect().break_lease(&order)).unwrap_err();
    assert!(error.to_string().contains("another version"), "{error}");
    block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap().check().unwrap();
    assert!(Instant::now() >= ends);
}

#[test]
fn clients_breaks_gates_and_messages_of_another_version_hide_and_stop_nothing() {
    let server = RedisServer::start();
    let client = connect(&server);
    run(&server, &["SET", "polylatch:client:h:1:later", "pl2|x"]);
    run(&server, &["ZADD", "polylatch:clients", &in_ms(millis(60_000)), "h:1:later"]);
    run(&server, &["LPUSH", "polylatch:audit", "pl2|x"]);
    run(&server, &["SET", "polylatch:epoch", "pl2|x"]);
    run(&server, &["SET", "polylatch:longest", "later"]);
    let held = block_on(client.lock("a").acquire()).unwrap();
    assert_eq!(block_on(client.inspect().list(&Query::default())).unwrap().locks.len(), 1);
    let (severity, detail) = finding(&client, "records");
    assert_eq!((severity, detail.starts_with("4 records")), (CheckSeverity::Warning, true), "{detail}");

    let lock = client.lock("a").wait(millis(30_000));
    let waiting = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&client, "a").waiters.len() == 1);
    let inbox = format!("polylatch:inbox:{}", client.id());
    for message in ["pl2|granted|x", "granted", "", "later|00112233445566778899aabbccddeeff|7"] {
        run(&server, &["PUBLISH", &inbox, message]);
    }
    block_on(held.release()).unwrap();
    waiting.join().unwrap().check().unwrap();

    // The quarantine of a client that cannot read the gate is bounded by its own leases.
    let strict =
        format!("{}?guarantee=strict&max_lease=1s&lease=1s&provisional=300ms&poll=100ms", server.url());
    let strict = block_on(Polylatch::connect(&strict)).unwrap();
    block_on(strict.lock("b").wait(millis(30_000)).acquire()).unwrap().check().unwrap();
}

#[test]
fn a_break_that_cannot_be_recorded_ends_nothing() {
    let server = RedisServer::start();
    let client = connect(&server);
    let held = block_on(client.lock("a").acquire()).unwrap();
    run(&server, &["SET", "polylatch:audit", "later"]);
    let order = BreakRequest {
        name: "a".into(),
        expected: held.fencing_token(),
        by: "ann@desk".into(),
        reason: "test".into(),
    };
    block_on(client.inspect().break_lease(&order)).expect_err("no break without a record");
    assert_eq!(seen(&client, "a").holders.len(), 1);
    held.check().unwrap();
}

#[test]
fn a_counter_that_is_used_up_or_cannot_be_read_refuses_grants_and_says_so() {
    let server = RedisServer::start();
    let client = connect(&server);
    let cases = [("9007199254740990", true), ("9007199254740991", false), ("pl2|7", false)];
    for (at, (last, works)) in cases.into_iter().enumerate() {
        run(&server, &["SET", "polylatch:fence", last]);
        let tries = [
            block_on(client.lock(format!("a{at}")).try_acquire()),
            block_on(client.rw_lock(format!("b{at}")).read().try_acquire()),
            block_on(client.lock(format!("c{at}")).renew(false).try_acquire()),
        ];
        let (granted, refused): (Vec<_>, Vec<_>) = tries.into_iter().partition(Result::is_ok);
        // The last number that is exact everywhere is given out once.
        assert_eq!(granted.len(), usize::from(works), "{last}");
        for error in refused {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
            assert!(error.to_string().contains("counter of fencing tokens is used up"), "{error}");
        }
        drop(granted);
    }
}

/// The golden record of a kind.
fn golden(kind: &str) -> &'static str {
    let records = include_str!("golden/redis-1.txt").lines().filter_map(|line| line.split_once('\t'));
    records.into_iter().find(|(of, _)| *of == kind).unwrap_or_else(|| panic!("no record of a {kind}")).1
}

#[test]
fn golden_records_of_version_1_stay_readable() {
    let server = RedisServer::start();
    let client = connect(&server);
    run(&server, &["SET", "polylatch:fence", golden("counter")]);
    run(&server, &["SET", "polylatch:{m}:lock", golden("value"), "PX", "60000"]);
    queue(&server, "m", &[golden("waiter")]);
    run(&server, &["ZADD", "polylatch:{s}:holders", &in_ms(millis(60_000)), golden("holder")]);
    run(&server, &["HSET", "polylatch:{s}:details", "00112233445566778899aabbccddeef2", golden("details")]);
    queue(&server, "s", &[golden("sharing waiter")]);
    for (id, kind) in [("web-1:42:0a0b0c0d", "client"), ("web-2:43:0a0b0c0d", "client with guarantee")] {
        let record = golden(kind).split([' ', '=']);
        let key = format!("polylatch:client:{id}");
        let words: Vec<&str> = ["HSET", &key].into_iter().chain(record).collect();
        run(&server, &words);
        run(&server, &["ZADD", "polylatch:clients", &in_ms(millis(60_000)), id]);
    }
    for kind in ["break", "break with version"] {
        run(&server, &["LPUSH", "polylatch:audit", golden(kind)]);
    }
    run(&server, &["SET", "polylatch:epoch", golden("gate")]);
    run(&server, &["SET", "polylatch:longest", golden("longest")]);

    let all = block_on(client.inspect().list(&Query::default())).unwrap();
    let [mutex, semaphore] = &all.locks[..] else { panic!("{all:?}") };
    for lock in [mutex, semaphore] {
        let holder = &lock.holders[0];
        assert_eq!(holder.client.as_ref().unwrap().as_str(), "web-1:42:0a0b0c0d");
        assert_eq!((holder.label.as_str(), holder.renewals), ("nightly | import", Some(2)));
        assert_eq!(holder.fencing_token, Some(FencingToken::new(1_763_680_000_000_001)));
        assert_eq!((holder.lease_ms, lock.waiters[0].label.as_str()), (Some(15_000), "a|b"));
        assert_eq!(lock.unreadable().count(), 0);
    }
    assert_eq!((semaphore.capacity, semaphore.waiters[0].permits), (Some(5), 2));
    let hosts: Vec<_> = all.clients.iter().map(|client| (client.host.as_str(), client.pid)).collect();
    assert_eq!(hosts, [("web-1", 42), ("web-2", 43)]);
    assert_eq!(all.audit.len(), 2);
    assert!(all.audit.iter().all(|entry| entry.reason == "holder is stuck"));
    assert_eq!(finding(&client, "records").0, CheckSeverity::Ok);
    let (severity, detail) = finding(&client, "guarantee");
    assert_eq!((severity, detail.contains("web-2:43:0a0b0c0d")), (CheckSeverity::Warning, true), "{detail}");

    // The scripts read them, too: the next waiter is granted by its own record, and its permits count.
    let order = BreakRequest {
        name: "m".into(),
        expected: FencingToken::new(1_763_680_000_000_001),
        by: "ann@desk".into(),
        reason: "test".into(),
    };
    let broken = block_on(client.inspect().break_lease(&order)).unwrap();
    let BreakOutcome::Broken { holder, .. } = broken else { panic!("{broken:?}") };
    assert_eq!(holder.as_str(), "web-1:42:0a0b0c0d");
    let listening = golden("waiter").split('|').next().unwrap();
    let value = run(&server, &["GET", "polylatch:{m}:lock"]);
    assert!(value.text().unwrap().starts_with(listening), "{value:?}");
    let all_permits = client.semaphore("s", 5);
    assert!(block_on(all_permits.permits(4).try_acquire()).unwrap().is_none());
}
