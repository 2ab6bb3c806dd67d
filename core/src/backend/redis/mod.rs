//! One Redis server: a string per lock, a queue of waiters, and hand-off by push.
//!
//! `protocol/` says what is sent and what the answers mean, `transport/` moves it, the verbs (`acquire`, `renew`,
//! `release`, `push`) join the two. What stands in the store is in `core/docs/wire-format.md`.

mod acquire;
mod backend;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod cluster;
pub(crate) mod config;
#[cfg(all(test, unix))]
mod differential;
#[cfg(not(target_family = "wasm"))]
mod doctor;
#[cfg(not(target_family = "wasm"))]
mod idempotency;
pub(crate) mod inspect;
#[cfg(not(target_family = "wasm"))]
mod keep;
pub(crate) mod protocol;
mod push;
mod release;
mod renew;
pub(crate) mod transport;
mod unlisted;

pub(crate) use backend::open;
pub(crate) use config::RedisConfig;
