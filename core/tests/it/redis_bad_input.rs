//! What a user can get wrong with a Redis store, and what the name of a lock can meet there: every
//! case is a typed error within the time limit, whose message names the way out.

#![cfg(all(feature = "redis", unix))]

use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis, seen};
use polylatch::{Effect, Error, ErrorKind, LostReason, Polylatch};
use polylatch_test_services::port::ReservedPort;
use polylatch_test_services::proxy::{Hold, Proxy};
use polylatch_test_services::redis::{RedisServer, Tls};
use polylatch_test_services::tls::Flaw;
use polylatch_test_services::{Reply, TempDir};

/// What the option `timeout` says in these tests, and how much later an error may come.
const LIMIT: Duration = Duration::from_millis(700);
const SLACK: Duration = Duration::from_millis(1_500);

/// Connects in vain; the error must come in time.
#[track_caller]
fn refused(url: &str) -> Error {
    let join = if url.contains('?') { '&' } else { '?' };
    let started = Instant::now();
    let result = block_on(Polylatch::connect(&format!("{url}{join}timeout=700ms")));
    let took = started.elapsed();
    let Err(error) = result else { panic!("{url} was accepted") };
    assert!(took < LIMIT + SLACK, "{url} took {took:?}: {error}");
    error
}

#[track_caller]
fn refused_as(url: &str, kind: ErrorKind, part: &str) {
    let error = refused(url);
    assert_eq!(error.kind(), kind, "{url}: {error:?}");
    assert!(error.to_string().contains(part), "{url} should be told {part:?}: {error}");
    assert_eq!(error.effect(), Effect::None, "{url}: {error:?}");
}

fn connect(url: &str) -> Polylatch {
    block_on(Polylatch::connect(url)).unwrap_or_else(|error| panic!("{url}: {error:?}"))
}

/// The same bytes as `DUMP` writes them, and the time to live: to see that a key was left alone.
fn contents(server: &RedisServer, key: &str) -> (Reply, bool) {
    (server.command(&["DUMP", key]), server.command(&["PTTL", key]) == Reply::Int(-1))
}

#[test]
fn a_password_for_a_server_without_one_is_reported_as_such() {
    let server = RedisServer::start();
    let url = format!("redis://:secret@{}", server.address());
    refused_as(&url, ErrorKind::BackendRejected, "a server without a password refuses any");
}

#[test]
fn a_wrong_or_missing_password_is_refused_with_the_place_to_look() {
    let server = RedisServer::builder().password("right").acl_user("alice on >secret ~* &* +@all").start();
    let place = server.address();
    let wrong =
        [format!("redis://:wrong@{place}"), server.url_as("alice", "right"), server.url_as("bob", "right")];
    for url in wrong {
        refused_as(&url, ErrorKind::BackendRejected, "refused the user name or password");
    }
    refused_as(&format!("redis://{place}"), ErrorKind::BackendRejected, "redis://:PASSWORD@HOST");
    // Without a password nobody can log in as alice, and nobody else was asked for.
    refused_as(&format!("redis://alice@{place}"), ErrorKind::InvalidConfig, "the user needs a password");
    for url in [server.url(), server.url_as("alice", "secret")] {
        assert!(block_on(connect(&url).lock("a").try_acquire()).unwrap().is_some());
    }
}

#[test]
fn a_place_where_no_server_listens_is_reported_at_once() {
    let port = ReservedPort::new().unwrap();
    let started = Instant::now();
    refused_as(
        &format!("redis://{}", port.address()),
        ErrorKind::BackendUnavailable,
        &port.address().to_string(),
    );
    assert!(started.elapsed() < millis(500), "{:?}", started.elapsed());
    let none = TempDir::new().join("none.sock");
    refused_as(&format!("redis+unix:{}", none.display()), ErrorKind::BackendUnavailable, "none.sock");
    refused_as("redis://no-such-host.invalid", ErrorKind::BackendUnavailable, "no-such-host.invalid");
}

#[test]
fn a_place_that_swallows_everything_costs_the_time_limit_and_no_more() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    proxy.set_hold(Hold::Swallow);
    let started = Instant::now();
    refused_as(&proxy.url(), ErrorKind::BackendUnavailable, "did not answer within 700ms");
    assert!(started.elapsed() >= LIMIT);
    // And it is no lasting harm.
    proxy.heal();
    connect(&proxy.url());
}

