//! Does what it is told, line by line, and tells what happened on standard output.
//!
//! - `acquire LOCK LABEL`: waits for the lock in the background, tells `entered`, keeps the guard
//! - `write LOCK`: writes to the resource under the guard's token, tells `wrote`
//! - `leave LOCK`: tells `left`, releases, tells `released`
//! - `watch LOCK`: tells `lost` when the guard's signal comes
//! - `spin LOCK`: tells `looked` at once, then looks at the guard without pause until the process was
//!   paused, and tells `looked` again
//! - `queue LOCK COUNT LABEL`: COUNT threads acquire, tell `entered`, `named`, `left`, `released`

use std::collections::HashMap;
use std::io::{BufRead, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use polylatch::Mode;
use polylatch::blocking::{Guard, Polylatch};
use polylatch_robustness::record::Record;
use polylatch_robustness::resource::Writer;
use polylatch_robustness::{boot_nanos, lock_name};

use crate::{code, verdict};

/// The clock does not stand still for longer than this unless the process does.
const PAUSE: u64 = 200_000_000;

struct Script {
    client: Polylatch,
    writer: Mutex<Writer>,
    guards: Mutex<HashMap<u32, Arc<Guard>>>,
}

pub fn run(url: &str, resource: &Path) {
    let client = Polylatch::connect(url).unwrap_or_else(|error| panic!("{error:?}"));
    let writer = Mutex::new(Writer::connect(resource).expect("the resource is there"));
    let script = Arc::new(Script { client, writer, guards: Mutex::default() });
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse().expect("the test passes numbers");
        let started = Arc::clone(&script);
        match *words.as_slice() {
            ["acquire", lock, label] => {
                let (lock, label) = (number(lock), label.to_owned());
                thread::spawn(move || started.acquire(lock, &label));
            }
            ["write", lock] => script.write(number(lock)),
            ["leave", lock] => script.leave(number(lock)),
            ["watch", lock] => {
                let lock = number(lock);
                thread::spawn(move || started.watch(lock));
            }
            ["spin", lock] => {
                let lock = number(lock);
                thread::spawn(move || started.spin(lock));
            }
            ["queue", lock, count, label] => {
                for index in 0..number(count) {
                    let (script, lock) = (Arc::clone(&script), number(lock));
                    let label = format!("{label}{index}");
                    thread::spawn(move || script.pass_through(lock, &label));
                }
            }
            _ => panic!("no such order: {line:?}"),
        }
    }
    script.client.close();
}

fn tell(record: &Record) {
    let mut out = std::io::stdout().lock();
    // The test has ended if nobody listens.
    let _ = writeln!(out, "{record}").and_then(|()| out.flush());
}

fn tell_left(lock: u32, guard: &Guard) {
    let token = guard.fencing_token().get();
    let before = boot_nanos();
    let verdict = verdict(guard);
    let after = boot_nanos();
    let valid_until = guard.valid_until().as_nanos();
    tell(&Record::Left { lock, token, before, after, verdict, valid_until });
    let result = guard.release().err().map_or_else(|| "ok".to_owned(), |error| code(&error));
    tell(&Record::Released { lock, token, at: boot_nanos(), result });
}

impl Script {
    /// Waits for the lock. The guard is passed to `keep` before the test hears of it, because the
    /// next order may need it.
    fn enter<T>(&self, lock: u32, label: &str, keep: impl FnOnce(Guard) -> T) -> Option<T> {
        let asked = boot_nanos();
        let result = self.client.lock(lock_name(lock)).label(label).acquire();
        let at = boot_nanos();
        match result {
            Ok(guard) => {
                let (token, valid_until) = (guard.fencing_token().get(), guard.valid_until().as_nanos());
                let kept = keep(guard);
                tell(&Record::Entered { lock, token, at, valid_until, mode: Mode::Mutex, asked });
                Some(kept)
            }
            Err(error) => {
                tell(&Record::Failed { lock, at, code: code(&error) });
                None
            }
        }
    }

    fn acquire(&self, lock: u32, label: &str) {
        self.enter(lock, label, |guard| {
            self.guards.lock().expect("no thread panics").insert(lock, Arc::new(guard));
        });
    }

    fn guard(&self, lock: u32) -> Arc<Guard> {
        Arc::clone(&self.guards.lock().expect("no thread panics")[&lock])
    }

    fn write(&self, lock: u32) {
        let token = self.guard(lock).fencing_token().get();
        let (accepted, largest) = self
            .writer
            .lock()
            .expect("no thread panics")
            .write(lock, token, true, true)
            .expect("the resource answers");
        tell(&Record::Wrote { lock, token, at: boot_nanos(), accepted, largest });
    }

    fn leave(&self, lock: u32) {
        let guard = self.guards.lock().expect("no thread panics").remove(&lock).expect("it was acquired");
        tell_left(lock, &guard);
    }

    fn watch(&self, lock: u32) {
        let guard = self.guard(lock);
        let reason = guard.wait_until_lost();
        let at = boot_nanos();
        let token = guard.fencing_token().get();
        tell(&Record::Lost { lock, token, at, reason: reason.code().to_owned() });
    }

    fn spin(&self, lock: u32) {
        let guard = self.guard(lock);
        let token = guard.fencing_token().get();
        let mut last = boot_nanos();
        // The test pauses the process only after it has heard of the first look.
        tell(&Record::Looked { lock, token, last, at: last, verdict: verdict(&guard) });
        loop {
            let at = boot_nanos();
            let verdict = verdict(&guard);
            if at - last > PAUSE {
                return tell(&Record::Looked { lock, token, last, at, verdict });
            }
            last = at;
        }
    }

    fn pass_through(&self, lock: u32, label: &str) {
        if let Some(guard) = self.enter(lock, label, |guard| guard) {
            let token = guard.fencing_token().get();
            tell(&Record::Named { lock, token, label: label.to_owned() });
            tell_left(lock, &guard);
        }
    }
}
