//! How bytes reach a Redis server: connections, requests made at the same time, replies and their errors.

pub(crate) mod batch;
pub(crate) mod hosted;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod login;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod native;
pub(crate) mod port;
pub(crate) mod replies;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod route;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod sentinel;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod stream;
