//! The store inside this process: `memory:` for one client, `memory:NAME` shared by all clients of
//! the process that name it.
//!
//! [`store`] is the readable specification of what every backend does; `backend` only adds the
//! clock, the sharing and the pushes.

mod backend;
#[cfg(not(target_family = "wasm"))]
mod doctor;
#[cfg(not(target_family = "wasm"))]
mod idempotency;
pub(crate) mod store;

pub(crate) use backend::open;
