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

#[tokio::test]
async fn a_dropped_guard_is_released_on_the_spot() {
    let url = crate::contract::Store::url(&fresh(), "");
    let one = polylatch::Polylatch::connect(&url).await.unwrap();
    let other = polylatch::Polylatch::connect(&url).await.unwrap();
    let guards = [one.lock("spot"), other.lock("spot")].into_iter().cycle().take(1_000);
    for lock in guards {
        drop(lock.try_acquire().await.unwrap().expect("the guard before it is gone"));
    }
}
