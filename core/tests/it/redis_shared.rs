//! What read-write locks and semaphores on a Redis server promise beyond the contract: full memory,
//! waiters that no message reaches, foreign data, clock steps, the strict guarantee, and no rubbish.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::Instant;

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::inspect::Query;
use polylatch::{Converted, ErrorKind, Guard, Polylatch};
use polylatch_test_services::Reply;
use polylatch_test_services::redis::RedisServer;

fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

fn reader(client: &Polylatch, lease: u64) -> Guard {
    block_on(client.rw_lock("a").read().lease(millis(lease)).acquire()).unwrap()
}

fn members(server: &RedisServer) -> Vec<String> {
    let members = server.command(&["ZRANGE", "polylatch:{a}:holders", "0", "-1"]);
    members.texts().into_iter().map(str::to_owned).collect()
}

fn server_ms(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]);
    let parts: Vec<u64> = time.texts().iter().map(|part| part.parse().unwrap()).collect();
    parts[0] * 1000 + parts[1] / 1000
}

#[test]
fn a_full_memory_refuses_new_leases_and_lets_shared_ones_be_renewed_handed_over_and_released() {
    let server = RedisServer::builder().max_memory("64mb", "noeviction").start();
    let (client, other) = (connect(&server.url()), connect(&server.url()));
    let (short, long) = (reader(&client, 400), reader(&client, 60_000));
    let lock = other.rw_lock("a").write().lease(millis(400)).wait(millis(10_000));
    let writer = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("the writer waits", || seen(&client, "a").waiters.len() == 1);
    let permit = block_on(client.semaphore("s", 3).permits(1).lease(millis(400)).acquire()).unwrap();
    assert!(server.command(&["CONFIG", "SET", "maxmemory", "1"]).is_ok());

    let error = block_on(client.rw_lock("b").read().try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("memory of Redis is full"), "{error}");
    let error = block_on(client.semaphore("s", 3).try_acquire(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    for guard in [&short, &permit] {
        let before = guard.renewals();
        eventually("it is renewed", || guard.renewals() >= before + 4);
        guard.check().unwrap();
    }
    block_on(permit.extend(millis(60_000))).unwrap();
    assert!(permit.remaining() > millis(40_000), "it is also extended");
    block_on(short.release()).unwrap();
    assert!(!seen(&client, "a").waiters[0].silent, "its signs of life are taken");
    block_on(long.release()).unwrap();
    // The release has written when it grants, so the next one enters although memory is full.
    writer.join().unwrap().check().unwrap();
    block_on(permit.release()).unwrap();
    assert_eq!(server.command(&["EXISTS", "polylatch:{s}:holders", "polylatch:{s}:details"]), Reply::Int(0));
}

#[test]
fn of_those_who_enter_together_only_the_unheard_are_passed_over_and_keep_their_place() {
    let server = RedisServer::start();
    let (holder, others) = (connect(&server.url()), connect(&server.url()));
    let writer = block_on(holder.rw_lock("a").write().acquire()).unwrap();
    // Its signs of life are recent, but nobody listens to its inbox.
    let gone = "00112233445566778899aabbccddeeff|gone:1:0a0b0c0d|3000|15000|1|r|gone";
    server.command(&["ZADD", "polylatch:{a}:line", "1", gone]);
    let alive_until = (server_ms(&server) + 60_000).to_string();
    server.command(&["ZADD", "polylatch:{a}:life", &alive_until, gone]);
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let lock = others.rw_lock("a").read().wait(millis(10_000));
            let thread = thread::spawn(move || block_on(lock.acquire()).unwrap());
            eventually("it waits", || seen(&holder, "a").waiters.len() == number + 2);
            thread
        })
        .collect();
    let started = Instant::now();
    block_on(writer.release()).unwrap();
    let readers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(started.elapsed() < millis(500), "{:?}", started.elapsed());
    let view = seen(&holder, "a");
    assert_eq!((view.holders.len(), view.waiters.len()), (3, 1));
    assert_eq!(view.waiters[0].label, "gone");

    // Alone it gets the lock unheard, and only for its own first lease.
    let last = block_on(holder.rw_lock("a").write().no_wait().acquire()).unwrap_err();
    assert_eq!(last.kind(), ErrorKind::WaitTimeout);
    assert_eq!(seen(&holder, "a").holders.len(), 4);
    let ends = server.command(&[
        "ZSCORE",
        "polylatch:{a}:holders",
        members(&server).iter().find(|m| m.starts_with("0011")).unwrap(),
    ]);
    let left = ends.text().unwrap().parse::<u64>().unwrap() - server_ms(&server);
    assert!(left <= 3_000, "{left}");
    drop(readers);
}

#[test]
fn leases_of_the_dead_leave_nothing_behind() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    for lock in [client.rw_lock("a").read(), client.rw_lock("b").write(), client.semaphore("c", 5).permits(2)]
    {
        std::mem::forget(block_on(lock.lease(millis(300)).renew(false).acquire()).unwrap());
    }
    assert_eq!(server.command(&["KEYS", "polylatch:{*"]).items().len(), 6);
    eventually("they end", || server.command(&["KEYS", "polylatch:{*"]).items().is_empty());
    // What is left of them excludes no other kind.
    assert!(block_on(client.lock("a").try_acquire()).unwrap().is_some());
    let taken = block_on(client.semaphore("b", 1).try_acquire(1)).unwrap();
    assert!(taken.is_some());
}

