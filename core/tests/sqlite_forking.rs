//! What happens to the files of `sqlite:` stores around a fork. In a process of its own: a fork concerns all of it.

#![cfg(all(feature = "sqlite", target_os = "linux"))]

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pollster::block_on;
use polylatch::{Polylatch, fork};

const LONG: Duration = Duration::from_secs(30);

fn connect(file: &Path) -> Polylatch {
    block_on(Polylatch::connect(&format!("sqlite:{}", file.display()))).unwrap()
}

fn use_it(client: &Polylatch) {
    block_on(block_on(client.lock("a").acquire()).unwrap().release()).unwrap();
}

/// Whether this process has the file open.
fn is_open(file: &Path) -> bool {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    descriptors.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == file))
}

/// One test, because its parts would meet in other threads.
#[test]
fn a_file_is_closed_for_a_fork_unless_its_client_holds_or_waits() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().canonicalize().unwrap().join(name));
    let (client, holder) = (connect(&one), connect(&other));
    use_it(&client);
    let guard = block_on(holder.lock("a").lease(Duration::from_secs(1)).acquire()).unwrap();

    // What is idle is closed, and stays closed until the fork is over.
    let begun = Instant::now();
    fork::before(LONG);
    assert!(begun.elapsed() < LONG / 2, "nobody is waited for who has answered");
    assert!(!is_open(&one), "the idle client has closed its file");
    assert!(is_open(&other), "the holder has its file");
    let (done, is_done) = mpsc::channel();
    let asking = client.clone();
    let thread = thread::spawn(move || {
        use_it(&asking);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_millis(200)).expect_err("it waits for the end of the fork");
    assert!(!is_open(&one), "nobody opens it meanwhile");
    fork::after_in_parent();
    is_done.recv_timeout(LONG).expect("it goes on afterwards");
    thread.join().unwrap();
    assert!(is_open(&one));

    // Two threads fork at once: the first end is not the last.
    fork::before(LONG);
    fork::before(LONG);
    fork::after_in_parent();
    let asking = client.clone();
    let thread = thread::spawn(move || use_it(&asking));
    thread::sleep(Duration::from_millis(50));
    assert!(!is_open(&one), "the other fork is not over");
    fork::after_in_parent();
    thread.join().unwrap();

    // Of a fork whose end nobody tells.
    fork::before(LONG);
    let begun = Instant::now();
    use_it(&client);
    assert!(begun.elapsed() < LONG / 2, "files do not stay closed for ever");
    fork::after_in_parent();

    let renewals = guard.renewals();
    while guard.renewals() < renewals + 2 {
        guard.check().expect("it is renewed all the time");
        thread::sleep(Duration::from_millis(10));
    }
    block_on(guard.release()).unwrap();
    fork::before(LONG);
    assert!(!is_open(&one) && !is_open(&other), "nothing is held any more");
    fork::after_in_parent();
    block_on(client.close());
    block_on(holder.close());

    // A client that was just dropped is asked no more, and its thread may still be closing the file.
    for _ in 0..20 {
        let clients = [connect(&one), connect(&one), connect(&other)];
        clients.iter().for_each(use_it);
        drop(clients);
        fork::before(LONG);
        assert!(!is_open(&one) && !is_open(&other), "the dropped clients have closed their files");
        fork::after_in_parent();
    }
}
