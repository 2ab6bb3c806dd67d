//! A Redis Cluster: locks on all masters, slots that move, masters that fail, and what is wrong with a URL.

#![cfg(all(feature = "redis", unix))]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually_within, millis};
use polylatch::host::{Answer, Listener, RedisConnection, RedisReply};
use polylatch::inspect::{CheckSeverity, Query};
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::redis::{Cluster, RedisServer};

const SOON: Duration = Duration::from_secs(30);
const QUICK: &str = "poll=100ms&provisional=600ms";

fn connect(url: &str) -> Result<Polylatch, Error> {
    block_on(Polylatch::connect(url))
}

fn client(cluster: &Cluster, options: &str) -> Polylatch {
    connect(&format!("{}?{QUICK}&{options}", cluster.url())).unwrap_or_else(|error| panic!("{error:?}"))
}

#[track_caller]
fn refused(url: &str, kind: ErrorKind, part: &str) {
    let error = connect(url).expect_err(url);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

/// The slot of a lock that is held, and the node that has it.
fn place_of(cluster: &Cluster, name: &str) -> (u16, usize) {
    let keys = cluster.nodes.iter().filter(|node| node.is_running()).map(|node| {
        let keys = node.command(&["KEYS", &format!("polylatch:*:{{{name}}}:lock")]);
        keys.texts().first().map(|key| (*key).to_owned())
    });
    let key = keys.flatten().next().expect("it is held");
    let slot = cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", &key]).int().unwrap();
    let slot = u16::try_from(slot).unwrap();
    (slot, cluster.owner(slot))
}

/// Names whose locks live in the same shard as the first of them: in the same 256th of the slots.
fn neighbours(cluster: &Cluster, count: usize) -> Vec<String> {
    let shard = |name: &str| cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", name]).int().unwrap() / 64;
    let first = shard("n0");
    (0..).map(|at| format!("n{at}")).filter(|name| shard(name) == first).take(count).collect()
}

#[test]
fn different_locks_live_on_different_masters_and_one_listing_shows_all() {
    let cluster = Cluster::start();
    let client = client(&cluster, "");
    let names: Vec<_> = (0..60).map(|at| format!("job {at}")).collect();
    let guards: Vec<_> = names.iter().map(|name| block_on(client.lock(name).acquire()).unwrap()).collect();
    let of_each = cluster.nodes.iter().map(|node| node.command(&["KEYS", "polylatch:*:lock"]).items().len());
    let of_each: Vec<_> = of_each.collect();
    assert_eq!(of_each.iter().sum::<usize>(), 60);
    assert!(of_each.iter().all(|count| *count >= 5), "{of_each:?}");
    eventually_within("all are listed", SOON, || {
        let listing = block_on(client.inspect().list(&Query::default())).unwrap();
        let shown: Vec<_> = listing.locks.iter().map(|lock| lock.name.clone()).collect();
        let mut sorted = names.clone();
        sorted.sort();
        shown == sorted && listing.clients.len() == 1
    });
    assert!(!client.capability().atomic_sets, "their keys are on different masters");
    drop(guards);
}

#[test]
fn a_slot_that_moves_under_load_costs_no_lease_and_lets_no_two_in() {
    let cluster = Cluster::start();
    let holder = client(&cluster, "lease=3s&timeout=10s");
    let names = neighbours(&cluster, 2);
    let guard = block_on(holder.lock(&names[0]).acquire()).unwrap();
    let (slot, _) = place_of(&cluster, &names[0]);
    let (done, inside, sections) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let newest = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = client(&cluster, "lease=3s&timeout=10s");
                while !done.load(Ordering::SeqCst) {
                    let guard = block_on(client.lock(&names[1]).wait(SOON).acquire()).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    let fence = guard.fencing_token().get();
                    assert!(
                        newest.swap(fence, Ordering::SeqCst) < fence,
                        "numbers grow wherever the slot is"
                    );
                    sections.fetch_add(1, Ordering::SeqCst);
                    // Some work, so that a second one would be met.
                    thread::sleep(millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    block_on(guard.release()).unwrap();
                }
            });
        }
        for round in 0..10 {
            let before = sections.load(Ordering::SeqCst);
            eventually_within("the load goes on", SOON, || sections.load(Ordering::SeqCst) > before + 5);
            let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
            cluster.begin_move(slot, from, to);
            cluster.move_keys(slot, from, to, 2);
            if round % 3 == 0 {
                // Long enough that the lease has to be renewed while its slot is on both.
                let renewals = guard.renewals();
                eventually_within("it is renewed on the way", millis(20_000), || guard.renewals() > renewals);
            }
            cluster.end_move(slot, from, to);
            guard.check().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    let renewals = guard.renewals();
    eventually_within("it is renewed where it is now", SOON, || guard.renewals() > renewals);
    block_on(guard.release()).unwrap();
}

