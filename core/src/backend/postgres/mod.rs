//! PostgreSQL: locks as rows, time by the server's clock.
//!
//! - An uncontended acquire is one statement on the row of the lock, and so is its release.
//! - Every other verb is one transaction: it locks the row of the lock, reads leases and the first waiters, decides
//!   ([`crate::backend::rows`]) and writes.
//! - Grants and breaks are pushed by NOTIFY to the client concerned, only if another client waits.
//! - Nothing is kept in the session, so a pooler may be in between; in session mode ([`crate::backend::rows::server::sessions`])
//!   it may not.

mod config;
#[cfg(all(test, unix))]
mod differential;
mod doctor;
mod open;
pub(crate) mod protocol;
mod push;
mod server;
mod transport;

pub(crate) use config::{DEFAULT_SCHEMA, PostgresConfig};
pub(crate) use open::{checked, take_in_transaction};
pub use open::{postgres_grants, postgres_schema};
pub use protocol::grants::PostgresRole;
pub(crate) use server::open;
