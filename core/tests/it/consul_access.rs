//! Who may do what, how to get there, and what is said when it does not work.

#![cfg(all(feature = "consul", unix))]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::contract::{block_on, eventually, millis};
use polylatch::inspect::{CheckSeverity, Holds};
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::consul::ConsulAgent;
use polylatch_test_services::proxy::Proxy;
use polylatch_test_services::tls::{Flaw, TestCa};

static GUARDED: LazyLock<ConsulAgent> = LazyLock::new(|| ConsulAgent::builder().access_control().start());

fn open(url: &str) -> polylatch::Result<Polylatch> {
    block_on(Polylatch::connect(url))
}

fn with_token(token: &str) -> String {
    format!("{}?prefix=locks&session_ttl_min=100ms&lock_delay=0s&token={token}", GUARDED.url())
}

/// Takes and gives back a lock of each kind, with a waiter, and looks.
fn everything(client: &Polylatch) -> polylatch::Result<()> {
    let guard = block_on(client.lock("a").acquire())?;
    let lock = client.lock("a").wait(millis(10_000));
    let waiter = std::thread::spawn(move || block_on(lock.acquire()));
    eventually("it waits", || crate::contract::seen(client, "a").waiters.len() == 1);
    block_on(guard.release())?;
    block_on(waiter.join().unwrap()?.release())?;
    block_on(block_on(client.rw_lock("b").read().acquire())?.release())?;
    block_on(block_on(client.semaphore("c", 2).acquire(2))?.release())
}

#[test]
fn the_documented_policy_is_enough() {
    let rules = "key_prefix \"locks/\" { policy = \"write\" } session \"test-node\" { policy = \"write\" }";
    let client = open(&with_token(&GUARDED.token("enough", rules))).unwrap();
    everything(&client).unwrap();
}

#[test]
fn too_little_permission_names_the_missing_rule() {
    let cases = [
        ("nothing", "", "key_prefix \"locks/\""),
        ("keys-only", "key_prefix \"locks/\" { policy = \"write\" }", "session \"NODE\""),
        ("sessions-only", "session_prefix \"\" { policy = \"write\" }", "key_prefix \"locks/\""),
        (
            "read-only",
            "key_prefix \"locks/\" { policy = \"read\" } session_prefix \"\" { policy = \"write\" }",
            "key_prefix \"locks/\" { policy = \"write\" }",
        ),
        (
            "elsewhere",
            "key_prefix \"other/\" { policy = \"write\" } session_prefix \"\" { policy = \"write\" }",
            "key_prefix \"locks/\"",
        ),
        (
            "other-node",
            "key_prefix \"locks/\" { policy = \"write\" } session \"elsewhere\" { policy = \"write\" }",
            "session \"NODE\"",
        ),
    ];
    for (name, rules, part) in cases {
        let token = GUARDED.token(name, rules);
        let result = open(&with_token(&token))
            .and_then(|client| block_on(client.lock("x").acquire()).map(|guard| (client, guard)));
        let error = result.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{name}: {error}");
        assert!(error.to_string().contains(part), "{name}: {error}");
        assert!(!error.to_string().contains(&token) && !format!("{error:?}").contains(&token), "{name}");
    }
}

#[test]
fn a_reader_may_look_but_not_take() {
    let writer = open(&with_token(&GUARDED.token(
        "writer",
        "key_prefix \"locks/\" { policy = \"write\" } session_prefix \"\" { policy = \"write\" }",
    )))
    .unwrap();
    let _guard = block_on(writer.lock("seen").acquire()).unwrap();
    let reader =
        open(&with_token(&GUARDED.token("reader", "key_prefix \"locks/\" { policy = \"read\" }"))).unwrap();
    let view = crate::contract::seen(&reader, "seen");
    assert_eq!(view.holders[0].client.as_ref(), Some(writer.id()));
    // Session details need a right of their own; without it they are left out.
    assert_eq!(view.holders[0].details.len(), 1);
    assert_eq!(block_on(reader.lock("x").try_acquire()).unwrap_err().kind(), ErrorKind::BackendRejected);
}

