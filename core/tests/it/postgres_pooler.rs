//! Locks by way of PgBouncer in transaction mode: every transaction may have another connection to the server. Where no
//! PgBouncer is installed these tests say so and end.

#![cfg(all(feature = "postgres", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contract::{Store, block_on, cases_family, cases_inspect, cases_lease, cases_wait};
use crate::contract_postgres::SERVER;
use crate::database_tables::refused;
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::netns;
use polylatch_test_services::pgbouncer::PgBouncer;
use polylatch_test_services::postgres::PostgresServer;

static POOLER: LazyLock<Option<PgBouncer>> = LazyLock::new(|| {
    let pooler = PgBouncer::start(&SERVER);
    if pooler.is_none() {
        netns::left_out("PostgreSQL by way of PgBouncer", "pgbouncer is not installed");
    }
    pooler
});

struct Pooled(String);

impl Store for Pooled {
    fn url(&self, options: &str) -> String {
        format!("{}&{options}", self.0)
    }
}

/// A schema of its own, by way of the pooler.
fn fresh(options: &str) -> Option<Pooled> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let pooler = POOLER.as_ref()?;
    Some(Pooled(format!("{}?schema=pooled_{}&{options}", pooler.url(), NEXT.fetch_add(1, Ordering::Relaxed))))
}

/// One that asks for notifications anyway, which do not arrive, and one that does not.
fn both(case: impl Fn(&Pooled)) {
    for options in ["wake=notify&poll=200ms", "wake=poll&poll=200ms"] {
        if let Some(store) = fresh(options) {
            case(&store);
        }
    }
}

#[test]
fn waiters_enter_in_order() {
    both(cases_wait::waiters_enter_in_the_order_in_which_they_came);
}

#[test]
fn two_holders_never_meet_under_load() {
    both(cases_wait::two_holders_never_meet_under_load);
}

#[test]
fn many_leases_are_renewed_together() {
    both(cases_lease::many_leases_are_renewed_together);
}

#[test]
fn readers_never_meet_a_writer_under_load() {
    both(cases_family::readers_never_meet_a_writer_under_load);
}

#[test]
fn a_broken_lease_goes_to_the_next_and_its_holder_is_notified() {
    both(cases_inspect::a_broken_lease_goes_to_the_next_and_its_holder_is_notified);
}

/// The next transaction may have another connection to the server, which knows nothing of what was prepared.
#[test]
fn no_statement_is_prepared() {
    let server = PostgresServer::with(&["log_statement=all", "log_destination=stderr"]);
    let Some(pooler) = PgBouncer::start(&server) else { return };
    let client = block_on(Polylatch::connect(&pooler.url())).unwrap();
    for _ in 0..6 {
        block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
    }
    let log = server.log();
    let executed: Vec<_> = log.lines().filter(|line| line.contains("execute ")).collect();
    assert!(executed.len() >= 12, "{executed:#?}");
    assert!(executed.iter().all(|line| line.contains("<unnamed>")), "{executed:#?}");
}

/// A session lock would be another client's with the next transaction.
#[test]
fn session_mode_is_refused() {
    let Some(pooler) = POOLER.as_ref() else { return };
    let url = format!("{}?schema=pooled_session&mode=session", pooler.url());
    for _ in 0..5 {
        refused(&url, ErrorKind::BackendRejected, "a pooler in front of PostgreSQL");
    }
    let made = "SELECT count(*) FROM pg_namespace WHERE nspname = 'pooled_session'";
    assert_eq!(SERVER.sql(made), "0", "nothing was made");
}

#[test]
fn doctor_says_whether_notifications_arrive() {
    let Some(store) = fresh("") else { return };
    let finding = |url: String| {
        let (_, report) = block_on(Polylatch::builder().url(url).examine()).unwrap();
        report.finding("notifications").map(|check| check.title.clone())
    };
    assert_eq!(finding(store.url("")).as_deref(), Some("Notifications do not arrive"));
    assert_eq!(finding(format!("{}?schema=pooled_0", SERVER.url())).as_deref(), Some("Notifications arrive"));
    assert_eq!(finding(store.url("wake=poll")), None, "none are asked for");
}
