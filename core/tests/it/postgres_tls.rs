//! TLS to a real PostgreSQL server: with TLS the certificate is always verified, by issuer and by name.

#![cfg(all(feature = "postgres", unix))]

use crate::contract::block_on;
use polylatch::{Effect, Error, ErrorKind, Polylatch};
use polylatch_test_services::postgres::{CERTIFIED, PostgresServer};
use polylatch_test_services::tls::Flaw;

fn url(server: &PostgresServer, role: &str, options: &str) -> String {
    format!("{}?ca={}&{options}", server.url_of(role), server.tls().ca.display())
}

#[track_caller]
fn refused(url: &str, part: &str) -> Error {
    let error = block_on(Polylatch::connect(url)).expect_err("it should be refused");
    assert_eq!(
        (error.kind(), error.effect()),
        (ErrorKind::BackendRejected, Effect::None),
        "{url}: {error:?}"
    );
    assert!(error.to_string().contains(part), "{url} should be told {part:?}: {error}");
    error
}

#[test]
fn locks_and_notifications_go_over_tls_and_a_server_that_wants_it_takes_nothing_else() {
    let server = PostgresServer::with_tls(Flaw::None);
    for mode in ["require", "verify-full", "prefer"] {
        let client =
            block_on(Polylatch::connect(&url(&server, "postgres", &format!("sslmode={mode}")))).unwrap();
        let guard = block_on(client.lock("a").acquire()).unwrap();
        crate::contract::eventually("both connections are encrypted", || {
            server.sql(
                "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE application_name = 'polylatch'",
            ) == "2|2"
        });
        block_on(guard.release()).unwrap();
        block_on(client.close());
        crate::contract::eventually("it has gone", || {
            server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'polylatch'") == "0"
        });
    }
    // Without TLS: the default for this host.
    refused(&server.url(), "sslmode=require");
}

#[test]
fn a_certificate_of_another_authority_or_name_is_refused() {
    let right = PostgresServer::with_tls(Flaw::None);
    let other = format!("{}?sslmode=require&ca={}", right.url_of("postgres"), right.tls().wrong_ca.display());
    refused(&other, "certificate is not trusted");
    // Who prefers TLS does not fall back to none.
    refused(&other.replace("sslmode=require", "sslmode=prefer"), "certificate is not trusted");
    for flaw in [Flaw::WrongName, Flaw::NameOnly, Flaw::Expired] {
        let server = PostgresServer::with_tls(flaw);
        let options = "sslmode=require";
        refused(&url(&server, "postgres", options), "certificate is not trusted");
        if flaw == Flaw::NameOnly {
            let named = url(&server, "postgres", options).replace("127.0.0.1", "localhost");
            block_on(Polylatch::connect(&named)).unwrap();
        }
    }
}

#[test]
fn a_client_certificate_is_given_where_one_is_wanted() {
    let server = PostgresServer::with_tls(Flaw::None);
    let files = server.tls();
    let with = |cert: &std::path::Path, key: &std::path::Path| {
        url(&server, CERTIFIED, &format!("sslmode=require&cert={}&key={}", cert.display(), key.display()))
    };
    let client = block_on(Polylatch::connect(&with(&files.client_cert, &files.client_key))).unwrap();
    block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
    refused(&url(&server, CERTIFIED, "sslmode=require"), "cert=");
    refused(&with(&files.foreign_client_cert, &files.foreign_client_key), "cert=");
}
