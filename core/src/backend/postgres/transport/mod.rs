//! Connections: opening them, pipelines and transactions on them, and what their failures mean.

pub(crate) mod errors;
pub(crate) mod session;
pub(crate) mod tls;
