//! Many short sections under random locks.

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polylatch::Mode;
use polylatch::blocking::{Converted, Guard, Polylatch};
use polylatch_robustness::history::CONVERTED;
use polylatch_robustness::random::Random;
use polylatch_robustness::record::{Record, Verdict};
use polylatch_robustness::resource::Writer;
use polylatch_robustness::sharing::Family;
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
    pub long_one_in: u64,
    pub family: Family,
}

/// One in so many sections takes a few milliseconds.
const MEDIUM: u64 = 300;

/// One in so many sections writes a second time at its end.
const AGAIN: u64 = 3;

/// One in so many sections of a read-write lock tries to go on in the other way.
const CONVERTS: u64 = 8;

/// How often a worker looks whether it still holds the lock.
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// How long a worker waits for a lock: under faults some give up, and leave the line.
const PATIENCE: Duration = Duration::from_millis(1500);

/// One in so many sections of locks that are kept asks for one that is not.
const USUAL: u64 = 4;

/// For how long a lease is kept: longer than a lease, and shorter than most of a run.
const KEEPS: Duration = Duration::from_millis(1500);

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
            let (locks, family) = (task.locks, task.family);
            let (long, long_one_in) = (Duration::from_millis(task.long_ms), task.long_one_in);
            thread::spawn(move || {
                Thread { worker: &worker, random, writer, long, long_one_in }.work(locks, family);
            })
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

/// One of a worker's threads.
struct Thread<'worker> {
    worker: &'worker Worker,
    random: Random,
    writer: Writer,
    long: Duration,
    long_one_in: u64,
}

impl Thread<'_> {
    fn work(&mut self, locks: u64, family: Family) {
        while !self.worker.stopping.load(Ordering::SeqCst) {
            let lock = self.random.below(locks) as u32;
            let mode = family.mode(lock, &mut self.random);
            let wait = match self.random.once_in(HASTY) {
                true => Duration::from_millis(self.random.below(8)),
                false => PATIENCE,
            };
            let (client, name) = (&self.worker.client, lock_name(lock));
            let wanted = match mode {
                Mode::Mutex if family == Family::Kept && !self.random.once_in(USUAL) => {
                    client.lock(name).keep_idle(KEEPS)
                }
                Mode::Mutex => client.lock(name),
                Mode::Read => client.read_lock(name),
                Mode::Write => client.write_lock(name),
                Mode::Permits { count, capacity } => client.permits(name, capacity, count),
            };
            let asked = boot_nanos();
            match wanted.wait(wait).acquire() {
                Ok(guard) => self.section(lock, guard, mode, asked),
                Err(error) => {
                    if error.code() != "wait_timeout" {
                        eprintln!("acquire: {error}");
                    }
                    self.worker.note(&Record::Failed { lock, at: boot_nanos(), code: code(&error) });
                }
            }
        }
    }

    /// Everything from an entry to a release, or to going on in another way.
    fn section(&mut self, lock: u32, guard: Guard, mode: Mode, asked: u64) {
        let token = guard.fencing_token().get();
        let (at, valid_until) = (boot_nanos(), guard.valid_until().as_nanos());
        self.worker.note(&Record::Entered { lock, token, at, valid_until, mode, asked });
        let alone = matches!(mode, Mode::Mutex | Mode::Write);
        self.writer.write(lock, token, alone, true).expect("the resource answers");
        let mut held = at;
        if self.random.once_in(self.long_one_in) {
            held = stay(&guard, self.long);
        } else if self.random.once_in(MEDIUM) {
            held = stay(&guard, Duration::from_millis(1 + self.random.below(8)));
        }
        if self.random.once_in(AGAIN) {
            // Without a look at the guard: after a pause this comes too late, and is refused.
            self.writer.write(lock, token, alone, false).expect("the resource answers");
        }
        let before = boot_nanos();
        let verdict = verdict(&guard);
        let after = boot_nanos();
        // A store that has lost data may take a lease away before its end, and say so.
        if let Verdict::Lost(reason) = &verdict
            && reason == "superseded"
        {
            self.worker.note(&Record::Lost { lock, token, at: held, reason: reason.clone() });
        }
        let valid_until = guard.valid_until().as_nanos();
        self.worker.note(&Record::Left { lock, token, before, after, verdict, valid_until });
        let released = |result: String| Record::Released { lock, token, at: boot_nanos(), result };
        let converts = matches!(mode, Mode::Read | Mode::Write) && self.random.once_in(CONVERTS);
        let guard = match converts {
            false => guard,
            true => match convert(guard, mode) {
                Ok((Converted::Done(guard), mode)) => {
                    self.worker.note(&released(CONVERTED.to_owned()));
                    return self.section(lock, guard, mode, after);
                }
                Ok((Converted::Refused(guard), _)) => guard,
                Err(error) => return self.worker.note(&released(code(&error))),
            },
        };
        let result = match guard.release() {
            Ok(()) => "ok".to_owned(),
            Err(error) => code(&error),
        };
        self.worker.note(&released(result));
    }
}

/// Stays in a section for so long; returns when the guard was last seen to be held.
fn stay(guard: &Guard, length: Duration) -> u64 {
    let (began, mut held) = (Instant::now(), boot_nanos());
    while let Some(left) = length.checked_sub(began.elapsed()) {
        let at = boot_nanos();
        if verdict(guard) == Verdict::Held {
            held = at;
        }
        thread::sleep(left.min(LOOKS_EVERY));
    }
    held
}

/// Goes on in the other way, and says which that is.
fn convert(guard: Guard, mode: Mode) -> polylatch::Result<(Converted, Mode)> {
    Ok(match mode {
        Mode::Write => (Converted::Done(guard.downgrade()?), Mode::Read),
        _ => (guard.try_upgrade()?, Mode::Write),
    })
}