/// Without channels in slots, a node that grants counts its own listeners only, and withdraws what seemingly nobody
/// heard of; but those of other nodes have heard it.
#[test]
fn the_push_of_a_grant_that_was_withdrawn_lets_no_client_in() {
    let cluster = Cluster::start_with(0, |node| node.config("rename-command PUBSUB \"\""));
    let (holder, other) = (client(&cluster, ""), client(&cluster, ""));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (_, master) = place_of(&cluster, "a");
    let waiting = other.lock("a").wait(SOON);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    let node = &cluster.nodes[master];
    let in_line = || {
        let line = node.command(&["KEYS", "polylatch:*:{a}:line"]);
        let line = node.command(&["ZRANGE", line.texts().first()?, "0", "0", "WITHSCORES"]);
        let (waiter, ticket) = (*line.texts().first()?, line.texts()[1].parse::<u64>().unwrap());
        let waiter: Vec<_> = waiter.split('|').map(str::to_owned).collect();
        Some((waiter[0].clone(), format!("polylatch:inbox:{}", waiter[1]), ticket + 1))
    };
    eventually_within("somebody waits", SOON, || in_line().is_some());
    let (owner, channel, withdrawn) = in_line().unwrap();
    let last_sign = || {
        let signs = node.command(&["KEYS", "polylatch:*:{a}:life"]);
        let signs = node.command(&["ZRANGE", signs.texts().first()?, "0", "0", "WITHSCORES"]);
        signs.texts().get(1).map(|sign| (*sign).to_owned())
    };
    let before = last_sign();
    let heard = node.command(&["PUBLISH", &channel, &format!("granted|{owner}|{withdrawn}")]);
    assert_eq!(heard.int(), Some(1));
    eventually_within("it asks", SOON, || waiter.is_finished() || last_sign() != before);
    assert!(!waiter.is_finished(), "two inside");
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    let next = waiter.join().unwrap().unwrap();
    assert!(next.fencing_token().get() > withdrawn, "its number is that of the store");
    block_on(next.release()).unwrap();
}

#[test]
fn a_failed_master_is_followed_and_the_others_notice_nothing() {
    let cluster = Cluster::start_with(1, |node| node);
    let (holder, other) = (client(&cluster, "timeout=2s"), client(&cluster, "timeout=2s"));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let (slot, master) = place_of(&cluster, "a");
    let elsewhere: Vec<_> =
        (0..20).map(|at| block_on(holder.lock(format!("job {at}")).acquire()).unwrap()).collect();
    eventually_within("the lease has its full length, and the replica knows", SOON, || {
        guard.renewals() > 1 && elsewhere.iter().all(|guard| guard.renewals() > 1)
    });
    let waiting = other.lock("a").wait(SOON * 2);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    eventually_within("somebody waits", SOON, || {
        let query = Query { name: Some("a".into()), ..Query::default() };
        !block_on(holder.inspect().list(&query)).unwrap().locks[0].waiters.is_empty()
    });
    let replica_has_it = || {
        let replica = &cluster.nodes[master + 3];
        let log = replica.command(&["INFO", "replication"]);
        log.text().is_some_and(|text| text.contains("master_link_status:up"))
    };
    eventually_within("the replica follows", SOON, replica_has_it);
    cluster.nodes[master].pause();
    eventually_within("another node has the slot", SOON, || {
        let asked = &cluster.nodes[(master + 1) % 3];
        let slots = asked.command(&["CLUSTER", "SLOTS"]);
        slots.items().iter().any(|range| {
            let bound = |at: usize| range.items()[at].int().unwrap_or(-1);
            (bound(0)..=bound(1)).contains(&i64::from(slot))
                && range.items()[2].items()[1].int() == Some(i64::from(cluster.nodes[master + 3].port()))
        })
    });
    let renewals = guard.renewals();
    eventually_within("the lock is renewed at the promoted one", SOON, || {
        guard.check().unwrap();
        guard.renewals() > renewals
    });
    elsewhere.iter().for_each(|guard| guard.check().unwrap());
    let asked = Instant::now();
    block_on(guard.release()).unwrap();
    let next = waiter.join().unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    cluster.nodes[master].resume();
    block_on(next.release()).unwrap();
}

#[test]
fn strict_wants_of_every_master_what_it_wants_of_one() {
    let cluster = Cluster::start_with(1, |node| node);
    let url = format!("{}?guarantee=strict", cluster.url());
    refused(&url, ErrorKind::BackendRejected, "set min-replicas-to-write 1");
    for node in &cluster.nodes {
        assert!(node.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).is_ok());
    }
    let options = "guarantee=strict&ack=any&max_lease=1s&lease=1s&provisional=600ms&poll=100ms";
    let client = connect(&format!("{}?{options}", cluster.url())).unwrap();
    block_on(block_on(client.lock("a").wait(SOON).acquire()).unwrap().release()).unwrap();
}

