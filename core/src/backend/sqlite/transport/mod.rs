//! The file: the thread that owns its connection, how it is opened, and what the host says about it.

pub(crate) mod blocker;
pub(crate) mod ended;
pub(crate) mod errors;
pub(crate) mod forked;
pub(crate) mod host;
pub(crate) mod open;
pub(crate) mod thread;
