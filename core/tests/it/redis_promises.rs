//! What a Redis store promises beyond the contract: few permissions, any way to connect, recovery of
//! its scripts, and what it does when memory is full or replicas are silent.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::{Instant, UNIX_EPOCH};

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::{RedisServer, Tls};
use polylatch_test_services::{Reply, wait_until};

/// Every command that locking and looking needs; the list in the page of the store.
const COMMANDS: [&str; 29] = [
    "eval",
    "evalsha",
    "ping",
    "subscribe",
    "publish",
    "time",
    "get",
    "set",
    "del",
    "exists",
    "type",
    "pexpire",
    "pttl",
    "hset",
    "hget",
    "hdel",
    "hgetall",
    "lpush",
    "lrange",
    "ltrim",
    "zadd",
    "zcard",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zrem",
    "zremrangebyscore",
    "zscore",
    "info",
];

fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

fn user_with(commands: &[&str]) -> String {
    let commands: Vec<_> = commands.iter().map(|command| format!("+{command}")).collect();
    format!("bob on >secret ~polylatch:* resetchannels &polylatch:* -@all {}", commands.join(" "))
}

/// Takes, waits for, hands over, renews, lists and breaks as this user; returns what went wrong.
fn use_everything(url: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut note = |error: polylatch::Error| wrong.push(format!("{:?} {error}", error.kind()));
    let url = format!("{url}?poll=50ms&provisional=300ms&lease=300ms&timeout=1s");
    let clients = match (block_on(Polylatch::connect(&url)), block_on(Polylatch::connect(&url))) {
        (Ok(one), Ok(other)) => [one, other],
        (one, other) => {
            [one, other].into_iter().filter_map(Result::err).for_each(&mut note);
            return wrong;
        }
    };
    match block_on(clients[0].lock("a").try_acquire()) {
        Ok(Some(guard)) => {
            let _ = block_on(clients[1].lock("a").try_acquire()).map_err(&mut note);
            let waiting = clients[1].lock("a").wait(millis(600));
            let waiter = thread::spawn(move || block_on(waiting.acquire()));
            let started = Instant::now();
            while guard.is_held() && guard.renewals() < 1 && started.elapsed() < millis(400) {
                thread::sleep(millis(2));
            }
            let _ = block_on(guard.release()).map_err(&mut note);
            match waiter.join().unwrap() {
                Ok(next) => {
                    let order = BreakRequest {
                        name: "a".into(),
                        expected: next.fencing_token(),
                        by: "ann".into(),
                        reason: "test".into(),
                    };
                    let _ = block_on(clients[0].inspect().break_lease(&order)).map_err(&mut note);
                }
                Err(error) => note(error),
            }
        }
        Ok(None) => panic!("nobody else has been here"),
        Err(error) => note(error),
    }
    match block_on(clients[0].rw_lock("b").read().try_acquire()) {
        Ok(reader) => {
            let _ = block_on(reader.expect("nobody else has been here").release()).map_err(&mut note);
        }
        Err(error) => note(error),
    }
    let _ = block_on(clients[0].inspect().list(&Query { name: Some("a".into()), ..Query::default() }))
        .map_err(note);
    wrong
}

#[test]
fn a_user_with_the_documented_permissions_can_do_everything() {
    let server = RedisServer::builder().acl_user(&user_with(&COMMANDS)).start();
    assert_eq!(use_everything(&server.url_as("bob", "secret")), Vec::<String>::new());
    eventually("the client said who it is", || {
        server.command(&["ZCARD", "polylatch:clients"]) != Reply::Int(0)
    });
    let denied = server.command(&["ACL", "LOG"]);
    assert_eq!(denied.items(), [], "nothing was denied on the way");
    let documented = include_str!("../../src/backend/redis/docs.md");
    for command in COMMANDS {
        assert!(documented.contains(&format!("+{command}")), "{command} is missing from the documentation");
    }
}

