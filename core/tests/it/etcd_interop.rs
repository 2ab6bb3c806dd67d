//! Sharing locks with `etcdctl lock`, which is the `Mutex` of etcd's Go package `concurrency`.

#![cfg(all(feature = "etcd", unix))]

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::contract::{block_on, eventually, eventually_within, millis, seen};
use crate::contract_etcd::MEMBER;
use crate::etcd_faults::lease_of;
use polylatch::{ErrorKind, Polylatch};
use polylatch_test_services::{TempDir, proc};

fn connect(prefix: &str) -> Polylatch {
    block_on(Polylatch::connect(&format!("{}/{prefix}?timeout=10s", MEMBER.url()))).unwrap()
}

/// `etcdctl lock`, which prints the key that it holds.
struct EtcdctlLock {
    child: Child,
    entered: Receiver<String>,
}

impl EtcdctlLock {
    fn start(at: &str) -> Self {
        let mut child = MEMBER.spawn(&["lock", at]).expect("etcdctl is there");
        let out = child.stdout.take().expect("its output is read");
        let (tell, entered) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self { child, entered }
    }

    fn key(&self) -> String {
        self.entered.recv_timeout(Duration::from_secs(30)).expect("it enters")
    }

    fn has_entered(&self) -> bool {
        self.entered.try_recv().is_ok()
    }

    /// Asks it to end, which releases the lock.
    fn end(mut self) {
        proc::terminate(self.child.id());
        let _ = self.child.wait();
    }
}

impl Drop for EtcdctlLock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_lock_taken_by_etcdctl_excludes_us_and_its_release_wakes_us() {
    let client = connect("interop-1");
    let theirs = EtcdctlLock::start("interop-1/web");
    let key = theirs.key();
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    let error = block_on(client.lock("web").wait(millis(100)).acquire()).unwrap_err();
    assert!(error.to_string().contains("not Polylatch"), "{error}");
    let view = seen(&client, "web");
    assert_eq!((view.mode.as_ref(), view.holders.len()), ("mutex", 1));
    assert_eq!(view.holders[0].client, None);
    assert!(view.holders[0].details.iter().any(|detail| detail.value == key), "{view:?}");

    // A poll interval of ten seconds: what wakes the waiter is the end of their key.
    let url = format!("{}/interop-1?poll=10s&provisional=25s&lease=60s", MEMBER.url());
    let waits = block_on(Polylatch::connect(&url)).unwrap();
    let lock = waits.lock("web").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&client, "web").waiters.len() == 1);
    let ended = std::time::Instant::now();
    theirs.end();
    let guard = waiter.join().unwrap();
    assert!(guard.is_held());
    assert!(ended.elapsed() < millis(6_000), "by its poll: {:?}", ended.elapsed());
}

#[test]
fn a_lock_of_ours_excludes_etcdctl_which_enters_after_our_release() {
    let client = connect("interop-2");
    let guard = block_on(client.lock("web").acquire()).unwrap();
    let theirs = EtcdctlLock::start("interop-2/web");
    eventually("etcdctl is queued", || {
        seen(&client, "web").details.iter().any(|detail| detail.name == "waiters of other programs")
    });
    assert!(!theirs.has_entered(), "etcdctl entered beside us");
    guard.check().unwrap();
    // One of ours behind it waits for its turn.
    let lock = client.lock("web").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually("it waits", || seen(&client, "web").waiters.len() == 1);
    assert_eq!(seen(&client, "web").waiters[0].position, 1, "behind etcdctl");
    block_on(guard.release()).unwrap();
    theirs.key();
    assert!(!waiter.is_finished() && block_on(client.lock("web").try_acquire()).unwrap().is_none());
    theirs.end();
    let next = waiter.join().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
}

#[test]
fn sections_of_etcdctl_and_ours_never_overlap() {
    let count = std::env::var("POLYLATCH_ETCD_SECTIONS").ok().and_then(|count| count.parse().ok());
    let all = count.unwrap_or(200_usize);
    let dir = TempDir::new();
    let (inside, overlaps) = (dir.join("inside"), dir.join("overlaps"));
    // A folder can be made once: who finds it there is not alone.
    let section = format!(
        "mkdir {0} || echo etcdctl >>{1}; sleep 0.002; rmdir {0}",
        inside.display(),
        overlaps.display()
    );
    let programs: Vec<_> = (0..2)
        .map(|_| {
            let section = section.clone();
            thread::spawn(move || {
                for _ in 0..all / 8 {
                    let run = MEMBER
                        .command(&["lock", "--", "interop-3/web", "sh", "-c", &section])
                        .output()
                        .unwrap();
                    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
                }
            })
        })
        .collect();
    let ours: Vec<_> = (0..3)
        .map(|_| {
            let (inside, client) = (inside.clone(), connect("interop-3"));
            thread::spawn(move || {
                let mut last = None;
                for _ in 0..all / 4 {
                    let guard = block_on(client.lock("web").wait(millis(60_000)).acquire()).unwrap();
                    std::fs::create_dir(&inside).expect("nobody else is inside");
                    assert!(last < Some(guard.fencing_token()), "tokens grow");
                    last = Some(guard.fencing_token());
                    std::fs::remove_dir(&inside).unwrap();
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for worker in programs.into_iter().chain(ours) {
        worker.join().unwrap();
    }
    assert!(!overlaps.exists(), "{:?}", std::fs::read_to_string(&overlaps));
    println!("{} sections of etcdctl and {} of ours", 2 * (all / 8), 3 * (all / 4));
}

#[test]
fn a_killed_etcdctl_leaves_the_lock_when_its_lease_expires() {
    let client = connect("interop-4");
    let mut theirs = EtcdctlLock::start("interop-4/web");
    theirs.key();
    let lease = lease_of(&client, "web");
    theirs.child.kill().unwrap();
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    // Its TTL is a minute; an operator need not wait for that.
    let error = block_on(client.inspect().break_lease(&polylatch::inspect::BreakRequest {
        name: "web".into(),
        expected: seen(&client, "web").holders[0].fencing_token.unwrap(),
        by: "ann@desk".into(),
        reason: "killed".into(),
    }))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict);
    assert!(error.to_string().contains(&format!("etcdctl lease revoke {lease}")), "{error}");
    MEMBER.run_command(&["lease", "revoke", &lease]);
    eventually_within("it is free", millis(20_000), || {
        block_on(client.lock("web").try_acquire()).unwrap().is_some()
    });
}

#[test]
fn data_of_another_program_is_refused_and_left_alone() {
    let client = connect("interop-5");
    MEMBER.run_command(&["put", "interop-5/web/1f", "precious"]);
    for result in [
        block_on(client.lock("web").try_acquire()).map(drop),
        block_on(client.lock("web").wait(millis(3_000)).acquire()).map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
        assert!(error.to_string().contains("interop-5/web/1f") && error.to_string().contains("another name"));
    }
    let keys = MEMBER.run_command(&["get", "--prefix", "interop-5/web/"]);
    assert_eq!(keys, "interop-5/web/1f\nprecious\n", "nothing was created or changed");
    assert!(block_on(client.lock("other").try_acquire()).unwrap().is_some());
}
