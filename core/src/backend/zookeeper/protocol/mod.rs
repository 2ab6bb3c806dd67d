//! What stands in ZooKeeper, and what is sent: no I/O.

pub(crate) mod answers;
pub(crate) mod nodes;
pub(crate) mod requests;
pub(crate) mod standing;
pub(crate) mod turns;
pub(crate) mod wire;
