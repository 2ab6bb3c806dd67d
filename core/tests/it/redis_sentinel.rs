//! A Redis master that Sentinels name: promotions, and what is wrong with a URL.

#![cfg(all(feature = "redis", unix))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually_within};
use polylatch::inspect::{CheckSeverity, Holds, Query};
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::proxy::Hold;
use polylatch_test_services::redis::{RedisServer, Service, Tls};

const SOON: Duration = Duration::from_secs(20);
const QUICK: &str = "poll=100ms&provisional=600ms";

fn connect(url: &str) -> Result<Polylatch, Error> {
    block_on(Polylatch::connect(url))
}

fn client(service: &Service, options: &str) -> Polylatch {
    connect(&format!("{}?{QUICK}&{options}", service.url())).unwrap_or_else(|error| panic!("{error:?}"))
}

#[track_caller]
fn refused(url: &str, kind: ErrorKind, parts: &[&str]) {
    let error = connect(url).expect_err(url);
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[test]
fn a_promotion_is_followed_and_a_replicated_lock_is_kept() {
    let service = Service::with_replicas(1).start();
    let (holder, other) = (client(&service, "timeout=1500ms"), client(&service, "timeout=1500ms"));
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let waiting = other.lock("a").wait(SOON * 2);
    let waiter = thread::spawn(move || block_on(waiting.acquire()));
    eventually_within("the lock is replicated, and somebody waits", SOON, || {
        let replica = &service.servers[1];
        guard.renewals() > 1
            && replica.command(&["EXISTS", "polylatch:{a}:lock", "polylatch:{a}:line"]).int() == Some(2)
    });
    let before = service.primary();
    before.kill();
    let promoted = service.wait_for_promotion(before);
    let renewals = guard.renewals();
    eventually_within("the holder renews at the new master", SOON, || {
        guard.check().unwrap();
        guard.renewals() > renewals
    });
    guard.check().unwrap();
    assert!(promoted.command(&["GET", "polylatch:{a}:lock"]).text().is_some());
    block_on(guard.release()).unwrap();
    let next = waiter.join().unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // Pushes come from the new master, too.
    let waiting = holder.lock("a").wait(SOON);
    let waiter = thread::spawn(move || block_on(waiting.acquire()).map(|guard| guard.fencing_token()));
    eventually_within("the other waits", SOON, || {
        let query = Query { name: Some("a".into()), ..Query::default() };
        !block_on(other.inspect().list(&query)).unwrap().locks[0].waiters.is_empty()
    });
    block_on(next.release()).unwrap();
    assert!(waiter.join().unwrap().unwrap() > next.fencing_token());
}

#[test]
fn a_hung_master_is_left_when_the_sentinels_name_another() {
    let service = Service::with_replicas(1).start();
    let holder = client(&service, "lease=20s&timeout=15s");
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    eventually_within("it is replicated", SOON, || {
        guard.renewals() > 1 && service.servers[1].command(&["EXISTS", "polylatch:{a}:lock"]).int() == Some(1)
    });
    let before = service.primary();
    before.pause();
    // Asked of a server that does not answer; the time limit of a request is far longer than a promotion.
    let asked = Instant::now();
    let waits = holder.lock("b").wait(SOON);
    let asking = thread::spawn(move || block_on(waits.acquire()).map(|guard| guard.fencing_token()));
    service.wait_for_promotion(before);
    asking.join().unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(14), "{:?}", asked.elapsed());
    guard.check().unwrap();
    // Back again, it is a replica before long, and nobody goes back to it.
    before.resume();
    block_on(block_on(holder.lock("c").wait(SOON).acquire()).unwrap().release()).unwrap();
    guard.check().unwrap();
}

#[test]
fn a_lock_that_a_lagging_replica_never_saw_is_lost_and_its_holder_is_notified() {
    let service = Service::with_replicas(1).start();
    let (holder, other) = (client(&service, "lease=4s"), client(&service, "lease=4s"));
    // Seen by the replica, for comparison.
    let early = block_on(holder.lock("early").acquire()).unwrap();
    eventually_within("it is replicated", SOON, || {
        service.servers[1].command(&["EXISTS", "polylatch:{early}:lock"]).int() == Some(1)
    });
    service.links[0].set_hold(Hold::Swallow);
    let guard = block_on(holder.lock("a").acquire()).unwrap();
    let before = service.primary();
    before.kill();
    let killed = Instant::now();
    service.wait_for_promotion(before);
    // The documented window: the new master knows nothing of the lock, so somebody else may have it.
    let second = block_on(other.lock("a").wait(SOON).acquire()).unwrap();
    assert!(second.fencing_token() > guard.fencing_token(), "the resource can tell who is late");
    block_on(guard.lost());
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
    assert!(guard.check().is_err());
    second.check().unwrap();
    drop(early);
}

