//! Sharing locks with Curator's `InterProcessMutex`, `InterProcessReadWriteLock` and `InterProcessSemaphoreV2` (Java), and with
//! kazoo's `Lock` (Python), which is told of our names.

#![cfg(all(feature = "zookeeper", unix))]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::contract::{block_on, eventually_within, millis, seen};
use crate::contract_zookeeper::SERVER;
use crate::zookeeper_faults::{connect, held_by, url};
use polylatch::{ErrorKind, Mode};
use polylatch_test_services::TempDir;

/// Of the semaphores that are shared with Curator.
const PERMITS: u32 = 3;

/// A Java machine compiles the program first.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub enum Library {
    Curator,
    Kazoo,
}

/// Another library's program, and what it prints.
struct Neighbour {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

/// The program that uses this library, without its words.
pub fn program_of(library: Library) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/neighbours");
    match library {
        Library::Curator => {
            let jars = [
                "zookeeper",
                "slf4j-simple",
                "curator-recipes",
                "curator-framework",
                "curator-client",
                "guava",
                "failureaccess",
            ];
            let jars: Vec<_> = jars.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
            let mut command = Command::new("java");
            command
                .args([
                    "-Xmx96m",
                    "-XX:TieredStopAtLevel=1",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                ])
                .args(["-cp", &jars.join(":")])
                .arg(here.join("curator_lock.java"));
            command
        }
        Library::Kazoo => {
            let mut command = Command::new("python3");
            // Where Debian's package is, also for another Python.
            command.env("PYTHONPATH", "/usr/lib/python3/dist-packages").arg(here.join("kazoo_lock.py"));
            command
        }
    }
}

impl Neighbour {
    fn start(library: Library, words: &[&str]) -> Self {
        let place = SERVER.address().to_string();
        let mut child = program_of(library)
            .arg(words[0])
            .arg(place)
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{library:?}: {error}; see need_zookeeper in tests/provision.sh"));
        let (input, out) = (child.stdin.take(), child.stdout.take().expect("its output is read"));
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self { child, input, said }
    }

    #[track_caller]
    fn says(&self, what: &str) -> String {
        loop {
            let line =
                self.said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not say {what:?}"));
            if line.starts_with(what) {
                return line;
            }
        }
    }

    /// Asks it to release the lock and to end.
    fn end(mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.child.wait();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn a_lock_of_theirs_excludes_us(library: Library, prefix: &str) {
    let client = connect(&url(prefix, ""));
    let path = format!("/{prefix}/web");
    let theirs = Neighbour::start(library, &["hold", &path, "mutex"]);
    theirs.says("held");
    assert!(block_on(client.lock("web").try_acquire()).unwrap().is_none());
    let error = block_on(client.lock("web").wait(millis(100)).acquire()).unwrap_err();
    assert!(error.kind() == ErrorKind::WaitTimeout && error.to_string().contains("not Polylatch"), "{error}");
    let view = seen(&client, "web");
    assert_eq!((view.mode.as_ref(), view.holders.len()), ("mutex", 1));
    assert_eq!(view.holders[0].client, None);
    // An operator is told which node it is, and it is left alone.
    let error = block_on(client.inspect().break_lease(&polylatch::inspect::BreakRequest {
        name: "web".into(),
        expected: view.holders[0].fencing_token.unwrap(),
        by: "ann@desk".into(),
        reason: "test".into(),
    }))
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict);
    assert!(error.to_string().contains(&held_by(&client, "web").0), "{error}");

    // A poll interval of ten seconds: what wakes the waiter is the end of their node.
    let waits = connect(&url(prefix, "poll=10s&provisional=25s&lease=60s"));
    let lock = waits.lock("web").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually_within("it waits", PATIENCE, || seen(&client, "web").waiters.len() == 1);
    let ended = Instant::now();
    theirs.end();
    let guard = waiter.join().unwrap();
    assert!(guard.is_held());
    assert!(ended.elapsed() < millis(8_000), "by its poll: {:?}", ended.elapsed());
}

fn a_lock_of_ours_excludes_them(library: Library, prefix: &str) {
    let client = connect(&url(prefix, ""));
    let guard = block_on(client.lock("web").acquire()).unwrap();
    let theirs = Neighbour::start(library, &["hold", &format!("/{prefix}/web"), "mutex"]);
    eventually_within("they are queued", PATIENCE, || {
        seen(&client, "web").details.iter().any(|detail| detail.name == "waiters of other programs")
    });
    // One of ours behind it waits for its turn.
    let lock = client.lock("web").wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(lock.acquire()).unwrap());
    eventually_within("it waits", PATIENCE, || seen(&client, "web").waiters.len() == 1);
    assert_eq!(seen(&client, "web").waiters[0].position, 1, "behind them");
    guard.check().unwrap();
    assert!(theirs.said.try_recv().is_err(), "they entered beside us");
    block_on(guard.release()).unwrap();
    theirs.says("held");
    assert!(!waiter.is_finished() && block_on(client.lock("web").try_acquire()).unwrap().is_none());
    theirs.end();
    assert!(waiter.join().unwrap().fencing_token() > guard.fencing_token());
}

