//! Other libraries' locks on a real server: seen as such, left as they are.

#![cfg(feature = "redis")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// A client that shares the keys of its locks with libraries that use the name itself.
fn sharing(server: &RedisServer, options: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}?lock_key={{name}}{options}", server.url()))).unwrap()
}

/// Waits until a command answers what is wanted.
fn until(server: &RedisServer, command: &[&str], wanted: i64) {
    let started = Instant::now();
    while server.command(command).int() != Some(wanted) {
        assert!(started.elapsed() < Duration::from_secs(20), "{command:?} is not {wanted}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn waiting(lock: &polylatch::Lock) -> thread::JoinHandle<polylatch::Guard> {
    let lock = lock.clone();
    thread::spawn(move || block_on(lock.acquire()).unwrap())
}

#[test]
fn a_template_has_the_very_key_that_the_other_library_uses() {
    let server = RedisServer::start();
    let client = sharing(&server, "");
    for name in ["{order}:1", "100%", "a}b{c", "{}", "{}x", "two words", "Größe/ß", "a%7Bb"] {
        // What redis-py and node-redlock send.
        let take = || server.command(&["SET", name, TOKEN, "NX", "PX", "60000"]);
        assert!(take().is_ok(), "{name}");
        assert!(block_on(client.lock(name).try_acquire()).unwrap().is_none(), "two hold {name}");
        assert_eq!(find_named(&client, name).mode, "foreign", "{name}");
        server.command(&["DEL", name]);
        let guard = block_on(client.lock(name).lease(Duration::from_secs(60)).acquire()).unwrap();
        assert!(!take().is_ok(), "two hold {name}");
        let listed = find_named(&client, name);
        assert_eq!((&*listed.mode, listed.holders.len()), ("mutex", 1));
        let all = list(&client, Some("*"));
        assert_eq!(all.locks.iter().map(|lock| &*lock.name).collect::<Vec<_>>(), [name]);
        block_on(guard.release()).unwrap();
        assert_eq!(server.command(&["EXISTS", name]).int(), Some(0), "{name}");
    }
    let error = block_on(client.lock("polylatch:fence").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

fn find_named(client: &Polylatch, name: &str) -> LockView {
    let query = Query { name: Some(name.into()), ..Query::default() };
    block_on(client.inspect().list(&query)).unwrap().locks.remove(0)
}

#[test]
fn where_keys_are_shared_locks_without_an_end_and_hashes_are_waited_for() {
    let server = RedisServer::start();
    let (ours, alone) = (sharing(&server, ""), block_on(Polylatch::connect(&server.url())).unwrap());
    let field = format!("{UUID}:17");
    let forms: [&[&[&str]]; 3] = [
        // redis-py without a timeout.
        &[&["SET", "a", TOKEN]],
        // The expiry inside of the value.
        &[&["SET", "a", "1763680000.25"]],
        &[&["HSET", "a", &field, "1"], &["PEXPIRE", "a", "30000"]],
    ];
    for form in forms {
        let take =
            || form.iter().for_each(|words| assert_eq!(server.command(words).error(), None, "{words:?}"));
        take();
        let kind = server.command(&["TYPE", "a"]);
        assert!(block_on(ours.lock("a").try_acquire()).unwrap().is_none(), "{form:?}");
        assert!(block_on(ours.lock_all(["a", "b"]).try_acquire()).unwrap().is_none(), "{form:?}");
        let waiter = waiting(&ours.lock("a").wait(Duration::from_secs(30)));
        until(&server, &["ZCARD", "polylatch:{a}:line"], 1);
        let seen = find_named(&ours, "a");
        assert_eq!((&*seen.mode, seen.holders.len(), seen.waiters.len()), ("foreign", 1, 1), "{form:?}");
        let all = list(&ours, Some("*"));
        assert_eq!(all.locks.iter().map(|lock| &*lock.name).collect::<Vec<_>>(), ["a"]);
        // One that gives up leaves it as it is.
        let error = block_on(ours.lock("a").wait(Duration::from_millis(50)).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitTimeout, "{error}");
        assert_eq!(server.command(&["TYPE", "a"]), kind);
        let freed = Instant::now();
        server.command(&["DEL", "a"]);
        let guard = waiter.join().unwrap();
        assert!(freed.elapsed() < Duration::from_secs(10), "{:?}", freed.elapsed());
        // A lock that another one took from us is not ours to release.
        server.command(&["DEL", "a"]);
        take();
        drop(block_on(guard.release()));
        assert_eq!(server.command(&["TYPE", "a"]), kind, "{form:?}");
        server.command(&["DEL", "a"]);
    }
    // Without a template it is data of another program.
    server.command(&["SET", "polylatch:{a}:lock", TOKEN]);
    let error = block_on(alone.lock("a").wait(Duration::from_secs(30)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
}

#[test]
fn a_list_under_a_shared_key_is_data() {
    let server = RedisServer::start();
    server.command(&["RPUSH", "a", "1"]);
    let error = block_on(sharing(&server, "").lock("a").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
}

/// Counts the sections of each worker, and notices two at once.
#[derive(Default)]
struct Sections {
    inside: AtomicUsize,
    overlaps: AtomicUsize,
    stop: AtomicBool,
    of_each: [AtomicUsize; 4],
}

impl Sections {
    fn work(&self, worker: usize) {
        if self.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(40));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.of_each[worker].fetch_add(1, Ordering::SeqCst);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn counts(&self) -> Vec<usize> {
        self.of_each.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }
}

/// As redis-py (`every` 100 ms) or redis-semaphore (10 ms): asks, and releases by comparing and deleting.
fn poller(server: &RedisServer, sections: &Sections, worker: usize, every: Duration) {
    let compare =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    let token = format!("{worker:032x}");
    while sections.goes_on() {
        if server.command(&["SET", "a", &token, "NX", "PX", "60000"]).is_ok() {
            sections.work(worker);
            assert_eq!(
                server.command(&["EVAL", compare, "1", "a", &token]).int(),
                Some(1),
                "it was not held"
            );
            thread::sleep(Duration::from_millis(10));
        } else {
            thread::sleep(every);
        }
    }
}

fn of_ours(server: &RedisServer, sections: &Sections, worker: usize) {
    let client = sharing(server, "&lease=60s&provisional=10s");
    while sections.goes_on() {
        let guard = block_on(client.lock("a").wait(Duration::from_secs(60)).acquire()).unwrap();
        sections.work(worker);
        block_on(guard.release()).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs so many of ours beside so many pollers, which come when ours are there already: each has at least a
/// quarter of an equal share.
fn each_gets_its_turn(ours: usize, pollers: usize, every: Duration) {
    let (server, sections) = (RedisServer::start(), Sections::default());
    let before = thread::scope(|scope| {
        let (server, sections) = (&server, &sections);
        for worker in 0..ours {
            scope.spawn(move || of_ours(server, sections, worker));
        }
        while sections.counts()[..ours].contains(&0) {
            thread::sleep(Duration::from_millis(5));
        }
        for worker in ours..ours + pollers {
            scope.spawn(move || poller(server, sections, worker, every));
        }
        let before = sections.counts();
        thread::sleep(Duration::from_secs(8));
        sections.stop.store(true, Ordering::SeqCst);
        before
    });
    let counts: Vec<_> =
        sections.counts().iter().zip(before).map(|(now, before)| now - before).take(ours + pollers).collect();
    assert_eq!(sections.overlaps.load(Ordering::SeqCst), 0, "two held it at once: {counts:?}");
    let least = counts.iter().sum::<usize>() / (ours + pollers) / 4;
    assert!(counts.iter().all(|count| *count >= least), "{ours} of ours, then {pollers} pollers: {counts:?}");
}

#[test]
fn one_poller_beside_three_of_ours_gets_its_turn() {
    each_gets_its_turn(3, 1, Duration::from_millis(100));
}

#[test]
fn one_of_ours_beside_three_pollers_gets_its_turn() {
    each_gets_its_turn(1, 3, Duration::from_millis(10));
}

#[test]
fn a_lock_that_is_left_to_others_goes_to_the_first_in_the_queue_if_none_comes() {
    let server = RedisServer::start();
    let client = sharing(&server, "&poll=15s&provisional=40s&lease=60s");
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let first = waiting(&client.lock("a").wait(Duration::from_secs(60)));
    until(&server, &["ZCARD", "polylatch:{a}:line"], 1);
    let second = waiting(&client.lock("a").wait(Duration::from_secs(60)));
    until(&server, &["ZCARD", "polylatch:{a}:line"], 2);
    let order = client.inspect();
    let query = Query { name: Some("a".into()), ..Query::default() };
    let owners: Vec<_> = block_on(order.list(&query)).unwrap().locks[0]
        .waiters
        .iter()
        .map(|waiter| waiter.owner_digest.clone())
        .collect();
    let released = Instant::now();
    block_on(guard.release()).unwrap();
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_none(), "it overtook the queue");
    let guard = first.join().unwrap();
    // Its own poll would be due after 15 s.
    assert!(released.elapsed() < Duration::from_secs(10), "{:?}", released.elapsed());
    assert_eq!(find_named(&client, "a").holders[0].owner_digest, owners[0]);
    block_on(guard.release()).unwrap();
    let guard = second.join().unwrap();
    block_on(guard.release()).unwrap();
    // Where only Polylatch uses the key, the release hands it on.
    let alone = block_on(Polylatch::connect(&server.url())).unwrap();
    let guard = block_on(alone.lock("b").acquire()).unwrap();
    let next = waiting(&alone.lock("b").wait(Duration::from_secs(60)));
    until(&server, &["ZCARD", "polylatch:{b}:line"], 1);
    block_on(guard.release()).unwrap();
    assert_eq!(server.command(&["EXISTS", "polylatch:{b}:lock"]).int(), Some(1));
    block_on(next.join().unwrap().release()).unwrap();
    assert_eq!(server.command(&["EXISTS", "polylatch:{b}:others"]).int(), Some(0));
}
