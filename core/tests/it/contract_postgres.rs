//! The contract on a real PostgreSQL server.

#![cfg(all(feature = "postgres", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::postgres::PostgresServer;

/// One server for all cases; each has a schema of its own.
pub static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

pub struct Postgres {
    pub schema: String,
    options: &'static str,
}

impl crate::contract::Store for Postgres {
    fn url(&self, options: &str) -> String {
        format!("{}?schema={}&{}&{options}", SERVER.url(), self.schema, self.options)
    }
}

pub fn fresh(options: &'static str) -> Postgres {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Postgres { schema: format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed)), options }
}

crate::contract!(|| fresh("wake=notify"));

/// Where no notification arrives, as behind a pooler, waiters find their grants by asking.
#[test]
fn without_notifications_waiters_enter_in_order() {
    crate::contract::cases_wait::waiters_enter_in_the_order_in_which_they_came(&fresh("wake=poll"));
}

#[test]
fn without_notifications_a_break_is_found_by_the_next_renewal() {
    crate::contract::cases_inspect::a_broken_lease_goes_to_the_next_and_its_holder_is_notified(&fresh(
        "wake=poll",
    ));
}
