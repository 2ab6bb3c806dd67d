//! ZooKeeper under faults: sessions that end by force, answers that are lost, members that hang or die, no majority.

#![cfg(all(feature = "zookeeper", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, eventually_within, millis, seen};
use crate::contract_zookeeper::SERVER;
use polylatch::{ErrorKind, Guard, LostReason, Polylatch};
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::zookeeper::{Ensemble, ZooKeeper};

pub fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A store of its own on the server that the contract uses too.
pub fn url(prefix: &str, options: &str) -> String {
    format!("{}?prefix={prefix}&tick=200ms&{options}", SERVER.url())
}

/// The node and the session by which a lock is held.
pub fn held_by(client: &Polylatch, name: &str) -> (String, i64) {
    let holder = seen(client, name).holders.remove(0);
    let detail =
        |name: &str| holder.details.iter().find(|detail| detail.name == name).unwrap().value.to_string();
    let session = detail("session");
    (detail("node"), i64::from_str_radix(session.trim_start_matches("0x"), 16).unwrap())
}

#[test]
fn an_ended_session_is_a_loss_that_is_told_and_the_next_one_enters() {
    let url = url("faults-1", "lease=20s");
    let (holder, other) = (connect(&url), connect(&url));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let lock = other.lock("a").wait(millis(30_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    let (node, session) = held_by(&other, "a");
    SERVER.end_session(session);
    assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
    assert_eq!(block_on(guard.release()).unwrap_err().kind(), ErrorKind::LeaseLost);
    let next = waiter.join().unwrap();
    assert!(next.is_held() && next.fencing_token() > guard.fencing_token());
    block_on(next.release()).unwrap();
    // Another session and another node: nothing of the ended one is taken up again.
    let again = block_on(holder.lock("a").wait(millis(30_000)).acquire()).unwrap();
    let (new_node, new_session) = held_by(&other, "a");
    assert!(new_session != session && new_node != node);
    again.check().unwrap();
}

#[test]
fn a_deleted_node_is_a_loss_at_the_next_renewal() {
    let client = connect(&url("faults-2", "lease=3s"));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    SERVER.run_command(&["delete", &held_by(&client, "a").0]);
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
}

#[test]
fn a_waiter_whose_session_was_ended_queues_again() {
    let url = url("faults-3", "lease=20s");
    let (holder, other) = (connect(&url), connect(&url));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    // Its session holds another lock, by which it is found.
    let found_by = block_on(other.lock("b").acquire()).unwrap();
    let lock = other.lock("a").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&holder, "a").waiters.len() == 1);
    let before = seen(&holder, "a").waiters[0].since_ms;
    SERVER.end_session(held_by(&holder, "b").1);
    assert_eq!(block_on(found_by.lost()), LostReason::SessionEnded);
    eventually("it is queued again", || {
        seen(&holder, "a").waiters.first().is_some_and(|waiter| waiter.since_ms > before)
    });
    block_on(guard.release()).unwrap();
    assert!(waiter.join().unwrap().fencing_token() > guard.fencing_token());
}

#[test]
fn a_server_that_is_killed_comes_back_with_its_locks() {
    let server = ZooKeeper::start();
    let url = format!("{}?lease=30s&tick=200ms", server.url());
    let client = connect(&url);
    let guard = block_on(client.lock("a").acquire()).unwrap();
    server.kill();
    let error = block_on(client.lock("b").no_wait().acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    server.start_again();
    server.wait_until_it_serves();
    let renewals = guard.renewals();
    eventually_within("it is renewed", Duration::from_secs(30), || guard.renewals() > renewals);
    let other = connect(&url);
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
    let next = block_on(other.lock("a").try_acquire()).unwrap().expect("it was released");
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn locks_survive_the_death_and_the_pause_of_leaders() {
    let ensemble = Ensemble::start();
    let url = format!("{}?lease=30s&timeout=2s&tick=200ms", ensemble.url());
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
        let leader = ensemble.leader();
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
        leader.wait_until_it_serves();
        for guard in &guards {
            guard.check().unwrap();
            block_on(guard.release()).unwrap();
        }
        token = guards.iter().map(|guard| guard.fencing_token().get()).max().unwrap();
    }
}

#[test]
fn a_member_that_hangs_delays_a_hand_off_and_stops_none() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let hangs = ensemble.members.iter().find(|member| member.address() != leader.address()).unwrap();
    let others: Vec<_> = ensemble
        .members
        .iter()
        .filter(|one| one.address() != hangs.address())
        .map(ZooKeeper::address)
        .collect();
    // The one that hangs is named first, so both are connected to it.
    let url = format!("zookeeper://{},{},{}?timeout=2s&tick=200ms", hangs.address(), others[0], others[1]);
    let (one, two) = (connect(&url), connect(&url));
    let first = block_on(one.lock("a").acquire()).unwrap();
    let lock = two.lock("a").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&one, "a").waiters.len() == 1);
    hangs.pause();
    let begun = Instant::now();
    // One that fails is finished in the background.
    let _ = block_on(first.release());
    let second = waiter.join().unwrap();
    let took = begun.elapsed();
    hangs.resume();
    assert!(took < Duration::from_secs(12), "{took:?}");
    second.check().unwrap();
    assert!(second.fencing_token() > first.fencing_token());
}