#[test]
fn strict_grants_nothing_that_a_replica_does_not_have_and_waits_after_a_promotion() {
    let service =
        Service::with_replicas(1).config("min-replicas-to-write 1").config("min-replicas-max-lag 10").start();
    let strict =
        "guarantee=strict&ack=majority&max_lease=2s&lease=2s&provisional=600ms&poll=100ms&timeout=1500ms";
    let url = format!("{}?{strict}", service.url());
    let holder = connect(&url).unwrap();
    let guard = block_on(holder.lock("a").wait(SOON).acquire()).unwrap();
    block_on(guard.release()).unwrap();
    service.links[0].set_hold(Hold::Swallow);
    let error = block_on(holder.lock("b").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
    let before = service.primary();
    before.kill();
    let promoted = service.wait_for_promotion(before);
    // It has no replica itself, so it accepts no writes by the rule; an operator lifts that.
    promoted.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually_within("it grants nothing that no replica has", SOON, || {
        let error = block_on(holder.lock("b").try_acquire()).unwrap_err();
        error.to_string().contains("replicas that ack= asks for")
    });
    let asked = Instant::now();
    let _replica = RedisServer::builder().replica_of(promoted.address()).start();
    let guard = block_on(holder.lock("b").wait(SOON * 2).acquire()).unwrap();
    // What the old master may have renewed until it noticed that it was cut off, and its longest lease.
    assert!(asked.elapsed() > Duration::from_secs(10), "{:?}", asked.elapsed());
    block_on(guard.release()).unwrap();
}

#[test]
fn strict_wants_acknowledgement_and_a_master_that_stops_when_it_is_cut_off() {
    let service = Service::with_replicas(1).start();
    let url = format!("{}?guarantee=strict", service.url());
    refused(&url, ErrorKind::BackendRejected, &["add ack=majority", "set min-replicas-to-write 1"]);
}

#[test]
fn what_is_wrong_with_a_url_is_reported_with_the_way_out() {
    let service = Service::with_replicas(1).password("s3cret").sentinel_password("s3cret-too").start();
    let url = service.url();
    let rejected = ErrorKind::BackendRejected;
    refused(&url, rejected, &["wants a password", "sentinel_password_env="]);
    refused(
        &format!("{url}?sentinel_password=wrong"),
        rejected,
        &["Sentinel at", "refused the user name or password"],
    );
    let with = |login: &str| format!("{}?sentinel_password=s3cret-too", service.url_as(login));
    refused(&with(""), rejected, &["wants a password"]);
    refused(&with(":wrong@"), rejected, &["refused the user name or password"]);
    drop(connect(&with(":s3cret@")).unwrap());
    let other = with(":s3cret@").replace("/locks?", "/cache?");
    refused(&other, ErrorKind::InvalidConfig, &["watches no service \"cache\"", "it watches locks"]);

    let single = RedisServer::start();
    let url = format!("redis+sentinel://{}/locks", single.address());
    refused(&url, ErrorKind::InvalidConfig, &["is no Sentinel", "redis://"]);
    let address = single.address();
    single.stop();
    let url = format!("redis+sentinel://{address}/locks?timeout=1s");
    refused(
        &url,
        ErrorKind::BackendUnavailable,
        &["no Sentinel names the primary", &address.to_string(), "26379"],
    );
}

#[test]
fn sentinels_that_are_down_are_passed_over_and_an_examination_says_so() {
    let service = Service::with_replicas(1).start();
    let client = client(&service, "");
    let good = block_on(client.inspect().examine()).unwrap();
    let finding = good.finding("sentinels").expect("a finding about the Sentinels");
    assert_eq!(finding.severity, CheckSeverity::Ok, "{finding:?}");
    assert!(finding.detail.contains("3 of 3 answer (quorum 2)"), "{finding:?}");
    assert!(good.findings.iter().all(|check| !check.fix.contains("MASTER")), "{:?}", good.findings);
    service.sentinels[0].kill();
    service.sentinels[1].kill();
    let again = connect(&format!("{}?{QUICK}", service.url())).unwrap();
    block_on(block_on(again.lock("a").acquire()).unwrap().release()).unwrap();
    let bad = block_on(again.inspect().examine()).unwrap();
    let finding = bad.finding("sentinels").expect("a finding about the Sentinels");
    assert!(finding.severity.needs_action(), "{finding:?}");
    assert!(finding.title.contains("Too few Sentinels"), "{finding:?}");
    assert!(finding.detail.contains(&service.sentinels[0].address().to_string()), "{finding:?}");
}

#[test]
fn a_server_that_is_no_master_is_refused_although_a_sentinel_names_it() {
    let master = RedisServer::start();
    let replica = RedisServer::builder().replica_of(master.address()).start();
    let sentinel =
        RedisServer::builder().sentinel("locks", replica.address(), 1, Duration::from_secs(60)).start();
    refused(
        &format!("redis+sentinel://{}/locks?timeout=2s", sentinel.address()),
        ErrorKind::BackendUnavailable,
        &[&replica.address().to_string(), "it is a replica", "sentinel monitor"],
    );
}

#[test]
fn a_sentinel_keeps_no_locks() {
    let service = Service::with_replicas(1).start();
    let sentinel = service.sentinels[0].address();
    refused(
        &format!("redis://{sentinel}"),
        ErrorKind::InvalidConfig,
        &["is a Sentinel", "redis+sentinel://"],
    );
    let servers = [service.servers[0].address(), service.servers[1].address()];
    refused(
        &format!("redlock://{},{sentinel},{}", servers[0], servers[1]),
        ErrorKind::BackendRejected,
        &["is a Sentinel", "is a replica"],
    );
}

#[test]
fn sentinels_and_servers_speak_tls_and_a_promotion_is_followed_there() {
    let service =
        Service::with_replicas(1).tls(Tls::new()).password("s3cret").sentinel_password("s3cret-too").start();
    let ca = service.servers[0].tls().ca.display().to_string();
    let url = format!("{}?sentinel_password=s3cret-too&{QUICK}&timeout=3s", service.url());
    let client = connect(&format!("{url}&ca={ca}")).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    eventually_within("it is replicated", SOON, || {
        guard.renewals() > 1 && service.servers[1].command(&["EXISTS", "polylatch:{a}:lock"]).int() == Some(1)
    });
    let examined = block_on(client.inspect().examine()).unwrap();
    assert_eq!(examined.finding("encryption").unwrap().severity, CheckSeverity::Ok, "{examined:?}");
    let before = service.primary();
    before.kill();
    service.wait_for_promotion(before);
    let renewals = guard.renewals();
    eventually_within("the holder renews at the new master", SOON, || guard.renewals() > renewals);
    block_on(guard.release()).unwrap();

    // Who trusts another authority, or speaks plainly, learns so.
    let wrong = service.servers[0].tls().wrong_ca.display();
    refused(&format!("{url}&ca={wrong}"), ErrorKind::BackendRejected, &["certificate is not trusted"]);
    let plain = url.replace("rediss+sentinel", "redis+sentinel");
    refused(&plain, ErrorKind::BackendUnavailable, &["rediss+sentinel://"]);
}

#[test]
fn an_examination_says_what_a_promotion_may_forget() {
    let service =
        Service::with_replicas(1).config("min-replicas-to-write 1").config("min-replicas-max-lag 10").start();
    let promise = |options: &str| {
        let client = connect(&format!("{}?{options}", service.url())).unwrap();
        let examined = block_on(client.inspect().examine()).unwrap();
        let found = examined.promises.iter().find(|promise| promise.id == "exclusion-after-failover");
        let found = found.expect("it is always judged");
        (found.holds, found.because.clone())
    };
    assert_eq!(promise("").0, Holds::No);
    assert_eq!(promise("ack=majority").0, Holds::No);
    let strict = "guarantee=strict&ack=majority&max_lease=15s";
    let (holds, because) = promise(strict);
    assert_eq!(holds, Holds::Yes, "{because}");
    assert!(because.contains("12 s and max_lease=15s"), "{because}");
    service.servers[0].command(&["CONFIG", "SET", "min-replicas-max-lag", "30"]);
    let (holds, because) = promise(strict);
    assert_eq!(holds, Holds::No, "{because}");
    assert!(because.contains("min-replicas-max-lag above 10"), "{because}");
}
