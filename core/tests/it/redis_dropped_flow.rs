//! A firewall drops the established flow of a client without a word to either end, while new connections work.

#![cfg(all(feature = "redis", target_os = "linux"))]

use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, seen};
use polylatch::Polylatch;
use polylatch_test_services::netns::{drop_established, in_own_network};
use polylatch_test_services::redis::RedisServer;

/// The time limit of a request by default.
const TIMEOUT: Duration = Duration::from_secs(3);

#[test]
fn a_firewall_that_forgets_a_flow_costs_no_lease_and_no_lock_for_long() {
    let test = "a_firewall_that_forgets_a_flow_costs_no_lease_and_no_lock_for_long";
    in_own_network(test, || {
        let server = RedisServer::start();
        // With default options. The other one does not go through the firewall.
        let client = block_on(Polylatch::connect(&server.url())).unwrap();
        let other = block_on(Polylatch::connect(&server.unix_url())).unwrap();
        let kept = block_on(client.lock("kept").acquire()).unwrap();
        eventually("it has its full lease", || kept.renewals() >= 1);
        let theirs = block_on(other.lock("handed over").acquire()).unwrap();
        let waiting = client.lock("handed over").wait(10 * TIMEOUT);
        let waiting = thread::spawn(move || (block_on(waiting.acquire()).unwrap(), Instant::now()));
        eventually("it waits", || seen(&other, "handed over").waiters.len() == 1);
        let fresh = block_on(client.lock("fresh").acquire()).unwrap();

        assert!(drop_established(server.port()) >= 2, "commands and a subscription");
        let dropped = Instant::now();
        block_on(theirs.release()).unwrap();
        let new = block_on(client.lock("new").wait(3 * TIMEOUT).acquire()).unwrap();
        assert!(dropped.elapsed() < 2 * TIMEOUT, "{:?}", dropped.elapsed());
        let (handed_over, entered) = waiting.join().unwrap();
        assert!(entered - dropped < 2 * TIMEOUT, "{:?}", entered - dropped);
        eventually("the first lease is renewed", || fresh.renewals() >= 1 || fresh.check().is_err());
        let before = kept.renewals();
        eventually("the full lease is renewed", || kept.renewals() > before || kept.check().is_err());
        for guard in [kept, fresh, new, handed_over] {
            guard.check().unwrap();
            block_on(guard.release()).unwrap();
        }
    });
}
