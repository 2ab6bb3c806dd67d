//! Sharing a lock with programs that use the `Mutex` of etcd's Go package `concurrency`, Curator's `InterProcessMutex` (Java) or
//! kazoo's `Lock` (Python), while holders are killed and paused and the server hangs. What is judged is the history that all of
//! them write.

#![cfg(all(feature = "etcd", feature = "zookeeper", target_os = "linux"))]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::contract::{block_on, eventually_within, millis};
use polylatch::Polylatch;
use polylatch_test_services::etcd::EtcdMember;
use polylatch_test_services::zookeeper::ZooKeeper;
use polylatch_test_services::{TempDir, proc};

use crate::zookeeper_interop::{Library, program_of};

/// For so long the lock is held up by a worker that was killed.
const LEASE: Duration = Duration::from_secs(3);

const PATIENCE: Duration = Duration::from_secs(60);

/// Name, URL and file of the child process below.
const WORKER: &str = "POLYLATCH_TEST_WORKER_BESIDE";

/// A line of the history: what happened (`enter`, `held`, `leave`), to which worker, and when.
type Line<'h> = (&'h str, &'h str, i128);

fn now() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

/// The whole program of the child: sections until its standard input ends. It vouches for each instant that it writes.
#[test]
fn enters_sections_until_its_input_ends() {
    let Ok(words) = std::env::var(WORKER) else { return };
    let [name, url, file] = words.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    let mut history = OpenOptions::new().create(true).append(true).open(file).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        told.store(true, Ordering::SeqCst);
    });
    let client = block_on(Polylatch::connect(url)).unwrap();
    while !over.load(Ordering::SeqCst) {
        // A member that hangs for long makes this fail; it is asked again.
        let Ok(guard) = block_on(client.lock("web").wait(PATIENCE).acquire()) else { continue };
        for what in ["enter", "held", "leave"] {
            let at = now();
            if guard.check().is_err() {
                break;
            }
            // One call of write for each line, so that lines of several programs do not mix.
            history.write_all(format!("{what} {name} {at}\n").as_bytes()).unwrap();
            thread::sleep(millis(1));
        }
        let _ = block_on(guard.release());
    }
}

/// One process that enters sections.
struct Worker(Child);

impl Worker {
    fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(spawned.expect("the program can be started"))
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end, and waits for that.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it is a child").success(), "a worker failed");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server, and the other library at it.
struct Neighbours<'server> {
    /// What its workers are called.
    kind: &'static str,
    /// Where ours find the lock `web`.
    url: String,
    /// The program that enters sections under this name and writes into this file.
    program: &'server dyn Fn(&str, &Path) -> Command,
    pause: &'server dyn Fn(),
    resume: &'server dyn Fn(),
}

/// The workers, and what was written of their sections.
struct Fleet<'server> {
    beside: Neighbours<'server>,
    dir: TempDir,
    started: usize,
}

