//! What stands in etcd, and what is sent: no I/O.

pub(crate) mod answers;
pub(crate) mod keys;
pub(crate) mod requests;
