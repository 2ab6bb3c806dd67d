//! A Redis Cluster: who waits hears of its grant in the slot of the lock, wherever that is.

#![cfg(all(feature = "redis", unix))]

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually_within};
use polylatch::inspect::{BreakRequest, Query};
use polylatch::{Error, Guard, Polylatch};
use polylatch_test_services::redis::{Cluster, RedisServer, Tls};

const SOON: Duration = Duration::from_secs(30);
/// Far less than the time after which a waiter asks by itself, see [`client`].
const PROMPTLY: Duration = Duration::from_secs(5);

/// One that neither asks nor renews by itself while a test runs: what a holder does not know of the cluster, it
/// learns by its release.
fn client(cluster: &Cluster) -> Polylatch {
    let url = format!("{}?poll=20s&provisional=50s&lease=300s", cluster.url());
    block_on(Polylatch::connect(&url)).unwrap_or_else(|error| panic!("{error:?}"))
}

/// The channels of slots that somebody hears at a node.
fn channels(node: &RedisServer) -> Vec<String> {
    let channels = node.command(&["PUBSUB", "SHARDCHANNELS"]);
    channels.texts().into_iter().map(str::to_owned).collect()
}

/// The slot of a key or channel, and the node that has it.
fn place_of(cluster: &Cluster, key: &str) -> (u16, usize) {
    let slot = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).int().unwrap();
    let slot = u16::try_from(slot).unwrap();
    (slot, cluster.owner(slot))
}

/// Somebody waits for a lock, and hears in its slot.
fn waiter(cluster: &Cluster, client: &Polylatch, name: &str) -> (JoinHandle<Result<Guard, Error>>, String) {
    let waiting = client.lock(name).wait(SOON * 2);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    let heard = || -> Vec<_> { cluster.nodes.iter().flat_map(channels).collect() };
    eventually_within("it listens", SOON, || heard().len() == 1);
    wait_for_line(client, name, 1);
    (waiter, heard().remove(0))
}

fn wait_for_line(client: &Polylatch, name: &str, length: usize) {
    let query = Query { name: Some(name.into()), ..Query::default() };
    eventually_within("it stands in line", SOON, || {
        let listing = block_on(client.inspect().list(&query)).unwrap();
        listing.locks.iter().map(|lock| lock.waiters.len()).sum::<usize>() == length
    });
}

