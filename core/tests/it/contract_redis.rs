//! The contract on a real Redis server.

#![cfg(all(feature = "redis", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::redis::RedisServer;

/// One server for all cases; each has a prefix of its own.
static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

struct Redis(String);

impl crate::contract::Store for Redis {
    fn url(&self, options: &str) -> String {
        format!("{}?prefix={}&{options}", SERVER.url(), self.0)
    }
}

fn fresh() -> Redis {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Redis(format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

crate::contract!(fresh);
