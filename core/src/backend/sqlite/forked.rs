//! Keeps SQLite out of processes that were forked while it was in use.
//!
//! SQLite counts a process's file locks in the process's memory. A forked child inherits the counts but
//! not the locks, so it would believe in locks that it does not have, and the file could be damaged
//! under it; its mutexes may even have been copied while locked. Not even closing what was inherited is
//! safe. (SQLite: "How To Corrupt An SQLite Database File", section 2.6.)

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, ErrorKind, Result};

/// The process that uses SQLite, in the upper half, and how many files it has open.
static USED_BY: AtomicU64 = AtomicU64::new(0);

const PROCESS: u64 = 1 << 32;

/// One open file of this process.
#[derive(Debug)]
pub(super) struct InUse(());

impl InUse {
    /// Errors: `unsupported` if this process was forked from one that had a file open.
    pub(super) fn begin() -> Result<Self> {
        let me = u64::from(std::process::id()) * PROCESS;
        let taken = USED_BY.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| match used % PROCESS {
            0 => Some(me + 1),
            _ if used / PROCESS * PROCESS == me => Some(used + 1),
            _ => None,
        });
        match taken {
            Ok(_) => Ok(Self(())),
            Err(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "this process was forked while its parent used a sqlite: store, and SQLite cannot go on in a \
                 forked child; connect only after the fork, close the client before it, start workers by \
                 spawn or forkserver, or use another store",
            )),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        USED_BY.fetch_sub(1, Ordering::SeqCst);
    }
}
