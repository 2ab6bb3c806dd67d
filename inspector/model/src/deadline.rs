//! Until when a waiter waits, in words.

use polylatch::inspect::WaiterView;

use super::text::span;

/// Returns `gives up in 12.0 s` as of `store_now_ms`, on the store's clock; empty if it waits without a limit, or if that is
/// not known.
pub fn gives_up(waiter: &WaiterView, store_now_ms: u64) -> String {
    match waiter.gives_up_at_ms.map(|at| at.saturating_sub(store_now_ms)) {
        None => String::new(),
        Some(0) => "gives up now".into(),
        Some(left) => format!("gives up in {}", span(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{clients, waiting, with};

    #[test]
    fn a_limit_counts_down_and_what_is_not_known_is_not_shown() {
        let [a] = clients();
        let waiter = with(waiting(a, 3_000), |waiter| waiter.gives_up_at_ms = Some(1_012_000));
        assert_eq!(gives_up(&waiter, 1_000_000), "gives up in 12.0 s");
        assert_eq!(gives_up(&waiter, 1_012_500), "gives up now");
        assert_eq!(gives_up(&waiting(a, 3_000), 1_000_000), "");
    }
}
