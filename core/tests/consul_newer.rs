//! What newer servers and middleboxes answer, done by a proxy in front of a real agent.

#![cfg(all(feature = "consul", unix))]

#[path = "it/contract/mod.rs"]
mod contract;

use std::fmt::{Debug, Write};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use contract::{block_on, eventually, millis, seen};
use polylatch::inspect::CheckSeverity;
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::consul::{ConsulAgent, Fate, Interceptor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static AGENT: LazyLock<ConsulAgent> = LazyLock::new(ConsulAgent::start);

/// The warnings of all tests, one a line.
static WARNINGS: Mutex<String> = Mutex::new(String::new());

struct Recorder;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        writeln!(WARNINGS.lock().unwrap(), "{}", fields.0).unwrap();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The warnings of this kind that name the proxy.
fn warnings(event: &str, proxy: &Interceptor) -> usize {
    let place = proxy.address().to_string();
    WARNINGS.lock().unwrap().lines().filter(|line| line.contains(event) && line.contains(&place)).count()
}

const OPTIONS: &str = "session_ttl_min=100ms&lock_delay=0s";

fn through(proxy: &Interceptor, prefix: &str, options: &str) -> String {
    format!("{}?prefix={prefix}&{OPTIONS}&{options}", AGENT.url_through(proxy.address()))
}

/// How long a hand-off takes between two clients behind the proxy, at best of three.
fn hand_off(url: &str, name: &str) -> Duration {
    let clients = [(), ()].map(|()| block_on(Polylatch::connect(url)).unwrap());
    let turns = (0..3).map(|_| {
        let guard = block_on(clients[0].lock(name).wait(millis(20_000)).acquire()).unwrap();
        let lock = clients[1].lock(name).wait(millis(20_000));
        let waiter = thread::spawn(move || (block_on(lock.acquire()).unwrap(), Instant::now()));
        eventually("it waits", || seen(&clients[0], name).waiters.len() == 1);
        let released = Instant::now();
        block_on(guard.release()).unwrap();
        let (next, entered) = waiter.join().unwrap();
        block_on(next.release()).unwrap();
        entered - released
    });
    turns.min().unwrap()
}

#[test]
fn servers_that_refuse_colons_in_keys_still_push() {
    let proxy = Interceptor::with_strict_keys(&AGENT);
    // Long enough that only a message can be as fast.
    let took = hand_off(&through(&proxy, "strict-keys", "poll=5s&provisional=12s"), "a");
    assert!(took < millis(2_000), "no message came: {took:?}");
    let url = through(&proxy, "strict-keys", "");
    let (_, found) = block_on(Polylatch::builder().url(url).examine()).unwrap();
    for id in ["permissions", "push"] {
        assert_eq!(found.finding(id).unwrap().severity, CheckSeverity::Ok, "{found:?}");
    }
}

#[test]
fn names_and_prefixes_that_such_servers_refuse_still_lock() {
    let proxy = Interceptor::with_strict_keys(&AGENT);
    for (prefix, name) in [("strict-names", "a:b 100%"), ("strict:prefix", "a")] {
        let took = hand_off(&through(&proxy, prefix, "poll=200ms"), name);
        assert!(took < millis(3_000), "{prefix} {name}: {took:?}");
    }
    let url = through(&proxy, "strict:prefix", "");
    let (_, found) = block_on(Polylatch::builder().url(url).examine()).unwrap();
    assert_eq!(found.finding("permissions").unwrap().severity, CheckSeverity::Ok, "{found:?}");
    let push = found.finding("push").unwrap();
    assert_eq!(push.severity, CheckSeverity::Warning, "{found:?}");
    assert!(push.detail.contains("strict:prefix") && push.fix.contains("prefix="), "{push:?}");
}

#[test]
fn a_missing_permission_on_a_lock_called_rate_limit_is_told_at_once() {
    let denied = |target: &str| {
        format!(
            "Permission denied: token with AccessorID 'x' lacks permission 'key:write' on \\\"{target}\\\""
        )
    };
    let cases = [
        (403, denied("newer/rate-limit/.lock").replace('\\', "")),
        (500, format!("rpc error making call: {}", denied("newer/No cluster leader").replace('\\', ""))),
        (
            409,
            format!(
                r#"{{"Results":null,"Errors":[{{"OpIndex":1,"What":"{}"}}]}}"#,
                denied("newer/rate-limit/.lock")
            ),
        ),
    ];
    for (status, text) in cases {
        let proxy = Interceptor::start(&AGENT, move |_, target| match target.starts_with("/v1/txn") {
            true => Fate::Answer(status, text.clone()),
            false => Fate::Pass,
        });
        let client = block_on(Polylatch::connect(&through(&proxy, "newer", ""))).unwrap();
        let error = block_on(client.lock("rate-limit").wait(millis(20_000)).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{status}: {error}");
        assert!(error.to_string().contains("policy needs"), "{status}: {error}");
    }
}

#[test]
fn a_limit_of_requests_is_not_told_as_one_of_connections() {
    for (text, part) in [
        ("rate limit exceeded, try again later or against a different server", "rate of requests"),
        (
            "Your IP is issuing too many concurrent connections, please rate limit your calls\n",
            "http_max_conns",
        ),
    ] {
        let proxy = Interceptor::start(&AGENT, move |_, _| Fate::Answer(429, text.into()));
        let error = block_on(Polylatch::connect(&through(&proxy, "newer", ""))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BackendUnavailable, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn an_index_that_a_proxy_drops_makes_no_request_after_the_other() {
    let proxy = Interceptor::start(&AGENT, |_, target| match target.contains("index=") {
        true => Fate::LosesIndex,
        false => Fate::Pass,
    });
    let url = through(&proxy, "no-index", "poll=200ms");
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let before = proxy.requests();
    thread::sleep(millis(2_000));
    let requests = proxy.requests() - before;
    assert!(requests < 20, "{requests} requests in two seconds");
    block_on(guard.release()).unwrap();
    assert!(hand_off(&url, "b") < millis(3_000));
}

#[test]
fn another_datacenter_needs_a_node_of_it_and_the_error_says_so() {
    let east = ConsulAgent::builder().named("east-1").datacenter("east").start();
    AGENT.federate(&east);
    let url = |rest: &str| format!("{}?prefix=far&{OPTIONS}&dc=east{rest}", AGENT.url());
    let client = block_on(Polylatch::connect(&url(""))).unwrap();
    let error = block_on(client.lock("a").wait(millis(20_000)).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    for part in
        ["\"east\"", "add node=", "consul catalog nodes -datacenter=east", "an agent of that datacenter"]
    {
        assert!(error.to_string().contains(part), "{error}");
    }
    let (_, found) = block_on(Polylatch::builder().url(url("")).examine()).unwrap();
    let session = found.finding("session-ttl").unwrap();
    assert_eq!(session.severity, CheckSeverity::Problem);
    assert!(session.fix.contains("node=NAME"), "{session:?}");

    // The way out works.
    let client = block_on(Polylatch::connect(&url("&node=east-1"))).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    let there = block_on(Polylatch::connect(&format!("{}?prefix=far&{OPTIONS}", east.url()))).unwrap();
    assert!(block_on(there.lock("a").try_acquire()).unwrap().is_none());
    block_on(guard.release()).unwrap();
}

#[test]
fn what_keeps_messages_away_is_logged_once_a_client() {
    let _ = tracing::subscriber::set_global_default(Recorder);
    let strict = Interceptor::with_strict_keys(&AGENT);
    let lossy = Interceptor::start(&AGENT, |_, target| match target.contains("index=") {
        true => Fate::LosesIndex,
        false => Fate::Pass,
    });
    for (event, proxy, prefix, name) in
        [("key_refused", &strict, "logged:prefix", "a"), ("index_missing", &lossy, "logged", "b")]
    {
        hand_off(&through(proxy, prefix, "poll=200ms"), name);
        // Two clients wait for messages, again and again.
        eventually("both are told", || warnings(event, proxy) >= 2);
        thread::sleep(millis(1_500));
        assert_eq!(warnings(event, proxy), 2, "{}", WARNINGS.lock().unwrap());
    }
    let log = WARNINGS.lock().unwrap();
    assert!(log.contains("letters, digits and") && log.contains("X-Consul-Index"), "{log}");
}
