//! What following a Redis costs it.

#![cfg(all(feature = "redis", unix))]

use std::time::Duration;

use pollster::block_on;
use polylatch::Polylatch;
use polylatch::inspect::Query;
use polylatch_test_services::redis::RedisServer;
use polylatch_test_services::wait_until;

#[test]
fn only_what_was_written_is_read_again() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let watcher = block_on(Polylatch::connect(&server.url())).unwrap();
    // Longer than the test, so that no renewal comes between.
    let lease = Duration::from_secs(60);
    let take = |name: String| block_on(client.lock(name).lease(lease).renew(false).acquire()).unwrap();
    let mut held: Vec<_> = (0..50).map(|at| take(format!("lock/{at}"))).collect();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut read = || {
        let snapshot = block_on(follower.read()).unwrap();
        (snapshot.locks.len(), snapshot.requests)
    };
    wait_until("all to be listed", Duration::from_secs(20), || read().0 == 50);
    assert_eq!(read(), (50, 2), "a page of the index and the clients");
    block_on(held.pop().unwrap().release()).unwrap();
    held.push(take("another".into()));
    wait_until("the new one", Duration::from_secs(20), || read() == (50, 3));
    assert_eq!(read(), (50, 2));
}

#[test]
fn a_lease_that_was_extended_without_a_trace_does_not_seem_to_have_ended() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let lease = Duration::from_secs(2);
    let _held = block_on(client.lock("a").lease(lease).renew(false).acquire()).unwrap();
    let watcher = block_on(Polylatch::connect(&server.url())).unwrap();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut left = || {
        let snapshot = block_on(follower.read()).unwrap();
        snapshot.locks[0].holders[0].remaining_ms.unwrap()
    };
    let at_first = left();
    assert!((1..=2_000).contains(&at_first), "{at_first}");
    // As a renewal does on a server whose memory is full: it extends the lease, but cannot count itself.
    server.command(&["PEXPIRE", "polylatch:{a}:lock", "60000"]);
    std::thread::sleep(Duration::from_millis(at_first + 100));
    let by_now = left();
    assert!(by_now > 50_000, "{by_now}");
}

#[test]
fn a_lock_that_slips_through_between_two_pages_of_the_index_is_not_missed() {
    let server = RedisServer::start();
    let client = block_on(Polylatch::connect(&server.url())).unwrap();
    let held = block_on(client.lock("a").lease(Duration::from_secs(60)).renew(false).acquire()).unwrap();
    // So many that the index has more than one page.
    let names: Vec<_> = (0..1_000).map(|at| format!("gone/{at}")).collect();
    let mut add = vec!["ZADD", "polylatch:locks"];
    add.extend(names.iter().flat_map(|name| ["1", name.as_str()]));
    server.command(&add);
    let watcher = block_on(Polylatch::connect(&server.url())).unwrap();
    let mut follower = watcher.inspect().follow(Query::default());
    let mut shown = || block_on(follower.read()).unwrap().locks.len();
    assert_eq!(shown(), 1);
    // It is not on the page that is read, which is what happens to a reader when others are taken out.
    server.command(&["ZREM", "polylatch:locks", "a"]);
    assert_eq!(shown(), 1);
    block_on(held.release()).unwrap();
    assert_eq!(shown(), 0);
}

/// How often the server has carried out one of these commands.
fn calls(server: &RedisServer, commands: &[&str]) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let of = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        commands.contains(&command).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    };
    stats.text().unwrap().lines().filter_map(of).sum()
}

#[test]
fn ten_thousand_clients_are_read_completely_and_no_script_reads_many() {
    let server = RedisServer::start();
    let watcher = block_on(Polylatch::connect(&server.url())).unwrap();
    // Three thousand of them announced themselves in the same millisecond.
    let script = "local first, ends = tonumber(ARGV[1]), redis.call('TIME')[1] * 1000 + 600000
        for at = first, first + 998 do
          local id = 'host:' .. at
          redis.call('ZADD', 'polylatch:clients', ends + (first < 3000 and 0 or at), id)
          redis.call('HSET', 'polylatch:client:' .. id, 'host', 'made', 'pid', at, 'program', string.rep('p', 100))
          redis.call('LPUSH', 'polylatch:audit', cjson.encode({name = 'n' .. at, fencing_token = 1, at_ms = 1}))
        end";
    for first in (1..=9_990).step_by(999) {
        server.command(&["EVAL", script, "0", &first.to_string()]);
    }
    let scripts = || calls(&server, &["eval", "evalsha"]);
    let records = || calls(&server, &["hgetall"]);
    let before = (scripts(), records());
    let snapshot = block_on(watcher.inspect().list(&Query::default())).unwrap();
    let read = (scripts() - before.0, records() - before.1);
    assert!(read.1 >= 9_990 && read.1 <= 500 * read.0, "{} records in {} scripts", read.1, read.0);
    let mut made: Vec<_> =
        snapshot.clients.iter().filter(|one| one.host == "made").map(|one| one.pid).collect();
    made.sort_unstable();
    assert!(made.iter().copied().eq(1..=9_990), "{} of them", made.len());
    assert_eq!(snapshot.audit.len(), 200, "as many as a break keeps");
}
