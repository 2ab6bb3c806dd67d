//! Sharing locks with `consul lock`, which is Consul's own client library, and with its raw form.

#![cfg(all(feature = "consul", unix))]

use std::process::Child;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually, millis};
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::consul::{ConsulAgent, field};
use polylatch_test_services::proc;

static AGENT: LazyLock<ConsulAgent> = LazyLock::new(ConsulAgent::start);

/// `api/lock.go` and `api/semaphore.go` of Consul.
const LOCK_FLAGS: u64 = 3_304_740_253_564_472_344;
const SEMAPHORE_FLAGS: u64 = 16_210_313_421_097_356_768;

fn connect(prefix: &str) -> Polylatch {
    let url = format!("{}?prefix={prefix}&session_ttl_min=100ms&lock_delay=0s&timeout=10s", AGENT.url());
    block_on(Polylatch::connect(&url)).unwrap()
}

/// `consul lock` around a command that says through a key that it runs.
struct ConsulLock(Child);

impl ConsulLock {
    fn start(options: &[&str], at: &str, flag: &str) -> Self {
        let address = AGENT.address();
        let shell = format!(
            "consul_kv() {{ exec 3<>/dev/tcp/127.0.0.1/{}; printf 'PUT /v1/kv/{flag} HTTP/1.0\\r\\nHost: {address}\\r\\nContent-Length: 1\\r\\n\\r\\n1' >&3; cat <&3 >/dev/null; }}; consul_kv; exec sleep 600",
            address.port()
        );
        let mut words = vec!["lock", "-shell=false", "-child-exit-code"];
        words.extend(options);
        words.extend([at, "bash", "-c", &shell]);
        Self(AGENT.spawn(&words).expect("consul is there"))
    }

    fn end(mut self) {
        proc::terminate(self.0.id());
        let _ = self.0.wait();
    }
}

impl Drop for ConsulLock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn flag_is_up(flag: &str) -> bool {
    AGENT.ask("GET", &format!("/v1/kv/{flag}"), "").is_ok()
}

#[test]
fn a_lock_taken_by_consul_lock_excludes_us() {
    let client = connect("interop-1");
    let theirs = ConsulLock::start(&[], "interop-1/web", "flag-1");
    eventually("consul lock holds", || flag_is_up("flag-1"));
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    let error = block_on(client.lock("web").wait(millis(100)).acquire()).unwrap_err();
    assert!(error.to_string().contains("not Polylatch"), "{error}");
    let view = crate::contract::seen(&client, "web");
    assert_eq!((view.mode.as_ref(), view.holders.len()), ("mutex", 1));
    assert_eq!(view.holders[0].client, None);
    assert!(
        view.holders[0].details.iter().any(|detail| detail.value.contains("Consul lock for")),
        "{view:?}"
    );

    // A waiter is woken by their release, not by its next poll.
    let lock = client.lock("web").wait(millis(20_000));
    let waiter = std::thread::spawn(move || (block_on(lock.acquire()).unwrap(), Instant::now()));
    eventually("it waits", || crate::contract::seen(&client, "web").waiters.len() == 1);
    theirs.end();
    let (guard, _) = waiter.join().unwrap();
    assert!(guard.is_held());
}

#[test]
fn a_lock_of_ours_excludes_consul_lock() {
    let client = connect("interop-2");
    let guard = block_on(client.lock("web").acquire()).unwrap();
    let theirs = ConsulLock::start(&[], "interop-2/web", "flag-2");
    std::thread::sleep(millis(1_000));
    assert!(!flag_is_up("flag-2"), "consul lock entered beside us");
    guard.check().unwrap();
    block_on(guard.release()).unwrap();
    eventually("consul lock enters after our release", || flag_is_up("flag-2"));
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    theirs.end();
}

#[test]
fn permits_are_shared_with_consul_lock() {
    let client = connect("interop-3");
    let semaphore = client.semaphore("pool", 3);
    let ours = block_on(semaphore.acquire(2)).unwrap();
    let first = ConsulLock::start(&["-n=3"], "interop-3/pool", "flag-3a");
    eventually("the third permit is theirs", || flag_is_up("flag-3a"));
    assert!(block_on(semaphore.try_acquire(1)).unwrap().is_none());
    let second = ConsulLock::start(&["-n=3"], "interop-3/pool", "flag-3b");
    std::thread::sleep(millis(1_000));
    assert!(!flag_is_up("flag-3b"), "a fourth permit of three");
    let view = crate::contract::seen(&client, "pool");
    assert_eq!(view.capacity, Some(3));
    assert_eq!(view.holders.iter().map(|holder| holder.permits).sum::<u32>(), 3);

    block_on(ours.release()).unwrap();
    eventually("the second enters", || flag_is_up("flag-3b"));
    let one = block_on(semaphore.try_acquire(1)).unwrap().expect("one of three is left");
    assert!(block_on(semaphore.try_acquire(1)).unwrap().is_none());
    first.end();
    let two = block_on(semaphore.permits(1).wait(millis(20_000)).acquire()).unwrap();
    one.check().unwrap();
    two.check().unwrap();
    second.end();

    let other = block_on(client.semaphore("pool", 4).try_acquire(1)).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::NameConflict, "another limit is an error for every client: {other}");
}