/// A connection that nobody may use.
struct Untouched;

impl RedisConnection for Untouched {
    fn command(&self, words: Vec<String>) -> Answer<RedisReply> {
        panic!("asked {words:?}");
    }

    fn subscribe(&self, channel: String, _: Listener) -> Answer<()> {
        panic!("asked for {channel}");
    }

    fn close(&self) {}
}

#[test]
fn a_connection_of_the_program_is_to_one_server() {
    for url in ["redis+cluster://a,b", "rediss+cluster://:s3cret@a"] {
        let builder = Polylatch::builder().url(url).redis(Arc::new(Untouched));
        let error = block_on(builder.connect()).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("each of its primaries"), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_url_is_reported_with_the_way_out() {
    let single = RedisServer::start();
    let url = single.url().replace("redis://", "redis+cluster://");
    refused(&url, ErrorKind::InvalidConfig, "belongs to no cluster; write redis://");
    single.stop();
    refused(&format!("{url}?timeout=1s"), ErrorKind::BackendUnavailable, &single.address().to_string());

    let bus = ReservedPort::new().unwrap();
    let bus_line = format!("cluster-port {}", bus.number());
    let empty = RedisServer::builder().config("cluster-enabled yes").config(&bus_line).start();
    let url = empty.url().replace("redis://", "redis+cluster://");
    refused(&url, ErrorKind::BackendUnavailable, "no node of the cluster has slots");

    let cluster = Cluster::start_with(0, |node| node.password("s3cret"));
    refused(&cluster.url(), ErrorKind::BackendRejected, "wants a password");
    let url = cluster.url().replace("//", "//:s3cret@");
    connect(&url).unwrap();
}

#[test]
fn an_examination_looks_at_every_master() {
    let cluster = Cluster::start();
    let client = client(&cluster, "");
    let good = block_on(client.inspect().examine()).unwrap();
    let finding = good.finding("mode").expect("a finding about the cluster");
    assert_eq!(finding.severity, CheckSeverity::Ok, "{finding:?}");
    let finding = good.finding("cluster").expect("a finding about the cluster");
    assert!(finding.detail.contains("3 primaries"), "{finding:?}");
    let odd = &cluster.nodes[2];
    assert!(odd.command(&["CONFIG", "SET", "maxmemory", "100mb"]).is_ok());
    assert!(odd.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).is_ok());
    let bad = block_on(client.inspect().examine()).unwrap();
    let finding = bad.finding("eviction").expect("a finding about eviction");
    assert!(finding.severity.needs_action(), "{finding:?}");
    assert!(finding.detail.contains(&odd.address().to_string()), "{finding:?}");
    assert!(finding.fix.contains(&odd.port().to_string()), "{finding:?}");
}

#[test]
fn a_hung_master_costs_no_lock_of_the_others() {
    let cluster = Cluster::start_with(0, |node| node.config("cluster-require-full-coverage no"));
    let client = connect(&format!("{}?lease=6s", cluster.url())).unwrap();
    let guards: Vec<_> =
        (0..600).map(|at| block_on(client.lock(format!("job {at}")).acquire()).unwrap()).collect();
    eventually_within("all have their full lease", SOON, || guards.iter().all(|guard| guard.renewals() >= 1));
    let keys = cluster.nodes[0].command(&["KEYS", "polylatch:*:lock"]);
    let on_hung: HashSet<String> = keys.texts().iter().map(|key| (*key).to_owned()).collect();
    let is_hung = |name: &str| on_hung.iter().any(|key| key.ends_with(&format!("{{{name}}}:lock")));
    let names: Vec<_> = (0..600).map(|at| format!("job {at}")).collect();
    let (hung, healthy): (Vec<_>, Vec<_>) =
        guards.iter().zip(&names).partition(|(_, name)| is_hung(&name.replace(' ', "%20")) || is_hung(name));
    assert!(hung.len() > 100 && healthy.len() > 300, "{} and {}", hung.len(), healthy.len());
    cluster.nodes[0].pause();
    eventually_within("the locks of the hung one are lost", SOON, || {
        hung.iter().all(|(guard, _)| !guard.is_held())
    });
    // As long again, so that none of the others lives on what was left of its lease.
    let renewals: Vec<_> = healthy.iter().map(|(guard, _)| guard.renewals()).collect();
    eventually_within("the others are renewed", SOON, || {
        let renewed = healthy.iter().zip(&renewals);
        renewed.clone().all(|((guard, _), before)| guard.renewals() > before + 2 || !guard.is_held())
    });
    let lost = healthy.iter().filter(|(guard, _)| guard.check().is_err()).count();
    cluster.nodes[0].resume();
    assert_eq!(lost, 0, "of {}", healthy.len());
}
