//! The contract on three real Redis servers that decide by majority.

#![cfg(all(feature = "redis", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::redis::RedisServer;

/// Three servers for all cases; each has a prefix of its own.
static SERVERS: LazyLock<[RedisServer; 3]> = LazyLock::new(|| [(); 3].map(|()| RedisServer::start()));

struct Redlock(String);

impl crate::contract::Store for Redlock {
    fn url(&self, options: &str) -> String {
        let places: Vec<_> = SERVERS.iter().map(|server| server.address().to_string()).collect();
        format!("redlock://{}?prefix={}&{options}", places.join(","), self.0)
    }
}

fn fresh() -> Redlock {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Redlock(format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

crate::contract!(fresh);