#[test]
fn one_readers_end_leaves_no_trace_of_it_beside_the_others() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let kept = reader(&client, 60_000);
    let lock = client.rw_lock("a").read().lease(millis(200)).renew(false);
    std::mem::forget(block_on(lock.acquire()).unwrap());
    block_on(reader(&client, 60_000).release()).unwrap();
    thread::sleep(millis(250));
    let last = reader(&client, 60_000);
    assert_eq!(members(&server).len(), 2);
    assert_eq!(server.command(&["HLEN", "polylatch:{a}:details"]), Reply::Int(2));
    block_on(last.release()).unwrap();
    kept.check().unwrap();
    assert!(server.command(&["PTTL", "polylatch:{a}:holders"]).int().unwrap() > 0);
    assert!(server.command(&["PTTL", "polylatch:{a}:details"]).int().unwrap() > 0);
}

#[test]
fn the_sweep_of_the_index_keeps_names_that_have_holders() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let _guard = reader(&client, 60_000);
    for name in ["a", "nothing"] {
        server.command(&["ZADD", "polylatch:locks", "1", name]);
    }
    eventually("an announcement sweeps", || {
        server.command(&["ZSCORE", "polylatch:locks", "nothing"]) == Reply::Nil || {
            // Clients announce themselves every few seconds.
            thread::sleep(millis(100));
            false
        }
    });
    let names: Vec<_> = block_on(client.inspect().list(&Query::default())).unwrap().locks;
    assert_eq!(names.len(), 1);
    assert_ne!(server.command(&["ZSCORE", "polylatch:locks", "a"]).text(), Some("1"));
}

#[test]
fn foreign_data_is_a_name_conflict_and_is_left_alone() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let conflict = |result: polylatch::Result<Option<Guard>>, part: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let read = || block_on(client.rw_lock("a").read().try_acquire());
    server.command(&["SET", "polylatch:{a}:lock", "mine"]);
    conflict(read(), "no lock of ours");
    server.command(&["SET", "polylatch:{a}:lock", "theirs", "PX", "60000"]);
    conflict(read(), "a mutex");
    assert_eq!(server.command(&["GET", "polylatch:{a}:lock"]).text(), Some("theirs"));
    server.command(&["DEL", "polylatch:{a}:lock"]);
    for key in ["polylatch:{a}:holders", "polylatch:{a}:details"] {
        server.command(&["RPUSH", key, "mine"]);
        conflict(read(), "foreign data");
        assert_eq!(server.command(&["LRANGE", key, "0", "-1"]).texts(), ["mine"]);
        server.command(&["DEL", key]);
    }
    server.command(&["RPUSH", "polylatch:{a}:holders", "mine"]);
    conflict(block_on(client.lock("a").try_acquire()), "foreign data");
    server.command(&["DEL", "polylatch:{a}:holders"]);
    assert!(read().unwrap().is_some());
}

#[test]
fn after_a_clock_that_stepped_back_no_lease_outlasts_the_longest() {
    let server = RedisServer::start();
    let client = connect(&format!("{}?max_lease=1s&lease=500ms&provisional=300ms&poll=50ms", server.url()));
    let member = "00112233445566778899aabbccddeeff|1|r";
    let far = (server_ms(&server) + 86_400_000).to_string();
    server.command(&["ZADD", "polylatch:{a}:holders", &far, member]);
    let started = Instant::now();
    let _writer = block_on(client.rw_lock("a").write().wait(millis(5_000)).acquire()).unwrap();
    assert!(started.elapsed() >= millis(900) && started.elapsed() < millis(2_500), "{:?}", started.elapsed());
}

#[test]
fn a_store_that_lost_its_data_withholds_shared_leases_and_steps_up() {
    let server = RedisServer::start();
    let url =
        format!("{}?guarantee=strict&max_lease=1s&lease=500ms&provisional=300ms&poll=50ms", server.url());
    let (client, other) = (connect(&url), connect(&url));
    let mine = block_on(client.rw_lock("a").read().wait(millis(5_000)).acquire()).unwrap();
    let forget = || server.command(&["DEL", "polylatch:epoch"]);
    forget();
    let error = block_on(other.rw_lock("a").read().try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    let Converted::Refused(mine) = block_on(mine.try_upgrade()).unwrap() else {
        panic!("another reader may have been forgotten")
    };
    mine.check().unwrap();
    let beside = block_on(other.rw_lock("a").read().wait(millis(5_000)).acquire()).unwrap();
    block_on(beside.release()).unwrap();
    let Converted::Done(writer) = block_on(mine.try_upgrade()).unwrap() else { panic!("the only reader") };
    writer.check().unwrap();
}

#[test]
fn mutexes_and_shared_locks_of_one_client_are_renewed_together() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let mut guards = Vec::new();
    for number in 0..12 {
        let name = format!("n{number}");
        let lock = match number % 3 {
            0 => client.lock(name),
            1 => client.rw_lock(name).read(),
            _ => client.semaphore(name, 4).permits(2),
        };
        guards.push(block_on(lock.lease(millis(400)).acquire()).unwrap());
    }
    eventually("all are renewed", || guards.iter().all(|guard| guard.renewals() >= 4));
    // One that is gone does not end the others.
    server.command(&["DEL", "polylatch:{n1}:holders", "polylatch:{n3}:lock"]);
    eventually("two are lost", || guards.iter().filter(|guard| !guard.is_held()).count() == 2);
    let before: Vec<_> = guards.iter().map(Guard::renewals).collect();
    eventually("the others go on", || {
        let renewed = |number: usize| guards[number].renewals() > before[number] + 2;
        (0..12).all(|number| number == 1 || number == 3 || renewed(number))
    });
}
