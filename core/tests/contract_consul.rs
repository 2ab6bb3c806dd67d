//! The contract on a real Consul agent.

#![cfg(all(feature = "consul", unix))]

mod contract;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use polylatch_test_services::consul::ConsulAgent;

/// One agent for all cases; each has a prefix of its own.
static AGENT: LazyLock<ConsulAgent> = LazyLock::new(ConsulAgent::start);

struct Consul {
    prefix: String,
    options: &'static str,
}

impl contract::Store for Consul {
    // The agent takes sessions of any length, so that the cases need not wait for long ones.
    fn url(&self, options: &str) -> String {
        let (url, Self { prefix, options: own }) = (AGENT.url(), self);
        format!("{url}?prefix={prefix}&session_ttl_min=100ms&lock_delay=0s&{own}&{options}")
    }

    fn stretch(&self) -> u32 {
        5
    }

    fn tells_renewals(&self) -> bool {
        false
    }

    // A waiter stands in line as long as its client's session lives.
    fn waiters_fall_silent(&self) -> bool {
        false
    }
}

fn fresh(options: &'static str) -> Consul {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Consul { prefix: format!("case-{}", NEXT.fetch_add(1, Ordering::Relaxed)), options }
}

contract!(|| fresh("session=shared"));

/// The same with a session for every acquisition.
mod sessions_per_lock {
    crate::contract!(|| super::fresh("session=per-lock"));
}
