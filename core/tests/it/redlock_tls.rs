//! Independent nodes that all speak TLS, each with credentials of its own.

#![cfg(all(feature = "redis", unix))]

use pollster::block_on;
use polylatch::{Error, ErrorKind, Polylatch};
use polylatch_test_services::redis::{RedisServer, Tls};

/// Three nodes with certificates of one authority; two want a password of their own, one a user.
struct Nodes {
    servers: [RedisServer; 3],
    ca: String,
}

impl Nodes {
    fn start(tls: &Tls) -> Self {
        let server = || RedisServer::builder().tls(tls.clone());
        let servers = [
            server().password("canary-one").start(),
            server().password("canary-two").start(),
            server().acl_user("alice on >canary-three ~* &* +@all").start(),
        ];
        let ca = servers[0].tls().ca.display().to_string();
        Self { servers, ca }
    }

    fn url(&self, logins: [&str; 3], options: &str) -> String {
        let places = logins.iter().zip(&self.servers);
        let places: Vec<_> = places.map(|(login, server)| format!("{login}@{}", server.address())).collect();
        format!("redlocks://{}?ca={}&timeout=3s&{options}", places.join(","), self.ca)
    }

    fn held(&self, name: &str) -> usize {
        let key = format!("polylatch:{{{name}}}:lock");
        self.servers.iter().filter(|server| server.command(&["EXISTS", &key]).int() == Some(1)).count()
    }
}

const RIGHT: [&str; 3] = [":canary-one", ":canary-two", "alice:canary-three"];

fn refused(url: &str) -> Error {
    let error = block_on(Polylatch::connect(url)).expect_err("it should be refused");
    assert!(!format!("{error:?} {error}").contains("canary"), "{error}");
    error
}

#[test]
fn locks_are_acquired_over_tls_with_the_credentials_of_each_node() {
    let nodes = Nodes::start(&Tls::new());
    let client = block_on(Polylatch::connect(&nodes.url(RIGHT, ""))).unwrap();
    assert!(client.url_for_display().starts_with("redlocks://"), "{}", client.url_for_display());
    assert!(!client.url_for_display().contains("canary") && !format!("{client:?}").contains("canary"));
    let guard = block_on(client.lock("a").acquire()).unwrap();
    polylatch_test_services::wait_until("all nodes have it", std::time::Duration::from_secs(10), || {
        nodes.held("a") == 3
    });
    let other = block_on(Polylatch::connect(&nodes.url(RIGHT, ""))).unwrap();
    assert!(block_on(other.lock("a").try_acquire()).unwrap().is_none());
    let first = guard.fencing_token();
    block_on(guard.release()).unwrap();
    let next = block_on(other.lock("a").acquire()).unwrap();
    assert!(next.fencing_token() > first);
    block_on(next.release()).unwrap();
}

#[test]
fn a_majority_with_wrong_passwords_or_another_authority_is_refused() {
    let nodes = Nodes::start(&Tls::new());
    let error = refused(&nodes.url([":canary-one", ":canary-one", "alice:canary-one"], ""));
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    assert!(error.to_string().contains("refused the user name or password"), "{error}");
    let wrong = nodes.servers[0].tls().wrong_ca.display().to_string();
    let error = refused(&nodes.url(RIGHT, "").replace(&nodes.ca, &wrong));
    assert_eq!(error.kind(), ErrorKind::BackendRejected, "{error}");
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
    // Plain text where TLS is spoken.
    let plain =
        nodes.url(RIGHT, "").replace("redlocks://", "redlock://").replace(&format!("ca={}&", nodes.ca), "");
    assert_eq!(refused(&plain).kind(), ErrorKind::QuorumUnreachable);
}

#[test]
fn nodes_that_want_client_certificates_get_them() {
    let nodes = Nodes::start(&Tls::new().require_client_cert());
    let files = nodes.servers[0].tls();
    let right = format!("cert={}&key={}", files.client_cert.display(), files.client_key.display());
    let client = block_on(Polylatch::connect(&nodes.url(RIGHT, &right))).unwrap();
    block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
    let error = refused(&nodes.url(RIGHT, ""));
    assert!(error.to_string().contains("cert="), "{error}");
    let foreign =
        format!("cert={}&key={}", files.foreign_client_cert.display(), files.foreign_client_key.display());
    let error = refused(&nodes.url(RIGHT, &foreign));
    assert!(matches!(error.kind(), ErrorKind::BackendRejected | ErrorKind::QuorumUnreachable), "{error}");
}
