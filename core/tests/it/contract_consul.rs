//! The contract on a real Consul agent.

#![cfg(all(feature = "consul", unix))]

use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::contract::{Store, block_on, eventually, millis, seen, stands_in_line};
use polylatch::{ErrorKind, Guard, Polylatch};
use polylatch_test_services::consul::ConsulAgent;

/// One agent for all cases; each has a prefix of its own.
static AGENT: LazyLock<ConsulAgent> = LazyLock::new(ConsulAgent::start);

/// A session for every acquisition.
const PER_LOCK: &str = "session=per-lock";

struct Consul {
    prefix: String,
    options: &'static str,
}

impl crate::contract::Store for Consul {
    // The agent takes sessions of any length, so that the cases need not wait for long ones. All of them have one agent: beside
    // one that asks hundreds of things at once, an answer takes seconds on a busy machine.
    fn url(&self, options: &str) -> String {
        let (url, Self { prefix, options: own }) = (AGENT.url(), self);
        format!("{url}?prefix={prefix}&session_ttl_min=100ms&lock_delay=0s&timeout=10s&{own}&{options}")
    }

    fn stretch(&self) -> u32 {
        5
    }

    // All cases keep one agent busy, and it answers for renewals no sooner than for anything else.
    fn safe(&self) -> Duration {
        millis(9_000)
    }

    // Each session is made, renewed and destroyed by requests of its own, all of them to the one agent.
    fn crowd(&self, of: usize) -> usize {
        if self.options == PER_LOCK { of / 4 } else { of }
    }

    fn tells_renewals(&self) -> bool {
        false
    }

    // A waiter stands in line as long as its client's session lives.
    fn waiters_fall_silent(&self) -> bool {
        false
    }
}

fn fresh(options: &'static str) -> Consul {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Consul { prefix: format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)), options }
}

crate::contract!(|| fresh("session=shared"));

/// The same with a session for every acquisition.
mod sessions_per_lock {
    crate::contract!(|| super::fresh(super::PER_LOCK));
}

#[test]
fn a_set_is_one_step_as_long_as_it_fits_into_one_transaction() {
    let client = fresh("").connect();
    let names = |count: usize| (0..count).map(|number| format!("n{number:02}")).collect::<Vec<_>>();
    let all = block_on(client.lock_all(names(31)).try_acquire()).unwrap().unwrap();
    let tokens: Vec<_> = all.guards().iter().map(Guard::fencing_token).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "one step: {tokens:?}");
    block_on(all.release()).unwrap();
    let error = block_on(client.lock_all(names(32)).try_acquire()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("at most 9") && error.to_string().contains("acquire"), "{error}");
    let all = block_on(client.lock_all(names(32)).wait(millis(20_000)).acquire()).unwrap();
    assert_eq!(all.guards().len(), 32, "one after the other");
    block_on(all.release()).unwrap();
}

#[test]
fn a_set_with_a_lock_under_lock_delay_says_so() {
    let store = fresh("");
    let url = format!("{}?prefix={}&session_ttl_min=100ms&lock_delay=20s", AGENT.url(), store.prefix);
    let client = block_on(polylatch::Polylatch::connect(&url)).unwrap();
    let guard = block_on(client.lock("b").acquire()).unwrap();
    let view = seen(&client, "b");
    let session = view.holders[0].details.iter().find(|detail| detail.name == "session").unwrap();
    AGENT.ask("PUT", &format!("/v1/session/destroy/{}", session.value), "");
    block_on(guard.lost());
    let error = block_on(client.lock_all(["a", "b"]).try_acquire()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("lock-delay"), "{error}");
    assert!(seen(&client, "a").holders.is_empty(), "nothing of a refused set is kept");
}

type Acquiring<'lock> = Pin<Box<dyn Future<Output = polylatch::Result<Guard>> + 'lock>>;

/// So many clients, with the same lock each.
fn contenders(store: &impl Store, count: usize) -> (Vec<Polylatch>, Vec<polylatch::Lock>) {
    let clients: Vec<_> = (0..count).map(|_| store.connect()).collect();
    let locks = clients.iter().map(|client| client.lock("x").wait(millis(20_000))).collect();
    (clients, locks)
}

/// Starts to wait; returns when so many stand in line.
fn join<'lock>(lock: &'lock polylatch::Lock, looks: &Polylatch, waiters: usize) -> Acquiring<'lock> {
    let mut acquire: Acquiring<'lock> = Box::pin(lock.acquire());
    stands_in_line(acquire.as_mut(), looks, "x", waiters);
    acquire
}

/// The third leaves the line, and the second lets the fourth in.
fn passes_over(second: &Guard, third: Acquiring<'_>, fourth: Acquiring<'_>, looks: &Polylatch) {
    drop(third);
    eventually("it has left", || seen(looks, "x").waiters.len() == 1);
    block_on(second.release()).unwrap();
    let fourth = block_on(fourth).unwrap();
    assert!(fourth.fencing_token() > second.fencing_token());
    block_on(fourth.release()).unwrap();
    assert!(seen(looks, "x").holders.is_empty());
}

#[test]
fn who_left_the_line_is_passed_over_by_a_holder_that_knew_of_it() {
    let store = fresh("");
    let (clients, locks) = contenders(&store, 4);
    let first = block_on(locks[0].acquire()).unwrap();
    let second = join(&locks[1], &clients[0], 1);
    let third = join(&locks[2], &clients[0], 2);
    let fourth = join(&locks[3], &clients[0], 3);
    block_on(first.release()).unwrap();
    let second = block_on(second).unwrap();
    passes_over(&second, third, fourth, &clients[0]);
}

#[test]
fn who_joined_during_a_section_and_left_again_is_passed_over() {
    let store = fresh("");
    let (clients, locks) = contenders(&store, 4);
    let first = block_on(locks[0].acquire()).unwrap();
    let second = join(&locks[1], &clients[0], 1);
    block_on(first.release()).unwrap();
    // Let in with nobody behind it: from now on it looks out for those who come.
    let second = block_on(second).unwrap();
    let third = join(&locks[2], &clients[0], 1);
    let fourth = join(&locks[3], &clients[0], 2);
    // Time to be told of the first of them, who then goes.
    std::thread::sleep(millis(100));
    passes_over(&second, third, fourth, &clients[0]);
}

#[test]
fn letters_that_are_over_are_removed() {
    let store = fresh("");
    let (clients, locks) = contenders(&store, 3);
    let mut guard = block_on(locks[0].acquire()).unwrap();
    for turn in 1..=30 {
        let next = join(&locks[turn % 3], &clients[0], 1);
        block_on(guard.release()).unwrap();
        guard = block_on(next).unwrap();
    }
    block_on(guard.release()).unwrap();
    let inboxes = format!("/v1/kv/{}/.client/?keys", store.prefix);
    let letters = || {
        let keys = AGENT.ask("GET", &inboxes, "").body;
        keys.split(',').filter(|key| !key.contains("/session-") && !key.contains("/about-")).count()
    };
    eventually("no letter is left", || letters() == 0);
}
