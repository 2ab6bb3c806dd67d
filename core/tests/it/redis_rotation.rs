//! Passwords that are rotated while a lock is held.

#![cfg(all(feature = "redis", unix))]

use crate::contract::{block_on, eventually_within, millis};
use polylatch::Polylatch;
use polylatch_test_services::redis::RedisServer;

#[test]
fn a_rotated_password_loses_no_lock() {
    let server = RedisServer::builder().password("old").start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "old\n").unwrap();
    let url = format!("redis://{}?password_file={}", server.address(), path.display());
    let client = block_on(Polylatch::connect(&url)).unwrap();
    assert!(!client.url_for_display().contains("password"), "{}", client.url_for_display());
    let guard = block_on(client.lock("orders").lease(millis(6_000)).acquire()).unwrap();
    // One connection for all three: the old password is refused afterwards.
    let mut admin = server.connect().unwrap();
    std::fs::write(&path, "new\n").unwrap();
    for command in [
        &["CONFIG", "SET", "requirepass", "new"][..],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        admin.command(command).unwrap();
    }
    let before = guard.renewals();
    eventually_within("renewals with the new password", millis(20_000), || guard.renewals() >= before + 4);
    assert!(guard.check().is_ok());
    // Waiters wake over a subscription, which logs in again, too.
    let waiting = client.lock("orders").wait(millis(20_000));
    let waiter = std::thread::spawn(move || block_on(waiting.acquire()));
    block_on(guard.release()).unwrap();
    drop(waiter.join().unwrap().unwrap());
}
