//! The contract on a real MariaDB server.

#![cfg(all(feature = "mysql", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::mariadb::MariadbServer;

/// One server for all cases; each has a database of its own.
pub static SERVER: LazyLock<MariadbServer> = LazyLock::new(MariadbServer::start);

pub struct Mariadb {
    pub database: String,
}

impl crate::contract::Store for Mariadb {
    fn url(&self, options: &str) -> String {
        format!("{}?{options}", SERVER.url_of("root", &self.database))
    }
}

pub fn fresh() -> Mariadb {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let database = format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    SERVER.sql(&format!("CREATE DATABASE {database}"));
    Mariadb { database }
}

crate::contract!(fresh);
