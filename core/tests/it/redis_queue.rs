//! Who has a free lock, and how soon, when those in front are dead or do not hear, and when the server's clock
//! was set back: the records are written into the store as killed programs leave them.

#![cfg(all(feature = "redis", unix))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::inspect::Query;
use polylatch::{Error, ErrorKind, Guard, Polylatch};
use polylatch_test_services::Reply;
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::redis::RedisServer;

/// First lease and poll interval by default: a free lock is idle for no longer, and for what a busy machine adds.
const C_AND_P: Duration = Duration::from_secs(4);
const SLACK: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(60);

fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

fn server_ms(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]);
    let parts: Vec<u64> = time.texts().iter().map(|part| part.parse().unwrap()).collect();
    parts[0] * 1000 + parts[1] / 1000
}

/// Puts so many waiters into the queue of the lock `a`: three tasks of each client, whose heartbeats end at
/// `silent_at`, and whose inboxes nobody hears.
fn queue_up(server: &RedisServer, mode: &str, count: usize, silent_at: u64) {
    let numbers: Vec<_> = (0..count).collect();
    for some in numbers.chunks(500) {
        let (mut line, mut life) = (vec!["ZADD".to_owned(), "polylatch:{a}:line".into()], Vec::new());
        for number in some {
            let waiter = format!("{number:032x}|gone:1:{:08x}|3000|15000|1|{mode}|dead {number}", number / 3);
            line.extend([(number + 1).to_string(), waiter.clone()]);
            life.extend([silent_at.to_string(), waiter]);
        }
        let life: Vec<_> = ["ZADD".to_owned(), "polylatch:{a}:life".into()].into_iter().chain(life).collect();
        for words in [line, life] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(server.command(&words), Reply::Int(some.len() as i64));
        }
    }
    for key in ["polylatch:{a}:line", "polylatch:{a}:life"] {
        server.command(&["PEXPIRE", key, "600000"]);
    }
}

fn in_queue(server: &RedisServer) -> i64 {
    server.command(&["ZCARD", "polylatch:{a}:line"]).int().unwrap()
}

type Waiting = JoinHandle<(Result<Guard, Error>, Instant)>;

/// Waits for the lock `a` on a thread; tells when it was acquired.
fn waits(client: &Polylatch, reads: bool) -> Waiting {
    let (mutex, reader) = (client.lock("a").wait(SOON), client.rw_lock("a").read().wait(SOON));
    thread::spawn(move || {
        let guard = if reads { block_on(reader.acquire()) } else { block_on(mutex.acquire()) };
        (guard, Instant::now())
    })
}

#[test]
fn a_live_waiter_behind_dead_ones_has_a_free_lock_soon_and_they_keep_their_places() {
    for (reads, mode) in [(false, "m"), (true, "r")] {
        for count in [4, 20, 200, 3_000] {
            let server = RedisServer::start();
            let (holder, live) = (connect(&server.url()), connect(&server.url()));
            let held = if reads {
                block_on(holder.rw_lock("a").write().acquire()).unwrap()
            } else {
                block_on(holder.lock("a").acquire()).unwrap()
            };
            queue_up(&server, mode, count, server_ms(&server) + 600_000);
            let waiter = waits(&live, reads);
            eventually("it waits", || in_queue(&server) == count as i64 + 1);
            let released = Instant::now();
            block_on(held.release()).unwrap();
            let (guard, entered) = waiter.join().unwrap();
            let guard = guard.unwrap();
            let took = entered - released;
            assert!(took < C_AND_P, "{count} dead waiters ({mode}) in front: {took:?}");
            guard.check().unwrap();
            // They may live, and only have been out of reach for a moment.
            let view = seen(&holder, "a");
            assert_eq!((in_queue(&server), view.waiters[0].label.as_str()), (count as i64, "dead 0"));
            block_on(guard.release()).unwrap();
            // Nobody else is there: the first one has it now, for its own first lease, and left the queue.
            let view = seen(&holder, "a");
            assert_eq!((view.holders[0].label.as_str(), in_queue(&server)), ("dead 0", count as i64 - 1));
            assert!(view.holders[0].remaining_ms <= Some(3_000), "{:?}", view.holders);
        }
    }
}

