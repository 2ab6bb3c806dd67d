//! The contract on a Redis master that Sentinels name.

#![cfg(all(feature = "redis", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::redis::Service;

/// One service for all cases; each has a prefix of its own.
static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::with_replicas(1).start());

struct Sentinel(String);

impl crate::contract::Store for Sentinel {
    fn url(&self, options: &str) -> String {
        format!("{}?prefix={}&{options}", SERVICE.url(), self.0)
    }
}

fn fresh() -> Sentinel {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Sentinel(format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

crate::contract!(fresh);
