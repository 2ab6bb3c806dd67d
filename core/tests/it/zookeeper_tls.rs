//! TLS towards a real ZooKeeper, which requires certificates of its clients.

#![cfg(all(feature = "zookeeper", unix))]

use std::thread;

use crate::contract::{block_on, eventually, millis, seen};
use crate::zookeeper_faults::connect;
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::tls::{Flaw, TestCa};
use polylatch_test_services::zookeeper::ZooKeeper;

fn refused(url: &str, kind: ErrorKind, part: &str) {
    let error = block_on(Polylatch::connect(url)).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn tls_is_verified_and_the_wrong_scheme_is_told() {
    let server = ZooKeeper::start_with_tls(&TestCa::new(), Flaw::None);
    let (url, files) = server.tls();
    // The first handshakes of a Java machine take long.
    let own = format!(
        "timeout=20s&tick=200ms&cert={}&key={}",
        files.client_cert.display(),
        files.client_key.display()
    );
    let client = connect(&format!("{url}?ca={}&{own}", files.ca.display()));
    let guard = block_on(client.lock("a").lease(millis(3_000)).acquire()).unwrap();
    let renewals = guard.renewals();
    eventually("it is renewed", || guard.renewals() > renewals);
    // The same node by the port without TLS.
    let plain = connect(&format!("{}?tick=200ms", server.url()));
    let lock = plain.lock("a").wait(millis(30_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&client, "a").waiters.len() == 1);
    block_on(guard.release()).unwrap();
    waiter.join().unwrap().check().unwrap();

    let report = block_on(client.inspect().examine()).unwrap();
    assert!(report.finding("encryption").unwrap().detail.contains("verified"), "{report:#?}");

    let rejected = ErrorKind::BackendRejected;
    refused(&format!("{url}?ca={}&{own}", files.wrong_ca.display()), rejected, "not trusted");
    // The system's authorities, if it has any, do not know the test's.
    assert!(block_on(Polylatch::connect(&format!("{url}?{own}"))).is_err());
    refused(&format!("{url}?timeout=20s&ca={}", files.ca.display()), rejected, "client certificate");
    let wrong = url.replace("zookeepers://", "zookeeper://");
    refused(&format!("{wrong}?tick=200ms"), ErrorKind::BackendUnavailable, "zookeepers://");
    let wrong = server.url().replace("zookeeper://127.0.0.1", "zookeepers://localhost");
    refused(
        &format!("{wrong}?ca={}", files.ca.display()),
        ErrorKind::BackendUnavailable,
        "is this its TLS port?",
    );
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let server = ZooKeeper::start_with_tls(&TestCa::new(), Flaw::WrongName);
    let (url, files) = server.tls();
    let url = format!("{url}?timeout=20s&ca={}", files.ca.display());
    refused(&url, ErrorKind::BackendRejected, "not trusted");
}
