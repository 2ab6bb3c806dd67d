//! What stands in the key-value store, and the transactions that change it. No I/O.

pub(crate) mod keys;
pub(crate) mod records;
pub(crate) mod view;