#[test]
fn plaintext_and_tls_ports_are_distinguished() {
    let plain = RedisServer::start();
    let tls = RedisServer::builder().tls(Tls::new()).start();
    let ca = tls.tls().ca.display();
    let url = format!("rediss://{}?ca={ca}", plain.address());
    let error = refused(&url);
    assert!(matches!(error.kind(), ErrorKind::BackendRejected | ErrorKind::BackendUnavailable), "{error:?}");
    assert!(error.to_string().contains("TLS"), "{error}");
    refused_as(&format!("redis://{}", tls.address()), ErrorKind::BackendUnavailable, "rediss://");
}

#[test]
fn a_server_certificate_that_cannot_be_trusted_is_refused() {
    let right = RedisServer::builder().tls(Tls::new()).start();
    let files = right.tls();
    refused_as(
        &format!("{}?ca={}", right.url(), files.wrong_ca.display()),
        ErrorKind::BackendRejected,
        "ca=",
    );
    connect(&format!("{}?ca={}", right.url(), files.ca.display()));
    for flaw in [Flaw::Expired, Flaw::NotYetValid, Flaw::WrongName, Flaw::NameOnly, Flaw::SelfSigned] {
        let server = RedisServer::builder().tls(Tls::new().server_cert(flaw)).start();
        let ca = server.tls().ca.display();
        refused_as(
            &format!("{}?ca={ca}", server.url()),
            ErrorKind::BackendRejected,
            "certificate is not trusted",
        );
        if flaw == Flaw::NameOnly {
            connect(&format!("rediss://localhost:{}?ca={ca}", server.port()));
        }
    }
}

#[test]
fn a_client_certificate_that_the_server_does_not_accept_is_refused() {
    let server = RedisServer::builder().tls(Tls::new().require_client_cert()).start();
    let files = server.tls();
    let url = format!("{}?ca={}", server.url(), files.ca.display());
    // The server's reason may be lost with the connection; the way out is named all the same.
    let refused_for_its_certificate = |url: &str| {
        let error = refused(url);
        assert!(
            matches!(error.kind(), ErrorKind::BackendRejected | ErrorKind::BackendUnavailable),
            "{error:?}"
        );
        assert!(error.to_string().contains("cert= and key="), "{error}");
    };
    refused_for_its_certificate(&url);
    let bad = [
        (&files.foreign_client_cert, &files.foreign_client_key),
        (&files.expired_client_cert, &files.expired_client_key),
    ];
    for (cert, key) in bad {
        refused_for_its_certificate(&format!("{url}&cert={}&key={}", cert.display(), key.display()));
    }
    let url = format!("{url}&cert={}&key={}", files.client_cert.display(), files.client_key.display());
    assert!(block_on(connect(&url).lock("a").try_acquire()).unwrap().is_some());
}

#[test]
fn files_that_are_missing_or_of_the_wrong_kind_are_named() {
    let server = RedisServer::builder().tls(Tls::new().require_client_cert()).start();
    let files = server.tls();
    let url = server.url();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let other_key = files.key.display();
    let empty = TempDir::new();
    let nothing = empty.join("empty.pem");
    std::fs::write(&nothing, "").unwrap();
    let nothing = nothing.display();
    for (query, part) in [
        ("ca=/no/such/file".to_owned(), "/no/such/file cannot be read"),
        (format!("ca={nothing}"), "has no certificate in PEM form"),
        (format!("ca={ca}&cert={cert}&key={cert}"), "has no private key in PEM form"),
        (format!("ca={ca}&cert={key}&key={key}"), "has no certificate in PEM form"),
        (format!("ca={ca}&cert={cert}&key={other_key}"), "no key that fits the certificate"),
        (format!("ca={ca}&cert={cert}"), "belong together"),
    ] {
        refused_as(&format!("{url}?{query}"), ErrorKind::InvalidConfig, part);
    }
}

#[test]
fn urls_that_say_nothing_we_know_are_refused_before_anything_is_sent() {
    for (url, part) in [
        ("localhost", "no scheme"),
        ("reddis://localhost", "scheme \"reddis\" is unknown; use one of"),
        ("redis://localhost?pol=1s", "knows no option \"pol\""),
        ("redis://localhost?poll=1s&poll=2s", "given twice"),
        ("redis://localhost?poll=1", "has no unit"),
        ("redis://localhost?poll=1h", "must be between"),
        ("redis://localhost?poll=1s&provisional=1s", "raise provisional or lower poll"),
        ("redis://localhost?push=maybe", "must be one of enter, hint"),
        ("redis://localhost?ack=0", "ack"),
        ("redis://localhost?lock_key=lock", "{name} exactly once"),
        ("redis://localhost?prefix=a%20b", "without spaces"),
        ("redis://local\nhost", "control character"),
        ("redis+unix:", "no path"),
    ] {
        refused_as(url, ErrorKind::InvalidConfig, part);
    }
}

