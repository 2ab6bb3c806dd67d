//! Keeps SQLite out of processes that were forked while it was in use, and out of use while a process forks.
//!
//! SQLite counts a process's file locks in the process's memory. A forked child inherits the counts but
//! not the locks, so it would believe in locks that it does not have, and the file could be damaged
//! under it; its mutexes may even have been copied while locked. Not even closing what was inherited is
//! safe. (SQLite: "How To Corrupt An SQLite Database File", section 2.6.) Where no file is open at the fork, no thread
//! is inside SQLite and nothing is counted, so the child starts with a clean library.
//!
//! Everything that the child looks at is an atomic number: a mutex may be copied while it is locked.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::sqlite::transport::thread::Message;
use crate::client_info::process_id;
use crate::error::{Error, ErrorKind, Result};

/// How long a file stays closed for a fork of whose end nothing is heard.
const LONGEST_FORK: Duration = Duration::from_secs(2);

/// How often it is looked whether files are open.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long the list of clients is waited for, which is locked for less than a microsecond at a time. In a forked
/// child it may have been copied while it was locked.
const LIST_WITHIN: Duration = Duration::from_millis(100);

/// What the process that uses SQLite does with it; packed into a number, so that one step changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    process: u32,
    /// How many forks are being prepared.
    forks: u8,
    /// How many files are open.
    files: u32,
}

static USE: AtomicU64 = AtomicU64::new(0);

impl Use {
    const FILES: u64 = (1 << 24) - 1;

    fn of(word: u64) -> Self {
        Self { process: (word >> 32) as u32, forks: (word >> 24) as u8, files: (word & Self::FILES) as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.process) << 32 | u64::from(self.forks) << 24 | u64::from(self.files) & Self::FILES
    }

    /// As this process finds it: what a parent did is over, unless it had files open.
    fn here(self) -> Option<Self> {
        match self {
            Self { process, .. } if process == process_id() => Some(self),
            Self { files: 0, .. } => Some(Self { process: process_id(), forks: 0, files: 0 }),
            _ => None,
        }
    }

    /// Changes it; `None` if the change is none, or in the child of a process that had files open.
    fn change(change: impl Fn(Self) -> Option<Self>) -> Option<()> {
        let changed = |word| Self::of(word).here().and_then(&change).map(Self::word);
        USE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).ok().map(drop)
    }
}

/// Why files were open at the latest fork that was prepared.
static WHY_OPEN: AtomicU8 = AtomicU8::new(NOT_PREPARED);
const NOT_PREPARED: u8 = 0;
const HELD: u8 = 1;
const NO_ANSWER: u8 = 2;

/// One open file of this process.
#[derive(Debug)]
pub(crate) struct InUse(());

impl InUse {
    /// Waits while this process forks.
    ///
    /// Errors: `unsupported` if this process was forked from one that had a file open.
    pub(crate) fn begin() -> Result<Self> {
        let begun = Instant::now();
        loop {
            let goes_on = begun.elapsed() >= LONGEST_FORK;
            let open = |now: Use| (now.forks == 0 || goes_on).then(|| Use { files: now.files + 1, ..now });
            if Use::change(open).is_some() {
                return Ok(Self(()));
            }
            if Use::of(USE.load(Ordering::SeqCst)).here().is_none() {
                return Err(forked_in_use());
            }
            // Looked at again and again: nothing that could wake this thread may be shared with a child.
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // In a child, what was inherited is never dropped.
        Use::change(|now| Some(Use { files: now.files.saturating_sub(1), ..now }));
    }
}

fn forked_in_use() -> Error {
    let why = match WHY_OPEN.load(Ordering::SeqCst) {
        HELD => "while a client of its parent held or waited for a lock in a sqlite: store",
        NO_ANSWER => "while a request to a sqlite: store of its parent was under way",
        _ => "while its parent used a sqlite: store",
    };
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this process was forked {why}, and SQLite cannot go on in a forked child; connect only after the fork, \
             release the lock or close the client before it, start workers by spawn or forkserver, or use another store"
        ),
    )
}

/// Database threads, each with the process that it is of.
type Threads = Vec<(u32, Weak<Sender<Message>>)>;

/// Those that are asked before a fork.
static THREADS: Mutex<Threads> = Mutex::new(Vec::new());

fn threads(limit: Duration) -> Option<MutexGuard<'static, Threads>> {
    let begun = Instant::now();
    loop {
        match THREADS.try_lock() {
            Ok(threads) => return Some(threads),
            Err(TryLockError::Poisoned(poisoned)) => return Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < limit => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Has a database thread asked before forks. Where the list cannot be had, a child gets the error of [`InUse::begin`].
pub(crate) fn remember(queue: &Arc<Sender<Message>>) {
    if let Some(mut threads) = threads(LIST_WITHIN) {
        let me = process_id();
        threads.retain(|(process, queue)| *process == me && queue.strong_count() > 0);
        threads.push((me, Arc::downgrade(queue)));
    }
}

/// See [`crate::fork::before`].
pub(crate) fn before(limit: Duration) {
    let begun = Instant::now();
    Use::change(|now| Some(Use { forks: now.forks.saturating_add(1), ..now }));
    WHY_OPEN.store(NOT_PREPARED, Ordering::SeqCst);
    let me = process_id();
    let queues: Option<Vec<_>> = threads(limit.min(LIST_WITHIN)).map(|threads| {
        threads
            .iter()
            .filter(|(process, _)| *process == me)
            .filter_map(|(_, queue)| queue.upgrade())
            .collect()
    });
    let Some(queues) = queues else {
        return WHY_OPEN.store(NO_ANSWER, Ordering::SeqCst);
    };
    let (reply, answers) = sync_channel(queues.len());
    for queue in queues {
        // One that has ended has closed its file.
        let _ = queue.send(Message::Rest(reply.clone()));
    }
    drop(reply);
    // A thread that is about to open its file does not answer: it waits for the end of this fork.
    while files_are_open() {
        let left = limit.saturating_sub(begun.elapsed());
        match answers.recv_timeout(left.min(LOOK_EVERY)) {
            Ok(true) => {}
            Ok(false) => WHY_OPEN.store(HELD, Ordering::SeqCst),
            Err(_) if left.is_zero() => {
                let _ =
                    WHY_OPEN.compare_exchange(NOT_PREPARED, NO_ANSWER, Ordering::SeqCst, Ordering::SeqCst);
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // All have answered. One that holds keeps its file open; otherwise it is the file of a client that was
            // dropped, whose thread is about to close it.
            Err(RecvTimeoutError::Disconnected) if WHY_OPEN.load(Ordering::SeqCst) == HELD => break,
            Err(RecvTimeoutError::Disconnected) => thread::sleep(left.min(LOOK_EVERY)),
        }
    }
}

fn files_are_open() -> bool {
    Use::of(USE.load(Ordering::SeqCst)).here().is_none_or(|now| now.files > 0)
}

/// See [`crate::fork::after_in_parent`].
pub(crate) fn after_in_parent() {
    Use::change(|now| Some(Use { forks: now.forks.saturating_sub(1), ..now }));
}
