//! The embedded store: one SQLite file that the processes of one host share. The default.
//!
//! - Every verb that writes is one `BEGIN IMMEDIATE` transaction, so its step is atomic among all
//!   processes. A process that dies in it has done nothing.
//! - Time is the host's boot clock, which no wall-clock step touches and which runs during sleep. A
//!   restart of the host voids all leases: the file says in which boot it was written.
//! - Fences and tickets come from one counter for all names, so rows of free locks need not stay.
//! - A new file is readable and writable by its user only. Users who share one make it first, empty, with
//!   the rights that they want; these stay.
//! - One native thread per client owns the connection. Callers send it steps and await the answers,
//!   so no caller's thread ever blocks on the disk; steps that queue up share one transaction.
//! - While the process forks, clients that hold nothing and wait for nothing close the file ([`transport::forked`]).
//! - Grants by the same process are pushed after their commit; those by other processes are noticed
//!   by looking at the file every 1 to 8 ms while somebody of this client waits.

mod backend;
mod config;
mod deadlines;
mod doctor;
mod idempotency;
mod inspect;
mod push;
mod rows;
mod store;
#[cfg(test)]
mod tests;
mod tidy;
pub(crate) mod transport;
mod units;

pub(crate) use backend::{make_state_directory, open};
pub(crate) use config::SqliteOptions;
