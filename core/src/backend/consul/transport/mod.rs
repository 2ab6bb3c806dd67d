//! How requests reach a Consul agent: HTTP, and what refusals mean.

pub(crate) mod api;
pub(crate) mod errors;
pub(crate) mod hosted;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod native;
pub(crate) mod pace;
pub(crate) mod port;