#[test]
fn a_lock_in_the_client_librarys_form_excludes_us_also_under_a_key_of_its_own() {
    let url =
        format!("{}?prefix=interop-4&lock_key=service/{{name}}/leader&session_ttl_min=100ms", AGENT.url());
    let client = block_on(Polylatch::connect(&url)).unwrap();
    let session = AGENT.ask("PUT", "/v1/session/create", "{\"Name\":\"Consul API Lock\",\"TTL\":\"15s\"}");
    let session = field(&session.body, "ID").unwrap();
    let take = format!("/v1/kv/service/web/leader?acquire={session}&flags={LOCK_FLAGS}");
    assert_eq!(AGENT.ask("PUT", &take, "me").body.trim(), "true");
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    let free = format!("/v1/kv/service/web/leader?release={session}&flags={LOCK_FLAGS}");
    assert_eq!(AGENT.ask("PUT", &free, "").body.trim(), "true");
    // The key stays behind, unheld.
    let guard = block_on(client.lock("web").try_acquire()).unwrap().expect("it is free");
    assert_eq!(AGENT.ask("PUT", &take, "me").body.trim(), "false");
    let listed = block_on(client.inspect().list(&Default::default())).unwrap();
    assert_eq!(listed.locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["web"]);
    block_on(guard.release()).unwrap();
    assert_eq!(AGENT.ask("PUT", &take, "me").body.trim(), "true");
}

#[test]
fn foreign_data_is_a_conflict_and_stays_as_it_is() {
    let client = connect("interop-5");
    for (name, flags) in [("plain", 0), ("other", 42), ("broken", SEMAPHORE_FLAGS)] {
        let key = format!("/v1/kv/interop-5/{name}/.lock?flags={flags}");
        AGENT.ask("PUT", &key, "precious");
        for result in [
            block_on(client.lock(name).try_acquire()),
            block_on(client.lock(name).wait(Duration::from_secs(5)).acquire()).map(Some),
            block_on(client.rw_lock(name).read().try_acquire()),
            block_on(client.semaphore(name, 2).try_acquire(1)),
        ] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NameConflict, "{name}");
        }
        let value = AGENT.ask("GET", &format!("/v1/kv/interop-5/{name}/.lock?raw"), "");
        assert_eq!(value.body, "precious");
        assert_eq!(crate::contract::seen(&client, name).mode, "foreign");
        eventually("nothing is left in line", || crate::contract::seen(&client, name).waiters.is_empty());
    }
}

#[test]
fn a_client_of_the_library_sees_our_read_write_lock_as_a_conflict() {
    let client = connect("interop-6");
    let _guard = block_on(client.rw_lock("doc").read().acquire()).unwrap();
    let mut theirs = AGENT.command(&["lock", "-try=2s", "interop-6/doc", "true"]);
    let output = theirs.output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).to_string() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("does not match lock use"), "{text}");
}

/// What a crashed reader, writer or permit holder leaves in the key, and the way out.
#[test]
fn consul_lock_enters_again_after_one_of_our_clients_has_used_what_a_crash_left() {
    let client = connect("interop-7");
    let enters = |name: &str| {
        let path = format!("interop-7/{name}");
        AGENT.command(&["lock", "-try=5s", &path, "true"]).output().unwrap().status.success()
    };
    for name in ["read", "write", "permit"] {
        let guard = block_on(async {
            match name {
                "read" => client.rw_lock(name).read().acquire().await,
                "write" => client.rw_lock(name).write().acquire().await,
                _ => client.semaphore(name, 2).acquire(1).await,
            }
        });
        let guard = guard.unwrap();
        let view = crate::contract::seen(&client, name);
        let session = view.holders[0].details.iter().find(|detail| detail.name == "session").unwrap();
        AGENT.ask("PUT", &format!("/v1/session/destroy/{}", session.value), "");
        block_on(guard.lost());
        eventually("its lease is over", || crate::contract::seen(&client, name).holders.is_empty());
        assert!(!enters(name), "{name}: the documents may promise more");
        let used = block_on(client.lock(name).try_acquire()).unwrap().expect("it is free");
        block_on(used.release()).unwrap();
        assert!(enters(name), "{name}: still blocked");
    }
}
