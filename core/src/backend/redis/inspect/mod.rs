//! Reading the store for people: locks, waiters, clients, breaks, and other libraries' locks.

#[cfg(not(target_family = "wasm"))]
pub(crate) mod follow;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod foreign;
pub(crate) mod snapshot;
