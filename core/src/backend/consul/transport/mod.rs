//! How requests reach a Consul agent: HTTP, and what refusals mean.

pub(crate) mod api;
pub(crate) mod errors;
pub(crate) mod pace;
