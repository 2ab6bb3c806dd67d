//! The contract on a real ZooKeeper.

#![cfg(all(feature = "zookeeper", unix))]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::zookeeper::ZooKeeper;

/// One server for all cases; each has a prefix of its own.
pub static SERVER: LazyLock<ZooKeeper> = LazyLock::new(ZooKeeper::start);

pub struct Store {
    pub prefix: String,
}

impl crate::contract::Store for Store {
    fn url(&self, options: &str) -> String {
        format!("{}?prefix={}&tick=200ms&{options}", SERVER.url(), self.prefix)
    }

    // No session is shorter than two ticks.
    fn stretch(&self) -> u32 {
        3
    }

    fn tells_renewals(&self) -> bool {
        false
    }

    // A waiter is queued as long as its session lives.
    fn waiters_fall_silent(&self) -> bool {
        false
    }
}

pub fn fresh() -> Store {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Store { prefix: format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)) }
}

crate::contract!(fresh);
