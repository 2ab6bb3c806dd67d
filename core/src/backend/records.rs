//! What a store does for idempotent work: it keeps records and replaces one if it has not changed since it was read.
//!
//! The decisions are those of [`crate::policy::idempotency`], so a store has one atomic step.

use std::time::Duration;

use crate::backend::Reply;
use crate::error::{Error, ErrorKind};
use crate::policy::idempotency::{Record, RecordId, Seen};

/// The error of a store that keeps no records.
pub(crate) fn none_kept(backend: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{backend} keeps no records of idempotent work; use a memory, SQLite, Redis, PostgreSQL or MySQL store for them, \
             beside the store of the locks if need be"
        ),
    )
}

/// What to write over a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Put {
    Write {
        record: Record,
        /// A claim ends so long after this is carried out, by the store's clock.
        lease: Option<Duration>,
        /// The record counts as absent so long after this is carried out; `None`: never. A claim's end does not depend on
        /// it.
        keep: Option<Duration>,
    },
    Delete,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// Written, or deleted. A new version is larger than the one before, and is the fence of a new claim.
    Done { version: u64 },
    /// The record is not of the expected version; nothing was changed.
    Refused(Option<Seen>),
}

/// Which records to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Only those of scopes that begin with this.
    pub scope_prefix: String,
    /// How many at most.
    pub most: usize,
}

/// The records of one store. Errors are as of [`crate::backend::Backend`].
pub(crate) trait Records: Send + Sync {
    /// Reads a record.
    fn read(&self, id: &RecordId) -> Reply<Option<Seen>>;

    /// Writes over the record if its version is the expected one (`None`: there is none), in one atomic step. Durable to
    /// the degree that the store offers before it answers.
    fn swap(&self, id: &RecordId, expected: Option<u64>, put: Put) -> Reply<Swapped>;

    /// Lists records in the order of scopes and keys, those of which the retention is over left out. Results and owner
    /// tokens are not read.
    fn list(&self, listing: &Listing) -> Reply<Vec<(RecordId, Seen)>>;

    /// Deletes at most so many records whose retention is over, and says how many. 0 where the store does that itself.
    fn purge(&self, most: usize) -> Reply<u64>;
}
