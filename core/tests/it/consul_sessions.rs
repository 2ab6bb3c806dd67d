//! What sessions do: shared, kept, ended by others, silent, under lock-delay.

#![cfg(all(feature = "consul", unix))]

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::inspect::{Holds, Query};
use polylatch::resource::consul as guarded;
use polylatch::{ErrorKind, Guard, LostReason, Polylatch};
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::proxy::{Hold, Proxy};

static AGENT: LazyLock<ConsulAgent> = LazyLock::new(ConsulAgent::start);

fn connect(prefix: &str, options: &str) -> Polylatch {
    let url = format!("{}?prefix={prefix}&session_ttl_min=100ms&{options}", AGENT.url());
    block_on(Polylatch::connect(&url)).unwrap()
}

/// The sessions of one client, by the name that they carry.
fn sessions_of(agent: &ConsulAgent, client: &Polylatch) -> usize {
    agent.ask("GET", "/v1/session/list", "").body.matches(&format!("polylatch {}", client.id())).count()
}

fn session_of(client: &Polylatch, name: &str) -> String {
    let view = seen(client, name);
    let detail = view.holders[0].details.iter().find(|detail| detail.name == "session").cloned();
    detail.expect("a holder hangs on a session").value
}

fn detail(client: &Polylatch, name: &str, what: &str) -> String {
    let view = seen(client, name);
    let found = view.holders[0].details.iter().find(|detail| detail.name == what).cloned();
    found.unwrap_or_else(|| panic!("no {what} in {view:?}")).value
}

#[test]
fn locks_of_one_lease_share_a_session_unless_an_option_says_otherwise() {
    let shared = connect("share-1", "lock_delay=0s");
    let _guards: Vec<_> =
        (0..5).map(|number| block_on(shared.lock(format!("{number}")).acquire()).unwrap()).collect();
    assert_eq!(sessions_of(&AGENT, &shared), 1);
    let _longer = block_on(shared.lock("longer").lease(millis(20_000)).acquire()).unwrap();
    assert_eq!(sessions_of(&AGENT, &shared), 2);

    let own = connect("share-2", "lock_delay=0s&session=per-lock");
    let guards: Vec<_> =
        (0..5).map(|number| block_on(own.lock(format!("{number}")).acquire()).unwrap()).collect();
    assert_eq!(sessions_of(&AGENT, &own), 5);
    for guard in &guards {
        block_on(guard.release()).unwrap();
    }
    eventually("they are gone with their locks", || sessions_of(&AGENT, &own) == 0);
}

#[test]
fn sessions_have_the_options_of_the_url() {
    let client = connect("options", "lock_delay=7s&checks=serfHealth&node=test-node");
    let _guard = block_on(client.lock("a").lease(millis(12_000)).acquire()).unwrap();
    let facts =
        ["session TTL", "lock-delay", "behavior", "node", "checks"].map(|what| detail(&client, "a", what));
    assert_eq!(facts, ["12s", "7s", "delete", "test-node", "serfHealth"]);
}

#[test]
fn lock_delay_is_as_long_as_the_lease_so_a_forced_end_lets_no_second_holder_in() {
    let client = connect("delays", "");
    for (lease, delay) in [(2, "15s"), (40, "40s"), (90, "60s")] {
        let name = format!("{lease}");
        let _guard = block_on(client.lock(&name).lease(Duration::from_secs(lease)).acquire()).unwrap();
        assert_eq!(detail(&client, &name, "lock-delay"), delay);
    }
    let url = |lease: &str| format!("{}?prefix=delays&lease={lease}", AGENT.url());
    for (lease, holds) in [("30s", Holds::Yes), ("61s", Holds::No), ("20s&lock_delay=15s", Holds::No)] {
        let (_, found) = block_on(Polylatch::builder().url(url(lease)).examine()).unwrap();
        let exclusion = found.promises.iter().find(|promise| promise.id == "exclusion").unwrap();
        assert_eq!(exclusion.holds, holds, "{lease}: {exclusion:?}");
    }
}