#[track_caller]
fn comes_in_promptly(guard: &Guard, waiter: JoinHandle<Result<Guard, Error>>) {
    let released = Instant::now();
    block_on(guard.release()).unwrap();
    let next = waiter.join().unwrap().unwrap();
    assert!(released.elapsed() < PROMPTLY, "{:?}", released.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
    block_on(next.release()).unwrap();
}

/// A waiter that was pushed its grant has it without asking: only a poll asks how long a mutex is held still.
#[test]
fn a_push_in_the_slot_of_the_lock_is_a_grant() {
    let cluster = Cluster::start();
    let (holder, other) = (client(&cluster), client(&cluster));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (waiter, channel) = waiter(&cluster, &other, "a");
    let (_, at) = place_of(&cluster, &channel);
    let polls = || {
        let stats = cluster.nodes[at].command(&["INFO", "commandstats"]);
        let stats = stats.text().unwrap().lines().filter(|line| line.starts_with("cmdstat_pttl:"));
        stats.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = polls();
    assert_eq!(before.len(), 1);
    comes_in_promptly(&guard, waiter);
    assert_eq!(polls(), before, "it did not have to ask");
}

#[test]
fn readers_and_permits_are_pushed_their_grants_together() {
    let cluster = Cluster::start();
    let (holder, other) = (client(&cluster), client(&cluster));
    let writer = block_on(holder.rw_lock("rw").write().acquire()).unwrap();
    let all = block_on(holder.semaphore("sem", 3).permits(3).acquire()).unwrap();
    let readers = (0..3).map(|_| other.rw_lock("rw").read().wait(SOON));
    let permits = (0..3).map(|_| other.semaphore("sem", 3).permits(1).wait(SOON));
    let waiters: Vec<_> = readers.chain(permits).collect();
    let waiters: Vec<_> =
        waiters.into_iter().map(|waiting| thread::spawn(move || block_on(waiting.acquire()))).collect();
    wait_for_line(&holder, "rw", 3);
    wait_for_line(&holder, "sem", 3);
    let released = Instant::now();
    block_on(writer.release()).unwrap();
    block_on(all.release()).unwrap();
    let guards: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap().unwrap()).collect();
    assert!(released.elapsed() < PROMPTLY, "{:?}", released.elapsed());
    assert_eq!(guards.len(), 6);
}

#[test]
fn listeners_go_along_with_a_slot_and_no_waiter_waits_for_a_poll() {
    let cluster = Cluster::start();
    let (holder, other) = (client(&cluster), client(&cluster));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (waiter, channel) = waiter(&cluster, &other, "a");
    for _ in 0..4 {
        let (slot, from) = place_of(&cluster, &channel);
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        cluster.end_move(slot, from, to);
        eventually_within("it is heard where the slot is", PROMPTLY, || {
            channels(&cluster.nodes[to]) == [channel.clone()]
        });
        assert_eq!(channels(&cluster.nodes[from]), Vec::<String>::new());
    }
    comes_in_promptly(&guard, waiter);
}

#[test]
fn listeners_go_along_when_a_replica_takes_over_and_when_its_master_hangs() {
    let cluster = Cluster::start_with(1, |node| node);
    let (holder, other) = (client(&cluster), client(&cluster));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (waiter, channel) = waiter(&cluster, &other, "a");
    let (slot, first) = place_of(&cluster, &channel);
    let second = first + 3;
    cluster.take_over(second);
    assert_eq!(cluster.owner(slot), second);
    let only_at = |at: usize| {
        let heard = |node: &RedisServer| node.try_command(&["PUBSUB", "SHARDNUMSUB", &channel]);
        heard(&cluster.nodes[at])
            .is_ok_and(|reply| reply.items().get(1).and_then(|count| count.int()) == Some(1))
    };
    eventually_within("it is heard at the promoted one", SOON, || only_at(second));
    cluster.wait_until_copied(first);
    cluster.nodes[second].pause();
    eventually_within("it is heard at the first one again", SOON, || only_at(first));
    comes_in_promptly(&guard, waiter);
    cluster.nodes[second].resume();
}

/// A published message reaches the replicas, too, where nobody is counted. So whoever listens only there must not
/// be told of a grant that is taken back because nobody seems to hear of it.
#[test]
fn no_client_hears_of_a_grant_that_is_not_valid() {
    let cluster = Cluster::start_with(1, |node| node);
    let holder = client(&cluster);
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let lock = cluster.nodes.iter().find_map(|node| {
        let keys = node.command(&["KEYS", "polylatch:*:{a}:lock"]);
        keys.texts().first().map(|key| (*key).to_owned())
    });
    let lock = lock.expect("it is held");
    let (of_name, of_shard) = (lock.trim_end_matches("lock"), lock.split(":{a}").next().unwrap());
    let (_, at) = place_of(&cluster, &lock);
    let master = &cluster.nodes[at];
    let later = "99999999999999";
    for ghost in ["1", "2"] {
        let record = format!("{}|ghost|600000|600000|2|m|", ghost.repeat(32));
        assert_eq!(master.command(&["ZADD", &format!("{of_name}line"), ghost, &record]).int(), Some(1));
        assert_eq!(master.command(&["ZADD", &format!("{of_name}life"), later, &record]).int(), Some(1));
    }
    let channel = format!("{of_shard}:inbox:ghost");
    let mut listener = cluster.nodes[at + 3].connect().unwrap();
    listener.set_timeout(SOON).unwrap();
    assert_eq!(listener.command(&["SSUBSCRIBE", &channel]).unwrap().texts()[0], "ssubscribe");
    block_on(guard.release()).unwrap();
    // The first one has it in the end, without a word: it will ask.
    let value = master.command(&["GET", &lock]);
    assert!(value.text().unwrap().starts_with(&"1".repeat(32)), "{value:?}");
    // What the replica hears first was said after that.
    master.command(&["SPUBLISH", &channel, "the end"]);
    let heard = listener.read().unwrap();
    assert_eq!(heard.texts(), ["smessage", &channel, "the end"]);
}

#[test]
fn what_no_client_waits_for_is_not_heard_any_more() {
    let cluster = Cluster::start();
    let holder = client(&cluster);
    let other =
        block_on(Polylatch::connect(&format!("{}?poll=100ms&provisional=1s", cluster.url()))).unwrap();
    let names: Vec<_> = (0..12).map(|at| format!("job {at}")).collect();
    let guards: Vec<_> = names.iter().map(|name| block_on(holder.lock(name).acquire()).unwrap()).collect();
    let waiting = |name: &String, wait: Duration| {
        let waiting = other.lock(name).wait(wait);
        thread::spawn(move || block_on(waiting.acquire()))
    };
    let short: Vec<_> = names[1..].iter().map(|name| waiting(name, Duration::from_millis(500))).collect();
    let long = waiting(&names[0], SOON * 2);
    let heard = || -> usize { cluster.nodes.iter().map(|node| channels(node).len()).sum() };
    eventually_within("each is heard", SOON, || heard() >= 10);
    short.into_iter().for_each(|waiter| assert!(waiter.join().unwrap().is_err()));
    eventually_within("only that is heard which is waited for", SOON, || heard() == 1);
    block_on(guards[0].release()).unwrap();
    drop(long.join().unwrap().unwrap());
    // And one that is waited for again is heard again.
    let again = waiting(&names[1], SOON);
    eventually_within("it is heard again", SOON, || {
        let heard: Vec<_> = cluster.nodes.iter().flat_map(channels).collect();
        !heard.is_empty()
    });
    wait_for_line(&holder, &names[1], 1);
    block_on(guards[1].release()).unwrap();
    drop(again.join().unwrap().unwrap());
}

/// What the channel begins with in which is heard who waits for a lock that is held; its slot, and the node that
/// has it.
fn shard_of(cluster: &Cluster, name: &str) -> (String, u16, usize) {
    let suffix = format!(":{{{name}}}:lock");
    let key = cluster.nodes.iter().find_map(|node| {
        let keys = node.command(&["KEYS", &format!("*{suffix}")]);
        keys.texts().first().map(|key| (*key).to_owned())
    });
    let key = key.expect("it is held");
    let (slot, at) = place_of(cluster, &key);
    (key.strip_suffix(&suffix).unwrap().to_owned(), slot, at)
}

#[test]
fn a_slot_that_no_node_serves_disturbs_no_waiter_in_another() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let (holder, other) = (client(&cluster), client(&cluster));
    let hold = |at: usize| {
        let name = format!("job {at}");
        let guard = block_on(holder.lock(&name).acquire()).unwrap();
        (shard_of(&cluster, &name), name, guard)
    };
    // Of so many, two are at one node.
    let held: Vec<_> = (0..4).map(hold).collect();
    let mut pairs =
        held.iter().enumerate().flat_map(|(at, one)| held[..at].iter().map(move |two| (one, two)));
    let (lost, served) = pairs.find(|(one, two)| one.0.2 == two.0.2).unwrap();
    let ((shard, slot, at), ..) = lost;
    assert_ne!(*slot, served.0.1);
    let waiters = [lost, served].map(|(_, name, _)| {
        let waiting = other.lock(name).wait(SOON * 2);
        thread::spawn(move || block_on(waiting.acquire()))
    });
    eventually_within("both are heard", SOON, || channels(&cluster.nodes[*at]).len() == 2);
    for (_, name, _) in [lost, served] {
        wait_for_line(&holder, name, 1);
    }

    let mut node = cluster.nodes[*at].connect().unwrap();
    let mut number = |section: &str, field: &str| {
        let info = node.command(&["INFO", section]).unwrap();
        let line = info.text().unwrap().lines().find_map(|line| line.strip_prefix(field));
        line.map_or(0, |number| {
            number.trim_start_matches(":count=").trim_start_matches(':').parse::<u64>().unwrap()
        })
    };
    let connections = number("stats", "total_connections_received");
    cluster.nodes[*at].command(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    eventually_within("it is refused", SOON, || number("errorstats", "errorstat_CLUSTERDOWN") > 5);
    // The command above took one.
    assert!(number("stats", "total_connections_received") <= connections + 1, "it stays connected");

    let [lost_waiter, served_waiter] = waiters;
    comes_in_promptly(&served.2, served_waiter);
    cluster.nodes[*at].command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    let is_heard = || channels(&cluster.nodes[*at]).iter().any(|channel| channel.starts_with(shard));
    eventually_within("it is heard again", SOON, is_heard);
    comes_in_promptly(&lost.2, lost_waiter);
}

#[test]
fn a_waiter_behind_a_broken_lease_is_pushed_its_grant() {
    let cluster = Cluster::start();
    let (holder, other) = (client(&cluster), client(&cluster));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (waiter, _) = waiter(&cluster, &other, "a");
    let asked = Instant::now();
    let request = BreakRequest {
        name: "a".into(),
        expected: guard.fencing_token(),
        by: "ann".into(),
        reason: "it is stuck".into(),
    };
    block_on(holder.inspect().break_lease(&request)).unwrap();
    block_on(waiter.join().unwrap().unwrap().release()).unwrap();
    assert!(asked.elapsed() < PROMPTLY, "{:?}", asked.elapsed());
}

/// A server from before 7.0 knows neither SPUBLISH nor how to count who listens in a slot.
#[test]
fn where_no_client_can_publish_in_a_slot_a_push_is_a_hint() {
    let cluster = Cluster::start_with(0, |node| node.config("rename-command PUBSUB \"\""));
    let (holder, other) = (client(&cluster), client(&cluster));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let waiting = other.lock("a").wait(SOON);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    wait_for_line(&holder, "a", 1);
    comes_in_promptly(&guard, waiter);
}

#[test]
fn with_tls_every_node_is_reached_by_tls() {
    let tls = Tls::new();
    let cluster = Cluster::start_with(0, move |node| node.tls(tls.clone()).password("s3cret"));
    let ca = cluster.nodes[0].tls().ca.display().to_string();
    let url = cluster.url().replace("//", "//:s3cret@");
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    let options = "poll=20s&provisional=50s&lease=60s";
    let connect = || block_on(Polylatch::connect(&format!("{url}?ca={ca}&{options}"))).unwrap();
    let (holder, other) = (connect(), connect());
    let names: Vec<_> = (0..20).map(|at| format!("job {at}")).collect();
    let guards: Vec<_> = names.iter().map(|name| block_on(holder.lock(name).acquire()).unwrap()).collect();
    assert!(cluster.nodes.iter().all(|node| !node.command(&["KEYS", "*:lock"]).items().is_empty()));
    let waiting = other.lock(&names[0]).wait(SOON);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    wait_for_line(&holder, &names[0], 1);
    comes_in_promptly(&guards[0], waiter);
    let error = block_on(Polylatch::connect(&format!("{url}?{options}"))).expect_err("unknown authority");
    assert!(error.to_string().contains("certificate"), "{error}");
}
