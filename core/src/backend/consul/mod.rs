//! Consul: locks hang on sessions, waiters are keys in a queue, and a hand-off is one transaction.
//!
//! The held key has the form that `consul lock` and Consul's own client library use, so programs with
//! those are excluded and exclude us. What stands in the store is in `core/docs/wire-format.md`.
//!
//! - `protocol`: keys, values, and [`protocol::view`]: one lock at one moment, and the transaction from there to the
//!   next; no I/O
//! - `acquire`, `renew`, `release`, `sets`: the verbs; `push`: messages of other clients, and the background
//! - [`lookout`]: what a holder knows of the queue behind it, and why that is enough to hand on
//! - [`sessions`]: the sessions of a client
//! - `transport`: HTTP, and whose thread does the work

mod acquire;
mod acquisition;
mod backend;
mod config;
mod delays;
#[cfg(not(target_family = "wasm"))]
mod doctor;
mod inspect;
mod lookout;
pub(crate) mod protocol;
mod push;
mod release;
mod renew;
mod sessions;
mod sets;
mod transport;

pub(crate) use backend::{open, write_if_unchanged};
pub(crate) use config::ConsulConfig;
