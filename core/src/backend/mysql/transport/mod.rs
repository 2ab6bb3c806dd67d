//! Connections: opening them, statements on them, and what their failures mean.

pub(crate) mod errors;
pub(crate) mod session;