/// Its client goes on asking for its session, and is heard.
#[test]
fn a_client_that_hears_no_answers_keeps_its_places_for_no_longer_than_two_sessions() {
    let proxy = Proxy::start_raw(SERVER.address());
    let options = "prefix=faults-5&tick=200ms&lease=1s&timeout=1s";
    let (cut, other) = (
        connect(&format!("zookeeper://{}?{options}", proxy.address())),
        connect(&format!("{}?{options}", SERVER.url())),
    );
    let guard = block_on(cut.lock("a").acquire()).unwrap();
    proxy.set_hold(Hold::StallReplies);
    let next = block_on(other.lock("a").wait(millis(20_000)).acquire()).unwrap();
    assert!(next.fencing_token() > guard.fencing_token() && !guard.is_held());
    proxy.set_hold(Hold::Off);
    assert!(block_on(cut.lock("b").wait(millis(20_000)).acquire()).unwrap().is_held());
    next.check().unwrap();
}

#[test]
fn without_a_majority_nothing_is_granted_and_a_holder_is_told_by_its_own_clock() {
    let ensemble = Ensemble::start();
    let client = connect(&format!("{}?timeout=2s&lease=8s&tick=200ms", ensemble.url()));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    for member in &ensemble.members[1..] {
        member.kill();
    }
    let error = block_on(client.lock("b").wait(millis(5_000)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    assert_eq!(block_on(guard.lost()), LostReason::Expired);
    let error = block_on(Polylatch::connect(&format!("{}?timeout=2s", ensemble.url()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    for member in &ensemble.members[1..] {
        member.start_again();
    }
    let next = block_on(client.lock("b").wait(millis(60_000)).acquire()).unwrap();
    assert!(next.is_held());
}

/// Which nodes are watched below this one, and by how many sessions each.
fn watched(path: &str) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    for line in SERVER.ask("wchp").unwrap().lines() {
        match (line.starts_with('/'), all.last_mut()) {
            (true, _) => all.push((line.to_owned(), 0)),
            (false, Some(last)) if line.starts_with(char::is_whitespace) => last.1 += 1,
            _ => {}
        }
    }
    all.retain(|(node, _)| node.starts_with(path));
    all
}

#[test]
fn one_waiter_is_woken_by_each_end_of_a_lease() {
    let url = url("herd-1", "lease=20s");
    let holder = connect(&url);
    let write = block_on(holder.rw_lock("rw").write().acquire()).unwrap();
    let permit = block_on(holder.semaphore("permits", 1).acquire(1)).unwrap();
    // A session of its own for each.
    let clients: Vec<_> = (0..4).map(|_| connect(&url)).collect();
    let waits = |name: &'static str, locks: Vec<polylatch::Lock>| -> Vec<_> {
        let wait = |(number, lock): (usize, polylatch::Lock)| {
            let lock = lock.wait(millis(60_000));
            let thread =
                thread::spawn(move || block_on(block_on(lock.acquire()).unwrap().release()).unwrap());
            eventually("it waits", || seen(&holder, name).waiters.len() == number + 1);
            thread
        };
        locks.into_iter().enumerate().map(wait).collect()
    };
    let mut threads = waits("rw", clients.iter().map(|client| client.rw_lock("rw").write()).collect());
    threads.extend(waits(
        "permits",
        clients.iter().map(|client| client.semaphore("permits", 1).permits(1)).collect(),
    ));
    // What the first one of a semaphore watches is the list of permits, which the server does not tell.
    for (folder, count) in [("/herd-1/rw/", 4), ("/herd-1/permits/locks/", 3)] {
        eventually("each of them watches", || watched(folder).len() == count);
        assert!(watched(folder).iter().all(|(_, sessions)| *sessions == 1), "{:?}", watched(folder));
    }
    block_on(write.release()).unwrap();
    block_on(permit.release()).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
