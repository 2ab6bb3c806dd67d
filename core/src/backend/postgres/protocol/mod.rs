//! Statements as values and answers parsed, without I/O.

pub(crate) mod grants;
pub(crate) mod idempotency;
pub(crate) mod messages;
pub(crate) mod reading;
pub(crate) mod schema;
pub(crate) mod sessions;
pub(crate) mod statements;
pub(crate) mod transaction;
