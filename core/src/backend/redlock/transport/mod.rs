//! The nodes: a connection to each, and one question to all.

pub(crate) mod fanout;
pub(crate) mod node;
