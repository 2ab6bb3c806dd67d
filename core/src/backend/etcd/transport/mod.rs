//! How requests reach the members: HTTP, authentication, and what refusals mean.

pub(crate) mod api;
pub(crate) mod errors;