#[test]
fn a_wrong_token_is_reported_as_such() {
    let error = open(&with_token("00000000-1111-2222-3333-444444444444")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected);
    assert!(error.to_string().contains("no such ACL token"), "{error}");
    let error = open(&format!("{}?prefix=locks", GUARDED.url())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
}

#[test]
fn doctor_says_what_a_token_lacks() {
    let token = GUARDED.token("keys-for-doctor", "key_prefix \"locks/\" { policy = \"write\" }");
    let url = with_token(&token);
    let (_, found) = block_on(Polylatch::builder().url(url).examine()).unwrap();
    assert_eq!(found.finding("session-ttl").unwrap().severity, CheckSeverity::Problem, "{found:?}");
    assert_eq!(found.finding("agent").unwrap().severity, CheckSeverity::Unknown);
    assert!(found.promises.iter().all(|promise| promise.holds == Holds::No));
}

#[test]
fn doctor_tries_what_locks_need_and_leaves_nothing() {
    let agent = ConsulAgent::start();
    let url = format!("{}?prefix=locks", agent.url());
    let (shown, found) = block_on(Polylatch::builder().url(url).examine()).unwrap();
    assert_eq!(shown, agent.url());
    assert!(found.version.as_deref().is_some_and(|version| version.starts_with("Consul 1.")), "{found:?}");
    for (id, severity) in [
        ("leader", CheckSeverity::Ok),
        ("session-ttl", CheckSeverity::Ok),
        ("permissions", CheckSeverity::Ok),
        ("lock-delay", CheckSeverity::Ok),
        ("push", CheckSeverity::Ok),
        ("access-control", CheckSeverity::Notice),
        ("storage", CheckSeverity::Warning),
    ] {
        assert_eq!(found.finding(id).unwrap().severity, severity, "{id}: {found:?}");
    }
    assert_eq!(agent.ask("GET", "/v1/kv/?recurse", "").status, 404, "keys are left");
    assert!(!agent.ask("GET", "/v1/session/list", "").body.contains("doctor"));
}

#[test]
fn tls_with_a_client_certificate_and_what_is_said_without() {
    let ca = Arc::new(TestCa::new());
    let agent = ConsulAgent::builder().tls(&ca, Flaw::None).needs_client_certificate().start();
    let files = agent.tls();
    let url = |ca: &std::path::Path, rest: &str| format!("{}?ca={}{rest}", agent.tls_url(), ca.display());
    let own = format!("&cert={}&key={}", files.client_cert.display(), files.client_key.display());
    let client = open(&url(&files.ca, &own)).unwrap();
    let guard = block_on(client.lock("a").acquire()).unwrap();
    block_on(guard.release()).unwrap();

    let foreign =
        format!("&cert={}&key={}", files.foreign_client_cert.display(), files.foreign_client_key.display());
    let expired =
        format!("&cert={}&key={}", files.expired_client_cert.display(), files.expired_client_key.display());
    for (what, url) in [
        ("wrong CA", url(&files.wrong_ca, &own)),
        ("no client certificate", url(&files.ca, "")),
        ("foreign client certificate", url(&files.ca, &foreign)),
        ("expired client certificate", url(&files.ca, &expired)),
        ("plain port", agent.tls_url().replace(&https_port(&agent), &agent.address().port().to_string())),
        ("HTTP to the HTTPS port", format!("consul://localhost:{}", https_port(&agent))),
    ] {
        let error = open(&url).expect_err(what);
        assert!(
            matches!(error.kind(), ErrorKind::BackendRejected | ErrorKind::BackendUnavailable),
            "{what}: {error}"
        );
    }
    let error = open(&format!("consul://localhost:{}", https_port(&agent))).unwrap_err();
    assert!(error.to_string().contains("consul+https"), "{error}");
    let error = open(&url(std::path::Path::new("/no/such/file"), &own)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

fn https_port(agent: &ConsulAgent) -> String {
    agent.tls_url().rsplit(':').next().unwrap_or_default().to_owned()
}

#[test]
fn a_unix_socket_leads_to_the_same_locks() {
    let agent = ConsulAgent::start();
    let over_socket = open(&agent.unix_url()).unwrap();
    let over_tcp = open(&agent.url()).unwrap();
    let _guard = block_on(over_socket.lock("a").acquire()).unwrap();
    assert!(block_on(over_tcp.lock("a").try_acquire()).unwrap().is_none());
}

#[test]
fn bad_input_is_reported_with_the_way_out() {
    let agent = ConsulAgent::builder().session_ttl_min(Duration::from_secs(10)).start();
    let url = agent.url();
    let at_connect = [
        ("?ns=team", ErrorKind::BackendRejected, "leave ns="),
        ("?dc=nowhere", ErrorKind::BackendRejected, "check dc="),
        ("?lease=9s", ErrorKind::InvalidConfig, "shorter than 10s"),
        ("?lock_delay=2m", ErrorKind::InvalidConfig, "between 0ns and 60s"),
    ];
    for (options, kind, part) in at_connect {
        let error = open(&format!("{url}{options}")).expect_err(options);
        assert_eq!(error.kind(), kind, "{options}: {error}");
        assert!(error.to_string().contains(part), "{options}: {error}");
    }
    let at_acquire = [
        ("?node=nobody", "node="),
        ("?checks=nothing", "checks="),
        ("?session_ttl_min=1s&lease=2s", "session_ttl_min"),
    ];
    for (options, part) in at_acquire {
        let client = open(&format!("{url}{options}")).unwrap();
        let error = block_on(client.lock("a").acquire()).expect_err(options);
        assert_eq!(error.kind(), ErrorKind::BackendRejected, "{options}: {error}");
        assert!(error.to_string().contains(part), "{options}: {error}");
    }
    let client = open(&url).unwrap();
    for lease in [millis(9_999), Duration::from_secs(24 * 3600 + 1)] {
        let error = block_on(client.lock("a").lease(lease).acquire()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("must be between 10s and 86400s"), "{error}");
    }
    let guard = block_on(client.lock("a").lease(Duration::from_secs(10)).acquire()).unwrap();
    block_on(guard.release()).unwrap();
}

#[test]
fn what_is_no_agent_or_no_server_is_reported_as_such() {
    let nobody = Proxy::start_raw(GUARDED.address());
    nobody.set_refuse(true);
    let error = open(&format!("consul://{}", nobody.address())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendUnavailable);
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in web.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    let error = open(&format!("consul://{address}")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BackendRejected);
    assert!(error.to_string().contains("no Consul agent"), "{error}");
}
