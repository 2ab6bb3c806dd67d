//! The contract on the store inside this process.

use std::sync::atomic::{AtomicU64, Ordering};

struct Memory(String);

impl crate::contract::Store for Memory {
    fn url(&self, options: &str) -> String {
        format!("memory:{}?{options}", self.0)
    }
}

fn fresh() -> Memory {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Memory(format!("contract-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

crate::contract!(fresh);
