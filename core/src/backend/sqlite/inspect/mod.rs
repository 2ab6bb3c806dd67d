//! Reading the file for people.

pub(crate) mod snapshot;
