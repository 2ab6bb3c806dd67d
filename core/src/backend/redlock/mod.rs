//! Several independent Redis servers that decide by majority.
//!
//! Every question goes to all nodes at once and is decided the moment its answer can no longer change
//! ([`crate::policy::quorum`]); late answers are settled in the background, and what they took is
//! released. A node that restarted, was promoted or was emptied does not vote until every lease that it
//! may have lost has expired ([`crate::policy::admission`]). What stands on a node is in
//! `core/docs/wire-format.md`; the protocol is in `docs.md`.

mod acquire;
mod backend;
mod care;
mod config;
mod doctor;
mod gate;
mod inspect;
mod live;
#[cfg(test)]
mod patterns;
mod protocol;
mod push;
mod release;
mod renew;
mod transport;

pub(crate) use backend::open;
pub(crate) use config::RedlockConfig;