#[test]
fn closing_releases_before_it_destroys_so_no_lock_delay_is_left() {
    let (closing, other) = (connect("close", "lock_delay=30s"), connect("close", "lock_delay=30s"));
    let _guard = block_on(closing.lock("a").acquire()).unwrap();
    let lock = other.lock("a").wait(millis(20_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    block_on(closing.close());
    assert!(waiter.join().unwrap().is_held());
    assert_eq!(sessions_of(&AGENT, &closing), 0);
    let listed = block_on(other.inspect().list(&Query::default())).unwrap();
    assert!(listed.clients.iter().all(|client| client.id != *closing.id()));
}

#[test]
fn a_session_destroyed_by_an_operator_is_reported_at_once_and_leaves_a_lock_delay() {
    let (holder, other) = (connect("destroy", "lock_delay=4s"), connect("destroy", "lock_delay=4s"));
    let guards: Vec<_> =
        ["a", "b"].iter().map(|name| block_on(holder.lock(*name).acquire()).unwrap()).collect();
    let lock = other.lock("a").wait(millis(20_000));
    let waiter = thread::spawn(move || (block_on(lock.acquire()).unwrap(), Instant::now()));
    eventually("it waits", || seen(&other, "a").waiters.len() == 1);
    let session = session_of(&other, "a");
    let destroyed = Instant::now();
    AGENT.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    for guard in &guards {
        assert_eq!(block_on(guard.lost()), LostReason::SessionEnded);
        assert!(destroyed.elapsed() < millis(2_000), "told late: {:?}", destroyed.elapsed());
    }
    // Nobody holds it, but that is not contention.
    let error = block_on(other.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    assert!(error.to_string().contains("lock-delay"), "{error}");
    let error = block_on(other.lock("b").wait(millis(300)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitTimeout);
    assert!(error.to_string().contains("lock-delay"), "{error}");
    eventually("the time left is shown", || {
        let facts = seen(&other, "a").details;
        facts.iter().any(|detail| detail.name == "lock-delay" && detail.value.starts_with("at most"))
    });
    let (next, entered) = waiter.join().unwrap();
    assert!(next.fencing_token() > guards[0].fencing_token());
    let waited = entered - destroyed;
    assert!(waited > millis(3_500) && waited < millis(12_000), "{waited:?}");
    // The old holder begins anew with another session.
    drop(next);
    let again = block_on(holder.lock("a").wait(millis(10_000)).acquire()).unwrap();
    assert!(again.is_held());
}

#[test]
fn a_waiter_whose_session_is_destroyed_is_queued_again() {
    let (holder, waiting) = (connect("rejoin", "lock_delay=15s"), connect("rejoin", "lock_delay=15s"));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    // So that the waiter's session is known.
    let beside = block_on(waiting.lock("beside").acquire()).unwrap();
    let session = session_of(&holder, "beside");
    let lock = waiting.lock("a").wait(millis(20_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&holder, "a").waiters.len() == 1);
    AGENT.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    assert_eq!(block_on(beside.lost()), LostReason::SessionEnded);
    eventually("it waits again", || seen(&holder, "a").waiters.len() == 1);
    block_on(guard.release()).unwrap();
    assert!(waiter.join().unwrap().is_held());
}

#[test]
fn a_dead_client_is_followed_within_twice_its_ttl_and_the_lock_delay() {
    let agent = ConsulAgent::start();
    let proxy = Proxy::start_raw(agent.address());
    let options = "prefix=dead&session_ttl_min=100ms&lock_delay=1s";
    let dying =
        block_on(Polylatch::connect(&format!("{}?{options}", agent.url_through(proxy.address())))).unwrap();
    let other = block_on(Polylatch::connect(&format!("{}?{options}", agent.url()))).unwrap();
    let guard = block_on(dying.lock("a").lease(millis(2_000)).acquire()).unwrap();
    let cut = Instant::now();
    proxy.set_hold(Hold::Stall);
    let lost = thread::spawn(move || (block_on(guard.lost()), Instant::now(), guard));
    let next = block_on(other.lock("a").wait(millis(30_000)).acquire()).unwrap();
    let entered = Instant::now();
    let (reason, told, guard) = lost.join().unwrap();
    assert_eq!(reason, LostReason::Expired, "by its own clock: nobody answers");
    assert!(told < entered, "the holder must know before the next one enters");
    assert!(told - cut <= millis(2_500), "{:?}", told - cut);
    // 2 × TTL + lock-delay + poll, and time for a busy machine.
    assert!(entered - cut < millis(2 * 2_000 + 1_000 + 1_000 + 4_000), "{:?}", entered - cut);
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn a_silent_agent_is_no_reason_to_believe_in_a_lock() {
    let agent = ConsulAgent::start();
    let url = format!("{}?prefix=silent&session_ttl_min=100ms&lock_delay=0s&timeout=500ms", agent.url());
    let client = block_on(Polylatch::connect(&url)).unwrap();
    for round in 0..3 {
        let guards: Vec<Guard> = (0..8)
            .map(|number| {
                let lock = client.lock(format!("{round}/{number}")).lease(millis(1_500));
                block_on(lock.wait(millis(15_000)).acquire()).unwrap()
            })
            .collect();
        agent.pause();
        for guard in &guards {
            // The latest deadline that the guard itself has told while it was held.
            let mut deadline = Instant::now() + guard.remaining();
            while guard.is_held() {
                deadline = deadline.max(Instant::now() + guard.remaining());
                thread::sleep(millis(1));
            }
            assert_eq!(block_on(guard.lost()), LostReason::Expired);
            assert!(Instant::now() <= deadline + millis(500));
        }
        agent.resume();
    }
}

#[test]
fn a_health_check_ends_sessions_only_where_it_was_asked_to() {
    let agent = ConsulAgent::start();
    let check = r#"{"Name":"flap","ID":"flap","TTL":"60m","Status":"passing"}"#;
    assert!(agent.ask("PUT", "/v1/agent/check/register", check).is_ok());
    let connect = |options: &str| {
        let url = format!("{}?prefix=flap&session_ttl_min=100ms&lock_delay=15s&{options}", agent.url());
        block_on(Polylatch::connect(&url)).unwrap()
    };
    let (with, without) = (connect("checks=flap"), connect(""));
    let watched = block_on(with.lock("watched").acquire()).unwrap();
    let steady = block_on(without.lock("steady").acquire()).unwrap();
    assert!(agent.ask("PUT", "/v1/agent/check/fail/flap", "").is_ok());
    assert_eq!(block_on(watched.lost()), LostReason::SessionEnded);
    steady.check().unwrap();
    // While the check is critical, no session can be made with it.
    let error = block_on(with.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected);
    assert!(error.to_string().contains("checks="), "{error}");
    assert!(agent.ask("PUT", "/v1/agent/check/pass/flap", "").is_ok());
    assert!(block_on(with.lock("b").try_acquire()).unwrap().is_some());
}

#[test]
fn a_key_can_be_written_only_while_the_lock_is_held() {
    let client = connect("guarded", "lock_delay=0s");
    let guard = block_on(client.lock("stock").acquire()).unwrap();
    let key = guarded::lock_key("guarded", "stock").unwrap();
    let write = |token, value: &[u8]| {
        let body = guarded::conditional_put(&key, token, "data/stock", value);
        let answer = AGENT.ask("PUT", "/v1/txn", &body);
        guarded::outcome(answer.status, &answer.body)
    };
    write(guard.fencing_token(), b"150").unwrap();
    block_on(guard.release()).unwrap();
    assert_eq!(write(guard.fencing_token(), b"0").unwrap_err().kind(), ErrorKind::StaleToken);
    let next = block_on(client.lock("stock").acquire()).unwrap();
    assert_eq!(write(guard.fencing_token(), b"0").unwrap_err().kind(), ErrorKind::StaleToken);
    write(next.fencing_token(), b"149").unwrap();
    assert_eq!(AGENT.ask("GET", "/v1/kv/data/stock?raw", "").body, "149");
}

#[test]
fn a_deleted_key_is_a_loss_at_the_next_renewal() {
    let client = connect("deleted", "lock_delay=0s");
    let guard = block_on(client.lock("a").lease(millis(3_000)).acquire()).unwrap();
    AGENT.ask("DELETE", "/v1/kv/deleted/a/.lock", "");
    let started = Instant::now();
    assert_eq!(block_on(guard.lost()), LostReason::Superseded);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}
