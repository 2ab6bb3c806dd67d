//! What the tables say, for inspection.

pub(crate) mod snapshot;
