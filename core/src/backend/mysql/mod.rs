//! MySQL and MariaDB: locks as rows, time by the server's clock.
//!
//! - An uncontended acquire is one conditional UPDATE of the row of the lock, and so are its renewal and its release.
//!   The row stays: nothing is inserted or deleted on the way.
//! - Every other verb is one transaction: it locks the row of the lock, reads leases and the first waiters, decides
//!   ([`crate::backend::rows`]) and writes.
//! - Rows are found by their primary keys alone, and each session runs in READ COMMITTED: no gap is locked, so clients
//!   at many new names do not meet.
//! - The server pushes nothing. A client that waits sleeps in a request, which a release ends ([`doorbell`]).

mod config;
#[cfg(all(test, unix))]
mod differential;
mod doctor;
mod doorbell;
mod open;
pub(crate) mod protocol;
mod renew;
mod server;
mod transport;

pub(crate) use config::MysqlConfig;
pub use open::{mysql_grants, mysql_schema};
pub use protocol::grants::MysqlRole;
pub(crate) use protocol::transaction;
pub(crate) use server::open;