impl Fleet<'_> {
    fn file(&self) -> PathBuf {
        self.dir.join("history")
    }

    /// Another worker of this kind.
    fn worker(&mut self, kind: &str) -> (String, Worker) {
        self.started += 1;
        let (name, file) = (format!("{kind}{}", self.started), self.file());
        if kind == self.beside.kind {
            let command = (self.beside.program)(&name, &file);
            return (name, Worker::start(command));
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "neighbours_hurt::enters_sections_until_its_input_ends"]);
        command.env(WORKER, format!("{name} {} {}", self.beside.url, file.display()));
        (name, Worker::start(command))
    }

    fn history(&self) -> String {
        let mut text = String::new();
        File::open(self.file()).and_then(|mut file| file.read_to_string(&mut text)).unwrap_or_default();
        text
    }

    fn sections(&self, kind: &str) -> usize {
        let leave = format!("leave {kind}");
        self.history().lines().filter(|line| line.starts_with(&leave)).count()
    }

    /// Waits for more sections of both kinds.
    fn goes_on(&self, what: &str) {
        let kinds = [self.beside.kind, "ours"];
        let before = kinds.map(|kind| self.sections(kind));
        eventually_within(what, PATIENCE, || {
            kinds.iter().zip(before).all(|(kind, before)| self.sections(kind) >= before + 3)
        });
    }

    fn is_inside(&self, name: &str) -> bool {
        let history = self.history();
        let last = history.lines().map(parsed).rfind(|(_, one, _)| *one == name);
        last.is_some_and(|(what, ..)| what != "leave")
    }

    /// Waits until a worker of this kind is inside, and says which one.
    fn inside(&self, kind: &str) -> String {
        let mut found = String::new();
        eventually_within("one is inside", PATIENCE, || {
            let history = self.history();
            let Some(last) = history.lines().last() else { return false };
            let (what, name, _) = parsed(last);
            found = name.to_owned();
            what != "leave" && name.starts_with(kind)
        });
        found
    }
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// Builds the neighbour; `need_go_neighbour` in tests/provision.sh has fetched its modules.
fn go_program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/neighbours/etcd_concurrency");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("etcd-concurrency");
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program)
        .arg(".")
        .env("GOTOOLCHAIN", "local")
        .current_dir(source)
        .output()
        .unwrap_or_else(|error| panic!("go: {error}; see need_go_neighbour in tests/provision.sh"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

fn parsed(line: &str) -> Line<'_> {
    let [what, name, at] = line.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    (what, name, at.parse().expect("a number"))
}

/// The sections that begin before another one has ended, and how many there are at all. One that was killed or lost has
/// ended when it was last vouched for.
fn overlaps(history: &str) -> (Vec<String>, usize) {
    let mut sections: Vec<(i128, i128, &str)> = Vec::new();
    for (what, name, at) in history.lines().map(parsed) {
        if what == "enter" {
            sections.push((at, at, name));
        } else if let Some(section) = sections.iter_mut().rev().find(|section| section.2 == name) {
            section.1 = at;
        }
    }
    sections.sort_unstable();
    let mut found = Vec::new();
    let mut last: Option<(i128, &str)> = None;
    for (enter, leave, name) in &sections {
        if let Some((end, before)) = last.filter(|(end, _)| end >= enter) {
            found.push(format!("{name} entered {} ns before {before} left", end - enter));
        }
        last = last.max(Some((*leave, name)));
    }
    (found, sections.len())
}

/// `POLYLATCH_BESIDE_SECTIONS` and `POLYLATCH_BESIDE_FAULTS` say how much.
fn sections_never_overlap_while_holders_are_killed_and_paused(beside: Neighbours<'_>) {
    let count =
        |name: &str, usual| std::env::var(name).ok().and_then(|count| count.parse().ok()).unwrap_or(usual);
    let (sections, rounds) = (count("POLYLATCH_BESIDE_SECTIONS", 200), count("POLYLATCH_BESIDE_FAULTS", 1));
    let theirs = beside.kind;
    let mut fleet = Fleet { beside, dir: TempDir::new(), started: 0 };
    let mut workers: Vec<_> = [theirs, "ours", theirs, "ours"].map(|kind| fleet.worker(kind)).into();
    fleet.goes_on("sections before any fault");
    for _ in 0..rounds {
        for kind in [theirs, "ours"] {
            let inside = fleet.inside(kind);
            let killed = workers.iter_mut().find(|(name, _)| *name == inside).expect("it is one of them");
            killed.1.kill();
            *killed = fleet.worker(kind);
            fleet.goes_on("sections behind one that was killed");
        }
        // Only ours sees that it was paused beyond its lease: theirs would write into the section of the next one.
        for (kind, pause) in [("ours", LEASE + millis(1_500)), (theirs, millis(700))] {
            let pid = loop {
                let inside = fleet.inside(kind);
                let (name, worker) = workers.iter().find(|(name, _)| *name == inside).expect("one of them");
                proc::pause(worker.0.id());
                eventually_within("it stands still", PATIENCE, || is_stopped(worker.0.id()));
                if fleet.is_inside(name) {
                    break worker.0.id();
                }
                // It had left meanwhile.
                proc::resume(worker.0.id());
            };
            thread::sleep(pause);
            proc::resume(pid);
            fleet.goes_on("sections behind one that was paused");
        }
        (fleet.beside.pause)();
        thread::sleep(millis(700));
        (fleet.beside.resume)();
        fleet.goes_on("sections behind a server that hung");
    }
    eventually_within("all sections", Duration::from_secs(600), || {
        fleet.sections(theirs) + fleet.sections("ours") >= sections
    });
    for (_, worker) in workers {
        worker.end();
    }
    let (found, all) = overlaps(&fleet.history());
    println!(
        "{all} sections, {} of {theirs} and {} of ours left",
        fleet.sections(theirs),
        fleet.sections("ours")
    );
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn sections_of_go_and_ours_never_overlap_while_holders_are_killed_and_paused() {
    let (member, go) = (EtcdMember::start(), go_program());
    sections_never_overlap_while_holders_are_killed_and_paused(Neighbours {
        kind: "go",
        url: format!("{}?lease={}s", member.url(), LEASE.as_secs()),
        program: &|name, file| {
            let mut command = Command::new(&go);
            command.args([name, &member.address().to_string(), "polylatch/web"]);
            command.arg(LEASE.as_secs().to_string()).arg(file);
            command
        },
        pause: &|| member.pause(),
        resume: &|| member.resume(),
    });
}

fn beside(library: Library, kind: &'static str) {
    let server = ZooKeeper::start();
    sections_never_overlap_while_holders_are_killed_and_paused(Neighbours {
        kind,
        url: format!("{}?tick=200ms&lease={}s", server.url(), LEASE.as_secs()),
        program: &|name, file| {
            let mut command = program_of(library);
            command.args(["enter", &server.address().to_string(), "/polylatch/web", name]);
            command.arg(LEASE.as_secs().to_string()).arg(file);
            command
        },
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    });
}

#[test]
fn sections_of_curator_and_ours_never_overlap_while_holders_are_killed_and_paused() {
    beside(Library::Curator, "curator");
}

#[test]
fn sections_of_kazoo_and_ours_never_overlap_while_holders_are_killed_and_paused() {
    beside(Library::Kazoo, "kazoo");
}

#[test]
fn an_overlap_in_a_history_is_found() {
    assert_eq!(overlaps("enter a 1\nenter b 5\nheld a 3\nleave b 9\n"), (vec![], 2));
    assert_eq!(overlaps("enter a 1\nenter b 5\nleave a 6\nleave b 9\n").0.len(), 1);
}
