//! The mode of a lock: alone, shared, or by permits.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// Most permits of one semaphore. Every step of a store looks at all holders, so more would be slow.
pub const MAX_PERMITS: u32 = 1000;

/// The mode in which a lock is held or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By one holder, without any other way.
    Mutex,
    /// A read-write lock, beside other readers.
    Read,
    /// A read-write lock, alone.
    Write,
    /// Some of a semaphore's permits.
    Permits {
        /// How many.
        count: u32,
        /// How many there are.
        capacity: u32,
    },
}

/// What kind of lock a name stands for; one name has one kind as long as a client holds or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One holder at a time.
    Mutex,
    /// Many readers or one writer.
    ReadWrite,
    /// As many permits as its capacity.
    Semaphore {
        /// How many permits there are.
        capacity: u32,
    },
}

impl Mode {
    /// Returns the kind of lock that can be held in this way.
    pub fn kind(self) -> Kind {
        match self {
            Self::Mutex => Kind::Mutex,
            Self::Read | Self::Write => Kind::ReadWrite,
            Self::Permits { capacity, .. } => Kind::Semaphore { capacity },
        }
    }

    /// Returns the stable code: `mutex`, `read`, `write` or `permits`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permits { .. } => "permits",
        }
    }

    /// Returns how many permits it takes; 1 for everything that is no semaphore.
    pub fn permits(self) -> u32 {
        match self {
            Self::Permits { count, .. } => count,
            _ => 1,
        }
    }

    /// Checks the numbers: 1 to 1 000 permits, and not more than there are.
    pub(crate) fn check(self) -> Result<Self> {
        if let Self::Permits { count, capacity } = self {
            let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
            if capacity == 0 || capacity > MAX_PERMITS {
                return invalid(format!(
                    "the semaphore has {capacity} permits; 1 to {MAX_PERMITS} are allowed"
                ));
            }
            if count == 0 || count > capacity {
                return invalid(format!(
                    "requested {count} permits, but the semaphore has {capacity}; request 1 to {capacity}"
                ));
            }
        }
        Ok(self)
    }
}

impl Kind {
    /// Returns the stable code: `mutex`, `rw` or `semaphore`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "rw",
            Self::Semaphore { .. } => "semaphore",
        }
    }

    /// Returns how many permits there are, if it is a semaphore.
    pub fn capacity(self) -> Option<u32> {
        match self {
            Self::Semaphore { capacity } => Some(capacity),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("a mutex"),
            Self::ReadWrite => f.write_str("a read-write lock"),
            Self::Semaphore { capacity } => write!(f, "a semaphore of {capacity} permits"),
        }
    }
}

/// The error of a name that is in use as another kind of lock.
pub(crate) fn other_kind(name: &str, present: Kind, wanted: Kind) -> Error {
    Error::new(
        ErrorKind::NameConflict,
        format!(
            "the name {name:?} is in use as {present}, so it cannot be {wanted} at the same time; use another \
             name, or the same kind everywhere"
        ),
    )
    .on_lock(name)
}