#[test]
fn three_thousand_stale_waiters_delay_no_client() {
    for (reads, mode) in [(false, "m"), (true, "r")] {
        let server = RedisServer::start();
        // It would not ask again by itself while this test runs.
        let client = connect(&format!("{}?poll=20s&provisional=50s&lease=300s", server.url()));
        queue_up(&server, mode, 3_000, server_ms(&server) - 1);
        let started = Instant::now();
        let (guard, entered) = waits(&client, reads).join().unwrap();
        guard.unwrap().check().unwrap();
        assert!(entered - started < SLACK, "{mode}: {:?}", entered - started);
        assert_eq!(in_queue(&server), 0);
    }
}

/// Two clients hand the lock to each other without a pause; the third one has no subscription.
#[test]
fn a_waiter_whose_subscription_does_not_come_up_has_its_turns() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    for nth in 1..=2_000 {
        let _ = proxy.drop_request("SUBSCRIBE", nth);
    }
    let options = "poll=200ms&provisional=2s&timeout=5s";
    let deaf = connect(&format!("{}?{options}", proxy.url()));
    let heard = [(); 2].map(|()| connect(&format!("{}?{options}", server.url())));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in &heard {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        let guard = block_on(client.lock("a").wait(SOON).acquire()).unwrap();
                        thread::sleep(millis(5));
                        block_on(guard.release()).unwrap();
                    }
                });
            }
        }
        eventually("the others queue", || in_queue(&server) >= 3);
        let turns: Result<Vec<_>, Error> = (0..5)
            .map(|_| {
                let guard = block_on(deaf.lock("a").wait(millis(15_000)).acquire())?;
                block_on(guard.release())
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        turns.unwrap();
    });
}

#[test]
fn after_a_subscription_was_interrupted_waiters_ask_at_once() {
    let server = RedisServer::start();
    let client = connect(&format!("{}?poll=20s&provisional=50s&lease=300s", server.url()));
    let value = "000000000000000000000000000000ff|pl1|00000000|1|1|900000|900000|gone:1:0a0b0c0d|";
    server.command(&["SET", "polylatch:{a}:lock", value, "PX", "900000"]);
    let waiter = waits(&client, false);
    let listens = || {
        let channels = server.command(&["PUBSUB", "CHANNELS", "polylatch:inbox:*"]);
        channels.items().len() == 1 && in_queue(&server) == 1
    };
    eventually("it waits and listens", listens);
    // In one step, so that no message can tell of it.
    let script = "redis.call('DEL', KEYS[1])";
    let started = Instant::now();
    assert!(server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int().unwrap() >= 1);
    server.command(&["EVAL", script, "1", "polylatch:{a}:lock"]);
    let (guard, entered) = waiter.join().unwrap();
    guard.unwrap().check().unwrap();
    assert!(entered - started < C_AND_P, "{:?}", entered - started);
}

/// `kept` tells until when a key is kept; -1 would be for ever, -2 that there is none.
#[test]
fn a_queue_and_the_record_of_a_client_have_an_end() {
    for reads in [false, true] {
        let server = RedisServer::start();
        let (holder, other) = (connect(&server.url()), connect(&server.url()));
        let hold = || match reads {
            true => block_on(holder.rw_lock("a").write().acquire()).unwrap(),
            false => block_on(holder.lock("a").acquire()).unwrap(),
        };
        // Afterwards its subscription is up, and it does not ask again as soon as it has joined the queue.
        let before = hold();
        let waiter = waits(&other, reads);
        eventually("it waits", || in_queue(&server) == 1);
        block_on(before.release()).unwrap();
        block_on(waiter.join().unwrap().0.unwrap().release()).unwrap();

        let held = hold();
        let kept = |key: &str| server.command(&["PTTL", key]).int().unwrap();
        let mut waiters = Vec::new();
        for number in 1..=2 {
            // The second one finds a queue, and keeps it as well.
            waiters.push(waits(&other, reads));
            eventually("it waits", || in_queue(&server) == number);
            for key in ["polylatch:{a}:line", "polylatch:{a}:life"] {
                assert!((60_000..600_000).contains(&kept(key)), "{key}: {}", kept(key));
            }
        }
        for client in [&holder, &other] {
            let record = format!("polylatch:client:{}", client.id());
            eventually("it says who it is", || kept(&record) != -2);
            assert!((1..=60_000).contains(&kept(&record)), "{record}: {}", kept(&record));
        }
        // By another poll of the first, which finds itself in the queue.
        thread::sleep(millis(1_500));
        for key in ["polylatch:{a}:line", "polylatch:{a}:life"] {
            assert!((60_000..600_000).contains(&kept(key)), "{key}: {}", kept(key));
        }
        block_on(held.release()).unwrap();
        for waiter in waiters {
            block_on(waiter.join().unwrap().0.unwrap().release()).unwrap();
        }
    }
}

