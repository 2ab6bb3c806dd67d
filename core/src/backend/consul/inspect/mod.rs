//! Reading the store for people, and following it.

#[cfg(not(target_family = "wasm"))]
mod follow;
mod snapshot;

pub(crate) use snapshot::Announced;