/// Writes a file into the folder, and reads who else is inside.
fn go_inside(folder: &Path, mode: Mode) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let word = match mode {
        Mode::Permits { .. } => "permit",
        Mode::Read => "read",
        _ => "write",
    };
    let own = folder.join(format!("{word} {}", NEXT.fetch_add(1, Ordering::SeqCst)));
    std::fs::File::create_new(&own).unwrap();
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let all: Vec<_> = names.collect();
    std::fs::remove_file(&own).unwrap();
    match mode {
        Mode::Permits { .. } => assert!(all.len() <= PERMITS as usize, "{all:?}"),
        Mode::Read => assert!(!all.iter().any(|name| name.starts_with("write")), "a reader met {all:?}"),
        _ => assert_eq!(all.len(), 1, "{all:?}"),
    }
}

fn sections_never_overlap(library: Library, kind: &str, prefix: &str) {
    let each = std::env::var("POLYLATCH_ZOOKEEPER_SECTIONS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(60_usize);
    let dir = TempDir::new();
    let inside = dir.join("inside");
    std::fs::create_dir(&inside).unwrap();
    let (path, count) = (format!("/{prefix}/web"), each.to_string());
    let words = ["sections", &path, &count, inside.to_str().unwrap(), kind];
    let theirs: Vec<_> = (0..2).map(|_| Neighbour::start(library, &words)).collect();
    theirs.iter().for_each(|one| _ = one.says("ready"));
    let ours: Vec<_> = (0..2)
        .map(|_| {
            let (inside, client, kind) = (inside.clone(), connect(&url(prefix, "")), kind.to_owned());
            thread::spawn(move || {
                let mut last = None;
                for at in 0..each {
                    let lock = match (kind.as_str(), at % 3) {
                        ("rw", 1) => client.rw_lock("web").write(),
                        ("rw", _) => client.rw_lock("web").read(),
                        ("semaphore", _) => client.semaphore("web", PERMITS).permits(1),
                        _ => client.lock("web"),
                    };
                    let guard = block_on(lock.wait(millis(60_000)).acquire()).unwrap();
                    go_inside(&inside, guard.mode());
                    assert!(last < Some(guard.fencing_token()), "tokens grow");
                    last = Some(guard.fencing_token());
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for worker in ours {
        worker.join().unwrap();
    }
    for one in theirs {
        assert_eq!(one.says("overlaps"), "overlaps 0");
    }
    println!("{} sections of a {kind} with {library:?}", 4 * each);
}

#[test]
fn curator_and_we_exclude_each_other() {
    a_lock_of_theirs_excludes_us(Library::Curator, "curator-1");
    a_lock_of_ours_excludes_them(Library::Curator, "curator-2");
}

#[test]
fn kazoo_and_we_exclude_each_other() {
    a_lock_of_theirs_excludes_us(Library::Kazoo, "kazoo-1");
    a_lock_of_ours_excludes_them(Library::Kazoo, "kazoo-2");
}

#[test]
fn sections_of_curator_and_ours_never_overlap() {
    sections_never_overlap(Library::Curator, "mutex", "curator-3");
}

#[test]
fn sections_of_kazoo_and_ours_never_overlap() {
    sections_never_overlap(Library::Kazoo, "mutex", "kazoo-3");
}

#[test]
fn readers_and_writers_of_curator_and_ours_exclude_each_other() {
    let client = connect(&url("curator-4", ""));
    let (path, lock) = ("/curator-4/web", client.rw_lock("web"));
    let theirs = Neighbour::start(Library::Curator, &["hold", path, "read"]);
    theirs.says("held");
    let beside = block_on(lock.read().try_acquire()).unwrap().expect("readers share");
    assert!(block_on(lock.write().try_acquire()).unwrap().is_none());
    let view = seen(&client, "web");
    assert_eq!((&*view.mode, view.holders.len()), ("rw", 2));
    assert_eq!((&*view.holders[0].mode, view.holders[0].client.as_ref()), ("read", None));
    let error = block_on(client.lock("web").try_acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameConflict, "{error}");
    // One reader of ours is not alone.
    let polylatch::Converted::Refused(beside) = block_on(beside.try_upgrade()).unwrap() else {
        panic!("it wrote beside their reader")
    };
    block_on(beside.release()).unwrap();
    let waits = lock.write().wait(millis(60_000));
    let writer = thread::spawn(move || block_on(waits.acquire()).unwrap());
    eventually_within("it waits", PATIENCE, || seen(&client, "web").waiters.len() == 1);
    theirs.end();
    let writer = writer.join().unwrap();

    let theirs = Neighbour::start(Library::Curator, &["hold", path, "read"]);
    let is_queued =
        || seen(&client, "web").details.iter().any(|detail| detail.name == "waiters of other programs");
    eventually_within("they are queued", PATIENCE, is_queued);
    assert!(theirs.said.try_recv().is_err(), "their reader entered beside our writer");
    // Their reader shares with what was a writer, and a writer of theirs waits for both.
    let reader = block_on(writer.downgrade()).unwrap();
    theirs.says("held");
    reader.check().unwrap();
    let waits = Neighbour::start(Library::Curator, &["hold", path, "write"]);
    eventually_within("they are queued", PATIENCE, is_queued);
    theirs.end();
    eventually_within("their reader is gone", PATIENCE, || seen(&client, "web").holders.len() == 1);
    assert!(waits.said.try_recv().is_err(), "their writer entered beside our reader");
    assert!(block_on(lock.read().try_acquire()).unwrap().is_none(), "their writer is before it");
    block_on(reader.release()).unwrap();
    waits.says("held");
    assert!(block_on(lock.read().try_acquire()).unwrap().is_none());
    waits.end();
    assert!(
        block_on(lock.read().wait(millis(30_000)).acquire()).unwrap().fencing_token()
            > reader.fencing_token()
    );
}

#[test]
fn permits_of_curator_and_ours_are_never_more_than_there_are() {
    let client = connect(&url("curator-5", "poll=10s&provisional=25s&lease=60s"));
    let (path, semaphore) = ("/curator-5/web", client.semaphore("web", PERMITS));
    let theirs = Neighbour::start(Library::Curator, &["hold", path, "two"]);
    theirs.says("held");
    assert!(block_on(semaphore.try_acquire(2)).unwrap().is_none(), "one is free");
    let third = block_on(semaphore.try_acquire(1)).unwrap().expect("one is free");
    let view = seen(&client, "web");
    assert_eq!((&*view.mode, view.capacity, view.holders.len()), ("semaphore", Some(PERMITS), 3));
    let waits = semaphore.permits(2).wait(millis(60_000));
    let waiter = thread::spawn(move || block_on(waits.acquire()).unwrap());
    eventually_within("it waits", PATIENCE, || seen(&client, "web").waiters.len() == 1);
    let ended = Instant::now();
    theirs.end();
    let two = waiter.join().unwrap();
    assert!(ended.elapsed() < millis(8_000), "by its poll: {:?}", ended.elapsed());
    assert!(two.fencing_token() > third.fencing_token());

    let theirs = Neighbour::start(Library::Curator, &["hold", path, "two"]);
    // Curator creates its node before there is a permit for it.
    eventually_within("they are there", PATIENCE, || seen(&client, "web").holders.len() == 3);
    block_on(third.release()).unwrap();
    assert!(theirs.said.try_recv().is_err(), "there is one permit, and they want two");
    two.check().unwrap();
    block_on(two.release()).unwrap();
    theirs.says("held");
    theirs.end();
}

#[test]
fn sections_of_curators_readers_and_writers_and_ours_never_overlap() {
    sections_never_overlap(Library::Curator, "rw", "curator-6");
}

#[test]
fn permits_of_curator_and_ours_never_exceed_the_capacity_under_load() {
    sections_never_overlap(Library::Curator, "semaphore", "curator-7");
}
