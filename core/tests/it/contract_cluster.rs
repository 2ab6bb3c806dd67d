//! The contract on a Redis Cluster of three masters.

#![cfg(all(feature = "redis", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::redis::Cluster;

/// One cluster for all cases; each has a prefix of its own.
static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

struct Spread(String);

impl crate::contract::Store for Spread {
    fn url(&self, options: &str) -> String {
        format!("{}?prefix={}&{options}", CLUSTER.url(), self.0)
    }
}

fn fresh() -> Spread {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Spread(format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

crate::contract!(fresh);
