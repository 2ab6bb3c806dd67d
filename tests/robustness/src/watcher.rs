//! Looks into the store all the time: who holds a lock together by the store's own account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use polylatch::Mode;
use polylatch::blocking::Polylatch;
use polylatch::inspect::{LockView, Query};

use crate::sharing::exclude;

/// How long to wait between two looks: often enough to see most faults, seldom enough to cost little.
const PAUSE: Duration = Duration::from_millis(20);

/// Somebody who looks until told to stop.
#[derive(Debug)]
pub struct Watcher {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// What a watcher has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub looks: u64,
    pub most_holders: usize,
}

impl Watcher {
    /// Starts to look. A look that fails does not count: the store may be hurt just now.
    #[track_caller]
    pub fn start(url: &str) -> Self {
        let client = Polylatch::connect(url).unwrap_or_else(|error| panic!("{error:?}"));
        let stopping = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stopping);
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::SeqCst) {
                if let Ok(snapshot) = client.list(&Query::default()) {
                    seen.looks += 1;
                    for lock in &snapshot.locks {
                        seen.most_holders = seen.most_holders.max(lock.holders.len());
                        if let Some(wrong) = wrongly_together(lock) {
                            panic!("the store itself says: {wrong}");
                        }
                    }
                }
                thread::sleep(PAUSE);
            }
            seen
        });
        Self { stopping, thread: Some(thread) }
    }

    /// Ends it; fails if it has seen holders who exclude each other.
    #[track_caller]
    pub fn stop(mut self) -> Seen {
        self.stopping.store(true, Ordering::SeqCst);
        let seen = self.thread.take().expect("it is taken here only").join();
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}

/// Says which live holders of a lock should not be there together, by the store's account at one moment.
pub fn wrongly_together(lock: &LockView) -> Option<String> {
    let modes: Vec<_> = lock
        .holders
        .iter()
        .map(|holder| match (&*holder.mode, lock.capacity) {
            ("read", _) => Mode::Read,
            ("write", _) => Mode::Write,
            ("permits", Some(capacity)) => Mode::Permits { count: holder.permits, capacity },
            _ => Mode::Mutex,
        })
        .collect();
    let taken: u32 = lock.holders.iter().map(|holder| holder.permits).sum();
    let too_many = lock.capacity.is_some_and(|capacity| taken > capacity);
    let pairs =
        modes.iter().enumerate().flat_map(|(at, one)| modes[at + 1..].iter().map(move |other| (one, other)));
    let excluded = pairs.into_iter().any(|(one, other)| exclude(*one, *other));
    (too_many || excluded).then(|| format!("{} is held together by {:?}", lock.name, lock.holders))
}
