//! From what SQLite and the file system say to what a caller can act on.

use std::path::Path;

use rusqlite::ffi;

use crate::error::{Effect, Error, ErrorKind};

/// Why a job failed. Unlike [`Error`] it can be told to every job of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub kind: ErrorKind,
    pub effect: Effect,
    pub message: String,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, effect: Effect::None, message: message.into() }
    }

    /// The same as an error that came of opening the file, for a job that was not started.
    pub(crate) fn of_error(error: &Error) -> Self {
        Self::new(error.kind(), error.message())
    }

    /// The job may have been carried out.
    pub(crate) fn maybe(mut self) -> Self {
        self.effect = Effect::Maybe;
        self
    }

    pub(crate) fn to_error(&self) -> Error {
        Error::new(self.kind, self.message.clone()).with_effect(self.effect)
    }

    /// Explains an error of SQLite about a file.
    pub(crate) fn of_sqlite(error: &rusqlite::Error, file: &Path) -> Self {
        use ErrorKind::{BackendRejected, BackendUnavailable, Internal};
        let code = error.sqlite_error().map_or(0, |error| error.extended_code);
        let (kind, rule) = match code & 0xff {
            ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => (
                BackendUnavailable,
                "another program keeps a transaction open (a database shell, a backup?); let it finish, or \
                 raise busy_timeout",
            ),
            ffi::SQLITE_FULL => (BackendUnavailable, "its disk is full; free some space"),
            ffi::SQLITE_READONLY if code == ffi::SQLITE_READONLY_DBMOVED => (
                BackendUnavailable,
                "it was removed or replaced while open; restart the programs that use it",
            ),
            ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => (
                BackendRejected,
                "it, or its folder, is read-only for this process; allow writing to both, because leases \
                 and their log are written there",
            ),
            // With a full disk some operations, even reads, fail like this instead.
            ffi::SQLITE_IOERR => {
                (BackendUnavailable, "reading or writing failed; check that its disk is healthy and not full")
            }
            ffi::SQLITE_CANTOPEN => (
                BackendUnavailable,
                "it, or its log beside it, cannot be opened; check the folder, its permissions, the disk's \
                 free space and the limit on open files",
            ),
            ffi::SQLITE_NOMEM => (BackendUnavailable, "the process has no memory left"),
            ffi::SQLITE_NOTADB => {
                (BackendRejected, "it is not a SQLite database; it was left as it is, so give another path")
            }
            ffi::SQLITE_CORRUPT => (
                BackendRejected,
                "it is damaged; it was left as it is, so stop its users, move it away and start again with \
                 a new file",
            ),
            ffi::SQLITE_ERROR | ffi::SQLITE_CONSTRAINT | ffi::SQLITE_SCHEMA => (
                BackendRejected,
                "its tables are not those of this version; another version of Polylatch or another program changed \
                 them, so run the same version in all programs that use it",
            ),
            _ => (Internal, "SQLite answered something unexpected; please report this"),
        };
        let blocker = match code & 0xff {
            ffi::SQLITE_BUSY => {
                crate::backend::sqlite::transport::blocker::describe(file).map(|who| format!(": {who}"))
            }
            _ => None,
        };
        Self::new(
            kind,
            format!("the lock file {}: {rule}{} ({error})", file.display(), blocker.unwrap_or_default()),
        )
    }
}

/// Says that a file is not ours to use; what is in it stays as it is.
pub(crate) fn foreign(path: &Path, what: &str) -> Failure {
    Failure::new(
        ErrorKind::NameConflict,
        format!(
            "{} is a database of another program ({what}); it was left as it is, so give another path",
            path.display()
        ),
    )
}

/// Says that the file at a path is no longer the one that was opened.
pub(crate) fn moved(path: &Path) -> Failure {
    Failure::new(
        ErrorKind::BackendUnavailable,
        format!(
            "the lock file {} was removed or replaced while open; leases now end by their own time. Put the \
             file back, or restart the programs that use it",
            path.display()
        ),
    )
}

/// Says that the next number would not be exact in every language.
pub(crate) fn used_up(path: &Path) -> Failure {
    Failure::new(
        ErrorKind::BackendRejected,
        format!(
            "the counter of fencing tokens in the lock file {} is used up (2^53), so no lock can be granted; it \
             was changed by hand or by a clock far ahead: use another file",
            path.display()
        ),
    )
}

/// Says that two machines, or two virtual machines, write the same file.
pub(crate) fn two_hosts(path: &Path) -> Failure {
    Failure::new(
        ErrorKind::BackendRejected,
        format!(
            "the lock file {} is also used by another machine (its boot id is not this one's), which cannot \
             work; give every machine its own file, or use a store on the network",
            path.display()
        ),
    )
}