/// The server's clock was an hour ahead when the lease was granted, and was set right.
#[test]
fn a_lease_from_before_a_step_of_the_servers_clock_ends_after_its_own_length() {
    const AHEAD: u64 = 3_600_000;
    let value = "000000000000000000000000000000ff|pl1|00000000|1|1|1000|2000|gone:1:0a0b0c0d|";
    for reads in [false, true] {
        let server = RedisServer::start();
        let client = connect(&server.url());
        if reads {
            let member = "000000000000000000000000000000ff|1|w";
            let ends = (server_ms(&server) + AHEAD + 2_000).to_string();
            server.command(&["ZADD", "polylatch:{a}:holders", &ends, member]);
            server.command(&["HSET", "polylatch:{a}:details", &value[..32], &format!("w|{value}")]);
        } else {
            server.command(&["SET", "polylatch:{a}:lock", value, "PX", &(AHEAD + 2_000).to_string()]);
        }
        let started = Instant::now();
        let (guard, entered) = waits(&client, reads).join().unwrap();
        block_on(guard.unwrap().release()).unwrap();
        let took = entered - started;
        assert!(took >= millis(1_500) && took < C_AND_P + SLACK, "shared: {reads}: {took:?}");
    }
}

#[test]
fn the_first_burst_of_a_fresh_client_is_served_in_its_order() {
    let server = RedisServer::start();
    let holder = connect(&server.url());
    for round in 0..4 {
        let name = format!("burst/{round}");
        let held = block_on(holder.lock(&name).acquire()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let order = runtime.block_on(async {
            let fresh = Polylatch::connect(&server.url()).await.unwrap();
            let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
            for number in 0..16 {
                let (lock, entered) = (fresh.lock(&name).wait(SOON), entered.clone());
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    entered.send(number).unwrap();
                    guard.release().await.unwrap();
                });
            }
            while in_queue_of(&holder, &name).await < 16 {
                tokio::task::yield_now().await;
            }
            held.release().await.unwrap();
            let mut numbers = Vec::new();
            while numbers.len() < 16 {
                numbers.push(order.recv().await.unwrap());
            }
            numbers
        });
        assert_eq!(order, (0..16).collect::<Vec<_>>(), "round {round}");
    }
}

async fn in_queue_of(client: &Polylatch, name: &str) -> usize {
    let query = Query { name: Some(name.to_owned()), ..Query::default() };
    let snapshot = client.inspect().list(&query).await.unwrap();
    snapshot.locks.iter().map(|lock| lock.waiters.len()).sum()
}

#[test]
fn the_deadlines_of_waiters_go_with_them() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let ask = |verb: &str| server.command(&[verb, "polylatch:{a}:until"]).int().unwrap();
    let deadlines = || ask("ZCARD");
    let wait = |waits: Option<Duration>| {
        let lock = waits.map_or_else(|| client.lock("a"), |waits| client.lock("a").wait(waits));
        let queued = seen(&client, "a").waiters.len();
        let waiter = thread::spawn(move || block_on(lock.acquire()));
        eventually("it is queued", || seen(&client, "a").waiters.len() == queued + 1);
        waiter
    };
    let mut held = block_on(client.lock("a").acquire()).unwrap();
    let endless = wait(None);
    assert_eq!(deadlines(), 0, "without a limit there is nothing to record");
    block_on(held.release()).unwrap();
    held = endless.join().unwrap().unwrap();
    // Those that were granted the lock are forgotten when the next one queues.
    for _ in 0..5 {
        let waiter = wait(Some(Duration::from_secs(40)));
        assert_eq!(deadlines(), 1);
        let left = ask("PTTL");
        assert!((40_000..=100_000).contains(&left), "it expires if no client is left: {left}");
        block_on(held.release()).unwrap();
        held = waiter.join().unwrap().unwrap();
    }
    // One that gives up takes its own along.
    let error = block_on(client.lock("a").wait(Duration::from_millis(100)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    assert_eq!(deadlines(), 0);
}
