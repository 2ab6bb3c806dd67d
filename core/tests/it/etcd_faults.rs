//! etcd under faults: leases that end by force, members that hang or die, no majority, and wrong addresses.

#![cfg(all(feature = "etcd", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, eventually_within, millis, seen};
use polylatch::{ErrorKind, Guard, LostReason, Polylatch};
use polylatch_test_services::etcd::{EtcdCluster, EtcdMember};
use polylatch_test_services::tls::{Flaw, TestCa};

fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{error:?}"))
}

/// The lease that a holder hangs on, in hexadecimal.
pub fn lease_of(client: &Polylatch, name: &str) -> String {
    let holder = seen(client, name).holders.remove(0);
    let session = holder.details.iter().find(|detail| detail.name == "session").unwrap();
    session.value.strip_prefix("lease ").unwrap().to_owned()
}

#[test]
fn a_revoked_lease_is_a_loss_that_is_told_and_the_next_one_enters() {
    let member = EtcdMember::start();
    let (holder, other) = (connect(&member.url()), connect(&member.url()));
    let guard = block_on(holder.lock("a").lease(millis(6_000)).acquire()).unwrap();
    let lock = other.lock("a").wait(millis(30_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    member.run_command(&["lease", "revoke", &lease_of(&other, "a")]);
    assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
    assert_eq!(block_on(guard.release()).unwrap_err().kind(), ErrorKind::LeaseLost);
    let next = waiter.join().unwrap();
    assert!(next.is_held() && next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_deleted_key_is_a_loss_at_the_next_renewal() {
    let member = EtcdMember::start();
    let client = connect(&member.url());
    let guard = block_on(client.lock("a").lease(millis(6_000)).acquire()).unwrap();
    member.run_command(&["del", "--prefix", "polylatch/a/"]);
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
}

#[test]
fn a_waiter_whose_lease_was_revoked_queues_again() {
    let member = EtcdMember::start();
    let (holder, other) = (connect(&member.url()), connect(&member.url()));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let lock = other.lock("a").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    let own = lease_of(&other, "a");
    let keys = member.run_command(&["get", "--prefix", "--keys-only", "polylatch/a/"]);
    let waits =
        keys.lines().filter_map(|key| key.rsplit_once('/')).find(|(_, lease)| *lease != own).unwrap().1;
    member.run_command(&["lease", "revoke", waits]);
    eventually("it is queued again", || {
        let keys = member.run_command(&["get", "--prefix", "--keys-only", "polylatch/a/"]);
        seen(&other, "a").waiters.len() == 1 && !keys.contains(waits)
    });
    block_on(guard.release()).unwrap();
    assert!(waiter.join().unwrap().fencing_token() > guard.fencing_token());
}

#[test]
fn a_member_that_is_killed_comes_back_with_its_locks() {
    let member = EtcdMember::start();
    let client = connect(&format!("{}?lease=30s", member.url()));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    member.kill();
    let error = block_on(client.lock("b").no_wait().acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    member.start_again();
    member.wait_for_leader();
    let renewals = guard.renewals();
    eventually_within("it is renewed", Duration::from_secs(30), || guard.renewals() > renewals);
    let other = connect(&member.url());
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
    let next = block_on(other.lock("a").try_acquire()).unwrap().expect("it was released");
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn locks_survive_the_death_and_the_pause_of_leaders() {
    let cluster = EtcdCluster::start();
    let url = format!("{}?lease=30s&timeout=2s", cluster.url());
    let (client, other) = (connect(&url), connect(&url));
    let mut token = 0;
    for pause in [false, true] {
        let guards: Vec<Guard> = (0..10)
            .map(|number| {
                block_on(client.lock(format!("{pause}/{number}")).wait(millis(60_000)).acquire()).unwrap()
            })
            .collect();
        let least = guards.iter().map(|guard| guard.fencing_token().get()).min().unwrap();
        assert!(least > token, "tokens went back");
        let renewed: Vec<_> = guards.iter().map(Guard::renewals).collect();
        let leader = cluster.leader();
        if pause {
            leader.pause()
        } else {
            leader.kill()
        }
        // While there is another leader, or none: excluded all the same.
        if let Ok(taken) = block_on(other.lock(format!("{pause}/0")).try_acquire()) {
            assert!(taken.is_none(), "a lock that is held was granted");
        }
        eventually_within("all were renewed at another leader", Duration::from_secs(60), || {
            guards.iter().zip(&renewed).all(|(guard, before)| guard.renewals() > *before)
        });
        if pause {
            leader.resume()
        } else {
            leader.start_again()
        }
        leader.wait_for_leader();
        for guard in &guards {
            guard.check().unwrap();
            block_on(guard.release()).unwrap();
        }
        token = guards.iter().map(|guard| guard.fencing_token().get()).max().unwrap();
    }
}

#[test]
fn a_member_that_hangs_delays_a_hand_off_and_stops_none() {
    let cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let hangs = cluster.members.iter().find(|member| member.address() != leader.address()).unwrap();
    // The one that hangs is named first, so every request goes there until it fails.
    let others: Vec<_> = cluster.members.iter().filter(|one| one.address() != hangs.address()).collect();
    let url =
        format!("etcd://{},{},{}?timeout=2s", hangs.address(), others[0].address(), others[1].address());
    let (one, two) = (connect(&url), connect(&url));
    let first = block_on(one.lock("a").acquire()).unwrap();
    let lock = two.lock("a").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&one, "a").waiters.len() == 1);
    hangs.pause();
    let begun = Instant::now();
    block_on(first.release()).unwrap();
    let second = waiter.join().unwrap();
    let took = begun.elapsed();
    hangs.resume();
    assert!(took < Duration::from_secs(12), "{took:?}");
    second.check().unwrap();
    assert!(second.fencing_token() > first.fencing_token());
}

/// A request that was given up may still be carried out by the member that hung. It must find no lease.
#[test]
fn what_a_hung_member_may_still_carry_out_finds_no_lease_after_the_release() {
    let cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let hangs = cluster.members.iter().find(|member| member.address() != leader.address()).unwrap();
    let url = format!("etcd://{},{}?timeout=2s", hangs.address(), leader.address());
    let (client, looks) = (connect(&url), connect(&format!("etcd://{}", leader.address())));
    let left = |lease: &str| {
        let id = i64::from_str_radix(lease, 16).unwrap();
        leader.ask("/v3/lease/timetolive", &format!("{{\"ID\":\"{id}\"}}")).body
    };
    // Answered without doubt: the lease is kept for the next acquisition.
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let lease = lease_of(&looks, "a");
    block_on(guard.release()).unwrap();
    assert!(!left(&lease).contains("\"TTL\":\"-1\""), "{}", left(&lease));
    hangs.pause();
    let guard = block_on(client.lock("a").wait(millis(30_000)).acquire()).unwrap();
    assert_eq!(lease_of(&looks, "a"), lease, "the kept lease is used");
    block_on(guard.release()).unwrap();
    let after = left(&lease);
    hangs.resume();
    hangs.wait_for_leader();
    assert!(after.contains("\"TTL\":\"-1\""), "the lease is still there: {after}");
    assert!(seen(&looks, "a").holders.is_empty(), "an orphan");
}

#[test]
fn without_a_majority_nothing_is_granted_and_a_holder_is_told_by_its_own_clock() {
    let cluster = EtcdCluster::start();
    let client = connect(&format!("{}?timeout=2s&lease=8s", cluster.url()));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    for member in &cluster.members[1..] {
        member.kill();
    }
    let error = block_on(client.lock("b").wait(millis(5_000)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    let error = block_on(Polylatch::connect(&format!("{}?timeout=2s", cluster.url()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    for member in &cluster.members[1..] {
        member.start_again();
    }
    let next = block_on(client.lock("b").wait(millis(60_000)).acquire()).unwrap();
    assert!(next.is_held());
}

#[test]
fn authentication_is_required_checked_and_renewed() {
    let member = EtcdMember::start();
    member.run_command(&["user", "add", "root:top"]);
    member.run_command(&["user", "grant-role", "root", "root"]);
    member.run_command(&["role", "add", "locks"]);
    member.run_command(&["role", "grant-permission", "locks", "readwrite", "--prefix=true", "app/"]);
    member.run_command(&["user", "add", "app:Zq7xWvKj"]);
    member.run_command(&["user", "grant-role", "app", "locks"]);
    let place = member.address();
    let with_user = format!("etcd://app:Zq7xWvKj@{place}/app");
    let error = block_on(Polylatch::connect(&with_user)).unwrap_err();
    assert!(error.to_string().contains("no authentication"), "{error}");
    member.run_command(&["auth", "enable"]);

    let refused = |url: &str, part: &str| {
        let error = block_on(Polylatch::connect(url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{url}: {error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(!format!("{error:?}").contains("Zq7x"), "{error:?}");
    };
    refused(&format!("etcd://{place}/app"), "requires a user");
    refused(&format!("etcd://app:Zq7xWrong@{place}/app"), "user or password");
    refused(&format!("etcd://app:Zq7xWvKj@{place}/other"), "readwrite --prefix=true other/");

    let client = connect(&with_user);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    // Makes every token of before invalid, also across restarts, which a kill does not: tokens are in the log.
    member.run_command(&["--user=root:top", "auth", "disable"]);
    member.run_command(&["auth", "enable"]);
    block_on(guard.release()).unwrap();
    let again = block_on(client.lock("a").wait(millis(10_000)).acquire()).unwrap();
    again.check().unwrap();
}

#[test]
fn tls_is_verified_and_the_wrong_scheme_is_told() {
    let member = EtcdMember::start_with_tls(&TestCa::new(), Flaw::None);
    let (url, files) = member.tls();
    let client = connect(&format!("{url}?ca={}", files.ca.display()));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let lock = client.lock("a").wait(millis(30_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&client, "a").waiters.len() == 1);
    block_on(guard.release()).unwrap();
    waiter.join().unwrap().check().unwrap();

    let error = block_on(Polylatch::connect(&format!("{url}?ca={}", files.wrong_ca.display()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    assert!(error.to_string().contains("not trusted"), "{error}");
    let plain = url.replace("etcd+https://", "etcd://");
    let error = block_on(Polylatch::connect(&plain)).unwrap_err();
    assert!(error.to_string().contains("etcd+https://"), "{error}");
}

#[test]
fn wrong_addresses_are_told_with_the_way_out() {
    let member = EtcdMember::start();
    let place = member.address();
    let error = block_on(Polylatch::connect(&format!("etcd+https://{place}"))).unwrap_err();
    assert!(error.to_string().contains("is this its TLS port"), "{error}");
    let other = crate::contract_etcd::not_etcd();
    let error = block_on(Polylatch::connect(&format!("etcd://{other}"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    assert!(error.to_string().contains("gateway") || error.to_string().contains("no etcd"), "{error}");
    let error = block_on(Polylatch::connect("etcd://127.0.0.1:1,127.0.0.1:2")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert!(error.to_string().contains("does a member listen there"), "{error}");
}

#[test]
fn a_member_without_its_gateway_is_told_with_the_option() {
    let member = EtcdMember::start_without_gateway();
    let error = block_on(Polylatch::connect(&member.url())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    assert!(error.to_string().contains("--enable-grpc-gateway"), "{error}");
}

#[test]
fn a_learner_grants_nothing_and_the_members_that_vote_are_asked() {
    let member = EtcdMember::start();
    let learner = member.start_learner();
    let error = block_on(Polylatch::connect(&learner.url())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert!(error.to_string().contains("member promote"), "{error}");
    let client = connect(&format!("etcd://{},{}", learner.address(), member.address()));
    block_on(client.lock("a").acquire()).unwrap().check().unwrap();
}

#[test]
fn an_examination_says_what_holds() {
    use polylatch::inspect::{CheckSeverity, Holds};
    let examine = |url: &str| block_on(Polylatch::builder().url(url).examine()).unwrap().1;
    let cluster = EtcdCluster::start();
    let all = examine(&cluster.url());
    assert_eq!(all.worst(), CheckSeverity::Notice, "{all:#?}");
    assert!(all.version.as_deref().is_some_and(|version| version.starts_with("etcd 3.")), "{all:#?}");
    let failover = |found: &polylatch::inspect::Examination| {
        found.promises.iter().find(|promise| promise.id == "exclusion-after-failover").unwrap().holds
    };
    assert_eq!(failover(&all), Holds::Yes);
    let one = examine(&cluster.members[0].url());
    assert!(one.finding("members").unwrap().title.contains("one of several"), "{one:#?}");
    cluster.members[2].kill();
    let hurt = examine(&cluster.url());
    assert_eq!(hurt.finding("members").unwrap().severity, CheckSeverity::Warning, "{hurt:#?}");

    let alone = EtcdMember::start();
    alone.run_command(&["put", "x", "y"]);
    let found = examine(&alone.url());
    assert_eq!(failover(&found), Holds::No);
    assert_eq!(found.finding("members").unwrap().severity, CheckSeverity::Notice);
    assert!(seen(&connect(&alone.url()), "a").holders.is_empty());
    let left = alone.run_command(&["get", "--prefix", "--keys-only", "polylatch/"]);
    assert_eq!(left.trim(), "", "an examination leaves nothing");
}
