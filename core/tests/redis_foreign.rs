//! Other libraries' locks on a real server: seen as such, left as they are.

#![cfg(feature = "redis")]

use pollster::block_on;
use polylatch::inspect::{LockView, Query, Snapshot};
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::redis::RedisServer;

const UUID: &str = "0b1c9f8e-1111-4222-8333-444455556666";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn list(client: &Polylatch, pattern: Option<&str>) -> Snapshot {
    let query = Query { foreign: pattern.map(str::to_owned), ..Query::default() };
    block_on(client.inspect().list(&query)).unwrap()
}

fn find<'s>(snapshot: &'s Snapshot, name: &str) -> &'s LockView {
    snapshot.locks.iter().find(|lock| lock.name == name).unwrap_or_else(|| panic!("{name}: {snapshot:?}"))
}

fn library(lock: &LockView) -> &str {
    &lock.details.iter().find(|detail| detail.name == "library").unwrap().value
}

#[test]
fn other_libraries_locks_are_shown_only_when_asked_for_and_never_with_their_secret() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let guard = block_on(client.lock("ours").acquire()).unwrap();
    let field = format!("{UUID}:17");
    for command in [
        &["SET", "lock:plain", TOKEN, "PX", "60000"][..],
        &["SET", "lock:for-ever", UUID],
        &["HSET", "lock:redisson", &field, "2"],
        &["PEXPIRE", "lock:redisson", "30000"],
        &["HSET", "lock:user", "name", "ann"],
        &["SET", "lock:count", "17"],
        &["RPUSH", "lock:list", "1"],
        &["SET", "elsewhere", TOKEN],
        &["SET", "lock:bytes", "x\u{0}y"],
    ] {
        assert_eq!(server.command(command).error(), None, "{command:?}");
    }

    let names = |snapshot: &Snapshot| snapshot.locks.iter().map(|lock| lock.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&list(&client, None)), ["ours"]);
    let seen = list(&client, Some("lock:*"));
    assert_eq!(names(&seen), ["lock:for-ever", "lock:plain", "lock:redisson", "ours"]);

    let plain = find(&seen, "lock:plain");
    assert_eq!((&*plain.mode, plain.holders.len()), ("foreign", 1));
    assert!(library(plain).contains("redis-py"));
    assert!(plain.holders[0].remaining_ms.unwrap() <= 60_000);
    assert_eq!((plain.holders[0].client.as_ref(), plain.holders[0].fencing_token), (None, None));
    assert_eq!(find(&seen, "lock:for-ever").holders[0].remaining_ms, None);
    let redisson = find(&seen, "lock:redisson");
    assert_eq!(library(redisson), "Redisson lock");
    assert_eq!(redisson.holders[0].label, "client 0b1c9f8e, thread 17, 2 times");
    let told = format!("{seen:?}");
    assert!(!told.contains(TOKEN) && !told.contains(UUID), "the right to release is not shown");

    // Nothing was written, and our own keys are not taken for somebody else's.
    assert!(seen.locks.iter().all(|lock| !lock.name.starts_with("polylatch:")));
    assert_eq!(names(&list(&client, Some("polylatch:*"))), ["ours"]);
    assert_eq!(server.command(&["GET", "lock:plain"]).text(), Some(TOKEN));
    block_on(guard.release()).unwrap();
}

#[test]
fn many_keys_are_gone_through_in_steps_up_to_the_limit() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let fill = "for at = 1, 3000 do redis.call('SET', 'lock:' .. at, ARGV[1]) end";
    assert_eq!(server.command(&["EVAL", fill, "0", TOKEN]).error(), None);
    let all = list(&client, Some("lock:*"));
    assert_eq!((all.locks.len(), all.truncated), (3_000, false));
    let query = Query { foreign: Some("lock:*".into()), limit: Some(50), ..Query::default() };
    let some = block_on(client.inspect().list(&query)).unwrap();
    assert_eq!((some.locks.len(), some.truncated), (50, true));
    assert!(some.requests < all.requests);
}

#[test]
fn a_pattern_that_cannot_be_one_is_refused_before_anything_is_sent() {
    let client = block_on(Polylatch::connect("memory:")).unwrap();
    for pattern in [String::new(), "a\nb".into(), "x".repeat(300)] {
        let query = Query { foreign: Some(pattern.clone()), ..Query::default() };
        let error = block_on(client.inspect().list(&query)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{pattern}");
    }
}
