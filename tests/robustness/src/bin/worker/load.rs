//! Many short sections under random locks.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use polylatch::blocking::{Guard, Polylatch};
use polylatch_robustness::random::Random;
use polylatch_robustness::record::Record;
use polylatch_robustness::resource::Writer;
use polylatch_robustness::{boot_nanos, lock_name};

use crate::{code, verdict};

pub struct Task {
    pub url: String,
    pub resource: PathBuf,
    pub history: PathBuf,
    pub seed: u64,
    pub locks: u64,
    pub threads: u64,
    /// Now and then a section takes this long, beyond its first lease.
    pub long_ms: u64,
}

/// One in so many sections is long, and one in so many takes a few milliseconds.
const LONG: u64 = 5000;
const MEDIUM: u64 = 300;

/// One in so many sections writes a second time at its end.
const AGAIN: u64 = 3;

/// How long a worker waits for a lock: under faults some give up, and leave the line.
const PATIENCE: Duration = Duration::from_millis(1500);

/// One in so many acquisitions waits a few milliseconds only, and is mostly undone.
const HASTY: u64 = 16;

struct Worker {
    client: Polylatch,
    history: File,
    stopping: AtomicBool,
}

impl Worker {
    /// One write call on a file opened for appending: lines of several threads do not mix, and a
    /// kill does not cut one in two.
    fn note(&self, record: &Record) {
        (&self.history).write_all(format!("{record}\n").as_bytes()).expect("the history can be written");
    }
}

pub fn run(task: &Task) {
    let history = File::options().append(true).create(true).open(&task.history).expect("the folder is there");
    let worker = Arc::new(Worker { client: connect(&task.url), history, stopping: AtomicBool::new(false) });
    let threads: Vec<_> = (0..task.threads)
        .map(|index| {
            let worker = Arc::clone(&worker);
            let writer = Writer::connect(&task.resource).expect("the resource is there");
            let random = Random::seeded(task.seed.wrapping_add(index));
            let (locks, long) = (task.locks, Duration::from_millis(task.long_ms));
            thread::spawn(move || worker.work(random, writer, locks, long))
        })
        .collect();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    worker.stopping.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().expect("no thread of a worker panics");
    }
    worker.client.close();
}

/// A store that is being hurt may not let the first try through.
fn connect(url: &str) -> Polylatch {
    const TRIES: usize = 200;
    for _ in 0..TRIES {
        match Polylatch::connect(url) {
            Ok(client) => return client,
            Err(error) if matches!(error.code(), "backend_unavailable" | "quorum_unreachable") => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("no connection in {TRIES} tries")
}

impl Worker {
    fn work(&self, mut random: Random, mut writer: Writer, locks: u64, long: Duration) {
        while !self.stopping.load(Ordering::SeqCst) {
            let lock = random.below(locks) as u32;
            let wait = match random.once_in(HASTY) {
                true => Duration::from_millis(random.below(8)),
                false => PATIENCE,
            };
            match self.client.lock(lock_name(lock)).wait(wait).acquire() {
                Ok(guard) => self.section(lock, &guard, &mut random, &mut writer, long),
                Err(error) => {
                    if error.code() != "wait_timeout" {
                        eprintln!("acquire: {error}");
                    }
                    self.note(&Record::Failed { lock, at: boot_nanos(), code: code(&error) });
                }
            }
        }
    }

    fn section(&self, lock: u32, guard: &Guard, random: &mut Random, writer: &mut Writer, long: Duration) {
        let token = guard.fencing_token().get();
        let at = boot_nanos();
        self.note(&Record::Entered { lock, token, at, valid_until: guard.valid_until().as_nanos() });
        let mut write = || writer.write(lock, token).expect("the resource answers");
        write();
        if random.once_in(LONG) {
            thread::sleep(long);
        } else if random.once_in(MEDIUM) {
            thread::sleep(Duration::from_millis(1 + random.below(8)));
        }
        if random.once_in(AGAIN) {
            // Without a look at the guard: after a pause this comes too late, and is refused.
            write();
        }
        let before = boot_nanos();
        let verdict = verdict(guard);
        let after = boot_nanos();
        let valid_until = guard.valid_until().as_nanos();
        self.note(&Record::Left { lock, token, before, after, verdict, valid_until });
        let result = match guard.release() {
            Ok(()) => "ok".to_owned(),
            Err(error) => code(&error),
        };
        self.note(&Record::Released { lock, token, at: boot_nanos(), result });
    }
}