#[test]
fn a_database_that_the_server_does_not_have_is_refused() {
    let server = RedisServer::start();
    refused_as(&format!("{}/99", server.url()), ErrorKind::BackendRejected, "refused the database");
}

#[test]
fn a_replica_is_refused() {
    let master = RedisServer::start();
    let replica = RedisServer::builder().replica_of(master.address()).start();
    refused_as(&replica.url(), ErrorKind::BackendRejected, "connect to the primary");
}

#[test]
fn foreign_data_under_the_key_of_a_lock_is_a_name_conflict_and_stays_as_it_is() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let make: [(&str, &[&str]); 5] = [
        ("text", &["SET", "polylatch:{text}:lock", "somebody's data"]),
        ("list", &["RPUSH", "polylatch:{list}:lock", "1", "2"]),
        ("hash", &["HSET", "polylatch:{hash}:lock", "owner", "me"]),
        ("zset", &["ZADD", "polylatch:{zset}:lock", "1", "a"]),
        ("stream", &["XADD", "polylatch:{stream}:lock", "1-1", "a", "b"]),
    ];
    for (name, command) in make {
        assert_eq!(server.command(command).error(), None);
        let key = format!("polylatch:{{{name}}}:lock");
        let before = contents(&server, &key);
        let waiting = client.lock(name).wait(millis(5_000));
        let started = Instant::now();
        for result in
            [block_on(client.lock(name).try_acquire()).map(drop), block_on(waiting.acquire()).map(drop)]
        {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NameConflict, "{name}: {error:?}");
            assert!(error.to_string().contains("use another name or another prefix"), "{error}");
        }
        assert!(started.elapsed() < millis(2_000), "nobody waits for data to go away");
        assert_eq!(seen(&client, name).mode, "foreign");
        assert_eq!(contents(&server, &key), before, "{name}");
        let line = format!("polylatch:{{{name}}}:line");
        eventually("nobody stands in line for it", || server.command(&["EXISTS", &line]) == Reply::Int(0));
    }
}

#[test]
fn another_librarys_lock_excludes_us_and_ours_excludes_it() {
    for template in ["", "&lock_key=redlock:{name}"] {
        let server = RedisServer::start();
        let client = connect(&format!("{}?poll=100ms&provisional=1s{template}", server.url()));
        let key = if template.is_empty() { "polylatch:{job}:lock" } else { "redlock:job" };
        let take = |px: &str| server.command(&["SET", key, "their-token", "NX", "PX", px]);

        assert!(take("600").is_ok());
        let started = Instant::now();
        assert!(block_on(client.lock("job").try_acquire()).unwrap().is_none());
        let timeout = block_on(client.lock("job").wait(millis(50)).acquire()).unwrap_err();
        assert!(timeout.to_string().contains("a program that is not Polylatch"), "{timeout}");
        let guard = block_on(client.lock("job").wait(millis(5_000)).acquire()).unwrap();
        let waited = started.elapsed();
        assert!(waited >= millis(550) && waited < millis(1_500), "{waited:?}");

        assert!(take("600").is_nil(), "we hold it");
        eventually("it was renewed", || guard.renewals() >= 1);
        assert!(take("600").is_nil(), "we hold it still");
        block_on(guard.release()).unwrap();
        assert!(take("600").is_ok(), "we gave it back");
    }
}

#[test]
fn a_key_taken_over_by_others_ends_our_lease_and_stays_as_it_is() {
    let server = RedisServer::start();
    let client = connect(&server.url());
    let others = block_on(client.lock("bystander").lease(millis(900)).acquire()).unwrap();
    let taken: [&[&str]; 2] = [
        &["SET", "polylatch:{a}:lock", "their-token", "PX", "60000"],
        &["RPUSH", "polylatch:{a}:lock", "their", "data"],
    ];
    for command in taken {
        let guard = block_on(client.lock("a").lease(millis(900)).acquire()).unwrap();
        server.command(&["DEL", "polylatch:{a}:lock"]);
        assert_eq!(server.command(command).error(), None);
        let dump = server.command(&["DUMP", "polylatch:{a}:lock"]);
        assert_eq!(block_on(guard.lost()), LostReason::Superseded);
        assert_eq!(block_on(guard.release()).unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(server.command(&["DUMP", "polylatch:{a}:lock"]), dump);
        server.command(&["DEL", "polylatch:{a}:lock"]);
    }
    let before = others.renewals();
    eventually("leases renewed in the same batch live on", || others.renewals() >= before + 2);
    others.check().unwrap();
}