#[test]
fn no_documented_permission_is_superfluous() {
    let threads: Vec<_> = COMMANDS
        .chunks(4)
        .map(|some| {
            thread::spawn(move || {
                let server = RedisServer::builder().acl_user(&user_with(&[])).start();
                for missing in some {
                    server.command(&["FLUSHALL"]);
                    server.command(&["ACL", "LOG", "RESET"]);
                    // INFO is optional: without it PING shows that the server is there.
                    let rest = COMMANDS.iter().filter(|command| *command != missing);
                    let rest: Vec<_> =
                        rest.filter(|command| *missing != "ping" || **command != "info").collect();
                    let rules: Vec<_> = rest.iter().map(|command| format!("+{command}")).collect();
                    let mut words = vec!["ACL", "SETUSER", "bob", "-@all"];
                    words.extend(rules.iter().map(String::as_str));
                    assert!(server.command(&words).is_ok());
                    let wrong = use_everything(&server.url_as("bob", "secret"));
                    let log = server.command(&["ACL", "LOG"]);
                    let denied = log.items().iter().any(|entry| entry.texts().contains(missing));
                    assert!(denied, "{missing} is never used; {wrong:?} {log:?}");
                    let named = wrong.iter().any(|error| {
                        error.starts_with("BackendRejected")
                            && (error.contains(&format!("+{missing}"))
                                || error.contains(&format!("'{missing}'")))
                    });
                    // These are for people, or have another way: they cost no lock.
                    let silent = ["info", "publish", "subscribe", "zremrangebyscore"];
                    assert!(named || silent.contains(missing), "{missing} is not named: {wrong:?}");
                    assert!(!silent.contains(missing) || wrong.is_empty(), "{missing}: {wrong:?}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_database_and_replicas_need_one_permission_more_each() {
    let server = RedisServer::builder().acl_user(&user_with(&COMMANDS)).start();
    let url = server.url_as("bob", "secret");
    let database = block_on(Polylatch::connect(&format!("{url}/3"))).unwrap_err();
    let replicas = block_on(connect(&format!("{url}?ack=any")).lock("a").try_acquire()).unwrap_err();
    for (error, command) in [(database, "+select"), (replicas, "'wait'")] {
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error:?}");
        assert!(error.to_string().contains(command), "{error}");
    }
    assert!(server.command(&["ACL", "SETUSER", "bob", "+select", "+wait"]).is_ok());
    let both = connect(&format!("{url}/3?ack=any&ack_timeout=20ms"));
    let error = block_on(both.lock("a").try_acquire()).unwrap_err();
    assert!(error.to_string().contains("only 0 of the 1 replicas"), "{error}");
}

#[test]
fn keys_outside_the_prefix_are_refused_to_the_user_and_named() {
    let server = RedisServer::builder().acl_user(&user_with(&COMMANDS)).start();
    let client = connect(&format!("{}?prefix=other", server.url_as("bob", "secret")));
    let error = block_on(client.lock("a").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected);
    assert!(error.to_string().contains("key"), "{error}");
    assert_eq!(server.command(&["KEYS", "*"]).items(), []);
}

#[test]
fn without_the_channel_waiters_poll() {
    let deaf = format!("{} resetchannels", user_with(&COMMANDS));
    let server = RedisServer::builder().acl_user(&deaf).start();
    let options = "poll=100ms&provisional=600ms";
    let bob = connect(&format!("{}?{options}", server.url_as("bob", "secret")));
    // The default user hears pushes, but whoever releases may not send one.
    for waiting in [bob.clone(), connect(&format!("{}?{options}", server.url()))] {
        let guard = block_on(bob.lock("a").acquire()).unwrap();
        let lock = waiting.lock("a").wait(millis(5_000));
        let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
        eventually("it waits", || seen(&bob, "a").waiters.len() == 1);
        let started = Instant::now();
        block_on(guard.release()).unwrap();
        block_on(waiter.join().unwrap().release()).unwrap();
        assert!(started.elapsed() < millis(1_000), "{:?}", started.elapsed());
    }
}

#[test]
fn a_unix_socket_a_database_and_a_prefix_lead_to_stores_of_their_own() {
    let server = RedisServer::start();
    let socket = server.socket_path();
    let urls = [
        server.url(),
        format!("{}/3", server.url()),
        format!("{}?db=4", server.unix_url()),
        format!("{}?prefix=shop", server.url()),
        format!("redis+unix:{}?prefix=shop:eu", socket.display()),
        format!("{}?lock_key=shared:{{name}}:x", server.url()),
    ];
    let clients: Vec<_> = urls.iter().map(|url| connect(url)).collect();
    let guards: Vec<_> = clients
        .iter()
        .map(|client| block_on(client.lock("a").try_acquire()).unwrap().expect("each is a store of its own"))
        .collect();
    for client in &clients {
        assert!(block_on(client.lock("a").try_acquire()).unwrap().is_none());
        assert_eq!(block_on(client.inspect().list(&Query::default())).unwrap().locks.len(), 1);
    }
    // The same store by another way in.
    let other_way = connect(&server.unix_url());
    assert!(block_on(other_way.lock("a").try_acquire()).unwrap().is_none());
    drop(guards);
}

#[test]
fn a_client_certificate_opens_a_server_that_wants_one() {
    let server = RedisServer::builder().tls(Tls::new().require_client_cert()).start();
    let files = server.tls();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let clients = [(); 2].map(|()| connect(&format!("{}?ca={ca}&cert={cert}&key={key}", server.url())));
    let guard = block_on(clients[0].lock("a").acquire()).unwrap();
    let lock = clients[1].lock("a").wait(millis(10_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&clients[0], "a").waiters.len() == 1);
    let started = Instant::now();
    block_on(guard.release()).unwrap();
    waiter.join().unwrap().check().unwrap();
    assert!(started.elapsed() < millis(800), "pushes pass through TLS: {:?}", started.elapsed());
}

#[test]
fn scripts_forgotten_by_the_server_are_sent_again() {
    let server = RedisServer::start();
    let [client, other] = [(); 2].map(|()| connect(&server.url()));
    let flush = || assert!(server.command(&["SCRIPT", "FLUSH"]).is_ok());
    flush();
    let guard = block_on(client.lock("a").lease(millis(300)).acquire()).unwrap();
    flush();
    eventually("it is renewed", || guard.renewals() >= 1);
    flush();
    assert_eq!(seen(&other, "a").holders.len(), 1);
    flush();
    block_on(other.lock("a").wait(millis(30)).acquire()).unwrap_err();
    flush();
    block_on(guard.release()).unwrap();
    flush();
    let next = block_on(other.lock("a").acquire()).unwrap();
    flush();
    let order = BreakRequest {
        name: "a".into(),
        expected: next.fencing_token(),
        by: "ann".into(),
        reason: "test".into(),
    };
    block_on(client.inspect().break_lease(&order)).unwrap();
    eventually("it is lost", || !next.is_held());
}

#[test]
fn breaks_are_read_as_they_were_written_and_what_is_no_break_hides_none() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let order = BreakRequest {
        name: "a".into(),
        expected: guard.fencing_token(),
        by: "ann@desk \u{fc}".into(),
        reason: "it \"hangs\" {1} \\".into(),
    };
    // The server has this machine's clock.
    let now_ms = || UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let before = now_ms();
    block_on(client.inspect().break_lease(&order)).unwrap();
    for rubbish in
        ["", "no JSON", "7", "null", "[1,2]", "{}", r#"{"at_ms":"x","name":{},"fencing_token":null}"#]
    {
        assert_eq!(server.command(&["LPUSH", "polylatch:audit", rubbish]).error(), None);
    }
    let audit = block_on(client.inspect().list(&Query::default())).unwrap().audit;
    let [entry] = audit.as_slice() else { panic!("one break was expected: {audit:?}") };
    assert_eq!((&*entry.name, entry.fencing_token), ("a", order.expected));
    assert_eq!((&entry.by, &entry.reason), (&order.by, &order.reason));
    assert_eq!(entry.holder, *client.id());
    assert!((before..=now_ms()).contains(&entry.at_ms), "{entry:?}");
}

#[test]
fn a_full_memory_refuses_new_locks_and_lets_held_ones_be_renewed_and_released() {
    let server = RedisServer::builder().max_memory("64mb", "noeviction").start();
    let client = connect(&server.url());
    let guard = block_on(client.lock("a").lease(millis(400)).acquire()).unwrap();
    assert!(server.command(&["CONFIG", "SET", "maxmemory", "1"]).is_ok());
    let error = block_on(client.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("memory of Redis is full"), "{error}");
    let error = block_on(client.lock("b").wait(millis(100)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    let before = guard.renewals();
    eventually("it is renewed", || guard.renewals() >= before + 3);
    block_on(guard.extend(millis(60_000))).unwrap();
    assert!(guard.remaining() > millis(40_000), "it is also extended");
    let record = server.command(&["GET", "polylatch:{a}:lock"]);
    assert!(record.text().is_some_and(|record| record.contains("|400|60000|")), "{record:?}");
    block_on(guard.release()).unwrap();
    assert_eq!(server.command(&["EXISTS", "polylatch:{a}:lock"]), Reply::Int(0));
    assert!(server.command(&["CONFIG", "SET", "maxmemory", "64mb"]).is_ok());
    assert!(block_on(client.lock("b").try_acquire()).unwrap().is_some());
}

#[test]
fn a_lock_that_replicas_do_not_confirm_is_released() {
    let master = RedisServer::start();
    let link = Proxy::start_raw(master.address());
    let _replica = RedisServer::builder().replica_of(link.address()).start();
    let online = || master.command(&["INFO", "replication"]).text().unwrap().contains("state=online");
    wait_until("the replica to follow", millis(10_000), online);

    let plain = connect(&master.url());
    for rule in ["any", "majority", "all", "1"] {
        let client = connect(&format!("{}?ack={rule}&ack_timeout=200ms", master.url()));
        let guard = block_on(client.lock("a").acquire()).unwrap();
        block_on(guard.release()).unwrap();

        link.set_hold(Hold::Stall);
        let started = Instant::now();
        let error = block_on(client.lock("a").try_acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");
        assert!(error.to_string().contains("only 0 of the 1 replicas"), "{error}");
        assert!(
            started.elapsed() >= millis(150) && started.elapsed() < millis(1_500),
            "{:?}",
            started.elapsed()
        );
        // Given back at once, not when its first lease ends.
        let guard = block_on(plain.lock("a").wait(millis(2_000)).acquire()).unwrap();
        assert!(started.elapsed() < millis(2_000), "{:?}", started.elapsed());
        block_on(guard.release()).unwrap();
        let error = block_on(client.lock("a").wait(millis(300)).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error:?}");

        link.set_hold(Hold::Off);
        let guard = block_on(client.lock("a").wait(millis(5_000)).acquire()).unwrap();
        block_on(guard.release()).unwrap();
    }
    let error =
        block_on(connect(&format!("{}?ack=2&ack_timeout=50ms", master.url())).lock("b").try_acquire());
    assert!(error.unwrap_err().to_string().contains("only 1 of the 2 replicas"));
}

#[test]
fn the_renewal_of_a_lock_takes_two_commands_of_the_server() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    // More than are renewed together, and none that is renewed early to be listed.
    let lock = |at: u32| client.lock(format!("many/{at}")).lease(millis(3_000));
    let guards: Vec<_> = (0..400).map(|at| block_on(lock(at).acquire()).unwrap()).collect();
    eventually("each is renewed twice", || guards.iter().all(|guard| guard.renewals() >= 2));
    // GET and SET of each: the key of a lock is set with its new end, so there is nothing to extend. What else extends a
    // key records who the client is, with HSET before it, or is the rare renewal that was sent a second time.
    let stats = server.command(&["INFO", "commandstats"]);
    let stats = stats.text().unwrap();
    let calls = |command: &str| -> u64 {
        let of = |line: &str| line.strip_prefix(command)?.split(',').next()?.parse().ok();
        stats.lines().find_map(of).unwrap_or_else(|| panic!("no {command} in {stats}"))
    };
    let extended = calls("cmdstat_pexpire:calls=").saturating_sub(calls("cmdstat_hset:calls="));
    assert!(extended < 400, "{extended} keys were extended by a command of their own: {stats}");
    assert!(guards.iter().all(polylatch::Guard::is_held));
}
