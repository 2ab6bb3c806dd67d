//! Statements as values, without I/O.

pub(crate) mod bells;
pub(crate) mod grants;
pub(crate) mod idempotency;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod sessions;
pub(crate) mod statements;
pub(crate) mod transaction;
